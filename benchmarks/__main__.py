"""The scoreboard: every library on every table, in one run. ``python benchmarks --help`` says what can be chosen.

Data come from the folder that ``EPSILEARN_DATA`` names. Finished results are kept in ``benchmarks/.results``, so that
an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import accuracy
import datasets
import figures
import report
import speed
from conversion import group_noise_multiplier
from machine import machine, versions
from methods import METHODS, grids_described, kept_noise
from peers import REQUIREMENTS, interpreter
from scoreboard import BEST, PURE
from store import Store
from tables import Prepared, prepared
from verdicts import comparisons, summary_text

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "benchmarks"
RESULTS = FOLDER / ".results"
QUICK_TABLES = ("spambase", "Adult", "RCV1")


def main() -> None:
    """Measure, then write the page."""
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few thousand rows of three tables, three splits")
    parser.add_argument("--only", nargs="+", choices=datasets.NAMES, help="these tables alone")
    parser.add_argument("--fresh", action="store_true", help="forget finished results, of all tables")
    parser.add_argument("--page", action="store_true", help="write the page again from results.json")
    options = parser.parse_args()
    folder = destination(options.quick, options.only)
    folder.mkdir(parents=True, exist_ok=True)
    if not options.page:
        results = measured(options.quick, options.only, options.fresh)
        (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    results = json.loads((folder / "results.json").read_text())
    figures.draw(results, folder)
    (folder / "index.md").write_text(report.page(results, (FOLDER / "template.md").read_text()))
    print(summary_text(results), f"without delta:\n{summary_text(results, PURE)}", report.edges_text(results), sep="\n")
    print(f"written: {folder.relative_to(FOLDER.parent)}/index.md")


def destination(quick: bool, only: list[str] | None) -> Path:
    """Where the page goes: into the documentation only if it is whole, and each partial one into a place of its own."""
    words = ["quick"] * quick + [name.lower().replace(" ", "-") for name in only or ()]
    return RESULTS / "-".join(words) if words else PAGE


def measured(quick: bool, only: list[str] | None, fresh: bool) -> dict[str, Any]:
    """Everything on the page."""
    if "EPSILEARN_DATA" not in os.environ:
        raise SystemExit("EPSILEARN_DATA must name the folder with the tables and their load.py; see docs/studies.md")
    for library in REQUIREMENTS:
        interpreter(library)  # built before any clock runs
    started, here = time.monotonic(), machine()
    store = Store(RESULTS / ("quick.jsonl" if quick else "results.jsonl"), fresh)
    resumed = len(store) > 0
    tables = [prepared(name, quick) for name in only or (QUICK_TABLES if quick else datasets.NAMES)]
    lines = accuracy.measure(store, tables, list(METHODS))
    _add_group_noise(lines, tables)
    results: dict[str, Any] = {
        "quick": quick,
        "tables": [asdict(table.facts) | {"delta": table.facts.delta, "splits": table.facts.runs} for table in tables],
        "accuracy": lines,
        "speed": speed.measure(store, tables, lines, repeats=1 if quick else 3),
        "grids": grids_described([table.facts for table in tables]),
        "machine": here,
        "versions": versions(lines),
        "resumed": resumed,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    return results | {"comparisons": comparisons(results)}


def _add_group_noise(lines: list[dict[str, Any]], tables: list[Prepared]) -> None:
    """Beside the noise of DP-SGD's best settings, what group privacy would have asked for."""
    deltas = {table.facts.name: table.facts.delta for table in tables}
    for line in lines:
        if line["library"] == "opacus" and line["kind"] == BEST and "mean" in line:
            settings, delta = line["settings"], deltas[line["table"]]
            arguments = (line["epsilon"], delta, settings["sampling"], settings["steps"])
            line["group_noise"] = kept_noise(group_noise_multiplier, *arguments)


if __name__ == "__main__":
    main()
