"""Compiled passes over rows: one read gives scores, values, slopes and curvatures.

No fast-math: sums are added up in the order written, so the number of additions any one addend takes part in is
known, and `rounding` turns it into a bound on the rounding of the whole gradient.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from epsilearn.compiled import compiled
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Loss, Squared

__all__ = [
    "BLOCK",
    "checksum",
    "code_of",
    "dense_move",
    "dense_pass",
    "dense_spread",
    "dense_total",
    "interleave",
    "sparse_outer",
    "sparse_pass",
    "sparse_product",
]

BLOCK = 256  # rows summed by themselves before they are added to the others

LOGISTIC, HINGE, SQUARED, HUBER = range(4)


def code_of(loss: Loss) -> tuple[int, float] | None:
    """How the compiled passes know a loss, or None if they do not."""
    # A subclass may compute something else, so only the losses themselves are known.
    if type(loss) is HuberisedHinge:
        return HINGE, loss.width
    if type(loss) is Huber:
        return HUBER, loss.threshold
    if type(loss) is Logistic:
        return LOGISTIC, loss.margin
    return (SQUARED, 0.0) if type(loss) is Squared else None


@compiled(inline="always")
def _loss(code, parameter, score, target):  # pragma: no cover - compiled
    """Value, slope and curvature of a loss at a score."""
    if code == LOGISTIC:
        margin = score * target - parameter
        small = math.exp(-abs(margin))
        rare = small / (1.0 + small)
        steepness = rare if margin >= 0 else 1.0 / (1.0 + small)
        return math.log1p(small) + max(-margin, 0.0), -target * steepness, rare / (1.0 + small)
    if code == HINGE:
        gap = 1.0 - score * target
        if gap >= parameter:
            return gap, -target, 0.0
        if gap <= -parameter:
            return 0.0, 0.0, 0.0
        share = (gap + parameter) / (2.0 * parameter)
        return parameter * share * share, -target * share, 1.0 / (2.0 * parameter)
    residual = score - target
    if code == SQUARED or abs(residual) <= parameter:
        return 0.5 * residual * residual, residual, 1.0
    size = abs(residual)
    return parameter * (size - 0.5 * parameter), math.copysign(parameter, residual), 0.0


@compiled
def dense_pass(X, factors, intercept, target, coef, code, parameter, gradient, curvature):  # pragma: no cover
    """Sum of losses and gradients over some rows; writes each row's curvature. Returns the sum of the losses."""
    features = X.shape[1]
    part = np.zeros(len(gradient))
    total = 0.0
    for start in range(0, X.shape[0], BLOCK):
        stop = min(start + BLOCK, X.shape[0])
        part[:] = 0.0
        block_total = 0.0
        for i in range(start, stop):
            score = 0.0
            for j in range(features):
                score += X[i, j] * coef[j]
            score *= factors[i]
            if intercept != 0.0:
                score += intercept * coef[features]
            value, slope, bend = _loss(code, parameter, score, target[i])
            block_total += value
            curvature[i] = bend
            scaled = slope * factors[i]
            for j in range(features):
                part[j] += scaled * X[i, j]
            if intercept != 0.0:
                part[features] += slope * intercept
        gradient += part
        total += block_total
    return total


@compiled
def dense_total(X, factors, units, total):  # pragma: no cover - compiled
    """Adds the rows times their factors, each number rounded to whole units."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            total[j] += np.int64(np.rint(X[i, j] * factors[i] * units))


@compiled
def dense_spread(X, factors, centre, units):  # pragma: no cover - compiled
    """The sum over rows of their squared distance from a centre, cut at 1, in whole units."""
    total = np.int64(0)
    for i in range(X.shape[0]):
        square = 0.0
        for j in range(X.shape[1]):
            apart = X[i, j] * factors[i] - centre[j]
            square += apart * apart
        total += np.int64(math.floor(min(square, 1.0) * units))
    return total


@compiled
def dense_move(X, factors, centre, radius, moved):  # pragma: no cover - compiled
    """Writes rows times their factors, less a centre, over a radius."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            moved[i, j] = (X[i, j] * factors[i] - centre[j]) / radius


@compiled
def interleave(columns, rows):  # pragma: no cover - compiled
    """Writes columns, one after the other, as rows; in tiles, so that rows stay in the cache meanwhile."""
    tile = 128
    for start in range(0, rows.shape[0], tile):
        stop = min(start + tile, rows.shape[0])
        for j in range(columns.shape[0]):
            for i in range(start, stop):
                rows[i, j] = columns[j, i]


@compiled
def sparse_pass(
    data, indices, pointers, factors, intercept, target, coef, code, parameter, gradient, curvature
):  # pragma: no cover - compiled
    """The same for rows in compressed form; the caller keeps the stretch short, as there are no blocks."""
    total = 0.0
    last = len(gradient) - 1
    for i in range(len(pointers) - 1):
        score = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            score += data[k] * coef[indices[k]]
        score *= factors[i]
        if intercept != 0.0:
            score += intercept * coef[last]
        value, slope, bend = _loss(code, parameter, score, target[i])
        total += value
        curvature[i] = bend
        scaled = slope * factors[i]
        for k in range(pointers[i], pointers[i + 1]):
            gradient[indices[k]] += scaled * data[k]
        if intercept != 0.0:
            gradient[last] += slope * intercept
    return total


@compiled
def sparse_product(data, indices, pointers, factors, intercept, curvature, vector, out):  # pragma: no cover
    """Adds the sum of curvature * x * <x, vector> over some rows."""
    last = len(out) - 1
    for i in range(len(pointers) - 1):
        score = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            score += data[k] * vector[indices[k]]
        score = score * factors[i]
        if intercept != 0.0:
            score += intercept * vector[last]
        weight = curvature[i] * score
        for k in range(pointers[i], pointers[i + 1]):
            out[indices[k]] += weight * factors[i] * data[k]
        if intercept != 0.0:
            out[last] += weight * intercept


@compiled
def sparse_outer(data, indices, pointers, factors, intercept, weights, out):  # pragma: no cover - compiled
    """Adds the sum of weight * x * x' over some rows."""
    last = out.shape[0] - 1
    for i in range(len(pointers) - 1):
        for k in range(pointers[i], pointers[i + 1]):
            left = data[k] * factors[i]
            column = indices[k]
            for m in range(pointers[i], pointers[i + 1]):
                out[column, indices[m]] += weights[i] * (left * (data[m] * factors[i]))
            if intercept != 0.0:
                out[column, last] += weights[i] * left * intercept
                out[last, column] += weights[i] * left * intercept
        if intercept != 0.0:
            out[last, last] += weights[i] * intercept * intercept


def checksum(X: Any, target: Any, place: int) -> int:
    """64 bits that are others, but for one case in 2**64, if any number is another or stands elsewhere.

    Against accidents, not against people: whoever can write the records needs no collision.

    Examples
    --------
    >>> rows = np.arange(6.0).reshape(3, 2)
    >>> checksum(rows, rows[:, 0], 0) == checksum(rows[::-1], rows[:, 0], 0)
    False
    """
    found = np.uint64(place + 1)
    for array in (*((X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)), target):
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = len(data) // 8 * 8
        found = _fold(data[:whole].view(np.uint64), data[whole:], np.uint64(found))
    return int(found)


@compiled(inline="always")
def _mixed(found, word):  # pragma: no cover - compiled
    mixed = (found ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


@compiled
def _fold(words, rest, seed):  # pragma: no cover - compiled
    """Words in four lanes, each multiplied into what came before it; what is left of the bytes in the end."""
    prime = np.uint64(0x9E3779B97F4A7C15)
    first, second, third, fourth = seed, seed ^ prime, seed + prime, seed * prime
    whole = len(words) // 4 * 4
    for i in range(0, whole, 4):
        first = _mixed(first, words[i])
        second = _mixed(second, words[i + 1])
        third = _mixed(third, words[i + 2])
        fourth = _mixed(fourth, words[i + 3])
    found = _mixed(_mixed(_mixed(_mixed(np.uint64(len(words)), first), second), third), fourth)
    for i in range(whole, len(words)):
        found = _mixed(found, words[i])
    for i in range(len(rest)):
        found = _mixed(found, np.uint64(rest[i]))
    return found
