"""Run a study by its name: ``python -m epsilearn.studies kernel-covertype``."""

from __future__ import annotations

from importlib import import_module

import typer

__all__ = ["STUDIES", "app"]

STUDIES = ("figure1", "lasso-rates", "kernel-answers", "kernel-covertype", "kernel-highdim")

app = typer.Typer(help="The papers' experiments.", no_args_is_help=True, add_completion=False)
for name in STUDIES:
    app.command(name)(import_module(f"epsilearn.studies.{name.replace('-', '_')}").main)

if __name__ == "__main__":
    app(prog_name="python -m epsilearn.studies")
