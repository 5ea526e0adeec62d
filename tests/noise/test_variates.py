"""Every sampler has the distribution it claims, and the same test catches a scale that is 5 % off."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from epsilearn.balls import precision
from epsilearn.errors import EntropyError
from epsilearn.noise.bits import SeededBits
from epsilearn.noise.choice import noisy_argmax
from epsilearn.noise.correlated import Normals
from epsilearn.noise.door import release
from epsilearn.noise.quantiles import EXPONENTIAL, GUMBEL, LAPLACE, NORMAL
from epsilearn.noise.variates import Constant, Gamma, Root, Uniform, Variate, decide

DRAWS = 100_000


def assert_distributed(sample: np.ndarray, law) -> None:
    """The sample fits the law, and does not fit once it is scaled by 5 %."""
    assert len(sample) >= DRAWS
    assert stats.kstest(sample, law.cdf).pvalue > 1e-3
    for off in (0.95, 1.05):
        assert stats.kstest(off * sample, law.cdf).pvalue < 1e-6


def balls(make, count: int = DRAWS) -> np.ndarray:
    with precision(128):
        return np.array([float(make().ball(64).mid()) for _ in range(count)])


@pytest.mark.parametrize(
    ("quantile", "law"),
    [
        (EXPONENTIAL, stats.expon()),
        (LAPLACE, stats.laplace()),
        (NORMAL, stats.norm()),
        (GUMBEL, stats.gumbel_r()),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_scalars_in_ball_arithmetic(quantile, law):
    source = SeededBits(11)
    assert_distributed(balls(lambda: Variate(quantile, source)), law)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [Fraction(1), Fraction(3, 2), Fraction(21, 2)], ids=str)
def test_gamma(shape):
    source = SeededBits(12)
    assert_distributed(balls(lambda: Gamma(shape, source)), stats.gamma(float(shape)))


def test_gamma_of_large_shape():
    source = SeededBits(13)
    sample = balls(lambda: Gamma(Fraction(1_000_001, 2), source), 2000)
    assert stats.kstest(sample, stats.gamma(500_000.5).cdf).pvalue > 1e-3
    assert stats.kstest(1.05 * sample, stats.gamma(500_000.5).cdf).pvalue < 1e-6


@pytest.mark.parametrize(
    ("quantile", "law"), [(LAPLACE, stats.laplace), (NORMAL, stats.norm)], ids=["laplace", "normal"]
)
@pytest.mark.parametrize("scale", [1.0, 3.7e-5, 2.9e6])
def test_long_vectors(quantile, law, scale):
    grid = int(np.floor(np.log2(scale))) - 20
    noise = release(np.zeros(DRAWS), Constant(scale), quantile, SeededBits(14), grid)
    assert_distributed(noise, law(scale=scale))


def k_norm_vectors(dimension: int, count: int, seed: int) -> np.ndarray:
    source = SeededBits(seed)
    zeros = np.zeros(dimension)
    return np.array(
        [
            release(zeros, Root(1.0, Gamma(Fraction(dimension + 1, 2), source)), NORMAL, source, -24)
            for _ in range(count)
        ]
    )


@pytest.mark.slow
def test_k_norm_has_a_gamma_norm_and_a_uniform_direction():
    noise = k_norm_vectors(3, DRAWS, 15)
    norms = np.linalg.norm(noise, axis=1)
    assert_distributed(norms, stats.gamma(3))
    # On the sphere in three dimensions each coordinate is uniform (Archimedes).
    uniform = stats.uniform(-1, 2)
    for axis in range(3):
        assert stats.kstest(noise[:, axis] / norms, uniform.cdf).pvalue > 1e-3
        stretched = noise * np.where(np.arange(3) == axis, 1.05, 1.0)
        assert stats.kstest(stretched[:, axis] / np.linalg.norm(stretched, axis=1), uniform.cdf).pvalue < 1e-6
    octants = ((noise > 0) @ [1, 2, 4]).astype(int)
    assert stats.chisquare(np.bincount(octants, minlength=8)).pvalue > 1e-3


@pytest.mark.slow
def test_k_norm_in_one_dimension_is_laplace():
    assert_distributed(k_norm_vectors(1, DRAWS, 16)[:, 0], stats.laplace())


def test_long_k_norm_vectors_share_one_gamma_radius():
    dimension, count = 1000, 600
    norms = np.linalg.norm(k_norm_vectors(dimension, count, 17), axis=1)
    assert stats.kstest(norms, stats.gamma(dimension).cdf).pvalue > 1e-3
    assert stats.kstest(1.05 * norms, stats.gamma(dimension).cdf).pvalue < 1e-6


@pytest.mark.slow
def test_correlated_gaussian():
    factor = np.array([[1.0, 0.0, 0.0], [0.9, 0.2, 0.0], [-0.4, 0.3, 0.5]])
    source, rows = SeededBits(18), []
    for _ in range(DRAWS // 3 + 1):
        normals = Normals(source)
        normals.grow(3)
        rows.append([normals.release(0.0, row, 2.0, -20) for row in factor])
    noise = np.array(rows)
    assert_distributed(np.linalg.solve(2 * factor, noise.T).ravel(), stats.norm())
    np.testing.assert_allclose(np.cov(noise.T), 4 * factor @ factor.T, atol=0.05)


@pytest.mark.slow
def test_noisy_maximum_is_the_exponential_mechanism():
    scores, scale = np.array([0.0, 0.8, 1.2, 2.0]), 0.7
    source = SeededBits(19)
    counts = np.bincount([noisy_argmax(scores, scale, source) for _ in range(DRAWS)], minlength=4)

    def expected(s: float) -> np.ndarray:
        weights = np.exp(scores / s)
        return DRAWS * weights / weights.sum()

    assert stats.chisquare(counts, expected(scale)).pvalue > 1e-3
    assert stats.chisquare(counts, expected(scale * 0.95)).pvalue < 1e-6
    assert stats.chisquare(counts, expected(scale * 1.05)).pvalue < 1e-6


def test_digits_are_extended_never_redrawn():
    uniform = Uniform(SeededBits(20))
    short, _ = uniform.digits(64)
    long, known = uniform.digits(500)
    assert known == 500
    assert long >> 436 == short


def test_more_bits_only_cut_the_same_value_finer():
    source = SeededBits(21)
    with precision(1200):
        for make in (lambda: Variate(NORMAL, source), lambda: Gamma(Fraction(7, 2), source)):
            variate = make()
            wide, narrow = variate.ball(64), variate.ball(1000)
            assert wide.contains(narrow)
            assert narrow.rad() < wide.rad() * 2.0**-800


def test_a_source_that_never_decides_is_reported(rigged):
    source = rigged("", then="0")
    variate = Variate(LAPLACE, source)
    with pytest.raises(EntropyError, match="did not decide"):
        decide(variate.ball)
