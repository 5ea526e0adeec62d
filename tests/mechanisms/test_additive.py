from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import epsilearn
from epsilearn.errors import InvalidInput


def test_scalars_stay_scalars_and_arrays_keep_their_shape():
    assert isinstance(epsilearn.laplace(3, sensitivity=1, epsilon=1).value, float)
    assert isinstance(epsilearn.laplace(np.float32(3), sensitivity=1, epsilon=1).value, float)
    assert epsilearn.laplace(np.zeros((4, 5)), sensitivity=1, epsilon=1).value.shape == (4, 5)
    assert epsilearn.k_norm(np.zeros((40, 5)), sensitivity=1, epsilon=1).value.shape == (40, 5)
    assert epsilearn.gaussian([1], sensitivity=1, epsilon=1, delta=1e-6).value.shape == (1,)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, [1.0, math.nan], [], "3", None, [[1], [1, 2]], 1e305, 1j, [True], {"a": 1}, 10**400],
    ids=str,
)
@pytest.mark.parametrize("mechanism", [epsilearn.laplace, epsilearn.k_norm])
def test_values_that_cannot_be_released(mechanism, value):
    with pytest.raises(InvalidInput, match="value"):
        mechanism(value, sensitivity=1, epsilon=1)


def small_noise(form) -> tuple[int, float]:
    """A seed whose noise on the first coordinate lies well between 0 and 1."""
    for seed in range(100):
        noise = np.ravel(epsilearn.laplace(form(0), sensitivity=1, epsilon=3.0, random_state=seed).value)[0]
        if 0.1 < noise < 0.9:
            return seed, noise
    raise AssertionError


@pytest.mark.parametrize(
    "form",
    [
        lambda v: v,
        lambda v: [v],
        lambda v: [v, 0.5],
        lambda v: [[v, -1]],
        lambda v: (np.int64(v), np.float64(0.5)),
        lambda v: np.array([v, -v]),
        Fraction,
    ],
    ids=["int", "list", "beside a float", "nested", "numpy scalars", "array", "fraction"],
)
def test_big_integers_are_exact(form):
    """2**53 + 1 is no double. Plus a little noise it rounds up to 2**53 + 2; rounded first it would stay at 2**53."""
    seed, _ = small_noise(form)
    released = np.ravel(epsilearn.laplace(form(2**53 + 1), sensitivity=1, epsilon=3.0, random_state=seed).value)[0]
    assert int(released) == 2**53 + 2


def test_minus_zero_never_leaves():
    """Its sign would say on which side of 0 the unrounded number was."""
    for size in (10, 5000):
        noise = epsilearn.laplace(np.zeros(size), sensitivity=1, epsilon=1.0, grid=2).value
        assert (noise == 0).any()
        assert not np.signbit(noise[noise == 0]).any()


def test_longdouble_is_refused():
    with pytest.raises(InvalidInput, match="value"):
        epsilearn.laplace(np.zeros(3, np.longdouble), sensitivity=1, epsilon=1)


def test_whole_number_grids():
    values = [epsilearn.laplace(10, sensitivity=1, epsilon=0.1, grid=0).value for _ in range(50)]
    assert all(v == int(v) for v in values)
    with pytest.raises(InvalidInput, match="grid"):
        epsilearn.laplace(10, sensitivity=1, epsilon=0.1, grid=0.5)


def test_a_grid_is_never_finer_than_the_noise_needs():
    release = epsilearn.laplace(0.0, sensitivity=2.0**40, epsilon=1.0, grid=-30)
    assert release.value % 2.0**18 == 0


def test_noise_laws():
    laplace = epsilearn.laplace(0, sensitivity=1, epsilon=0.1)
    assert laplace.noise.deviation == pytest.approx(14.142, abs=1e-3)
    assert laplace.noise.half_width(0.95) == pytest.approx(29.957, abs=1e-3)
    gaussian = epsilearn.gaussian(0, sensitivity=1, epsilon=1, delta=1e-6)
    assert gaussian.noise.half_width(0.95) == pytest.approx(1.96 * gaussian.noise.scale, rel=1e-3)
    vector = epsilearn.k_norm(np.zeros(8), sensitivity=1, epsilon=1)
    assert vector.noise.half_width(0.95) == pytest.approx(stats.gamma(8).ppf(0.95))
    low, high = laplace.interval(0.9)
    assert (low + high) / 2 == pytest.approx(laplace.value)
    with pytest.raises(InvalidInput, match="confidence"):
        laplace.interval(1.5)
    with pytest.raises(TypeError, match="choice"):
        epsilearn.exponential([0.0, 1.0], sensitivity=1, epsilon=1).interval()


@pytest.mark.parametrize(
    ("run", "law"),
    [
        (
            lambda s: epsilearn.laplace(np.zeros(100_000), sensitivity=2, epsilon=0.5, random_state=s),
            stats.laplace(0, 4),
        ),
        (
            lambda s: epsilearn.gaussian(np.zeros(100_000), sensitivity=1, epsilon=1, delta=1e-6, random_state=s),
            stats.norm(0, 4.224679),
        ),
    ],
    ids=["laplace", "gaussian"],
)
def test_end_to_end_noise_has_the_promised_scale(run, law):
    noise = run(5).value
    assert stats.kstest(noise, law.cdf).pvalue > 1e-3
    assert stats.kstest(0.95 * noise, law.cdf).pvalue < 1e-6


def test_end_to_end_k_norm_has_the_promised_scale():
    noise = np.array(
        [epsilearn.k_norm(np.zeros(200), sensitivity=1, epsilon=0.5, random_state=s).value for s in range(400)]
    )
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, stats.gamma(200, scale=2).cdf).pvalue > 1e-3
    assert stats.kstest(0.95 * norms, stats.gamma(200, scale=2).cdf).pvalue < 1e-6
