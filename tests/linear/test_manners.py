"""One contract for every linear estimator and each way of fitting it: what may leave, what it costs, and manners."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from epsilearn import (
    BoundedScaler,
    ConvexERM,
    Guarantee,
    Ledger,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    erm,
)
from epsilearn.errors import BudgetExceeded, ConvergenceError, EpsilearnError, PrivacyWarning
from epsilearn.losses import Huber
from epsilearn.mechanisms.minimum import drawing_error
from epsilearn.solvers import minimise

BINARY = {"data_norm": 1.5, "classes": [0, 1]}
MANY = {"data_norm": 1.5, "classes": [0, 1, 2]}
NUMBERS = {"data_norm": 1.5, "target_bound": 1.0}

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": (LogisticRegression, BINARY),
    "logistic, gaussian": (LogisticRegression, {"delta": 1e-6, "alpha": 0.1, **BINARY}),
    "logistic, output": (LogisticRegression, {"method": "output", **BINARY}),
    "logistic, no intercept": (LogisticRegression, {"fit_intercept": False, **BINARY}),
    "softmax": (LogisticRegression, MANY),
    "softmax, gaussian": (LogisticRegression, {"delta": 1e-6, "method": "objective", **MANY}),
    "softmax, gradient": (LogisticRegression, {"delta": 1e-6, **MANY}),
    "logistic, gradient": (LogisticRegression, {"delta": 1e-6, "method": "gradient", "centre": False, **BINARY}),
    "logistic, centred": (LogisticRegression, {"delta": 1e-6, "centre": True, **BINARY}),
    "logistic, centred, pure": (LogisticRegression, {"centre": True, **BINARY}),
    "softmax, output, gaussian": (LogisticRegression, {"method": "output", "delta": 1e-6, **MANY}),
    "svm": (LinearSVC, BINARY),
    "svm, output, gaussian": (LinearSVC, {"method": "output", "delta": 1e-6, **BINARY}),
    "huber": (LinearRegression, NUMBERS),
    "huber, gaussian": (LinearRegression, {"delta": 1e-6, "alpha": 0.1, **NUMBERS}),
    "ridge": (LinearRegression, {"method": "output", **NUMBERS}),
    "moments": (LinearRegression, {"method": "sufficient-statistics", **NUMBERS}),
    "moments, gaussian": (LinearRegression, {"method": "sufficient-statistics", "delta": 1e-6, **NUMBERS}),
    "convex, logistic": (ConvexERM, BINARY),
    "convex, huber": (ConvexERM, {"loss": Huber(0.5, 1.0), "data_norm": 1.5}),
}
SOLVED = [name for name in CASES if not name.startswith("moments") and "gradient" not in name]
OUTPUT = [name for name in SOLVED if CASES[name][1].get("method") == "output"]
CLASSIFIERS = [name for name in CASES if "classes" in CASES[name][1]]
KINDS = [LogisticRegression, LinearSVC, LinearRegression, ConvexERM]

every_case = pytest.mark.parametrize("name", CASES)
every_solved_case = pytest.mark.parametrize("name", SOLVED)


def estimator(name: str, **changes: Any) -> Any:
    kind, options = CASES[name]
    return kind(**{**options, **changes})


def table(name: str, n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which some are longer than the bound, in numbers that single precision holds."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)).astype(np.float32).astype(float)
    if name not in CLASSIFIERS:
        return X, np.clip(X[:, 0] + 0.1 * generator.normal(size=n), -2, 2)
    classes = len(CASES[name][1]["classes"])
    return X, np.argmax(X @ generator.normal(size=(d, classes)) + generator.gumbel(size=(n, classes)), axis=1)


def weights(model: Any) -> np.ndarray:
    """What was released, the intercept as it stands in the objective."""
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    column = intercept / model._bounds_.intercept if model.fit_intercept else np.zeros(0)
    return np.append(coef, column)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budget.db", dataset="d", epsilon=100.0, delta=1e-3)


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

    def history(self) -> list[dict[str, Any]]:
        return self.entries

    def __deepcopy__(self, memo: Any) -> Book:
        return self


@pytest.fixture
def book():
    return Book()


# Where a real ledger is asked, one estimator of each kind will do.
with_a_ledger = pytest.mark.parametrize("name", ["logistic", "softmax, output, gaussian", "moments, gaussian", "svm"])


# ---------------------------------------------------------------- constructors, clones, pickles


@pytest.mark.parametrize("kind", KINDS)
def test_constructors_take_keywords_and_only_store(kind):
    with pytest.raises(TypeError):
        kind(1.0)
    parameters = inspect.signature(kind.__init__).parameters
    strange = {name: object() for name in parameters if name != "self"}
    # Attributes, not get_params: that would ask the nonsense for parameters of its own.
    model = kind(**strange)
    assert {name: vars(model)[name] for name in strange} == strange
    assert vars(model).keys() == strange.keys()
    assert kind().epsilon == 1.0
    assert "max_iter" not in parameters


@every_case
def test_clones_know_the_settings_and_nothing_else(name, book):
    X, y = table(name)
    model = estimator(name, ledger=book).fit(X, y)
    copied = clone(model)
    assert not hasattr(copied, "coef_")
    assert not hasattr(copied, "guarantee_")
    with pytest.raises(NotFittedError):
        copied.predict(X)
    copied.fit(X, y)
    assert [entry["status"] for entry in book.history()] == ["delivered"] * 2
    assert not np.array_equal(copied.coef_, model.coef_)


@with_a_ledger
def test_a_clone_debits_the_same_ledger(name, ledger):
    X, y = table(name)
    model = estimator(name, ledger=ledger).fit(X, y)
    for copied in (clone(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        copied.fit(X, y)
    assert [entry["status"] for entry in ledger.history()] == ["delivered"] * 4


@every_case
def test_a_fitted_model_predicts_the_same_after_pickling(name):
    X, y = table(name)
    model = estimator(name).fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.noise_ == model.noise_


@every_case
def test_copies_that_are_fitted_again_repeat_no_noise(name):
    X, y = table(name)
    model = estimator(name)
    fitted = [m.fit(X, y) for m in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model))]
    first = model.coef_.copy()
    again = pickle.loads(pickle.dumps(model))
    fitted += [model.fit(X, y), again.fit(X, y)]
    seen = [first.tobytes()] + [m.coef_.tobytes() for m in fitted[1:]]
    assert len(set(seen)) == len(seen)


@every_case
def test_a_seed_repeats_and_voids(name):
    X, y = table(name)
    one, two, other = (estimator(name, random_state=seed).fit(X, y) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert not np.array_equal(one.coef_, other.coef_)
    assert one.guarantee_.epsilon == math.inf
    assert one.guarantee_.void_reason == "seeded"


@with_a_ledger
def test_a_ledger_refuses_a_seed(name, ledger):
    X, y = table(name)
    refused = estimator(name, random_state=7, ledger=ledger)
    with pytest.raises(BudgetExceeded, match="seeded"):
        refused.fit(X, y)
    assert not hasattr(refused, "coef_")
    assert ledger.history() == []


# ---------------------------------------------------------------- what is released


PUBLIC = {"n_features_in_", "guarantee_", "noise_", "alpha_", "method_", "_bounds_"}
RELEASED = {"coef_", "intercept_"}


@every_case
def test_a_fitted_model_holds_the_release_and_public_numbers(name):
    """Two tables of one shape and nothing else in common: all but the release is the same, and no record is inside."""
    X, y = table(name)
    models = [estimator(name).fit(X, y), estimator(name).fit(-100 * X[::-1], y)]
    found = [{key: value for key, value in vars(m).items() if key not in m.get_params()} for m in models]
    allowed = PUBLIC | RELEASED | ({"classes_"} if name in CLASSIFIERS else set())
    assert set(found[0]) == set(found[1]) == allowed
    # With noisy moments the ridge is part of what was released.
    released = RELEASED | ({"alpha_"} if name.startswith("moments") else set())
    for key in allowed - released:
        assert pickle.dumps(found[0][key]) == pickle.dumps(found[1][key]), key
    content = pickle.dumps(models[0])
    assert len(content) < 5000
    assert not any(number.tobytes() in content for number in X.ravel()[np.abs(X.ravel()) > 1e-3])


@every_case
def test_feature_names_are_kept_and_checked(name):
    X, y = table(name)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = estimator(name).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.raises(ValueError, match="feature"):
        model.predict(frame[["a", "b"]])


@with_a_ledger
def test_the_guarantee_is_stamped_by_the_ledger(name, tmp_path):
    X, y = table(name)
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=9.0, delta=1e-3, rows_per_person=2)
    promise = estimator(name, epsilon=0.7, rows_per_person=2, ledger=ledger).fit(X, y).guarantee_
    assert promise.ledger.entry == 1
    assert Guarantee.from_json(promise.to_json()) == promise


@every_case
def test_the_guarantee_survives_json_and_says_what_it_rests_on(name):
    X, y = table(name)
    model = estimator(name, epsilon=0.7, rows_per_person=2).fit(X, y)
    promise = model.guarantee_
    assert Guarantee.from_json(promise.to_json()) == promise
    assert (promise.epsilon, promise.delta) == (0.7, model.delta)
    assert promise.rows_per_person == 2
    assert promise.claimed_epsilon is None
    text = " ".join(promise.assumptions)
    assert "rows are scaled to a norm" in text
    assert ("targets are clipped" in text) == (name not in CLASSIFIERS)
    assert ("the solver reaches its certificate" in text) == (name in SOLVED)
    assert "label set is public" not in text  # it was given
    assert promise.explain() is not None


@every_case
def test_the_ledger_is_debited_what_is_promised(name, book):
    X, y = table(name)
    model = estimator(name, epsilon=0.3, ledger=book).fit(X, y)
    (entry,) = book.history()
    assert entry["status"] == "delivered"
    assert entry["purpose"] == f"{CASES[name][0].__name__}.fit"
    assert entry["guarantee"] == model.guarantee_
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (0.3, model.delta)


@with_a_ledger
def test_a_spent_ledger_refuses_and_nothing_is_fitted(name, tmp_path):
    X, y = table(name)
    small = Ledger.create(tmp_path / "small.db", dataset="d", epsilon=0.5, delta=1e-6)
    model = estimator(name, epsilon=0.6, ledger=small)
    with pytest.raises(BudgetExceeded):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert small.history() == []


def test_cross_validation_debits_one_ledger_for_each_fold(ledger):
    X, y = table("logistic", n=120)
    model = LogisticRegression(epsilon=0.25, ledger=ledger, **BINARY)
    cross_val_score(model, X, y, cv=4)
    assert len(ledger.history()) == 4
    assert all(entry["guarantee"]["epsilon"] == 0.25 for entry in ledger.history())
    assert not hasattr(model, "coef_")


# ---------------------------------------------------------------- the noise


def persons(name: str, rows: int, **changes: Any) -> Any:
    X, y = table(name)
    return estimator(name, rows_per_person=rows, alpha=1.0, **changes).fit(X, y)


@every_case
def test_a_persons_rows_scale_the_noise(name):
    one, three = (persons(name, rows).noise_ for rows in (1, 3))
    assert one.dimension == three.dimension
    # Where one record's part of delta shrinks with the group, a little more than three times.
    assert 3 * (1 - 1e-3) <= three.scale / one.scale <= (3.1 if name in OUTPUT or "gaussian" not in name else 4.5)
    assert persons(name, 3).guarantee_.epsilon == 1.0


def check_noise(name: str, per_unit: float) -> None:
    """All rows zero, so the minimiser is known and the noise can be read off. Seeded; 5 % off would be far outside."""
    y = table(name, n=20)[1]
    options = {"fit_intercept": False, "alpha": 3.0}
    models = [estimator(name, random_state=s, **options).fit(np.zeros((20, 64)), y) for s in range(100)]
    law, lengths = models[0].noise_, [per_unit * np.linalg.norm(weights(m)) for m in models]
    assert law.dimension == (128 if "softmax" in name else 64)
    if law.kind == "k-norm":
        assert np.mean(lengths) == pytest.approx(law.dimension * law.scale, rel=0.03)
    else:
        assert np.mean(np.square(lengths)) == pytest.approx(law.dimension * law.scale**2, rel=0.05)
    drawn = np.array([weights(m) for m in models]) * per_unit
    assert abs(drawn.mean()) < 5 * law.deviation / math.sqrt(drawn.size)


@pytest.mark.parametrize("name", ["logistic", "logistic, gaussian", "softmax", "huber, gaussian", "svm"])
def test_the_noise_in_the_objective_is_what_the_model_says(name):
    check_noise(name, per_unit=20 * 3.0)


@pytest.mark.parametrize("name", OUTPUT)
def test_the_noise_on_the_result_is_what_the_model_says(name):
    check_noise(name, per_unit=1.0)


@pytest.mark.parametrize("name", OUTPUT)
@pytest.mark.parametrize("alpha", [1.0, 0.05])
def test_neighbours_differ_by_no_more_than_the_noise_hides(name, alpha):
    """One seed, one noise: two fits differ by what their minimisers do. The worst records, through the whole door."""
    n, epsilon, generator = 6, 0.5, np.random.default_rng(1)
    X, y = table(name, n=n)
    far = 1e6 * generator.normal(size=(8, 3))
    labels = [0, 1] if name in CLASSIFIERS else [-50.0, 50.0]
    moved = []
    for row in (*far, np.zeros(3)):
        for label in labels:
            fits = []
            for record, target in ((row, label), (-row, labels[0]), (far[0], labels[1])):
                X[0], y[0] = record, target
                fits.append(weights(estimator(name, alpha=alpha, epsilon=epsilon, random_state=3).fit(X, y)))
            moved += [np.linalg.norm(a - b) for a in fits for b in fits]
    law = estimator(name, alpha=alpha, epsilon=epsilon, random_state=3).fit(X, y).noise_
    # K-norm noise is exactly sensitivity / epsilon; Gaussian noise is several times its sensitivity.
    sensitivity = law.scale * epsilon if law.kind == "k-norm" else law.scale * gaussian_shift_of(epsilon)
    assert max(moved) <= sensitivity * (1 + 1e-6)
    if alpha == 1.0:
        assert max(moved) > 0.25 * sensitivity


def gaussian_shift_of(epsilon: float) -> float:
    from epsilearn.calibration.additive import gaussian_shift

    return gaussian_shift(epsilon, 1e-6)


# ---------------------------------------------------------------- tables of all kinds

LAYOUTS = {
    "list": lambda X: X.tolist(),
    "Fortran order": np.asfortranarray,
    "single precision": lambda X: X.astype(np.float32),
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
    "polars": lambda X: pl.DataFrame({name: X[:, j] for j, name in enumerate("abc")}),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo, single precision": lambda X: sparse.coo_array(X.astype(np.float32)),
}


@every_case
def test_every_layout_releases_the_same_value(name, monkeypatch):
    """For one seed, within what the certificate allows and the grid of the door."""
    made = []
    execute = erm.execute
    monkeypatch.setattr(
        erm, "execute", lambda plan, *rest, **options: made.append(plan) or execute(plan, *rest, **options)
    )
    X, y = table(name)
    expected = weights(estimator(name, random_state=5).fit(X, y))
    if name in SOLVED:
        (plan,) = made
        last = plan.polish or plan.law
        tolerance = 2 * plan.certificate / plan.strength + 2.0**-18 * last.deviation
        assert tolerance < 0.2 * np.abs(expected).max()
    else:
        tolerance = 1e-4 * np.abs(expected).max()
    for layout, make in LAYOUTS.items():
        model = estimator(name, random_state=5).fit(make(X), y)
        np.testing.assert_allclose(weights(model), expected, atol=tolerance, err_msg=layout)
        scores = getattr(model, "decision_function", model.predict)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn misses the names
            np.testing.assert_allclose(scores(make(X)), scores(X), atol=1e-5)


@every_case
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
def test_targets_of_all_kinds(name):
    X, y = table(name)
    expected = estimator(name, random_state=5).fit(X, y).coef_
    for make in (list, pd.Series, pl.Series, lambda v: pd.Series(v, index=v.argsort()), lambda v: v.reshape(-1, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn says that a column was given where a vector was expected
            found = estimator(name, random_state=5).fit(X, make(y)).coef_
        np.testing.assert_array_equal(found, expected)


@every_case
def test_new_rows_are_shortened_as_in_training(name):
    """A row ten times as long as the bound is judged like the row at the bound, in its direction."""
    X, y = table(name)
    model = estimator(name).fit(X, y)
    scores = getattr(model, "decision_function", model.predict)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    for length in (15.0, 1e60, 1e200, 1e307):
        np.testing.assert_allclose(scores(length * units), scores(1.5 * units), rtol=1e-9, atol=1e-9)
        compressed = sparse.csr_array(length * units)
        np.testing.assert_allclose(scores(compressed), scores(1.5 * units), rtol=1e-9, atol=1e-9)
    assert not np.allclose(scores(1.5 * units), scores(0.75 * units))
    by_hand = 1.5 * units @ np.atleast_2d(model.coef_).T + model.intercept_
    np.testing.assert_allclose(scores(15 * units), by_hand.squeeze(), rtol=1e-9, atol=1e-9)


def test_a_pipeline_from_a_mixed_table():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"age": generator.integers(0, 100, 3000), "smokes": generator.choice(["no", "yes"], 3000)})
    y = np.where(frame["smokes"] == "yes", "ill", "well")
    for output in ("default", "pandas", "polars"):
        scaler = BoundedScaler(bounds={"age": (0, 120)}, categories={"smokes": ["no", "yes"]})
        # So much budget that a bad score has no chance: a seed would void the promise.
        pipeline = make_pipeline(scaler, LogisticRegression(epsilon=20.0, data_norm=1.0, classes=["ill", "well"]))
        pipeline.set_output(transform=output)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline.fit(frame, y)
        assert pipeline.score(frame, y) > 0.95
        assert pipeline[-1].guarantee_.epsilon == 20.0
        names = getattr(pipeline[-1], "feature_names_in_", None)
        assert names is None if output == "default" else names.tolist() == ["age", "smokes_no", "smokes_yes"]
        assert clone(pipeline).fit(frame, y).score(frame, y) > 0.95


# ---------------------------------------------------------------- warnings


@every_case
def test_bounds_left_out_are_warned_of_at_every_fit_and_given_ones_never(name):
    X, y = table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(name).fit(X, y).predict(X)
    model = estimator(name, data_norm=None)
    for _ in range(3):
        with pytest.warns(PrivacyWarning, match="data_norm was not given: 1.0 is used"):
            model.fit(X, y)
    if "target_bound" in CASES[name][1]:
        for _ in range(2):
            with pytest.warns(PrivacyWarning, match="target_bound was not given"):
                estimator(name, target_bound=None).fit(X, y)


def test_the_default_bound_is_a_constant_and_not_the_datas():
    X, y = table("logistic")
    for size in (1e-6, 1e6):
        with pytest.warns(PrivacyWarning):
            model = LogisticRegression(classes=[0, 1]).fit(size * X, y)
        assert model._bounds_.data_norm == 1.0


def test_python_itself_shows_the_warning_at_every_fit():
    """Python shows a warning once for each line of code unless told otherwise; this one must not be lost that way."""
    code = (
        "import numpy as np; from epsilearn import LogisticRegression\n"
        "X = np.eye(4); y = [0, 1, 0, 1]\n"
        "for _ in range(3):\n"
        "    LogisticRegression().fit(X, y)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert found.count("PrivacyWarning") == 3


# ---------------------------------------------------------------- what is refused, and what that costs

SECRET = "48151.625"


def refusals(name: str) -> dict[str, tuple[dict[str, Any], Any, Any]]:
    """Changed settings, and a changed table; wherever a value is out of place it is the secret one."""
    X, y = table(name)
    spoiled, secret = X.copy(), float(SECRET)
    spoiled[3, 1] = secret

    def with_(value: float) -> np.ndarray:
        changed = spoiled.copy()
        changed[5, 2] = value
        return changed

    cases: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "NaN": ({}, with_(math.nan), y),
        "infinity": ({}, with_(math.inf), y),
        "sparse NaN": ({}, sparse.csr_array(with_(math.nan)), y),
        "three dimensions": ({}, spoiled[None], y),
        "no rows": ({}, spoiled[:0], y[:0]),
        "no columns": ({}, spoiled[:, :0], y),
        "more targets than rows": ({}, spoiled, np.append(y, y[0])),
        "two columns of targets": ({}, spoiled, np.column_stack([y, y])),
        "no targets": ({}, spoiled, None),
        "epsilon 0": ({"epsilon": 0.0}, spoiled, y),
        "epsilon infinite": ({"epsilon": math.inf}, spoiled, y),
        "epsilon a text": ({"epsilon": "1"}, spoiled, y),
        "delta 1": ({"delta": 1.0}, spoiled, y),
        "alpha negative": ({"alpha": -1.0}, spoiled, y),
        "alpha a word": ({"alpha": "best"}, spoiled, y),
        "method unknown": ({"method": "magic"}, spoiled, y),
        "calibration unknown": ({"calibration": "loose"}, spoiled, y),
        "data_norm 0": ({"data_norm": 0.0}, spoiled, y),
        "data_norm NaN": ({"data_norm": math.nan}, spoiled, y),
        "data_norm a text": ({"data_norm": "1"}, spoiled, y),
        "rows_per_person 0": ({"rows_per_person": 0}, spoiled, y),
        "rows_per_person a half": ({"rows_per_person": 0.5}, spoiled, y),
        "random_state a text": ({"random_state": "7"}, spoiled, y),
    }
    if name in CLASSIFIERS:
        outside = y.copy()
        outside[0] = 48151
        cases |= {
            "a label outside classes": ({}, spoiled, outside),
            "numbers that are no labels": ({}, spoiled, y + secret),
            "a missing label": ({}, spoiled, np.where(np.arange(len(y)) == 4, np.nan, y)),
            "one class": ({"classes": [0]}, spoiled, y),
            "a class twice": ({"classes": [0, 0, 1]}, spoiled, y),
            "classes of two dimensions": ({"classes": [[0, 1]]}, spoiled, y),
            "no classes, one label": ({"classes": None}, spoiled, np.zeros_like(y)),
        }
    else:
        cases |= {"a missing target": ({}, spoiled, np.where(np.arange(len(y)) == 4, np.nan, y))}
    if "target_bound" in CASES[name][1]:
        cases |= {
            "target_bound 0": ({"target_bound": 0.0}, spoiled, y),
            "target range reversed": ({"target_bound": (1.0, 0.0)}, spoiled, y),
            "target range of three": ({"target_bound": (0.0, 1.0, 2.0)}, spoiled, y),
            "threshold negative": ({"threshold": -1.0, "method": "objective"}, spoiled, y),
        }
    if CASES[name][0] is LinearSVC:
        cases |= {"width 0": ({"width": 0.0}, spoiled, y)}
    return cases


def refuse(model: Any, X: Any, y: Any, book: Book) -> str:
    """Everything that the error would print, which must be of a kind a caller can expect; and no debit."""
    with pytest.raises((EpsilearnError, ValueError, TypeError)) as caught:
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert book.history() == []
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value.args)


@every_case
def test_what_is_refused_costs_nothing_and_is_not_quoted(name, book):
    for case, (changes, X, y) in refusals(name).items():
        text = refuse(estimator(name, ledger=book, **changes), X, y, book)
        assert SECRET not in text, case
        assert "48151" not in text, case


TEXTS = {
    "a text among features": lambda X, y: (np.where(X[3, 1] == X, "Miller", X.astype(object)), y),
    "complex features": lambda X, y: (X * (1 + 1j), y),
    "one dimension": lambda X, y: (X[:, 0], y),
    "a text among targets": lambda X, y: (X, np.where(np.arange(len(y)) == 3, "Miller", y.astype(object))),
}


def check_no_quotation(name: str, case: str, book: Book) -> None:
    X, y = table(name)
    text = refuse(estimator(name, ledger=book), *TEXTS[case](X, y), book)
    assert "Miller" not in text
    assert not any(f"{number:.6g}"[:6] in text for number in X[:3].ravel())


def test_a_text_among_labels_is_not_quoted(book):
    check_no_quotation("logistic", "a text among targets", book)


@pytest.mark.parametrize("case", list(TEXTS)[:-1])
@pytest.mark.parametrize("name", ["logistic", "huber", "moments", "convex, huber"])
def test_texts_and_arrays_are_not_quoted_either(name, case, book):
    check_no_quotation(name, case, book)


@pytest.mark.parametrize("name", ["huber", "moments", "convex, huber"])
def test_a_text_among_targets_is_not_quoted(name, book):
    check_no_quotation(name, "a text among targets", book)


@every_case
def test_sample_weights_are_refused_with_a_reason(name, book):
    X, y = table(name)
    model = estimator(name, ledger=book)
    with pytest.raises(TypeError, match="a weight would multiply what one record can reveal"):
        model.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="nonsense"):
        model.fit(X, y, nonsense=1)
    assert book.history() == []


def stop_early(monkeypatch) -> None:
    monkeypatch.setattr(erm, "minimise", lambda *args, **options: minimise(*args, **{**options, "limit": 1}))


@every_solved_case
def test_the_solver_is_asked_for_what_the_certificate_leaves(name, monkeypatch):
    """Noise in the objective is drawn to a grid: that much of the certificate is used up before the solver starts."""
    plans, targets, execute = [], [], erm.execute
    monkeypatch.setattr(erm, "minimise", lambda p, target, **o: targets.append(target) or minimise(p, target, **o))
    monkeypatch.setattr(erm, "execute", lambda plan, *r, **o: plans.append(plan) or execute(plan, *r, **o))
    X, y = table(name)
    estimator(name).fit(X, y)
    (plan,), (target,) = plans, targets
    spent = drawing_error(plan.law) / len(X) if plan.polish else 0.0
    assert Fraction(target) + Fraction(spent) <= Fraction(plan.certificate)
    assert target > 0.5 * plan.certificate


@every_solved_case
def test_a_solver_that_stops_early_releases_nothing_and_the_debit_stands(name, book, monkeypatch):
    X, y = table(name)
    stop_early(monkeypatch)
    model = estimator(name, ledger=book, alpha=1e-3, epsilon=3.0)
    with pytest.raises(ConvergenceError, match="nothing was released"):
        model.fit(X, y)
    assert not {"coef_", "intercept_", "guarantee_", "noise_"} & set(vars(model))
    (entry,) = book.history()
    assert entry["status"] == "spent, not delivered"


@pytest.mark.parametrize("name", ["logistic", "huber", "convex, huber"])
def test_a_model_whose_fit_failed_says_that_it_is_not_fitted(name, monkeypatch):
    X, y = table(name)
    stop_early(monkeypatch)
    model = estimator(name, alpha=1e-3, epsilon=3.0)
    with pytest.raises(ConvergenceError):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("name", ["logistic", "huber", "moments", "convex, huber"])
def test_a_refit_that_fails_leaves_no_model(name, monkeypatch):
    """Not the old weights under new bounds, nor the old model under a new number of columns."""
    X, y = table(name)
    model = estimator(name).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((200, 5), math.nan), y)
    assert not {"coef_", "guarantee_", "_bounds_", "classes_"} & set(vars(model))
    with pytest.raises(NotFittedError):
        model.predict(X)
    if name in SOLVED:
        model.fit(X, y)
        stop_early(monkeypatch)
        model.set_params(data_norm=0.01, alpha=1e-6, epsilon=50.0)
        with pytest.raises(ConvergenceError):
            model.fit(X, y)
        with pytest.raises(NotFittedError):
            model.predict(X)


@every_solved_case
def test_a_progress_bar_changes_nothing(name, capsys):
    X, y = table(name)
    quiet, loud = (estimator(name, random_state=1, verbose=v).fit(X, y).coef_ for v in (False, True))
    np.testing.assert_array_equal(quiet, loud)
    assert capsys.readouterr().out == ""
