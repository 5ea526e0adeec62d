"""Predictions of a kernel machine with a Gaussian process on top: one budget for everything ever asked."""

from __future__ import annotations

import copy
import math
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from epsilearn import Ledger
from epsilearn.accounting import GaussianShift
from epsilearn.calibration.additive import most_sensitivity
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.errors import BudgetExceeded, ConvergenceError, InvalidInput, StateError
from epsilearn.kernel import (
    RBF,
    GaussianProcessRelease,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    UserKernel,
    erm,
)
from epsilearn.kernel.erm import FeatureProblem, GramProblem
from epsilearn.kernel.features import Identity, Landmarks, Monomials
from epsilearn.losses import HuberisedHinge, Logistic
from epsilearn.mechanisms.session import JournalEntry, Process, ProcessLaw

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 2))
Y = np.where(X[:, 0] > 0, 1, -1)
# Some questions are about the records' own places.
Z = np.vstack([X[:25], GENERATOR.normal(size=(25, 2))])
LOSSES = {"logistic": Logistic(), "hinge": HuberisedHinge()}
PRIVATE = "id-4711"


def model_of(**options: Any) -> GaussianProcessRelease:
    settings = {"kernel": RBF(0.5), "alpha": 0.05, "epsilon": 1.0, "delta": 1e-6, "classes": [-1, 1], "max_points": 100}
    return GaussianProcessRelease(**{**settings, **options})


def fitted(**options: Any) -> GaussianProcessRelease:
    return model_of(**options).fit(X, Y)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", dataset="patients", epsilon=20.0, delta=1e-4)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A ledger for those who must not debit it."""
    return Ledger.create(tmp_path_factory.mktemp("ledger") / "b.db", dataset="patients", epsilon=20.0, delta=1e-4)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "session.db"


def statuses(ledger: Ledger) -> list[str]:
    return [debit["status"] for debit in ledger.history()]


def rbf(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2))


# --- The promise: computed, not simulated ---


def length(model: GaussianProcessRelease, shift: np.ndarray, noise: float = 1.0) -> float:
    """The exact Mahalanobis length of a shift of all answers, under the session's own noise (or a share of it)."""
    session = model._session_
    assert len(session) == len(shift)
    return float(np.linalg.norm(np.linalg.solve(session._factor.matrix, shift)) / (noise * session.law.tau))


def exact_values(points: np.ndarray, labels: np.ndarray, alpha: float) -> np.ndarray:
    """The logistic minimiser's values at the questions, by Newton's method on the formulas."""
    gram, n = rbf(points, points), len(points)
    coef, residual = np.zeros(n), np.full(n, np.inf)
    for _ in range(100):
        likely = expit(-labels * (gram @ coef))
        residual = -labels * likely / n + alpha * coef
        step = np.linalg.solve(n * alpha * np.eye(n) + (likely * (1 - likely))[:, None] * gram, n * residual)
        coef = coef - step / max(1.0, np.abs(gram @ step).max())
    assert np.abs(residual).max() < 1e-14
    return rbf(Z, points) @ coef


def neighbours(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """One record replaced: by the opposite label at the same place, for each of them, and by random ones."""
    generator = np.random.default_rng(seed)
    tables = []
    for number in range(len(X)):
        labels = Y.copy()
        labels[number] = -Y[number]
        tables.append((X, labels))
    for _ in range(20):
        points, labels, number = X.copy(), Y.copy(), generator.integers(len(X))
        points[number] = generator.normal(size=2) * generator.choice([0.3, 1, 10])
        labels[number] = generator.choice([-1, 1])
        tables.append((points, labels))
    return tables


@pytest.mark.parametrize(("alpha", "share"), [(0.01, 0.3), (0.3, 0.8)])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_no_neighbour_shifts_fifty_answers_further_than_promised(loss, alpha, share):
    model = fitted(loss=loss, alpha=alpha)
    model.decision_function(Z)
    promised = model.guarantee_.curve.shift
    lengths = []
    for points, labels in neighbours(1):
        problem = GramProblem(RBF(0.5), points, labels.astype(float), LOSSES[loss], alpha)
        lengths.append(length(model, model._minimum_.values(Z) - problem.solve().values(Z)))
        if loss == "logistic":
            lengths.append(length(model, exact_values(X, Y, alpha) - exact_values(points, labels, alpha)))
    # Someone goes a good part of the way, so that this could fail.
    assert share * promised < max(lengths) <= promised
    assert GaussianShift(max(lengths)).delta(1.0) <= 1e-6
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 1e-6)


def test_the_solver_finds_the_minimiser_that_the_promise_is_about():
    model = fitted()
    assert np.abs(model._minimum_.values(Z) - exact_values(X, Y, 0.05)).max() < 0.01 * model.noise_.scale


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_worst_function_shifts_just_as_far_as_promised(loss, rows):
    """A move of the full sensitivity along the first question's own features: with 5 % less noise it would break."""
    model = fitted(loss=loss, rows_per_person=rows)
    model.decision_function(Z)
    promised = model.guarantee_.curve.shift
    problem = GramProblem(RBF(0.5), X, Y.astype(float), LOSSES[loss], 0.05)
    move = rows * problem.stability.sensitivity
    shift = move * rbf(Z, Z[:1])[:, 0]  # K(z, z) = 1
    assert 0.99 * promised < move / model._session_.law.tau <= promised * (1 + 1e-12)
    assert 0.99 * promised < length(model, shift) <= promised
    assert GaussianShift(length(model, shift)).delta(1.0) <= 1e-6
    assert length(model, shift, noise=0.95) > promised
    assert GaussianShift(length(model, shift, noise=0.95)).delta(1.0) > 1e-6


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_noise_at_half_a_million_rows(loss):
    """n = 500,000, alpha = 0.001, L = R = 1, epsilon = 1, delta = 1e-6: 0.017 for all answers, however many."""
    sensitivity = minimiser_sensitivity(loss, 500_000, 1.0, 1e-3)
    law = ProcessLaw.planned(
        most_sensitivity(sensitivity), 1.0, 1e-6, cap=10_000, bound=1.0, kernel_error=RBF().rounding(10),
        value_error=1e-11,
    )  # fmt: skip
    assert 0.015 < law.noise.deviation <= 0.017


@pytest.mark.parametrize("loss", LOSSES)
def test_the_noise_of_a_fit_to_half_a_million_rows(loss):
    """The same with what a solver that stops somewhere adds, as it is really released."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(500_000, 2)).astype(np.float32)
    model = model_of(loss=loss, alpha=1e-3, landmarks=generator.normal(size=(8, 2)))
    model.fit(rows, np.where(rows[:, 0] > 0, 1, -1))
    assert 0.015 < model.noise_.deviation <= 0.017


# --- The noise that is really added ---


def check_standard_normal(whitened: np.ndarray) -> None:
    """Rows of independent standard normals: each entry's law, and each row's length, which 5 % less noise changes."""
    rows = whitened.shape[1]
    assert stats.kstest(whitened.ravel(), stats.norm.cdf).pvalue > 1e-3
    assert stats.kstest((whitened**2).sum(axis=1), stats.chi2(rows).cdf).pvalue > 1e-3
    for factor in (0.95, 1.05):
        assert stats.kstest(((factor * whitened) ** 2).sum(axis=1), stats.chi2(rows).cdf).pvalue < 1e-4


@pytest.mark.slow
def test_answers_are_values_plus_noise_of_the_kernels_covariance_and_the_planned_scale():
    points, labels, questions = X[:20], Y[:20], Z[:40]
    problem = GramProblem(RBF(0.5), points, labels.astype(float), Logistic(), 0.05)
    exact = problem.solve().values(questions)
    residuals = []
    for seed in range(300):
        model = model_of(random_state=seed).fit(points, labels)
        parts = [model.decision_function(questions[part]) for part in (slice(0, 1), slice(1, 11), slice(11, 40))]
        residuals.append(np.concatenate(parts) - exact)
    tau = problem.stability.sensitivity * 4.224679  # the analytic Gaussian's scale for epsilon = 1, delta = 1e-6
    covariance = rbf(questions, questions) + model._session_.law.jitter * np.eye(40)
    check_standard_normal(np.linalg.solve(np.linalg.cholesky(covariance), np.array(residuals).T / tau).T)


def test_weights_are_the_minimiser_plus_gaussian_noise_of_the_planned_scale():
    points, labels = X.reshape(16, 5) / 4, Y[:16]
    problem = FeatureProblem(Monomials(Polynomial(3), 5), points, labels.astype(float), Logistic(), 0.05)
    exact = problem.solve().weights
    weights = [model_of(kernel=Polynomial(3), random_state=s).fit(points, labels)._weights_ for s in range(250)]
    # The solver may stop short by up to 0.5 % of the sensitivity, a thousandth of the noise.
    check_standard_normal((np.array(weights) - exact) / (problem.stability.sensitivity * 4.224679))


# --- Kernels with a finite map: one release of weights ---

HISTOGRAMS = np.abs(X) / np.abs(X).sum(axis=1, keepdims=True)
FINITE = {
    "linear": ({"kernel": Linear(2.0)}, lambda: Identity(Linear(2.0), 2)),
    "polynomial": ({"kernel": Polynomial(3, 1.0, 1.5)}, lambda: Monomials(Polynomial(3, 1.0, 1.5), 2)),
    "landmarks": ({"landmarks": Z[25:]}, lambda: Landmarks(RBF(0.5), Z[25:])),
    "fewer directions": ({"landmarks": Z[25:], "rank": 4}, lambda: Landmarks(RBF(0.5), Z[25:], 4)),
    "histograms": (
        {"kernel": HistogramIntersection(2.0), "landmarks": HISTOGRAMS[:9].copy()},
        lambda: Landmarks(HistogramIntersection(2.0), HISTOGRAMS[:9]),
    ),
}
ON_FINITE = pytest.mark.parametrize("name", FINITE)


def inside(name: str) -> np.ndarray:
    """Questions within the bound of every kernel here."""
    return HISTOGRAMS if name == "histograms" else Z / 4


def fit_finite(name: str, **options: Any) -> GaussianProcessRelease:
    return model_of(**FINITE[name][0], **options).fit(HISTOGRAMS if name == "histograms" else X, Y)


@ON_FINITE
@pytest.mark.parametrize("rows", [1, 3])
def test_a_finite_map_needs_the_analytic_gaussian_on_its_weights(name, rows):
    model, features = fit_finite(name, rows_per_person=rows), FINITE[name][1]()
    assert model._weights_.shape == (features.columns,)
    assert model.noise_.kind == "gaussian"
    # An exact solver's sensitivity, and what a certified one may add.
    least = rows * minimiser_sensitivity(Logistic(), 40, features.bound, 0.05)
    scale = model.noise_.scale / features.bound
    assert GaussianShift(least / scale).delta(1.0) <= 1e-6 * (1 + 1e-9)
    assert GaussianShift(least / (0.95 * scale)).delta(1.0) > 1e-6
    assert 1 <= model.guarantee_.curve.shift * scale / least <= 1.02
    assert str(model.guarantee_.mechanism) == "Gaussian process release"
    assert model.guarantee_.rows_per_person == rows


@ON_FINITE
def test_a_finite_maps_answers_are_a_function_of_its_weights_alone(name):
    model, features = fit_finite(name), FINITE[name][1]()
    points = inside(name)
    np.testing.assert_allclose(
        model.decision_function(points), features.features(points) @ model._weights_, rtol=1e-9, atol=1e-9
    )
    assert model.points_left_ is None
    assert not hasattr(model, "_minimum_")  # private


def on_grid(values: np.ndarray, deviation: float) -> bool:
    """Whether all are whole multiples of a millionth of the deviation, to a power of two: nothing finer ever leaves."""
    steps = values * 2.0 ** (20 - math.floor(math.log2(deviation)))
    return bool((steps == np.rint(steps)).all())


@pytest.mark.parametrize("stored", [False, True])
def test_only_rounded_numbers_leave(stored, state, tmp_path):
    """Weights of a finite map, and answers of a live session, from their files too."""
    places = [state, tmp_path / "other.db"] if stored else [None, None]
    for _ in range(2):
        finite = fitted(kernel=Polynomial(3, 1.0, 1.5), state=places[0])
        assert on_grid(finite._weights_, finite.noise_.scale / finite.kernel_.bound)
        live = fitted(state=places[1])
        assert on_grid(live.decision_function(Z), live.noise_.deviation)


@ON_FINITE
def test_a_finite_map_can_be_stored_and_copied(name):
    model = fit_finite(name)
    expected = model.decision_function(inside(name))
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.decision_function(inside(name)), expected)
        assert other.guarantee_ == model.guarantee_
        assert other.points_left_ is None
        np.testing.assert_array_equal(other.predict(inside(name)), np.where(expected > 0, 1, -1))


@ON_FINITE
def test_a_finite_map_is_released_once_for_its_file(name, ledger, state):
    first = fit_finite(name, state=state, ledger=ledger)
    again = fit_finite(name, state=state, ledger=ledger)
    np.testing.assert_array_equal(again._weights_, first._weights_)
    np.testing.assert_array_equal(again.decision_function(inside(name)), first.decision_function(inside(name)))
    assert again.guarantee_ == first.guarantee_
    assert statuses(ledger) == ["delivered"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again))._weights_, first._weights_)
    # Without the file, it is another release.
    assert (fit_finite(name, ledger=ledger)._weights_ != first._weights_).all()
    assert len(statuses(ledger)) == 2


def test_a_refused_release_leaves_nothing_in_its_file(tmp_path, state):
    poor = Ledger.create(tmp_path / "poor.db", dataset="d", epsilon=0.1, delta=1e-6)
    for kernel in (Linear(2.0), RBF(0.5)):
        model = model_of(kernel=kernel, state=state, ledger=poor)
        with pytest.raises(BudgetExceeded):
            model.fit(X, Y)
        check_not_fitted(model)
    assert poor.history() == []
    fitted(state=state)  # nor anything that binds it to either of them


# --- Live sessions ---

LIVE = {"RBF": RBF(0.5), "Laplacian": Laplacian(0.5), "histograms": HistogramIntersection(10.0)}


def test_the_cap_is_kept_and_earlier_answers_stay():
    model = fitted(max_points=5)
    first = model.decision_function(Z[:4])
    assert model.points_left_ == 1
    with pytest.raises(StateError, match="cap of 5"):
        model.decision_function(Z[:6])
    assert model.points_left_ == 1
    last = model.decision_function(Z[5:6])
    with pytest.raises(StateError, match="cap of 5"):
        model.decision_function(Z[6:7])
    assert model.points_left_ == 0
    np.testing.assert_array_equal(model.decision_function(Z[[0, 1, 2, 3, 5]]), [*first, *last])


def test_points_left_counts_different_points():
    model = fitted(max_points=10)
    seen = [model.points_left_]
    for questions in (Z[:3], Z[:3], Z[2:5], np.repeat(Z[7:8], 4, axis=0)):
        model.decision_function(questions)
        seen.append(model.points_left_)
    assert seen == [10, 7, 7, 5, 4]


def test_points_left_is_known_after_a_restart(state):
    first = fitted(max_points=10, state=state)
    first.decision_function(Z[:4])
    second = fitted(max_points=10, state=state)
    assert second.points_left_ == 6
    second.decision_function(Z[3:6])
    assert first.points_left_ == second.points_left_ == 4


@pytest.mark.parametrize("kernel", LIVE.values(), ids=LIVE)
def test_the_same_point_gets_the_same_answer_whatever_it_comes_in(kernel):
    model = model_of(kernel=kernel).fit(np.abs(X), Y)
    points = np.array([[1, 0], [0, 2], [3, 0], [0, 0]])
    expected = model.decision_function(points.astype(float))
    assert len(set(expected)) == 4
    unsorted = sparse.csr_array((np.array([2.0]), np.array([1]), np.array([0, 1])), (1, 2))
    for same in (
        points, points.astype(np.int8), points.astype(np.float32), points.tolist(), sparse.csr_array(points),
        sparse.coo_matrix(points.astype(float)), np.asfortranarray(points), np.where(points, points, -0.0),
    ):  # fmt: skip
        np.testing.assert_array_equal(model.decision_function(same), expected)
    assert model.decision_function(unsorted) == expected[1]
    assert model.points_left_ == 96


@pytest.mark.parametrize("kernel", LIVE.values(), ids=LIVE)
def test_answers_do_not_depend_on_what_is_asked_with_them(kernel):
    questions = np.abs(Z)
    together = model_of(kernel=kernel, random_state=1).fit(np.abs(X), Y)
    expected = together.decision_function(questions)
    model = model_of(kernel=kernel, random_state=1).fit(np.abs(X), Y)
    np.testing.assert_array_equal([model.decision_function(z[None])[0] for z in questions], expected)
    np.testing.assert_array_equal(together.decision_function(questions[::-1]), expected[::-1])


def test_real_noise_differs_from_fit_to_fit():
    assert (fitted().decision_function(Z) != fitted().decision_function(Z)).all()


def test_predictions_are_signs_or_the_answers_themselves():
    model = fitted()
    np.testing.assert_array_equal(model.predict(Z), np.where(model.decision_function(Z) > 0, 1, -1))
    regressor = model_of(loss="huber", target_bound=(10.0, 14.0), classes=None).fit(X, 12 + X[:, 0])
    answers = regressor.decision_function(Z)
    np.testing.assert_array_equal(regressor.predict(Z), answers)
    noise = answers - 12 - regressor._minimum_.values(Z)  # around the middle of the public range
    assert np.abs(noise).max() < 8 * regressor.noise_.deviation


@pytest.mark.parametrize("stored", [False, True])
def test_an_interruption_leaves_no_point_behind(stored, state, monkeypatch):
    """The noise at later points goes with the points that were answered, not with those that were not."""
    model = fitted(state=state if stored else None)
    original = Process._remember

    def interrupted(process: Process, entry: JournalEntry) -> None:
        if len(process) == answered + 1:
            raise KeyboardInterrupt
        original(process, entry)

    for answered in (0, 3):
        monkeypatch.setattr(Process, "_remember", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.decision_function(Z[40:43])
        monkeypatch.undo()
        model.decision_function(Z[answered : answered + 3])
    factor = model._session_._factor.matrix
    expected = rbf(Z[:6], Z[:6]) + model._session_.law.jitter * np.eye(6)
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=1e-12)


@pytest.mark.parametrize("stored", [False, True])
def test_a_live_session_cannot_be_copied(stored, state):
    model = fitted(state=state if stored else None)
    first = model.decision_function(Z[:3])
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(StateError, match="reuse its noise"):
            attempt(model)
    np.testing.assert_array_equal(model.decision_function(Z[:3]), first)


def _ask_in_child(model: GaussianProcessRelease, queue: Any) -> None:
    try:
        queue.put(f"answered {model.decision_function(Z[:1])}")
    except StateError as error:
        queue.put(str(error))


@pytest.mark.parametrize("stored", [False, True])
def test_a_fork_cannot_go_on_with_a_live_session(stored, state):
    model = fitted(state=state if stored else None)
    model.decision_function(Z[:1])  # not even with answers that were given already
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_ask_in_child, args=(model, queue))
    child.start()
    assert "fork would reuse its noise" in queue.get(timeout=600)
    child.join()


@pytest.mark.parametrize("kernel", [RBF(0.5), Linear(2.0)], ids=["live", "finite"])
def test_a_seed_voids_the_promise_and_a_ledger_refuses_it(kernel, ledger, state):
    model = fitted(kernel=kernel, random_state=1)
    assert model.guarantee_.void_reason == "seeded"
    assert math.isinf(model.guarantee_.epsilon)
    for place in (None, state):
        with pytest.raises(BudgetExceeded, match="seeded"):
            fitted(kernel=kernel, random_state=1, ledger=ledger, state=place)
    assert ledger.history() == []


@pytest.mark.parametrize("stored", [False, True])
def test_the_debit_comes_before_the_first_look_at_the_records(stored, ledger, state, monkeypatch):
    seen = []
    original = erm.minimise_dual

    def spy(*arguments, **options):
        seen.append(ledger.balance().debits)
        return original(*arguments, **options)

    monkeypatch.setattr(erm, "minimise_dual", spy)
    model = fitted(ledger=ledger, state=state if stored else None)
    assert seen == [1]
    model.decision_function(Z)
    model.decision_function(Z[::-1])
    assert statuses(ledger) == ["delivered"]
    (debit,) = ledger.history()
    assert debit["purpose"] == "GaussianProcessRelease.fit"
    assert (debit["guarantee"]["epsilon"], debit["guarantee"]["delta"]) == (1.0, 1e-6)
    assert model.guarantee_.ledger.head == debit["head"]


def not_converging(*_, **__):
    raise ConvergenceError("no certificate")


def check_not_fitted(model: GaussianProcessRelease) -> None:
    """Nothing of this fit or of an earlier one answers."""
    with pytest.raises(NotFittedError):
        model.decision_function(Z)
    with pytest.raises(NotFittedError):
        model.points_left_  # noqa: B018
    for name in ("guarantee_", "noise_", "_session_", "_minimum_", "_features_", "_weights_"):
        assert not hasattr(model, name)


@pytest.mark.parametrize("kernel", [RBF(0.5), Linear(2.0)], ids=["live", "finite"])
def test_a_solver_that_fails_has_spent_and_delivered_nothing(kernel, ledger, monkeypatch):
    for name in ("minimise", "minimise_dual"):
        monkeypatch.setattr(erm, name, not_converging)
    model = model_of(kernel=kernel, ledger=ledger)
    with pytest.raises(ConvergenceError):
        model.fit(X, Y)
    assert statuses(ledger) == ["spent, not delivered"]
    check_not_fitted(model)


def test_a_solver_that_fails_in_a_stored_session_has_answered_nothing(ledger, state, monkeypatch):
    monkeypatch.setattr(erm, "minimise_dual", not_converging)
    model = model_of(ledger=ledger, state=state)
    with pytest.raises(ConvergenceError):
        model.fit(X, Y)
    assert ledger.balance().debits == 1
    check_not_fitted(model)
    monkeypatch.undo()
    model.fit(X, Y)
    assert len(model.decision_function(Z)) == 50


def test_an_earlier_model_does_not_outlive_a_fit_that_fails(monkeypatch):
    model = fitted()
    model.decision_function(Z)
    monkeypatch.setattr(erm, "minimise_dual", not_converging)
    with pytest.raises(ConvergenceError):
        model.fit(X, Y)
    check_not_fitted(model)


@pytest.mark.parametrize(("before", "after"), [(RBF(0.5), Linear(5.0)), (Linear(5.0), RBF(0.5))])
def test_a_model_can_be_fitted_again_with_another_kind_of_kernel(before, after):
    model = fitted(kernel=before)
    model.decision_function(Z)
    model.set_params(kernel=after).fit(X, Y)
    assert (model.points_left_ is None) == isinstance(after, Linear)
    assert len(model.decision_function(Z)) == 50


# --- Bad input: an error costs nothing ---

MANY = 25_000
BAD_FITS = {
    "no rows of numbers": ({}, X[:, 0], Y, "2D array"),
    "NaN": ({}, np.where(X > 1, np.nan, X), Y, "NaN"),
    "infinity": ({}, np.where(X > 1, np.inf, X), Y, "infinity"),
    "texts": ({}, np.full((40, 2), PRIVATE), Y, "numbers"),
    "too few labels": ({}, X, Y[:30], "inconsistent"),
    "pure": ({"delta": 0}, X, Y, "delta > 0"),
    "pure, finite map": ({"delta": 0.0, "kernel": Linear()}, X, Y, "delta > 0"),
    "a negative budget": ({"epsilon": -1.0}, X, Y, "epsilon"),
    "no points": ({"max_points": 0}, X, Y, "max_points"),
    "half a point": ({"max_points": 1.5}, X, Y, "max_points"),
    "no people": ({"rows_per_person": 0}, X, Y, "rows_per_person"),
    "a kernel's name": ({"kernel": "rbf"}, X, Y, "kernel must be"),
    "a function": ({"kernel": rbf}, X, Y, "kernel must be"),
    "a kernel's class": ({"kernel": RBF}, X, Y, "kernel must be"),
    "unknown loss": ({"loss": "hinges"}, X, Y, "loss must be"),
    "three classes": ({"classes": None}, X, np.arange(40) % 3, "binary"),
    "three declared classes": ({"classes": [-1, 0, 1]}, X, Y, "binary"),
    "one class": ({"classes": None}, X, np.ones(40), "one class"),
    "labels outside": ({}, X, np.where(Y > 0, 1, 4711), "not in classes"),
    "no alpha": ({"alpha": 0.0}, X, Y, "alpha"),
    "alpha by name": ({"alpha": "large"}, X, Y, "alpha"),
    "targets in words": ({"loss": "huber", "target_bound": 1.0}, X, np.full(40, PRIVATE), "numbers"),
    "long landmarks": ({"kernel": Polynomial(2), "landmarks": 9 + Z}, X, Y, "above the declared bound"),
    "wide landmarks": ({"landmarks": np.ones((3, 3))}, X, Y, None),
    "no rank": ({"landmarks": Z, "rank": 0}, X, Y, "rank"),
    "too many rows": ({}, np.zeros((MANY, 1)), np.tile([-1, 1], MANY // 2), "landmarks"),
    "negative histograms": ({"kernel": HistogramIntersection()}, X, Y, "negative"),
    "rows of no matrix": ({"kernel": Precomputed(np.eye(40))}, np.arange(1, 41), Y, "between 0 and 39"),
    "no texts": ({"kernel": UserKernel(rbf, 1.0)}, [], Y[:0], "at least one"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_input_costs_nothing_and_leaves_no_model(name, untouched, state):
    options, points, target, text = BAD_FITS[name]
    model = model_of(ledger=untouched, state=state, **options)
    with pytest.raises(InvalidInput, match=text) as caught:
        model.fit(points, target)
    assert "4711" not in str(caught.value)
    check_not_fitted(model)
    assert untouched.history() == []
    fitted(state=state)  # the file is still free


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_input_leaves_no_earlier_model_behind(name):
    """It would answer under other settings than those it has now: another kernel, another loss, other labels."""
    options, points, target, text = BAD_FITS[name]
    model = fitted().set_params(**options)
    with pytest.raises(InvalidInput, match=text):
        model.fit(points, target)
    check_not_fitted(model)


@pytest.mark.parametrize("landmarks", [None, [1.0, 0.5]], ids=["live", "finite"])
def test_records_that_cannot_be_written_down_are_records_like_others(landmarks, ledger, state):
    """That a record can be written down must not decide whether there is an answer; a public point must."""
    kernel, records = UserKernel(lambda a, b: (a * b.conjugate()).real, 2.0), list(X[:, 0] + 1j * X[:, 1])
    model = model_of(kernel=kernel, landmarks=landmarks, ledger=ledger, state=state).fit(records, Y)
    assert len(ledger.history()) == 1
    if landmarks is None:
        with pytest.raises(InvalidInput, match="written down"):
            model.decision_function(records[:1])
    else:
        assert np.isfinite(model.decision_function([1.0, 0.25])).all()


@pytest.mark.parametrize("kernel", [RBF(0.5), Linear(2.0)], ids=["live", "finite"])
def test_a_file_that_cannot_be_used_costs_nothing(kernel, ledger, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"no session, but somebody's notes\n" * 100)
    for place in (tmp_path / "notes.txt", tmp_path / "nowhere" / "session.db", tmp_path):
        model = model_of(kernel=kernel, ledger=ledger, state=place)
        with pytest.raises(StateError, match="cannot be used as a session"):
            model.fit(X, Y)
        check_not_fitted(model)
    assert ledger.history() == []


def test_sample_weights_are_refused(ledger):
    with pytest.raises(TypeError, match="sample_weight"):
        model_of(ledger=ledger).fit(X, Y, sample_weight=np.ones(40))
    assert ledger.history() == []


LONG = Polynomial(2, 1.0, 1.0)
BAD_QUESTIONS = {
    "columns": ({}, np.ones((1, 3)), "features"),
    "NaN": ({}, [[math.nan, 1.0]], "NaN"),
    "infinity": ({}, [[math.inf, 1.0]], "infinity"),
    "no table": ({}, [1.0, 2.0], "2D array"),
    "none": ({}, np.empty((0, 2)), "0 sample"),
    "long, finite map": ({"kernel": LONG}, [[1.0, 0.1]], "above the declared bound"),
    "long, landmarks": ({"kernel": LONG, "landmarks": Z / 4}, [[1.0, 0.1]], "above the declared bound"),
    "heavy": ({"kernel": HistogramIntersection(5.0)}, [[3.0, 2.1]], "above the declared bound"),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_bad_questions_are_refused_and_the_session_goes_on(name):
    options, question, text = BAD_QUESTIONS[name]
    model = model_of(**options).fit(np.abs(X), Y)
    good = np.abs(Z[:3]) / 4
    first, left = model.decision_function(good), model.points_left_
    with pytest.raises(ValueError, match=text):
        model.decision_function(question)
    assert model.points_left_ == left
    np.testing.assert_array_equal(model.decision_function(good), first)


def test_a_question_at_the_bound_is_answered_and_private_points_beyond_it_are_brought_inside():
    model = model_of(kernel=LONG).fit(100 * X, Y)
    assert np.isfinite(model.decision_function([[1.0, 0.0], [0.6, 0.8]])).all()
    heavy = model_of(kernel=HistogramIntersection(1.0)).fit(100 * np.abs(X), Y)
    assert np.isfinite(heavy.decision_function([[1.0, 0.0], [0.3, 0.7]])).all()


def test_asking_before_fitting():
    check_not_fitted(model_of())


# --- Stored sessions: the same answers after a restart ---


def spectrum(first: str, second: str) -> float:
    """How many pairs of letters two words share."""
    pairs = [[word[i : i + 2] for i in range(len(word) - 1)] for word in (first, second)]
    return float(sum(a == b for a in pairs[0] for b in pairs[1]))


WORDS = ["private", "privacy", "kernel", "colonel", "convex", "vexed", "naïve", "learn", "learned", "lean"]
ASKED = ["privet", "nelson", "éclair", "privacy", "x", ""]
OBJECTS = np.vstack([X, Z[25:]])
GRAM = rbf(OBJECTS, OBJECTS)
KINDS = {
    "rows": (RBF(0.5), X, Y, Z[20:32]),
    "sparse rows": (Laplacian(0.5), sparse.csr_array(np.where(X > 0, X, 0)), Y, sparse.csr_array(Z[20:32])),
    "words": (UserKernel(spectrum, 3.0), WORDS, np.tile([-1, 1], 5), ASKED),
    "a Gram matrix": (Precomputed(GRAM), np.arange(40), Y, np.array([43, 41, 64, 50, 42, 47])),
}
ON_KINDS = pytest.mark.parametrize("name", KINDS)


@ON_KINDS
def test_a_session_goes_on_after_a_restart(name, ledger, state):
    kernel, points, labels, questions = KINDS[name]
    count = kernel.count(questions)
    half = kernel.part(questions, slice(0, count // 2))
    first = model_of(kernel=kernel, state=state, ledger=ledger).fit(points, labels)
    asked = first.decision_function(half)
    second = model_of(kernel=kernel, state=state, ledger=ledger).fit(points, labels)
    answers = second.decision_function(questions)
    np.testing.assert_array_equal(answers[: count // 2], asked)
    assert len(set(answers)) == count
    # Both go on, each with what the other has answered.
    np.testing.assert_array_equal(first.decision_function(questions), answers)
    assert first.points_left_ == second.points_left_ == 100 - count
    assert second.guarantee_ == first.guarantee_
    assert statuses(ledger) == ["delivered"]
    np.testing.assert_array_equal(second._minimum_.values(questions), first._minimum_.values(questions))


@ON_KINDS
def test_all_kinds_of_points_without_a_file(name):
    kernel, points, labels, questions = KINDS[name]
    model = model_of(kernel=kernel).fit(points, labels)
    answers = model.decision_function(questions)
    np.testing.assert_array_equal(model.decision_function(questions), answers)
    noise = answers - model._minimum_.values(questions)
    assert 0 < np.abs(noise).max() < 8 * model.noise_.deviation


@ON_KINDS
def test_a_session_is_not_for_other_records(name, ledger, state):
    kernel, points, labels, _ = KINDS[name]
    model_of(kernel=kernel, state=state, ledger=ledger).fit(points, labels)
    flipped = labels * np.where(np.arange(len(labels)) == 3, -1, 1)
    swapped = kernel.join([kernel.part(points, slice(1, None)), kernel.part(points, slice(0, 1))])
    for other, target in ((points, flipped), (swapped, labels), (swapped, np.roll(labels, -1))):
        model = model_of(kernel=kernel, state=state, ledger=ledger)
        with pytest.raises(StateError, match="other records"):
            model.fit(other, target)
        check_not_fitted(model)
    assert len(ledger.history()) == 1


def test_a_session_is_not_for_another_gram_matrix(state):
    """A record's kernel values are its features: with others it is another record."""
    model_of(kernel=Precomputed(GRAM), state=state).fit(np.arange(40), Y)
    changed = GRAM.copy()
    changed[5, 6] = changed[6, 5] = np.nextafter(GRAM[5, 6], 0)
    with pytest.raises(StateError, match="other records"):
        model_of(kernel=Precomputed(changed), state=state).fit(np.arange(40), Y)


def test_a_session_notices_that_a_function_of_the_same_name_is_another(state):
    words, labels = WORDS, np.tile([-1, 1], 5)

    def kernel(factor: float) -> UserKernel:
        def scaled(a: str, b: str) -> float:
            return factor * spectrum(a, b)

        return UserKernel(scaled, 3.0)

    model_of(kernel=kernel(1.0), state=state).fit(words, labels).decision_function(ASKED)
    model = model_of(kernel=kernel(0.5), state=state).fit(words, labels)
    with pytest.raises(StateError, match="same kernel"):
        model.decision_function(ASKED)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": RBF(0.5000001)},
        {"kernel": Laplacian(0.5)},
        {"loss": "hinge"},
        {"alpha": 0.050001},
        {"epsilon": 0.99},
        {"delta": 2e-6},
        {"rows_per_person": 2},
        {"max_points": 101},
        {"random_state": 1},
        {"classes": [-1, 1], "landmarks": Z},
    ],
    ids=lambda change: list(change)[-1],
)
def test_a_session_is_not_for_other_settings(change, ledger, state):
    fitted(state=state, ledger=ledger)
    model = model_of(**{"state": state, "ledger": ledger if "random_state" not in change else None, **change})
    with pytest.raises(StateError, match="other settings"):
        model.fit(X, Y)
    check_not_fitted(model)
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("change", [{"landmarks": Z[1:]}, {"rank": 3}])
def test_a_finite_maps_file_is_not_for_other_settings(change, state):
    fitted(state=state, landmarks=Z, rank=4)
    with pytest.raises(StateError, match="other settings"):
        fitted(state=state, **{"landmarks": Z, "rank": 4, **change})


def test_a_restart_may_hold_the_same_records_in_another_form(state):
    whole = np.round(4 * X)
    first = model_of(state=state).fit(whole, Y)
    answers = first.decision_function(Z)
    for same in (sparse.csr_array(whole), whole.astype(int), whole.astype(np.float32)):
        np.testing.assert_array_equal(model_of(state=state).fit(same, Y).decision_function(Z), answers)


def ending_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that ends at another point than before, as certified: after other roundings it may take another step."""
    original = erm.minimise_dual
    monkeypatch.setattr(erm, "minimise_dual", lambda problem, target, **more: original(problem, target / 1e4, **more))


def test_a_restart_goes_on_with_the_very_same_function(state, monkeypatch):
    """Other threads, another library or machine must not let the solver end elsewhere, unless that is refused."""
    first = fitted(state=state)
    first.decision_function(Z[:25])
    ending_elsewhere(monkeypatch)
    try:
        second = fitted(state=state)
    except StateError:
        return
    np.testing.assert_array_equal(second._minimum_.values(Z), first._minimum_.values(Z))


def test_answers_before_and_after_a_restart_keep_the_promise_together(tmp_path, monkeypatch):
    """Two certified minimisers are not one function: where questions nearly meet, little noise hides how they differ.

    The sensitivity counts the certificate as a move of one function, which is smooth; answers from two of them are not.
    """
    generator = np.random.default_rng(43)
    points = generator.normal(size=(40, 2))
    labels = np.where(points[:, 0] > 0, 1, -1)
    flipped = labels * np.where(np.arange(40) == 0, -1, 1)
    near, nearer = points[:10], points[:10] + 1e-7
    values = []
    for number, target in enumerate((labels, flipped)):
        with monkeypatch.context() as patch:
            place = tmp_path / f"session{number}.db"
            first = model_of(alpha=1.0, state=place).fit(points, target)
            first.decision_function(near)
            ending_elsewhere(patch)
            try:
                second = model_of(alpha=1.0, state=place).fit(points, target)
            except StateError:
                return
            second.decision_function(nearer)
        values.append(np.concatenate([first._minimum_.values(near), second._minimum_.values(nearer)]))
    assert length(second, values[0] - values[1]) <= second.guarantee_.curve.shift
