"""Finding lines among the results, and showing them as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "BEST", "DEFAULTS", "LIMIT", "OURS", "PEERS", "PLUS_MINUS", "PURE",
    "cell", "epsilons", "find", "has_mean", "listed", "names", "table",
]  # fmt: skip

Line = dict[str, Any]
OURS, PURE, LIMIT = "LogisticRegression", "LogisticRegression, pure", "scikit-learn"
PEERS = ("diffprivlib", "Opacus")
BEST, DEFAULTS = "best of grid", "defaults"
PLUS_MINUS = "\u00a0±\u00a0"  # a number and its error stay on one line


def table(heads: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown, columns of numbers to the right and those of words to the left."""
    heads, rows = list(heads), [[str(cell) for cell in line] for line in lines]
    columns = zip(*rows, strict=True) if rows else [()] * len(heads)
    rule = "".join("---:|" if all(map(_numeric, column)) else "---|" for column in columns)
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)])


def _numeric(text: str) -> bool:
    return text in {"", "-", "none", "cannot run", "not compared"} or text.lstrip("*+-")[:1].isdigit()


def find(results: Line, name: str, method: str, epsilon: float | None, kind: str) -> Line | None:
    """The one line of a method."""
    wanted = (name, method, epsilon, kind)
    for line in results["accuracy"]:
        if (line["table"], line["method"], line["epsilon"], line["kind"]) == wanted:
            return line
    return None


def has_mean(line: Line | None) -> bool:
    """Whether there is an accuracy."""
    return line is not None and "mean" in line


def names(results: Line) -> list[str]:
    """The tables, in order."""
    return [described["name"] for described in results["tables"]]


def epsilons(results: Line) -> list[float]:
    """The budgets, in order."""
    return sorted({line["epsilon"] for line in results["accuracy"] if line["epsilon"] is not None})


def cell(line: Line | None, bold: bool = False) -> str:
    """An accuracy in percent with its standard error, or that there is none."""
    if line is None:
        return ""
    if "mean" not in line:
        return "cannot run"
    shown = f"{100 * line['mean']:.2f}{PLUS_MINUS}{100 * line['error']:.2f}"
    return f"**{shown}**" if bold else shown


def listed(words: list[str]) -> str:
    """One, two and three."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
