"""scikit-learn's own checks, for every estimator and each way of fitting it."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from epsilearn import ConvexERM, LinearRegression, LinearSVC, LogisticRegression, PrivateSelection
from epsilearn.losses import Huber

ESTIMATORS = [
    LogisticRegression(),
    LogisticRegression(method="output", delta=1e-6, fit_intercept=False),
    LinearSVC(),
    LinearRegression(),
    LinearRegression(method="output"),
    LinearRegression(method="sufficient-statistics", delta=1e-6),
    ConvexERM(),
    ConvexERM(loss=Huber(), delta=1e-6),
    PrivateSelection(LogisticRegression(), {"alpha": [0.1, 1.0]}),
    PrivateSelection(LogisticRegression(), {"alpha": [0.1, 1.0]}, strategy="stopping", stop=0.5),
    PrivateSelection(LinearRegression(), {"alpha": [0.1, 1.0]}, target_bound=1.0),
]


def not_yet(estimator: Any) -> dict[str, str]:
    if not isinstance(estimator, PrivateSelection):
        return {}
    return {
        "check_requires_y_none": "no targets at all are not refused in scikit-learn's words",
        "check_fit2d_1sample": "one row is not refused in scikit-learn's words",
    }


@pytest.mark.filterwarnings("ignore::epsilearn.errors.PrivacyWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=not_yet)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
