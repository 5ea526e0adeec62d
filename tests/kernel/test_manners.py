"""One contract for every kernel model and each way of fitting it: what may leave, what it costs, and manners."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

from epsilearn import Guarantee, Ledger, erm
from epsilearn.calibration import kernel as calibration
from epsilearn.errors import BudgetExceeded, ConvergenceError, EpsilearnError, InvalidInput, PrivacyWarning, StateError
from epsilearn.kernel import (
    RBF,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    LandmarkRegressor,
    Laplacian,
    Linear,
    NonInteractiveLearner,
    Polynomial,
    Precomputed,
    RandomFeatures,
    SemiInteractiveLearner,
    UserKernel,
)
from epsilearn.kernel import erm as kernel_erm

KINDS = [
    GaussianProcessRelease, InteractiveLearner, SemiInteractiveLearner, NonInteractiveLearner, LandmarkClassifier,
    LandmarkRegressor, RandomFeatures,
]  # fmt: skip
PUBLIC = np.random.default_rng(1).uniform(-0.7, 0.7, size=(6, 2))
BINARY = {"classes": [0, 1], "alpha": 0.1}
NUMBERS = {"loss": "huber", "target_bound": 1.0, "alpha": 0.1}
POLYNOMIAL = Polynomial(2, 1.0, 1.0)

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "process": (GaussianProcessRelease, {"kernel": RBF(0.5), **BINARY}),
    "process, monomials": (GaussianProcessRelease, {"kernel": POLYNOMIAL, **BINARY}),
    "process, landmarks": (GaussianProcessRelease, {"kernel": RBF(0.5), "landmarks": PUBLIC, **BINARY}),
    "process, huber": (GaussianProcessRelease, {"kernel": Linear(1.0), **NUMBERS}),
    "interactive": (InteractiveLearner, {"kernel": RBF(0.5), "questions": 500, **BINARY}),
    "interactive, huber": (InteractiveLearner, {"kernel": Linear(1.0), "questions": 500, **NUMBERS}),
    "semi": (SemiInteractiveLearner, {"kernel": RBF(0.5), "public_points": PUBLIC, **BINARY}),
    "semi, hinge, pure": (
        SemiInteractiveLearner,
        {"kernel": POLYNOMIAL, "public_points": PUBLIC, "loss": "hinge", "delta": 0.0, **BINARY},
    ),
    "semi, paper": (
        SemiInteractiveLearner,
        {"kernel": RBF(0.5), "public_points": PUBLIC, "calibration": "paper", "delta": 0.0, **BINARY},
    ),
    "semi, huber": (SemiInteractiveLearner, {"kernel": Laplacian(0.5), "public_points": PUBLIC, **NUMBERS}),
    "non-interactive": (NonInteractiveLearner, {"kernel": Linear(1.0), **BINARY}),
    "non-interactive, candidates": (NonInteractiveLearner, {"kernel": RBF(0.5), "candidates": PUBLIC, **BINARY}),
    "landmarks": (LandmarkClassifier, {"kernel": RBF(0.5), "landmarks": PUBLIC, **BINARY}),
    "landmarks, hinge": (
        LandmarkClassifier,
        {"kernel": Linear(1.0), "landmarks": PUBLIC, "loss": "hinge", "delta": 1e-6, **BINARY},
    ),
    "landmarks, regression": (
        LandmarkRegressor,
        {"kernel": POLYNOMIAL, "landmarks": PUBLIC, "target_bound": 1.0, "alpha": 0.1},
    ),
    "random features": (RandomFeatures, {"kernel": RBF(0.5), "n_features": 10, **BINARY}),
    "random features, huber": (RandomFeatures, {"kernel": Laplacian(0.5), "n_features": 10, **NUMBERS}),
}
# A session answers from what it holds; the others hold what was released, and nothing else.
LIVE = ["process", "interactive", "interactive, huber"]
RELEASED = [name for name in CASES if name not in LIVE]
REGRESSORS = [name for name in CASES if "target_bound" in CASES[name][1]]
CLASSIFIERS = [name for name in CASES if name not in REGRESSORS]
OUTCOMES = {
    "guarantee_", "noise_", "coef_", "dual_coef_", "points_", "session_", "tolerance_", "_function_", "_session_",
    "_weights_", "_minimum_",
}  # fmt: skip

every_case = pytest.mark.parametrize("name", CASES)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def coarse_plans(monkeypatch):
    """Sessions and searches look for the best number of rounds; a tenth of the numbers takes a tenth of the time."""
    monkeypatch.setattr(calibration, "_whole_numbers", lambda: (2**k for k in range(20)))


def model_of(name: str, **changes: Any) -> Any:
    kind, options = CASES[name]
    return kind(**{**options, **changes})


def loud(name: str, **changes: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """So large a budget, and so many records, that answers of a session or a search are noisy values and not just 0."""
    budget = {"epsilon": 2000.0, "delta": 1e-3} if "interactive" in name else {}
    return model_of(name, **{**budget, **changes}), *table(name, n=600 if "interactive" in name else 60)


def table(name: str, n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows inside every kernel's bound, so that they may be asked too."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-0.7, 0.7, size=(n, 2))
    return X, (np.clip(X[:, 0], -2, 2) if name in REGRESSORS else (X[:, 0] > 0).astype(int))


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


def on_every_solver(monkeypatch, change) -> None:
    """Put ``change(own solver)`` in the place of every solver a kernel model uses."""
    for home, solver in ((kernel_erm, "minimise_dual"), (kernel_erm, "minimise"), (erm, "minimise")):
        monkeypatch.setattr(home, solver, change(getattr(home, solver)))


def stop_early(monkeypatch) -> None:
    on_every_solver(monkeypatch, lambda own: lambda *args, **options: own(*args, **{**options, "limit": 1}))


# ---------------------------------------------------------------- constructors and clones


@every_kind
def test_constructors_take_keywords_and_only_store(kind):
    with pytest.raises(TypeError):
        kind(1.0)
    parameters = inspect.signature(kind.__init__).parameters
    strange = {name: object() for name in parameters if name != "self"}
    model = kind(**strange)
    assert vars(model) == strange
    assert kind().epsilon == 1.0
    assert (kind().kernel, kind().ledger, kind().random_state) == (None, None, None)


@every_case
def test_clones_know_the_settings_and_nothing_else(name, book):
    model, X, y = loud(name, ledger=book)
    copied = clone(model.fit(X, y))
    assert not [key for key in vars(copied) if key.endswith("_")]
    with pytest.raises(NotFittedError):
        copied.predict(X[:3])
    copied.fit(X, y)
    assert [entry["status"] for entry in book.entries] == ["delivered"] * 2
    assert not np.array_equal(copied.decision_function(X[:60]), model.decision_function(X[:60]))


@pytest.mark.parametrize("name", LIVE)
def test_live_sessions_are_not_copied(name):
    model = model_of(name).fit(*table(name))
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(StateError, match="copied or pickled"):
            copied(model)


@pytest.mark.parametrize("name", RELEASED)
def test_released_models_are(name):
    X, y = table(name)
    model = model_of(name).fit(X, y)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.guarantee_ == model.guarantee_


# ---------------------------------------------------------------- promises and debits


@every_case
def test_the_guarantee_is_what_was_asked_for(name):
    X, y = table(name)
    model = model_of(name, epsilon=0.7, rows_per_person=2).fit(X, y)
    promise = model.guarantee_
    assert (promise.epsilon, promise.delta, promise.rows_per_person) == (0.7, model.delta, 2)
    assert promise.claimed_epsilon is None
    assert promise.void_reason is None
    assert Guarantee.from_json(promise.to_json()) == promise
    text = "; ".join(promise.assumptions)
    assert "n is public" in text
    assert "scaled to" in text
    assert "the solver reaches its certificate" in text
    assert ("targets are clipped" in text) == (name in REGRESSORS)
    assert "label set is public" not in text  # it was given
    assert promise.explain() is not None


@pytest.mark.parametrize("name", ["interactive", "non-interactive, candidates"])
def test_as_printed_the_guarantee_states_what_is_proven_beside_the_claim(name):
    X, y = table(name)
    promise = model_of(name, calibration="paper").fit(X, y).guarantee_
    assert promise.claimed_epsilon == 1.0
    assert promise.epsilon != 1.0
    assert "printed" in promise.theorem


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_read_off_the_records_are_said_to_be_public(name):
    X, y = table(name)
    model = model_of(name, classes=None).fit(X, y)
    assert "label set is public" in model.guarantee_.assumptions
    assert model.classes_.tolist() == [0, 1]


@every_case
def test_a_seed_repeats_and_voids(name):
    models = []
    for seed in (7, 7, 8):
        model, X, y = loud(name, random_state=seed)
        models.append(model.fit(X, y))
    asked = [model.decision_function(X[:60]) for model in models]
    np.testing.assert_array_equal(asked[0], asked[1])
    assert not np.array_equal(asked[0], asked[2])
    assert model.guarantee_.epsilon == math.inf
    assert model.guarantee_.void_reason == "seeded"


@every_case
def test_one_debit_before_the_solver_runs(name, book, monkeypatch):
    seen = []

    def watched(own):
        def solve(*args, **options):
            seen.append([entry["status"] for entry in book.entries])
            return own(*args, **options)

        return solve

    on_every_solver(monkeypatch, watched)
    X, y = table(name)
    model = model_of(name, epsilon=0.3, ledger=book).fit(X, y)
    assert seen == [["spent, not delivered"]]
    (entry,) = book.entries
    assert entry["status"] == "delivered"
    assert entry["purpose"] == f"{CASES[name][0].__name__}.fit"
    assert entry["guarantee"] == model.guarantee_
    assert (entry["guarantee"].epsilon, entry["guarantee"].delta) == (0.3, model.delta)
    # Asking costs nothing more.
    model.predict(X[:3])
    assert len(book.entries) == 1


@every_case
def test_a_ledger_refuses_what_exceeds_it_and_seeds(name, tmp_path, monkeypatch):
    solved = []
    on_every_solver(monkeypatch, lambda own: lambda *args, **options: solved.append(1) or own(*args, **options))
    X, y = table(name)
    small = Ledger.create(tmp_path / "small.db", dataset="d", epsilon=0.5, delta=1e-5)
    for changes, words in (({"epsilon": 0.6}, "nothing was spent"), ({"epsilon": 0.1, "random_state": 3}, "seeded")):
        model = model_of(name, ledger=small, **changes)
        with pytest.raises(BudgetExceeded, match=words):
            model.fit(X, y)
        assert not OUTCOMES & set(vars(model))
        with pytest.raises(NotFittedError):
            model.predict(X)
    assert small.history() == []
    assert solved == []
    fits = model_of(name, ledger=small, epsilon=0.1).fit(X, y)
    assert fits.guarantee_.ledger.entry == 1


@every_case
def test_a_solver_that_stops_early_releases_nothing_and_the_debit_stands(name, book, monkeypatch):
    stop_early(monkeypatch)
    model = model_of(name, ledger=book, alpha=1e-3, epsilon=3.0)
    with pytest.raises(ConvergenceError, match="nothing was released"):
        model.fit(*table(name))
    (entry,) = book.entries
    assert entry["status"] == "spent, not delivered"
    assert not OUTCOMES & set(vars(model))
    with pytest.raises(NotFittedError):
        model.predict(table(name)[0])


# ---------------------------------------------------------------- what is refused

MARK, MARKED = 123456.789, "123456"


NEEDS_DELTA, CALIBRATED = ("delta", 0.0), ("calibration", "loose")
OUT_OF_RANGE: dict[Any, list[tuple[str, Any]]] = {
    GaussianProcessRelease: [NEEDS_DELTA, ("max_points", 0)],
    InteractiveLearner: [
        NEEDS_DELTA, CALIBRATED, ("failure", 0.0), ("norm", -1.0), ("questions", 0), ("estimate_norm", 1.0),
    ],
    SemiInteractiveLearner: [CALIBRATED, ("public_points", None)],
    NonInteractiveLearner: [NEEDS_DELTA, CALIBRATED, ("failure", 1.0), ("norm", -1.0)],
    LandmarkClassifier: [("method", "magic"), ("rank", 0), ("rank", "best"), ("landmarks", None), ("whitening", -1.0)],
    LandmarkRegressor: [("method", "magic"), ("rank", 0), ("rank", "best"), ("landmarks", None), ("whitening", -1.0)],
    RandomFeatures: [("method", "magic"), ("n_features", 1), ("kernel", Linear(1.0))],
}  # fmt: skip


def refusals(name: str) -> dict[str, tuple[dict[str, Any], Any, Any]]:
    """Changed settings, and a changed table; somewhere in each table stands a marked number."""
    X, y = table(name)
    X[3, 1] = MARK
    kind = CASES[name][0]

    def with_(value: float) -> np.ndarray:
        changed = X.copy()
        changed[5, 0] = value
        return changed

    cases: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "NaN": ({}, with_(math.nan), y),
        "infinity": ({}, with_(math.inf), y),
        "sparse NaN": ({}, sparse.csr_array(with_(math.nan)), y),
        "three dimensions": ({}, X[None], y),
        "one dimension": ({}, X[:, 0], y),
        "texts": ({}, np.where(X == MARK, f"a {MARK}", X.astype(object)), y),
        "complex numbers": ({}, X * (1 + 1j), y),
        "no rows": ({}, X[:0], y[:0]),
        "fewer targets than rows": ({}, X, y[:-1]),
        "two columns of targets": ({}, X, np.column_stack([y, y])),
        "no targets": ({}, X, None),
        "epsilon 0": ({"epsilon": 0.0}, X, y),
        "epsilon infinite": ({"epsilon": math.inf}, X, y),
        "epsilon a text": ({"epsilon": "1"}, X, y),
        "delta 1": ({"delta": 1.0}, X, y),
        "delta negative": ({"delta": -1e-6}, X, y),
        "alpha no": ({"alpha": "no"}, X, y),
        "alpha 0": ({"alpha": 0.0}, X, y),
        "alpha NaN": ({"alpha": math.nan}, X, y),
        "rows_per_person 0": ({"rows_per_person": 0}, X, y),
        "rows_per_person a half": ({"rows_per_person": 0.5}, X, y),
        "rows_per_person 0, alpha auto": ({"rows_per_person": 0, "alpha": "auto"}, X, y),
        "no kernel": ({"kernel": "rbf"}, X, y),
        "random_state a text": ({"random_state": "7"}, X, y),
    }
    if name in CLASSIFIERS:
        cases |= {
            "a label outside classes": ({}, X, np.where(np.arange(len(y)) == 4, int(MARK), y)),
            "numbers that are not whole": ({}, X, y + MARK),
            "texts among labels": ({}, X, np.where(np.arange(len(y)) == 4, f"a {MARK}", y.astype(object))),
            "a missing label": ({}, X, np.where(np.arange(len(y)) == 4, np.nan, y)),
            "one class": ({"classes": [0]}, X, y),
            "one label": ({"classes": None}, X, np.full_like(y, int(MARK))),
            "three classes": ({"classes": [0, 1, 2], "loss": "hinge"}, X, y),
        }
    else:
        cases |= {
            "a missing target": ({}, X, np.where(np.arange(len(y)) == 4, np.nan, y)),
            "texts that are no targets": ({}, X, np.where(np.arange(len(y)) == 4, f"a {MARK}", y.astype(object))),
            "target_bound 0": ({"target_bound": 0.0}, X, y),
            "target range reversed": ({"target_bound": (1.0, 0.0)}, X, y),
        }
    if kind is not LandmarkRegressor:
        cases |= {"loss unknown": ({"loss": "squared"}, X, y)}
    long, odd = 5 * np.ones((2, 2)), np.full((2, 2), np.nan)
    for points in public_of(kind):
        cases |= {
            f"{points} beyond the bound": ({points: long, "kernel": Linear(1.0)}, X, y),
            f"{points} with NaN": ({points: odd}, X, y),
            f"{points} empty": ({points: np.empty((0, 2))}, X, y),
            f"{points} without length": ({points: np.zeros((2, 2)), "kernel": Linear(1.0)}, X, y),
        }
    # A search among points without length finds nothing, and least squares at them is 0: no error.
    if kind is NonInteractiveLearner or name == "semi, paper":
        cases = {case: change for case, change in cases.items() if not case.endswith("s without length")}
    cases |= {f"{key} {value}": ({key: value}, X, y) for key, value in OUT_OF_RANGE[kind]}
    return cases


def public_of(kind: Any) -> list[str]:
    """The settings that are public points."""
    return [key for key in ("public_points", "candidates", "landmarks") if key in inspect.signature(kind).parameters]


def refused(model: Any, X: Any, y: Any, book: Book) -> str:
    """All that the error would print; no debit, and nothing that looks like a model."""
    # scikit-learn's own word on labels that are none is a ValueError, which every InvalidInput is too.
    with pytest.raises((EpsilearnError, ValueError)) as caught:
        model.fit(X, y)
    assert book.entries == []
    assert not OUTCOMES & set(vars(model))
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value.args)


@every_case
def test_what_is_refused_costs_nothing_and_is_not_quoted(name, book):
    for case, (changes, X, y) in refusals(name).items():
        text = refused(model_of(name, ledger=book, **changes), X, y, book)
        assert MARKED not in text, case
        own = "InvalidInput" in text
        assert own or case in ("numbers that are not whole", "texts among labels"), case


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not RandomFeatures])
def test_public_points_of_another_width_are_refused(kind, book):
    X, y = table("landmarks, regression" if kind is LandmarkRegressor else "semi")
    for key in public_of(kind):
        settings = {"landmarks": PUBLIC} if kind in (LandmarkClassifier, LandmarkRegressor) else {}
        settings |= {"public_points": PUBLIC} if kind is SemiInteractiveLearner else {}
        settings |= {"target_bound": 1.0} if kind is LandmarkRegressor else {"classes": [0, 1]}
        settings |= {"candidates": PUBLIC} if kind is NonInteractiveLearner else {}
        model = kind(**{**settings, "ledger": book, key: np.ones((2, 3)) / 9})
        assert "InvalidInput" in refused(model, X, y, book), key


def test_a_search_needs_candidates_but_for_the_linear_kernel(book):
    text = refused(NonInteractiveLearner(kernel=RBF(0.5), ledger=book, **BINARY), *table("semi"), book)
    assert "candidates=" in text


def test_the_norm_is_given_or_estimated_and_not_both(book):
    refused(model_of("interactive", norm=1.0, estimate_norm=0.1, ledger=book), *table("interactive"), book)


@every_case
def test_sample_weights_are_refused_with_a_reason(name, book):
    X, y = table(name)
    model = model_of(name, ledger=book)
    with pytest.raises(TypeError, match="a weight would multiply what one record can reveal"):
        model.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="nonsense"):
        model.fit(X, y, nonsense=1)
    assert book.entries == []


def test_an_indefinite_gram_matrix_is_no_kernel():
    K = RBF(1.0).matrix(PUBLIC, PUBLIC)
    K[0, 1] = K[1, 0] = 1.5
    with pytest.raises(InvalidInput, match="negative eigenvalues") as caught:
        Precomputed(K)
    assert "1.5" not in str(caught.value)


@pytest.mark.parametrize("X", [[f"a {MARK}", "b"], [MARK, 1.0], [123456, 1], [[0, 1], [1, 123456]], [-123456, 0]])
def test_points_that_are_no_rows_of_a_matrix_are_not_quoted(X, book):
    model = SemiInteractiveLearner(kernel=Precomputed(np.eye(4)), public_points=[3], ledger=book, **BINARY)
    assert MARKED not in refused(model, X, [0, 1], book)


# ---------------------------------------------------------------- models that are not fitted


@every_case
def test_nothing_is_answered_before_a_fit(name):
    X, y = table(name)
    model = model_of(name)
    asked = [model.predict, model.decision_function, *([model.ask] if hasattr(model, "ask") else [])]
    for method in asked:
        with pytest.raises(NotFittedError):
            method(X)
    with pytest.raises(NotFittedError):
        model.score(X, y)
    if isinstance(model, GaussianProcessRelease):
        with pytest.raises(NotFittedError):
            _ = model.points_left_


def check_gone(model: Any, X: Any) -> None:
    assert not OUTCOMES & set(vars(model))
    with pytest.raises(NotFittedError):
        model.predict(X)


@every_case
def test_a_refit_on_bad_records_leaves_no_model(name):
    X, y = table(name)
    model = model_of(name).fit(X, y)
    with pytest.raises(InvalidInput):
        model.fit(np.full((60, 5), math.nan), y)
    check_gone(model, X)


ONE_OF_A_KIND = [
    "process", "interactive", "semi", "non-interactive", "landmarks", "landmarks, regression", "random features",
]  # fmt: skip


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
@pytest.mark.parametrize("setting", ["epsilon", "alpha", "kernel"])
def test_a_refit_with_bad_settings_leaves_no_model(name, setting):
    """The old one would go on answering under settings that are not its own."""
    X, y = table(name)
    model = model_of(name).fit(X, y).set_params(**{setting: {"epsilon": 0.0, "alpha": "no", "kernel": "rbf"}[setting]})
    with pytest.raises(InvalidInput):
        model.fit(X, y)
    check_gone(model, X)


@every_case
def test_a_refit_whose_solver_fails_leaves_no_model(name, monkeypatch):
    X, y = table(name)
    model = model_of(name).fit(X, y)
    stop_early(monkeypatch)
    with pytest.raises(ConvergenceError):
        model.set_params(alpha=1e-3, epsilon=3.0).fit(X, y)
    check_gone(model, X)


# ---------------------------------------------------------------- new points


@every_case
def test_new_points_must_look_like_those_of_training(name):
    X, y = table(name)
    model = model_of(name).fit(X, y)
    for wrong in (np.ones((2, 3)), np.ones((2, 1)), np.full((1, 2), math.nan), np.ones(2)):
        with pytest.raises(ValueError, match=r"features|columns|NaN|2D"):
            model.predict(wrong)


@every_case
def test_column_names_are_kept_and_checked(name):
    X, y = table(name)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = model_of(name).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(frame[:3]).shape == (3,)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a"]])


@pytest.mark.parametrize("name", ["process, monomials", "process, huber", "interactive, huber"])
def test_where_answers_are_private_values_points_beyond_the_bound_are_refused(name):
    model = model_of(name).fit(*table(name))
    with pytest.raises(InvalidInput, match="above the declared bound"):
        model.predict(np.array([[5.0, 5.0]]))


@every_case
def test_scores_are_accuracies_or_shares_of_variance(name):
    X, y = table(name)
    model = model_of(name, random_state=2).fit(X, y)
    expected = model_of(name, random_state=2).fit(X, y).predict(X)  # asking a session again is another question
    found = model.score(X, y)
    if name in REGRESSORS:
        assert found == pytest.approx(1 - np.square(y - expected).sum() / np.square(y - y.mean()).sum())
    else:
        assert found == pytest.approx(np.mean(expected == y))
        assert set(expected) <= {0, 1}


@every_case
def test_scikit_learn_knows_what_a_model_is_by_its_loss(name):
    model = model_of(name)
    assert is_regressor(model) == (name in REGRESSORS)
    assert is_classifier(model) == (name in CLASSIFIERS)
    tags = model.__sklearn_tags__()
    assert tags.target_tags.required
    assert tags.non_deterministic
    assert tags.input_tags.sparse
    assert (tags.classifier_tags is None) == (name in REGRESSORS)
    assert (tags.regressor_tags is None) == (name in CLASSIFIERS)
    if name in CLASSIFIERS:
        assert tags.classifier_tags.multi_class == (name in ("landmarks", "random features"))


# ---------------------------------------------------------------- rows beyond the bound, and warnings


@every_case
@pytest.mark.parametrize("length", [10.0, 1e100, sys.float_info.max])
def test_private_rows_beyond_the_bound_make_no_error_and_no_warning(name, length):
    X, y = table(name)
    # All of one sign: with both, scikit-learn's own sum of them would warn before anything else is done.
    X[:20] = length
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_of(name).fit(X, y)


@pytest.mark.parametrize("name", [name for name in CASES if name != "non-interactive" and "random" not in name])
def test_nor_do_precomputed_points_beyond_the_bound(name):
    X, y = table(name)
    X[:20] *= 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        precomputed_model(name, Precomputed(with_public(X @ X.T), 1.0), [60, 61, 62, 63]).fit(np.arange(60), y)


def test_a_gram_matrix_with_points_far_beyond_the_bound_is_a_kernels_too():
    """Its rounding is a share of its largest value, not of the bound: a private record must not make for an error."""
    X, _ = table("semi")
    X = np.column_stack([X, X[:, 0]])
    X[:20] *= 1e3
    assert Precomputed(X @ X.T, 1.0).bound == 1.0


@pytest.mark.parametrize("name", ["process", "landmarks"])
def test_a_point_without_length_may_have_a_square_just_below_zero(name):
    """Rounding can leave -1e-17 on a diagonal, which a Gram matrix is allowed: the point's length is 0."""
    X, y = table(name)
    K = X @ X.T
    K[7], K[:, 7] = 0.0, 0.0
    K[7, 7] = -1e-17
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        precomputed_model(name, Precomputed(with_public(K), 1.0), [60, 61, 62, 63]).fit(np.arange(60), y)


def with_public(gram: np.ndarray) -> np.ndarray:
    """The matrix with four more objects, which are public and like records 30 to 33."""
    objects = [*range(60), 30, 31, 32, 33]
    return gram[np.ix_(objects, objects)]


def precomputed_model(name: str, kernel: Precomputed, public: list[int]) -> Any:
    changed = {key: public for key in ("public_points", "candidates", "landmarks") if key in CASES[name][1]}
    return model_of(name, kernel=kernel, **changed)


@every_case
def test_only_a_target_bound_left_out_is_warned_of(name):
    X, y = table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_of(name).fit(X, y).predict(X[:3])
    if name in REGRESSORS:
        for _ in range(2):
            with pytest.warns(PrivacyWarning, match="target_bound was not given: 1.0 is used"):
                model_of(name, target_bound=None).fit(X, y)


# ---------------------------------------------------------------- what a released model holds


def arrays_in(thing: Any, seen: set[int] | None = None) -> list[Any]:
    """Every array, and every list, that can be reached from an object."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type(None), type)):
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return [thing]
    if sparse.issparse(thing):
        return [np.empty(thing.shape), *arrays_in(thing.data, seen)]
    parts = list(thing.values()) if isinstance(thing, dict) else list(thing) if isinstance(thing, (list, tuple)) else []
    own = [thing] if isinstance(thing, (list, tuple)) else []
    held = vars(thing).values() if hasattr(thing, "__dict__") else []
    return own + [found for part in (*parts, *held) for found in arrays_in(part, seen)]


def test_the_search_for_arrays_finds_them():
    session = model_of("process").fit(*table("process", n=97))
    assert [found for found in arrays_in(session) if 97 in np.shape(found)]


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array, lambda X: pd.DataFrame(X, columns=["a", "b"])])
def test_a_released_model_holds_no_record(name, layout):
    X, y = table(name, n=97)
    model = model_of(name).fit(layout(X), y)
    assert not [found for found in arrays_in(model) if 97 in np.shape(found)]
    content = pickle.dumps(model)
    # Eight bytes at least: four of them would be found by chance.
    numbers = [*X.ravel(), *X.astype(np.float32), *(y if name in REGRESSORS else [])]
    assert not any(number.tobytes() in content for number in numbers)
    if hasattr(model, "_features_"):
        features = model._features_.table(model.kernel_.inside(X)[0])
        rows = features.toarray() if sparse.issparse(features) else features
        assert not any(row.tobytes() in content for row in rows if row.nbytes >= 8)
    # It asks for no record to predict, and what it costs does not grow with them.
    more = pickle.dumps(model_of(name).fit(*table(name, n=197)))
    assert abs(len(more) - len(content)) < 0.25 * len(content) + (6000 if "non-interactive" in name else 0)


# ---------------------------------------------------------------- texts, and matrices


@cache
def pairs(word: str) -> frozenset[str]:
    return frozenset(word[i : i + 2] for i in range(len(word) - 1))


def spectrum(a: str, b: str) -> float:
    """How many pairs of letters two words have in common."""
    return float(len(pairs(a) & pairs(b)))


def words(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Words over two alphabets that share a letter."""
    generator = np.random.default_rng(seed)
    y = generator.integers(2, size=n)
    return ["".join(generator.choice(list("abc" if label else "cde"), 5)) for label in y], y


ON_WORDS = {
    "process": (GaussianProcessRelease, None, {}),
    "process, landmarks": (GaussianProcessRelease, "landmarks", {}),
    "interactive": (InteractiveLearner, None, {"questions": 100}),
    "semi": (SemiInteractiveLearner, "public_points", {}),
    "semi, paper": (SemiInteractiveLearner, "public_points", {"calibration": "paper", "delta": 0.0}),
    "non-interactive": (NonInteractiveLearner, "candidates", {}),
    "landmarks": (LandmarkClassifier, "landmarks", {}),
}


def on_words(name: str, kernel: Any, public: Any, **changes: Any) -> Any:
    kind, key, options = ON_WORDS[name]
    given = {} if key is None else {key: public}
    settings = {"alpha": 0.3, "epsilon": 2000.0, "delta": 1e-3, "classes": ["ab", "de"], "random_state": 5}
    return kind(kernel=kernel, **{**settings, **given, **options, **changes})


@pytest.mark.parametrize("name", ON_WORDS)
def test_texts_are_learned_from_through_a_kernel_alone(name, book):
    kernel = UserKernel(spectrum, declared=2.0)
    private, y = words(400, seed=1)
    public, truth = words(30, seed=2)
    labels, wanted = np.array(["de", "ab"])[y], np.array(["de", "ab"])[truth]
    model = on_words(name, kernel, public, ledger=book).fit(private, labels)
    assert model.score(public, wanted) > 0.85
    assert len(book.entries) == 1
    assert "the kernel is positive semi-definite" in "; ".join(model.guarantee_.assumptions) or name == "landmarks"
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(model).fit(private, labels[:-1])
    with pytest.raises(InvalidInput, match="at least one"):
        clone(model).fit([], labels)
    outside = labels.astype(object)
    outside[3] = "a secret label"
    with pytest.raises(InvalidInput) as caught:
        clone(model).fit(private, outside)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert len(book.entries) == 1


@pytest.mark.parametrize("name", ON_WORDS)
def test_a_gram_matrix_alone_will_do(name, book):
    """The same words, as rows of a matrix."""
    private, y = words(400, seed=1)
    public, truth = words(30, seed=2)
    kernel, numbers = Precomputed(_gram(*private, *public), 2.0), np.arange(400, 430)
    labels, wanted = np.array(["de", "ab"])[y], np.array(["de", "ab"])[truth]
    model = on_words(name, kernel, numbers, ledger=book).fit(np.arange(400), labels)
    assert model.score(numbers, wanted) > 0.85
    assert len(book.entries) == 1
    for wrong in ([430], [-1], [0.5], []):
        with pytest.raises(InvalidInput):
            model.predict(wrong)


@cache
def _gram(*both: str) -> np.ndarray:
    return UserKernel(spectrum, declared=2.0).matrix(both, both)


def test_numbers_of_rows_may_stand_in_a_column():
    """As scikit-learn's tools, which cut tables into rows, will hand them over."""
    X, y = table("semi")
    for shape in (60, (60, 1)):
        kernel = Precomputed(with_public(X @ X.T), 1.0)
        model = precomputed_model("semi", kernel, [60, 61]).set_params(random_state=3)
        values = model.fit(np.arange(60).reshape(shape), y).decision_function(np.arange(60).reshape(shape))
        assert values == pytest.approx((X @ X[[30, 31]].T) @ model.dual_coef_)
