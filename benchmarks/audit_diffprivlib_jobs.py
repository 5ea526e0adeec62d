"""Releases of diffprivlib's logistic regression for an audit; runs inside its own environment, so it imports nothing of
ours."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")


def releases(X: list[list[float]], y: list[int], repeats: list[int], trials: int, **settings: float) -> np.ndarray:
    """Weights and intercept of so many fits; each record stands in the table as often as ``repeats`` says."""
    table, labels = np.repeat(np.array(X, float), repeats, axis=0), np.repeat(y, repeats)
    found = []
    for _ in range(trials):
        model = LogisticRegression(**settings).fit(table, labels)
        found.append(np.append(model.coef_.ravel(), model.intercept_.ravel()))
    return np.array(found)


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    np.save(job.pop("output"), releases(**job))
