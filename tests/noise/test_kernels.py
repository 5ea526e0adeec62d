"""The kernels' error bounds: every term of them counts. Each is made large in turn, and doubt must grow with it."""

from __future__ import annotations

import numpy as np
import pytest

from epsilearn.compiled import compiled
from epsilearn.noise.bits import SeededBits
from epsilearn.noise.correlated import Normals
from epsilearn.noise.door import _one, release
from epsilearn.noise.kernels import contenders, round_to_grid
from epsilearn.noise.quantiles import GUMBEL, NORMAL
from epsilearn.noise.tables import table_of
from epsilearn.noise.variates import Constant

COUNT, GRID = 20_000, 2.0**-20


def doubt(errors: np.ndarray, scale_error: float = 0.0) -> float:
    words, out, open_ = SeededBits(1).words(COUNT), np.empty(COUNT), np.empty(COUNT, np.int64)
    values = np.random.default_rng(0).normal(size=COUNT)
    found = round_to_grid(words, values, 1.0, scale_error, table_of(NORMAL).coefficients, errors, GRID, out, open_)
    return found / COUNT


def test_the_quantiles_error_counts():
    """An error e leaves a share of 2 e / grid of all roundings open."""
    assert doubt(np.full_like(table_of(NORMAL).errors, 1e-7)) == pytest.approx(2e-7 / GRID, rel=0.1)


def test_the_scales_error_counts():
    """An error of the scale is multiplied by the noise: the mean of |normal| is 0.798."""
    assert doubt(table_of(NORMAL).errors, 1e-7) == pytest.approx(2e-7 * 0.798 / GRID, rel=0.1)


def test_the_rounding_of_products_and_sums_counts():
    """With perfect quantiles, what is left open is two unit roundoffs of the noise and of the total."""
    scale, zero = 2.0**28, np.zeros_like(table_of(NORMAL).errors)
    words, out, open_ = SeededBits(1).words(COUNT), np.empty(COUNT), np.empty(COUNT, np.int64)
    found = round_to_grid(words, np.zeros(COUNT), scale, 0.0, table_of(NORMAL).coefficients, zero, GRID, out, open_)
    assert found / COUNT == pytest.approx(2 * 2.0**-52 * 2 * 0.798 * scale / GRID, rel=0.15)


def test_the_rounding_of_large_values_counts():
    """At 2**49 steps of the grid a sum in doubles is off by up to a sixteenth of a step."""
    values = np.random.default_rng(1).uniform(-1, 1, 4000) * 2.0**29
    fast = release(values, Constant(1.0), NORMAL, SeededBits(2), -20)
    source = SeededBits(2)
    words = source.words(len(values))
    slow = [_one(float(v), Constant(1.0), NORMAL, source, int(w), -20) for v, w in zip(values, words, strict=True)]
    np.testing.assert_array_equal(fast, slow)


def test_every_possible_winner_is_a_contender():
    table = table_of(GUMBEL)
    errors = np.full_like(table.errors, 0.05)
    for seed in range(20):
        words, scores = SeededBits(seed).words(3000), np.zeros(3000)
        found, their_words, upper = np.empty(3000, np.int64), np.empty(3000, np.uint64), np.empty(3000)
        best, count = contenders(words, scores, 1.0, table.coefficients, errors, 0, -np.inf, found, their_words, upper)
        tail = (words & np.uint64(2**63 - 1)).astype(float) * 2.0**-64
        noise = np.where(words >> np.uint64(63), -np.log(-np.log1p(-tail)), -np.log(-np.log(tail)))
        assert best == pytest.approx(noise.max() - 0.05, abs=1e-6)
        possible = set(np.flatnonzero(noise + 0.05 > noise.max() - 0.05 + 1e-6))
        alive = {int(i) for i, u in zip(found[:count], upper[:count], strict=True) if not u < best}
        assert possible <= alive


def test_the_error_of_combined_normals_counts():
    normals = Normals(SeededBits(3))
    normals.grow(4)
    normals._error[:] = 1e-7
    weights = np.ones(4)
    values = np.random.default_rng(2).normal(size=4000)
    undecided = sum(normals._in_floats(float(v), weights, 1.0, -20) is None for v in values)
    assert undecided / 4000 == pytest.approx(2 * 4e-7 / GRID, rel=0.1)


def test_functions_that_cannot_be_cached_are_compiled_all_the_same():
    """A read-only installation, or code without a file, has no place for machine code."""
    space: dict = {}
    exec("def double(x):\n    return 2 * x", space)
    assert compiled(space["double"])(21) == 42
