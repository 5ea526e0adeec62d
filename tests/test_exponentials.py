"""exp of arrays: as close as promised everywhere, and a function of the number alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from epsilearn.balls import ball, precision
from epsilearn.exponentials import EXPONENTIAL_ERROR, exponentials, exponentials_near

LOG_2 = math.log(2)


def exp(x) -> np.ndarray:
    x = np.asarray(x, np.float64)
    out = np.full(len(x), np.nan)
    exponentials(x, out)
    return out


def largest_error(x: np.ndarray) -> float:
    """The largest relative error, from balls."""
    with precision(120):
        return max(float(abs(ball(e) / ball(v).exp() - 1).upper()) for v, e in zip(x.tolist(), exp(x), strict=True))


def neighbours(x: np.ndarray) -> np.ndarray:
    near = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf), x * (1 - 1e-15), x * (1 + 1e-15)])
    return near[np.abs(near) <= 700]


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).uniform(-700, 700, 15_000),
        np.random.default_rng(1).normal(size=5_000),
        neighbours((np.arange(-1010, 1010) + 0.5) * LOG_2),
        neighbours(np.arange(-1009, 1010) * LOG_2),
        neighbours(np.array([-700.0, 700.0])),
        np.concatenate([s * 2.0 ** np.arange(-1074, 9) for s in (1, -1)]),
    ],
    ids=["everywhere", "near zero", "between two powers of 2", "powers of 2", "the ends", "every exponent"],
)
def test_errors_are_a_quarter_of_what_is_promised(x):
    """The promise leaves room for a factor of 4."""
    assert largest_error(x) < EXPONENTIAL_ERROR / 4


def test_exp_of_zero_is_one():
    np.testing.assert_array_equal(exp([0.0, -0.0, 5e-324, -5e-324]), 1.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_700_count_as_700(sign):
    beyond = sign * np.array([700.0, np.nextafter(700.0, 701), 700.1, 709.8, 745.2, 1e6, 2.0**53, 1e308, np.inf])
    found = exp(beyond)
    assert found[0] == pytest.approx(math.exp(sign * 700), rel=1e-12)
    np.testing.assert_array_equal(found, found[0])
    assert (exp([sign * 699.9]) < found[0]) == (sign > 0)


def test_place_and_length_do_not_matter():
    """Machine code works on several numbers at once and on the rest one by one: the bits are the same."""
    numbers = np.random.default_rng(2).normal(size=67) * np.random.default_rng(3).choice([1e-3, 1, 50, 800], 67)
    alone = np.array([exp([x])[0] for x in numbers])
    for length in [*range(80), 1023, 1024, 1025, 5000]:
        for start in (0, 1, 3, 40):
            which = (start + np.arange(length)) % len(numbers)
            np.testing.assert_array_equal(exp(numbers[which]), alone[which])
    for start in range(9):  # wherever the array begins in memory
        np.testing.assert_array_equal(exp(numbers[start:]), alone[start:])


def test_the_same_array_may_take_the_answer():
    x = np.random.default_rng(4).uniform(-800, 800, 300)
    expected = exp(x)
    exponentials(x, x)
    np.testing.assert_array_equal(x, expected)


def test_the_input_is_left_alone_and_near_numbers_need_no_cut():
    x = np.random.default_rng(5).uniform(-700, 700, 300)
    before, out = x.copy(), np.empty(300)
    exponentials_near(x, out)
    np.testing.assert_array_equal(out, exp(x))
    np.testing.assert_array_equal(x, before)
