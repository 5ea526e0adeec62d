"""The solver: right answers, honest certificates, and an error rather than a bad point."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from scipy import sparse
from scipy.optimize import minimize

from epsilearn.balls import ball, precision
from epsilearn.errors import ConvergenceError
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Squared
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, minimise

LOSSES = [Logistic(), HuberisedHinge(0.5), HuberisedHinge(0.05), Squared(1.0), Huber(0.3, 1.0)]


def make_problem(loss, layout=np.asarray, strength=1e-3, n=2000, d=6, seed=0, tilt=0.0) -> Problem:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    y = np.sign(X @ generator.normal(size=d) + generator.normal(size=n))
    rows = as_rows(layout(X), y, Bounds(2.0))
    return Problem(rows, loss, strength, n * tilt * generator.normal(size=rows.d))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_the_minimum_is_found_and_certified(loss, layout, tilt):
    problem = make_problem(loss, layout, tilt=tilt)
    solution = minimise(problem, 1e-10)
    assert solution.certificate <= 1e-10
    assert np.linalg.norm(problem.at(solution.coef).gradient) <= solution.certificate

    def objective(w):
        point = problem.at(w)
        return point.value, point.gradient

    other = minimize(objective, np.zeros(problem.rows.d), jac=True, method="L-BFGS-B", options={"maxiter": 5000})
    assert problem.at(solution.coef).value <= other.fun + 1e-12
    assert np.linalg.norm(solution.coef - other.x) < 0.05


@pytest.mark.parametrize("strength", [1e-6, 1.0, 100.0])
def test_every_strength(strength):
    assert minimise(make_problem(Logistic(), strength=strength), 1e-11).certificate <= 1e-11


def test_separable_data_and_a_tiny_strength():
    X = np.array([[1.0], [-1.0]] * 50)
    rows = as_rows(X, X[:, 0], Bounds(1.0, intercept=0.0))
    solution = minimise(Problem(rows, Logistic(), 1e-8), 1e-12)
    assert solution.coef[0] == pytest.approx(15.7, abs=0.3)


def test_one_row_all_zero_rows_and_equal_columns():
    for X in (np.array([[0.5, 0.5]]), np.zeros((5, 2)), np.ones((40, 3))):
        rows = as_rows(X, np.ones(len(X)), Bounds(1.0))
        assert minimise(Problem(rows, Logistic(), 0.01), 1e-11).certificate <= 1e-11


def test_stopped_early_is_an_error_and_no_coefficients():
    with pytest.raises(ConvergenceError, match="nothing was released"):
        minimise(make_problem(Logistic()), 1e-10, limit=1)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_a_target_below_the_rounding_is_met_beyond_doubles(loss, layout):
    """Which objectives doubles can solve depends on the data; giving up would tell. So it does not give up."""
    problem = make_problem(loss, layout, n=150, d=3, tilt=0.1)
    target = problem.rows.rounding(loss, 1.0) * 1e-9
    solution = minimise(problem, target)
    assert solution.certificate <= target
    assert isinstance(solution.coef[0], Fraction)
    with precision(300):
        gradient = problem.rows.gradient_in_balls(loss, solution.coef)
        whole = [
            g + ball(problem.strength) * ball(c) + ball(float(b)) / problem.rows.n
            for g, c, b in zip(gradient, solution.coef, problem.tilt, strict=True)
        ]
        assert sum((g * g for g in whole), arb(0)).sqrt() <= target
    floats = minimise(problem, 1e-10)
    assert np.linalg.norm(floats.coef - np.array(solution.coef, float)) <= 2e-10 / problem.strength


def test_an_enormous_tilt_is_solved():
    """Noise in the objective is unbounded: 10**12 times the usual must not be an error."""
    problem = make_problem(Logistic(), n=100, d=2, strength=0.01, tilt=1e12)
    solution = minimise(problem, 1e-9)
    assert solution.certificate <= 1e-9
    expected = -problem.tilt / (problem.rows.n * problem.strength)
    np.testing.assert_allclose(np.array(solution.coef, float), expected, atol=3 / problem.strength)


def test_progress_is_reported():
    seen: list[float] = []
    minimise(make_problem(Logistic()), 1e-10, progress=seen.append)
    assert seen[-1] <= 1e-10
    assert len(seen) > 2


def test_dense_and_sparse_agree_within_their_certificates():
    dense, compressed = (minimise(make_problem(Logistic(), layout), 1e-11) for layout in (np.asarray, sparse.csr_array))
    assert np.linalg.norm(dense.coef - compressed.coef) <= 2 * 1e-11 / 1e-3
