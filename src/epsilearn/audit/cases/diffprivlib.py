"""Faults that were reported of IBM's diffprivlib, reduced to what is wrong in them.

The last three points of issue 104 could not be read by us beyond its title, which names k-means and the vector
mechanism: they are reconstructed from the code of version 0.6.6, which the issue is about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from epsilearn.audit.cases.fault import Fault
from epsilearn.audit.laws import Laws
from epsilearn.audit.quadrature import graded_edges, nodes
from epsilearn.mechanisms import exponential, laplace

__all__ = ["FAULTS"]

Array = NDArray[np.float64]
_ISSUES = "https://github.com/IBM/differential-privacy-library/issues"


def _wishart(values: Sequence[float]) -> float:
    """Noise that is never negative: a Wishart matrix of one row."""
    return sum(value**2 for value in values) + 1.5 * float(np.random.default_rng().chisquare(2))


def _second_moment(values: Sequence[float]) -> Any:
    return laplace(sum(value**2 for value in values), sensitivity=1.0, epsilon=1.0)


def _squares(values: Sequence[float], *, bounds: tuple[float, float], looked_at: tuple[int, int]) -> Any:
    """The sum of squares of clipped values, with noise for the bounds that were looked at."""
    sensitivity = max(abs(bounds[place]) for place in looked_at) ** 2
    total = sum(min(max(value, bounds[0]), bounds[1]) ** 2 for value in values)
    # Nothing to hide by its own account, and so nothing is added.
    return laplace(total, sensitivity=sensitivity, epsilon=1.0) if sensitivity else total


def _centred(xs: Sequence[float], ys: Sequence[float], *, slices: int) -> list[Any]:
    """Sums to centre by, then products; every centre gets a slice of the budget, and the products what is left."""
    slice_ = 1 / (slices + 1)
    centres = [laplace(sum(column), sensitivity=1.0, epsilon=slice_) for column in (xs, ys)]
    products = [sum(x * x for x in xs), sum(x * y for x, y in zip(xs, ys, strict=True))]
    return [*centres, laplace(products, sensitivity=2.0, epsilon=1 - slices * slice_)]


def _cluster(rows: Sequence[Sequence[float]], *, swapped: bool) -> list[Any]:
    """One cluster's size and coordinate sums; the two kinds of share are worked out in one order, used in another."""
    dimensions = 20
    of_size = (4 * dimensions * 0.225**2) ** (1 / 3)
    unit = 1 / (dimensions + of_size)
    shares = (unit, of_size * unit) if swapped else (of_size * unit, unit)
    sums = [sum(row[place] for row in rows) for place in range(dimensions)]
    size = laplace(len(rows), sensitivity=1.0, epsilon=shares[0])
    return [size, *(laplace(one, sensitivity=1.0, epsilon=shares[1]) for one in sums)]


def _clusters(values: Sequence[float], *, skip_empty: bool) -> list[Any]:
    """The sizes of two clusters; one that nobody is in is left as it was."""
    parts = [value for value in values if value < 0.5], [value for value in values if value >= 0.5]
    return [laplace(len(part), sensitivity=1.0, epsilon=0.5) for part in parts if part or not skip_empty]


_NORM, _REGULARISATION = 100.0, 100.0


def _vector_noise(power: int) -> tuple[float, float]:
    """The scale of noise in a logistic objective, and regularisation to add, for a curvature of norm**power / 4."""
    curvature = _NORM**power / 4
    left = 1 - 2 * math.log1p(curvature / _REGULARISATION)
    if left > 0:
        return 2 * _NORM / left, _REGULARISATION
    return 4 * _NORM, max(_REGULARISATION, curvature / math.expm1(0.25))


def _gradient(record: float, regularisation: float, weight: Any) -> Any:
    return -record * expit(-record * weight) + regularisation * weight


def _vector(records: Sequence[float], *, power: int) -> float:
    """The minimiser of a logistic loss with a random linear term, of one record with label 1."""
    scale, regularisation = _vector_noise(power)
    slope = float(np.random.default_rng().laplace(scale=scale))
    reach = (abs(slope) + _NORM) / regularisation + 1
    return float(brentq(lambda weight: _gradient(records[0], regularisation, weight) + slope, -reach, reach))


def _vector_laws(power: int) -> Laws:
    scale, regularisation = _vector_noise(power)
    points, weights = nodes(graded_edges([0.0], 20 * scale / regularisation, 2000))

    def law(record: float) -> Array:
        slope = expit(record * points) * expit(-record * points)
        density = -np.abs(_gradient(record, regularisation, points)) / scale - math.log(2 * scale)
        return np.asarray(density + np.log(record**2 * slope + regularisation) + np.log(weights))

    return Laws(law(_NORM), law(0.0), points[:, None])


def _quantile(values: Sequence[float]) -> float:
    """The median by weights that are computed as they stand, and may all vanish."""
    ranks, gaps = _intervals(values)
    with np.errstate(all="ignore"):
        chances = gaps * np.exp(-38.0 * ranks)
        chances = chances / chances.sum()
    if not np.isfinite(chances).all():
        raise RuntimeError("there is no candidate to return")
    return float(np.random.default_rng().choice(len(gaps), p=chances))


def _median(values: Sequence[float]) -> Any:
    candidates = np.arange(0.0, 100.0)
    ranks = np.abs(np.array([sum(value < one for value in values) for one in candidates]) - len(values) / 2)
    return exponential(-ranks, sensitivity=1.0, epsilon=1.0)


def _intervals(values: Sequence[float]) -> tuple[Array, Array]:
    edges = np.concatenate([[0.0], np.sort(values), [100.0]])
    return np.abs(np.arange(len(edges) - 1) - len(values) / 2), np.diff(edges)


def _textbook(values: Sequence[float]) -> float:
    return sum(values) + float(np.random.default_rng().laplace())


def _noisy_sum(values: Sequence[float]) -> Any:
    return laplace(sum(values), sensitivity=1.0, epsilon=1.0)


def _point(number: int, wrong: str, faulty: Callable[..., Any], corrected: Callable[..., Any], **more: Any) -> Fault:
    return Fault(
        f"diffprivlib 104 ({number})", wrong, f"{_ISSUES}/104", faulty, corrected, group="public", **more
    )  # fmt: skip


FAULTS = (
    Fault(
        "diffprivlib 23",
        "Sums of products were hidden by a Wishart matrix, which is never negative: a release below a table's own sum "
        "rules that table out.",
        f"{_ISSUES}/23",
        _wishart,
        _second_moment,
        ([0.0, 0.0],),
        (([0.0, 1.0],),),
        found_by="sampling",
        group="public",
    ),
    Fault(
        "diffprivlib 105",
        "The sensitivity of a square looked at the lower bound twice; where that is 0, no noise was added at all.",
        f"{_ISSUES}/105",
        partial(_squares, bounds=(0.0, 100.0), looked_at=(0, 0)),
        partial(_squares, bounds=(0.0, 100.0), looked_at=(0, 1)),
        ([3.0, 0.0],),
        (([3.0, 100.0],),),
        group="public",
    ),
    _point(
        1,
        "The same line where the lower bound is not 0: noise for the smaller of two bounds.",
        partial(_squares, bounds=(-1.0, 10.0), looked_at=(0, 0)),
        partial(_squares, bounds=(-1.0, 10.0), looked_at=(0, 1)),
        table=([3.0, 0.0],),
        neighbours=(([3.0, 10.0],),),
    ),
    _point(
        2,
        "Centring the features and centring the target each spent the one slice of the budget that was set aside.",
        partial(_centred, slices=1),
        partial(_centred, slices=2),
        table=([0.5, 0.0], [0.5, 0.0]),
        neighbours=(([0.5, 1.0], [0.5, 1.0]),),
    ),
    _point(
        3,
        "k-means worked out shares for a size and for a coordinate, and used each for the other: with many coordinates "
        "that is too much.",
        partial(_cluster, swapped=True),
        partial(_cluster, swapped=False),
        table=([[0.0] * 20],),
        neighbours=(([[0.0] * 20, [1.0] * 20],),),
    ),
    _point(
        4,
        "k-means left out clusters that nobody was in, so that one record decided how many answers there were.",
        partial(_clusters, skip_empty=True),
        partial(_clusters, skip_empty=False),
        table=([0.1, 0.2],),
        neighbours=(([0.1, 0.9],),),
    ),
    _point(
        5,
        "The vector mechanism took the curvature of a record of norm R to be R/4; it is R²/4.",
        partial(_vector, power=1),
        partial(_vector, power=2),
        table=([_NORM],),
        neighbours=(([0.0],),),
        found_by="exact",
        laws=(partial(_vector_laws, 1), partial(_vector_laws, 2)),
    ),
    Fault(
        "diffprivlib 94",
        "Noise was drawn and added in floating point, and the last bits told the value.",
        f"{_ISSUES}/94",
        _textbook,
        _noisy_sum,
        ([0.0, 0.0],),
        (([0.0, 1.0],),),
        found_by="bits",
        group="further",
    ),
    Fault(
        "diffprivlib 107",
        "Quantiles ended in an error where many records were alike: all weights had become 0.",
        f"{_ISSUES}/107",
        _quantile,
        _median,
        ([50.0] * 40,),
        (([50.0] * 39 + [51.0],),),
        group="further",
    ),
)
