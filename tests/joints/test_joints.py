"""The matrix of joints holds, and every guard in it is what makes it hold."""

from __future__ import annotations

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
    if cell.consumer.startswith("selection") and cell.model == "PrivateSelection":
        return REFUSES  # a selection of selections has no proof here
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


@pytest.mark.parametrize("name", map(marked, CELLS))
def test_nothing_is_shown(name):
    cell = CELLS[name]
    found = cell.replayed(2 if cell.consumer == "service" else 4)
    assert not found.refuted, str(found)
    assert outcome(found) == expected(cell), str(found)
    if outcome(found) == NOTHING and cell.consumer != "epsilearn audit":
        assert found.answers, "nothing was released, so nothing was tried"


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
