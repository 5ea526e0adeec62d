"""scikit-learn's own checks, for every estimator and each way of fitting it."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from epsilearn import (
    ConvexERM,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateSelection,
    SparseLogisticRegression,
)
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
    Lasso(),
    Lasso(delta=1e-6, constraint="l2", fit_intercept=False),
    Lasso(fit_intercept=True, refit=0.5),
    SparseLogisticRegression(),
    SparseLogisticRegression(delta=1e-6, refit=0.5),
    SparseLogisticRegression(constraint="simplex"),
    PrivateSelection(LogisticRegression(), {"alpha": [0.1, 1.0]}),
    PrivateSelection(LogisticRegression(), {"alpha": [0.1, 1.0]}, strategy="stopping", stop=0.5),
    PrivateSelection(LinearRegression(), {"alpha": [0.1, 1.0]}, target_bound=1.0),
]


@pytest.mark.filterwarnings("ignore::epsilearn.errors.PrivacyWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
