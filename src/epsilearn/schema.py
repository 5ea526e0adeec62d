"""What is public about a table, written down before anybody looks at it.

A schema names every column and says what its values can be: numbers between bounds, one of several categories, or
nothing that matters. Everything a fit does to the rows follows from it. Nothing in it is ever read off the values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from epsilearn.checks import check_bounds, check_choice, check_integer, check_positive
from epsilearn.errors import InvalidInput

__all__ = ["FORMATS", "Column", "FileFormat", "Others", "Schema", "check_count", "one_line"]

FORMATS = ("csv", "tsv", "parquet", "arrow", "libsvm")
SPARSE_TARGET = "target"  # what the first field of a libsvm line is called
_VERSION = 1
_MOST_COLUMNS = 10_000_000
_MOST_ROWS = 10**15

Value = str | float | bool


@dataclass(frozen=True)
class Column:
    """What is public about one column: bounds, or categories, or that it is not used.

    Attributes
    ----------
    bounds : (float, float) or None
        Numbers beyond them are moved to the nearer one.
    categories : tuple or None
        Every value there can be: texts, numbers or booleans.
    missing : value or None
        What stands for a value that is not known; without it a missing value is an error.
    other : value or None
        The category that stands for everything not listed; without it an unlisted value is an error.
    aliases : dict
        Other ways in which a text category is written.
    """

    bounds: tuple[float, float] | None = None
    categories: tuple[Value, ...] | None = None
    missing: Value | None = None
    other: Value | None = None
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def ignored(self) -> bool:
        return self.bounds is None and self.categories is None

    @property
    def width(self) -> int:
        """How many numbers stand for it."""
        return 0 if self.ignored else 1 if self.categories is None else len(self.categories)

    def to_dict(self) -> dict[str, Any]:
        if self.ignored:
            return {"ignore": True}
        found: dict[str, Any] = {}
        if self.bounds is not None:
            found["bounds"] = list(self.bounds)
        if self.categories is not None:
            found["categories"] = list(self.categories)
        for name in ("missing", "other"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.aliases:
            found["aliases"] = dict(self.aliases)
        return found

    @classmethod
    def from_dict(cls, data: object, where: str) -> Column:
        content = _section(data, where, ("bounds", "categories", "ignore", "missing", "other", "aliases"))
        ignore = content.pop("ignore", None)
        if ignore is not None and ignore is not True:
            raise InvalidInput(f"{where}: ignore can only be true; leave it out for a column that is used")
        kinds = [name for name in ("bounds", "categories") if name in content] + ["ignore"] * bool(ignore)
        if len(kinds) != 1:
            raise InvalidInput(
                f"{where} needs exactly one of bounds = [low, high], categories = [...] or ignore = true; it has "
                + (" and ".join(kinds) or "none of them")
            )
        if ignore:
            if content:
                raise InvalidInput(f"{where} is ignored, so {', '.join(content)} has no meaning; leave it out")
            return cls()
        return _number(content, where) if "bounds" in content else _category(content, where)


def _number(content: dict[str, Any], where: str) -> Column:
    for name in ("other", "aliases"):
        if name in content:
            raise InvalidInput(f"{where}: {name} is for categories; a column with bounds is a number")
    try:
        bounds = check_bounds(content["bounds"])
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
    missing = content.get("missing")
    if missing is not None and not (_kind(missing) == "number" and bounds[0] <= missing <= bounds[1]):
        raise InvalidInput(f"{where}: missing must be a number between the bounds")
    return Column(bounds=bounds, missing=None if missing is None else float(missing))


def _category(content: dict[str, Any], where: str) -> Column:
    given = content["categories"]
    if not isinstance(given, list) or not given:
        raise InvalidInput(f"{where}: categories must be a list of at least one value")
    kinds = {_kind(value) for value in given}
    if len(kinds) != 1 or None in kinds:
        raise InvalidInput(f"{where}: categories must be all texts, all finite numbers or all booleans")
    if len(set(given)) != len(given):
        raise InvalidInput(f"{where}: categories must be different from each other")
    categories = tuple(float(v) if _kind(v) == "number" and isinstance(v, float) else v for v in given)
    for name in ("missing", "other"):
        if name in content and (_kind(content[name]) not in kinds or content[name] not in given):
            raise InvalidInput(f"{where}: {name} must be one of the categories")
    aliases = content.get("aliases", {})
    if not isinstance(aliases, dict) or (aliases and kinds != {"text"}):
        raise InvalidInput(f"{where}: aliases must be a table from other ways of writing a category to the category")
    for alias, meaning in aliases.items():
        if alias in given or meaning not in given:
            raise InvalidInput(f"{where}: an alias must lead from a text that is not a category to one that is")
    return Column(None, categories, content.get("missing"), content.get("other"), dict(aliases))


def _kind(value: object) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)) and value == value and abs(value) < 2**53:  # noqa: PLR0124 - NaN is not equal
        return "number"
    return None


@dataclass(frozen=True)
class Others:
    """Columns that are not named one by one: numbers that all have the same bounds.

    ``count`` and ``first`` are for libsvm files, whose columns have numbers for names: how many, and the lowest.
    """

    bounds: tuple[float, float]
    count: int | None = None
    first: int = 1

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"bounds": list(self.bounds)}
        return found if self.count is None else {**found, "count": self.count, "first": self.first}

    @classmethod
    def from_dict(cls, data: object) -> Others:
        content = _section(data, "[others]", ("bounds", "count", "first"))
        if "bounds" not in content:
            raise InvalidInput("[others] needs bounds = [low, high], the same for all columns that are not named")
        try:
            bounds = check_bounds(content["bounds"])
        except InvalidInput as error:
            raise InvalidInput(f"[others]: {error}") from None
        count = content.get("count")
        if count is not None and check_integer("[others] count", count) > _MOST_COLUMNS:
            raise InvalidInput(f"[others] count must be at most {_MOST_COLUMNS:,}")
        first = check_integer("[others] first", content.get("first", 1), least=0)
        if first > 1:
            raise InvalidInput("[others] first must be 0 or 1: the number of a libsvm file's first column")
        if count is not None and not bounds[0] <= 0 <= bounds[1]:
            raise InvalidInput("[others]: the bounds of a libsvm file's columns must hold 0, which it leaves out")
        return cls(bounds, count, first)


@dataclass(frozen=True)
class FileFormat:
    """How the file is written.

    Attributes
    ----------
    format : str or None
        One of `FORMATS`, for a file whose name does not say.
    header : bool
        Whether the first line of a CSV file names the columns. Without one, they are the schema's, in its order.
    delimiter : str or None
        What separates fields; a comma, or a tab for "tsv", if None.
    strip : bool
        Whether blanks around texts are taken away.
    missing : tuple of str
        Texts that mean "not known".
    """

    format: str | None = None
    header: bool = True
    delimiter: str | None = None
    strip: bool = False
    missing: tuple[str, ...] = ("",)

    def to_dict(self) -> dict[str, Any]:
        found = {"format": self.format, "delimiter": self.delimiter}
        kept: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
        return {**kept, "header": self.header, "strip": self.strip, "missing": list(self.missing)}

    @classmethod
    def from_dict(cls, data: object) -> FileFormat:
        content = _section(data, "[file]", ("format", "header", "delimiter", "strip", "missing"))
        if "format" in content:
            check_choice("[file] format", content["format"], FORMATS)
        for name in ("header", "strip"):
            if not isinstance(content.get(name, False), bool):
                raise InvalidInput(f"[file] {name} must be true or false")
        delimiter = content.get("delimiter")
        if delimiter is not None and (
            not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '\r\n"'
        ):
            raise InvalidInput("[file] delimiter must be one plain character, such as ';'")
        missing = content.get("missing", [""])
        if not isinstance(missing, list) or not all(isinstance(text, str) for text in missing):
            raise InvalidInput('[file] missing must be a list of texts that mean "not known", such as ["", "?"]')
        return cls(
            content.get("format"),
            content.get("header", True),
            delimiter,
            content.get("strip", False),
            tuple(missing),
        )


@dataclass(frozen=True)
class Schema:
    """What is public about a table.

    Parameters
    ----------
    columns : dict from str to Column
        Every column, in the order of the file where that has no header.
    others : Others, optional
        The bounds of all columns not named; for libsvm files also how many.
    rows : int, optional
        How many rows there are. If stated, another number in the file is an error.
    rows_per_person : int
        How many of them one person may have; the promise is per person.
    norm : float, optional
        Rows longer than this are scaled down to it, each column measured so that its bounds are -1 and 1 and a category
        counts 1. By default the length no row can exceed, the square root of the number of columns used.
    file : FileFormat
        How the file is written.

    Examples
    --------
    >>> from epsilearn.schema import Schema
    >>> schema = Schema.from_toml('''
    ... version = 1
    ... [columns.age]
    ... bounds = [0, 120]
    ... [columns.ward]
    ... categories = ["surgery", "medicine"]
    ... [columns.died]
    ... categories = ["no", "yes"]
    ... ''')
    >>> schema.features("died")
    ['age', 'ward']
    >>> schema.width("died")
    3
    """

    columns: dict[str, Column]
    others: Others | None = None
    rows: int | None = None
    rows_per_person: int = 1
    norm: float | None = None
    file: FileFormat = FileFormat()

    @property
    def sparse(self) -> bool:
        """Whether the columns are numbered rather than named, as in a libsvm file."""
        return self.others is not None and self.others.count is not None

    def features(self, target: str) -> list[str]:
        """The named columns a model of this target uses."""
        return [name for name, column in self.columns.items() if name != target and not column.ignored]

    def width(self, target: str) -> int:
        """How many numbers a row becomes."""
        numbered = self.others.count if self.others is not None and self.others.count is not None else 0
        return numbered + sum(self.columns[name].width for name in self.features(target))

    def length(self, target: str) -> float:
        """The length to which rows are scaled down; the largest there can be if none is stated."""
        if self.norm is not None:
            return self.norm
        numbered = self.others.count if self.others is not None and self.others.count is not None else 0
        return float((numbered + len(self.features(target))) ** 0.5)

    def check_target(self, target: str) -> Column:
        """What is public about the target, which must be a column that is used, beside at least one other."""
        column = self.columns.get(target)
        if column is None:
            raise InvalidInput(f"the schema has no column {one_line(target)}; --target must name one of its columns")
        if column.ignored:
            raise InvalidInput(f"column {one_line(target)} is ignored by the schema, so it cannot be the target")
        if column.categories is not None and len(column.categories) < 2:
            raise InvalidInput(f"column {one_line(target)} has one category; a target needs at least two classes")
        if not self.width(target):
            raise InvalidInput("the schema leaves no column to learn from; give one bounds or categories")
        return column

    def matched(self, names: list[str]) -> Schema:
        """The schema of exactly these columns; an error if a column is missing from it or from the file."""
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise InvalidInput(
                f"the file has no column {one_line(missing[0])}, which the schema speaks of; "
                "mend the name, or take it out of the schema"
            )
        if len(set(names)) != len(names):
            raise InvalidInput("two columns of the file have the same name; names must differ")
        unknown = [name for name in names if name not in self.columns]
        if not unknown:
            return replace(self, others=None)
        if self.others is None:
            # Not by name: in a file without a header the first line is somebody's record.
            raise InvalidInput(
                f"{len(unknown)} of the file's {len(names)} columns are not in the schema; describe each, ignore it "
                "with ignore = true, or give all of them the same bounds in [others]"
            )
        rest = Column(bounds=self.others.bounds)
        return replace(self, columns={name: self.columns.get(name, rest) for name in names}, others=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the TOML file."""
        found: dict[str, Any] = {"version": _VERSION, "rows_per_person": self.rows_per_person}
        for name in ("rows", "norm"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        found["file"] = self.file.to_dict()
        found["columns"] = {name: column.to_dict() for name, column in self.columns.items()}
        if self.others is not None:
            found["others"] = self.others.to_dict()
        return found

    @classmethod
    def from_dict(cls, data: object) -> Schema:
        allowed = ("version", "rows", "rows_per_person", "norm", "file", "columns", "others")
        content = _section(data, "the schema", allowed)
        if content.get("version") != _VERSION:
            raise InvalidInput(f"the schema must say version = {_VERSION}; this epsilearn reads no other")
        file = FileFormat.from_dict(content.get("file", {}))
        named = content.get("columns", {})
        if not isinstance(named, dict):
            raise InvalidInput("columns must be tables: [columns.NAME] for each column")
        columns = _columns(named)
        others = Others.from_dict(content["others"]) if "others" in content else None
        if not columns and others is None:
            raise InvalidInput("the schema names no column; add [columns.NAME] for each")
        _check_numbered(file, columns, others)
        rows, norm = content.get("rows"), content.get("norm")
        return cls(
            columns,
            others,
            None if rows is None else check_count("rows", rows),
            check_count("rows_per_person", content.get("rows_per_person", 1)),
            None if norm is None else _check_norm(norm),
            file,
        )

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            place = str(error).rpartition("(at ")[2].rstrip(")") if "(at " in str(error) else ""
            raise InvalidInput(f"the schema is not TOML{': see ' + place if place else ''}") from None
        return cls.from_dict(data)

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """The schema in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not UTF-8 text, so it is no schema") from None
        except OSError as error:
            raise InvalidInput(f"cannot read the schema {path}: {error.strerror}") from None
        return cls.from_toml(text)


def _columns(named: dict[str, Any]) -> dict[str, Column]:
    """Each column; an error names the first that is not right, and says how many more there are."""
    found, faults = {}, []
    for name, entry in named.items():
        try:
            found[name] = Column.from_dict(entry, f"column {one_line(name)}")
        except InvalidInput as error:
            faults.append(str(error))
    if faults:
        more = f"; {len(faults) - 1} more columns are not right either" if len(faults) > 1 else ""
        raise InvalidInput(faults[0] + more)
    return found


def _check_numbered(file: FileFormat, columns: Mapping[str, Column], others: Others | None) -> None:
    numbered = others is not None and others.count is not None
    if (file.format == "libsvm") != numbered:
        raise InvalidInput(
            'a libsvm file needs [file] format = "libsvm" and [others] with count = the number of its columns; '
            "no other file has either"
        )
    if numbered and set(columns) - {SPARSE_TARGET}:
        raise InvalidInput(f"in a libsvm file only the target has a name: [columns.{SPARSE_TARGET}]")
    if others is not None and not numbered and not file.header:
        raise InvalidInput("[others] needs a file with a header; without one, name every column in its order")


def _section(data: object, where: str, allowed: Iterable[str]) -> dict[str, Any]:
    """A table of the schema that holds nothing unknown: a word nobody reads is a mistake somebody made."""
    if not isinstance(data, dict):
        raise InvalidInput(f"{where} must be a table of settings")
    unknown = [name for name in data if name not in allowed]
    if unknown:
        raise InvalidInput(f"{where} has {one_line(unknown[0])}, which means nothing; expected {', '.join(allowed)}")
    return dict(data)


def _check_norm(norm: object) -> float:
    length = check_positive("norm", norm)
    if not 1e-6 <= length <= 1e6:
        raise InvalidInput(
            "norm must lie between 1e-6 and 1e6: it is measured in units in which every column is 1 long"
        )
    return length


def check_count(name: str, number: object) -> int:
    """A number of rows or columns that a table can have."""
    count = check_integer(name, number)
    if count > _MOST_ROWS:
        raise InvalidInput(f"{name} must be at most {_MOST_ROWS:,}")
    return count


def one_line(name: object) -> str:
    """A name for an error text: quoted, and not too long."""
    text = repr(name)
    return text if len(text) <= 60 else text[:57] + "…'"
