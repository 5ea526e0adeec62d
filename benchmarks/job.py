"""What every job script shares: a table and a request in, lines of JSON out. Needs numpy and scipy only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["Split", "serve"]

Settings = dict[str, Any]


class Split:
    """Training and test rows of one split of a table."""

    def __init__(self, folder: str, run: int) -> None:
        home = Path(folder)
        dense = home / "X.npy"
        X = np.load(dense, mmap_mode="r") if dense.exists() else sparse.load_npz(home / "X.npz")
        y = np.load(home / "y.npy")
        train, test = np.load(home / f"train{run}.npy"), np.load(home / f"test{run}.npy")
        self.classes = int(y.max()) + 1
        self.X_train, self.X_test = X[train], X[test]
        self.y_train, self.y_test = y[train], y[test]
        self._kept: dict[str, Any] = {}

    def kept(self, part: str, make: Callable[[Any], Any]) -> Any:
        """The rows of a part in a library's own form, made once."""
        if part not in self._kept:
            self._kept[part] = make({"train": self.X_train, "test": self.X_test}[part])
        return self._kept[part]

    def nbytes(self) -> int:
        """How much memory the training rows take."""
        parts = [self.X_train]
        if sparse.issparse(self.X_train):
            parts = [self.X_train.data, self.X_train.indices, self.X_train.indptr]
        return sum(part.nbytes for part in parts)


def serve(
    fit: Callable[[Any, Any, Settings], Any],
    accuracy: Callable[[Split, Settings, int], float],
    versions: dict[str, str],
) -> None:
    """Do what the request on the command line asks for; whatever a library cannot do is a result, with its reason."""
    request = json.loads(Path(sys.argv[1]).read_text())
    if request["what"] == "accuracy":
        for run, tasks in groupby(request["tasks"], itemgetter("run")):
            split = Split(request["folder"], run)
            for task in tasks:
                _answer(partial(_accuracy, accuracy, split, task), task, versions)
        return
    split, settings = Split(request["folder"], 0), request["settings"]
    if request["what"] == "seconds":
        # One fit for each line on standard input, so that libraries can take turns.
        for _ in sys.stdin:
            _answer(partial(_fit, fit, split, settings), {}, versions)
    if request["what"] == "memory":
        _answer(partial(_rise, fit, split, settings), {}, versions)


def _fit(fit: Callable[[Any, Any, Settings], Any], split: Split, settings: Settings) -> Settings:
    fit(split.X_train, split.y_train, settings)
    return {}


def _accuracy(accuracy: Callable[[Split, Settings, int], float], split: Split, task: dict[str, Any]) -> Settings:
    return {"accuracy": accuracy(split, task["settings"], task["run"])}


def _answer(work: Callable[[], dict[str, Any]], task: dict[str, Any], versions: dict[str, str]) -> None:
    start = time.perf_counter()
    try:
        found = work()
    except Exception as error:
        found = {"reason": f"{type(error).__name__}: {error}"[:300]}
    found |= {"key": task.get("key"), "seconds": time.perf_counter() - start, "versions": versions}
    print(json.dumps(found), flush=True)


def _rise(fit: Callable[[Any, Any, Settings], Any], split: Split, settings: Settings) -> Settings:
    """Peak memory of a fit above what the process held before it, in units of the input's size."""
    small = slice(0, min(2000, len(split.y_train)))
    fit(split.X_train[small], split.y_train[small], settings)  # loads and compiles what any fit needs
    # Linux only: forget the peak that loading the data reached.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    fit(split.X_train, split.y_train, settings)
    return {"rise": (_status("VmHWM") - before) / split.nbytes()}


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
