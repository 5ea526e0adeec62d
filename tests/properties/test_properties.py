"""Whatever is public and whatever is private: a fit gives a model with its promise, or a clear error.

Each case is a family of estimators with a few settings changed, often to something extreme, and two private tables of
one shape whose contents may differ in everything. A fit must end in a valid model with a finite promise or in an error
of the library's own, and in the same for both tables: neither errors nor warnings may depend on records inside the data
universe.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import epsilearn

from .families import FAMILIES
from .judgement import Case, judge
from .universe import CONTENTS

CHEAP = [
    "scaler", "count", "sum", "mean", "variance", "histogram", "quantile", "private accuracy", "private error",
    "laplace", "k-norm", "gaussian", "exponential", "above threshold", "gaussian process",
]  # fmt: skip
DEAR = ["interactive", "interactive, printed", "non-interactive", "non-interactive, printed", "selection"]
# How many cases of each family the long test tries; ten thousand together.
SHARES = {name: 280 if name in CHEAP else 150 if name in DEAR else 250 for name in FAMILIES}
FEW = 3

# The same cases in every run; with this variable set, others in each.
EXPLORING = bool(os.environ.get("EPSILEARN_EXPLORE"))
OPTIONS: dict[str, Any] = {
    "derandomize": not EXPLORING,
    "database": None,
    "deadline": None,
    # A case is small as it is, and to make it smaller takes long where fits do.
    "phases": [Phase.generate],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@st.composite
def cases(draw: Callable[[Any], Any], name: str) -> Case:
    """A case of one family, with at most three settings changed."""
    family = FAMILIES[name]
    pairs = [(setting, place) for setting, values in family.changes.items() for place in range(len(values))]
    changed = dict(draw(st.lists(st.sampled_from(pairs), max_size=3)))
    contents = st.sampled_from(list(CONTENTS))
    targets = st.sampled_from(["any", "first", "last"]) if family.target == "labels" else contents
    return Case(
        name,
        tuple((setting, family.changes[setting][place]) for setting, place in changed.items()),
        draw(st.sampled_from(family.shapes)),
        draw(st.sampled_from(list(family.homes))),
        draw(st.sampled_from(["array", "list", "series", "column"])),
        (draw(contents), draw(contents)),
        (draw(targets), draw(targets)),
        draw(st.integers(0, 3)),
    )


def try_cases(name: str, count: int) -> int:
    """Judge so many cases of a family; how many it were."""
    tried = []

    @settings(max_examples=count, **OPTIONS)
    @given(cases(name))
    def each(case: Case) -> None:
        tried.append(case)
        judge(case)

    each()
    return len(tried)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_with_its_promise_or_a_clear_error(name):
    assert try_cases(name, FEW) >= FEW


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_many_models_with_their_promises_or_clear_errors(name, record_property):
    tried = try_cases(name, SHARES[name])
    record_property("cases", tried)
    print(f"{name}: {tried} cases")
    assert tried >= SHARES[name]


def test_the_long_test_tries_ten_thousand_cases():
    assert sum(SHARES.values()) >= 10_000
    assert set(SHARES) == set(FAMILIES)


def test_every_public_estimator_and_mechanism_is_among_the_families():
    """Whoever adds one to the public names adds it here."""
    others = {
        "BoundedScaler",
        "Client",
        "Guarantee",
        "Ledger",
        "Schema",
        "check_pipeline",
        "compose",
        "excess_risk_bound",
        "explain",
        "load",
    }
    others |= {"DaskRows", "ParquetRows", "SparkRows", "parallel", "rows_needed", "statistics"}
    tried = {
        "AboveThreshold", "ConvexERM", "GaussianProcess", "GaussianProcessRelease", "InteractiveLearner",
        "LandmarkClassifier", "LandmarkRegressor", "Lasso", "LinearRegression", "LinearSVC", "LogisticRegression",
        "NonInteractiveLearner", "PrivateSelection", "RandomFeatures", "SemiInteractiveLearner",
        "SparseLogisticRegression", "exponential", "gaussian", "k_norm", "laplace", "private_score",
    }  # fmt: skip
    assert set(epsilearn.__all__) == tried | others
