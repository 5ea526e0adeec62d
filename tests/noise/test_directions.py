"""The exponential mechanism over a ball has the density it claims, and the same tests catch one that is off."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from epsilearn.balls import ball, precision
from epsilearn.noise import directions
from epsilearn.noise.bits import SeededBits
from epsilearn.noise.directions import Component, _point, draw_in_ball
from epsilearn.noise.variates import Constant

FINE = -40


def size_law(dimension: int, tilt: float):
    """The distribution function of |t|, by the trapezium rule in log(1 - |t|)."""
    k = (dimension - 1) / 2
    log_gap = np.linspace(np.log(1e-9 / (tilt + k + 1)), 0, 200_001)
    gap = np.exp(log_gap)
    log_density = k * (log_gap + np.log(2 - gap)) - tilt * gap + log_gap
    density = np.exp(log_density - log_density.max())
    below = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    return lambda size: 1 - np.interp(1 - size, gap, below / below[-1], left=0, right=1)


def components(dimension: int, tilt: float, count: int, seed: int) -> np.ndarray:
    source = SeededBits(seed)
    with precision(128):
        return np.array([float(Component(dimension, Constant(tilt).ball, source).ball(64).mid()) for _ in range(count)])


def assert_fits(sample: np.ndarray, law) -> None:
    assert stats.kstest(sample, law).pvalue > 1e-3


def assert_refused(sample: np.ndarray, law) -> None:
    assert stats.kstest(sample, law).pvalue < 1e-5


# As many draws as it takes to see the rate 5 % off, or 20 % where 5 % would take ten thousand.
@pytest.mark.parametrize(
    ("dimension", "tilt", "count", "off"),
    [
        (1, 10, 2500, 1.2),
        (1, 1e4, 2500, 1.2),
        (2, 10, 1400, 1.2),
        (2, 1e4, 1400, 1.2),
        (3, 10, 1000, 1.2),
        (3, 1e4, 1000, 1.2),
        (10, 10, 700, 1.2),
        (10, 1e4, 4000, 1.05),
        (1000, 300, 500, 1.05),
        (1000, 1e4, 300, 1.05),
    ],
)
def test_a_component_that_the_rate_moves(dimension, tilt, count, off):
    sizes = abs(components(dimension, tilt, count, seed=1))
    assert_fits(sizes, size_law(dimension, tilt))
    assert_refused(sizes, size_law(dimension, tilt * off))
    assert_refused(sizes, size_law(dimension, tilt / off))


# A small rate hardly shows in the component: what is 20 % off here is the component itself.
@pytest.mark.parametrize(("dimension", "count"), [(1, 300), (2, 600), (3, 750), (10, 1000), (1000, 1000)])
@pytest.mark.parametrize("tilt", [0, 0.5])
def test_a_component_that_the_rate_hardly_moves(dimension, count, tilt):
    law, sizes = size_law(dimension, tilt), abs(components(dimension, tilt, count, seed=2))
    assert_fits(sizes, law)
    assert_refused(1.2 * sizes, law)
    assert_refused(sizes / 1.2, law)


def test_a_small_rate_in_a_high_dimension():
    law, sizes = size_law(1000, 10), abs(components(1000, 10, 1000, seed=3))
    assert_fits(sizes, law)
    assert_refused(1.2 * sizes, law)


@pytest.mark.parametrize("tilt", [0.999, 1.001], ids=["flat proposal", "steep proposal"])
def test_both_proposals_lean_where_they_meet(tilt):
    sizes = abs(components(3, tilt, 800, seed=4))
    assert_fits(sizes, size_law(3, tilt))
    assert_refused(sizes, size_law(3, 0))
    assert_refused(sizes, size_law(3, 2.5))


@pytest.mark.parametrize("tilt", [0.5, 20])
def test_the_component_takes_either_sign_alike(tilt):
    sample = components(5, tilt, 500, seed=5)
    positive = sample > 0
    assert stats.binomtest(int(positive.sum()), len(sample)).pvalue > 1e-3
    assert stats.ks_2samp(sample[positive], -sample[~positive]).pvalue > 1e-3


@pytest.mark.parametrize("dimension", [1, 2, 10, 1000])
def test_more_than_three_proposals_in_ten_are_accepted(dimension, monkeypatch):
    proposals = 0

    class Counted(directions.Gamma):
        def __init__(self, shape, source):
            nonlocal proposals
            proposals += 1
            super().__init__(shape, source)

    monkeypatch.setattr(directions, "Gamma", Counted)
    for tilt in (0, 0.9, 1.1, 30, 1e300):
        proposals = 0
        components(dimension, tilt, 200, seed=6)
        assert 200 / proposals > 0.3


def test_more_bits_only_cut_the_same_component_finer():
    source = SeededBits(7)
    with precision(1200):
        for tilt in (0.5, 50.0):
            component = Component(4, Constant(tilt).ball, source)
            parts = component.ball, component.complement
            wide = [part(64) for part in parts]
            for before, part in zip(wide, parts, strict=True):
                narrow = part(1000)
                assert before.contains(narrow)
                assert narrow.rad() < before.rad() * 2.0**-800
            assert (component.ball(64) ** 2 + component.complement(64) ** 2).contains(1)


def points(vector: np.ndarray, rate: float, radius: float, count: int, seed: int) -> np.ndarray:
    source = SeededBits(seed)
    return np.array([draw_in_ball(vector, rate, radius, source, FINE) for _ in range(count)])


def split(sample: np.ndarray, vector: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """The component along the vector, and the rest in an orthonormal basis, each as a share of its range."""
    # The reflection that takes the vector to the first axis takes everything orthogonal to it to the others.
    normal = vector + np.copysign(np.linalg.norm(vector), vector[0]) * np.eye(len(vector))[0]
    reflected = sample - 2 / (normal @ normal) * np.outer(sample @ normal, normal)
    along = reflected[:, 0] / radius
    return along, reflected[:, 1:] / (radius * np.sqrt(1 - along**2))[:, None]


@pytest.mark.parametrize(("dimension", "rate"), [(2, 0.1), (3, 1.0), (10, 1.0)])
def test_the_rest_is_uniform_in_the_orthogonal_ball(dimension, rate):
    vector = np.arange(1.0, dimension + 1) * (-1) ** np.arange(dimension)
    radius, count = 3.0, 1000
    along, rest = split(points(vector, rate, radius, count, seed=14), vector, radius)
    assert_fits(abs(along), size_law(dimension, rate * radius * float(np.linalg.norm(vector))))
    volumes = np.linalg.norm(rest, axis=1) ** (dimension - 1)
    assert_fits(volumes, stats.uniform().cdf)
    assert_refused(1.2 * volumes, stats.uniform().cdf)
    # A coordinate x of a uniform point in the unit ball of R^n: x**2 is Beta(1/2, (n + 1) / 2).
    square = stats.beta(0.5, dimension / 2)
    for coordinate in rest.T:
        assert_fits(coordinate**2, square.cdf)
        assert_refused((1.2 * coordinate) ** 2, square.cdf)
        assert stats.binomtest(int((coordinate > 0).sum()), count).pvalue > 1e-3
        assert stats.spearmanr(coordinate, along).pvalue > 1e-3
    assert stats.spearmanr(volumes, abs(along)).pvalue > 1e-3


def test_the_density_itself_in_the_plane():
    """Counted in cells, and compared with the integral of the density over them: no splitting along the vector."""
    vector, rate, radius, cells = np.array([1.5, 1.0]), 0.8, 2.0, 4
    sample = points(vector, rate, radius, 1200, seed=9)
    ticks = (np.arange(800) + 0.5) / 400 * radius - radius
    x, y = (axis.ravel() for axis in np.meshgrid(ticks, ticks))
    inside = x**2 + y**2 <= radius**2

    def cell(*axes):
        column, row = (np.floor((axis / radius + 1) * cells / 2).astype(int) for axis in axes)
        return column * cells + row

    def expected(rate: float, vector: np.ndarray) -> np.ndarray:
        weights = np.where(inside, np.exp(rate * abs(x * vector[0] + y * vector[1])), 0)
        weights = np.bincount(cell(x, y), weights, minlength=cells**2)
        return len(sample) * weights / weights.sum()

    counts = np.bincount(cell(*sample.T), minlength=cells**2)
    assert stats.chisquare(counts, expected(rate, vector)).pvalue > 1e-3
    assert stats.chisquare(counts, expected(1.5 * rate, vector)).pvalue < 1e-5
    assert stats.chisquare(counts, expected(rate / 1.5, vector)).pvalue < 1e-5
    assert stats.chisquare(counts, expected(rate, vector[::-1])).pvalue < 1e-5


def test_without_a_direction_the_point_is_uniform_in_the_ball():
    sample = points(np.zeros(4), 5.0, 0.5, 600, seed=10) / 0.5
    volumes = np.linalg.norm(sample, axis=1) ** 4
    assert_fits(volumes, stats.uniform().cdf)
    assert_refused(1.2 * volumes, stats.uniform().cdf)
    for coordinate in sample.T:
        assert_fits(coordinate**2, stats.beta(0.5, 2.5).cdf)


def test_one_dimension():
    sample = points(np.array([-2.0]), 1.5, 3.0, 600, seed=11)[:, 0]
    left = stats.truncexpon(9.0, scale=1 / 3.0)
    assert_fits(3 - abs(sample), left.cdf)
    assert_refused(3 - 0.95 * abs(sample), left.cdf)
    assert stats.binomtest(int((sample > 0).sum()), len(sample)).pvalue > 1e-3


def test_a_thousand_dimensions():
    vector = np.random.default_rng(0).normal(size=1000)
    rate, radius = 300 / np.linalg.norm(vector), 1.0
    along, rest = split(points(vector, rate, radius, 20, seed=12), vector, radius)
    assert_fits(abs(along), size_law(1000, 300))
    assert_refused(abs(along), size_law(1000, 360))
    assert_fits(np.linalg.norm(rest, axis=1) ** 999, stats.uniform().cdf)
    assert_fits(rest[0], stats.norm(scale=1000**-0.5).cdf)


@pytest.mark.parametrize("vector", [[3.0], [1.0, 0.0], [0.0, 0.0, 0.0], [2.0, -1.0, 0.5, 1e-9]], ids=str)
def test_the_exact_point_is_in_the_ball_and_its_rest_is_orthogonal(vector):
    """In ball arithmetic, where nothing is rounded: the component along the vector is the one that was drawn."""
    numbers = [Fraction(number) for number in vector]
    tilt = Fraction(7) if any(numbers) else Fraction(0)
    numbers[0] += not any(numbers)
    for seed in range(5):
        point = _point(numbers, tilt, Fraction(2), SeededBits(seed))
        with precision(400):
            length = ball(sum(number**2 for number in numbers)).sqrt()
            component = Component(len(numbers), lambda bits, length=length: ball(tilt) * length, SeededBits(seed))
            coordinates = point(256)
            along = sum(ball(number) * x for number, x in zip(numbers, coordinates, strict=True)) / length
            off = along - 2 * component.ball(64)
            assert off.contains(0)
            assert off.rad() < 1e-12
            assert sum(x * x for x in coordinates) < 4
            for wide, narrow in zip(point(64), coordinates, strict=True):
                assert wide.contains(narrow)
                assert narrow.rad() < 2.0**-100


class Recorded:
    """A bit source that remembers what was asked of it."""

    def __init__(self, seed: int) -> None:
        self._source, self.seeded, self.asked = SeededBits(seed), True, []

    def integer(self, bits: int) -> int:
        self.asked.append(bits)
        return self._source.integer(bits)

    def words(self, count: int) -> np.ndarray:
        self.asked.append(64 * count)
        return self._source.words(count)


@pytest.mark.parametrize("tilt", [0.1, 10.0])
def test_a_finer_grid_extends_the_same_bits(tilt):
    vector = np.array([1.0, 2.0, -2.0])
    for seed in range(10):
        sources = Recorded(seed), Recorded(seed)
        coarse, fine = (draw_in_ball(vector, tilt, 1.0, s, g) for s, g in zip(sources, (-10, -200), strict=True))
        few, many = (source.asked for source in sources)
        assert len(many) > len(few)
        assert many[: len(few)] == few
        # Twenty or so bits say which way to round, and the rest of the fine point does not change that.
        np.testing.assert_array_equal(np.rint(fine * 2.0**10) * 2.0**-10, coarse)


@pytest.mark.parametrize("grid", [-30, -3, 0, 2])
def test_only_grid_points_leave(grid):
    radius = 10.0
    for seed in range(20):
        point = draw_in_ball(np.array([0.1, 1 / 3, -7.0]), 0.7, radius, SeededBits(seed), grid)
        assert (point * 2.0**-grid % 1 == 0).all()
        assert np.linalg.norm(point) <= radius + 3**0.5 * 2.0 ** (grid - 1)


def test_the_same_seed_gives_the_same_point():
    vector = [0.1, 0.2, 0.3]
    first, again, other = (draw_in_ball(np.array(vector), 4.0, 1.0, SeededBits(seed), -20) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    fractions = draw_in_ball([Fraction(x) for x in vector], Fraction(4), Fraction(1), SeededBits(1), -20)
    np.testing.assert_array_equal(first, fractions)


def test_only_the_rate_times_the_vector_counts():
    """Numbers are exact: at the ends of the doubles, and where no double has them."""
    vector = np.array([1.0, -2.0, 4.0])
    plain = draw_in_ball(vector, 1.0, 1.0, SeededBits(13), -20)
    np.testing.assert_array_equal(draw_in_ball(vector * 2.0**-1000, 2.0**1000, 1.0, SeededBits(13), -20), plain)
    thirds = [Fraction(number) / 3 for number in vector]
    np.testing.assert_array_equal(draw_in_ball(thirds, 3, 1.0, SeededBits(13), -20), plain)
    large = draw_in_ball(vector, 2.0**-500, 2.0**500, SeededBits(13), 480)
    np.testing.assert_array_equal(large * 2.0**-500, plain)


def test_an_immense_rate_leaves_only_the_two_ends():
    vector = np.array([3.0, 4.0])
    ends = {tuple(draw_in_ball(vector, 1e300, 5.0, SeededBits(seed), -20)) for seed in range(20)}
    assert ends == {(3.0, 4.0), (-3.0, -4.0)}


@pytest.mark.parametrize(
    ("vector", "rate", "radius"),
    [([], 1, 1), ([1.0], 0.0, 1), ([1.0], 1, 0), ([1.0], -1, 1), ([1.0], float("nan"), 1), ([float("nan")], 1, 1)],
)
def test_what_has_no_density_is_refused(vector, rate, radius):
    with pytest.raises(ValueError, match=r"needs a vector|NaN"):
        draw_in_ball(vector, rate, radius, SeededBits(0), -20)
