"""Every command that reads a private table.

``audit`` is none of them: its subjects are names, and programs that bring two made-up tables of their own; no argument
of its own names a table. ``predict`` is none either: it answers about the rows of whoever asks, and releases nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from tests.joints.consumers import Noon, booked
from tests.joints.homes import folder, frame_of, written_in_parts
from tests.joints.models import ELSEWHERE, LABELS, NUMBERS, PUBLIC

import epsilearn as el
from epsilearn.cli import _run

SCHEMA = """version = 1
rows = {rows}
[columns.c0]
bounds = [-1, 1]
[columns.c1]
bounds = [-1, 1]
[columns.c2]
bounds = [-1, 1]
[columns.target]
{target}
"""
# Files that a command can be given, and the engines that read them.
FILES = ("csv", "parquet")
ENGINES = {"csv": ("memory", "local"), "parquet": ("memory", "local", "dask", "spark")}
NUMERIC = ("linear", "lasso")


class Refused(Exception):
    """A command that did not end well; what it said is printed."""


def _go(*words: object) -> None:
    texts = [str(word) for word in words]
    code = _run(texts, as_json="--json" in texts)
    if code:
        raise Refused(f"{texts[0]} ended with code {code}")


def written(place: Path, X: np.ndarray, y: np.ndarray, kind: str, classifies: bool) -> tuple[Path, Path]:
    """A table in a file, and its schema."""
    frame = frame_of(X).assign(target=y)
    table, schema = place / f"table.{kind}", place / "schema.toml"
    frame.to_csv(table, index=False) if kind == "csv" else frame.to_parquet(table)
    words = "categories = [-1, 1]" if classifies else "bounds = [-1, 1]"
    schema.write_text(SCHEMA.format(rows=len(X), target=words))
    return table, schema


def _fit(model: str, table: Path, schema: Path, *more: object) -> Any:
    """``epsilearn fit``, and all that it leaves behind."""
    output = table.parent / "out"
    _go("fit", table, "--schema", schema, "--target", "target", "--epsilon", 1, "--model", model, "-o", output, *more)
    _go("show", output)
    return {path.name: path.read_text() for path in sorted(output.glob("*"))}


def fit(model: str, kind: str, engine: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place:
        return _fit(model, *written(place, X, y, kind, model not in NUMERIC), "--engine", engine)


def fit_debited(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place, mock.patch("epsilearn.ledger_store.datetime", Noon):
        ledger = el.Ledger.create(place / "budget.db", dataset="d", epsilon=10.0)
        table = written(place, X, y, kind, True)
        return _fit("logistic", *table, "--ledger", place / "budget.db", "--purpose", "a test"), booked(ledger)


def fit_foreseen(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """``epsilearn fit --dry-run``, which opens no row."""
    with folder() as place:
        table, schema = written(place, X, y, kind, True)
        _go("fit", table, "--schema", schema, "--target", "target", "--epsilon", 1, "--dry-run")


def fit_landmarks(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """Landmarks from a public file."""
    with folder() as place:
        table, schema = written(place, X, y, kind, True)
        (place / "public").mkdir()
        public, _ = written(place / "public", PUBLIC, LABELS[: len(PUBLIC)], kind, True)
        return _fit("landmark", table, schema, "--public-landmarks", public)


def fit_own_landmarks(place_of: str, X: np.ndarray, y: np.ndarray) -> Any:
    """Landmarks from the private file itself, under its own name or another."""
    with folder() as place:
        table, schema = written(place, X, y, "parquet", True)
        landmarks, engine = table, "memory"
        if place_of == "symbolic link":
            landmarks = place / "link.parquet"
            landmarks.symlink_to(table)
        elif place_of == "hard link":
            landmarks = place / "link.parquet"
            os.link(table, landmarks)
        elif place_of == "part of a folder":
            (place / "parts").mkdir()
            table, engine = written_in_parts(X, y, place / "parts"), "local"
            landmarks = table / "0.parquet"
        return _fit("landmark", table, schema, "--public-landmarks", landmarks, "--engine", engine)


def stats(name: str, kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place:
        table, _ = written(place, X, y, kind, False)
        _stats(name, table, "--json")
        _stats(name, table)


def _stats(name: str, table: Path, *more: object) -> None:
    extra = {"histogram": "--edges=-1,0,1", "count": "--equals=0.5"}.get(name, "--bounds=-1,1")
    _go("stats", table, "--column", "c0", "--statistic", name, extra, *more)


def stats_debited(name: str, kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place, mock.patch("epsilearn.ledger_store.datetime", Noon):
        ledger = el.Ledger.create(place / "budget.db", dataset="d", epsilon=10.0)
        table, _ = written(place, X, y, kind, False)
        _stats(name, table, "--ledger", place / "budget.db", "--guarantee", place / "promise.json")
        return booked(ledger), (place / "promise.json").read_text()


def _evaluate(place: Path, kind: str, X: np.ndarray, y: np.ndarray, *more: object) -> None:
    """A score of a model that was fitted to other people's rows."""
    model, classifies = ("logistic", True) if set(np.unique(y)) <= {-1, 1} else ("linear", False)
    _fit(model, *written(place, ELSEWHERE, LABELS if classifies else NUMBERS, "csv", classifies))
    (place / "test").mkdir()
    test, _ = written(place / "test", X, y, kind, classifies)
    _go("evaluate", place / "out", test, "--epsilon", 0.5, *more)


def evaluate(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place:
        _evaluate(place, kind, X, y)


def evaluate_debited(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place, mock.patch("epsilearn.ledger_store.datetime", Noon):
        ledger = el.Ledger.create(place / "budget.db", dataset="d", epsilon=10.0)
        _evaluate(place, kind, X, y, "--ledger", place / "budget.db", "--json")
        return booked(ledger)


def write_schema(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """``epsilearn schema write``, which reads names and types alone."""
    with folder() as place:
        table, _ = written(place, X, y, kind, True)
        _go("schema", "write", table, "-o", "-")


def check_schema(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """``epsilearn schema check``, which reads names alone."""
    with folder() as place:
        table, schema = written(place, X, y, kind, True)
        _go("schema", "check", schema, table, "--target", "target")
