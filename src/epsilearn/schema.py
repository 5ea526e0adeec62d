"""What is public about a table, written down before anybody looks at it.

A schema names every column and says what its values can be: numbers between bounds, one of several categories, or
nothing that matters. Everything a fit does to the rows follows from it. Nothing in it is ever read off the values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from epsilearn.checks import check_choice, check_positive
from epsilearn.errors import InvalidInput
from epsilearn.schema_columns import Column, Others, check_count, one_line, section

__all__ = ["FORMATS", "SPARSE_TARGET", "FileFormat", "Schema"]

FORMATS = ("csv", "tsv", "parquet", "arrow", "libsvm")
SPARSE_TARGET = "target"  # what the first field of a libsvm line is called
_VERSION = 1
_MOST_BYTES, _MOST_DOTS = 1 << 28, 50


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
        content = section(data, "[file]", ("format", "header", "delimiter", "strip", "missing"))
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

    @property
    def _numbered(self) -> int:
        return 0 if self.others is None else self.others.count or 0

    def features(self, target: str) -> list[str]:
        """The named columns a model of this target uses."""
        return [name for name, column in self.columns.items() if name != target and not column.ignored]

    def width(self, target: str) -> int:
        """How many numbers a row becomes."""
        return self._numbered + sum(self.columns[name].width for name in self.features(target))

    def length(self, target: str) -> float:
        """The length to which rows are scaled down; the largest there can be if none is stated."""
        if self.norm is not None:
            return self.norm
        return float((self._numbered + len(self.features(target))) ** 0.5)

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
        content = section(data, "the schema", allowed)
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
        if any(map(_has_endless_key, text.splitlines())):
            raise InvalidInput(f"a key of the schema has more than {_MOST_DOTS} dots; [columns.NAME] has one")
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # not only TOML's own: a number may have very many digits
            place = str(error).rpartition("(at ")[2].rstrip(")") if "(at " in str(error) else ""
            raise InvalidInput(f"the schema is not TOML{': something is wrong at ' + place if place else ''}") from None
        return cls.from_dict(data)

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """The schema in a TOML file."""
        try:
            if Path(path).stat().st_size > _MOST_BYTES:
                raise InvalidInput(f"{path} is larger than a schema can be")
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not UTF-8 text, so it is no schema") from None
        except OSError as error:
            raise InvalidInput(f"cannot read the schema {path}: {error.strerror}") from None
        return cls.from_toml(text)


def _has_endless_key(line: str) -> bool:
    """Whether a key is made of very many: reading it takes time that grows with the square of their number."""
    key, equals, _ = line.partition("=")
    return bool(equals or line.lstrip().startswith("[")) and key.count(".") > _MOST_DOTS


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


def _check_norm(norm: object) -> float:
    length = check_positive("norm", norm)
    if not 1e-6 <= length <= 1e6:
        raise InvalidInput(
            "norm must lie between 1e-6 and 1e6: it is measured in units in which every column is 1 long"
        )
    return length
