"""The door: the correctly rounded value of the exact mechanism, always."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from scipy.special import ndtri

from epsilearn.balls import ball, precision
from epsilearn.errors import InvalidInput
from epsilearn.noise import door
from epsilearn.noise.bits import SeededBits
from epsilearn.noise.choice import noisy_argmax
from epsilearn.noise.correlated import Normals
from epsilearn.noise.door import _one, check_scale, check_values, grid_of, release
from epsilearn.noise.quantiles import GUMBEL, LAPLACE, NORMAL
from epsilearn.noise.variates import Constant, Gamma, Root

GRID = -20
TAILS = {
    LAPLACE: lambda x: (-x).exp() / 2,
    NORMAL: lambda x: (x / arb(2).sqrt()).erfc() / 2,
}
FLOATS = {
    LAPLACE: lambda tail: -math.log(2 * tail),
    NORMAL: lambda tail: -float(ndtri(tail)),
}


def digits_that_land_on(quantile, noise: Fraction, count: int) -> str:
    """The first digits of the uniform variate whose noise is exactly this: '1' for the upper half, then the tail."""
    with precision(count + 200):
        tail = TAILS[quantile](ball(noise))
        whole = (tail * arb(2) ** (count + 1)).floor().unique_fmpz()
    return "1" + format(int(whole), f"0{count}b")


@pytest.mark.parametrize("quantile", [LAPLACE, NORMAL], ids=lambda q: q.name)
@pytest.mark.parametrize("length", [1, 100], ids=["ball path", "float path"])
@pytest.mark.parametrize("known", [70, 300])
def test_bits_rigged_onto_a_rounding_boundary(rigged, quantile, length, known):
    """The two runs share hundreds of random bits and lie on either side of a boundary."""
    value, steps = 0.3, 1_400_000
    boundary = (Fraction(steps) + Fraction(1, 2)) * Fraction(2) ** GRID
    digits = digits_that_land_on(quantile, boundary - Fraction(value), known)
    others = "".join(format(int(w), "064b") for w in SeededBits(1).words(length - 1))
    released = {}
    for then in "01":
        # The first coordinate is the rigged one; its digits beyond 64 come when it asks for more.
        source = rigged(digits[:64] + others + digits[64:], then)
        released[then] = release(np.full(length, value), Constant(1.0), quantile, source, GRID)[0] * 2.0**-GRID
        assert source.drawn > 64 * length  # it had to refine
    # A smaller tail is larger noise: zeros round up, ones round down.
    assert released == {"0": steps + 1, "1": steps}
    # Plain floats see the same 64 bits in both runs, give one answer, and so are wrong in one of them.
    plain = np.rint((value + FLOATS[quantile](int(digits[1:64], 2) / 2.0**64)) * 2.0**-GRID)
    assert sum(plain != right for right in released.values()) >= 1


@pytest.mark.parametrize("length", [50, 5000], ids=["ball path", "float path"])
def test_only_grid_points_leave_whatever_the_value(length):
    """Which doubles can come out must not depend on the value: the low bits of 1/3 are gone."""
    for value in (0.0, 1 / 3, 1e-30, -7.1):
        released = release(np.full(length, value), Constant(1.0), LAPLACE, SeededBits(3), GRID)
        assert (released * 2.0**-GRID % 1 == 0).all()


@pytest.mark.parametrize("quantile", [LAPLACE, NORMAL], ids=lambda q: q.name)
@pytest.mark.parametrize("scale", [0.7, 1e-9, 3e12])
def test_the_float_path_equals_the_ball_path(quantile, scale):
    values = np.random.default_rng(0).normal(size=3000) * scale * 10
    values[:5] = [0.0, -0.0, 1e6 * scale, -1e14 * scale, 5e-324]
    grid = grid_of(scale)
    fast = release(values, Constant(scale), quantile, SeededBits(4), grid)
    source = SeededBits(4)
    words = source.words(len(values))
    slow = [_one(float(v), Constant(scale), quantile, source, int(w), grid) for v, w in zip(values, words, strict=True)]
    np.testing.assert_array_equal(fast, slow)


def test_the_float_path_equals_the_ball_path_for_a_random_radius():
    source = SeededBits(5)
    radius = Root(0.3, Gamma(Fraction(2001, 2), source))
    values = np.random.default_rng(1).normal(size=2000)
    fast = release(values, radius, NORMAL, SeededBits(6), -18)
    bits = SeededBits(6)
    words = bits.words(len(values))
    slow = [_one(float(v), radius, NORMAL, bits, int(w), -18) for v, w in zip(values, words, strict=True)]
    np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("random", [False, True])
def test_what_a_process_released_before_does_not_change_a_seeded_release(random, monkeypatch):
    """Short releases go through compiled code once it is there; the numbers stay the same."""

    def released() -> np.ndarray:
        source = SeededBits(7)
        scale = Root(0.3, Gamma(Fraction(41, 2), source)) if random else Constant(0.3)
        return np.concatenate([release(np.linspace(0, 1, 40), scale, NORMAL, source, -50) for _ in range(40)])

    monkeypatch.setattr(door, "_compiled", set())
    monkeypatch.setattr(door, "_asked", 0)
    before = released()
    door.prepare(40, NORMAL, times=2)
    assert door._compiled == set()
    door.prepare(40, NORMAL, times=40)
    assert door._compiled == {"normal"}
    np.testing.assert_array_equal(released(), before)


def test_doubt_is_rare():
    """Only what floats cannot decide goes to ball arithmetic: a handful in a million."""
    from epsilearn.noise.kernels import round_to_grid
    from epsilearn.noise.tables import table_of

    table, count = table_of(NORMAL), 10**6
    words, out, doubtful = SeededBits(7).words(count), np.empty(count), np.empty(count, np.int64)
    values = np.random.default_rng(2).normal(size=count)
    assert round_to_grid(words, values, 1.0, 0.0, table.coefficients, table.errors, 2.0**GRID, out, doubtful) < 10


def test_integers_and_fractions_of_any_size_are_exact():
    third = Fraction(10**40, 3)
    noise = release([third], Constant(1.0), LAPLACE, SeededBits(8), GRID)
    same = release([Fraction(0)], Constant(1.0), LAPLACE, SeededBits(8), GRID)
    assert noise[0] == float(third)
    assert same[0] != 0


def test_results_beyond_the_doubles_saturate():
    noise = release([Fraction(2) ** 1030], Constant(1.0), LAPLACE, SeededBits(9), GRID)
    assert noise[0] == np.finfo(float).max


@pytest.mark.parametrize("deviation", [1.0, 1.5, 2.0, 0.99, 1e-200, 1e200])
def test_the_grid_is_a_millionth_of_the_deviation(deviation):
    assert 2.0**-21 < 2.0 ** grid_of(deviation) / deviation <= 2.0**-20


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300, math.inf, math.nan])
def test_noise_that_doubles_cannot_carry_is_refused(scale):
    with pytest.raises(InvalidInput, match="noise scale"):
        check_scale(scale)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e305])
def test_values_that_doubles_cannot_carry_are_refused(value):
    with pytest.raises(InvalidInput, match="NaN, infinite or beyond"):
        check_values(np.array([0.0, value]))


@pytest.mark.parametrize("others", [0, 100], ids=["ball path", "float path"])
@pytest.mark.parametrize("winner", [0, 1])
def test_a_tied_maximum_is_decided_by_further_bits(rigged, others, winner):
    """Two candidates share score and 64 random bits; the bits after them decide, and are only extended."""
    tied = "1" + "0" * 30 + "1" * 33
    rest = "0" * 10 + "1" * 54
    extension = ["0" * 64, "0" * 64]
    extension[1 - winner] = "1" * 64  # a larger tail is smaller noise
    digits = tied * 2 + rest * others + "".join(extension)
    scores = np.concatenate([[5.0, 5.0], np.full(others, -50.0)])
    assert noisy_argmax(scores, 1.0, rigged(digits)) == winner


def test_the_float_scan_finds_the_exact_winner():
    generator = np.random.default_rng(3)
    for seed in range(30):
        scores = generator.normal(size=300)
        scan = noisy_argmax(scores, 0.5, SeededBits(seed))
        source = SeededBits(seed)
        with precision(300):
            noise = [
                ball(float(s)) + ball(0.5) * GUMBEL.at(*_tail(int(w)))
                for s, w in zip(scores, source.words(300), strict=True)
            ]
            assert scan == max(range(300), key=lambda i: float(noise[i].mid()))


def _tail(word: int):
    rest = word & ((1 << 63) - 1)
    return arb(2 * rest + 1) * arb(2) ** -65, bool(word >> 63)


def test_ten_million_candidates():
    scores = np.zeros(10**7)
    scores[7_654_321] = 100.0
    assert noisy_argmax(scores, 1.0, SeededBits(10)) == 7_654_321


def test_normals_stay_as_they_are_when_more_are_drawn():
    normals = Normals(SeededBits(11))
    normals.grow(2)
    before = normals.release(0.0, np.array([1.0, 1.0]), 1.0, GRID)
    normals.grow(50)
    assert len(normals) == 50
    assert normals.release(0.0, np.array([1.0, 1.0]), 1.0, GRID) == before


def test_combinations_in_floats_equal_those_in_balls():
    normals = Normals(SeededBits(12))
    normals.grow(40)
    generator = np.random.default_rng(4)
    for _ in range(300):
        weights, value = generator.normal(size=40), float(generator.normal())
        exact = normals.release(Fraction(value), weights, 0.3, GRID)  # a fraction takes the ball path
        assert normals.release(value, weights, 0.3, GRID) == exact
