"""The stored tables' errors are proven anew, cell by cell, and hold where they are tried."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, arb_series

from epsilearn.balls import precision
from epsilearn.noise import kernels, tables
from epsilearn.noise.quantiles import EXPONENTIAL, GUMBEL, LAPLACE, NORMAL
from epsilearn.noise.variates import Uniform, Variate


@pytest.fixture(scope="module")
def stored():
    with np.load(tables._PATH) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", tables.SERIES)
def test_every_stored_error_is_proven(stored, name):
    coefficients, errors = stored[name], stored[name + "_error"]
    assert errors.shape == (tables.CELLS + 2,)
    assert math.isinf(errors[0])
    assert math.isinf(errors[-1])
    for row in range(tables.CELLS):
        octave, cell = tables.FIRST_OCTAVE + (row >> tables.CELL_BITS), row % (1 << tables.CELL_BITS)
        proven = tables.certify(tables.SERIES[name], octave, cell, coefficients[row + 1])
        assert proven <= errors[row + 1] <= 1.01 * proven


@pytest.mark.parametrize("name", tables.SERIES)
def test_the_taylor_remainder_is_really_there(name):
    """flint cuts series off at a global cap, without a word: a missing remainder must be an error, not a zero."""
    with precision(256):
        found = tables._expand(tables.SERIES[name], 40, arb(1.5))
    assert len(found) == tables._TERMS + 1
    assert all(abs(c) > 0 for c in found)
    with pytest.raises(ArithmeticError, match="came"):
        tables._expand(lambda tail: arb_series(tail.coeffs()[:2], prec=5), 40, arb(1.5))


def test_a_wrong_coefficient_is_noticed(stored):
    coefficients = stored["normal_upper"][600].copy()
    row = 599
    octave, cell = tables.FIRST_OCTAVE + (row >> tables.CELL_BITS), row % (1 << tables.CELL_BITS)
    before = tables.certify(tables.SERIES["normal_upper"], octave, cell, coefficients)
    coefficients[1] += 1e-9
    assert tables.certify(tables.SERIES["normal_upper"], octave, cell, coefficients) > 1e4 * before


def evaluate(quantile, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    table = tables.table_of(quantile)
    value, error = np.empty(len(words)), np.empty(len(words))
    for start in range(0, len(words), kernels.BLOCK):
        block = words[start : start + kernels.BLOCK]
        scratch = [np.empty(kernels.BLOCK), np.empty(kernels.BLOCK, np.int64)]
        out, err = np.empty(kernels.BLOCK), np.empty(kernels.BLOCK)
        kernels._quantiles(block, table.coefficients, table.errors, *scratch, out, err)
        value[start : start + len(block)], error[start : start + len(block)] = out[: len(block)], err[: len(block)]
    return value, error


def interesting_words() -> np.ndarray:
    generator = np.random.default_rng(0)
    anywhere = generator.integers(0, 2**64, 4000, dtype=np.uint64)
    small = np.array([generator.integers(0, 2**k) for k in range(1, 63) for _ in range(30)], np.uint64)
    edges = np.array([(1 << k) + d for k in range(1, 63) for d in (-1, 0, 1)] + [0, 2**63 - 1], np.uint64)
    tails = np.concatenate([small, edges])
    return np.concatenate([anywhere, tails, tails | np.uint64(1 << 63)])


@pytest.mark.parametrize("quantile", [LAPLACE, NORMAL, GUMBEL], ids=lambda q: q.name)
@pytest.mark.parametrize("open_bits", [0, (1 << 200) - 1], ids=["then zeros", "then ones"])
def test_floats_stay_within_the_stored_error(quantile, open_bits):
    """Whatever the bits after the 64th are: all zeros and all ones are the two ends."""
    words = interesting_words()
    values, errors = evaluate(quantile, words)
    with precision(400):
        for word, value, error in zip(words, values, errors, strict=True):
            if math.isinf(error):
                continue
            exact = Variate(quantile, None, Uniform(None, (int(word) << 200) | open_bits, 264)).ball(264)
            assert abs(exact - arb(float(value))) <= arb(float(error))
    assert np.isfinite(errors).mean() > 0.5


def test_words_at_the_very_end_are_left_to_balls():
    _, errors = evaluate(NORMAL, np.array([0, 1, 2**20 - 1, 2**63, 2**63 + 5, 2**64 - 1], np.uint64))
    assert np.isinf(errors).all()


def test_no_table_for_other_distributions():
    with pytest.raises(KeyError):
        tables.table_of(EXPONENTIAL)
