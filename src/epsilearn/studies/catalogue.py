"""The studies by their names: what each is about, its settings, and how to run it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module, resources
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from epsilearn.checks import check_choice
from epsilearn.errors import InvalidInput

__all__ = ["NAMES", "Description", "changed", "describe", "module", "settings"]

NAMES = (
    "figure1", "learning-curves", "epsilon-curves", "lasso-rate", "lasso-hard-instance",
    "kernel-answers", "kernel-covertype", "kernel-highdim", "lecture-sum", "errata",
)  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What a study is about.

    Attributes
    ----------
    title : str
        In one line.
    shows : str
        What the paper shows.
    seen : str
        What was seen in a full run.
    """

    title: str
    shows: str
    seen: str


def describe(name: str) -> Description:
    """The three parts of a study's docstring, read without importing what it needs to run.

    Examples
    --------
    >>> describe("lecture-sum").title
    'The error of a noisy sum, beside the bounds of the lecture on differential privacy'
    """
    check_choice("the study", name, NAMES)
    source = resources.files("epsilearn.studies").joinpath(f"{_module_name(name)}.py").read_text(encoding="utf-8")
    text = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "")
    title, shows, seen = (" ".join(part.split()) for part in text.split("\n\n"))
    return Description(title.removesuffix("."), shows, seen)


def module(name: str) -> ModuleType:
    """The study itself: its ``Settings`` and its ``run``."""
    check_choice("the study", name, NAMES)
    return import_module(f"epsilearn.studies.{_module_name(name)}")


def _module_name(name: str) -> str:
    return name.replace("-", "_")


def settings(name: str, quick: bool = False, changes: Sequence[str] = ()) -> Any:
    """The settings of a full or a quick run, with some of them changed: ``key=value`` each.

    Examples
    --------
    >>> settings("lecture-sum", changes=["epsilons=0.1,1"]).epsilons
    (0.1, 1.0)
    """
    kind = module(name).Settings
    return changed(kind.quick() if quick else kind(), changes)


def changed(given: Any, changes: Sequence[str]) -> Any:
    """The settings, with ``key=value`` applied; numbers of a list are separated by commas."""
    hints = get_type_hints(type(given))
    known = tuple(field.name for field in fields(given))
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise InvalidInput(f"a setting must be key=value, got {change!r}")
        check_choice("the setting", key, known)
        values[key] = _read(key, text, hints[key])
    return replace(given, **values)


def _read(key: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_read(key, part, get_args(kind)[0]) for part in text.split(","))
    words = {int: "a whole number", float: "a number"}
    try:
        # 1_000 and 1e3 are how people write whole numbers.
        return kind(text) if kind is not int else _whole(text)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{key} must be {words[kind]}, got {text!r}") from None


def _whole(text: str) -> int:
    number = float(text)
    if number != int(number):
        raise ValueError
    return int(number)
