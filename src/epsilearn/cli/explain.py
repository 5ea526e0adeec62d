"""``epsilearn explain``: what a promise means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from epsilearn.cli.common import AsJson, app, console, print_json, save_figure

__all__ = ["explain"]


@app.command()
def explain(
    epsilon: Annotated[float, typer.Option(help="The privacy parameter; smaller is more private.")],
    delta: Annotated[float, typer.Option(help="The probability set aside; 0 is pure.")] = 0.0,
    figure: Annotated[Path | None, typer.Option(help="Where to write the figure (.png, .svg or .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Say in plain words what a promise means, and draw it."""
    from epsilearn.explanation import explain as explain_budget

    meaning = explain_budget(epsilon, delta)
    path = figure or Path(f"epsilon-{epsilon:g}.png")
    save_figure(meaning.save_figure, path)
    if as_json:
        print_json({**meaning.to_dict(), "figure": str(path)})
        return
    for sentence in meaning.sentences():
        console.print(sentence, soft_wrap=False)
        console.print()
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("at most")
    table.add_column("this bound", justify="right")
    table.add_column("the textbook's", justify="right")
    table.add_row(
        "winning probability",
        f"{meaning.winning_probability:.3f}",
        _textbook(meaning.lecture_winning_bound),
    )
    table.add_row("posterior shift", f"{meaning.posterior_shift:.3f}", _textbook(meaning.lecture_posterior_bound))
    console.print(table)
    console.print()
    console.print(f"figure: {path}")


def _textbook(bound: float) -> str:
    return f"{bound:.3f}" + (" (capped at 1)" if bound >= 1 else "")
