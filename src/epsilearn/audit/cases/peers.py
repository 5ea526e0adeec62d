"""Faults that were reported of SmartNoise, Opacus and OpenDP, and four that many libraries have had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from epsilearn.audit.cases.fault import Fault, Unread
from epsilearn.mechanisms import gaussian, laplace

__all__ = ["FAULTS", "UNREAD"]

_OPACUS = "https://github.com/meta-pytorch/opacus/issues"
_OPENDP = "https://github.com/opendp/opendp/issues"
_SMARTNOISE = "https://github.com/opendp/smartnoise-sdk/issues"
_GAUSSIAN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def _clip(value: float, low: float = 0.0, high: float = 1.0) -> float:
    return min(max(value, low), high)


def _covariance(xs: Sequence[float], ys: Sequence[float], *, use_clipped: bool) -> Any:
    """A sum of products; rows are clipped, and then perhaps forgotten."""
    clipped = [_clip(x) for x in xs], [_clip(y) for y in ys]
    columns = clipped if use_clipped else (xs, ys)
    return laplace(sum(x * y for x, y in zip(*columns, strict=True)), sensitivity=1.0, epsilon=1.0)


def _mean_gradient(gradients: Sequence[float], *, batch: int | None) -> float:
    """A noisy sum of gradients over the expected size of a batch: a public number, or half of the table."""
    released = gaussian(sum(map(_clip, gradients)), sensitivity=1.0, **_GAUSSIAN)
    return float(released.value) / (batch or int(len(gradients) * 0.5))


_MANY = 50


def _long_gradient(gradients: Sequence[float]) -> Any:
    """Many coordinates, and noise whose size shows what it was divided by."""
    noise = 5.0 * np.random.default_rng().normal(size=_MANY)
    return np.linalg.norm(sum(gradients) + noise) / int(len(gradients) * 0.5)


def _long_gradient_by_public_size(gradients: Sequence[float]) -> Any:
    value = [_clip(sum(gradients))] + [0.0] * (_MANY - 1)
    return np.linalg.norm(gaussian(value, sensitivity=1.0, **_GAUSSIAN).value) / 2


def _adaptive_step(gradients: Sequence[float], *, of_gradient: float) -> list[Any]:
    """A gradient, and how many gradients were short, by which the next bound is set."""
    total = gaussian(sum(map(_clip, gradients)), sensitivity=1.0, epsilon=of_gradient, delta=5e-7)
    short = sum(value < 0.5 for value in gradients)
    return [total, gaussian(short, sensitivity=1.0, epsilon=0.5, delta=5e-7)]


_LARGE = 2.0**50


def _squared_deviations(values: Sequence[float], *, exact: bool) -> Any:
    """Squares of what values differ from their mean by, as doubles or exactly."""
    offsets = [_clip(value - _LARGE) for value in values]
    if exact:
        mean = math.fsum(offsets) / len(offsets)
        total = math.fsum((offset - mean) ** 2 for offset in offsets)
    else:
        array = np.array([_LARGE + offset for offset in offsets])
        total = float(((array - _pairwise(array) / len(array)) ** 2).sum())
    return laplace(total, sensitivity=1.0, epsilon=1.0)


def _pairwise(array: Any) -> float:
    """A sum by halves, of a power of two of numbers."""
    while len(array) > 1:
        array = array[::2] + array[1::2]
    return float(array[0])


def _tree(leaves: Sequence[float], *, sensitivity: float) -> Any:
    """Four leaves and their sum; one person may be in all of them."""
    return gaussian([sum(leaves), *leaves], sensitivity=sensitivity, **_GAUSSIAN)


def _narrow(counts: Sequence[int], *, clip_first: bool) -> Any:
    """Counts as 32-bit numbers."""
    wide = np.array(counts, np.uint32)
    if clip_first:
        wide = np.minimum(wide, np.uint32(2**31 - 1))
    return laplace([int(count) for count in wide.astype(np.int32)], sensitivity=1.0, epsilon=1.0)


def _naive_clip(values: Sequence[float], *, missing: float | None) -> Any:
    """A clipped sum; clipping leaves what is not a number as it is."""
    known = [missing if missing is not None and math.isnan(value) else value for value in values]
    return laplace(float(np.clip(known, 0.0, 1.0).sum()), sensitivity=1.0, epsilon=1.0)


def _scaled_twice(values: Sequence[float]) -> float:
    """A mean whose noise has its scale already, and is multiplied by it."""
    scale = 1 / len(values)
    return sum(map(_clip, values)) / len(values) + scale * float(np.random.default_rng().laplace(scale=scale))


def _scaled_once(values: Sequence[float]) -> Any:
    return laplace(sum(map(_clip, values)) / len(values), sensitivity=1 / len(values), epsilon=1.0)


def _counts(labels: Sequence[str], *, domain: tuple[str, ...] | None) -> list[Any]:
    """A count for each label: of a declared list, or of those that occur."""
    names = domain or tuple(sorted(set(labels)))
    return [laplace(sum(label == name for label in labels), sensitivity=1.0, epsilon=0.5) for name in names]


def _sum_and_count(values: Sequence[float], *, each: float) -> list[Any]:
    total = laplace(sum(map(_clip, values)), sensitivity=1.0, epsilon=each)
    return [total, laplace(sum(value > 0.5 for value in values), sensitivity=1.0, epsilon=each)]


_PAPER = "https://arxiv.org/abs/2602.17454"

FAULTS = (
    Fault(
        "smartnoise 622",
        "Values were clipped into a new table, and the covariance was taken of the old one.",
        f"{_SMARTNOISE}/622",
        partial(_covariance, use_clipped=False),
        partial(_covariance, use_clipped=True),
        ([0.5, 0.0], [0.5, 0.0]),
        (([0.5, 40.0], [0.5, 9.0]),),
        group="public",
    ),
    Fault(
        "opacus 571",
        "Gradients were divided by a batch size worked out from the number of records, which is private.",
        f"{_OPACUS}/571",
        partial(_mean_gradient, batch=None),
        partial(_mean_gradient, batch=2),
        ([0.5, 0.0, 0.2],),
        (([0.5, 0.0, 0.2, 1.0],),),
        **_GAUSSIAN,
        group="public",
    ),
    Fault(
        "opacus 819",
        "The same size was rounded down, so that it jumps, and with many coordinates the noise alone shows it.",
        f"{_OPACUS}/819",
        _long_gradient,
        _long_gradient_by_public_size,
        ([0.0, 0.0, 0.0],),
        (([0.0, 0.0, 0.0, 0.0],),),
        **_GAUSSIAN,
        found_by="sampling",
        group="public",
    ),
    Fault(
        "a NaN that chooses",
        "Clipping lets a value pass that is not a number, and it decides what comes out.",
        _PAPER,
        partial(_naive_clip, missing=None),
        partial(_naive_clip, missing=0.0),
        ([0.3, 0.4],),
        (([0.3, math.nan],),),
        group="public",
    ),
    Fault(
        "noise scaled twice",
        "Noise was drawn with its scale, which is less than 1, and multiplied by it once more.",
        _PAPER,
        _scaled_twice,
        _scaled_once,
        ([0.5] * 9 + [0.0],),
        (([0.5] * 9 + [1.0],),),
        found_by="sampling",
        group="public",
    ),
    Fault(
        "a domain read off the data",
        "The labels to count were those that occurred.",
        _PAPER,
        partial(_counts, domain=None),
        partial(_counts, domain=("a", "b", "c")),
        (["a", "b", "a"],),
        ((["a", "b", "c"],),),
        group="public",
    ),
    Fault(
        "a budget spent twice",
        "Two answers were each given the whole budget.",
        _PAPER,
        partial(_sum_and_count, each=1.0),
        partial(_sum_and_count, each=0.5),
        ([0.2, 0.0],),
        (([0.2, 1.0],),),
        group="public",
    ),
    Fault(
        "opacus 807",
        "With bounds that adapt, the gradient's noise alone was accounted for, and not that of the count beside it.",
        "https://github.com/meta-pytorch/opacus/pull/807",
        partial(_adaptive_step, of_gradient=1.0),
        partial(_adaptive_step, of_gradient=0.5),
        ([1.0, 1.0],),
        (([1.0, 0.0],),),
        **_GAUSSIAN,
        group="further",
    ),
    Fault(
        "opendp 2923",
        "A bound on the rounding of a sum of squared deviations left out that of the mean, which every record feels.",
        f"{_OPENDP}/2923",
        partial(_squared_deviations, exact=False),
        partial(_squared_deviations, exact=True),
        ([_LARGE + 0.25] * 1024,),
        (([_LARGE + 0.5] + [_LARGE + 0.25] * 1023,),),
        group="further",
    ),
    Fault(
        "opendp 2924",
        "The l2 sensitivity of a tree of counts was taken to grow with its height alone, though one person may be in "
        "several leaves.",
        f"{_OPENDP}/2924",
        partial(_tree, sensitivity=4.0),
        partial(_tree, sensitivity=math.sqrt(20)),
        ([0.0, 0.0, 0.0, 0.0],),
        (([1.0, 1.0, 1.0, 1.0],),),
        **_GAUSSIAN,
        group="further",
    ),
    Fault(
        "opendp 2837",
        "A count of 2**31 became negative in 32 bits.",
        "https://github.com/opendp/opendp/pull/2837",
        partial(_narrow, clip_first=False),
        partial(_narrow, clip_first=True),
        ([2**31 - 1, 5],),
        (([2**31, 5],),),
        group="further",
    ),
)

UNREAD = (
    Unread("opacus 813", f"{_OPACUS}/813", "opacus 807, from the code's history of the same weeks"),
    Unread("opendp 2789", f"{_OPENDP}/2789", "opendp 2837, 2923 and 2924, whose texts or changes we could read"),
)
