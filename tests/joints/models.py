"""Every kind of model, and the small private table that all of them meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import epsilearn as el
from epsilearn.kernel import RBF, Linear
from epsilearn.losses import HuberisedHinge

ROWS, WIDTH = 60, 3

generator = np.random.default_rng(7)
X = generator.normal(size=(ROWS, WIDTH)) / 3
LABELS = np.where(X[:, 0] + 0.1 * generator.normal(size=ROWS) > 0, 1, -1)
NUMBERS = np.clip(X[:, 0], -1, 1)
ELSEWHERE = generator.normal(size=(ROWS, WIDTH)) / 3  # other people's rows, none of them long
ELSEWHERE /= np.maximum(1, np.linalg.norm(ELSEWHERE, axis=1, keepdims=True))
PUBLIC = generator.normal(size=(6, WIDTH)) / 3
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "verbose": False}
CLASSES: dict[str, Any] = {**SETTINGS, "classes": [-1, 1]}


@dataclass(frozen=True)
class Model:
    """A kind of model: how one is made, whether it tells classes, and whether it is a session, asked when fitted."""

    make: Callable[[], Any]
    classifies: bool = True
    asked: bool = False

    @property
    def target(self) -> np.ndarray:
        return LABELS if self.classifies else NUMBERS


def _columns() -> Any:
    """A scaler and an encoder with declared categories side by side."""
    return ColumnTransformer(
        [
            ("numbers", el.BoundedScaler(bounds=(-1, 1)), [0, 1]),
            ("kind", OneHotEncoder(categories=[[-1.0, 0.0, 1.0]], handle_unknown="ignore", sparse_output=False), [2]),
        ],
        sparse_threshold=0,
    )


def _linear(kind: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: kind(data_norm=1.0, **settings)


MODELS: dict[str, Model] = {
    "LogisticRegression": Model(_linear(el.LogisticRegression, **CLASSES)),
    "LogisticRegression, output": Model(_linear(el.LogisticRegression, method="output", **CLASSES)),
    "LogisticRegression, gradient": Model(_linear(el.LogisticRegression, method="gradient", delta=1e-6, **CLASSES)),
    "LinearSVC": Model(_linear(el.LinearSVC, **CLASSES)),
    "LinearRegression": Model(_linear(el.LinearRegression, target_bound=1.0, **SETTINGS), False),
    "LinearRegression, moments": Model(
        _linear(el.LinearRegression, target_bound=1.0, delta=1e-6, method="sufficient-statistics", **SETTINGS), False
    ),
    "ConvexERM": Model(lambda: el.ConvexERM(loss=HuberisedHinge(0.5), data_norm=1.0, alpha=1.0, **CLASSES)),
    "Lasso": Model(lambda: el.Lasso(feature_bound=1.0, target_bound=1.0, delta=1e-6, refit=0.5, **SETTINGS), False),
    "SparseLogisticRegression": Model(lambda: el.SparseLogisticRegression(feature_bound=1.0, **CLASSES)),
    "LandmarkClassifier": Model(lambda: el.LandmarkClassifier(landmarks=PUBLIC, **CLASSES)),
    "LandmarkRegressor": Model(lambda: el.LandmarkRegressor(landmarks=PUBLIC, target_bound=1.0, **SETTINGS), False),
    "RandomFeatures": Model(lambda: el.RandomFeatures(n_features=6, **CLASSES)),
    "SemiInteractiveLearner": Model(lambda: el.SemiInteractiveLearner(public_points=PUBLIC, **CLASSES)),
    "NonInteractiveLearner": Model(lambda: el.NonInteractiveLearner(candidates=PUBLIC, **CLASSES)),
    "GaussianProcessRelease": Model(lambda: el.GaussianProcessRelease(kernel=RBF(0.5), **CLASSES), asked=True),
    "GaussianProcessRelease, finite": Model(
        lambda: el.GaussianProcessRelease(kernel=Linear(1.0), **CLASSES), asked=True
    ),
    "InteractiveLearner": Model(lambda: el.InteractiveLearner(kernel=Linear(1.0), questions=50, **CLASSES), asked=True),
    "PrivateSelection": Model(
        lambda: el.PrivateSelection(el.LogisticRegression(data_norm=1.0, **CLASSES), {"alpha": [0.1, 1.0]})
    ),
    "pipeline": Model(
        lambda: make_pipeline(el.BoundedScaler(bounds=(-1, 1)), el.LogisticRegression(data_norm=1.0, **CLASSES))
    ),
    "pipeline by columns": Model(lambda: make_pipeline(_columns(), el.LogisticRegression(data_norm=2.0, **CLASSES))),
}

# Sessions are asked about public points only: asking them about private rows must be refused.
SESSIONS = tuple(name for name, model in MODELS.items() if model.asked)
