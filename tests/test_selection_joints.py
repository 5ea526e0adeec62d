"""Selection beside everything it is made of: what one record must not decide in the steps before the private one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from epsilearn import LandmarkClassifier, Ledger, LogisticRegression, PrivateSelection, check_pipeline
from epsilearn.audit import replay
from epsilearn.errors import InvalidInput
from epsilearn.kernel import UserKernel

ROWS = 80
LABELS = np.arange(ROWS) % 2
ONE_HOT = OneHotEncoder(categories=[[2, 3]], handle_unknown="ignore", sparse_output=False)
ORDINAL = OrdinalEncoder(categories=[[2, 3]], handle_unknown="use_encoded_value", unknown_value=0)


def listed(first: Any) -> list[list[Any]]:
    """A table of twos and threes, without types of its own, whose first record is another."""
    return [[first], *([2 + int(label)] for label in LABELS[1:])]


def search(step: Any, **options: Any) -> PrivateSelection:
    last = LogisticRegression(data_norm=1.0, classes=[0, 1])
    return PrivateSelection(make_pipeline(step, last), {"logisticregression__alpha": [0.1]}, **options)


@pytest.mark.parametrize("step", [ONE_HOT, ORDINAL], ids=["one-hot", "ordinal"])
def test_a_record_does_not_decide_the_type_of_a_listed_column(step):
    neighbours = [(listed(first), LABELS) for first in (2.5, "text", None, 10**30, float("nan"), True)]
    found = replay(lambda X, y: search(step).fit(X, y), (listed(2), LABELS), neighbours)
    assert found.differences == ()


def test_functions_of_whole_numbers_that_differ_are_refused():
    refused = check_pipeline(FunctionTransformer(np.reciprocal)), check_pipeline(FunctionTransformer(np.invert))
    assert all(len(found) == 1 and "whole numbers" in found[0].reason for found in refused)
    for function in (np.log1p, np.abs, np.sign, np.square, np.tanh):
        assert check_pipeline(FunctionTransformer(function)) == ()


def test_what_depends_on_types_says_so():
    fitted = search(ONE_HOT).fit(np.array(listed(2)), LABELS)
    assert "the types of the table's columns are public" in fitted.guarantee_.assumptions


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_a_selection_among_selections_is_refused(tmp_path, strategy):
    # Its label set would be that of the part it is fitted to.
    ledger = Ledger.create(tmp_path / "ledger.db", dataset="table", epsilon=1.0)
    inner = PrivateSelection(LogisticRegression(data_norm=1.0), {"alpha": [0.1]})
    outer = PrivateSelection(inner, {"holdout": [0.2, 0.3]}, strategy=strategy, ledger=ledger)
    with pytest.raises(InvalidInput, match="cannot choose among selections"):
        outer.fit(np.zeros((ROWS, 1)), LABELS)
    assert ledger.balance().spent_epsilon == 0


class Complains(TransformerMixin, BaseEstimator):
    """Learns nothing, and warns or fails where a value is large."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        if np.abs(X).max() > 1:
            if self.fails:
                raise ValueError(f"too large: {np.abs(X).max()}")
            warnings.warn("clipped a value", UserWarning, stacklevel=1)
        return np.clip(X, -1, 1)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


@pytest.mark.parametrize("jobs", [None, 2])
def test_no_warning_of_an_earlier_step_leaves(jobs):
    X = np.zeros((ROWS, 2))
    X[0] = 7.0
    columns = ColumnTransformer(
        [("one", Complains(), [0]), ("other", Complains(), [1])], sparse_threshold=0, n_jobs=jobs
    )
    from joblib import parallel_config

    with warnings.catch_warnings(), parallel_config(backend="threading"):
        warnings.simplefilter("error")
        search(columns).fit(X, LABELS)


def test_an_earlier_step_that_fails_is_not_quoted():
    X = np.zeros((ROWS, 1))
    X[0] = 7.125
    with pytest.raises(InvalidInput, match="step before the private one fails") as caught:
        search(Complains(fails=True)).fit(X, LABELS)
    assert "7.125" not in str(caught.value)
    assert caught.value.__context__ is None


def test_points_that_only_the_kernel_knows_may_be_of_any_length():
    kernel = UserKernel(lambda a, b: float(len(set(a) & set(b)) > 0) or 0.0, declared=1.0)
    points = [["a", "b"] if label else ["c"] for label in LABELS]
    model = LandmarkClassifier(kernel=kernel, landmarks=[["a"], ["c"]], classes=[0, 1], epsilon=1.0)
    for first in (["a", "b"], ["a", "b", "c"], [], "text"):
        fitted = PrivateSelection(model, {"alpha": [0.1, 1.0]}).fit([first, *points[1:]], LABELS)
        assert fitted.guarantee_.epsilon == 1.0
