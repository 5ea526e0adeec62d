"""Noisy moments and the lecture's least squares, against brute force over records and against real tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from epsilearn.calibration.regression import lecture_sensitivity, moments_sensitivity, noise_norm
from epsilearn.erm import Table, plan
from epsilearn.errors import InvalidInput
from epsilearn.linear.regression import _pack, _unpack
from epsilearn.losses import Huber, Squared
from epsilearn.rows import Bounds, as_rows
from epsilearn.rows.interface import Moments

BALANCES = [0.05, 0.5, 1.0, 1.3, math.sqrt(2), 1.5, 2.0, 10.0]


def statistic(x: np.ndarray, y: np.ndarray, balance: float) -> np.ndarray:
    """(x x', balance x y), flat, for each record."""
    return np.concatenate([(x[:, :, None] * x[:, None]).reshape(len(x), -1), balance * x * y[:, None]], axis=1)


def records(generator: np.random.Generator, count: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Inside the ball and on its edge, targets inside their bound and at its ends."""
    x = generator.normal(size=(count, dimension))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x *= np.where(generator.random(count) < 0.5, 1.0, generator.random(count))[:, None]
    return x, np.where(generator.random(count) < 0.7, generator.choice([-1.0, 1.0], count), generator.uniform(-1, 1))


@pytest.mark.parametrize("balance", BALANCES)
def test_the_sensitivity_of_moments_against_brute_force(balance):
    generator = np.random.default_rng(0)
    worst = 0.0
    for dimension in (1, 2, 3):
        values = statistic(*records(generator, 500, dimension), balance)
        worst = max(worst, np.linalg.norm(values[:, None] - values[None], axis=2).max())
    # And pairs in a plane at every angle, all four signs of the targets.
    angles = np.linspace(0, math.pi, 3001)
    turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    fixed = statistic(np.array([[1.0, 0.0]]), np.ones(1), balance)
    for sign in (-1.0, 1.0):
        worst = max(worst, np.linalg.norm(statistic(turned, np.full(3001, sign), balance) - fixed, axis=1).max())
    bound = moments_sensitivity(balance)
    assert worst <= bound
    assert worst > 0.9999 * bound  # so 0.95 times the noise would break the promise


def test_the_two_parts_are_not_both_at_their_worst():
    assert moments_sensitivity(1.0) ** 2 == pytest.approx(4.5)
    assert moments_sensitivity(1.0) < math.sqrt(2 + 4)
    for balance in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput):
            moments_sensitivity(balance)


def test_packing_keeps_the_norm_and_can_be_undone():
    """What is noised is one vector: its l2 norm must be the Frobenius norm of X'X beside the norm of X'y."""
    generator = np.random.default_rng(1)
    half_gram, cross = generator.normal(size=(4, 4)), generator.normal(size=4)
    gram = half_gram + half_gram.T
    packed = _pack(Moments(gram, cross, 0.0), 1.7, 0.6)
    expected = math.hypot(np.linalg.norm(gram) / 1.7**2, np.linalg.norm(cross) / (1.7 * 0.6))
    assert np.linalg.norm(packed) == pytest.approx(expected, rel=1e-14)
    back = _unpack(packed, 4, 1.7, 0.6)
    np.testing.assert_allclose(back[0], gram, rtol=1e-14)
    np.testing.assert_allclose(back[1], cross, rtol=1e-14)


def test_the_worst_neighbours_move_the_packed_moments_by_the_whole_sensitivity():
    """Real rows, clipped and with an intercept's column, through the sums that are released."""
    bounds = Bounds(3.0, intercept=0.75)
    rest, targets = np.random.default_rng(2).normal(size=(50, 2)), np.linspace(-2, 2, 50)
    packed = {}
    for name, record, y in (("first", [100.0, 0.0], 2.0), ("second", [-45.0, 100.0], 2.0), ("same", [100.0, 0.0], 2.0)):
        rows = as_rows(np.vstack([record, rest]), np.append(y, targets), bounds)
        packed[name] = _pack(rows.moments(), rows.norm, 2.0)
    moved = np.linalg.norm(packed["first"] - packed["second"])
    assert 0.97 * moments_sensitivity() < moved <= moments_sensitivity() + 1e-12
    np.testing.assert_array_equal(packed["first"], packed["same"])


@pytest.mark.parametrize(("columns", "trials"), [(1, 3000), (2, 3000), (6, 3000), (15, 2000), (100, 60)])
def test_the_norm_of_the_noise_by_simulation(columns, trials):
    """Noise as the release draws it: independent in the packed vector, unpacked to a symmetric matrix."""
    generator, failure = np.random.default_rng(3), 0.05
    bound = noise_norm(columns, 2.0, failure)
    size = columns * (columns + 1) // 2 + columns
    norms = [
        np.linalg.norm(_unpack(2.0 * generator.normal(size=size), columns, 1.0, 1.0)[0], ord=2) for _ in range(trials)
    ]
    # Seeded; 0.05 exactly would be exceeded by 0.02 with probability below 1e-6.
    assert np.mean(np.array(norms) > bound) <= failure
    assert np.mean(np.array(norms) > 0.45 * bound) > failure  # the bound is not idle


def test_the_norm_of_the_noise_scales():
    assert noise_norm(5, 3.0, 0.1) == pytest.approx(3 * noise_norm(5, 1.0, 0.1))
    assert noise_norm(5, 1.0, 1e-6) > noise_norm(5, 1.0, 0.1)


# ---------------------------------------------------------------- the lecture, as printed


def test_the_lectures_sensitivity_as_printed():
    """2 M sqrt(k) (N + P M) / n, with P the bound on the minimiser that a ridge implies."""
    from epsilearn.calibration.output import norm_bound

    loss, weight = Squared(0.5), norm_bound(Squared(0.5), 2.0, 0.3)
    assert lecture_sensitivity(loss, 100, 7, 2.0, 0.3) == pytest.approx(
        2 * 2.0 * math.sqrt(7) * (0.5 + weight * 2.0) / 100
    )


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0])
def test_the_lectures_counter_example_and_what_is_proven(strength):
    """Nine records x = 0, one x = 1 with y = 1 or -1: the solution moves by more than the printed noise can hide."""
    lonely = Table(10, 1, 1.0, lambda _loss, _norm: 1e-13)
    found = plan(Squared(1.0), lonely, strength=strength, epsilon=0.5, method="output", calibration="paper")
    moved = 2 / (1 + 10 * strength)
    # Laplace noise: the privacy loss of two points is exactly their distance over the scale.
    exact = moved / found.law.scale
    assert found.promise.claimed_epsilon == 0.5
    assert found.law.kind == "laplace"
    assert exact <= found.promise.epsilon
    if strength < 0.1:
        assert exact > 1.5 * 0.5  # the printed claim is false
    assert found.promise.curve.supports(found.promise.epsilon, 0.0)


@pytest.mark.parametrize("columns", [1, 4, 16])
def test_the_lectures_proven_epsilon_covers_the_l1_norm(columns):
    """One row along the diagonal, all columns alike: the l1 distance is sqrt(k) times the l2 distance."""
    table = Table(1, columns, 1.0, lambda _loss, _norm: 1e-13)
    found = plan(Squared(1.0), table, strength=5.0, epsilon=0.5, method="output", calibration="paper")
    row = np.full(columns, 1 / math.sqrt(columns))
    ends = [np.linalg.solve(np.outer(row, row) + 5 * np.eye(columns), y * row) for y in (-1.0, 1.0)]
    exact = np.abs(ends[0] - ends[1]).sum() / found.law.scale
    assert 0.7 * found.promise.epsilon < exact <= found.promise.epsilon


@pytest.mark.parametrize("loss", [Squared(1.0), Huber(0.5, 1.0)], ids=repr)
def test_a_persons_rows_multiply_what_is_proven(loss):
    table = Table(1000, 3, 1.0, lambda _loss, _norm: 1e-13)
    options = {"strength": 0.1, "epsilon": 0.5, "method": "output", "calibration": "paper"}
    one, three = (plan(loss, table, rows_per_person=k, **options) for k in (1, 3))
    assert three.law == one.law
    assert three.promise.epsilon == pytest.approx(3 * one.promise.epsilon, rel=1e-9)
    assert three.promise.claimed_epsilon == 0.5
