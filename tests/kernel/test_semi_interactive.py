"""The semi-interactive learner: the law of what leaves, its promise attained, and predictions from public points."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from epsilearn.accounting import GaussianShift, LaplaceShift, Pure
from epsilearn.calibration.additive import gaussian_delta, gaussian_shift
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput
from epsilearn.kernel import (
    RBF,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    SemiInteractiveLearner,
    UserKernel,
    semi_interactive,
)
from epsilearn.kernel.hypothesis import Hypothesis
from epsilearn.kernel.semi_interactive import laplace_each, least_squares_in_ball, public_whitening

GENERATOR = np.random.default_rng(0)
KERNELS = {
    "linear": Linear(1.0),
    "polynomial": Polynomial(2, 1.0, 1.0),
    "rbf": RBF(1.0),
    "laplacian": Laplacian(0.5),
    "landmarks": RBF(1.0),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def inside(generator: np.random.Generator, n: int, d: int = 2) -> np.ndarray:
    X = generator.normal(size=(n, d))
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]


def learner(name: str, points: int = 9, **changes: Any) -> SemiInteractiveLearner:
    Z = inside(np.random.default_rng(1), points)
    options: dict[str, Any] = {
        "kernel": KERNELS[name],
        "public_points": Z,
        "alpha": 0.1 * KERNELS[name].bound ** 2,
        "classes": [-1, 1],
        "landmarks": inside(np.random.default_rng(2), 5) if name == "landmarks" else None,
    }
    return SemiInteractiveLearner(**{**options, **changes})


def table(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(100 + seed)
    X = inside(generator, n)
    return X, np.where(X[:, 0] + 0.3 * generator.normal(size=n) > 0, 1, -1)


def planned(model: SemiInteractiveLearner, X: np.ndarray, y: np.ndarray):
    """The plan of a fit, its problem, and the public points with their Gram matrix."""
    problem, _ = model._problem(X, y, {})
    function = Hypothesis(model.kernel_, problem.features)
    points = model.kernel_.points(model.public_points)
    gram = function.gram(points)
    tight = model.calibration == "tight"
    plan = (semi_interactive._plan_tight if tight else semi_interactive._plan_printed)(model, problem, gram)
    return plan, problem, points, gram


def longest(plan: Any, gram: np.ndarray) -> float:
    """The largest ||A f_Z|| over functions of norm 1: the square root of the largest eigenvalue of A K A'."""
    A = plan.whitening.astype(np.longdouble)
    return math.sqrt(largest_eigenvalue(A @ gram.astype(np.longdouble) @ A.T))


def largest_eigenvalue(product: np.ndarray) -> float:
    """Of a matrix near 1, in long doubles: what it is beyond 1 fits into doubles."""
    off = np.asarray(product - np.eye(len(product), dtype=np.longdouble))
    return 1.0 + float(np.linalg.eigvalsh(np.asarray((off + off.T) / 2, np.float64))[-1])


# ---------------------------------------------------------------- the law of what leaves


@every_kernel
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_what_leaves_is_coordinates_of_the_values_with_isotropic_noise(name, delta, monkeypatch):
    X, y = table()
    seen = []
    own = semi_interactive.add_noise
    monkeypatch.setattr(
        semi_interactive, "add_noise", lambda *asked: seen.append((*asked, own(*asked))) or seen[-1][-1]
    )
    model = learner(name, delta=delta).fit(X, y)
    ((values, law, _, noisy),) = seen
    plan, problem, points, _ = planned(learner(name, delta=delta), X, y)
    assert law == plan.law == model.noise_
    assert law.kind == ("gaussian" if delta else "k-norm")
    assert law.dimension == len(values) == len(plan.whitening)
    np.testing.assert_array_equal(values, plan.whitening @ problem.solve().values(points))
    # Nothing else is looked at: the coefficients are a function of the noisy coordinates.
    np.testing.assert_array_equal(model.dual_coef_, plan.coefficients(noisy))


def test_the_noise_in_the_coordinates_is_as_large_as_said_and_has_no_direction():
    """Forty seeds, nine coordinates; the released function is read back in its coordinates."""
    X, y = table()
    model = learner("rbf", epsilon=20.0)
    plan, problem, points, gram = planned(model, X, y)
    expected = plan.whitening @ problem.solve().values(points)
    back = plan.whitening @ gram
    drawn = np.array([back @ learner("rbf", epsilon=20.0, random_state=s).fit(X, y).dual_coef_ for s in range(40)])
    off = (drawn - expected) / plan.law.scale
    assert off.shape == (40, 9)
    assert np.abs(off.mean(axis=0)).max() < 4 / math.sqrt(40)
    assert np.mean(off**2) == pytest.approx(1.0, abs=4 * math.sqrt(2 / off.size))
    among = np.corrcoef(off.T)[np.triu_indices(9, 1)]
    assert np.abs(among).max() < 4.5 / math.sqrt(40)


def neighbours(n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tables that differ in one record, at its worst: at the bound with either label, across, or at zero."""
    X, y = table(n)
    X[1:] = 0.0 if n < 5 else X[1:]
    found = []
    for point, label in itertools.product(([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]), (-1, 1)):
        X[0], y[0] = point, label
        found.append((X.copy(), y.copy()))
    return found


@every_kernel
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "huber"])
def test_no_neighbours_are_told_apart_better_than_promised(name, delta, loss):
    for n, strength in ((3, 10.0), (30, 0.05)):
        bound = KERNELS[name].bound
        model = learner(name, delta=delta, loss=loss, alpha=strength * bound**2, target_bound=1.0, epsilon=0.7)
        released = []
        for X, y in neighbours(n):
            plan, problem, points, _ = planned(model, X, y)
            released.append(plan.released(problem.solve().values(points)))
        moved = max(np.linalg.norm(one - two) for one, two in itertools.combinations(released, 2)) / plan.law.scale
        if delta:
            assert moved <= plan.promise.curve.shift
            assert gaussian_delta(moved, 0.7).upper() <= delta
        else:
            assert moved <= 0.7
        promised = plan.promise.curve.shift if delta else 0.7
        # Linear functions are seen whole at nine points; of others only a part may be.
        assert moved > (0.9 if strength == 10.0 and name == "linear" else 0.05) * promised


@every_kernel
@pytest.mark.parametrize("people", [1, 3])
def test_the_gaussian_promise_is_attained_by_the_worst_function(name, people):
    """Exact (epsilon, delta) of the shift: 5 % less noise breaks the promise."""
    epsilon, delta = 0.5, 1e-6
    model = learner(name, epsilon=epsilon, delta=delta, rows_per_person=people)
    plan, problem, _, gram = planned(model, *table())
    worst = people * problem.stability.sensitivity * longest(plan, gram)
    assert 0.98 * plan.promise.curve.shift <= worst / plan.law.scale <= plan.promise.curve.shift
    assert isinstance(plan.promise.curve, GaussianShift)
    assert plan.promise.curve.shift <= gaussian_shift(epsilon, delta) * (1 + 1e-12)
    assert gaussian_delta(worst / plan.law.scale, epsilon).upper() <= delta
    assert gaussian_delta(worst / (0.95 * plan.law.scale), epsilon).lower() > delta


@every_kernel
@pytest.mark.parametrize("people", [1, 3])
def test_the_pure_promise_is_attained_by_the_worst_function(name, people):
    """A K-norm's density ratio along a shift is e to its length: 5 % less noise breaks the promise."""
    model = learner(name, epsilon=0.5, delta=0.0, rows_per_person=people)
    plan, problem, _, gram = planned(model, *table())
    worst = people * problem.stability.sensitivity * longest(plan, gram)
    assert 0.98 * 0.5 <= worst / plan.law.scale <= 0.5 < worst / (0.95 * plan.law.scale)
    assert plan.promise.curve == Pure(0.5)


# ---------------------------------------------------------------- public whitening


def worst_signs(whitening: np.ndarray) -> list[np.ndarray]:
    """Symmetric matrices of signs that lengthen A as much as they can, and a few at random."""
    _, _, right = np.linalg.svd(whitening, full_matrices=False)
    signs = [np.where(row < 0, -1.0, 1.0) for row in right]
    outer = [sign * np.outer(s, s) for s in signs for sign in (1.0, -1.0)]
    random = [np.sign(np.triu(GENERATOR.normal(size=(len(signs[0]),) * 2))) for _ in range(5)]
    return outer + [upper + np.triu(upper, 1).T for upper in random]


def grams() -> dict[str, np.ndarray]:
    Z = inside(np.random.default_rng(3), 12)
    near = np.vstack([Z, Z + 1e-9 * np.random.default_rng(4).normal(size=Z.shape)])
    repeated = np.repeat(Z[:4], 5, axis=0)
    return {
        "generic": RBF(1.0).matrix(Z, Z),
        "one point": np.array([[0.7]]),
        "repeated": RBF(1.0).matrix(repeated, repeated),
        "all equal": np.full((6, 6), 0.3),
        "nearly singular": RBF(1.0).matrix(near, near),
        "flat": RBF(1e-3).matrix(Z, Z),
        "low rank": Linear(1.0).matrix(Z, Z),
        "of very different sizes": np.diag(10.0 ** np.arange(-12, 1)),
        "long": 1e8 * Laplacian(1.0).matrix(Z, Z),
    }


@pytest.mark.parametrize("name", grams())
@pytest.mark.parametrize("share", [1e-16, 1e-9, 1e-5])
def test_the_stretch_is_rigorous(name, share):
    """Every entry of the matrix off by all its error, in the worst way; in long doubles."""
    gram = grams()[name]
    error = share * gram.max()
    whitening, stretch = public_whitening(gram, error, 1e12)
    A = whitening.astype(np.longdouble)
    for signs in worst_signs(whitening):
        exact = gram.astype(np.longdouble) + np.longdouble(error) * signs
        assert stretch**2 >= largest_eigenvalue(A @ exact @ A.T)
    assert 1 <= stretch < 1.02  # and costs next to nothing
    assert np.abs(whitening @ gram @ whitening.T - np.eye(len(whitening))).max() < 1e-3


def test_for_one_point_the_stretch_is_what_the_error_can_do():
    whitening, stretch = public_whitening(np.array([[2.0]]), 2e-4, 1e12)
    assert abs(whitening[0, 0]) == pytest.approx(math.sqrt(0.5))
    assert 1 + 1e-4 <= stretch**2 <= 1 + 1.01e-4


def test_only_directions_that_floats_can_tell_apart_are_kept():
    kept = {name: len(public_whitening(gram, 1e-15, 1e12)[0]) for name, gram in grams().items()}
    assert kept["repeated"] == 4
    assert kept["all equal"] == kept["one point"] == 1
    assert kept["nearly singular"] == 12
    assert kept["low rank"] == 2
    assert kept["generic"] == 12


def test_a_direction_in_which_rounding_would_be_a_hundredth_of_the_noise_is_left_out():
    """An error of a value in each of the points, in the worst way, against what the sensitivity is."""
    sizes = 10.0 ** np.arange(-8, 1)
    for room in (1e4, 1e5, 1e7):
        whitening, _ = public_whitening(np.diag(sizes), 1e-18, room)
        added = 2 * np.linalg.norm(whitening) * math.sqrt(len(sizes)) / room
        assert added <= 0.01
        left_out = sizes[: len(sizes) - len(whitening)]
        if len(left_out):  # keeping just one more would have been too much, whatever its direction
            assert 2 * len(sizes) / math.sqrt(left_out[-1]) / room > 0.01


def test_points_without_length_teach_nothing():
    for gram in (np.zeros((3, 3)), 1e-30 * np.eye(3)):
        with pytest.raises(InvalidInput, match="too short"):
            public_whitening(gram, 1e-15, 1e12)
    model = learner("linear", public_points=np.zeros((4, 2)))
    with pytest.raises(InvalidInput, match="too short"):
        model.fit(*table())
    assert not hasattr(model, "dual_coef_")


# ---------------------------------------------------------------- as printed


@pytest.mark.parametrize(
    ("count", "epsilon", "delta"), [(1, 1.0, 1e-6), (2, 0.5, 1e-3), (20, 1.0, 1e-6), (100, 3.0, 1e-9)]
)
def test_the_composed_laplace_noise_is_as_little_as_the_budget_allows(count, epsilon, delta):
    each = laplace_each(count, epsilon, delta)
    assert Composite((LaplaceShift(each),) * count).epsilon(delta) <= epsilon
    assert Composite((LaplaceShift(1.05 * each),) * count).epsilon(delta) > epsilon
    assert each >= epsilon / count * (1 - 1e-9)


def test_a_thousand_values_of_sensitivity_four_thousandths_get_noise_of_three_quarters():
    each = laplace_each(1000, 1.0, 1e-6)
    assert math.sqrt(2) * 0.004 / each == pytest.approx(0.75, abs=0.01)
    assert Composite((LaplaceShift(1.05 * each),) * 1000).epsilon(1e-6) > 1.0


@every_kernel
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_printed_form_promises_what_its_noise_composes_to(name, delta):
    model = learner(name, calibration="paper", delta=delta, epsilon=0.8)
    plan, problem, _, _ = planned(model, *table())
    sensitivity = problem.stability.value_sensitivity(problem.bound)
    assert (plan.law.kind, plan.law.dimension) == ("laplace", 1)
    if delta:
        assert plan.promise.curve.epsilon(delta) <= 0.8
        each = laplace_each(9, 0.8, delta)
        assert plan.promise.curve == Composite((LaplaceShift(each),) * 9)
    else:
        each = 0.8 / 9
        assert plan.promise.curve == Pure(0.8)
    assert 1.0 <= plan.law.scale * each / sensitivity * (1 + 1e-11) <= 1 + 1e-9
    three, _, _, _ = planned(learner(name, calibration="paper", delta=delta, epsilon=0.8, rows_per_person=3), *table())
    assert three.law.scale == pytest.approx(3 * plan.law.scale, rel=1e-12)


def shift_covers(model: SemiInteractiveLearner, features: np.ndarray) -> bool:
    """Whether Laplace noise hides what the minimiser's own sensitivity is worth at these points."""
    X, y = table()
    plan, problem, _, _ = planned(model, X, y)
    length = np.linalg.norm(features.astype(np.longdouble), axis=1).max()
    each = laplace_each(len(features), model.epsilon, model.delta)
    return bool(plan.law.scale * np.longdouble(each) >= problem.stability.sensitivity * length)


def test_public_points_that_are_accepted_have_values_of_the_stated_sensitivity():
    """A public point may be longer than the bound by what floats cannot tell; the noise must cover that too."""
    Z = inside(np.random.default_rng(1), 9)
    Z[0] = [1 + 0.9 * 2.0**-30, 0.0]
    Linear(1.0).check_public(Z)
    assert shift_covers(learner("linear", calibration="paper", public_points=Z), Z)


def test_features_of_landmarks_that_hardly_differ_have_values_of_the_stated_sensitivity():
    """Eigenvalues of 1e-10 are good to a millionth, and so are the features' lengths; the noise must cover that too."""
    for angle in np.linspace(0, 3, 40):
        one, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        landmarks = 0.99 * np.array([one, one + 3e-5 * across, one - 1.5e-5 * across])
        model = learner("linear", calibration="paper", landmarks=landmarks, public_points=across[None])
        _, problem, points, _ = planned(model, *table())
        assert shift_covers(model, problem.features.features(points))


@pytest.mark.parametrize("seed", range(6))
def test_least_squares_over_a_ball_is_that_of_another_solver(seed):
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(6, [2, 4, 6][seed % 3]))  # singular, some of them
    gram, values = root @ root.T, 2 * generator.normal(size=6)
    for radius in (0.1, 0.5, 50.0):
        found = least_squares_in_ball(gram, values, radius)
        assert math.sqrt(found @ gram @ found) <= radius * (1 + 1e-9)
        # In the features' own coordinates: least squares of weights in a ball.
        other = minimize(
            lambda w: np.square(root @ w - values).sum(),
            np.zeros(root.shape[1]),
            jac=lambda w: 2 * root.T @ (root @ w - values),
            constraints={"type": "ineq", "fun": lambda w, r=radius: r**2 - w @ w, "jac": lambda w: -2 * w},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(root.T @ found, other.x, atol=2e-5)
        assert np.square(gram @ found - values).sum() <= other.fun * (1 + 1e-9) + 1e-12


def test_inside_the_ball_it_is_plain_least_squares():
    generator = np.random.default_rng(9)
    root, values = generator.normal(size=(7, 3)), generator.normal(size=7)
    weights = np.linalg.lstsq(root, values, rcond=None)[0]
    found = least_squares_in_ball(root @ root.T, values, 1.001 * np.linalg.norm(weights))
    np.testing.assert_allclose(root.T @ found, weights, rtol=1e-9)
    # And just outside it is not.
    shorter = least_squares_in_ball(root @ root.T, values, 0.999 * np.linalg.norm(weights))
    assert np.linalg.norm(root.T @ shorter) == pytest.approx(0.999 * np.linalg.norm(weights), rel=1e-9)
    np.testing.assert_array_equal(least_squares_in_ball(np.zeros((2, 2)), np.ones(2), 1.0), np.zeros(2))


def test_noise_far_beyond_the_ball_is_no_trouble():
    """It comes after the debit: a tiny budget's noise may be 1e20 times as long as the ball."""
    generator = np.random.default_rng(10)
    for _ in range(300):
        size, value, radius = 10 ** generator.uniform([-3, 15, -2], [3, 25, 2])
        found = least_squares_in_ball(np.array([[size]]), np.array([value]), radius)
        assert math.sqrt(size) * abs(found[0]) == pytest.approx(radius, rel=1e-6)


# ---------------------------------------------------------------- what is released


def arrays_in(thing: Any, seen: set[int] | None = None) -> list[Any]:
    """Every array, and every list of more than a few things, that can be reached from an object."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type(None), type)):
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return [thing]
    parts = list(thing.values()) if isinstance(thing, dict) else list(thing) if isinstance(thing, (list, tuple)) else []
    own = [thing] if isinstance(thing, (list, tuple)) else []
    return own + [found for part in [*parts, *vars_of(thing).values()] for found in arrays_in(part, seen)]


def vars_of(thing: Any) -> dict[str, Any]:
    return vars(thing) if hasattr(thing, "__dict__") else {}


@every_kernel
@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_a_fitted_model_holds_no_record(name, calibration):
    X, y = table(97)
    model = learner(name, calibration=calibration, delta=0.0 if calibration == "paper" else 1e-6).fit(X, y)
    assert not [array for array in arrays_in(model) if 97 in np.shape(array)]
    content = pickle.dumps(model)
    assert not any(number.tobytes() in content for number in X.ravel() if number not in (0.0, 1.0))
    assert model.points_.tobytes() in content
    assert len(content) < 10_000
    found = {key for key in vars(model) if key.endswith("_")}
    assert found == {
        "n_features_in_", "kernel_", "_width_", "classes_", "alpha_", "_function_", "guarantee_", "noise_", "points_",
        "dual_coef_",
    }  # fmt: skip


@every_kernel
def test_the_predictor_is_a_sum_over_public_points(name):
    X, y = table()
    model = learner(name).fit(X, y)
    new = inside(np.random.default_rng(5), 30)
    if name == "landmarks":
        psi = model._function_.features.features
        values = psi(new) @ psi(model.points_).T
    else:
        values = KERNELS[name].matrix(new, model.points_)
    np.testing.assert_array_equal(model.points_, model.public_points)
    np.testing.assert_allclose(model.decision_function(new), values @ model.dual_coef_, atol=1e-9)
    np.testing.assert_array_equal(model.predict(new), np.where(values @ model.dual_coef_ > 0, 1, -1))
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))
        assert again.guarantee_ == model.guarantee_


def test_new_points_are_brought_inside_as_in_training():
    model = learner("polynomial").fit(*table())
    units = inside(np.random.default_rng(6), 5)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    at_the_bound = model.decision_function(units)
    for length in (10.0, 1e100, 1e300):
        np.testing.assert_allclose(model.decision_function(length * units), at_the_bound, rtol=1e-6, atol=1e-9)
    # Where a kernel is all there is, features are scaled.
    X, y = table()
    options = {"public_points": list(units), "alpha": 0.1, "classes": [-1, 1]}
    by_function = SemiInteractiveLearner(kernel=UserKernel(lambda a, b: float(np.dot(a, b)), 1.0), **options)
    at_the_bound = by_function.fit(list(X), y).decision_function(list(units))
    np.testing.assert_allclose(by_function.decision_function(list(10 * units)), at_the_bound, rtol=1e-6, atol=1e-9)


def test_the_predictor_is_no_longer_than_a_minimiser_can_be():
    """Post-processing: a noisy function outside the ball of all minimisers is brought back to it."""
    X, y = table()
    for calibration in ("tight", "paper"):
        model = learner("rbf", calibration=calibration, epsilon=1e-3)
        _, problem, _, gram = planned(model, X, y)
        coef = model.fit(X, y).dual_coef_
        length = math.sqrt(coef @ gram @ coef)
        assert 0.99 * problem.stability.norm <= length <= problem.stability.norm * (1 + 1e-6)


def test_the_tight_noise_does_not_grow_with_the_number_of_points_and_the_printed_does():
    deviations = {}
    for calibration in ("tight", "paper"):
        for count in (20, 500):
            plan, *_ = planned(learner("rbf", count, calibration=calibration), *table(400))
            deviations[calibration, count] = plan.law.deviation
    assert deviations["tight", 500] / deviations["tight", 20] == pytest.approx(1.0, abs=0.02)
    # sqrt(500 / 20) = 5: the composition's own growth.
    assert 4 < deviations["paper", 500] / deviations["paper", 20] < 6
    assert deviations["paper", 20] > deviations["tight", 20]


def test_the_printed_noise_for_a_pure_promise_grows_with_the_number_of_points():
    few, many = (planned(learner("rbf", t, calibration="paper", delta=0.0), *table())[0].law for t in (5, 50))
    assert many.deviation == pytest.approx(10 * few.deviation, rel=1e-9)


def test_the_guarantee_says_what_it_rests_on():
    X, y = table()
    promise = learner("polynomial", classes=None).fit(X, y).guarantee_
    text = "; ".join(promise.assumptions)
    assert "features of length at most 2" in text
    assert "label set is public" in text
    assert "certificate" in text
    assert promise.theorem == "noise in the span of public points; the minimiser's own norm"
    assert learner("linear", calibration="paper").fit(X, y).guarantee_.theorem.endswith("composed exactly")


# ---------------------------------------------------------------- how well it does


@pytest.mark.parametrize(("calibration", "delta"), [("tight", 1e-6), ("tight", 0.0), ("paper", 0.0)])
def test_a_larger_budget_does_better(calibration, delta):
    generator = np.random.default_rng(7)
    X, new = generator.normal(size=(2, 800, 2))
    inner = (X**2).sum(axis=1) < 1.4
    truth = (new**2).sum(axis=1) < 1.4
    options = {"kernel": RBF(0.5), "public_points": new[:25], "alpha": 0.01, "classes": [False, True]}
    options |= {"calibration": calibration, "delta": delta}
    models = [SemiInteractiveLearner(epsilon=e, random_state=s, **options) for e in (0.01, 500.0) for s in range(2)]
    each = [model.fit(X, inner).score(new, truth) for model in models]
    scores = np.mean(each[:2]), np.mean(each[2:])
    assert scores[1] > 0.9
    assert scores[1] > scores[0] + 0.1


def test_regression_within_a_public_range():
    generator = np.random.default_rng(8)
    X = generator.uniform(-2, 2, size=(1000, 1))
    y = 12 + 1.5 * np.sin(2 * X[:, 0])
    y[:5] = [1e9, -1e9, 500.0, 10.0, 14.0]  # beyond the range, and at its ends
    options = {"kernel": RBF(2.0), "public_points": np.linspace(-2, 2, 15)[:, None], "loss": "huber", "alpha": 5e-3}
    options |= {"random_state": 0}
    model = SemiInteractiveLearner(target_bound=(10.0, 14.0), epsilon=20.0, **options).fit(X, y)
    assert model.score(X[5:], y[5:]) > 0.8
    assert 11.5 < model.predict(X).mean() < 12.5
    centred = SemiInteractiveLearner(target_bound=2.0, epsilon=20.0, **options)
    assert centred.fit(X, y - 12).noise_ == model.noise_
    assert "half-width 2" in "; ".join(model.guarantee_.assumptions)


def test_histograms_have_no_map_and_need_none():
    X = np.random.default_rng(9).dirichlet(np.ones(4), 300)
    model = SemiInteractiveLearner(
        kernel=HistogramIntersection(1.0),
        public_points=X[:20].copy(),
        epsilon=50.0,
        alpha=0.01,
        classes=[False, True],
        random_state=0,
    ).fit(X, X[:, 0] > 0.2)
    assert model.score(X, X[:, 0] > 0.2) > 0.8
    by_hand = np.minimum(X[:, None], X[:20]).sum(axis=2) @ model.dual_coef_
    np.testing.assert_allclose(model.decision_function(X), by_hand, atol=1e-9)
