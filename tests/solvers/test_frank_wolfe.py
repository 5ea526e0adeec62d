"""Frank-Wolfe in whole weights: the textbook's points, exactly, and its rate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from epsilearn.rows.fixed import Levels, fixed_rows
from epsilearn.rows.fixed_passes import LOGISTIC
from epsilearn.rows.paths import MeanGradient, SlopePath, SquaredPath
from epsilearn.solvers.frank_wolfe import along_columns, along_points, greedy, shrinkage, total_weight

D = 5


class Recorder:
    """A path whose gradient is the point it is asked for."""

    def __init__(self) -> None:
        self.weights = [0] * D
        self.points = []

    def gradient(self, shrink: Fraction) -> list[Fraction]:
        self.points.append([shrink * w for w in self.weights])
        return self.points[-1]

    def move(self, column: int, weight: int) -> None:
        self.weights[column] += weight


def zeros(columns: int = D) -> np.ndarray:
    return np.zeros(columns, np.int64)


def textbook(corners: list[int], radius: Fraction, signed: bool, start: list[Fraction]) -> list[list[Fraction]]:
    """theta_{t+1} = (1 - mu) theta_t + mu s_t with mu = 2 / (t + 2), from t = 1."""
    points = [start]
    for t, corner in enumerate(corners, start=1):
        mu = Fraction(2, t + 2)
        column, negative = divmod(corner, 2) if signed else (corner, 0)
        s = [Fraction(0)] * D
        s[column] = -radius if negative else radius
        points.append([(1 - mu) * a + mu * b for a, b in zip(points[-1], s, strict=True)])
    return points


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize("steps", [1, 2, 3, 40])
def test_paths_along_columns_are_the_textbooks(signed, steps):
    generator = np.random.default_rng(0)
    corners = generator.integers(0, 2 * D if signed else D, steps - 1).tolist()
    path, radius, seen = Recorder(), Fraction(7, 3), []
    weights = zeros()
    if not signed:
        weights[2] = 1  # the simplex does not hold zero: a corner to begin with
    queue = iter(corners)

    def choose(point) -> int:
        assert point is path.points[-1]
        return next(queue)

    chosen = along_columns(path, radius, signed, choose, steps, weights=weights, progress=seen.append)
    start = [radius if j == 2 and not signed else Fraction(0) for j in range(D)]
    expected = textbook(corners, radius, signed, start)
    assert chosen == corners
    assert weights.tolist() == path.weights
    assert path.points == expected[:-1]
    assert [radius * shrinkage(steps) * w for w in path.weights] == expected[-1]
    assert seen == list(range(1, steps))
    if not signed:  # the simplex's points stay in it
        assert all(sum(point) == radius and min(point) >= 0 for point in expected)


def test_no_progress_need_be_reported():
    assert along_columns(Recorder(), Fraction(1), True, lambda _: 3, 4, weights=zeros()) == [3, 3, 3]


def test_weights_and_shrinkage():
    """Step t weighs t + 1; all of them together, shrunk, and what is left of the start make one."""
    product = Fraction(1)
    for step in range(1, 200):
        assert total_weight(step) == sum(k + 1 for k in range(1, step))
        assert shrinkage(step) == product  # of all (1 - mu) so far
        assert (total_weight(step) + 1) * shrinkage(step) == 1
        product *= 1 - Fraction(2, step + 2)


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_paths_along_points_are_the_textbooks(steps):
    generator = np.random.default_rng(1)
    start, towards = generator.normal(size=D), generator.normal(size=(steps - 1, D))
    expected = [start]
    for t, s in enumerate(towards, start=1):
        expected.append((1 - 2 / (t + 2)) * expected[-1] + 2 / (t + 2) * s)
    asked, seen, before, queue = [], [], start.copy(), iter(towards)

    def point_towards(point):
        asked.append(point.copy())
        return next(queue)

    end = along_points(point_towards, start, steps, seen.append)
    np.testing.assert_allclose(end, expected[-1], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.reshape(asked, (-1, D)), np.reshape(expected[:-1], (-1, D)), rtol=1e-12, atol=1e-14)
    assert seen == list(range(1, steps))
    np.testing.assert_array_equal(start, before)


def mean_gradient(values: list[int]) -> MeanGradient:
    everything, moved = np.arange(len(values)), np.array(values)
    return MeanGradient(
        len(values), everything, np.zeros_like(moved), everything, moved, Fraction(1, 3), Fraction(1, 3), 0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "signed", "unsigned"),
    [([1, -5, 3], 2, 1), ([1, -5, 6], 5, 1), ([7, 2, 3], 1, 1), ([-9, 2, 3], 0, 0), ([4], 1, 0), ([-4], 0, 0)],
)
def test_the_greedy_corner_is_the_lowest(values, signed, unsigned):
    gradient = mean_gradient(values)
    assert greedy(gradient) == greedy(gradient, signed=True) == signed
    assert greedy(gradient, signed=False) == unsigned


def test_an_absent_column_may_be_the_greedy_choice():
    """Its gradient is zero, which beats positive ones on the simplex."""
    none = np.empty(0, np.int64)
    gradient = MeanGradient(
        3, np.array([0, 2]), np.array([4, 5]), none, none, Fraction(1), Fraction(1), 0
    )  # fmt: skip
    assert greedy(gradient, signed=False) == 1
    assert greedy(gradient) == 5


def squared_problem(signed: bool):
    """Whole features and targets that a point inside the set meets exactly: the least risk is zero."""
    generator = np.random.default_rng(2)
    X = generator.integers(-3, 4, (40, D))
    inside = np.array([1, -2, 0, 1, 0] if signed else [1, 2, 0, 1, 0])
    y = X @ inside
    radius = 5 if signed else 4
    corners = radius * np.vstack([np.eye(D, dtype=int), -np.eye(D, dtype=int)][: 1 + signed])
    scores = corners @ X.T
    # The curvature: twice the largest mean of <x, s - s'>**2.
    gamma = 2 * max(Fraction(int(((a - b) ** 2).sum()), len(X)) for a in scores for b in scores)
    return X, y, Fraction(radius), gamma


def risk(X, y, radius: Fraction, signed: bool, corners: list[int], weights: list[int]) -> Fraction:
    steps = len(corners) + 1
    for step, corner in enumerate(corners, start=1):
        column, negative = divmod(corner, 2) if signed else (corner, 0)
        weights[column] += -(step + 1) if negative else step + 1
    theta = [radius * shrinkage(steps) * w for w in weights]
    errors = [sum(int(x) * t for x, t in zip(row, theta, strict=True)) - int(v) for row, v in zip(X, y, strict=True)]
    return sum(e * e for e in errors) / len(X)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_the_greedy_path_keeps_the_textbooks_rate(signed, layout):
    X, y, radius, gamma = squared_problem(signed)
    path = SquaredPath(fixed_rows(layout(X), Levels(4.0, 4)), y.astype(float), Levels(16.0, 16))
    weights = [0] * D
    start = zeros()
    if not signed:
        weights[4] = start[4] = 1
    corners = along_columns(path, radius, signed, lambda g: greedy(g, signed), 150, weights=start)
    excess = {steps: risk(X, y, radius, signed, corners[: steps - 1], weights.copy()) for steps in range(1, 151, 7)}
    assert all(excess[steps] <= 2 * gamma / (steps + 2) for steps in excess)
    # A path that goes the worst way instead does not keep it.
    worst = [corner ^ 1 for corner in corners] if signed else [4] * 149
    assert risk(X, y, radius, signed, worst, weights.copy()) > 2 * gamma / 152


def test_what_is_left_of_the_start_counts_where_the_curvature_is_small():
    """2 Gamma / (T + 2) alone supposes a start within 2 Gamma / 3 of the minimum; another fades as 2 / (T (T + 1)).

    One feature, always 1, and a target of 100, far outside the set [-1, 1]: the best is 1, all corners are 1.
    """
    path = SquaredPath(fixed_rows(np.ones((3, 1)), Levels(1.0, 1)), np.full(3, 100.0), Levels(100.0, 100))
    assert along_columns(path, Fraction(1), True, greedy, 60, weights=zeros(1)) == [0] * 59
    gamma, start = 2 * 2**2, 100**2 - 99**2
    beyond = []
    for steps in range(1, 60):
        excess = (total_weight(steps) * shrinkage(steps) - 100) ** 2 - 99**2
        assert excess <= Fraction(2 * gamma, steps + 2) + start * shrinkage(steps)
        beyond.append(excess > Fraction(2 * gamma, steps + 2))
    assert beyond[:20] == [True] * 20
    assert not beyond[-1]


def test_the_greedy_path_finds_the_logistic_minimum():
    """Separable by the first column alone: all weight goes there, and the loss to its least value."""
    generator = np.random.default_rng(3)
    y = generator.choice([-1.0, 1.0], 60)
    X = np.column_stack([y, generator.choice([-1.0, 1.0], (60, 4))])
    path = SlopePath(fixed_rows(X, Levels(1.0, 1)), y, LOGISTIC, Levels(1.0, 1 << 16))
    assert along_columns(path, Fraction(2), True, greedy, 50, weights=zeros()) == [0] * 49
    flipped = SlopePath(fixed_rows(-X, Levels(1.0, 1)), y, LOGISTIC, Levels(1.0, 1 << 16))
    assert along_columns(flipped, Fraction(2), True, greedy, 50, weights=zeros()) == [1] * 49
