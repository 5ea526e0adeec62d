"""The sparse estimators: what may leave, what it costs, manners, and whether they find the columns that matter."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse, stats
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from epsilearn import Guarantee, Lasso, Ledger, SparseLogisticRegression, compose, frank_wolfe, lasso
from epsilearn.accounting import Pure, ZeroConcentrated
from epsilearn.balls import exact
from epsilearn.calibration.additive import gaussian_scale
from epsilearn.constraints import GroupBall, L1Ball, L2Ball, LqBall, Polytope
from epsilearn.errors import BudgetExceeded, EpsilearnError, InvalidInput, PrivacyWarning

D = 12
CROSS = np.kron(np.eye(D), [[1.0], [-1.0]])  # the l1 ball's corners, in the order in which they are numbered
NUMBERS = {"feature_bound": 1.5, "target_bound": 1.0, "n_steps": 10}
LABELS = {"feature_bound": 1.5, "classes": [0, 1], "n_steps": 10}
ROUND = {"constraint": "l2", "delta": 1e-6}

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "lasso": (Lasso, NUMBERS),
    "lasso, delta": (Lasso, {"delta": 1e-6, **NUMBERS}),
    "lasso, intercept, refit": (Lasso, {"fit_intercept": True, "refit": 0.5, **NUMBERS}),
    "lasso, simplex": (Lasso, {"constraint": "simplex", "data_norm": 2.0, **NUMBERS}),
    "lasso, polytope": (Lasso, {"constraint": Polytope(CROSS[:20]), **NUMBERS}),
    "lasso, l2": (Lasso, {**ROUND, "data_norm": 2.0, **NUMBERS}),
    "lasso, lq": (Lasso, {"constraint": LqBall(1.3), "delta": 1e-6, **NUMBERS}),
    "lasso, paper": (Lasso, {"calibration": "paper", "delta": 1e-3, **NUMBERS}),
    "logistic": (SparseLogisticRegression, LABELS),
    "logistic, delta, refit": (SparseLogisticRegression, {"delta": 1e-6, "refit": 0.4, **LABELS}),
    "logistic, intercept": (SparseLogisticRegression, {"fit_intercept": True, "data_norm": 2.0, **LABELS}),
    "logistic, simplex": (SparseLogisticRegression, {"constraint": "simplex", **LABELS}),
    "logistic, polytope": (SparseLogisticRegression, {"constraint": Polytope(CROSS), **LABELS}),
    "logistic, gradient": (SparseLogisticRegression, {"method": "gradient", "delta": 1e-6, **LABELS}),
    "logistic, groups": (SparseLogisticRegression, {"constraint": GroupBall((0, 1) * 6), "delta": 1e-6, **LABELS}),
}
CLASSIFIERS = [name for name in CASES if CASES[name][0] is SparseLogisticRegression]
GRADIENTS = ["lasso, l2", "lasso, lq", "logistic, gradient", "logistic, groups"]
CORNERS = [name for name in CASES if name not in GRADIENTS]
REFITTED = ["lasso, intercept, refit", "logistic, delta, refit"]

every_case = pytest.mark.parametrize("name", CASES)
every_corner_case = pytest.mark.parametrize("name", CORNERS)
few_cases = pytest.mark.parametrize("name", ["lasso", "lasso, intercept, refit", "lasso, l2", "logistic, polytope"])
both = pytest.mark.parametrize("name", ["lasso", "logistic"])


def estimator(name: str, **changes: Any) -> Any:
    kind, options = CASES[name]
    return kind(**{**options, **changes})


def table(name: str, n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features of which some are beyond the bound, in numbers that single precision holds."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, D)).astype(np.float32).astype(float)
    y = np.clip(X[:, 0] + 0.1 * generator.normal(size=n), -2, 2)
    return X, (y > 0).astype(int) if name in CLASSIFIERS else y


class Book:
    """As much of a ledger as a fit sees, without a file. A copy is the same book, as with a real one."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    @contextmanager
    def spend(self, guarantee: Guarantee, purpose: str) -> Iterator[Guarantee]:
        entry = {"guarantee": guarantee, "purpose": purpose, "status": "spent, not delivered"}
        self.entries.append(entry)
        yield guarantee
        entry["status"] = "delivered"

    def __deepcopy__(self, memo: Any) -> Book:
        return self


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budget.db", dataset="d", epsilon=100.0, delta=0.1)


@pytest.fixture
def walks(monkeypatch) -> list[tuple[frank_wolfe.PathPlan, frank_wolfe.Walked]]:
    """The plans that were executed, and what came of them."""
    seen: list[tuple[frank_wolfe.PathPlan, frank_wolfe.Walked]] = []
    execute = frank_wolfe.execute

    def spy(plan: Any, *rest: Any, **options: Any) -> Any:
        walked = execute(plan, *rest, **options)
        seen.append((plan, walked))
        return walked

    monkeypatch.setattr(frank_wolfe, "execute", spy)
    return seen


# ---------------------------------------------------------------- constructors, clones, pickles


@pytest.mark.parametrize("kind", [Lasso, SparseLogisticRegression])
def test_constructors_take_keywords_and_only_store(kind):
    with pytest.raises(TypeError):
        kind(1.0)
    parameters = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    strange = {name: object() for name in parameters}
    model = kind(**strange)
    assert vars(model) == strange
    assert kind().epsilon == 1.0
    assert kind().delta == 0.0
    model = kind().set_params(radius=3.0, n_steps=7)
    assert (model.get_params()["radius"], model.get_params()["n_steps"]) == (3.0, 7)
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)


@every_case
def test_clones_know_the_settings_and_nothing_else(name, book):
    X, y = table(name)
    model = estimator(name, ledger=book).fit(X, y)
    copied = clone(model)
    assert set(vars(copied)) == set(model.get_params())
    for key, value in model.get_params().items():
        assert getattr(copied, key) == value
    with pytest.raises(NotFittedError):
        copied.predict(X)
    copied.fit(X, y)
    assert [entry["status"] for entry in book.entries] == ["delivered"] * 2


@every_case
def test_a_fitted_model_predicts_the_same_after_pickling(name):
    X, y = table(name)
    model = estimator(name).fit(X, y)
    for loaded in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        assert (loaded.guarantee_, loaded.noise_, loaded.n_steps_) == (model.guarantee_, model.noise_, model.n_steps_)


@every_case
def test_copies_that_are_fitted_again_repeat_no_noise(name):
    X, y = table(name)
    model = estimator(name, epsilon=0.1)
    seen = [model.fit(X, y).coef_.tobytes()]
    copies = (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model))
    seen += [m.fit(X, y).coef_.tobytes() for m in copies]
    assert len(set(seen)) == len(seen)


@every_case
def test_a_seed_repeats_and_voids(name):
    X, y = table(name)
    one, two, other = (estimator(name, epsilon=0.1, random_state=seed).fit(X, y) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert not np.array_equal(one.coef_, other.coef_)
    assert one.guarantee_.epsilon == math.inf
    assert one.guarantee_.void_reason == "seeded"


@both
def test_a_ledger_refuses_a_seed(name, ledger):
    X, y = table(name)
    refused = estimator(name, random_state=7, ledger=ledger)
    with pytest.raises(BudgetExceeded, match="seeded"):
        refused.fit(X, y)
    assert not hasattr(refused, "coef_")
    assert ledger.history() == []


@both
def test_models_that_are_not_fitted_say_so(name):
    X, _ = table(name)
    model = estimator(name)
    asked = ["predict", *(["decision_function", "predict_proba", "predict_log_proba"] if name in CLASSIFIERS else [])]
    for method in asked:
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)
    with pytest.raises(NotFittedError):
        _ = model.sparse_coef_


# ---------------------------------------------------------------- what is released

PUBLIC = {"n_features_in_", "guarantee_", "noise_", "n_steps_", "_bounds_"}
RELEASED = {"coef_", "intercept_"}


@every_case
def test_a_fitted_model_holds_the_release_and_public_numbers(name):
    """Two tables of one shape and nothing else in common: all but the release is the same, and no record is inside."""
    X, y = table(name)
    models = [estimator(name).fit(X, y), estimator(name).fit(-100 * X[::-1], y)]
    found = [{key: value for key, value in vars(m).items() if key not in m.get_params()} for m in models]
    released = RELEASED | ({"selected_"} if name in CORNERS else set())
    allowed = PUBLIC | released | ({"classes_"} if name in CLASSIFIERS else set())
    assert set(found[0]) == set(found[1]) == allowed
    for key in allowed - released:
        assert pickle.dumps(found[0][key]) == pickle.dumps(found[1][key]), key
    content = pickle.dumps(models[0])
    assert not any(number.tobytes() in content for number in X.ravel()[np.abs(X.ravel()) > 1e-3])


@every_case
def test_shapes_and_the_sparse_coefficients(name):
    X, y = table(name)
    model = estimator(name).fit(X, y)
    classifies = name in CLASSIFIERS
    assert model.coef_.shape == ((1, D) if classifies else (D,))
    assert np.shape(model.intercept_) == ((1,) if classifies else ())
    assert sparse.issparse(model.sparse_coef_)
    np.testing.assert_array_equal(model.sparse_coef_.toarray(), np.atleast_2d(model.coef_))
    assert model.sparse_coef_.nnz == np.count_nonzero(model.coef_)
    if not model.fit_intercept:
        assert np.all(model.intercept_ == 0)


@every_corner_case
def test_what_was_selected_in_order_makes_the_weights(name, walks):
    """theta_T = 2 / (T (T + 1)) times the sum of (t + 1) s_t, and on the simplex of the corner it starts from."""
    X, y = table(name)
    model = estimator(name).fit(X, y)
    ((plan, walked),) = walks
    assert model.n_steps_ == 10
    assert model.selected_.shape == (9,)
    assert model.selected_.dtype == np.int64
    signed = "simplex" not in name and "polytope" not in name
    assert model.selected_.tolist() == [corner // 2 if signed else corner for corner in walked.chosen]
    if "polytope" in name:
        corners, start = plan.constraint.vertices, plan.constraint.vertices.mean(axis=0)
    else:
        width = D + model.fit_intercept
        radius = model.radius
        corners = radius * (np.kron(np.eye(width), [[1.0], [-1.0]]) if signed else np.eye(width))
        start = np.zeros(width) if signed else corners[0]
    point = start
    for t, corner in enumerate(walked.chosen, start=1):
        point = (1 - 2 / (t + 2)) * point + 2 / (t + 2) * corners[corner]
    if name in REFITTED:
        # Selected columns are fitted anew, the others stay out.
        # A column that was chosen with both signs may have no weight left on the path.
        assert set(np.flatnonzero(model.coef_)) <= set(model.selected_.tolist())
        return
    np.testing.assert_allclose(np.ravel(model.coef_), point[:D], atol=1e-12)
    intercept = point[D] * 1.5 if model.fit_intercept else 0.0
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, atol=1e-12)
    if "polytope" not in name:
        assert set(np.flatnonzero(model.coef_)) <= {0, *model.selected_} if not signed else set(model.selected_)


@every_case
def test_the_weights_stay_in_the_set(name, walks):
    X, y = table(name)
    estimator(name).fit(X, y)
    ((plan, walked),) = walks
    if name not in REFITTED:
        assert plan.constraint.contains(walked.point)


@every_case
def test_the_guarantee_survives_json_and_says_what_it_rests_on(name):
    X, y = table(name)
    model = estimator(name, epsilon=0.7, rows_per_person=2).fit(X, y)
    promise = model.guarantee_
    assert Guarantee.from_json(promise.to_json()) == promise
    assert promise.delta == model.delta
    assert promise.rows_per_person == 2
    assert promise.relation == "replace-one"
    assert promise.mechanism.startswith("private Frank-Wolfe")
    text = " ".join(promise.assumptions)
    assert "n is public" in text
    assert "features are cut to [-1.5, 1.5]" in text
    assert ("rows to a norm of" in text) == (model.data_norm is not None)
    assert ("targets are clipped to a range of half-width 1" in text) == (name not in CLASSIFIERS)
    assert ("the solver reaches its certificate" in text) == (name in REFITTED)
    assert "random bits are fair" in promise.assumptions[-1]
    assert "label set is public" not in text  # it was given
    if "paper" in name:
        assert promise.claimed_epsilon == 0.7
        assert promise.epsilon > 0.7
        assert "as printed in 2015" in promise.theorem
        return
    assert promise.epsilon == 0.7
    assert promise.claimed_epsilon is None
    expected = {
        "lasso": "exponential mechanism in each step, added up",
        "lasso, delta": "exponential mechanism in each step, bounded range in zCDP",
        "lasso, l2": "Gaussian noise on each gradient; shifts add in squares",
        "logistic, delta, refit": "basic composition; exponential mechanism in each step, bounded range in zCDP; "
        "objective perturbation",
    }
    assert promise.theorem == expected.get(name, promise.theorem)
    assert promise.explain() is not None


def test_labels_that_are_not_given_are_an_assumption():
    X, y = table("logistic")
    promise = estimator("logistic", classes=None).fit(X, y).guarantee_
    assert "label set is public" in promise.assumptions


@every_case
def test_a_person_with_two_rows_needs_twice_the_noise(name):
    X, y = table(name)
    one, two = (estimator(name, rows_per_person=k).fit(X, y) for k in (1, 2))
    assert one.noise_.dimension == two.noise_.dimension
    if "paper" in name:  # as printed, whoever it is; what is proven is less
        assert two.noise_ == one.noise_
        assert two.guarantee_.epsilon == pytest.approx(2 * one.guarantee_.epsilon, rel=1e-6)
    else:
        assert two.noise_.scale == pytest.approx(2 * one.noise_.scale, rel=1e-12)
        assert two.guarantee_.epsilon == one.guarantee_.epsilon


def test_two_fits_compose():
    X, y = table("lasso")
    pure = [estimator("lasso", epsilon=e).fit(X, y).guarantee_ for e in (0.5, 0.25)]
    assert compose(*pure).epsilon == pytest.approx(0.75, rel=1e-12)
    together = [estimator("lasso, delta", epsilon=0.5).fit(X, y).guarantee_ for _ in range(2)]
    assert isinstance(together[0].curve, ZeroConcentrated)
    total = compose(*together)
    # Twice the rho, at twice the delta, by a grid of orders: less than twice the epsilon.
    a = 1 + np.exp(np.linspace(-5, 12, 200_001))
    rho = 2 * together[0].curve.rho
    expected = (rho * a + np.log1p(-1 / a) - (math.log(2e-6) + np.log(a)) / (a - 1)).min()
    assert total.delta == 2e-6
    assert total.epsilon == pytest.approx(expected, rel=1e-6)
    assert total.epsilon < 0.75
    mixed = compose(pure[0], together[0])
    assert mixed.epsilon <= 1.0


@pytest.mark.parametrize("name", REFITTED)
def test_the_parts_of_a_refitted_promise_add_up_to_it(name, walks, monkeypatch):
    """As decimals: what the selection and the refit are given is never more than what was asked for."""
    X, y = table(name)
    refits, paths, plan = [], [], frank_wolfe.plan
    monkeypatch.setattr(frank_wolfe, "plan", lambda *given, **named: paths.append(plan(*given, **named)) or paths[-1])
    monkeypatch.setattr(
        lasso.SparseModel, "_refitted", lambda self, model, X, y, point, *_: refits.append(model) or point
    )
    for epsilon, refit, delta in ((0.1, 0.5, 0.0), (1.0, 1 / 3, 1e-6), (0.7, 0.9, 1e-9)):
        model = estimator(name, epsilon=epsilon, delta=delta, refit=refit, rows_per_person=2).fit(X, y)
        assert (model.guarantee_.epsilon, model.guarantee_.delta) == (epsilon, delta)
        assert walks[-1][0].law == paths[-1].law  # what was walked is what the path's own budget allows
        first, second = paths[-1].promise, refits[-1]
        assert exact(first.epsilon) + exact(second.epsilon) <= exact(epsilon)
        assert exact(first.delta) + exact(second.delta) <= exact(delta)
        assert second.epsilon == pytest.approx(refit * epsilon, rel=1e-12)
        assert second.delta == pytest.approx(refit * delta, rel=1e-12)
        assert second.rows_per_person == first.rows_per_person == 2
        assert second.ledger is None  # one debit covers both
        assert first.epsilon == pytest.approx((1 - refit) * epsilon, rel=1e-12)


@pytest.mark.parametrize("data_norm", [0.5, 5.0])
def test_the_constant_column_counts_in_the_noise(data_norm):
    """It holds the features' bound whatever the rows' length: it adds to the length, and is reached like any column."""
    X, y = table("lasso")
    options = {"fit_intercept": True, "data_norm": data_norm, "radius": 2.0, "n_steps": 2, "delta": 1e-6}
    steepest = 2 * (2.0 * 1.5 + 1.0)
    corners = estimator("lasso", **options).fit(X, y)
    assert corners.noise_.dimension == 2 * (D + 1)
    # One choice of epsilon = 1: the scale is twice the sensitivity.
    assert corners.noise_.scale == pytest.approx(2 * (2 * steepest * 3.0 / 200), rel=1e-9)
    gradient = estimator("lasso", method="gradient", **options).fit(X, y)
    sensitivity = 2 * steepest * min(math.hypot(data_norm, 1.5), 1.5 * math.sqrt(D + 1)) / 200
    assert gradient.noise_.scale == pytest.approx(gaussian_scale(sensitivity, 1.0, 1e-6), rel=1e-9)
    assert gradient.noise_.dimension == D + 1


# ---------------------------------------------------------------- what it costs


@every_case
def test_the_ledger_is_debited_once_before_the_walk_and_with_what_is_promised(name, book, monkeypatch):
    X, y = table(name)
    at_the_walk, walk = [], frank_wolfe.walk

    def spy(*arguments: Any, **options: Any) -> Any:
        at_the_walk.append([dict(entry) for entry in book.entries])
        return walk(*arguments, **options)

    monkeypatch.setattr(frank_wolfe, "walk", spy)
    model = estimator(name, epsilon=0.3, ledger=book).fit(X, y)
    ((entry,),) = at_the_walk
    assert entry["status"] == "spent, not delivered"
    assert entry["guarantee"] == model.guarantee_
    (entry,) = book.entries
    assert entry["status"] == "delivered"
    assert entry["purpose"] == f"{CASES[name][0].__name__}.fit"
    assert entry["guarantee"] == model.guarantee_


@few_cases
def test_a_real_ledger_is_debited_by_copies_too(name, ledger):
    X, y = table(name)
    model = estimator(name, ledger=ledger).fit(X, y)
    assert model.guarantee_.ledger.entry == 1
    assert Guarantee.from_json(model.guarantee_.to_json()) == model.guarantee_
    for copied in (clone(model), pickle.loads(pickle.dumps(model))):
        copied.fit(X, y)
    assert [entry["status"] for entry in ledger.history()] == ["delivered"] * 3


def test_the_printed_noise_takes_small_budgets_too():
    """So small that the same delta would do for epsilon = 0."""
    X, y = table("lasso, paper")
    promise = estimator("lasso, paper", epsilon=1e-6).fit(X, y).guarantee_
    assert promise.claimed_epsilon == 1e-6
    assert 0 < promise.epsilon < 1e-4


def test_the_ledger_is_debited_what_is_proven_for_the_printed_noise(ledger):
    X, y = table("lasso, paper")
    model = estimator("lasso, paper", ledger=ledger).fit(X, y)
    (entry,) = ledger.history()
    assert entry["guarantee"]["epsilon"] == model.guarantee_.epsilon > model.guarantee_.claimed_epsilon == 1.0


@both
def test_a_spent_ledger_refuses_and_nothing_is_fitted(name, tmp_path):
    X, y = table(name)
    small = Ledger.create(tmp_path / "small.db", dataset="d", epsilon=0.5, delta=1e-6)
    # Ten small choices are less than their sum: 0.6 would still fit, by concentrated privacy.
    model = estimator(name, epsilon=3.0, ledger=small)
    with pytest.raises(BudgetExceeded):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert small.history() == []


def test_cross_validation_debits_one_ledger_for_each_fold(ledger):
    X, y = table("lasso", n=120)
    cross_val_score(estimator("lasso", epsilon=0.25, ledger=ledger), X, y, cv=4)
    assert [entry["guarantee"]["epsilon"] for entry in ledger.history()] == [0.25] * 4


def break_off(monkeypatch) -> None:
    """The second step fails, whichever way steps are made."""
    from epsilearn.mechanisms.path import PrivateSteps

    for method in ("column", "corner", "laplace_corner", "gradient"):
        made = getattr(PrivateSteps, method)
        calls = []

        def failing(self: Any, *arguments: Any, made: Any = made, calls: list = calls) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("midway")
            return made(self, *arguments)

        monkeypatch.setattr(PrivateSteps, method, failing)


@every_case
def test_a_walk_that_breaks_off_releases_nothing_and_the_debit_stands(name, book, monkeypatch):
    X, y = table(name)
    model = estimator(name, ledger=book).fit(X, y)
    break_off(monkeypatch)
    with pytest.raises(RuntimeError, match="midway"):
        model.fit(X, y)
    assert [entry["status"] for entry in book.entries] == ["delivered", "spent, not delivered"]
    # Nor is the model of the first fit left behind.
    assert set(vars(model)) - set(model.get_params()) <= {"n_features_in_"}
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_real_ledger_says_so(ledger, monkeypatch):
    X, y = table("lasso")
    break_off(monkeypatch)
    with pytest.raises(RuntimeError, match="midway"):
        estimator("lasso", ledger=ledger).fit(X, y)
    (entry,) = ledger.history()
    assert entry["status"] == "spent, not delivered"


@pytest.mark.parametrize("name", REFITTED)
def test_a_refit_that_breaks_off_releases_nothing_either(name, book, monkeypatch):
    """Not even the path that came before it."""
    X, y = table(name)
    monkeypatch.setattr(lasso.SparseModel, "_refitted", lambda *_: (_ for _ in ()).throw(RuntimeError("midway")))
    model = estimator(name, ledger=book)
    with pytest.raises(RuntimeError, match="midway"):
        model.fit(X, y)
    assert [entry["status"] for entry in book.entries] == ["spent, not delivered"]
    assert not {"coef_", "selected_", "guarantee_", "noise_"} & set(vars(model))


class Moody(L2Ball):
    """A ball that passes every probe, and then returns nonsense."""

    asked = 0

    def minimiser(self, direction: np.ndarray) -> np.ndarray:
        type(self).asked += 1
        point = super().minimiser(direction)
        return point * math.nan if type(self).asked > 40 else point


def test_a_set_that_fails_on_the_way_leaves_no_model(book):
    X, y = table("lasso")
    model = estimator("lasso", constraint=Moody(1.0), delta=1e-6, n_steps=80, ledger=book)
    with pytest.raises(InvalidInput, match="finite weights"):
        model.fit(X, y)
    assert Moody.asked > 40
    assert [entry["status"] for entry in book.entries] == ["spent, not delivered"]
    assert not hasattr(model, "coef_")


@few_cases
def test_a_fit_that_fails_leaves_no_earlier_model(name):
    X, y = table(name)
    model = estimator(name).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((200, D + 1), math.nan), y)
    assert not {"coef_", "guarantee_", "_bounds_", "selected_", "classes_"} & set(vars(model))
    model.fit(X, y)
    with pytest.raises(InvalidInput):
        model.set_params(epsilon=-1.0).fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# ---------------------------------------------------------------- what is refused, and what that costs

SECRET = "48151.625"


class Outside(L2Ball):
    """Its minimiser leaves the set."""

    def minimiser(self, direction: np.ndarray) -> np.ndarray:
        return 2 * super().minimiser(direction)


class NotLeast(L2Ball):
    """Its minimiser goes the wrong way."""

    def minimiser(self, direction: np.ndarray) -> np.ndarray:
        return -super().minimiser(direction)


class Short(L2Ball):
    """It claims a smaller reach than its points have: the noise would be too small."""

    def reach(self, largest: float, length: float, features: int) -> float:
        return 0.5 * super().reach(largest, length, features)


SETTINGS: dict[str, dict[str, Any]] = {
    "epsilon 0": {"epsilon": 0.0},
    "epsilon infinite": {"epsilon": math.inf},
    "epsilon a text": {"epsilon": "1"},
    "epsilon a bool": {"epsilon": True},
    "delta 1": {"delta": 1.0},
    "delta negative": {"delta": -1e-9},
    "radius 0": {"radius": 0.0},
    "radius negative": {"radius": -1.0},
    "radius NaN": {"radius": math.nan},
    "radius a bool": {"radius": True},
    "radius a text": {"radius": "1"},
    "radius gigantic": {"radius": 1e300},
    "n_steps 1": {"n_steps": 1},
    "n_steps 0": {"n_steps": 0},
    "n_steps a bool": {"n_steps": True},
    "n_steps a half": {"n_steps": 2.5},
    "n_steps a word": {"n_steps": "many"},
    "n_steps nothing": {"n_steps": None},
    "n_steps beyond memory": {"n_steps": 10**18},
    "feature_bound infinite": {"feature_bound": math.inf},
    "feature_bound NaN": {"feature_bound": math.nan},
    "feature_bound negative": {"feature_bound": -1.0},
    "feature_bound 0": {"feature_bound": 0.0},
    "feature_bound a text": {"feature_bound": "1"},
    "feature_bound tiny": {"feature_bound": 1e-310, "radius": 1e100},
    "data_norm 0": {"data_norm": 0.0},
    "data_norm infinite": {"data_norm": math.inf},
    "data_norm NaN": {"data_norm": math.nan},
    "constraint unknown": {"constraint": "l3"},
    "constraint a number": {"constraint": 3},
    "constraint a class": {"constraint": L1Ball},
    "constraint of another width": {"constraint": Polytope(np.eye(D + 1))},
    "constraint of nothing but zero": {"constraint": Polytope(np.zeros((1, D)))},
    "constraint left": {"constraint": Outside(1.0), "delta": 1e-6},
    "constraint not minimised": {"constraint": NotLeast(1.0), "delta": 1e-6},
    "constraint that reaches further": {"constraint": Short(1.0), "delta": 1e-6},
    "no delta for a round set": {"constraint": "l2"},
    "no delta for a round set, automatic steps": {"constraint": "l2", "n_steps": "auto"},
    "no delta for noisy gradients": {"method": "gradient"},
    "no corners": {"method": "corners", **ROUND},
    "method unknown": {"method": "magic"},
    "calibration unknown": {"calibration": "loose"},
    "paper without delta": {"calibration": "paper"},
    "paper without delta, automatic steps": {"calibration": "paper", "n_steps": "auto"},
    "paper without corners": {"calibration": "paper", **ROUND},
    "refit with the paper": {"calibration": "paper", "delta": 1e-6, "refit": 0.5},
    "refit of everything": {"refit": 1.0},
    "refit negative": {"refit": -0.1},
    "refit NaN": {"refit": math.nan},
    "refit a bool": {"refit": True},
    "refit a text": {"refit": "half"},
    "refit without chosen columns": {"refit": 0.5, **ROUND},
    "refit with next to nothing": {"refit": 1e-300},
    "intercept in a polytope": {"fit_intercept": True, "constraint": Polytope(np.eye(D + 1))},
    "intercept in a simplex": {"fit_intercept": True, "constraint": "simplex"},
    "rows_per_person 0": {"rows_per_person": 0},
    "rows_per_person a half": {"rows_per_person": 0.5},
    "random_state a text": {"random_state": "7"},
    "random_state negative": {"random_state": -1},
}


def refuse(model: Any, X: Any, y: Any, book: Book, kind: Any = InvalidInput) -> str:
    """Everything that the error would print, which must be of a kind a caller can expect; and no debit."""
    with pytest.raises(kind) as caught:
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert book.entries == []
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value.args)


def spoiled(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = table(name)
    X[3, 1] = float(SECRET)
    if name not in CLASSIFIERS:
        y[2] = float(SECRET)
    return X, y


@both
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_bad_settings_cost_nothing_and_quote_no_data(name, setting, book):
    text = refuse(estimator(name, ledger=book, **SETTINGS[setting]), *spoiled(name), book)
    assert "48151" not in text


@pytest.mark.parametrize(
    "bound", [0.0, -1.0, math.inf, math.nan, "1", True, (1.0, 0.0), (0.0, 1.0, 2.0), (0.0, math.inf), 1e-310, 1e200]
)
def test_bad_target_bounds_cost_nothing(bound, book):
    text = refuse(estimator("lasso", target_bound=bound, ledger=book), *spoiled("lasso"), book)
    assert "48151" not in text


def bad_tables(name: str) -> dict[str, tuple[dict[str, Any], Any, Any]]:
    X, y = spoiled(name)

    def with_(value: float) -> np.ndarray:
        changed = X.copy()
        changed[5, 2] = value
        return changed

    cases: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "NaN": ({}, with_(math.nan), y),
        "infinity": ({}, with_(math.inf), y),
        "sparse NaN": ({}, sparse.csr_array(with_(math.nan)), y),
        "three dimensions": ({}, X[None], y),
        "one dimension": ({}, X[:, 0], y),
        "no rows": ({}, X[:0], y[:0]),
        "no columns": ({}, X[:, :0], y),
        "more targets than rows": ({}, X, np.append(y, y[0])),
        "two columns of targets": ({}, X, np.column_stack([y, y])),
        "no targets": ({}, X, None),
        "complex features": ({}, X * (1 + 1j), y),
        "texts": ({}, np.where(X[3, 1] == X, f"Miller {SECRET}", X.astype(object)), y),
    }
    if name in CLASSIFIERS:
        outside = y.copy()
        outside[0] = 48151
        return cases | {
            "a label outside classes": ({}, X, outside),
            "numbers that are no labels": ({}, X, y + float(SECRET)),
            "a missing label": ({}, X, np.where(np.arange(len(y)) == 4, np.nan, y)),
            "one class": ({"classes": [0]}, X, y),
            "a class twice": ({"classes": [0, 0, 1]}, X, y),
            "three classes": ({"classes": [0, 1, 2]}, X, y),
            "three labels": ({"classes": None}, X, np.arange(len(y)) % 3),
            "no classes, one label": ({"classes": None}, X, np.full_like(y, 48151)),
            "no classes, many labels": ({"classes": None}, X, 48151 + np.arange(len(y))),
        }
    missing = np.where(np.arange(len(y)) == 4, np.nan, y)
    return cases | {"a missing target": ({}, X, missing), "texts as targets": ({}, X, [f"Miller {SECRET}"] * len(y))}


@both
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bad_tables_cost_nothing_and_are_not_quoted(name, book):
    for case, (changes, X, y) in bad_tables(name).items():
        text = refuse(estimator(name, ledger=book, **changes), X, y, book, (EpsilearnError, ValueError, TypeError))
        assert "48151" not in text, case
        assert "Miller" not in text, case


@both
def test_sample_weights_are_refused_with_a_reason(name, book):
    X, y = table(name)
    model = estimator(name, ledger=book)
    with pytest.raises(TypeError, match="a weight would multiply what one record can reveal"):
        model.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="nonsense"):
        model.fit(X, y, nonsense=1)
    assert book.entries == []


@every_case
def test_bounds_left_out_are_warned_of_at_every_fit_and_given_ones_never(name):
    X, y = table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(name).fit(X, y).predict(X)
    model = estimator(name, feature_bound=None)
    for _ in range(2):
        with pytest.warns(PrivacyWarning, match="feature_bound was not given: 1.0 is used") as caught:
            model.fit(X, y)
        assert caught[0].filename == __file__
    assert "[-1, 1]" in model.guarantee_.assumptions[1]
    if name not in CLASSIFIERS:
        with pytest.warns(PrivacyWarning, match="target_bound was not given") as caught:
            estimator(name, target_bound=None).fit(X, y)
        assert caught[0].filename == __file__


def test_the_default_bound_is_a_constant_and_not_the_datas():
    X, y = table("lasso")
    for size in (1e-6, 1e6):
        with pytest.warns(PrivacyWarning):
            model = Lasso(n_steps=4).fit(size * X, size * y)
        assert model._bounds_[0] == 1.0


# ---------------------------------------------------------------- tables of all kinds

LAYOUTS = {
    "list": lambda X: X.tolist(),
    "Fortran order": np.asfortranarray,
    "single precision": lambda X: X.astype(np.float32),
    "pandas": lambda X: pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])]),
    "polars": lambda X: pl.DataFrame({f"c{j}": X[:, j] for j in range(X.shape[1])}),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo, single precision": lambda X: sparse.coo_array(X.astype(np.float32)),
}


@every_case
def test_every_layout_releases_the_same_for_one_seed(name):
    """Path for path, bit for bit; a refit within its solver's certificate."""
    X, y = table(name)
    X = X * (np.random.default_rng(1).random(X.shape) < 0.4)
    expected = estimator(name, random_state=5).fit(X, y)
    tolerance = 1e-3 * np.abs(expected.coef_).max() if name in REFITTED else 0.0
    few = ("pandas", "csr") if name in REFITTED else LAYOUTS
    for layout, make in ((layout, LAYOUTS[layout]) for layout in few):
        model = estimator(name, random_state=5).fit(make(X), y)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=0, atol=tolerance, err_msg=layout)
        if name in CORNERS:
            np.testing.assert_array_equal(model.selected_, expected.selected_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn misses the names
            np.testing.assert_allclose(model.predict(make(X)), model.predict(X), atol=1e-5)


KINDS = [np.float32, np.int8, np.int16, np.int64, np.uint8, np.bool_]


@pytest.mark.parametrize("name", ["lasso", "lasso, polytope", "lasso, l2", "logistic", "logistic, intercept"])
@pytest.mark.parametrize(("most", "bound"), [(1, 1.0), (5, 4.0)])
def test_whole_numbers_of_any_kind_are_the_same_as_floats(name, most, bound):
    """Also where they are beyond the bound. With a bound that is no power of two floats are cut to levels first."""
    X = np.random.default_rng(2).integers(0, most + 1, size=(150, D))
    y = (X[:, 0] > X[:, 1]).astype(int) if name in CLASSIFIERS else (X[:, 0] - X[:, 1]) / most
    options = {"feature_bound": bound, "random_state": 3, "data_norm": None}
    expected = estimator(name, **options).fit(X.astype(float), y)
    for kind in KINDS:
        if kind is np.bool_ and most > 1:
            continue
        for make in (np.array, sparse.csr_array):
            model = estimator(name, **options).fit(make(X.astype(kind)), y)
            np.testing.assert_array_equal(model.coef_, expected.coef_, err_msg=str(kind))
            found = model.predict(make(X.astype(kind)))
            np.testing.assert_allclose(found, expected.predict(X.astype(float)), atol=1e-12)
    if most > 1:
        signed = (X - 3).astype(np.int8)
        one, two = (estimator(name, **options).fit(Z, y).coef_ for Z in (signed, signed.astype(float)))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [Lasso, SparseLogisticRegression])
def test_the_l1_balls_corners_as_a_polytope_make_the_same_choices(kind):
    """One uniform variate a step and the same order of corners: the same bits choose the same."""
    name = "lasso" if kind is Lasso else "logistic"
    X, y = table(name)
    for seed in range(5):
        options = {"radius": 2.0, "n_steps": 30, "epsilon": 20.0, "random_state": seed}
        ball = estimator(name, **options).fit(X, y)
        hull = estimator(name, **options, constraint=Polytope(2.0 * CROSS)).fit(X, y)
        np.testing.assert_array_equal(hull.selected_ // 2, ball.selected_)
        np.testing.assert_allclose(hull.coef_, ball.coef_, atol=1e-12)
        assert hull.noise_.scale == pytest.approx(ball.noise_.scale, rel=1e-6)
        assert len(set(ball.selected_.tolist())) > 3


@every_case
def test_feature_names_are_kept_and_checked(name):
    X, y = table(name)
    names = [f"c{j}" for j in range(D)]
    frame = pd.DataFrame(X, columns=names)
    model = estimator(name).fit(frame, y)
    assert model.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])
    with pytest.raises(ValueError, match="feature"):
        model.predict(frame[names[:3]])


@few_cases
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_callers_arrays_are_not_touched(name):
    X, y = table(name)
    for make in (np.array, np.asfortranarray, sparse.csr_array):
        given, targets = make(X), y.copy()
        estimator(name).fit(given, targets).predict(given)
        np.testing.assert_array_equal(given.toarray() if sparse.issparse(given) else given, X)
        np.testing.assert_array_equal(targets, y)
    frozen = X.copy()
    frozen.setflags(write=False)
    estimator(name).fit(frozen, y)


@every_case
def test_new_rows_are_cut_as_in_training(name):
    X, y = table(name)
    model = estimator(name, epsilon=5.0).fit(X, y)
    scores = getattr(model, "decision_function", model.predict)
    inside = np.clip(X, -1.5, 1.5)
    if model.data_norm is not None:
        inside = inside * np.minimum(1, 2.0 / np.linalg.norm(inside, axis=1))[:, None]
    by_hand = inside @ np.ravel(model.coef_) + model.intercept_
    np.testing.assert_allclose(scores(X), by_hand, atol=1e-12)
    np.testing.assert_allclose(scores(sparse.csr_array(X)), by_hand, atol=1e-12)
    giants = scores(1e300 * np.sign(X))
    np.testing.assert_allclose(giants, scores(1.5 * np.sign(X)), atol=1e-12)


def test_probabilities_and_labels():
    X, y = table("logistic")
    words = np.where(y == 1, "yes", "no")
    model = estimator("logistic", classes=["yes", "no"]).fit(X, words)
    assert model.classes_.tolist() == ["no", "yes"]
    scores = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), np.column_stack([expit(-scores), expit(scores)]), atol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)), atol=1e-9)
    assert set(model.predict(X)) <= {"no", "yes"}
    np.testing.assert_array_equal(model.predict(X) == "yes", scores > 0)


@few_cases
def test_a_progress_bar_changes_nothing(name, capsys):
    X, y = table(name)
    quiet, loud = (estimator(name, random_state=1, verbose=v).fit(X, y).coef_ for v in (False, True))
    np.testing.assert_array_equal(quiet, loud)
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- one record must not move what is public


def neighbours(n: int = 60) -> list[np.ndarray]:
    """The same rows but for the first: short, full, gigantic, tiny, or empty."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, D)) * (generator.random((n, D)) < 0.2)
    firsts = [np.eye(D)[0], np.ones(D), np.full(D, 1.7e308), np.full(D, 1e-320), np.zeros(D)]
    return [np.vstack([first, X[1:]]) for first in firsts]


@every_case
def test_plans_do_not_depend_on_a_record(name, walks, monkeypatch):
    """Nor on whether the table is dense or sparse: steps, scale, levels and promise are the same."""
    monkeypatch.setattr(lasso.SparseModel, "_refitted", lambda self, model, X, y, point, *_: point)
    targets = [0, 1] if name in CLASSIFIERS else [1e300, -0.5, 0.0]
    for steps in (10, "auto", "paper"):
        walks.clear()
        for X in [*neighbours(), np.zeros((60, D))]:
            for first in targets:
                y = np.r_[first, np.arange(59) % 2]
                for make in (np.array, sparse.csr_array):
                    estimator(name, n_steps=steps, epsilon=0.1).fit(make(X), y)
        plans = [plan for plan, _ in walks]
        assert all(plan == plans[0] for plan in plans)
        assert all(walked.guarantee == walks[0][1].guarantee for _, walked in walks)


@pytest.mark.parametrize("name", ["lasso", "lasso, simplex", "lasso, polytope", "logistic", "logistic, intercept"])
def test_a_gigantic_record_is_one_record(name, walks):
    """One seed and next to no budget: a giant changes the choices no more than anybody, which is not at all."""
    for X in neighbours():
        estimator(name, epsilon=1e-6, random_state=9).fit(X, np.r_[1, np.arange(59) % 2])
    chosen = [walked.chosen for _, walked in walks]
    assert all(c == chosen[0] for c in chosen)


# ---------------------------------------------------------------- the library's own draws


def test_a_model_draws_from_the_exponential_law():
    """Three corners and one choice: exact probabilities by hand, from the operating system's bits."""
    corners = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    X, y = np.array([[0.5, -0.25], [1.0, 0.5], [0.0, 1.0]]), np.array([1.0, -0.5, 0.25])
    model = Lasso(epsilon=24.0, feature_bound=1.0, target_bound=1.0, n_steps=2, constraint=Polytope(corners))
    gradient = -2 * y @ X / 3  # at the corners' mean, which is 0
    # |<x, s>| is 2 at most, so slopes are 2 (2 + 1) and scores move by 2 * 6 * 2 / n.
    scale = 2 * (2 * 6 * 2 / 3) / 24.0
    assert model.fit(X, y).noise_.scale == pytest.approx(scale, rel=1e-6)
    runs, seen = 1500, np.zeros(3)
    for _ in range(runs):
        seen[model.fit(X, y).selected_[0]] += 1

    def fit_of(factor: float) -> float:
        weights = np.exp(-(corners @ gradient) / (factor * scale))
        return stats.chisquare(seen, runs * weights / weights.sum()).pvalue

    assert fit_of(1.0) > 1e-6  # bits that cannot be fixed: no false alarm in a million runs
    assert min(fit_of(0.5), fit_of(2.0)) < 1e-6


# ---------------------------------------------------------------- do they learn?

TRUTH = np.zeros(50)
TRUTH[[3, 8, 20]] = [0.5, -0.3, 0.2]


@pytest.fixture(scope="module")
def signal() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(20_000, 50))
    return X, X @ TRUTH + 0.05 * generator.normal(size=20_000)


GENEROUS = {"epsilon": 10.0, "delta": 1e-6, "feature_bound": 1.0}


def test_the_lasso_finds_the_columns_and_their_weights(signal):
    X, y = signal
    model = Lasso(target_bound=1.0, n_steps=60, **GENEROUS).fit(X, y)
    assert model.selected_[0] == 3
    assert set(model.selected_[:10]) == {3, 8, 20}
    np.testing.assert_allclose(model.coef_, TRUTH, atol=0.06)
    assert model.score(X, y) > 0.95
    automatic = Lasso(target_bound=1.0, **GENEROUS).fit(X, y)
    assert set(automatic.selected_[:10]) == {3, 8, 20}
    np.testing.assert_allclose(automatic.coef_, TRUTH, atol=0.06)


def test_the_lasso_on_other_bounds_and_a_shifted_range(signal):
    """Features of ten times the size, targets around 5: the same model, in other units."""
    X, y = signal
    options = {**GENEROUS, "feature_bound": 10.0, "target_bound": (3.0, 7.0), "radius": 0.2}
    model = Lasso(n_steps=60, **options).fit(10 * X, 5 + 2 * y)
    assert set(model.selected_[:10]) == {3, 8, 20}
    np.testing.assert_allclose(model.coef_, 0.2 * TRUTH, atol=0.015)
    assert model.intercept_ == 5.0
    assert model.score(10 * X, 5 + 2 * y) > 0.95


def greedy(X: np.ndarray, y: np.ndarray, radius: float, steps: int, squared: bool) -> tuple[list[int], np.ndarray]:
    """Frank-Wolfe without privacy, by the textbook."""
    point, chosen = np.zeros(X.shape[1]), []
    for t in range(1, steps):
        margins = X @ point
        slopes = 2 * (margins - y) if squared else -y * expit(-y * margins)
        gradient = X.T @ slopes / len(X)
        column = int(np.abs(gradient).argmax())
        corner = np.zeros_like(point)
        corner[column] = -radius * np.sign(gradient[column])
        point = (1 - 2 / (t + 2)) * point + 2 / (t + 2) * corner
        chosen.append(column)
    return chosen, point


def test_without_noise_to_speak_of_it_is_frank_wolfe(signal):
    X, y = signal
    options = {"epsilon": 1e7, "feature_bound": 1.0, "n_steps": 12}
    chosen, point = greedy(X, y, 1.5, 12, squared=True)
    model = Lasso(radius=1.5, target_bound=2.0, **options).fit(X, y)
    assert model.selected_.tolist() == chosen
    np.testing.assert_allclose(model.coef_, point, atol=1e-12)
    labels = np.where(y > 0.1, 1.0, -1.0)
    chosen, point = greedy(X, labels, 6.0, 12, squared=False)
    sparse_model = SparseLogisticRegression(radius=6.0, classes=[-1, 1], **options).fit(X, labels)
    assert sparse_model.selected_.tolist() == chosen
    np.testing.assert_allclose(sparse_model.coef_[0], point, atol=1e-12)


def test_a_noisy_gradient_learns_too(signal):
    X, y = signal
    model = Lasso(target_bound=1.0, constraint="l2", radius=0.6, **{**GENEROUS, "epsilon": 50.0}).fit(X, y)
    assert not hasattr(model, "selected_")
    assert set(np.argsort(-np.abs(model.coef_))[:3]) == {3, 8, 20}
    assert np.corrcoef(model.coef_, TRUTH)[0, 1] > 0.97


def test_logistic_regression_finds_the_columns(signal):
    X, _ = signal
    generator = np.random.default_rng(1)
    labels = np.where(8 * (X @ TRUTH) + generator.logistic(size=len(X)) > 0, "ill", "well")
    model = SparseLogisticRegression(radius=8.0, classes=["ill", "well"], **GENEROUS).fit(X, labels)
    assert set(model.selected_[:10]) == {3, 8, 20}
    # "well" is the second class, and a positive score stands for it.
    np.testing.assert_array_equal(np.sign(model.coef_[0, [3, 8, 20]]), [-1, 1, -1])
    assert np.corrcoef(model.coef_[0], -TRUTH)[0, 1] > 0.97
    assert model.score(X, labels) > 0.8


def test_a_refit_is_free_of_the_constraint(signal):
    """Twice too small a ball: the path's end is short, the refit is not."""
    X, y = signal
    options = {"target_bound": 1.0, "radius": 0.5, "n_steps": 12, **GENEROUS}
    short, refitted = Lasso(**options).fit(X, y), Lasso(refit=0.5, **options).fit(X, y)
    assert np.abs(short.coef_).sum() <= 0.5 * (1 + 1e-9)
    assert set(np.flatnonzero(refitted.coef_)) <= set(refitted.selected_)
    chosen = np.unique(refitted.selected_)
    np.testing.assert_allclose(refitted.coef_[chosen], TRUTH[chosen], atol=0.03)
    assert {3, 8} <= set(chosen)


@pytest.mark.parametrize("refit", [0.0, 0.5])
def test_an_intercept_is_found(signal, refit):
    X, y = signal
    options = {"fit_intercept": True, "refit": refit, "radius": 1.4, "n_steps": 60, **GENEROUS}
    model = Lasso(target_bound=2.0, **options).fit(X, y + 0.4)
    assert model.intercept_ == pytest.approx(0.4, abs=0.05)
    assert model.selected_[0] == 50  # the constant column
    assert model.score(X, y + 0.4) > 0.9
    doubled = Lasso(**{**options, "feature_bound": 2.0, "radius": 0.7}, target_bound=2.0).fit(2 * X, y + 0.4)
    assert doubled.intercept_ == pytest.approx(0.4, abs=0.05)


def test_an_intercept_that_alone_was_chosen_survives_the_refit():
    """Nothing but the constant was selected: there is nothing to fit again, and the path's end holds."""
    generator = np.random.default_rng(2)
    X, y = generator.uniform(-1, 1, size=(20_000, 5)), np.full(20_000, 0.9)
    options = {**GENEROUS, "target_bound": 1.0, "fit_intercept": True, "n_steps": 2}
    plain, refitted = Lasso(**options).fit(X, y), Lasso(refit=0.5, **options).fit(X, y)
    assert plain.selected_.tolist() == refitted.selected_.tolist() == [5]
    assert plain.intercept_ == pytest.approx(2 / 3)
    assert refitted.intercept_ > 0.5


def test_more_budget_and_fewer_steps_mean_less_noise():
    X, y = table("lasso")
    scales = [estimator("lasso", epsilon=e).fit(X, y).noise_.scale for e in (0.1, 1.0, 10.0)]
    assert scales[0] == pytest.approx(10 * scales[1], rel=1e-9)
    assert scales[1] == pytest.approx(10 * scales[2], rel=1e-9)
    steps = [estimator("lasso", n_steps=t).fit(X, y).noise_.scale for t in (2, 3, 11)]
    np.testing.assert_allclose(np.array(steps) / steps[0], [1, 2, 10], rtol=1e-9)
    assert isinstance(estimator("lasso", n_steps=2).fit(X, y).guarantee_.curve.parts[0], Pure)


@pytest.mark.parametrize("name", ["lasso", "logistic"])
def test_a_record_that_changes_the_tables_type_changes_no_other_record(name, monkeypatch):
    """One half among whole numbers, and a reader makes the whole column floats: the levels must stay as they were."""
    seen = []
    made = frank_wolfe.execute

    def spy(plan, rows, *arguments, **options):
        seen.append((plan.features, rows))
        return made(plan, rows, *arguments, **options)

    monkeypatch.setattr(frank_wolfe, "execute", spy)
    whole = np.random.default_rng(0).integers(-3, 4, (50, 4))
    half = whole.astype(float)
    half[0, 0] = 0.5
    y = np.arange(50) % 2
    for X in (whole, half, sparse.csr_array(whole), sparse.csr_array(half)):
        estimator(name, feature_bound=3.0).fit(X, y)
    levels = [plan_levels for plan_levels, _ in seen]
    assert all(own == levels[0] for own in levels)
    others = np.array([0, *[1] * 49])
    sums = [rows.spread(rows.combine(others)) for _, rows in seen]
    assert all(np.array_equal(own, sums[0]) for own in sums)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_whole_features_are_shortened_like_any_other(layout):
    """On a coarse grid nothing would be left of a row that is a little too long."""
    X = np.random.default_rng(1).integers(0, 2, (4000, 12))
    y = 0.6 * X[:, 0] - 0.3
    errors = []
    for kind in (np.int8, np.float64):
        model = Lasso(epsilon=50.0, delta=1e-6, feature_bound=1.0, target_bound=1.0, data_norm=2.0, random_state=0)
        errors.append(np.mean((model.fit(layout(X.astype(kind)), y).predict(layout(X)) - y) ** 2))
    assert errors[0] == errors[1] < 0.03


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_a_refit_sees_rows_as_predictions_do(layout):
    """Shortened by the whole row's length, not by that of the columns chosen."""
    generator = np.random.default_rng(2)
    X = generator.uniform(0.5, 1, (5000, 6))
    X[:2500, 3:] = 0
    shortened = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    y = shortened[:, 0]
    model = Lasso(
        epsilon=100.0, delta=1e-6, n_steps=2, refit=0.9, feature_bound=1.0, target_bound=1.0, data_norm=1.0,
        random_state=0,
    ).fit(layout(X), y)  # fmt: skip
    assert model.selected_.tolist() == [0]
    assert np.mean((model.predict(layout(X)) - y) ** 2) < 1e-3


def test_duplicate_entries_are_summed_before_they_are_cut():
    model = Lasso(epsilon=5.0, feature_bound=1.0, target_bound=1.0).fit(np.eye(40)[:, :3], np.zeros(40))
    twice = sparse.csr_array((np.array([0.8, 0.8]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert model.predict(twice) == model.predict(np.array([[0.0, 1.6, 0.0]]))


@pytest.mark.parametrize("constraint", [L1Ball(2.0), Polytope([[0.0, 1.0], [1.0, 0.0]])])
def test_a_radius_is_checked_even_where_the_set_has_its_own(constraint):
    with pytest.raises(InvalidInput, match="radius must be"):
        Lasso(radius=-1.0, constraint=constraint, feature_bound=1.0, target_bound=1.0).fit(np.eye(2), [0.0, 1.0])


def test_corners_are_read_once_and_checked_before_the_debit(book):
    class Fickle(L1Ball):
        asked = 0

        def corners(self, features):
            type(self).asked += 1
            return L1Ball(1.0 if self.asked == 1 else 1000.0).corners(features)

    model = Lasso(epsilon=1.0, constraint=Fickle(1.0), feature_bound=1.0, target_bound=1.0)
    model.fit(np.eye(40)[:, :3], np.zeros(40))
    assert np.abs(model.coef_).sum() <= 1.0
    assert Fickle.asked == 1

    class Wide(L1Ball):
        def corners(self, features):
            return Polytope(np.eye(features + 1)).corners(features + 1)

    class Beyond(L1Ball):
        def corners(self, features):
            return Polytope(5 * np.eye(features)).corners(features)

    for wrong in (Wide(1.0), Beyond(1.0)):
        with pytest.raises(InvalidInput, match="corners"):
            Lasso(constraint=wrong, feature_bound=1.0, target_bound=1.0, ledger=book).fit(np.eye(4), np.zeros(4))
    assert book.entries == []
