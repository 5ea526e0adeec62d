"""What all commands share: the app, how results and errors are shown, and files that are written whole."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from epsilearn.errors import InvalidInput
from epsilearn.whole_files import whole_file

__all__ = [
    "AsJson",
    "Dataset",
    "app",
    "complain",
    "console",
    "named_ledger",
    "print_json",
    "reserved",
    "save_figure",
    "say",
    "show",
]

app = typer.Typer(
    name="epsilearn",
    help="Differentially private statistics and models, with promises you can check.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

console = Console(highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Dataset = Annotated[str | None, typer.Option(help="Which data set, if the database holds several.")]


def complain(message: str, code: int, as_json: bool) -> int:
    """Say what went wrong, in one line, and return the exit code."""
    if as_json:
        print(json.dumps({"error": message, "code": code}))
    else:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}")
    return code


def print_json(data: Any) -> None:
    """Print as JSON that every reader takes."""
    print(json.dumps(_finite(data), indent=2))


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
        table.add_row(escape(name), escape(value))
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
    console.print(escape(text), soft_wrap=True)


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
