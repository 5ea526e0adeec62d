"""The matrix is whole: what must be in it is read off the public names, commands and routes, not off the matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from sklearn.base import BaseEstimator
from tests.joints.commands import ENGINES, FILES
from tests.joints.homes import COLUMNS, HOMES
from tests.joints.matrix import CELLS, SERVICE_KINDS
from tests.joints.models import MODELS
from typer.models import ArgumentInfo

import epsilearn
from epsilearn import engines, statistics
from epsilearn.cli import app
from epsilearn.released import MODELS as RELEASED
from epsilearn.rows import Parts
from epsilearn.service import messages
from epsilearn.service.messages import ReleaseSummary

ASKING = ("fit", "strict numpy", "private_score", "private_score, nested", "selection, parts", "selection, stopping")
# Public names that are given no rows, and why.
NO_ROWS = {
    "AboveThreshold": "numbers that somebody computed, and their sensitivity",
    "GaussianProcess": "the same",
    "exponential": "the same",
    "gaussian": "the same",
    "k_norm": "the same",
    "laplace": "the same",
    "Client": "asks a server, which is in the matrix",
    "Guarantee": "a promise",
    "Ledger": "a budget",
    "Schema": "what is public",
    "check_pipeline": "an estimator, without rows",
    "compose": "promises",
    "parallel": "promises",
    "explain": "a promise",
    "excess_risk_bound": "public numbers",
    "rows_needed": "public numbers",
    "load": "a released model",
}
# Arguments of commands that are files and no tables of private rows.
NO_TABLES = {
    ("predict", "table"): "answers about each row to whoever brings it; nothing is released",
    "model": "a released model",
    "schema": "what is public",
    "config": "of a server",
}


def pairs(consumer):
    return {(cell.model, cell.home) for cell in CELLS.values() if cell.consumer == consumer}


def public(kind):
    found = {name: getattr(epsilearn, name) for name in epsilearn.__all__}
    return {name for name, thing in found.items() if isinstance(thing, type) and issubclass(thing, kind)}


def test_every_model_is_asked_everything_in_every_home():
    for consumer in ASKING:
        assert pairs(consumer) >= {(model, home) for model in MODELS for home in HOMES}, consumer
    for consumer in ("fit, debited", "private_score, debited"):
        assert {model for model, _ in pairs(consumer)} >= set(MODELS), consumer


def test_every_public_name_has_its_place():
    """A new estimator is a model of the matrix, a new kind of rows a home; anything else says why it is neither."""
    estimators, homes = public(BaseEstimator), public(Parts)
    made = {type(part).__name__ for model in MODELS.values() for part in _inside(model.make())}
    assert estimators <= made
    assert {name.removesuffix("Rows") for name in homes} <= set(HOMES)
    assert set(epsilearn.__all__) == estimators | homes | set(NO_ROWS) | {"private_score", "statistics"}


def _inside(estimator):
    return [estimator, *(step for _, step in getattr(estimator, "steps", ()))]


def test_every_statistic_is_taken_in_every_home():
    assert pairs("statistics") >= {(name, home) for name in statistics.__all__ for home in COLUMNS}
    asked = {*statistics.__all__, *get_args(messages.AskStatistic.model_fields["statistic"].annotation)}
    assert pairs("epsilearn stats") >= {(name, kind) for name in asked for kind in FILES}
    assert pairs("epsilearn stats, debited") >= {(name, kind) for name in asked for kind in FILES}


def test_every_engine_fits_every_released_model():
    assert set(engines.ENGINES) == {engine for some in ENGINES.values() for engine in some}
    homes = [f"{kind}, {engine}" for kind, some in ENGINES.items() for engine in some]
    assert pairs("epsilearn fit") >= {(model, home) for model in RELEASED for home in homes}


def test_every_command_that_reads_a_table_is_in_the_matrix():
    consumers = {cell.consumer.partition(",")[0] for cell in CELLS.values()}
    reading = {f"epsilearn {name}" for name, argument in _paths(app) if _is_table(name, argument)}
    assert "epsilearn fit" in reading
    assert reading <= consumers


def _paths(commands, before=""):
    """Each command's arguments that are paths."""
    for group in commands.registered_groups:
        yield from _paths(group.typer_instance, f"{group.name} ")
    for command in commands.registered_commands:
        name = before + (command.name or command.callback.__name__)
        for argument, hint in get_type_hints(command.callback, include_extras=True).items():
            kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if Path in (kind, *get_args(kind)) and any(isinstance(note, ArgumentInfo) for note in notes):
                yield name, argument


def _is_table(command, argument):
    return argument not in NO_TABLES and (command, argument) not in NO_TABLES


def test_every_kind_of_release_is_opened():
    kinds = set(get_args(ReleaseSummary.model_fields["kind"].annotation))
    assert kinds == set(SERVICE_KINDS)
    assert {model for model, _ in pairs("service")} == kinds
