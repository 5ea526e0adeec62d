"""Objective perturbation by quadrature: exact output densities on adversarial neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest

from epsilearn.calibration.objective import (
    _by_length,
    _by_maximum,
    gaussian_loss,
    gaussian_perturbation,
    pure_loss,
    pure_perturbation,
)
from epsilearn.losses import Huber, HuberisedHinge, Logistic

# Records (x, y) that replace each other, and how many others of each kind stand beside them.
PAIRS = [((1.0, 1.0), (1.0, -1.0)), ((1.0, 1.0), (0.0, 1.0)), ((0.6, 1.0), (1.0, -1.0))]


def labels(loss) -> float:
    return 1.0 if loss.classifies else loss.target_bound


def density_of(loss, records, strength: float, grid: np.ndarray, log_noise) -> np.ndarray:
    """log density of the minimiser at each w: noise density at b(w) = -n grad F(w), times the Hessian."""
    n = len(records)
    gradient, hessian = n * strength * grid, np.full_like(grid, n * strength)
    for x, y in records:
        target = np.full_like(grid, y * labels(loss))
        gradient = gradient + loss.slope(grid * x, target) * x
        hessian = hessian + loss.curvature(grid * x, target) * x * x
    return log_noise(-gradient) + np.log(hessian)


def neighbours(n: int):
    for first, second in PAIRS:
        for other in ((0.0, 1.0), (1.0, 1.0), (1.0, -1.0)):
            yield [first] + [other] * (n - 1), [second] + [other] * (n - 1)


def exact_pure_loss(loss, n: int, strength: float, rate: float) -> float:
    reach = 2 / strength + 60 / (rate * n * strength)
    grid = np.concatenate([np.linspace(-reach, reach, 40_001), np.linspace(-5, 5, 40_001)])
    worst = 0.0
    for first, second in neighbours(n):
        p, q = (density_of(loss, r, strength, grid, lambda b: -rate * np.abs(b)) for r in (first, second))
        worst = max(worst, float(np.abs(p - q).max()))
    return worst


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(0.5), Huber(1.0, 1.0)], ids=repr)
@pytest.mark.parametrize(("n", "strength", "epsilon"), [(1, 0.01, 0.1), (1, 1.0, 1.0), (5, 0.1, 0.5), (50, 0.1, 1.0)])
def test_theorem_j_by_quadrature(loss, n, strength, epsilon):
    found = pure_perturbation(loss, n, 1.0, strength, epsilon)
    assert exact_pure_loss(loss, n, found.strength, 1 / found.scale) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize(("n", "strength", "epsilon"), [(1, 4.0, 1.0), (5, 0.1, 0.5), (50, 0.1, 1.0), (1, 0.01, 0.1)])
def test_five_percent_less_noise_breaks_theorem_j(n, strength, epsilon):
    found = pure_perturbation(Logistic(), n, 1.0, strength, epsilon)
    assert pure_loss(Logistic(), n, 1.0, found.strength, 1 / found.scale) <= epsilon
    assert pure_loss(Logistic(), n, 1.0, found.strength, 1 / (0.95 * found.scale)) > epsilon * 1.005


def test_pure_loss_by_another_route():
    """Brute force over the margin instead of over the slope."""
    margins = np.linspace(-40, 40, 400_001)
    slope = 1 / (1 + np.exp(margins))
    for n, strength, rate in [(1, 0.01, 0.05), (100, 0.05, 0.3), (10, 1.0, 0.5)]:
        brute = np.max(rate * (slope + 1) + np.log1p(slope * (1 - slope) / (n * strength)))
        assert brute <= pure_loss(Logistic(), n, 1.0, strength, rate) <= brute * (1 + 1e-5)


def test_the_printed_constants_break_their_claim():
    """n = 1, strength 0.01, claimed 0.1: the exact value is above 3.2."""
    printed = pure_perturbation(Logistic(), 1, 1.0, 0.01, 0.1, tight=False)
    exact = exact_pure_loss(Logistic(), 1, 0.01, 1 / printed.scale)
    assert 3.2 < exact < 3.3
    assert pure_loss(Logistic(), 1, 1.0, 0.01, 1 / printed.scale) >= exact


def test_the_printed_constants_are_proven_from_two_on():
    for product, proven in ((1.9, False), (2.0, True), (5.0, True)):
        rows = 1000
        strength = product / (rows * 0.5)
        scale = pure_perturbation(Logistic(), rows, 1.0, strength, 0.5).scale
        assert (scale <= 4.0 * (1 + 1e-6)) == proven


def test_two_dimensions():
    """d = 2: the norm of the noise is Gamma(2); a record at an angle against its mirror image."""
    loss, n, strength, epsilon = Logistic(), 2, 0.3, 0.7
    found = pure_perturbation(loss, n, 1.0, strength, epsilon)
    axis = np.linspace(-25, 25, 801)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def log_density(records) -> np.ndarray:
        gradient = n * found.strength * grid
        hessian = np.zeros((len(grid), 2, 2)) + n * found.strength * np.eye(2)
        for x, y in records:
            scores, target = grid @ x, np.full(len(grid), y)
            gradient = gradient + loss.slope(scores, target)[:, None] * x
            hessian = hessian + loss.curvature(scores, target)[:, None, None] * np.outer(x, x)
        return -np.linalg.norm(gradient, axis=1) / found.scale + np.log(np.linalg.det(hessian))

    rest = (np.array([1.0, 0.0]), 1.0)
    for angle in (0.0, 0.5, 1.5, 3.0):
        one = (np.array([math.cos(angle), math.sin(angle)]), 1.0)
        other = (np.array([math.cos(angle), -math.sin(angle)]), -1.0)
        ratio = log_density([rest, one]) - log_density([rest, other])
        assert np.abs(ratio).max() <= epsilon * (1 + 1e-6)


def exact_gaussian_delta(loss, n: int, strength: float, scale: float, epsilon: float) -> float:
    reach = 2 / strength + 12 * scale / (n * strength)
    grid = np.linspace(-reach, reach, 400_001)
    worst = 0.0
    for first, second in neighbours(n):
        logs = [density_of(loss, r, strength, grid, lambda b: -(b**2) / (2 * scale**2)) for r in (first, second)]
        p, q = (np.exp(log) / (scale * math.sqrt(2 * math.pi)) for log in logs)
        assert np.trapezoid(p, grid) == pytest.approx(1, abs=1e-3)
        for a, b in ((p, q), (q, p)):
            worst = max(worst, float(np.trapezoid(np.maximum(0, a - math.exp(epsilon) * b), grid)))
    return worst


@pytest.mark.parametrize("loss", [Logistic(), Huber(1.0, 1.0)], ids=repr)
@pytest.mark.parametrize(
    ("n", "strength", "epsilon", "delta"), [(1, 0.01, 0.1, 1e-3), (1, 2.0, 1.0, 1e-5), (20, 0.1, 1.0, 1e-4)]
)
def test_both_gaussian_bounds_by_quadrature(loss, n, strength, epsilon, delta):
    found = gaussian_perturbation(loss, n, 1.0, strength, epsilon, delta)
    exact = exact_gaussian_delta(loss, n, found.strength, found.scale, epsilon)
    assert exact <= delta
    for bound in (_by_maximum, _by_length):
        assert exact <= bound(loss, n, 1.0, found.strength, found.scale, epsilon)


def test_five_percent_less_noise_breaks_the_gaussian_bound():
    found = gaussian_perturbation(Logistic(), 1000, 1.0, 0.1, 1.0, 1e-6)
    assert gaussian_loss(Logistic(), 1000, 1.0, 0.1, found.scale, 1.0) <= 1e-6
    assert gaussian_loss(Logistic(), 1000, 1.0, 0.1, 0.95 * found.scale, 1.0) > 1.5e-6


def test_gaussian_bounds_by_simulation():
    """An independent route: the maximum of 0 and three Gaussians, and the chi-distributed length, sampled."""
    generator = np.random.default_rng(0)
    n, strength, scale, epsilon = 100, 0.1, 3.0, 1.0
    k, c = 2 / scale, math.log1p(0.25 / (n * strength))
    b1, b2 = generator.normal(size=(2, 2_000_000))
    largest = np.maximum(0, b1 * k / 2) + np.maximum(0, b2 * k / 2)
    sampled = np.maximum(0, 1 - np.exp(epsilon - c - k**2 / 2 - largest)).mean()
    assert sampled <= _by_maximum(Logistic(), n, 1.0, strength, scale, epsilon) * 1.02
    length = np.sqrt(generator.chisquare(2, 400_000))
    slopes = np.linspace(0, 1, 401)
    shift = (slopes + 1) / scale
    loss = np.log1p(slopes * (1 - slopes) / (n * strength))
    worst = np.max(loss + shift * length[:, None][:40_000] + shift**2 / 2, axis=1)
    sampled = np.maximum(0, -np.expm1(epsilon - worst)).mean()
    assert _by_length(Logistic(), n, 1.0, strength, scale, epsilon) == pytest.approx(sampled, rel=0.1)


def test_objective_perturbation_costs_what_the_gaussian_mechanism_costs():
    from epsilearn.calibration.additive import gaussian_scale

    found = gaussian_perturbation(Logistic(), 10**6, 1.0, 1e-3, 1.0, 1e-6).scale
    assert gaussian_scale(2.0, 1.0, 1e-6) <= found <= 1.001 * gaussian_scale(2.0, 1.0, 1e-6)
