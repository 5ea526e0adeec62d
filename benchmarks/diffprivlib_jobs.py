"""What diffprivlib is asked to do; runs inside its own environment, so it imports nothing of ours."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")


def arrays(path: str) -> dict[str, np.ndarray]:
    """Every array of a folder, mapped rather than read."""
    return {file.stem: np.load(file, mmap_mode="r") for file in Path(path).glob("*.npy")}


def accuracy(path: str, epsilon: float, data_norm: float, strengths: list[float], runs: int) -> dict[str, list[float]]:
    """Test accuracies for each C, over splits that are given as index arrays."""
    data, found = arrays(path), {}
    for strength in strengths:
        found[str(strength)] = []
        for run in range(runs):
            train, test = data[f"train{run}"], data[f"test{run}"]
            model = LogisticRegression(epsilon=epsilon, data_norm=data_norm, C=strength, max_iter=1000)
            model.fit(data["X"][train], data["y"][train])
            found[str(strength)].append(float(model.score(data["X"][test], data["y"][test])))
    return found


def speed(path: str, strength: float, repeats: int) -> list[float]:
    """Seconds for a fit at the default tolerance."""
    data = arrays(path)
    X, y = np.array(data["X"]), np.array(data["y"])
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        LogisticRegression(epsilon=1.0, data_norm=1.0, C=strength).fit(X, y)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


if __name__ == "__main__":
    print(json.dumps({"accuracy": accuracy, "speed": speed}[sys.argv[1]](**json.loads(sys.argv[2]))))
