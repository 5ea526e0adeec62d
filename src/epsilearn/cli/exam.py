"""What ``epsilearn audit exam`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from epsilearn.cli.common import console, say

if TYPE_CHECKING:
    from epsilearn.audit.exam import Exam, Result

__all__ = ["show_exam"]

_GROUPS = {"public": "sixteen public reports", "further": "further public reports", "own": "past leaks of this library"}


def show_exam(exam: Exam) -> None:
    """A line for each fault, and what all of it comes to."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("fault", "found by", "seconds", "twin"):
        table.add_column(name, justify="right" if name == "seconds" else "left", no_wrap=name != "fault")
    for group, title in _GROUPS.items():
        table.add_row(Text(title, "bold"))
        for one in exam.results:
            if one.group == group:
                table.add_row(*_cells(one))
        if group == "public":
            for unread in exam.unread:
                table.add_row(f"  {unread.name}", Text("not examined", "dim"))
    console.print(table)
    say("")
    for unread in exam.unread:
        say(f"not examined: {unread.name}, whose text could not be read; instead: {unread.instead}")
    say(str(exam))


def _cells(one: Result) -> tuple[str | Text, ...]:
    method = Text("missed", "bold red") if one.method == "missed" else one.method
    twin = Text(f"accused by {one.accused}", "bold red") if one.accused else "passes"
    return f"  {one.name}", method, f"{one.seconds:.2f}", twin
