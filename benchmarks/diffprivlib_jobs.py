"""What diffprivlib is asked to do; runs inside its own environment."""

from __future__ import annotations

import warnings
from typing import Any

import diffprivlib
import sklearn
from diffprivlib.models import LogisticRegression
from job import Split, serve

warnings.simplefilter("ignore")


def fit(X: Any, y: Any, settings: dict[str, Any]) -> LogisticRegression:
    """Rows of norm at most 1 unless told otherwise; pure differential privacy is all it offers."""
    return LogisticRegression(**{"data_norm": 1.0} | settings).fit(X, y)


def accuracy(split: Split, settings: dict[str, Any], run: int) -> float:
    """Share of test rows that are right."""
    model = fit(split.X_train, split.y_train, {**settings, "random_state": run})
    return float(model.score(split.X_test, split.y_test))


if __name__ == "__main__":
    serve(fit, accuracy, {"diffprivlib": diffprivlib.__version__, "scikit-learn": sklearn.__version__})
