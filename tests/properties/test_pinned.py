"""Cases that once went wrong, one by one, and records and settings that nobody should have passed."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import NotFittedError

from epsilearn import (
    ConvexERM,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    LandmarkRegressor,
    Lasso,
    Ledger,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NonInteractiveLearner,
    PrivateSelection,
    RandomFeatures,
    SemiInteractiveLearner,
    SparseLogisticRegression,
    private_score,
)
from epsilearn.errors import BudgetExceeded, ConvergenceError, EpsilearnError, InvalidInput
from epsilearn.kernel import RBF, HistogramIntersection, Laplacian, Linear, Polynomial
from epsilearn.losses import Huber
from epsilearn.noise.bits import SeededBits

from .families import FAMILIES, Points, later
from .judgement import ADVICE, Book, Case, check_secrets, judge
from .universe import CANARY, LARGEST, SMALLEST


def quickly(names: Any, *few: Any) -> list[Any]:
    """All of them in the slow tests, a few in the others."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.slow) for name in names]


# ---------------------------------------------------------------- cases that once went wrong


def case(family: str, *contents: str, shape: tuple[int, int] | None = None, seed: int = 0, **changes: Any) -> Case:
    return Case(
        family,
        tuple(changes.items()),
        shape or FAMILIES[family].shapes[0],
        contents=contents or ("ordinary",),
        targets=("any", "last") if FAMILIES[family].target == "labels" else contents or ("ordinary",),
        seed=seed,
    )


NOISY_GRADIENTS = {"method": "gradient", "delta": 1e-6}
ONCE_WRONG = {
    "sums beyond the doubles": case("logistic", "largest", "ordinary"),
    "labels that are not whole": case("logistic", "ordinary", "ordinary", classes=[0.5, 1.0]),
    "epsilon as large as it gets": case("logistic", epsilon=LARGEST, alpha="auto"),
    "epsilon as small as it gets": case("logistic", epsilon=SMALLEST),
    "large epsilon, some delta": case("logistic", epsilon=1e300, delta=1e-6),
    "large epsilon, automatic": case("logistic", epsilon=1e300, alpha="auto"),
    "small epsilon, automatic": case("logistic", epsilon=1e-308, alpha="auto"),
    "small epsilon": case("logistic", epsilon=1e-200),
    "very many rows a person": case("logistic", rows_per_person=10**310, delta=1e-6, alpha=1e200),
    "many rows a person, output": case("logistic", rows_per_person=10**200, method="output", alpha="auto"),
    "tiny alpha": case("logistic", alpha=SMALLEST),
    "tiny alpha, output": case("ridge", alpha=SMALLEST),
    "tiny norm, large delta": case("convex regressor", data_norm=1e-100, delta=0.999, alpha="auto"),
    "large delta": case("logistic", delta=0.6),
    "ridge, large epsilon": case("ridge", data_norm=1e3, target_bound=(-1, 3), epsilon=LARGEST, alpha="auto"),
    "ridge, small epsilon": case("ridge", epsilon=1e-308, alpha="auto"),
    "ridge, large targets": case("ridge", target_bound=1e300),
    "huge threshold": case("huber", threshold=1e300),
    "largest threshold": case("huber", threshold=LARGEST),
    "least threshold": case("huber", threshold=SMALLEST),
    "least width": case("svm", width=SMALLEST),
    "least width, automatic": case("svm", width=SMALLEST, alpha="auto"),
    "narrow hinge, one row": case("svm", "largest", "zeros", shape=(1, 4), epsilon=1000.0, width=1e-12, alpha="auto"),
    "large epsilon, Huber": Case(
        "huber", (("epsilon", 1e15), ("alpha", "auto")), (20, 3), contents=("ordinary", "mixed"),
        targets=("huge", "tiny"),
    ),
    "large epsilon, Huber of one's own": Case(
        "convex regressor", (("epsilon", 1e15), ("alpha", "auto")), (20, 3), contents=("short", "mixed"),
        targets=("huge", "tiny"),
    ),
    "large epsilon, narrow hinge": case("svm", "subnormal", "ordinary", shape=(1, 4), epsilon=1e16, alpha="auto"),
    "noisy gradients of long rows": case("logistic", data_norm=1e100, **NOISY_GRADIENTS),
    "noisy gradients of rather long rows": case("logistic", data_norm=1e12, **NOISY_GRADIENTS),
    "noisy gradients of a narrow hinge": case("svm", width=1e-154, **NOISY_GRADIENTS),
    "noisy gradients for many rows a person": case("logistic", rows_per_person=10**200, **NOISY_GRADIENTS),
    "noisy gradients for ever": case("logistic", alpha=SMALLEST, **NOISY_GRADIENTS),
    "noisy gradients in single precision": case("logistic", epsilon=np.float32(0.1), centre=True, **NOISY_GRADIENTS),
    "centred for next to nothing": case("logistic", centre=True, epsilon=SMALLEST, alpha="auto"),
    "large targets": case("huber", target_bound=1e154, alpha="auto"),
    "targets without width": case("moments", target_bound=(0.0, SMALLEST)),
    "targets all but without width": case("huber", target_bound=(-1e-310, 1e-310)),
    "moments of large targets": case("moments", target_bound=(1e300, 1.1e300)),
    "moments of the largest targets": case("moments", target_bound=(-LARGEST / 2, LARGEST / 2)),
    "short rows beside a long bound": case("lasso", "tiny", "subnormal", data_norm=1e12),
    "short rows beside a long bound, refitted": case(
        "lasso", "mixed", "zeros", refit=0.5, feature_bound=1e59, data_norm=1e12
    ),
    "a path at a large delta": case("lasso, automatic", delta=0.999),
    "a path at a tiny epsilon": case("lasso, automatic", epsilon=1e-30, delta=1e-12),
    "a printed path at a tiny delta": case("lasso", calibration="paper", delta=SMALLEST),
    "next to nothing for the refit": case("lasso", refit=1e-12),
    "tiny landmarks": case(
        "landmark regressor", "huge", "zeros", shape=(6, 1), kernel=later(Linear, 1e30), landmarks=Points("tiny", 5),
        whitening=1,
    ),
    "tiny public points": case(
        "semi-interactive, printed", "short", "ordinary", kernel=later(Linear, 1e3), public_points=Points("tiny", 5),
        alpha=1e12,
    ),
    "very many random features": case("random features", n_features=10**12),
    "very many positive answers": case("above threshold", positives=10**12),
    "far landmarks": case(
        "landmark classifier", "huge", "zeros", kernel=later(Laplacian, 1e300), landmarks=Points("ones", 1)
    ),
    "features beyond single precision": case(
        "landmark classifier", "huge", "ordinary", kernel=later(Linear, 1e50), whitening=0
    ),
    "features beyond single precision, process": case(
        "process", "huge", "ordinary", kernel=later(Linear, 1e50), landmarks=Points("ordinary", 5)
    ),
    "powers beyond single precision": case(
        "landmark classifier", "huge", "ordinary", kernel=later(Polynomial, 3, 1.0, 1e13), whitening=0
    ),
    "phases beyond the doubles": case("random features", "huge", "ordinary", kernel=later(Laplacian, 1e300)),
    "landmarks, small epsilon": case("landmark classifier", epsilon=1e-300, alpha="auto"),
    "landmarks, large epsilon": case("landmark regressor", epsilon=LARGEST, alpha="auto"),
    "distances beyond the doubles": case("process", "mixed", "ordinary", kernel=later(Laplacian, SMALLEST), seed=1),
    "single precision epsilon": case("process", epsilon=np.float32(0.1)),
    "single precision delta": case("interactive", delta=np.float32(0.5)),
    "a fraction as delta": case("interactive", delta=Fraction(1, 3)),
    "numpy's whole numbers": case("semi-interactive", rows_per_person=np.int64(3)),
    "long linear kernel": case("process", kernel=later(Linear, 1e100), alpha="auto"),
    "longest linear kernel": case("process", kernel=later(Linear, LARGEST), alpha="auto"),
    "short linear kernel": case("process", kernel=later(Linear, 1e-160), alpha="auto"),
    "long landmarks": case("non-interactive", kernel=later(Linear, LARGEST), landmarks=Points("huge", 5)),
    "largest alpha": case("process", alpha=LARGEST),
    "large constant": case("process", kernel=later(Polynomial, 3, 1e100, 1.0), alpha="auto"),
    "high degree": case("semi-interactive", kernel=later(Polynomial, 200), shape=(6, 1)),
    "highest degree": case("process", kernel=later(Polynomial, 10**6)),
    "a session at a large epsilon": case("interactive", epsilon=1e6),
    "a session at a large delta": case("interactive", delta=0.999),
    "public points beyond the bound": case("interactive", shape=(6, 1), kernel=later(Linear, 1.0)),
    "public points far beyond the bound": case("interactive", shape=(6, 1), kernel=later(Polynomial, 5, 1.0, 10.0)),
    "a printed session that could not answer": case(
        "interactive, printed", shape=(6, 1), kernel=later(Linear, 1e100), delta=1e-12
    ),
    "a printed session of norm 0": case("interactive, printed", norm=1e-300),
    "a printed session of largest norm": case("interactive, printed", norm=LARGEST),
    "printed rounds at a tiny epsilon": case("non-interactive, printed", epsilon=SMALLEST),
    "printed rounds in a short ball": case("non-interactive, printed", kernel=later(Linear, 1e-50)),
    "printed rounds that never fail": case("non-interactive, printed", failure=SMALLEST),
    "printed rounds at a tiny delta": case("non-interactive, printed", delta=SMALLEST),
    "rounds that never fail": case("non-interactive", failure=SMALLEST),
    "a session that never fails": case("interactive", failure=SMALLEST),
    "a printed session at a tiny delta": case("interactive, printed", delta=SMALLEST),
    "printed rounds at a large delta": case("non-interactive, printed", delta=0.999),
    "a gradient whose square is 0": case(
        "histograms", "tiny", "ordinary", shape=(1, 1), kernel=later(HistogramIntersection), epsilon=1e9, alpha="auto",
        public_points=Points("ones", 1),
    ),
    "long histograms": case("histograms", kernel=later(HistogramIntersection, 1e154), alpha="auto"),
    "a choice at a tiny epsilon": case("selection", epsilon=1e-200),
    "errors too large to be scored": case("selected regressor", shape=(40, 2), strategy="stopping", target_bound=1e100),
    "a sum for very many rows a person": case("sum", bounds=(-1e130, 1e130), rows_per_person=10**200),
    "edges of everything": case("histogram", edges=[-LARGEST, LARGEST]),
    "quantiles of everything": case("quantile", bounds=(-LARGEST / 2, LARGEST / 2), candidates=1024),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_what_once_went_wrong(name):
    judge(ONCE_WRONG[name])


@pytest.mark.parametrize(("kernel", "exponent"), [(RBF, 2), (Laplacian, 1)])
@pytest.mark.parametrize("gamma", [SMALLEST, 1e-308, 1e-200, 1.0, 1e300])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e100, 1e155, 1e300, LARGEST])
def test_kernels_of_records_however_far_apart(kernel, exponent, gamma, size):
    """Promises rest on the declared rounding of a kernel's values: it must hold for all records."""
    try:
        made = kernel(gamma)
    except InvalidInput:
        return  # that is one way
    power = Fraction(gamma) * (2 * Fraction(size)) ** exponent
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = made.matrix(np.array([[size]]), np.array([[-size]]))[0, 0]
    assert found == pytest.approx(math.exp(-float(min(power, 1000))), abs=made.rounding(1))


# ---------------------------------------------------------------- records outside the data universe

SECRET = f"secret {CANARY}"
GOOD, LABELS, NUMBERS = np.arange(12.0).reshape(6, 2) / 12, np.arange(6) % 2, np.linspace(-1, 1, 6)
CLASSIFIERS = {
    "logistic": LogisticRegression(data_norm=1.0, classes=[0, 1], alpha=1.0),
    "svm": LinearSVC(data_norm=1.0, classes=[0, 1], alpha=1.0),
    "convex": ConvexERM(data_norm=1.0, classes=[0, 1], alpha=1.0),
    "sparse logistic": SparseLogisticRegression(feature_bound=1.0, classes=[0, 1], n_steps=3),
    "landmarks": LandmarkClassifier(landmarks=GOOD[:3].copy(), classes=[0, 1], alpha=1.0),
    "random features": RandomFeatures(n_features=4, classes=[0, 1], alpha=1.0),
    "process": GaussianProcessRelease(classes=[0, 1], alpha=1.0),
    "interactive": InteractiveLearner(classes=[0, 1], alpha=1.0, questions=10),
    "semi-interactive": SemiInteractiveLearner(public_points=GOOD[:3].copy(), classes=[0, 1], alpha=1.0),
    "non-interactive": NonInteractiveLearner(kernel=Linear(1.0), classes=[0, 1], alpha=1.0),
    "selection": PrivateSelection(LogisticRegression(data_norm=1.0, classes=[0, 1]), {"alpha": [1.0]}),
}
REGRESSORS = {
    "huber": LinearRegression(data_norm=1.0, target_bound=1.0, alpha=1.0),
    "ridge": LinearRegression(data_norm=1.0, target_bound=1.0, alpha=1.0, method="output"),
    "moments": LinearRegression(data_norm=1.0, target_bound=1.0, method="sufficient-statistics"),
    "convex": ConvexERM(loss=Huber(0.5, 1.0), data_norm=1.0, alpha=1.0),
    "lasso": Lasso(feature_bound=1.0, target_bound=1.0, n_steps=3),
    "landmarks": LandmarkRegressor(landmarks=GOOD[:3].copy(), target_bound=1.0, alpha=1.0),
    "process": GaussianProcessRelease(loss="huber", target_bound=1.0, alpha=1.0),
    "interactive": InteractiveLearner(loss="huber", target_bound=1.0, alpha=1.0, questions=10),
    "semi-interactive": SemiInteractiveLearner(
        public_points=GOOD[:3].copy(), loss="huber", target_bound=1.0, alpha=1.0
    ),
    "selection": PrivateSelection(
        LinearRegression(data_norm=1.0, target_bound=1.0), {"alpha": [1.0]}, target_bound=1.0
    ),
}


def with_first(value: Any, good: np.ndarray = GOOD, kind: Any = object) -> np.ndarray:
    table = good.astype(kind)
    table.flat[0] = value
    return table


BAD_TABLES = {
    "NaN": with_first(np.nan, kind=float),
    "infinite": with_first(-np.inf, kind=float),
    "NaN, sparse": sparse.csr_array(with_first(np.nan, kind=float)),
    "missing": pd.DataFrame(GOOD).convert_dtypes().mask(GOOD == 0),
    "None": with_first(None).tolist(),
    "text": with_first(SECRET),
    "beyond the doubles": with_first(10**400 + int(CANARY)).tolist(),
    "something else": with_first({SECRET: 1}),
    "complex": with_first(complex(1, int(CANARY)), kind=complex),
    "ragged": [[1.0, float(CANARY)], *GOOD[1:, :1].tolist()],
    "one-dimensional": np.full(6, float(CANARY)),
    "three-dimensional": np.full((6, 2, 1), float(CANARY)),
    "no rows": np.empty((0, 2)),
    "no columns": np.empty((6, 0)),
    "too short": GOOD[:5],
    "adds up beyond the doubles": sparse.csr_array(
        (np.array([LARGEST, LARGEST, 1.0]), np.zeros(3, int), np.array([0, 2, 3, 3, 3, 3, 3])), shape=(6, 2)
    ),
    "masked": np.ma.array(GOOD, mask=GOOD == 0),
    "nothing": None,
}
BAD_LABELS = {
    "unknown": [*LABELS[:5], int(CANARY)],
    "unknown text": [SECRET, *"abcde"],
    "of two kinds": with_first(SECRET, LABELS),
    "None": [None, *LABELS[1:]],
    "NaN": with_first(np.nan, LABELS, float),
    "two columns": np.zeros((6, 2)),
    "too short": LABELS[:5],
    "nothing": None,
}
BAD_NUMBERS = {
    "NaN": with_first(np.nan, NUMBERS, float),
    "infinite": with_first(np.inf, NUMBERS, float),
    "None": [None, *NUMBERS[1:]],
    "text": with_first(SECRET, NUMBERS),
    "beyond the doubles": with_first(10**400 + int(CANARY), NUMBERS).tolist(),
    "missing": pd.array([None, 1, 1, 1, 1, 1], dtype="Int64"),
    "masked": np.ma.array(NUMBERS, mask=NUMBERS == -1),
    "two columns": np.zeros((6, 2)),
    "too short": NUMBERS[:5],
    "nothing": None,
}


def refused(model: Any, X: Any, y: Any, error: type[Exception] = EpsilearnError) -> None:
    book = Book()
    model = clone(model).set_params(ledger=book)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error) as caught:
            model.fit(X, y)
    assert not isinstance(caught.value, ConvergenceError)
    assert not book.debits
    assert len(str(caught.value)) > 20
    check_secrets(caught.value)


@pytest.mark.parametrize("name", [*CLASSIFIERS, *(f"regressor: {name}" for name in REGRESSORS)])
def test_a_fit_that_is_refused_leaves_no_earlier_model_behind(name):
    model, y = (CLASSIFIERS[name], LABELS) if name in CLASSIFIERS else (REGRESSORS[name[11:]], NUMBERS)
    model = clone(model).fit(GOOD, y)
    assert hasattr(model, "guarantee_")
    with pytest.raises(EpsilearnError):
        model.fit(BAD_TABLES["NaN"], y)
    assert not hasattr(model, "guarantee_")
    with pytest.raises(NotFittedError):
        model.predict(GOOD)


@pytest.mark.parametrize("bad", BAD_TABLES)
@pytest.mark.parametrize("name", [*CLASSIFIERS, *(f"regressor: {name}" for name in REGRESSORS)])
def test_tables_outside_the_universe_are_refused_before_anything_is_spent(name, bad):
    # What adds up beyond a bound is cut to the bound; only rows without one must be refused.
    if bad == "adds up beyond the doubles" and ("sparse" in name or "lasso" in name):
        pytest.skip("such an entry is cut to its bound")
    # scikit-learn's own checks of an estimator insist on a TypeError where an entry is neither a number nor a text.
    error = TypeError if bad == "something else" else EpsilearnError
    if name in CLASSIFIERS:
        refused(CLASSIFIERS[name], BAD_TABLES[bad], LABELS, error)
    else:
        refused(REGRESSORS[name.removeprefix("regressor: ")], BAD_TABLES[bad], NUMBERS, error)


@pytest.mark.parametrize("bad", BAD_LABELS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_outside_the_universe_are_refused_before_anything_is_spent(name, bad):
    refused(CLASSIFIERS[name], GOOD, BAD_LABELS[bad])


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_outside_the_universe_are_refused_before_anything_is_spent(name, bad):
    refused(REGRESSORS[name], GOOD, BAD_NUMBERS[bad])


@pytest.mark.parametrize("bad", ["two columns", "too short", "nothing"])
def test_accuracies_of_labels_that_do_not_fit_are_refused_before_anything_is_spent(bad):
    score_refused(DummyClassifier().fit(GOOD, LABELS), BAD_LABELS[bad])


# A whole number beyond the doubles is beyond the bound as well, and is cut to it.
@pytest.mark.parametrize("bad", [name for name in BAD_NUMBERS if name != "beyond the doubles"])
def test_errors_of_targets_outside_the_universe_are_refused_before_anything_is_spent(bad):
    score_refused(DummyRegressor().fit(GOOD, NUMBERS), BAD_NUMBERS[bad], target_bound=1.0)


def score_refused(model: Any, y: Any, **settings: Any) -> None:
    book = Book()
    with pytest.raises(EpsilearnError) as caught:
        private_score(model, GOOD, y, ledger=book, **settings)
    assert not book.debits
    check_secrets(caught.value)


# ---------------------------------------------------------------- settings that nobody should have passed

NONSENSE = [
    None, "nonsense", True, float("nan"), float("inf"), -1, 0, 2.5, [], {}, 1j, b"x", Decimal("0.5"), 10**400, -0.0,
    (2, 1), (0, float("nan")), ["auto"], np.array([1.0]),
]  # fmt: skip


@pytest.mark.parametrize("name", quickly(FAMILIES, "logistic", "lasso", "semi-interactive", "laplace"))
@pytest.mark.filterwarnings("ignore::epsilearn.errors.PrivacyWarning")
def test_nonsense_is_refused_before_anything_is_spent(name, tmp_path, monkeypatch):
    """Or it is not nonsense, and then it works."""
    monkeypatch.chdir(tmp_path)  # some words would do as the name of a file
    family = FAMILIES[name]
    good = Case(name, shape=(6, 1) if family.target == "none" else (6, 2))
    X, y = good.housed(good.table(0)), good.target(0)
    for setting in {**family.ordinary, **family.changes}.keys() - {"choice"}:
        for nonsense in NONSENSE:
            book, error = Book(), None
            try:
                family.run({**good.settings, "random_state": 0, setting: nonsense}, X, y, book)
            except (EpsilearnError, TypeError) as raised:
                error = raised
            if error is not None:
                assert not book.debits, (setting, nonsense, repr(error))
                assert ADVICE.search(str(error)) or "beyond" in str(error), (setting, nonsense, repr(error))
                check_secrets(error)


# ---------------------------------------------------------------- the ledger, and noise that hardly ever comes


# What is proven for the printed constants is more than was asked for.
@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "scaler" and "printed" not in n])
def test_a_ledger_is_debited_for_what_is_delivered_and_for_nothing_else(name, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", dataset="d", epsilon=1.0, delta=1e-6, rule="pure")
    good = Case(name)
    arguments = good.settings, good.housed(good.table(0)), good.target(0)
    released = good.kind.run(*arguments, ledger)
    assert [entry["status"] for entry in ledger.history()] == ["delivered"]
    with pytest.raises(BudgetExceeded):
        good.kind.run(*arguments, ledger)
    assert len(ledger.history()) == 1
    assert released is not None


@pytest.mark.parametrize("word", quickly([0, 2**64 - 1, 2**63], 0))
@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "scaler"])
def test_noise_from_the_far_ends_of_its_law_is_released_like_any_other(name, word):
    """The first words of the bit source all zeros, or all ones: what happens once in 2**64 fits, or never."""
    good = Case(name)
    bits, fresh = SeededBits(0), SeededBits(1)
    left = [3]

    def words(count: int) -> np.ndarray:
        rigged = np.array([word if left[0] > i else fresh.integer(64) for i in range(count)], np.uint64)
        left[0] -= count
        return rigged

    bits.words, bits.integer = words, fresh.integer  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good.kind.run({**good.settings, "random_state": bits}, good.housed(good.table(0)), good.target(0), None)
