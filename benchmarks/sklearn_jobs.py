"""What scikit-learn is asked to do, without any privacy; runs inside its own environment."""

from __future__ import annotations

import warnings
from typing import Any

import sklearn
from job import Split, serve
from sklearn.linear_model import LogisticRegression

warnings.simplefilter("ignore")


def fit(X: Any, y: Any, settings: dict[str, Any]) -> LogisticRegression:
    """Logistic regression, softmax for more than two classes."""
    return LogisticRegression(**settings).fit(X, y)


def accuracy(split: Split, settings: dict[str, Any], run: int) -> float:  # noqa: ARG001 nothing is random here
    """Share of test rows that are right."""
    return float(fit(split.X_train, split.y_train, settings).score(split.X_test, split.y_test))


if __name__ == "__main__":
    serve(fit, accuracy, {"scikit-learn": sklearn.__version__})
