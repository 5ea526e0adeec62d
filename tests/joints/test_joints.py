"""The matrix of joints holds."""

from __future__ import annotations

import pytest
from tests.joints.homes import IN_PARTS
from tests.joints.matrix import CELLS, NOTHING, REFUSES, outcome
from tests.joints.models import SESSIONS

# In the ordinary suite each consumer meets each model once, and each home a few models; the rest is slow.
FEW = ("LogisticRegression", "Lasso", "LandmarkClassifier", "mean", "quantile", "logistic")
ALL_RECORDS_AT_HAND = (*SESSIONS, "SemiInteractiveLearner", "NonInteractiveLearner", "PrivateSelection")
BRINGS_THE_TABLE = ("own landmarks", "own points", "selected landmarks", "epsilearn fit, own landmarks")
NEEDS_DELTA = ("LogisticRegression, gradient", "NonInteractiveLearner")
READS_NO_ROW = ("epsilearn fit, dry run", "epsilearn schema write", "epsilearn schema check")


def expected(cell) -> str:
    """What a cell must say. Everything that is not refused by right is answered."""
    pipeline = cell.model.startswith("pipeline")
    if cell.consumer in ("swapped step", "selected landmarks") or cell.consumer.endswith(
        ("own landmarks", "own points")
    ):
        return REFUSES
    if cell.consumer.startswith(("private_score", "selection")) and (cell.model in SESSIONS or cell.home in IN_PARTS):
        return REFUSES  # a session is asked about public points only; records are judged where they are at hand
    if cell.consumer == "selection, stopping" and cell.model in NEEDS_DELTA:
        return REFUSES
    if cell.consumer.startswith("selection") and cell.model == "PrivateSelection":
        return REFUSES  # a selection among selections
    if cell.home in IN_PARTS and (pipeline or cell.model in ALL_RECORDS_AT_HAND):
        return REFUSES
    return REFUSES if pipeline and cell.home == "sparse" else NOTHING


def is_quick(cell) -> bool:
    if cell.consumer == "service" or "spark" in cell.home.lower():
        return False
    if cell.consumer in ("fit", "epsilearn fit", "statistics", "epsilearn stats"):
        return cell.home == "numpy" or cell.model in FEW
    if cell.consumer == "private_score, nested":
        return cell.home == "numpy" and cell.model in (*SESSIONS, "LogisticRegression", "LinearRegression")
    if cell.consumer.endswith("debited"):
        return cell.model in ("LogisticRegression", "mean", "logistic")
    return cell.home == "numpy" or cell.model in ("", "LogisticRegression", "logistic", "landmark")


def is_slow(cell) -> bool:
    """Of what is not quick, what CI looks at: each home and each route once more; all the rest is exhaustive."""
    if "spark" in cell.home.lower():
        return cell.model in ("LogisticRegression", "logistic") and "debited" not in cell.consumer
    return cell.consumer == "service" or cell.model in FEW


def marked(name):
    if is_quick(CELLS[name]):
        return name
    return pytest.param(name, marks=pytest.mark.slow if is_slow(CELLS[name]) else pytest.mark.exhaustive)


@pytest.mark.parametrize("name", [marked(name) for name in CELLS])
def test_nothing_is_shown(name):
    cell = CELLS[name]
    found = cell.replayed(2 if cell.consumer == "service" or "spark" in cell.home.lower() else 3)
    assert not found.refuted, str(found)
    assert outcome(found) == expected(cell), str(found)
    told = [name for name in found.unsettled if name.startswith("printed") or "answers" in name or "value" in name]
    assert not told, "what was printed or answered could not be compared"
    if outcome(found) == NOTHING and cell.consumer not in READS_NO_ROW:
        assert found.answers, "nothing was released, so nothing was tried"
