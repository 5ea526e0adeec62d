"""Newton's method by kernel values alone: honest certificates, singular matrices, and the primal's own minimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from flint import arb
from scipy.optimize import minimize

from epsilearn.balls import ball, precision
from epsilearn.errors import ConvergenceError
from epsilearn.kernel import RBF, Linear, Polynomial
from epsilearn.kernel.features import Identity, Monomials
from epsilearn.losses import Huber, HuberisedHinge, Logistic
from epsilearn.losses.interface import UNIT
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, dual, minimise
from epsilearn.solvers.dual import DualProblem, dual_rounding, minimise_dual

LOSSES = [Logistic(), HuberisedHinge(0.5), HuberisedHinge(0.05), Huber(0.25, 1.0)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


@dataclass
class Matrix:
    """Kernel values that are exactly these doubles, unless a larger error is declared."""

    values: np.ndarray
    norm: float
    error: float

    @classmethod
    def of(cls, values: np.ndarray, norm: float | None = None, error: float = 0.0) -> Matrix:
        norm = math.sqrt(values.diagonal().max() or 1.0) * (1 + 1e-15) if norm is None else norm
        return cls(values, norm, error + 1.01 * (len(values) + 2) * UNIT * norm**2)

    @property
    def n(self) -> int:
        return len(self.values)

    def product(self, vector: np.ndarray) -> np.ndarray:
        return self.values @ vector


def eighths(generator: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Points whose inner products are doubles, exactly."""
    return generator.integers(-8, 9, size=(n, d)) / 8


def points(name: str, n: int = 12, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    X = eighths(generator, n, 3)
    if name == "repeated":
        X[n // 2 :] = X[: n - n // 2]
    elif name == "all equal":
        X[:] = X[0] + 0.125
    elif name == "zero":
        X[:] = 0.0
    elif name == "fewer dimensions":
        X = X[:, :1]
    elif name == "badly scaled":
        X = X * 2.0 ** generator.integers(-20, 21, size=(n, 1))
    elif name == "one":
        X = np.full((1, 2), 0.5)
    return X


SHAPES = ["generic", "repeated", "all equal", "zero", "fewer dimensions", "badly scaled", "one"]


def targets(loss, n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(100 + seed)
    return generator.choice([-1.0, 1.0], n) if loss.classifies else generator.uniform(-1, 1, n)


def make_problem(loss, name: str = "generic", strength: float = 0.05, n: int = 12, seed: int = 0) -> DualProblem:
    """``strength`` as a share of the square of the longest point."""
    X = points(name, n, seed)
    gram = Matrix.of(X @ X.T)
    return DualProblem(gram, targets(loss, len(X), seed), loss, strength * gram.norm**2)


def reachable(problem: DualProblem, wanted: float | None = None) -> float:
    """As a `GramProblem` asks: a little of the minimiser's own sensitivity, or four roundings."""
    gram, loss = problem.gram, problem.loss
    size = 1.01 * loss.lipschitz / problem.strength
    rounding = dual_rounding(loss, gram, problem.strength, size, size * gram.norm**2)
    return max(1e-3 * loss.lipschitz * gram.norm / gram.n if wanted is None else wanted, 4 * rounding)


def exact_residual(problem: DualProblem, coef: np.ndarray, change: np.ndarray | None = None) -> list[arb]:
    """r in ball arithmetic, the kernel values changed by ``change``."""
    values = problem.gram.values
    change = np.zeros_like(values) if change is None else change
    K = [[ball(float(values[i, j])) + ball(float(change[i, j])) for j in range(len(coef))] for i in range(len(coef))]
    weights = [ball(float(c)) for c in coef]
    scores = [sum((k * w for k, w in zip(row, weights, strict=True)), arb(0)) for row in K]
    return [
        problem.loss.slope_in_balls(score, ball(float(t))) / len(coef) + ball(problem.strength) * w
        for score, t, w in zip(scores, problem.target, weights, strict=True)
    ]


def exact_norm(problem: DualProblem, coef: np.ndarray, change: np.ndarray | None = None) -> float:
    """The norm of the exact gradient, from above."""
    with precision(200):
        r = exact_residual(problem, coef, change)
        K = problem.gram.values if change is None else problem.gram.values.astype(np.longdouble) + change
        square = sum((r[i] * r[j] * _ball(K[i, j]) for i in range(len(r)) for j in range(len(r))), arb(0))
        return float(square.upper().max(arb(0)).sqrt().upper())


def _ball(number) -> arb:
    """A long double, exactly: its double and the rest."""
    near = float(number)
    return ball(near) + ball(float(number - np.longdouble(near)))


def exact_sum(problem: DualProblem, coef: np.ndarray, change: np.ndarray | None = None) -> float:
    """R ||r||_1, which the certificate is meant to be."""
    with precision(200):
        return float((ball(problem.gram.norm) * sum(map(abs, exact_residual(problem, coef, change)), arb(0))).upper())


# ---------------------------------------------------------------- certificates


@every_loss
@pytest.mark.parametrize("name", SHAPES)
def test_the_certificate_holds_in_balls(loss, name):
    for seed in range(3):
        problem = make_problem(loss, name, seed=seed)
        target = reachable(problem)
        solution = minimise_dual(problem, target)
        assert exact_norm(problem, solution.coef) <= solution.certificate <= target
        assert target < 0.1 * problem.loss.lipschitz * problem.gram.norm  # at zero it can be as large as this


@every_loss
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("name", ["generic", "repeated", "badly scaled"])
def test_the_bound_at_any_point_holds_and_is_no_looser_than_its_rounding(loss, size, name):
    problem = make_problem(loss, name)
    coef = size * np.random.default_rng(1).normal(size=problem.gram.n)
    point = problem.at(coef)
    assert exact_norm(problem, coef) <= point.bound
    wanted = exact_sum(problem, coef)
    assert wanted <= point.bound <= wanted * (1 + 1e-13) + 2.1 * point.rounding
    # And the rounding is one: far below what it is the rounding of.
    assert point.rounding <= 1e-12 * problem.gram.norm * (1 + size) * (1 + problem.strength + problem.gram.norm**2)


@every_loss
def test_for_one_record_the_bound_is_the_norm(loss):
    problem = make_problem(loss, "one")
    for coef in ([0.0], [0.3], [-2.0]):
        point, exact = problem.at(np.array(coef)), exact_norm(problem, np.array(coef))
        assert exact <= point.bound <= exact + 2.1 * point.rounding


@every_loss
def test_a_point_knows_its_value_and_its_gradient(loss):
    problem = make_problem(loss)
    generator = np.random.default_rng(2)
    coef, way = generator.normal(size=12), generator.normal(size=12)
    K, y = problem.gram.values, problem.target

    def objective(c: np.ndarray) -> float:
        return float(loss.value(K @ c, y).mean() + problem.strength / 2 * c @ K @ c)

    point = problem.at(coef)
    assert point.value == pytest.approx(objective(coef), rel=1e-12)
    slope = (objective(coef + 1e-6 * way) - objective(coef - 1e-6 * way)) / 2e-6
    assert point.gradient @ way == pytest.approx(slope, rel=1e-4, abs=1e-6)


# ---------------------------------------------------------------- what floats lose


@every_loss
def test_kernel_values_off_by_the_declared_error_are_covered(loss):
    """A solver sees K; the kernel's exact values are K + E, every entry off by the whole error, in the worst way."""
    error = 1e-7
    for seed in range(5):
        X = points("generic", seed=seed)
        norm = math.sqrt(np.square(X).sum(axis=1).max() + error)
        problem = DualProblem(Matrix.of(X @ X.T, norm, error), targets(loss, 12, seed), loss, 0.05)
        solution = minimise_dual(problem, reachable(problem))
        signs = np.where(solution.coef < 0, -1.0, 1.0)
        # Positive semidefinite, so this is a kernel's matrix too.
        assert exact_norm(problem, solution.coef, error * np.outer(signs, signs)) <= solution.certificate
        for sides in (signs, -signs, problem.target / np.abs(problem.target), np.ones(12)):
            worst = error * np.outer(sides, signs)
            assert exact_sum(problem, solution.coef, worst) <= problem.at(solution.coef).bound


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.25, 1.0)], ids=repr)
def test_the_declared_error_can_cost_nearly_all_of_the_rounding(loss):
    """All points equal and far from the loss's ends: with four fifths of the rounding the bound would be wrong."""
    error, n = 1e-7, 10
    target = np.full(n, 1.0 if loss.classifies else 0.2)
    problem = DualProblem(Matrix.of(np.ones((n, n)), 1.0 + error, error), target, loss, 4.0)
    # Nothing is left but what the error makes.
    exactly = DualProblem(Matrix.of(np.ones((n, n))), target, loss, 4.0)
    coef = minimise_dual(exactly, 1e-13).coef
    point = problem.at(coef)
    moved = exact_norm(problem, coef, np.full((n, n), error))
    assert 0.8 * point.rounding <= moved <= point.bound
    assert point.rounding == pytest.approx(loss.smoothness * error * np.abs(coef).sum(), rel=0.02)


def test_the_rounding_counts_slopes_and_sums():
    """Without any error of kernel values: that of the slope, and of adding two numbers."""
    gram = Matrix(np.eye(1), 2.0, 0.0)
    loss, size = Huber(0.25, 1.0), 3.0
    expected = 2.0 * (loss.slope_rounding(1.0) + 4 * UNIT * (0.25 + 5.0 * size))
    assert expected <= dual_rounding(loss, gram, 5.0, size, 1.0) <= 1.02 * expected


# ---------------------------------------------------------------- the minimum


@every_loss
def test_the_minimum_is_that_of_another_solver(loss):
    generator = np.random.default_rng(3)
    X = generator.normal(size=(25, 2))
    K = RBF(0.5).matrix(X, X)
    problem = DualProblem(Matrix.of(K, 1.0), targets(loss, 25), loss, 0.05)
    solution = minimise_dual(problem, 1e-9)

    def objective(coef: np.ndarray) -> tuple[float, np.ndarray]:
        point = problem.at(coef)
        return point.value, point.gradient

    other = minimize(objective, np.zeros(25), jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    assert problem.at(solution.coef).value <= other.fun + 1e-12
    np.testing.assert_allclose(K @ solution.coef, K @ other.x, atol=2e-3)


@every_loss
@pytest.mark.parametrize("kernel", [Linear(2.0), Polynomial(2, 1.0, 2.0), Polynomial(3, 0.0, 2.0)], ids=repr)
@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_the_primal_finds_the_same_minimiser(loss, kernel, strength):
    """Strong convexity: two points of certified gradient norms c1 and c2 are within (c1 + c2) / strength."""
    X = np.random.default_rng(4).normal(size=(80, 3)) / 2
    kernel_points, _ = kernel.inside(kernel.points(X))
    y, weight = targets(loss, 80), strength * kernel.bound**2 / 10
    own = (Identity if isinstance(kernel, Linear) else Monomials)(kernel, 3)
    features = own.table(kernel_points)
    by_features = minimise(Problem(as_rows(features, y, Bounds(own.bound, intercept=0.0)), loss, weight), 1e-9)
    gram = Matrix.of(kernel.matrix(kernel_points, kernel_points), kernel.bound, kernel.rounding(3))
    problem = DualProblem(gram, y, loss, weight)
    by_values = minimise_dual(problem, reachable(problem, 1e-9))
    apart = np.linalg.norm(features.T @ by_values.coef - by_features.coef)
    allowed = (by_features.certificate + by_values.certificate) / weight
    assert apart <= allowed + 1e-14 * np.linalg.norm(by_features.coef)
    assert allowed < 1e-4 * np.linalg.norm(by_features.coef)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.25, 1.0)], ids=repr)
def test_few_looks_are_enough(loss):
    """Newton's steps, not steepest descent's: seven digits in a dozen looks at two hundred points."""
    X = np.random.default_rng(5).normal(size=(200, 3))
    problem = DualProblem(Matrix.of(RBF(0.5).matrix(X, X), 1.0), targets(loss, 200), loss, 0.01)
    looks = count_looks(problem, 1e-8)
    assert 3 <= looks <= 15


def count_looks(problem: DualProblem, target: float, limit: int = 500) -> int:
    looks = []

    class Counted(DualProblem):
        def at(self, coef):
            looks.append(1)
            return super().at(coef)

    minimise_dual(Counted(problem.gram, problem.target, problem.loss, problem.strength), target, limit=limit)
    return len(looks)


@every_loss
def test_too_small_a_limit_is_an_error_and_no_coefficients(loss):
    problem = make_problem(loss)
    looks = count_looks(problem, 1e-10)
    assert looks > 2
    assert count_looks(problem, 1e-10, limit=looks) == looks
    for limit in (1, looks - 1):
        with pytest.raises(ConvergenceError, match="nothing was released"):
            minimise_dual(problem, 1e-10, limit=limit)


def test_a_target_below_the_rounding_is_an_error():
    problem = make_problem(Logistic())
    with pytest.raises(ConvergenceError, match="nothing was released"):
        minimise_dual(problem, 1e-30, limit=60)


def test_kernel_values_beyond_the_doubles_are_an_error():
    problem = DualProblem(Matrix(np.full((2, 2), np.nan), 1.0, 1e-15), np.ones(2), Logistic(), 1.0)
    with np.errstate(invalid="ignore"), pytest.raises(ConvergenceError, match="nothing was released"):
        minimise_dual(problem, 1e-3, limit=30)


def test_progress_is_reported():
    seen: list[float] = []
    solution = minimise_dual(make_problem(Logistic()), 1e-10, progress=seen.append)
    assert seen[-1] == solution.certificate <= 1e-10
    assert len(seen) > 2


@every_loss
@pytest.mark.parametrize("strength", [10.0, 0.1, 1e-3])
def test_singular_matrices_of_every_kind_are_solved(loss, strength):
    """Also many times as many points as dimensions, and weak regularisation."""
    for name in SHAPES:
        for seed in range(4):
            problem = make_problem(loss, name, strength, n=20, seed=seed)
            assert minimise_dual(problem, reachable(problem)).certificate <= reachable(problem)


def test_losses_with_kinks_do_not_cycle():
    generator = np.random.default_rng(6)
    for i in range(150):
        n = int(generator.integers(1, 8))
        loss = [HuberisedHinge(10 ** generator.uniform(-3, 0.2)), Huber(10 ** generator.uniform(-2, 0.5), 1.0)][i % 2]
        X = eighths(generator, n, int(generator.integers(1, 4)))
        gram = Matrix.of(X @ X.T)
        problem = DualProblem(gram, targets(loss, n, i), loss, 10 ** generator.uniform(-2.5, 0.5) * gram.norm**2)
        solution = minimise_dual(problem, reachable(problem))
        if i % 10 == 0:
            assert exact_norm(problem, solution.coef) <= solution.certificate


@every_loss
@pytest.mark.parametrize("strength", [1e-5, 1e-6])
def test_weak_regularisation_is_solved_too(loss, strength):
    """Whether a solver gives up depends on the data, and comes after the debit: it must not, at any strength.

    The step's equation is solved to a share of its right-hand side; what is left is multiplied by up to
    smoothness R**2 / strength on its way to the residual.
    """
    for seed in range(6):
        X = np.random.default_rng(seed).normal(size=(30, 2))
        y = np.sign(X[:, 0] + 0.3 * X[:, 1]) if loss.classifies else np.clip(X[:, 0] / 3, -1, 1)
        problem = DualProblem(Matrix.of(RBF(0.5).matrix(X, X), 1.0), y, loss, strength)
        assert minimise_dual(problem, reachable(problem)).certificate <= reachable(problem)


def test_conjugate_gradients_solve_to_the_share_asked_for():
    generator = np.random.default_rng(7)
    root = generator.normal(size=(30, 30))
    matrix, wanted = root @ root.T + np.eye(30), generator.normal(size=30)
    rough, fine = (dual._conjugate_gradients(lambda v: matrix @ v, wanted, share) for share in (0.1, 1e-8))
    assert np.linalg.norm(matrix @ rough - wanted) <= 0.1001 * np.linalg.norm(wanted)
    assert np.linalg.norm(matrix @ fine - wanted) <= 1.01e-8 * np.linalg.norm(wanted)
    assert np.linalg.norm(matrix @ rough - wanted) > 1e-6 * np.linalg.norm(wanted)
