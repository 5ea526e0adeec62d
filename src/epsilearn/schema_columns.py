"""What is public about one column of a table, or about many that are alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from epsilearn.checks import check_bounds, check_integer
from epsilearn.errors import InvalidInput

__all__ = ["Column", "Others", "check_count", "one_line", "section"]

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
        content = section(data, where, ("bounds", "categories", "ignore", "missing", "other", "aliases"))
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
        content = section(data, "[others]", ("bounds", "count", "first"))
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


def section(data: object, where: str, allowed: Iterable[str]) -> dict[str, Any]:
    """A table of the schema that holds nothing unknown: a word nobody reads is a mistake somebody made."""
    if not isinstance(data, dict):
        raise InvalidInput(f"{where} must be a table of settings")
    unknown = [name for name in data if name not in allowed]
    if unknown:
        raise InvalidInput(f"{where} has {one_line(unknown[0])}, which means nothing; expected {', '.join(allowed)}")
    return dict(data)


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
