"""Gradients along a path: the exact sums over the records, however they were kept up to date."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from epsilearn.balls import ball, precision
from epsilearn.rows import paths
from epsilearn.rows.fixed import FixedRows, Levels, fixed_rows
from epsilearn.rows.fixed_passes import LOGISTIC, SQUARED
from epsilearn.rows.paths import MeanGradient, Path, SlopePath, SquaredPath, gradient_at

N, D = 40, 30
FEATURES, TARGETS, SLOPES = Levels(2.0, 1000), Levels(1.5, 900), Levels(0.9, 1 << 12)
LAYOUTS = {"dense": np.array, "sparse": sparse.csr_array}
BRANCHES = ["as it comes", "always few", "never few"]


def table(seed: int = 0, share: float = 0.15) -> np.ndarray:
    """Short rows, a few columns that reach many of them, and some that reach none."""
    generator = np.random.default_rng(seed)
    X = np.where(generator.random((N, D)) < share, generator.normal(size=(N, D)), 0)
    X[:, :2] = generator.normal(size=(N, 2))
    X[:, [9, D - 1]] = 0
    return X


def labels(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1.0, 1.0], N)


def numbers(rows: FixedRows) -> np.ndarray:
    """The rows as Python's whole numbers."""
    Z = np.zeros((rows.n, rows.d), object)
    for j in range(rows.d):
        where, values = rows.column(j)
        Z[where, j] = values.tolist()
    return Z


def exactly(gradient: MeanGradient) -> list[Fraction]:
    """One fraction for every column."""
    found = [Fraction(0)] * gradient.count
    for column, number in zip(gradient.present, gradient.still, strict=True):
        found[column] += gradient.second * int(number)
    for position, number in zip(gradient.touched, gradient.moved, strict=True):
        found[gradient.present[position]] += gradient.first * int(number)
    return found


def branched(rows: FixedRows, branch: str, monkeypatch) -> FixedRows:
    if branch != "as it comes":
        monkeypatch.setattr(rows, "few", lambda _: branch == "always few")
    return rows


def moves(seed: int = 2, count: int = 25) -> list[tuple[int, int]]:
    """Columns and weights: some again and again, some of them absent."""
    generator = np.random.default_rng(seed)
    columns = np.where(generator.random(count) < 0.5, generator.integers(0, 4, count), generator.integers(0, D, count))
    columns[3], columns[7], columns[8] = 9, D - 1, D - 1
    return [(int(c), int(w)) for c, w in zip(columns, generator.integers(-9, 10, count), strict=True)]


def along(path: Path, steps: list[tuple[int, int]]):
    """The gradient before each move and after the last, with the shrinkage and the weights it is for."""
    weights, generator = np.zeros(D, object), np.random.default_rng(3)
    for column, weight in [*steps, (0, 0)]:
        shrink = Fraction(int(generator.integers(1, 50)), 211)
        yield exactly(path.gradient(shrink)), shrink, weights.copy()
        path.move(column, weight)
        weights[column] += weight


def squared_gradient(Z, y: np.ndarray, shrink: Fraction, weights) -> list[Fraction]:
    """2 / n times the sum of x (<x, theta> - y), in fractions."""
    unit = FEATURES.unit
    errors = [unit * shrink * s - TARGETS.unit * t for s, t in zip(Z @ weights, y.tolist(), strict=True)]
    return [Fraction(2, len(Z)) * unit * sum(z * e for z, e in zip(Z[:, j], errors, strict=True)) for j in range(D)]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_squared_gradients_are_exact(monkeypatch, layout, branch):
    rows = branched(fixed_rows(LAYOUTS[layout](table()), FEATURES), branch, monkeypatch)
    target = np.random.default_rng(4).normal(size=N) * 2
    target[:3] = [1e308, -1e308, -0.0]
    y = np.array([int(min(max(t * (900 / 1.5), -900), 900)) for t in target.tolist()])
    path = SquaredPath(rows, target, TARGETS)
    Z = numbers(rows)
    for gradient, shrink, weights in along(path, moves()):
        assert gradient == squared_gradient(Z, y, shrink, weights)


def slope_levels(scores: list[Fraction], target: np.ndarray, code: int, levels: Levels, own: np.ndarray) -> list[int]:
    """The nearest level of each exact slope, cut off at the last one; ``own`` where floats may see it otherwise."""
    nearest = []
    for score, y, taken in zip(scores, target.tolist(), own, strict=True):
        if code == SQUARED:
            slope = 2 * (score - Fraction(y))
        else:
            with precision(150):
                man, exp = (-ball(y) / (1 + (ball(y) * ball(score)).exp())).mid().man_exp()
            slope = Fraction(int(man)) * Fraction(2) ** int(exp)
        scaled = slope / levels.unit
        level = min(max(round(scaled), -levels.count), levels.count)
        if abs(abs(scaled - math.floor(scaled)) - Fraction(1, 2)) < Fraction(1, 10**9):
            assert abs(level - taken) <= 1
            level = int(taken)
        nearest.append(level)
    return nearest


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("code", [LOGISTIC, SQUARED], ids=["logistic", "squared"])
def test_gradients_of_bounded_slope_are_sums_of_whole_numbers(monkeypatch, code, layout, branch):
    """Cut off at 0.9, which is met on both sides by the logistic slope at scores of 2.2, by the squared one at once."""
    rows = branched(fixed_rows(LAYOUTS[layout](table()), FEATURES), branch, monkeypatch)
    Z, y = numbers(rows), labels()
    path = SlopePath(rows, y, code, SLOPES)
    met = set()
    for gradient, shrink, weights in along(path, moves()):
        scores = [FEATURES.unit * shrink * s for s in Z @ weights]
        slopes = np.array(slope_levels(scores, y, code, SLOPES, path._slopes), object)
        unit = FEATURES.unit * SLOPES.unit / N
        assert gradient == [unit * total for total in slopes @ Z]
        met |= set(slopes)
    assert {SLOPES.count, -SLOPES.count} <= met
    assert len(met) > 50


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("code", [LOGISTIC, SQUARED], ids=["logistic", "squared"])
def test_gradients_at_any_point(code, layout):
    rows = fixed_rows(LAYOUTS[layout](table()), FEATURES)
    Z, y = numbers(rows), labels()
    for seed in range(5):
        point = np.random.default_rng(seed).normal(size=D) * (np.random.default_rng(seed).random(D) < 0.5)
        scale = float(np.abs(point).sum()) * 1.1
        found = gradient_at(rows, point, scale, y, code, SLOPES)
        grid = [int(p * (2**40 / scale)) for p in point.tolist()]
        scores = [FEATURES.unit * Fraction(scale) / 2**40 * s for s in Z @ np.array(grid, object)]
        slopes = slope_levels(scores, y, code, SLOPES, np.full(N, 10**9))
        assert found.tolist() == (np.array(slopes, object) @ Z).tolist()
        # The grid is so fine that the exact point's slopes are within a hair of these.
        exact = [FEATURES.unit * sum(z * Fraction(p) for z, p in zip(row, point.tolist(), strict=True)) for row in Z]
        assert max(abs(a - b) for a, b in zip(scores, exact, strict=True)) < Fraction(1, 10**9)


def test_dense_and_sparse_paths_agree_whichever_branch(monkeypatch):
    """All four ways to the same gradient, along a long path."""
    X, y = table(), labels()
    for make in (lambda r: SquaredPath(r, y, TARGETS), lambda r: SlopePath(r, y, LOGISTIC, SLOPES)):
        found = []
        for layout in LAYOUTS.values():
            for branch in BRANCHES:
                path = make(branched(fixed_rows(layout(X), FEATURES, intercept=False), branch, monkeypatch))
                found.append([gradient for gradient, _, _ in along(path, moves(5, 60))])
        assert all(each == found[0] for each in found)


def test_few_and_many_rows_are_both_met():
    """The table is such that a path takes either branch by itself."""
    rows = fixed_rows(sparse.csr_array(table()), FEATURES)
    assert {rows.few(rows.column(j)[0]) for j in range(D)} == {True, False}
    path = SquaredPath(rows, labels(), TARGETS)
    generations, touched = [], []
    for _ in along(path, [(12, 2), (15, -3), (9, 4), (12, 1), (0, 5), (14, 2), (1, 1)]):
        gradient = path.gradient(Fraction(1))
        generations.append(gradient.generation)
        touched.append(gradient.touched.tolist())
    assert set(generations) == {0, 1}
    first = generations.index(1)
    assert 0 < len(touched[first - 1]) < len(rows.present)
    for before, after in pairwise(touched[:first]):
        assert after[: len(before)] == before  # it only grows
    assert all(each == list(range(len(rows.present))) for each in touched[first:])


def test_a_column_chosen_again_is_not_summed_again(monkeypatch):
    rows = fixed_rows(np.array(table()), FEATURES)
    path = SquaredPath(rows, labels(), TARGETS)
    summed = []
    combine = rows.combine
    monkeypatch.setattr(rows, "combine", lambda weights: summed.append(1) or combine(weights))
    for column in (3, 5, 3, 3, 5, 3):
        path.move(column, 2)
    assert len(summed) == 2


@pytest.mark.parametrize("kept", [0, D, 2 * D])
def test_products_that_are_forgotten_are_summed_anew(monkeypatch, kept):
    """With room for one or two columns only, nothing else changes."""
    X, y, steps = table(), labels(), moves(6, 40)
    with_room = SquaredPath(fixed_rows(X, FEATURES), y, TARGETS)
    expected = [gradient for gradient, _, _ in along(with_room, steps)]
    monkeypatch.setattr(paths, "_KEPT", kept)
    path = SquaredPath(fixed_rows(X, FEATURES), y, TARGETS)
    assert [gradient for gradient, _, _ in along(path, steps)] == expected
    assert len(path._known) == max(1, kept // D)
    assert list(path._known)[-1] == 0  # the last move's


def test_the_column_that_was_not_chosen_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(paths, "_KEPT", 2 * D)
    path = SquaredPath(fixed_rows(table(), FEATURES), labels(), TARGETS)
    for column in (3, 5, 3, 7):
        path.move(column, 2)
    assert list(path._known) == [3, 7]


def test_nothing_is_summed_anew_if_no_slope_leaves_its_level(monkeypatch):
    rows = fixed_rows(table(), FEATURES)
    path = SlopePath(rows, labels(), LOGISTIC, SLOPES)
    path.move(0, 5)
    before = exactly(path.gradient(Fraction(1, 3)))
    added = []
    monkeypatch.setattr(rows, "combine", lambda _: pytest.fail("there is nothing to sum"))
    monkeypatch.setattr(rows, "add", lambda some, *_: added.extend(some))
    assert exactly(path.gradient(Fraction(1, 3))) == before
    assert added == []
    path.move(12, 1)  # reaches a few records only
    path.gradient(Fraction(1, 3))
    assert set(added) == set(np.flatnonzero(table()[:, 12]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_in_doubles(layout):
    path = SquaredPath(fixed_rows(LAYOUTS[layout](table()), FEATURES), labels(), TARGETS)
    for column, weight in moves():
        path.move(column, weight)
    gradient = path.gradient(Fraction(1, 7))
    np.testing.assert_allclose(gradient.floats(), [float(g) for g in exactly(gradient)], rtol=1e-12, atol=1e-15)
    assert (np.abs(gradient.floats()) > 1e-3).sum() > D / 2


def replaced(row, label: float, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    X, y = X.copy(), y.copy()
    X[11], y[11] = row, label
    return X, y


RECORDS = [(row, label) for row in (2.0, -1e308, 1e-310, np.eye(D)[9]) for label in (1e6, -1e6, 1.0, -1.0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("code", [LOGISTIC, SQUARED], ids=["logistic", "squared"])
def test_one_record_moves_a_sum_by_its_own_numbers_at_most(code, layout):
    """Whatever it is replaced by, at every step; and by no less than that where it tries to."""
    bound, farthest = 2 * FEATURES.count * SLOPES.count, 0
    runs = []
    for row, label in RECORDS:
        X, y = replaced(row, label, table(), labels())
        path = SlopePath(fixed_rows(LAYOUTS[layout](X), FEATURES), y, code, SLOPES)
        unit = FEATURES.unit * SLOPES.unit / N
        runs.append([[g / unit for g in gradient] for gradient, _, _ in along(path, moves()[:12])])
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            farthest = max(farthest, *(abs(a - b) for a, b in zip(one, other, strict=True)))
    assert farthest <= bound
    assert farthest == bound


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_record_moves_a_squared_gradient_by_what_the_theory_says(layout):
    """2 * 2 B (c B + N) / n, with theta's l1 norm c, bounds B of features and N of targets; and it can."""
    steps = [(3, 4), (5, -3), (3, 2), (6, 7), (9, -5), (12, 1)]
    B, bound = Fraction(FEATURES.bound), Fraction(TARGETS.bound)
    signs = np.zeros(D)
    for column, weight in steps:
        signs[column] = math.copysign(2.0, weight)
    towards, against = signs.copy(), signs.copy()
    towards[20], against[20] = 2.0, -2.0  # a column that is not theta's
    runs = []
    for row, label in [*RECORDS, (towards, -1e9), (against, -1e9)]:
        X, y = replaced(row, label, table(), labels())
        path = SquaredPath(fixed_rows(LAYOUTS[layout](X), FEATURES), y, TARGETS)
        runs.append(list(along(path, steps)))
    tight = []
    for one in runs:
        for (a, shrink, weights), (b, _, _) in zip(one, runs[-1], strict=True):
            norm = shrink * sum(abs(w) for w in weights)
            most = 2 * 2 * B * (norm * B + bound) / N
            moved = max(abs(p - q) for p, q in zip(a, b, strict=True))
            assert moved <= most
            tight.append(moved == most)
    assert any(tight[-2 * len(runs[0]) :])
