"""Curves: one contract that every curve must pass, then each against an exact divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from epsilearn.accounting import (
    Approximate,
    BoundedRange,
    GaussianShift,
    LaplaceShift,
    Pure,
    Renyi,
    ZeroConcentrated,
    curve_from_dict,
    renyi_epsilon,
)
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput

CURVES = [
    Pure(0.3),
    Pure(4.0),
    BoundedRange(1.0),
    LaplaceShift(0.7),
    Approximate(0.5, 1e-7),
    GaussianShift(0.25),
    GaussianShift(3.0),
    ZeroConcentrated(0.02),
    Renyi((2.0, 8.0, 32.0), (0.01, 0.04, 0.16)),
    Composite((Pure(0.1), GaussianShift(0.2), BoundedRange(0.5))),
]


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: c.kind)
class TestEveryCurve:
    def test_epsilon_falls_as_delta_grows(self, curve):
        found = [curve.epsilon(delta) for delta in (1e-9, 1e-6, 1e-3, 0.1)]
        assert found == sorted(found, reverse=True)
        assert found[1] < math.inf

    def test_delta_and_epsilon_are_inverse_to_each_other(self, curve):
        for delta in (1e-6, 1e-3):
            epsilon = curve.epsilon(delta)
            if 0 < epsilon < math.inf:
                assert curve.delta(epsilon) <= delta * (1 + 1e-5)

    def test_renyi_divergence_grows_with_the_order(self, curve):
        found = [curve.renyi(order) for order in (1.5, 2.0, 8.0, 32.0)]
        assert found == sorted(found)

    def test_bounds_agree(self, curve):
        assert curve.epsilon(0.0) == curve.pure or curve.failure > 0
        assert all(curve.renyi(order) <= order * curve.rho * (1 + 1e-12) for order in (1.5, 4.0, 20.0))

    def test_json_round_trip(self, curve):
        assert curve_from_dict(curve.to_dict()) == curve


def hockey_stick(first, second, epsilon: float, low: float, high: float, kinks=()) -> float:
    def excess(x: float) -> float:
        return max(0.0, first.pdf(x) - math.exp(epsilon) * second.pdf(x))

    return integrate.quad(excess, low, high, points=kinks or None, limit=500, epsabs=1e-14)[0]


def renyi_by_quadrature(first, second, order: float, low: float, high: float, kinks) -> float:
    def moment(x: float) -> float:
        return math.exp(order * first.logpdf(x) + (1 - order) * second.logpdf(x))

    return math.log(integrate.quad(moment, low, high, points=kinks, limit=500)[0]) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.5])
def test_laplace_against_quadrature(epsilon):
    curve, (p, q) = LaplaceShift(0.7), (stats.laplace(0.7), stats.laplace(0))
    exact = hockey_stick(p, q, epsilon, -40, 40, (0, 0.35 + epsilon / 2, 0.7))
    assert curve.delta(epsilon) == pytest.approx(exact, rel=1e-6)
    assert LaplaceShift(0.7 / 0.95).delta(epsilon) > exact * 1.01
    assert curve.epsilon(curve.delta(epsilon)) == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
def test_renyi_divergences_against_quadrature(order):
    p, q = stats.laplace(0.7), stats.laplace(0)
    assert LaplaceShift(0.7).renyi(order) == pytest.approx(
        renyi_by_quadrature(p, q, order, -60, 60, (0, 0.7)), rel=1e-6
    )
    p, q = stats.norm(0.7), stats.norm(0)
    assert GaussianShift(0.7).renyi(order) == pytest.approx(renyi_by_quadrature(p, q, order, -40, 40, (0,)), rel=1e-6)
    yes = math.exp(0.7) / (1 + math.exp(0.7))
    p2, q2 = np.array([yes, 1 - yes]), np.array([1 - yes, yes])
    exact = math.log(float((p2**order * q2 ** (1 - order)).sum())) / (order - 1)
    assert Pure(0.7).renyi(order) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_gaussian_against_quadrature(epsilon):
    exact = hockey_stick(stats.norm(0.8), stats.norm(0), epsilon, -10, 40, (0.4 + epsilon / 0.8,))
    assert GaussianShift(0.8).delta(epsilon) == pytest.approx(exact, rel=1e-6)


def test_pure_delta_is_that_of_randomised_response():
    yes = math.e / (1 + math.e)
    assert Pure(1.0).delta(0.4) == pytest.approx(yes - math.exp(0.4) * (1 - yes))
    assert Pure(1.0).delta(1.0) == 0


@pytest.mark.parametrize("rho", [0.001, 0.05, 2.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5])
def test_concentrated_conversion_is_the_optimum_over_orders(rho, delta):
    """Independent route: brute force over a fine grid of orders of the printed formula, in another arrangement."""
    orders = 1 + np.geomspace(1e-4, 1e5, 400_001)
    losses = orders * rho + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    found = ZeroConcentrated(rho).epsilon(delta)
    assert found == pytest.approx(losses.min(), rel=1e-6)
    # It bounds the Gaussian of the same rho, and not one with 5 % less noise by more than its own slack.
    gaussian = GaussianShift(math.sqrt(2 * rho)).epsilon(delta)
    assert gaussian <= found <= 1.25 * gaussian


def test_approximate_against_its_dominating_pair():
    """With probability delta all is told, else randomised response: the exact hockey-stick divergence."""
    bound, share = 0.8, 0.01
    yes, no = ((1 - share) / (1 + math.exp(s * bound)) for s in (-1, 1))
    p, q = np.array([share, yes, no, 0.0]), np.array([0.0, no, yes, share])
    for epsilon in (0.0, 0.3, 0.8, 2.0):
        exact = float(np.maximum(0, p - math.exp(epsilon) * q).sum())
        assert exact <= Approximate(bound, share).delta(epsilon) <= exact + share


def test_bounded_range_is_tight_for_small_epsilon():
    """Losses of plus and minus epsilon / 2 have a divergence of order * epsilon**2 / 8 up to higher terms."""
    epsilon, order = 0.05, 2.0
    yes = math.exp(epsilon / 2) / (1 + math.exp(epsilon / 2))
    p, q = np.array([yes, 1 - yes]), np.array([1 - yes, yes])
    exact = math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)
    assert 0.99 * BoundedRange(epsilon).renyi(order) < exact <= BoundedRange(epsilon).renyi(order)
    assert BoundedRange(epsilon).rho == pytest.approx(epsilon**2 / 8, rel=1e-12)


def test_exponential_mechanism_respects_its_rho():
    generator = np.random.default_rng(0)
    curve = BoundedRange(1.3)
    for _ in range(300):
        loss = generator.uniform(-0.65, 0.65, 5)
        weights = generator.dirichlet(np.ones(5))
        q = weights * np.exp(-loss)
        p, q = weights, q / q.sum()
        for order in (1.5, 3.0, 10.0):
            exact = math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)
            assert exact <= curve.renyi(order) + 1e-12


def test_extreme_curves_stay_upper_bounds():
    assert Pure(1e-38).epsilon(0.0) == 1e-38
    assert Pure(1e-38).epsilon(1e-60) <= 1e-38
    assert Pure(1e300).renyi(2.0) == 1e300
    assert Pure(1e300).delta(1.0) == LaplaceShift(1e300).delta(1.0) == 1.0
    assert Pure(1e300).epsilon(0.5) == 1e300


def test_products_round_up():
    from fractions import Fraction

    for order in (1.1, 1.3, 7.7):
        for rho in (0.1, 0.3, 1e-7):
            assert Fraction(ZeroConcentrated(rho).renyi(order)) >= Fraction(order) * Fraction(rho)
            total = Composite((ZeroConcentrated(rho),) * 7).renyi(order)
            assert Fraction(total) >= 7 * Fraction(order) * Fraction(rho)


def test_nothing_is_promised_at_delta_zero_by_a_gaussian():
    assert GaussianShift(0.1).epsilon(0.0) == math.inf
    assert ZeroConcentrated(0.1).epsilon(0.0) == math.inf
    assert renyi_epsilon(lambda _: math.inf, 1e-6) == math.inf


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "unknown"},
        {"kind": "pure"},
        {"kind": "pure", "bound": 1, "more": 2},
        {"kind": "pure", "bound": -1},
        {"kind": "pure", "bound": "1"},
        {"kind": "renyi", "orders": [2, 1], "divergences": [1, 2]},
        {"kind": "renyi", "orders": [2], "divergences": [1, 2]},
        {"kind": "approximate", "bound": 1, "share": 0},
        {"kind": "approximate", "bound": 1, "share": "x"},
        {"kind": "renyi", "orders": 3, "divergences": [1, 2]},
        {"kind": "renyi", "orders": ["x"], "divergences": [1]},
        {"kind": "composite", "parts": 3},
        {"kind": "composite", "parts": [3]},
        {"kind": "composite", "parts": [{"times": 10**9, "curve": {"kind": "pure", "bound": 1}}]},
        {"kind": "composite", "parts": [{"times": 1}]},
        None,
    ],
)
def test_damaged_curves_are_refused(data):
    with pytest.raises(InvalidInput):
        curve_from_dict(data)
