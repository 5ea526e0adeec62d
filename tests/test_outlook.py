"""What is foreseen is what a fit then promises, whatever the model and its settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from epsilearn import (
    ConvexERM,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    SparseLogisticRegression,
)
from epsilearn.errors import InvalidInput
from epsilearn.kernel import RBF, GaussianProcessRelease, LandmarkClassifier, LandmarkRegressor, RandomFeatures
from epsilearn.losses import Huber
from epsilearn.outlook import outlook

ROWS, FEATURES = 300, 4
DELTA = {"delta": 1e-6}
NORM = {"data_norm": 2.0}
TWO = {"classes": [0, 1]}
LANDMARKS = np.random.default_rng(1).uniform(-1, 1, (6, FEATURES))
CLASSIFIERS, REGRESSORS = {**NORM, **TWO}, {**NORM, "target_bound": 1.0}
SPARSE = {"feature_bound": 1.0, "radius": 2.0}
LASSO, CHOSEN = {**SPARSE, "target_bound": 1.0}, {**SPARSE, **TWO}
KERNEL = {"kernel": RBF(1.0), "landmarks": LANDMARKS}

MODELS = {
    "logistic": LogisticRegression(**CLASSIFIERS),
    "logistic, delta": LogisticRegression(**CLASSIFIERS, **DELTA),
    "logistic, centred": LogisticRegression(**CLASSIFIERS, epsilon=2.0, centre=True),
    "logistic, centred, delta": LogisticRegression(**CLASSIFIERS, **DELTA, centre=True),
    "logistic, output": LogisticRegression(**CLASSIFIERS, method="output"),
    "logistic, output, margin, delta": LogisticRegression(**CLASSIFIERS, method="output", margin=2.0, **DELTA),
    "logistic, gradient": LogisticRegression(**CLASSIFIERS, method="gradient", **DELTA),
    "logistic, gradient, centred": LogisticRegression(**CLASSIFIERS, method="gradient", centre=True, **DELTA),
    "logistic, paper": LogisticRegression(**CLASSIFIERS, calibration="paper", alpha=0.001),
    "logistic, paper, output": LogisticRegression(**CLASSIFIERS, calibration="paper", method="output"),
    "logistic, weak alpha": LogisticRegression(**CLASSIFIERS, alpha=1e-6, epsilon=0.1),
    "three classes": LogisticRegression(**NORM, classes=[0, 1, 2]),
    "three classes, gradient": LogisticRegression(**NORM, classes=[0, 1, 2], **DELTA),
    "three classes, output": LogisticRegression(**NORM, classes=[0, 1, 2], method="output", **DELTA),
    "svm": LinearSVC(**CLASSIFIERS),
    "svm, delta": LinearSVC(**CLASSIFIERS, **DELTA),
    "linear": LinearRegression(**REGRESSORS),
    "linear, output": LinearRegression(**REGRESSORS, method="output", **DELTA),
    "linear, the lecture": LinearRegression(**REGRESSORS, method="output", calibration="paper"),
    "linear, no intercept": LinearRegression(**REGRESSORS, fit_intercept=False, **DELTA),
    "convex": ConvexERM(**NORM, loss=Huber(0.5, 1.0), **DELTA),
    "lasso": Lasso(**LASSO),
    "lasso, delta": Lasso(**LASSO, **DELTA),
    "lasso, l2": Lasso(**LASSO, constraint="l2", **DELTA),
    "lasso, refit": Lasso(**LASSO, refit=0.5),
    "lasso, refit, delta": Lasso(**LASSO, refit=0.5, **DELTA),
    "lasso, paper": Lasso(**LASSO, calibration="paper", **DELTA),
    "sparse": SparseLogisticRegression(**CHOSEN, n_steps=5),
    "sparse, refit": SparseLogisticRegression(**CHOSEN, n_steps=5, refit=0.3, fit_intercept=True, **DELTA),
    "landmarks": LandmarkClassifier(**KERNEL, **TWO, **DELTA),
    "landmarks, output": LandmarkClassifier(**KERNEL, **TWO, loss="hinge", method="output"),
    "landmarks, numbers": LandmarkRegressor(**KERNEL, target_bound=1.0),
    "random features": RandomFeatures(kernel=RBF(1.0), **TWO, **DELTA),
}
GRADIENTS = {name for name in MODELS if "gradient" in name and "l2" not in name} | {"three classes, gradient"}


def data(model):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (ROWS, FEATURES))
    labels = getattr(model, "classes", None)
    return X, X[:, 0] if labels is None else generator.choice(labels, ROWS)


@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_guarantee_foreseen_is_the_one_the_fit_carries(name, people):
    from sklearn.base import clone

    model = clone(MODELS[name]).set_params(rows_per_person=people)
    foreseen, fitted = outlook(model, ROWS, FEATURES), model.fit(*data(model))
    promised = fitted.guarantee_
    assert (foreseen.guarantee.epsilon, foreseen.guarantee.delta) == (promised.epsilon, promised.delta)
    assert foreseen.guarantee.rows_per_person == promised.rows_per_person == people
    # Not only the numbers: every word and the curve.
    assert foreseen.guarantee == replace(promised, ledger=None)
    assert foreseen.noise == fitted.noise_
    if hasattr(fitted, "alpha_"):
        assert foreseen.alpha == fitted.alpha_


def test_a_refit_costs_its_share_and_takes_the_theorem_of_the_path_away():
    found = outlook(MODELS["lasso, refit, delta"], ROWS, FEATURES)
    assert (found.guarantee.epsilon, found.guarantee.delta) == (1.0, 1e-6)
    assert "objective perturbation" in found.guarantee.mechanism
    assert found.excess is None
    assert "fitted again" in found.unproven
    path = outlook(MODELS["lasso, delta"], ROWS, FEATURES)
    assert path.excess > 0
    assert path.unproven == ""


@pytest.mark.parametrize("name", MODELS)
def test_either_something_is_proven_or_it_is_said_why_not(name):
    found = outlook(MODELS[name], ROWS, FEATURES)
    assert (found.excess is None) == bool(found.unproven)
    assert (found.excess is None) == (name in GRADIENTS or "refit" in name)
    assert found.to_dict()["unproven"] == found.unproven


def test_models_without_a_plan_are_refused_by_name():
    with pytest.raises(InvalidInput, match="GaussianProcessRelease"):
        outlook(GaussianProcessRelease(kernel=RBF(1.0)), ROWS, FEATURES)
