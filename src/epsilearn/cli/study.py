"""``epsilearn study``: the papers' experiments, by name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from epsilearn.cli.common import AsJson, app, console, print_json, show
from epsilearn.errors import InvalidInput

if TYPE_CHECKING:
    from epsilearn.studies.gallery import Entry
    from epsilearn.studies.study import Result, Sheet

__all__ = ["study"]

ALL = "all"


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="The study, or 'all'; left out, they are listed.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A run of less than a minute.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path("studies-output"),
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: change a setting; may be given more than once.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat one of the papers' experiments: its figure, its table, and its numbers as JSON."""
    from epsilearn.checks import check_choice
    from epsilearn.studies import catalogue

    if name is None:
        _list_studies(as_json)
        return
    check_choice("the study", name, (*catalogue.NAMES, ALL))
    if name == ALL and changes:
        raise InvalidInput("--set changes one study; name it instead of 'all'")
    names = catalogue.NAMES if name == ALL else (name,)
    # Every setting is read before anything is run.
    plans = {one: catalogue.settings(one, quick, changes or ()) for one in names}
    _make_folder(output)
    entries = [_run(one, settings, output, name == ALL, as_json) for one, settings in plans.items()]
    if name == ALL:
        _write_gallery(entries, output, as_json)


def _list_studies(as_json: bool) -> None:
    from epsilearn.studies import catalogue

    titles = {name: catalogue.describe(name).title for name in catalogue.NAMES}
    if as_json:
        print_json(titles)
    else:
        show([*titles.items(), (ALL, "All of them, and a page that shows them")])


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write to the folder {folder}: {error.strerror}") from None


def _run(name: str, settings: Any, folder: Path, several: bool, as_json: bool) -> Entry:
    """Run one study and write it down. Among several, one whose data are missing is passed over."""
    from epsilearn.studies import catalogue
    from epsilearn.studies.data import MissingData
    from epsilearn.studies.gallery import Entry
    from epsilearn.studies.study import all_processors, document, watched, write

    start = time.monotonic()
    try:
        with watched(name) as progress, all_processors():
            result: Result = catalogue.module(name).run(settings, progress)
    except MissingData as error:
        if not several:
            raise
        if not as_json:
            _headed(name, f": skipped, because {error}")
        return Entry(name, reason=str(error))
    try:
        files = [str(path) for path in write(name, result, folder)]
    except OSError as error:
        raise InvalidInput(f"cannot write to the folder {folder}: {error.strerror}") from None
    if as_json and not several:
        print_json({**document(name, result), "files": files})
    elif not as_json:
        _report(name, result, files, time.monotonic() - start)
    return Entry(name, result)


def _report(name: str, result: Result, files: list[str], seconds: float) -> None:
    from epsilearn.studies import catalogue

    _headed(name, f": {catalogue.describe(name).title}")
    for sheet in result.sheets:
        console.print(sheet.title, style="italic", soft_wrap=True)
        console.print(_table(sheet), "")
    for line in result.seen:
        console.print(line, soft_wrap=True)
    console.print()
    console.print(f"{seconds:.0f} s; written: {', '.join(files)}", style="dim", soft_wrap=True)
    console.print()


def _headed(name: str, text: str) -> None:
    console.print(Text(name, "bold"), text, sep="", soft_wrap=True)
    console.print()


def _table(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    # Numbers stay whole on a narrow terminal: their heads take as many lines as they have words.
    heads = [[column] if place < sheet.texts else column.split() for place, column in enumerate(sheet.columns)]
    height = max(map(len, heads))
    for place, lines in enumerate(heads):
        words = [word for row in sheet.rows if place < len(row) for word in row[place].split()]
        table.add_column(
            Text("\n".join([""] * (height - len(lines)) + lines)),
            justify="left" if place < sheet.texts else "right",
            no_wrap=place >= sheet.texts,
            min_width=min(12, max(map(len, words), default=0)),
        )
    for row in sheet.rows:
        table.add_row(*row)
    return table


def _write_gallery(entries: list[Entry], folder: Path, as_json: bool) -> None:
    from epsilearn.studies.gallery import page
    from epsilearn.studies.study import write_text

    index = folder / "index.html"
    write_text(index, page(entries))
    if not as_json:
        console.print(f"gallery: {index}", soft_wrap=True)
        return
    studies = [
        {"study": e.name, "skipped": e.reason} if e.result is None else {"study": e.name, "seen": e.result.seen}
        for e in entries
    ]
    print_json({"gallery": str(index), "studies": studies})
