"""The minimiser in both its homes: how far it moves between neighbours, and how exact its values and its norm are."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from flint import arb
from scipy import sparse

from epsilearn.balls import ball, precision
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.errors import ConvergenceError, InvalidInput
from epsilearn.kernel import (
    RBF,
    GaussianProcessRelease,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    SemiInteractiveLearner,
    UserKernel,
    erm,
    kernels,
)
from epsilearn.kernel.erm import FeatureProblem, GramProblem
from epsilearn.kernel.features import Fourier, Landmarks, exact_map
from epsilearn.losses import Huber, HuberisedHinge, Logistic

LOSSES = [Logistic(), HuberisedHinge(0.5), Huber(0.25, 1.0)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
HOMES = ["gram", "features"]
every_home = pytest.mark.parametrize("home", HOMES)


def make_problem(home: str, kernel, X, y, loss, strength):
    points = kernel.points(X)
    if home == "gram":
        return GramProblem(kernel, points, y, loss, strength)
    return FeatureProblem(exact_map(kernel, kernel.width(points)), points, y, loss, strength)


def targets(loss, n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.choice([-1.0, 1.0], n) if loss.classifies else generator.uniform(-1, 1, n)


def apart(one, other) -> float:
    """The distance of two minimisers in the kernel's norm, through kernel values or weights."""
    if hasattr(one, "weights"):
        return float(np.linalg.norm(one.weights - other.weights))
    points, coef = one.kernel.join([one.points, other.points]), np.append(one.coef, -other.coef)
    K = one.kernel.matrix(points, points).astype(np.longdouble)
    return float(np.sqrt(max(0.0, coef @ K @ coef)))


# ---------------------------------------------------------------- neighbours


def replacements(loss, width: int) -> list[tuple[np.ndarray, float]]:
    """Records at their worst: at the bound with either label or target, at zero, and mirrored at an angle."""
    ends = [-1.0, 1.0]
    unit, slanted = np.eye(width)[0], np.full(width, width**-0.5)
    points = [unit, -unit, slanted, np.zeros(width)]
    return [(point, end) for point in points for end in ends]


def moves(home: str, kernel, loss, n: int, strength: float, width: int, others: str, length: float = 1.0):
    """How far the minimiser moves between any two of the replaced records, as shares of the promised sensitivity."""
    generator = np.random.default_rng(n)
    X = np.zeros((n, width)) if others == "zero" else generator.normal(size=(n, width)) / 2
    y = targets(loss, n)
    found = []
    for point, target in replacements(loss, width):
        X[0], y[0] = length * point, target
        problem = make_problem(home, kernel, X.copy(), y.copy(), loss, strength)
        found.append(problem.solve())
    promised = problem.stability.sensitivity
    return np.array([apart(one, other) / promised for one, other in itertools.combinations(found, 2)])


@every_home
@every_loss
@pytest.mark.parametrize("strength", [10.0, 0.3, 0.01])
@pytest.mark.parametrize("n", [2, 10, 30])
def test_no_neighbours_minimisers_are_further_apart_than_promised(home, loss, strength, n):
    """Rows longer than the bound among them."""
    for kernel in (Linear(1.0), Polynomial(2, 1.0, 1.0)):
        for others in ("zero", "random"):
            shares = moves(home, kernel, loss, n, strength * kernel.bound**2, 2, others, length=3.0)
            assert shares.max() <= 1


@every_loss
@pytest.mark.parametrize("strength", [1.0, 0.01])
@pytest.mark.parametrize("kernel", [RBF(1.0), Laplacian(0.5)], ids=repr)
def test_nor_for_kernels_without_a_map(loss, strength, kernel):
    for n in (2, 7, 30):
        for others in ("zero", "random"):
            assert moves("gram", kernel, loss, n, strength, 2, others, length=2.0).max() <= 1


@every_home
def test_the_promise_is_nearly_attained(home):
    """Logistic loss in one dimension, opposite labels at the bound: 98 % where alpha is large, less where it is not."""
    for n, strength, least in ((2, 10.0, 0.97), (5, 10.0, 0.98), (2, 1.0, 0.85), (3, 0.3, 0.7), (10, 0.1, 0.64)):
        shares = moves(home, Linear(1.0), Logistic(), n, strength, 1, "zero")
        assert shares.max() >= least, (n, strength)


@every_home
@every_loss
def test_the_promise_is_nearly_attained_by_every_loss(home, loss):
    shares = moves(home, Linear(1.0), loss, 4, 4.0, 1, "zero")
    assert 0.95 <= shares.max() <= 1


@every_home
@every_loss
def test_the_sensitivity_counts_the_certificate_and_little_else(home, loss):
    problem = make_problem(home, Linear(1.0), np.eye(5), targets(loss, 5), loss, 0.1)
    stability = problem.stability
    exactly = minimiser_sensitivity(loss, 5, 1.0, 0.1)
    assert stability.sensitivity >= exactly + 2 * stability.certificate / 0.1
    assert stability.sensitivity <= 1.0101 * exactly
    problem = make_problem(home, Linear(1.0), np.eye(5), targets(loss, 5), loss, 0.1)
    assert problem.stability == stability  # public numbers, before and after anything is solved


@every_loss
def test_what_is_public_is_the_same_for_any_records(loss):
    """Whatever the records are: only their number, the bound and the number of columns count."""
    for home, kernel in (("gram", RBF(1.0)), ("gram", Linear(1.0)), ("features", Polynomial(2, 1.0, 1.0))):
        tables = [np.zeros((6, 3)), 1e200 * np.ones((6, 3)), np.random.default_rng(0).normal(size=(6, 3))]
        found = {make_problem(home, kernel, X, targets(loss, 6, i), loss, 0.1).stability for i, X in enumerate(tables)}
        assert len(found) == 1


# ---------------------------------------------------------------- values


def exact_kernel(kernel, x, y) -> arb:
    pairs = [(ball(float(a)), ball(float(b))) for a, b in zip(x, y, strict=True)]
    if isinstance(kernel, RBF):
        return (-ball(kernel.gamma) * sum(((a - b) ** 2 for a, b in pairs), arb(0))).exp()
    if isinstance(kernel, Laplacian):
        return (-ball(kernel.gamma) * sum((abs(a - b) for a, b in pairs), arb(0))).exp()
    if isinstance(kernel, HistogramIntersection):
        return sum((a.min(b) for a, b in pairs), arb(0))
    product = sum((a * b for a, b in pairs), arb(0))
    return product if isinstance(kernel, Linear) else (product + ball(kernel.constant)) ** kernel.degree


ON_ROWS = [RBF(0.5), Laplacian(0.5), Linear(1.0), Polynomial(3, 1.0, 1.0), HistogramIntersection(1.0)]


@pytest.mark.parametrize("kernel", ON_ROWS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("strength", [1.0, 1e-3])
def test_values_from_kernel_values_are_as_exact_as_promised(kernel, strength):
    generator = np.random.default_rng(1)
    X, Z = generator.dirichlet(np.ones(20), 25), generator.dirichlet(np.ones(20), 5)
    problem = GramProblem(kernel, kernel.points(X), targets(Logistic(), 25), Logistic(), strength * kernel.bound**2)
    minimum = problem.solve()
    found = minimum.values(kernel.points(Z))
    with precision(200):
        for z, value in zip(Z, found, strict=True):
            terms = (
                ball(float(c)) * exact_kernel(kernel, z, x) for c, x in zip(minimum.coef, minimum.points, strict=True)
            )
            assert abs(ball(float(value)) - sum(terms, arb(0))) <= problem.stability.value_error
    # A rounding, next to what the values tell apart.
    assert problem.stability.value_error < 1e-9 * problem.stability.sensitivity * kernel.bound


@pytest.mark.parametrize("kernel", [Linear(1.0), Polynomial(3, 1.0, 1.0), RBF(0.5)], ids=repr)
def test_values_from_features_are_as_exact_as_promised(kernel):
    """The features at a public point are what they are in floats; a value is their product with the weights."""
    generator = np.random.default_rng(2)
    X, Z = generator.dirichlet(np.ones(20), 60), generator.dirichlet(np.ones(20), 5)
    own = exact_map(kernel, 20) or Landmarks(kernel, Z)
    problem = FeatureProblem(own, kernel.points(X), targets(Logistic(), 60), Logistic(), 1e-2)
    minimum = problem.solve()
    psi = sparse.csr_array(own.features(Z)).toarray()
    with precision(200):
        for row, value in zip(psi, minimum.values(Z), strict=True):
            terms = (ball(float(a)) * ball(float(b)) for a, b in zip(row, minimum.weights, strict=True) if a)
            assert abs(ball(float(value)) - sum(terms, arb(0))) <= problem.stability.value_error
    assert problem.stability.value_error < 1e-8 * problem.stability.sensitivity * own.bound


def test_a_kernel_as_inexact_as_it_says_is_covered():
    """Kernel values that err by all they are declared to err by, every one in the direction that hurts."""
    accuracy, generator = 1e-6, np.random.default_rng(3)
    X = generator.uniform(-0.6, 0.6, size=(20, 2))
    y = targets(Logistic(), 20)

    def inexact(a, b):
        return float(np.dot(a, b)) + accuracy

    problem = GramProblem(UserKernel(inexact, 1.0, accuracy), list(X), y, Logistic(), 0.1)
    minimum = problem.solve()
    Z = generator.uniform(-0.6, 0.6, size=(9, 2))
    exact = Z @ X.T @ minimum.coef
    worst = np.abs(minimum.values(list(Z)) - exact).max()
    assert worst == pytest.approx(accuracy * abs(minimum.coef.sum()), rel=1e-6)
    size = accuracy * np.abs(minimum.coef).sum()
    assert worst <= size <= problem.stability.value_error <= 4 * size
    # And the certificate is for the exact kernel.
    residual = Logistic().slope(X @ X.T @ minimum.coef, y) / 20 + 0.1 * minimum.coef
    assert np.linalg.norm(residual @ X) <= problem.stability.certificate


def test_values_at_many_points_hold_few_kernel_values_at_a_time(monkeypatch):
    generator = np.random.default_rng(4)
    X, Z = generator.normal(size=(30, 2)), generator.normal(size=(101, 2))
    minimum = GramProblem(RBF(1.0), X, targets(Logistic(), 30), Logistic(), 0.1).solve()
    whole, asked, own = minimum.values(Z), [], RBF.matrix
    monkeypatch.setattr(kernels, "_BLOCK", 7 * 30 + 1)
    monkeypatch.setattr(RBF, "matrix", lambda self, *pair: asked.append([len(p) for p in pair]) or own(self, *pair))
    np.testing.assert_allclose(minimum.values(Z), whole, atol=1e-13)
    assert max(asked) == [7, 30]
    assert len(asked) == 15
    np.testing.assert_allclose(whole, RBF(1.0).matrix(Z, X) @ minimum.coef, atol=1e-13)


# ---------------------------------------------------------------- norms


@every_loss
@pytest.mark.parametrize("kernel", [RBF(0.5), Linear(1.0), Polynomial(2, 1.0, 1.0)], ids=repr)
@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_the_computed_norm_is_as_exact_as_promised(loss, kernel, strength):
    X = np.random.default_rng(5).normal(size=(15, 2))
    strength = strength * kernel.bound**2
    problem = GramProblem(kernel, kernel.points(X), targets(loss, 15), loss, strength)
    minimum, stability = problem.solve(), problem.stability
    points, coef = minimum.points, [ball(float(c)) for c in minimum.coef]
    with precision(200):
        square = sum(
            (a * b * exact_kernel(kernel, x, z) for a, x in zip(coef, points, strict=True) for b, z in
             zip(coef, points, strict=True)),
            arb(0),
        )  # fmt: skip
        true = square.sqrt()
        assert true >= stability.norm_floor
        assert abs(ball(minimum.norm()) - true) <= stability.norm_error
        assert true <= stability.norm + stability.certificate / strength
    assert stability.norm_error < 1e-9 * stability.norm
    assert stability.norm_floor == stability.norm / 100


@every_loss
def test_the_norm_of_weights_is_as_exact_as_promised(loss):
    X = np.random.default_rng(6).normal(size=(15, 3))
    problem = make_problem("features", Polynomial(2, 1.0, 1.0), X, targets(loss, 15), loss, 0.1)
    minimum, stability = problem.solve(), problem.stability
    with precision(200):
        true = sum((ball(float(w)) ** 2 for w in minimum.weights), arb(0)).sqrt()
        assert abs(ball(minimum.norm()) - true) <= stability.norm_error
        assert true <= stability.norm + stability.certificate / 0.1
    assert stability.norm_error < 1e-12 * stability.norm


def test_the_norm_is_that_of_the_factors_features_where_points_are_scaled_down():
    kernel = UserKernel(lambda a, b: float(np.dot(a, b)), 1.0)
    X = [np.array([3.0, 4.0]), np.array([0.3, 0.4]), np.array([0.0, -2.0])]
    minimum = GramProblem(kernel, X, np.array([1.0, -1.0, 1.0]), Logistic(), 0.1).solve()
    inside = np.array([x / max(1.0, np.linalg.norm(x)) for x in X])
    weights = sum(c * x for c, x in zip(minimum.coef * minimum.factors, X, strict=True))
    assert minimum.norm() == pytest.approx(np.linalg.norm(weights), rel=1e-9)
    slopes = Logistic().slope(inside @ weights, np.array([1.0, -1.0, 1.0]))
    np.testing.assert_allclose(weights, -(slopes @ inside) / (3 * 0.1), atol=0.05)


# ---------------------------------------------------------------- points beyond the bound


def beyond(kernel) -> tuple[np.ndarray, np.ndarray]:
    """Rows up to ten times too long, and the same rows at the bound."""
    generator = np.random.default_rng(7)
    X = np.abs(generator.normal(size=(20, 3))) * 10 ** generator.uniform(-1, 0.7, size=(20, 1))
    if isinstance(kernel, HistogramIntersection):
        return X, X * np.minimum(1.0, kernel.mass / X.sum(axis=1))[:, None]
    return X, X * np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]


@pytest.mark.parametrize(
    ("home", "kernel"),
    [
        ("gram", Linear(1.0)),
        ("features", Linear(1.0)),
        ("gram", Polynomial(2, 1.0, 1.0)),
        ("features", Polynomial(2, 1.0, 1.0)),
        ("gram", HistogramIntersection(1.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_rows_beyond_the_bound_are_brought_inside_without_a_word(home, kernel):
    X, shorter = beyond(kernel)
    y, strength, Z = targets(Logistic(), 20), 0.1 * kernel.bound**2, kernel.points(shorter[:6])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        long, short = (make_problem(home, kernel, table, y, Logistic(), strength) for table in (X, shorter))
        found, expected = long.solve().values(Z), short.solve().values(Z)
    allowed = kernel.bound * 2 * (long.stability.certificate / strength + 1e-8 / strength * kernel.bound)
    assert np.abs(found - expected).max() <= allowed
    assert np.abs(expected).max() > 20 * allowed


DOT = UserKernel(lambda a, b: float(np.dot(a, b)), 1.0)


@every_home
@pytest.mark.parametrize("form", ["function", "precomputed"])
def test_points_of_any_kind_beyond_the_bound_are_as_if_their_features_were_scaled(home, form):
    """Where a kernel is all there is: K(x, y) becomes a_x a_y K(x, y), in either home."""
    X, shorter = beyond(Linear(1.0))
    y, strength = targets(Logistic(), 20), 0.1
    Z = np.eye(3)[:2]  # landmarks that see only a part of each point
    if form == "function":
        kernel, prescaled = DOT, DOT
        tables, public = (list(X), list(shorter)), list(Z)
    else:
        kernel, prescaled = (Precomputed(t @ t.T, 1.0) for t in (np.vstack([X, Z]), np.vstack([shorter, Z])))
        tables, public = (np.arange(20),) * 2, np.array([20, 21])
    values, problems = [], []
    for one, points in zip((kernel, prescaled), tables, strict=True):
        if home == "gram":
            problem = GramProblem(one, points, y, Logistic(), strength)
        else:
            problem = FeatureProblem(Landmarks(one, public), points, y, Logistic(), strength)
        problems.append(problem)
        values.append(problem.solve().values(public))
    allowed = 2 * problems[0].stability.certificate / strength + 1e-6
    assert np.abs(values[0] - values[1]).max() <= allowed
    assert np.abs(values[1]).max() > 5 * allowed


# ---------------------------------------------------------------- sizes


def test_more_than_twenty_thousand_rows_need_landmarks():
    X = np.linspace(-1, 1, 20_001)[:, None]
    y = np.where(X[:, 0] > 0.3, 1.0, -1.0)
    assert GramProblem(RBF(1.0), X[:-1], y[:-1], Logistic(), 0.1).n == 20_000
    with pytest.raises(InvalidInput, match="20001 rows are too many"):
        GramProblem(RBF(1.0), X, y, Logistic(), 0.1)
    model = GaussianProcessRelease(kernel=RBF(1.0), classes=[-1, 1])
    with pytest.raises(InvalidInput, match=r"20001 rows are too many.*landmarks"):
        model.fit(X, y)
    landmarks = np.linspace(-1, 1, 5)[:, None]
    public = {"public_points": landmarks, "alpha": 0.01, "epsilon": 10.0, "classes": [-1, 1], "random_state": 0}
    assert SemiInteractiveLearner(kernel=RBF(1.0), landmarks=landmarks, **public).fit(X, y).score(X, y) > 0.8
    # A kernel with a finite map of its own needs none.
    assert SemiInteractiveLearner(kernel=Linear(1.0), **public).fit(X, y).score(X, y) > 0.5


def test_a_solver_that_gives_up_is_an_error(monkeypatch):
    for home, name in (("gram", "minimise_dual"), ("features", "minimise")):
        own = getattr(erm, name)
        monkeypatch.setattr(erm, name, lambda p, target, own=own, **o: own(p, target, **{**o, "limit": 1}))
        problem = make_problem(home, Linear(1.0), np.eye(5), np.ones(5), Logistic(), 0.01)
        with pytest.raises(ConvergenceError, match="nothing was released"):
            problem.solve()


@every_home
def test_another_strength_is_another_problem_on_the_same_records(home):
    X = np.random.default_rng(10).normal(size=(12, 2))
    y = targets(Logistic(), 12)
    weak, strong = (make_problem(home, Linear(1.0), X, y, Logistic(), strength) for strength in (0.1, 1.0))
    changed = weak.with_strength(1.0)
    assert changed.stability == strong.stability != weak.stability
    assert (weak.strength, changed.strength) == (0.1, 1.0)
    np.testing.assert_array_equal(changed.solve().values(X), strong.solve().values(X))
    assert np.abs(weak.solve().values(X)).max() > 2 * np.abs(changed.solve().values(X)).max()


@every_loss
def test_both_homes_find_the_same_function(loss):
    X = np.random.default_rng(8).normal(size=(40, 3))
    kernel = Polynomial(2, 1.0, 1.5)
    problems = [make_problem(home, kernel, X, targets(loss, 40), loss, 0.5) for home in HOMES]
    Z = kernel.points(X[np.linalg.norm(X, axis=1) < 1.5])
    one, two = (problem.solve().values(Z) for problem in problems)
    allowed = sum(problem.stability.certificate for problem in problems) / 0.5 * kernel.bound
    assert np.abs(one - two).max() <= allowed
    assert np.abs(one).max() > 5 * allowed


def test_a_value_at_a_public_point_moves_by_sensitivity_times_length_and_its_rounding():
    stability = make_problem("gram", Linear(2.0), np.eye(3), np.ones(3), Logistic(), 0.1).stability
    # A public point may be longer than the bound by what floats cannot see.
    wanted = 2.0 * (1 + 2.0**-30) * stability.sensitivity + 2 * stability.value_error
    assert wanted < stability.value_sensitivity(2.0) <= wanted * (1 + 1e-8)


def test_random_features_make_a_problem_too():
    X = np.random.default_rng(9).normal(size=(50, 2))
    problem = FeatureProblem(Fourier(RBF(1.0), 2, 20), X, np.sign(X[:, 0]), Logistic(), 0.1)
    assert problem.bound == pytest.approx(1.0)
    assert problem.kernel == RBF(1.0)
    assert problem.solve().norm() <= problem.stability.norm + problem.stability.certificate / 0.1
    assert math.isfinite(problem.stability.sensitivity)
