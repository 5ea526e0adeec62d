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
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Loss, Softmax, Squared
from epsilearn.rows import Bounds, as_rows, memory
from epsilearn.solvers import Problem, minimise
from epsilearn.solvers.newton import _by_products, _how_to_steer, line_search

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


def exact_norm(problem: Problem, coef) -> float:
    """The norm of the exact gradient, from above, in ball arithmetic."""
    with precision(300):
        point = [Fraction(c) if isinstance(c, Fraction) else Fraction(float(c)) for c in coef]
        tilt = np.zeros(len(point)) if problem.tilt is None else problem.tilt
        whole = [
            g + ball(problem.strength) * ball(c) + ball(float(b)) / problem.rows.n
            for g, c, b in zip(problem.rows.gradient_in_balls(problem.loss, point), point, tilt, strict=True)
        ]
        return float(sum((g * g for g in whole), arb(0)).sqrt().upper())


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_the_bound_at_a_point_holds_in_balls(loss, size):
    """The certificate's parts: a gradient in doubles, and a bound that covers the exact one."""
    problem = make_problem(loss, n=60, d=3, tilt=size)
    coef = size * np.random.default_rng(1).normal(size=4)
    point, exact = problem.at(coef), exact_norm(problem, coef)
    assert exact <= point.bound
    assert point.bound <= exact + 2.1 * point.rounding + 1e-13 * exact


# ---------------------------------------------------------------- several outputs


def softmax_problem(
    layout=np.asarray, strength=1e-3, n=1500, d=5, classes=4, seed=0, tilt=0.0, scales=1.0, intercept=1.0
) -> Problem:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)) * scales
    y = (X @ generator.normal(size=(d, classes)) + generator.gumbel(size=(n, classes))).argmax(axis=1)
    rows = as_rows(layout(X), y.astype(float), Bounds(2.0, intercept=intercept))
    loss = Softmax(classes)
    return Problem(rows, loss, strength, n * tilt * generator.normal(size=rows.d * loss.outputs))


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("tilt", [0.0, 0.1])
def test_the_softmax_minimum_is_found_and_certified(layout, tilt):
    problem = softmax_problem(layout, n=300, tilt=tilt)
    solution = minimise(problem, 1e-10)
    assert exact_norm(problem, solution.coef) <= solution.certificate <= 1e-10


def test_the_softmax_minimum_is_scikit_learns():
    """Another library, and all classes' weights instead of one direction fewer: the same minimiser."""
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(3)
    X = generator.normal(size=(400, 3)) / 10
    y = (X @ generator.normal(size=(3, 4)) * 10 + generator.gumbel(size=(400, 4))).argmax(axis=1)
    rows = as_rows(X, y.astype(float), Bounds(2.0, intercept=0.0))
    loss, strength = Softmax(4), 0.01
    solution = minimise(Problem(rows, loss, strength), 1e-11)
    theirs = LogisticRegression(C=1 / (400 * strength), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(loss.basis @ solution.coef.reshape(3, 3), theirs.coef_, atol=1e-5)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_softmax_beyond_doubles(layout):
    problem = softmax_problem(layout, n=60, d=2, classes=3, tilt=0.1)
    target = problem.rows.rounding(problem.loss, 1.0) * 1e-9
    solution = minimise(problem, target)
    assert isinstance(solution.coef[0], Fraction)
    assert exact_norm(problem, solution.coef) <= solution.certificate <= target


def test_softmax_with_an_enormous_tilt():
    problem = softmax_problem(n=50, d=2, classes=3, strength=0.01, tilt=1e12)
    solution = minimise(problem, 1e-9)
    assert exact_norm(problem, solution.coef) <= 1e-9


def test_sparse_softmax_with_more_columns_than_a_hessian_has_room_for():
    X = sparse.random_array((400, 2500), density=0.004, format="csr", rng=0)
    y = np.random.default_rng(0).integers(3, size=400).astype(float)
    rows = as_rows(X, y, Bounds(1.0))
    assert not rows.dense
    problem = Problem(rows, Softmax(3), 1e-3, np.random.default_rng(1).normal(size=2 * rows.d))
    solution = minimise(problem, 1e-9)
    assert solution.certificate <= 1e-9
    few = problem.at(solution.coef)
    assert np.linalg.norm(few.gradient) <= 1e-9


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_products_solve_with_the_whole_hessian(layout):
    """The step by preconditioned conjugate gradients against the whole Hessian, formed column by column."""
    problem = softmax_problem(layout, n=300, d=3, classes=4)
    problem.at(np.zeros(problem.dimension))
    look = _how_to_steer(problem)
    point = np.random.default_rng(2).normal(size=problem.dimension)
    problem.at(point)
    whole = np.array([problem.rows.product(unit) for unit in np.eye(problem.dimension)])
    whole += problem.strength * np.eye(problem.dimension)
    for size in (1e-8, 1.0, 1e6):
        residual = size * np.random.default_rng(3).normal(size=problem.dimension)
        step, length = look(point)(residual), np.linalg.norm(residual)
        assert np.linalg.norm(whole @ step - residual) <= 1.001 * min(0.1, length**0.5) * length
        assert step @ residual > 0


def test_an_approximate_factor_saves_products():
    """Columns of very different size: conjugate gradients alone take many products, eased ones few."""
    problem = softmax_problem(n=500, d=30, classes=3, strength=1e-6, scales=np.geomspace(1e-3, 1, 30))
    problem.at(np.zeros(problem.dimension))
    counted = []
    product = problem.rows.product
    problem.rows.product = lambda vector: counted.append(1) or product(vector)
    residual = 1e-8 * np.random.default_rng(0).normal(size=problem.dimension)
    _how_to_steer(problem)(np.zeros(problem.dimension))(residual)
    eased = len(counted)
    _by_products(problem, lambda r: r, residual)
    assert 0 < 5 * eased < len(counted) - eased


# ---------------------------------------------------------------- losses with kinks


def kinked(generator: np.random.Generator) -> tuple[Problem, float]:
    """A random small problem: few rows, so a step easily leaves all curvature behind; tilts up to a billion."""
    n, d = int(generator.integers(1, 8)), int(generator.integers(1, 4))
    loss: Loss = (
        HuberisedHinge(10 ** generator.uniform(-3, 0.2))
        if generator.random() < 0.5
        else Huber(10 ** generator.uniform(-2, 0.5), 1.0)
    )
    X = generator.normal(size=(n, d))
    X = np.round(X) if generator.random() < 0.3 else X
    y = generator.choice([-1.0, 1.0], n) if loss.classifies else generator.uniform(-1, 1, n)
    rows = as_rows(X, y, Bounds(1.0, intercept=float(generator.choice([0.0, 0.25]))))
    strength = 10 ** generator.uniform(-3, 0)
    tilt = 10 ** generator.uniform(-3, generator.choice([1.0, 9.0])) * generator.normal(size=rows.d)
    reach = (1 + np.linalg.norm(tilt) / n) / strength
    return Problem(rows, loss, strength, tilt), max(1e-9, 4 * rows.rounding(loss, reach))


def solve_many(count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for i in range(count):
        problem, target = kinked(generator)
        solution = minimise(problem, target, limit=1000)
        if i % 10 == 0:
            assert exact_norm(problem, solution.coef) <= solution.certificate <= target


def test_losses_with_kinks_do_not_cycle():
    solve_many(400, seed=0)


@pytest.mark.slow
def test_losses_with_kinks_do_not_cycle_however_many():
    solve_many(40_000, seed=1)


def test_a_narrow_valley_between_kinks():
    """All rows beyond their kinks and a tiny strength: the Hessian knows nothing of the valley's sides."""
    generator = np.random.default_rng(8)
    X = 1e-3 * generator.normal(size=(8, 1))
    y = generator.uniform(-3, 3, 8)
    rows = as_rows(X, y, Bounds(1.0, intercept=1.0))
    assert minimise(Problem(rows, Huber(0.1, 3.0), 1e-8, np.array([0.3, 0.1])), 1e-8).certificate <= 1e-8


def test_aline_search_ends_where_the_slope_has_lost_a_tenth():
    """And short of where it would have turned by more than two fifths: neither idle nor beyond the minimum."""
    for seed in range(30):
        problem = make_problem(HuberisedHinge(0.05), n=5, d=2, strength=0.01, seed=seed)
        point = problem.at(np.random.default_rng(seed).normal(size=3))
        for factor in (1e-6, 1e-2, 1.0, 100.0):
            step = -factor * point.gradient
            found = line_search(problem.at, point, step, 200)
            assert found is not None
            trial, used = found
            before, after = point.gradient @ step, trial.gradient @ step
            assert 0.9 * before <= after <= -0.4 * before
            assert used <= 60
    assert line_search(problem.at, point, -1e-12 * point.gradient, 2) is None


def test_the_steps_of_large_problems_need_no_matrix():
    """1501 dense columns: one beyond what is factored."""
    generator = np.random.default_rng(4)
    X = generator.normal(size=(80, 1501)) / 40
    rows = as_rows(X, np.sign(generator.normal(size=80)), Bounds(1.0, intercept=0.0))
    rows.hessian = None  # forming it would be an error
    assert minimise(Problem(rows, Logistic(), 1e-3), 1e-10).certificate <= 1e-10


@pytest.mark.parametrize("loss", [Logistic(), Squared(1.0)], ids=repr)
def test_a_strength_below_the_hessians_rounding(loss):
    """Either solved or a ConvergenceError: LAPACK's own error says at which column the data gave out."""
    rows = as_rows(np.ones((40, 3)), np.where(np.arange(40) % 2, 1.0, -1.0), Bounds(2.0))
    try:
        assert minimise(Problem(rows, loss, 1e-18), 1e-9, limit=200).certificate <= 1e-9
    except ConvergenceError as error:
        assert "minor" not in str(error)  # noqa: PT017


# ---------------------------------------------------------------- a start from some of the rows


def many(misleading: bool, loss: Loss | None = None) -> Problem:
    """More rows than are solved from scratch; every sixteenth may say the opposite of all others."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(33_000, 3))
    y = np.sign(X[:, 0] + 0.3 * generator.normal(size=33_000))
    if misleading:
        y[::16] *= -1
    rows = as_rows(X, y if loss is None else (y + 1) / 2, Bounds(2.0))
    loss = loss or Logistic()
    return Problem(rows, loss, 1e-3, 100 * generator.normal(size=rows.d * loss.outputs))


@pytest.mark.parametrize("misleading", [False, True])
@pytest.mark.parametrize("loss", [None, Softmax(3)], ids=repr)
def test_a_start_from_some_rows_ends_at_the_minimum_of_all(misleading, loss, monkeypatch):
    problem = many(misleading, loss)
    found = minimise(problem, 1e-10)
    assert found.certificate <= 1e-10
    assert np.linalg.norm(problem.at(found.coef).gradient) <= 1e-10
    monkeypatch.setattr(memory, "_MANY_ROWS", 10**9)
    plain = minimise(problem, 1e-10)
    assert np.linalg.norm(found.coef - plain.coef) <= 2e-10 / problem.strength


def test_a_start_from_some_rows_saves_passes_over_all(monkeypatch):
    counts = []
    for fewest in (memory._MANY_ROWS, 10**9):
        monkeypatch.setattr(memory, "_MANY_ROWS", fewest)
        problem, passes = many(misleading=False), []
        sums = problem.rows.sums
        problem.rows.sums = lambda *args, sums=sums, passes=passes: passes.append(1) or sums(*args)
        minimise(problem, 1e-8)
        counts.append(len(passes))
    assert counts[0] < counts[1]
