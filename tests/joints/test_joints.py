"""The matrix of joints holds, and every guard in it is what makes it hold."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from sklearn.base import BaseEstimator
from tests.joints.matrix import CELLS, MODELS, NOTHING, REFUSES, SESSIONS, outcome

import epsilearn

# In the ordinary suite each consumer meets each model once, and each home a few models; the rest is slow.
FEW = ("LogisticRegression", "Lasso", "LandmarkClassifier", "mean", "quantile", "logistic")
IN_PARTS = ("Parquet", "Dask")
ALL_RECORDS_AT_HAND = (*SESSIONS, "SemiInteractiveLearner", "NonInteractiveLearner", "PrivateSelection")
NEEDS_DELTA = ("LogisticRegression, gradient", "NonInteractiveLearner")


def expected(cell) -> str:
    """What a cell must say. Everything that is not refused by right is answered."""
    scored = cell.consumer.startswith(("private_score", "selection"))
    if scored and cell.model in SESSIONS:
        return REFUSES  # a session is asked about public points only
    if cell.consumer in ("swapped step", "own landmarks", "selected landmarks"):
        return REFUSES
    if cell.consumer == "selection, stopping" and cell.model in NEEDS_DELTA:
        return REFUSES
    if cell.consumer == "fit" and cell.home in IN_PARTS:
        pipeline = cell.model.startswith("pipeline")
        return REFUSES if pipeline or cell.model in ALL_RECORDS_AT_HAND else NOTHING
    if cell.consumer == "fit" and cell.model.startswith("pipeline") and cell.home == "sparse":
        return REFUSES
    return NOTHING


def is_quick(cell) -> bool:
    return cell.consumer != "service" and (cell.home == "numpy" or cell.model in FEW)


def marked(name):
    return pytest.param(name, marks=() if is_quick(CELLS[name]) else pytest.mark.slow)


@pytest.mark.parametrize("name", [marked(name) for name in CELLS])
def test_nothing_is_shown(name):
    cell = CELLS[name]
    found = cell.replayed(2 if cell.consumer == "service" else 3)
    assert not found.refuted, str(found)
    assert outcome(found) == expected(cell), str(found)
    if outcome(found) == NOTHING and cell.consumer != "epsilearn audit":
        assert found.answers, "nothing was released, so nothing was tried"


def silent_no_more(monkeypatch):
    """Without the silence around private values, wherever it is kept."""
    monkeypatch.setattr("epsilearn.quiet.np.errstate", lambda **_: contextlib.nullcontext())


def without(*places):
    def remove(monkeypatch):
        for place in places:
            monkeypatch.setattr(place, lambda *arguments, **words: [])

    return remove


def trusting(place, answer):
    return lambda monkeypatch: monkeypatch.setattr(place, answer)


GUARDS = {
    "sessions are not scored": (
        without("epsilearn.evaluation.check_function"),
        [f"private_score | {name} | numpy" for name in SESSIONS],
    ),
    "sessions are not selected": (
        without("epsilearn.candidates.check_function", "epsilearn.evaluation.check_function"),
        [f"selection, parts | {name} | numpy" for name in SESSIONS],
    ),
    "candidates are judged": (
        trusting("epsilearn.candidates.judged", lambda _: SimpleNamespace(learning=[], private=[], assumptions=[])),
        ["swapped step |  | numpy"],
    ),
    "settings are apart from the table": (
        without(*(f"epsilearn.{place}.check_apart" for place in ("linear.model", "kernel.model", "selection"))),
        ["own landmarks |  | numpy", "selected landmarks |  | numpy"],
    ),
    "a kernel that fails counts as 0": (
        trusting("epsilearn.kernel.objects.UserKernel.total", property(lambda self: self)),
        ["own kernel |  | numpy"],
    ),
    "a model that fails is wrong": (
        trusting("epsilearn.evaluation._predicted", lambda model, X: model.predict(X)),
        ["own model |  | numpy"],
    ),
    "private values are looked at in silence": (
        silent_no_more,
        ["strict numpy | GaussianProcessRelease | numpy", "strict numpy | LandmarkClassifier | numpy"],
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_the_matrix_fails(guard, monkeypatch):
    remove, names = GUARDS[guard]
    remove(monkeypatch)
    for name in names:
        assert outcome(CELLS[name].replayed(30)) == "LEAKS", name


def test_the_matrix_is_whole():
    """Every consumer beside every model, and every home that rows can have."""
    pairs = {(cell.consumer, cell.model) for cell in CELLS.values()}
    for consumer in ("fit", "private_score", "private_score, nested", "selection, parts", "selection, stopping"):
        assert {(consumer, model) for model in MODELS} <= pairs
    homes = {cell.home for cell in CELLS.values() if cell.consumer == "fit"}
    assert {"numpy", "sparse", "pandas", "polars", "Parquet", "Dask"} <= homes


def test_every_public_estimator_is_in_the_matrix():
    made = {type(part).__name__ for model in MODELS.values() for part in _inside(model.make())}
    public = {
        name
        for name in epsilearn.__all__
        if isinstance(getattr(epsilearn, name), type) and issubclass(getattr(epsilearn, name), BaseEstimator)
    }
    assert public <= made


def _inside(estimator):
    return [estimator, *(step for _, step in getattr(estimator, "steps", ()))]
