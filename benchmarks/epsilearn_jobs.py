"""What epsilearn is asked to do: its defaults, told only the budget, the norm's bound and the labels."""

from __future__ import annotations

import warnings
from typing import Any

from job import Split, serve

import epsilearn

warnings.simplefilter("ignore")


def fit(X: Any, y: Any, settings: dict[str, Any]) -> Any:
    """A model by name."""
    options = dict(settings)
    return getattr(epsilearn, options.pop("model"))(**options).fit(X, y)


def accuracy(split: Split, settings: dict[str, Any], run: int) -> float:  # noqa: ARG001 the noise is real
    """Share of test rows that are right."""
    return float(fit(split.X_train, split.y_train, settings).score(split.X_test, split.y_test))


if __name__ == "__main__":
    serve(fit, accuracy, {"epsilearn": epsilearn.__version__})
