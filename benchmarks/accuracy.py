"""Accuracies: every method on every table, two jobs at a time, peers over their grids first."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from methods import METHODS, Method, Settings, edges
from peers import answers, fingerprint
from store import Store, key
from summary import summarised
from tables import Prepared

__all__ = ["measure"]

# A grid is searched on so many splits; those that did best then run on all, and the best of these counts.
CHOOSING_RUNS = 2


@dataclass(frozen=True)
class Entry:
    """A method on a table, with a budget and settings."""

    method: Method
    table: Prepared
    epsilon: float | None
    settings: Settings

    @property
    def runs(self) -> range:
        """The splits it is run on."""
        return range(self.table.facts.runs)

    def told(self) -> Settings:
        """The settings, the budget in them."""
        if self.epsilon is None:
            return self.settings
        return self.method.budget(self.settings, self.epsilon, self.table.facts)


class Scores:
    """Looks results up, and has the missing ones made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._fingerprints = {method.library: fingerprint(method.library) for method in METHODS}
        self._reasons: dict[str, str] = {}
        self._started = time.monotonic()

    def _key(self, entry: Entry, run: int) -> str:
        code, table = self._fingerprints[entry.method.library], entry.table
        return key(code=code, table=table.digest, name=table.facts.name, settings=entry.told(), run=run)

    def make(self, wanted: list[tuple[Entry, int]]) -> None:
        """Run what is missing: two processes for a library and a table, one for even splits and one for odd."""
        units: dict[tuple[str, str, int], list[tuple[Entry, int]]] = {}
        # By key, since a grid's defaults are asked for twice.
        for name, (entry, run) in {self._key(*pair): pair for pair in wanted}.items():
            if self._store.get(name) is None:
                units.setdefault((entry.table.folder, entry.method.library, run % 2), []).append((entry, run))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._run, units.values()))

    def _run(self, pairs: list[tuple[Entry, int]]) -> None:
        library, table = pairs[0][0].method.library, pairs[0][0].table
        if fingerprint(library) != self._fingerprints[library]:
            # Its results would be filed under code that did not make them.
            raise SystemExit(f"the sources of {library} changed during the run; start again, finished results are kept")
        tasks = [
            {"key": self._key(entry, run), "settings": entry.told(), "run": run}
            for entry, run in sorted(pairs, key=lambda pair: pair[1])
        ]
        left, begun, reason = {task["key"] for task in tasks}, time.monotonic(), "the process ended early"
        # One thread each: two of them share the two cores.
        for answer in answers(library, {"what": "accuracy", "folder": table.folder, "tasks": tasks}, threads=1):
            if "key" in answer:
                self._store.put(answer)
                left.discard(answer["key"])
            else:
                reason = answer["reason"]
        self._reasons |= dict.fromkeys(left, reason)
        now = time.monotonic()
        done = f"{len(tasks) - len(left)} of {len(tasks)} fits in {now - begun:.0f} s"
        print(f"{(now - self._started) / 60:6.1f} min  {table.facts.name}, {library}: {done}", flush=True)

    def results(self, entry: Entry, most: int | None = None) -> list[dict[str, Any]]:
        """What came of all splits, or of the first so many."""
        names = [self._key(entry, run) for run in entry.runs[:most]]
        return [self._store.get(name) or {"reason": self._reasons.get(name, "not run")} for name in names]

    def mean(self, entry: Entry, most: int | None = None) -> float:
        """Mean accuracy; where any split failed, less than any other."""
        return statistics.mean(result.get("accuracy", -1.0) for result in self.results(entry, most))


Cell = tuple[Prepared, Method, float | None]


def measure(store: Store, tables: list[Prepared], methods: list[Method]) -> list[dict[str, Any]]:
    """All lines of the scoreboard, one for each table, budget, method and kind of settings."""
    scores = Scores(store)
    cells = [(table, method, epsilon) for table in tables for method in methods for epsilon in method.epsilons]
    runnable = [cell for cell in cells if cell[1].obstacle(cell[0].facts) is None]
    grids = [_grid(cell) for cell in runnable]
    defaults = [Entry(method, table, epsilon, method.defaults(table.facts)) for table, method, epsilon in runnable]
    scores.make(
        [(entry, run) for grid in grids for entry in grid for run in entry.runs[:CHOOSING_RUNS]]
        + [(entry, run) for entry in defaults for run in entry.runs]
    )
    finals = [_finalists(scores, grid) for grid in grids]
    scores.make([(entry, run) for final in finals for entry in final for run in entry.runs])
    best = [max(final, key=scores.mean) if final else None for final in finals]
    lines = [_line(entry, "defaults", scores.results(entry)) for entry in defaults]
    lines += [_line(entry, "best of grid", scores.results(entry)) | _edges(entry) for entry in best if entry]
    lines += [_absent(cell) for cell in cells if cell not in runnable]
    return lines


def _grid(cell: Cell) -> list[Entry]:
    table, method, epsilon = cell
    grid = method.grid(table.facts)
    # The defaults run anyway, so they may win too.
    choices = [method.defaults(table.facts), *grid] if grid else []
    return [Entry(method, table, epsilon, settings) for settings in choices]


def _finalists(scores: Scores, grid: list[Entry]) -> list[Entry]:
    """The few settings that did best: more of them where noise could mislead the choice, and where fits are quick."""
    count = grid[0].table.facts.finalists if grid else 0
    return sorted(grid, key=lambda entry: scores.mean(entry, CHOOSING_RUNS), reverse=True)[:count]


def _line(entry: Entry, kind: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    found = [result["accuracy"] for result in results if "accuracy" in result]
    line = _head(entry.table, entry.method, entry.epsilon) | {"kind": kind, "settings": entry.told()}
    if len(found) < len(results):
        return line | {"reason": next(result["reason"] for result in results if "reason" in result)}
    versions = {name: version for result in results for name, version in result["versions"].items()}
    return line | summarised(found) | {"accuracies": found, "versions": versions}


def _edges(entry: Entry) -> dict[str, Any]:
    return {"edges": edges(entry.method.grid(entry.table.facts), entry.settings)}


def _absent(cell: Cell) -> dict[str, Any]:
    table, method, epsilon = cell
    reason = method.obstacle(table.facts)
    return _head(table, method, epsilon) | {"kind": "defaults", "left_out": True, "reason": reason}


def _head(table: Prepared, method: Method, epsilon: float | None) -> dict[str, Any]:
    return {"table": table.facts.name, "method": method.name, "library": method.library, "epsilon": epsilon}
