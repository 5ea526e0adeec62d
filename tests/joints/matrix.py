"""Every consumer of private rows beside every kind of model and every home of rows.

A cell is what a replay on hostile neighbours finds: the consumer refuses, the same way whatever the record, or it shows
nothing. Run as a program, this prints the whole matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import pytest
from tests.joints import commands, consumers
from tests.joints.homes import COLUMNS, HOMES, IN_MEMORY
from tests.joints.models import LABELS, MODELS, NUMBERS, X
from tests.joints.server import service

from epsilearn import statistics
from epsilearn.audit import Replay, hostile_neighbours, replay
from epsilearn.released import MODELS as RELEASED
from epsilearn.service.messages import OpenRelease

REFUSES, NOTHING, LEAKS = "refuses", "shows nothing", "LEAKS"
CLASSES, MEASURES = ((X, LABELS), (False, True)), ((X, NUMBERS), (False, False))
COLUMN = ((NUMBERS,), (False,))
SERVICE_KINDS = [get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(OpenRelease)[0])]


@dataclass(frozen=True)
class Cell:
    """One consumer of private rows, one kind of model or statistic, one home."""

    consumer: str
    model: str
    home: str
    run: Callable[..., Any]
    table: tuple[Any, ...]
    labels: tuple[bool, ...]

    @property
    def name(self) -> str:
        return " | ".join((self.consumer, self.model, self.home))

    def replayed(self, count: int) -> Replay:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replay(self.run, self.table, hostile_neighbours(self.table, count, labels=self.labels))


def outcome(found: Replay) -> str:
    """What a cell of the matrix says."""
    if found.refuted:
        return LEAKS
    return REFUSES if found.ended else NOTHING


def cells() -> Iterator[Cell]:
    yield from _of_models()
    yield from _of_statistics()
    yield from _of_commands()
    yield from _of_users()
    for kind in SERVICE_KINDS:
        yield Cell("service", kind, "csv", partial(service, kind), *CLASSES)


def _of_models() -> Iterator[Cell]:
    for name, model in MODELS.items():
        table = CLASSES if model.classifies else MEASURES
        asking: dict[str, Callable[..., Any]] = {
            "fit": partial(consumers.fit, model),
            "strict numpy": partial(consumers.strict_numpy, model),
            "private_score": partial(consumers.score, model),
            "private_score, nested": partial(consumers.score_nested, model),
            "selection, parts": partial(consumers.select, "parts", model),
            "selection, stopping": partial(consumers.select, "stopping", model),
        }
        for consumer, run in asking.items():
            for home, opened in HOMES.items():
                yield Cell(consumer, name, home, partial(run, opened), *table)
        yield Cell("fit, debited", name, "numpy", partial(consumers.fit_debited, model), *table)
        yield Cell("private_score, debited", name, "numpy", partial(consumers.score_debited, model), *table)


def _of_statistics() -> Iterator[Cell]:
    for name in statistics.__all__:
        for home, convert in COLUMNS.items():
            yield Cell("statistics", name, home, partial(consumers.statistic, name, convert), *COLUMN)
        yield Cell("statistics, debited", name, "numpy", partial(consumers.statistic_debited, name), *COLUMN)
        yield Cell("strict numpy", name, "numpy", partial(consumers.strict_statistic, name), *COLUMN)


def _of_commands() -> Iterator[Cell]:
    for kind in commands.FILES:
        for name in (*statistics.__all__, "median"):
            yield Cell("epsilearn stats", name, kind, partial(commands.stats, name, kind), *MEASURES)
            yield Cell("epsilearn stats, debited", name, kind, partial(commands.stats_debited, name, kind), *MEASURES)
        for name in RELEASED:
            table = MEASURES if name in commands.NUMERIC else CLASSES
            for engine in commands.ENGINES[kind]:
                run = partial(commands.fit, name, kind, engine)
                yield Cell("epsilearn fit", name, f"{kind}, {engine}", run, *table)
        for name, table in (("logistic", CLASSES), ("linear", MEASURES)):
            yield Cell("epsilearn evaluate", name, kind, partial(commands.evaluate, kind), *table)
            yield Cell("epsilearn evaluate, debited", name, kind, partial(commands.evaluate_debited, kind), *table)
        yield Cell("epsilearn fit, debited", "logistic", kind, partial(commands.fit_debited, kind), *CLASSES)
        yield Cell("epsilearn fit, dry run", "logistic", kind, partial(commands.fit_foreseen, kind), *CLASSES)
        yield Cell("epsilearn fit, public landmarks", "landmark", kind, partial(commands.fit_landmarks, kind), *CLASSES)
        yield Cell("epsilearn schema write", "", kind, partial(commands.write_schema, kind), *CLASSES)
        yield Cell("epsilearn schema check", "", kind, partial(commands.check_schema, kind), *CLASSES)
    for place in ("the file itself", "symbolic link", "hard link", "part of a folder"):
        run = partial(commands.fit_own_landmarks, place)
        yield Cell("epsilearn fit, own landmarks", "landmark", place, run, *CLASSES)


def _of_users() -> Iterator[Cell]:
    for brought in (
        consumers.swapped_step, consumers.own_landmarks, consumers.own_points, consumers.selected_landmarks
    ):  # fmt: skip
        for home, opened in IN_MEMORY.items():
            yield Cell(brought.__name__.replace("_", " "), "", home, partial(brought, opened), *CLASSES)
    for run in (consumers.own_kernel, consumers.own_loss, consumers.failing_model, consumers.warning_model):
        yield Cell(run.__name__.replace("_", " "), "", "numpy", run, *CLASSES)


CELLS: dict[str, Cell] = {cell.name: cell for cell in cells()}


def main() -> None:
    """Print the matrix."""
    for name, cell in CELLS.items():
        try:
            found = cell.replayed(4)
        except pytest.skip.Exception as reason:
            print(f"{name:70} not tried: {reason}", flush=True)
            continue
        print(f"{name:70} {outcome(found):14} {found.charges:3} debits {found.answers:4} answers", flush=True)
        if found.refuted:
            print("    " + str(found).replace("\n", "\n    ")[:1500], flush=True)


if __name__ == "__main__":
    main()
