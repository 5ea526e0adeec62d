"""Every calibration is re-evaluated by another route, and fails with 5 % less noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from epsilearn.calibration.additive import gaussian_delta, gaussian_scale, gaussian_shift, laplace_scale
from epsilearn.errors import InvalidInput

BUDGETS = [(1.0, 1e-6), (0.1, 1e-10), (1e-6, 1e-3), (50.0, 1e-6), (1.0, 0.5), (1e-3, 1e-200), (0.01, 0.999)]


def laplace_loss(scale: float, sensitivity: float) -> float:
    """The greatest log-ratio of the two densities, by brute force over the line."""
    grid = np.linspace(-50 * scale, 50 * scale, 20_001)
    return float(np.max(stats.laplace.logpdf(grid, 0, scale) - stats.laplace.logpdf(grid, sensitivity, scale)))


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1.0, 1.0), (0.3, 0.1), (7.0, 3.0), (1e-9, 0.7)])
def test_laplace_scale(sensitivity, epsilon):
    scale = laplace_scale(sensitivity, epsilon)
    assert laplace_loss(scale, sensitivity) <= epsilon * (1 + 1e-9)
    assert laplace_loss(0.95 * scale, sensitivity) > epsilon * 1.01


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_same_scale_serves_the_k_norm(dimension):
    """The log-ratio of the densities exp(-||z|| / s) at shifted points, over random and extreme directions."""
    scale = laplace_scale(0.4, 0.9)
    shift = np.zeros(dimension)
    shift[0] = 0.4
    points = np.random.default_rng(0).normal(size=(5000, dimension)) * scale * 3
    points[0] = -10 * shift  # the worst case lies behind the shift
    loss = (np.linalg.norm(points - shift, axis=1) - np.linalg.norm(points, axis=1)).max()
    assert loss / scale <= 0.9 * (1 + 1e-9)
    assert loss / (0.95 * scale) > 0.9 * 1.01


def hockey_stick(sigma: float, sensitivity: float, epsilon: float) -> float:
    """delta = integral of (p - e**epsilon q)+ by quadrature, an independent route to the closed form."""

    def excess(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, sensitivity, sigma) - math.exp(epsilon) * stats.norm.pdf(x, 0, sigma))

    crossing = sensitivity / 2 + epsilon * sigma**2 / sensitivity
    total, _ = integrate.quad(excess, crossing, crossing + 40 * sigma, limit=500, epsabs=0, epsrel=1e-10)
    return total


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-5), (3.0, 1e-9), (0.5, 0.1)])
def test_gaussian_scale_by_quadrature(epsilon, delta):
    sigma = gaussian_scale(2.0, epsilon, delta)
    assert hockey_stick(sigma, 2.0, epsilon) == pytest.approx(delta, rel=1e-6)
    assert hockey_stick(0.95 * sigma, 2.0, epsilon) > 1.05 * delta


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_gaussian_scale_is_rigorous_and_tight_over_the_whole_range(epsilon, delta):
    shift = gaussian_shift(epsilon, delta)
    assert gaussian_delta(shift, epsilon).upper() <= delta
    assert gaussian_delta(shift * (1 + 1e-4), epsilon).lower() > delta
    assert gaussian_delta(shift / 0.95, epsilon).lower() > delta


def test_scales_round_up():
    from fractions import Fraction

    for epsilon in (0.1, 0.3, 0.7, 1.1, 1e-5, 123.456):
        for reading in (Fraction(epsilon), Fraction(repr(epsilon))):
            assert Fraction(laplace_scale(1, epsilon)) * reading >= 1


def test_a_person_with_many_records_needs_more_noise():
    assert laplace_scale(1, 1, rows_per_person=5) == 5
    assert gaussian_scale(1, 1, 1e-6, rows_per_person=5) == pytest.approx(5 * gaussian_scale(1, 1, 1e-6))


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        laplace_scale(1, epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2, math.nan, "x"])
def test_bad_delta(delta):
    with pytest.raises(InvalidInput, match="delta"):
        gaussian_scale(1, 1, delta)


def test_gaussian_noise_is_never_pure():
    with pytest.raises(InvalidInput, match="Laplace or K-norm"):
        gaussian_scale(1, 1, 0.0)


@pytest.mark.parametrize("sensitivity", [0, -1, math.nan, math.inf])
def test_bad_sensitivity(sensitivity):
    with pytest.raises(InvalidInput, match="sensitivity"):
        laplace_scale(sensitivity, 1)
