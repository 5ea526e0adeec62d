"""The sensitivity of minimisers, against brute force over records and against real neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial import ConvexHull
from scipy.spatial.distance import pdist
from scipy.special import expit

from epsilearn.calibration.output import gradient_change, minimiser_sensitivity, norm_bound
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Squared
from epsilearn.losses.interface import Loss

LOSSES = [Logistic(), Logistic(3.0), HuberisedHinge(0.5), Squared(1.0), Huber(0.7, 1.0), Huber(3.0, 2.0)]


def labels(loss) -> list[float]:
    return [-1.0, 1.0] if loss.classifies else [-loss.target_bound, loss.target_bound]


def test_the_table_of_the_logistic_loss():
    expected = {0.0: 1.0, 1.0: 1.0991, 2.0: 1.2698, 5.0: 1.6173, 12.0: 1.8572, 1e9: 2.0}
    for weight, change in expected.items():
        assert gradient_change(Logistic(), 1.0, weight) == pytest.approx(change, abs=6e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(("row_norm", "weight"), [(1.0, 0.5), (1.0, 3.0), (2.0, 1.0)])
def test_gradient_change_against_brute_force(loss, row_norm, weight):
    """All pairs of records in the plane, all weights up to the bound: the formula is attained and never exceeded."""
    angles = np.linspace(0, 2 * math.pi, 241)[:-1]
    worst = 0.0
    for length in (row_norm, 0.7 * row_norm):
        for size in (weight, 0.6 * weight):
            units = length * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            scores = size * units[:, 0]
            gradients = np.concatenate(
                [loss.slope(scores, np.full_like(scores, y))[:, None] * units for y in labels(loss)]
            )
            distances = np.linalg.norm(gradients[:, None] - gradients[None], axis=2)
            worst = max(worst, distances.max())
    change = gradient_change(loss, row_norm, weight)
    assert worst <= change
    assert worst > 0.95 * change


@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0, 2.0, 3.0, 5.0, 8.0, 20.0, 100.0])
def test_gradient_change_with_a_margin_against_brute_force(margin):
    """The diameter of all gradients in the plane, by their convex hull: never above the formula, all but attained."""
    loss, angles = Logistic(margin), np.linspace(0, 2 * math.pi, 2881)[:-1]
    lengths = np.array([1.0, 0.97, 0.9, 0.75, 0.5, 0.25])
    rows = (lengths[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).reshape(-1, 2)
    for weight in (0.0, 0.1, 1.0, 3.0, 5.0, 10.0, 30.0, 300.0):
        # With the label folded into the row, as in the proof; once more with a shorter w, which is covered too.
        for size in (weight, 0.8 * weight):
            gradients = loss.slope(size * rows[:, 0], np.ones(len(rows)))[:, None] * rows
            ends = gradients[ConvexHull(gradients).vertices]
            worst = pdist(ends).max()
            change = gradient_change(loss, 1.0, weight)
            assert worst <= change
            if size == weight:
                assert worst > 0.999 * change


def test_the_ball_of_the_proof_holds_every_gradient_with_a_margin():
    """Inequality (*) of the page, at the ball the proof names, on a grid that touches it."""
    for margin in np.append(np.linspace(0, 12, 49), [20.0, 50.0, 100.0]):
        z = np.geomspace(1e-4, 60, 200)[:, None]
        p, rest = expit(margin + z), expit(-margin - z)
        norm = np.sqrt(z**2 + z / rest)
        height, offset = p / np.sqrt(1 + z * rest), p * rest / (1 + z * rest)
        score = np.clip(
            np.concatenate([np.linspace(-1, 1, 801) * norm, -z * np.linspace(0.9, 1.1, 201)], 1), -norm, norm
        )
        slope = expit(margin - score)
        excess = slope**2 + 2 * offset * score * slope + (offset * norm) ** 2 - height**2
        assert excess.max() <= 1e-9
        assert (excess.max(axis=1) >= -1e-9).all()  # the ball is no larger than need be
        assert (offset * norm <= height).all()


class Late(Loss):
    """A convex loss that is flat down to a margin of -0.9 and steep beyond, and says how steep."""

    @property
    def lipschitz(self) -> float:
        return 2.0

    @property
    def smoothness(self) -> float:
        return 20.0

    @property
    def at_zero(self) -> float:
        return 0.0

    def slope(self, score, target):
        return -target * np.clip(20 * (-target * score - 0.9), 0.0, 2.0)

    def steepest(self, score):
        return min(max(20 * (score - 0.9), 0.0), 2.0)


def test_somebodys_own_loss_gets_the_bound_that_needs_no_theorem():
    """Where slopes are steep only far out, mirrored rows are not the farthest apart; 2 R a(R W) always holds."""
    loss, weight = Late(), 1.0
    rows = np.array([[-1.0, 0.0], [1.0, 0.0]])
    gradients = loss.slope(weight * rows[:, 0], np.ones(2))[:, None] * rows
    apart = float(pdist(gradients)[0])
    angles = np.linspace(0, math.pi / 2, 10_001)
    mirrored = max(2 * math.sin(t) * loss.steepest(weight * math.cos(t)) for t in angles)
    assert mirrored < 0.7 * apart
    assert apart <= gradient_change(loss, 1.0, weight) == pytest.approx(2 * loss.steepest(weight))


def fit(loss, X: np.ndarray, y: np.ndarray, strength: float) -> np.ndarray:
    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        score = X @ w
        value = loss.value(score, y).mean() + strength / 2 * w @ w
        return value, X.T @ loss.slope(score, y) / len(y) + strength * w

    return minimize(objective, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10}).x


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("strength", [1.0, 0.1, 0.01])
def test_real_neighbours_stay_within_the_sensitivity(loss, strength):
    generator, worst, longest = np.random.default_rng(0), 0.0, 0.0
    n = 3
    for _ in range(60):
        X = generator.normal(size=(n, 2))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = generator.choice(labels(loss), n)
        first = fit(loss, X, y, strength)
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = -X[0] if generator.random() < 0.5 else X[0][::-1], generator.choice(labels(loss))
        second = fit(loss, X2, y2, strength)
        worst = max(worst, np.linalg.norm(first - second))
        longest = max(longest, np.linalg.norm(first))
    assert longest <= norm_bound(loss, 1.0, strength) * (1 + 1e-6)
    assert worst <= minimiser_sensitivity(loss, n, 1.0, strength) * (1 + 1e-6)


def test_the_sensitivity_is_attained():
    """n = 1 and a strong regulariser: opposite labels of the same row move the minimiser by nearly all of it."""
    strength = 5.0
    ends = [fit(Logistic(), np.array([[1.0]]), np.array([y]), strength) for y in (-1.0, 1.0)]
    sensitivity = minimiser_sensitivity(Logistic(), 1, 1.0, strength)
    assert 0.9 * sensitivity < abs(ends[0] - ends[1])[0] <= sensitivity


@pytest.mark.parametrize("margin", [3.0, 8.0])
def test_the_sensitivity_with_a_margin_is_attained(margin):
    """Slopes are near their largest wherever the weights are: a twentieth less would be too little."""
    loss, strength = Logistic(margin), 5.0
    ends = [fit(loss, np.array([[1.0]]), np.array([y]), strength) for y in (-1.0, 1.0)]
    sensitivity = minimiser_sensitivity(loss, 1, 1.0, strength)
    assert 0.95 * sensitivity < abs(ends[0] - ends[1])[0] <= sensitivity


@pytest.mark.parametrize(("strength", "saving"), [(1.0, 0.49), (0.1, 0.39), (0.01, 0.18)])
def test_savings_over_the_papers(strength, saving):
    ratio = minimiser_sensitivity(Logistic(), 100, 1.0, strength) / minimiser_sensitivity(
        Logistic(), 100, 1.0, strength, tight=False
    )
    assert 1 - ratio == pytest.approx(saving, abs=0.006)


def test_the_solvers_error_is_paid_for():
    exact = minimiser_sensitivity(Logistic(), 100, 1.0, 0.1)
    assert minimiser_sensitivity(Logistic(), 100, 1.0, 0.1, certificate=1e-3) == pytest.approx(exact + 0.02)


def test_the_lectures_counter_example():
    """Nine records x = 0 and one x = 1 with y = 1 or -1: without a ridge the solution jumps from 1 to -1.

    The lecture's bound for n = 10, M = N = P = 1, k = 1 is 0.4. With a ridge the true bound holds.
    """
    X = np.zeros((10, 1))
    X[0] = 1
    ends = [np.linalg.lstsq(X, np.eye(10)[0] * y, rcond=None)[0][0] for y in (1.0, -1.0)]
    assert abs(ends[0] - ends[1]) == pytest.approx(2.0)
    assert 2 * 1 * (1 + 1) / 10 == 0.4
    for strength in (0.01, 0.1):
        ends = [float(y / (1 + 10 * strength)) for y in (1.0, -1.0)]
        assert abs(ends[0] - ends[1]) <= minimiser_sensitivity(Squared(1.0), 10, 1.0, strength)
