"""Compiled passes over rows of whole numbers. Every sum is exact, so its order does not matter."""

from __future__ import annotations

import numpy as np

from epsilearn.compiled import compiled
from epsilearn.exponentials import exponentials

__all__ = [
    "LOGISTIC",
    "SQUARED",
    "by_columns",
    "count_columns",
    "dense_combine",
    "dense_product",
    "quantise",
    "sparse_gather",
    "sparse_product",
    "sparse_add",
    "slopes",
]

LOGISTIC, SQUARED = range(2)

_STRETCH = 1024


@compiled
def quantise(values, factor, levels, out):  # pragma: no cover - compiled
    """Whole numbers of levels towards zero, never more than ``levels`` of them."""
    for i in range(len(values)):
        scaled = values[i] * factor
        out[i] = np.int64(min(max(scaled, -levels), levels))


@compiled
def slopes(margins, unit, target, code, steepest, levels, out):  # pragma: no cover - compiled
    """Each record's slope as a whole number of ``steepest / levels``, cut off at ``levels``: the bound is exact.

    A record's slope depends on its own numbers alone, not on its place among the others.
    """
    factor = levels / steepest
    small, decay, margin = np.empty(_STRETCH), np.empty(_STRETCH), np.empty(_STRETCH)
    for start in range(0, len(margins), _STRETCH):
        count = min(_STRETCH, len(margins) - start)
        if code == LOGISTIC:
            for i in range(count):
                margin[i] = margins[start + i] * unit * target[start + i]
                small[i] = -abs(margin[i])
            exponentials(small[:count], decay)
        for i in range(count):
            y = target[start + i]
            if code == SQUARED:
                slope = 2.0 * (margins[start + i] * unit - y)
            else:
                slope = -y * (decay[i] if margin[i] >= 0 else 1.0) / (1.0 + decay[i])
            scaled = np.rint(slope * factor)
            out[start + i] = np.int64(min(max(scaled, -levels), levels))


@compiled
def dense_combine(Z, weights, out):  # pragma: no cover - compiled
    """Add the rows, each times its weight."""
    for i in range(Z.shape[0]):
        weight = np.int64(weights[i])
        if weight != 0:
            for j in range(Z.shape[1]):
                out[j] += weight * np.int64(Z[i, j])


@compiled
def dense_product(Z, vector, out):  # pragma: no cover - compiled
    """Each row's product with a vector."""
    for i in range(Z.shape[0]):
        total = np.int64(0)
        for j in range(Z.shape[1]):
            total += np.int64(Z[i, j]) * vector[j]
        out[i] = total


@compiled
def sparse_product(data, indices, indptr, vector, out):  # pragma: no cover - compiled
    """Each row's product with a vector."""
    for i in range(len(indptr) - 1):
        total = np.int64(0)
        for k in range(indptr[i], indptr[i + 1]):
            total += np.int64(data[k if len(data) > 1 else 0]) * vector[indices[k]]
        out[i] = total


@compiled
def sparse_gather(data, indices, indptr, weights, out):  # pragma: no cover - compiled
    """Each column's product with the records' weights. One number in ``data`` stands for all entries.

    Most columns are short, and a loop over each would mostly guess wrong where it ends. So one sum runs through all
    entries, and a column's is the difference of two of its values, exact even where the running sum wraps around.
    """
    alike = len(data) == 1
    running = np.empty(_STRETCH, np.int64)
    total, before = np.int64(0), np.int64(0)
    column, end = 0, indptr[len(out)]
    for start in range(indptr[0], end, _STRETCH):
        stop = min(start + _STRETCH, end)
        for k in range(start, stop):
            weight = np.int64(weights[indices[k]])
            total += weight if alike else weight * np.int64(data[k])
            running[k - start] = total
        while column < len(out) and indptr[column + 1] <= stop:
            here = running[indptr[column + 1] - 1 - start]
            out[column] = (here - before) * np.int64(data[0]) if alike else here - before
            before = here
            column += 1


@compiled
def count_columns(indices, counts):  # pragma: no cover - compiled
    """How many entries each column has."""
    for k in range(len(indices)):
        counts[indices[k]] += 1


@compiled
def by_columns(data, indices, indptr, place, beginnings, where, values, packed):  # pragma: no cover - compiled
    """Sort entries by columns, the records in order; columns are renamed by ``place``, into ``packed`` as well."""
    free = beginnings[:-1].copy()
    alike = len(data) == 1
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = place[indices[k]]
            packed[k] = j
            where[free[j]] = i
            if not alike:
                values[free[j]] = data[k]
            free[j] += 1


@compiled
def sparse_add(data, indices, indptr, rows, weights, place, order, values, count):  # pragma: no cover - compiled
    """Add some rows, each times its weight, to a running sum; columns seen for the first time get the next place."""
    alike = len(data) == 1
    for index in range(len(rows)):
        i, weight = rows[index], np.int64(weights[index])
        if weight == 0:
            continue
        if alike:
            weight *= np.int64(data[0])
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if place[j] < 0:
                place[j] = count
                order[count] = j
                count += 1
            values[place[j]] += weight if alike else weight * np.int64(data[k])
    return count
