"""What all commands share: the app, how results and errors are shown, and files that are written whole.

Names come from files that anybody may have written. `Terminal` is the one place where texts reach a terminal, and
`print_data` and `print_json` the two where they reach a program: nothing else in this package prints.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from epsilearn.checks import is_line
from epsilearn.errors import InvalidInput
from epsilearn.whole_files import whole_file

__all__ = [
    "AsJson",
    "Dataset",
    "app",
    "complain",
    "console",
    "harmless",
    "named_ledger",
    "print_data",
    "print_json",
    "reserved",
    "save_figure",
    "say",
    "show",
    "show_warning",
]

app = typer.Typer(
    name="epsilearn",
    help="Differentially private statistics and models, with promises you can check.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def harmless(text: str, kept: str = "") -> str:
    """A text in which everything that a terminal would obey, hide or reorder can be seen: escapes, controls, bidi.

    Parameters
    ----------
    text : str
        From anywhere.
    kept : str
        Characters to leave as they are: the newlines of a text that has lines.

    Examples
    --------
    >>> print(harmless("\\x1b[31mred\\n\\u202etxt.exe"))
    \\x1b[31mred\\n\\u202etxt.exe
    """
    if is_line(text):
        return text
    return "".join(c if c in kept or is_line(c) else c.encode("unicode_escape").decode() for c in text)


class Terminal(Console):
    """A console on which a text is no more than a text: no markup, no codes of emojis, nothing that would be obeyed.

    What we style ourselves is a `Text`.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(harmless(text), **{**options, "emoji": False, "markup": False, "highlight": False})


console = Terminal(highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Dataset = Annotated[str | None, typer.Option(help="Which data set, if the database holds several.")]


def complain(message: str, code: int, as_json: bool) -> int:
    """Say what went wrong, in one line, and return the exit code."""
    if as_json:
        print(json.dumps({"error": message, "code": code}))
    else:
        Terminal(stderr=True, soft_wrap=True).print(Text("error:", "bold red"), message)
    return code


def show_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 - these are what the interpreter tells
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Say what a warning says, in one line; whose line of which file it was says nothing here."""
    Terminal(stderr=True, soft_wrap=True).print(Text("warning:", "bold yellow"), str(message))


def print_json(data: Any) -> None:
    """Print as JSON that every reader takes; all but plain ASCII is escaped, and so are its controls."""
    print(json.dumps(_finite(data), indent=2))


def print_data(text: str) -> None:
    """Print what another program is to read, as it is; only if a terminal reads it, nothing that it would obey."""
    print(harmless(text, "\n\t") if sys.stdout.isatty() else text, end="")


def _finite(data: Any) -> Any:
    """JSON has no infinity: say it in words."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return "infinity" if isinstance(data, float) and math.isinf(data) else data


def show(rows: list[tuple[str, str]]) -> None:
    """Names on the left, what they stand for on the right."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)


def save_figure(save: Callable[[Path], None], path: Path) -> None:
    """Draw to a file whose kind is known, or say why not."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"cannot draw to {path.name}: the figure must be a .png, .svg or .pdf")
    try:
        save(path)
    except OSError as error:
        raise InvalidInput(f"cannot write the figure to {path}: {error.strerror}") from None


def say(text: str) -> None:
    """One line, however long, as it is."""
    console.print(text, soft_wrap=True)


def named_ledger(url: str | None, dataset: str | None, purpose: str | None = None) -> Any:
    """The ledger that is to be debited, or None; words about a ledger that was not named are a mistake."""
    from epsilearn.ledger import Ledger

    if url is not None:
        return Ledger(url, dataset=dataset)
    if dataset is not None or purpose is not None:
        raise InvalidInput("--dataset and --purpose speak of a ledger; name it with --ledger, or leave them out")
    return None


@contextmanager
def reserved(path: Path | None) -> Iterator[Callable[[str | bytes], None]]:
    """A file to be written whole or not at all, its place made sure of before anything is spent; or no file."""
    if path is None:
        yield lambda _text: None
        return
    with whole_file(path) as write:
        try:
            yield write
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror}; the value above was released") from None
