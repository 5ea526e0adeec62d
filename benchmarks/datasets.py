"""The six tables of the benchmark, each made ready by public facts alone, the same for every library.

Columns are brought to [0, 1] by ranges known without the data, categories to one column each, and every row is then
divided by its norm, which is a function of that row alone: all rows lie on the unit sphere, and 1 is a public bound.
Splits are 80/20, a new one for each run, the same for every method. See `EPSILEARN_DATA` in the README for the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from epsilearn.studies.data import loader

__all__ = ["NAMES", "Benchmark", "load", "split"]


@dataclass(frozen=True)
class Benchmark:
    """A table on the unit sphere, its labels 0, 1, ... and how many there are."""

    name: str
    X: Any
    y: NDArray[np.int64]
    classes: int


def adult() -> tuple[Any, Any]:
    """Binary columns of Adult (a9a): one for each category, five for each number."""
    X, y = loader().a9a()
    return X.toarray(), y > 0


# Colorado's lowest and highest points, in metres; degrees; distances within the study area; shades of grey.
_FOREST_LOW = np.array([1010, 0, 0, 0, -1000, 0, 0, 0, 0, 0])
_FOREST_HIGH = np.array([4401, 360, 90, 10_000, 1000, 10_000, 255, 255, 255, 10_000])


def covertype() -> tuple[Any, Any]:
    """Lodgepole pine against all other trees."""
    X, y = loader().covertype()
    X[:, :10] = np.clip((X[:, :10] - _FOREST_LOW) / (_FOREST_HIGH - _FOREST_LOW), 0, 1)
    return X, y == 2


# Protocol, service and flag; columns that count or measure, which have no upper limit; connections, at most so many.
_CATEGORIES = {1: 3, 2: 70, 3: 11}
_UNLIMITED = [0, 4, 5, 7, 8, 9, 10, 12, 15, 16, 17, 18, 19]
_CONNECTIONS = {22: 511, 23: 511, 31: 255, 32: 255}


def kddcup99() -> tuple[Any, Any]:
    """Attacks against normal connections: categories, logarithms of what has no limit, shares as they are."""
    X, y = loader().kddcup99()
    columns = [X[:, [j]] == np.arange(size) for j, size in _CATEGORIES.items()]
    for j in range(X.shape[1]):
        if j in _UNLIMITED:
            columns.append(np.minimum(np.log1p(X[:, [j]]) / np.log1p(1e9), 1))
        elif j not in _CATEGORIES:
            columns.append(np.clip(X[:, [j]] / _CONNECTIONS.get(j, 1), 0, 1))
    return np.hstack(columns), y


def mnist() -> tuple[Any, Any]:
    """Ten digits, 784 pixels."""
    X, y = loader().mnist()
    return X / 255, y


def spambase() -> tuple[Any, Any]:
    """Spam: roots of frequencies, which are shares of a whole, and logarithms of the lengths of runs."""
    X, y = loader().spambase()
    return np.hstack([np.sqrt(X[:, :54] / 100), np.minimum(np.log1p(X[:, 54:]) / np.log1p(1e5), 1)]), y


def rcv1() -> tuple[Any, Any]:
    """News of companies against others: 47,236 words, sparse."""
    X, y = loader().rcv1()
    return sparse.csr_matrix(X), y > 0


_MAKERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "Adult": adult, "CoverType": covertype, "KDD Cup 99": kddcup99, "MNIST": mnist, "spambase": spambase, "RCV1": rcv1,
}  # fmt: skip
NAMES = tuple(_MAKERS)


def load(name: str) -> Benchmark:
    """One table, by name."""
    X, y = _MAKERS[name]()
    y = np.asarray(y).astype(np.int64)
    return Benchmark(name, normalize(X.astype(np.float64)), y, int(y.max()) + 1)


def split(rows: int, run: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The training and test rows of a run."""
    order = np.random.default_rng(run).permutation(rows)
    return order[: int(0.8 * rows)], order[int(0.8 * rows) :]
