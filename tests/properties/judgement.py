"""What a fit may end in: a model with its promise, or a clear error that says nothing of the records."""

from __future__ import annotations

import math
import pickle
import re
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone

from epsilearn import Guarantee
from epsilearn.errors import ConvergenceError, EpsilearnError, StateError
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.noise.bits import SeededBits

from .families import FAMILIES, Family, Settings
from .universe import CANARY, CONTENTS, LARGEST, SMALLEST, Array, fingerprint

__all__ = ["Book", "Case", "check_error", "judge"]

# Seconds after which a fit to a few rows counts as one that never ends; a busy machine takes some of them.
PATIENCE = 60
# An error says what to do, or what is possible instead.
ADVICE = re.compile(
    r"\b(must|use|pass|give|choose|scale|rescale|reshape|shift|needs?|raise|lower|ask|add|drop|declare|encode|should|"
    r"convert|leave|required?|requires|too (few|small|large|many)|instead|nothing to)\b",
    re.IGNORECASE,
)
# Warnings that follow from settings and shapes alone.
PUBLIC_WARNINGS = {"PrivacyWarning", "DataConversionWarning"}


class Book:
    """As much of a ledger as a fit sees, without a file. A copy is the same book, as with a real one."""

    def __init__(self) -> None:
        self.debits: list[Guarantee] = []
        self.delivered = 0

    @contextmanager
    def spend(self, guarantee: Guarantee, purpose: str) -> Iterator[Guarantee]:
        self.debits.append(guarantee)
        yield guarantee
        self.delivered += 1

    def __deepcopy__(self, memo: Any) -> Book:
        return self


@dataclass(frozen=True)
class Case:
    """Public settings, and the contents of private tables that they are tried on: nobody may tell which it was."""

    family: str
    changes: tuple[tuple[str, Any], ...] = ()
    shape: tuple[int, int] = (12, 3)
    home: str = "float64"
    target_home: str = "array"
    contents: tuple[str, ...] = ("ordinary",)
    targets: tuple[str, ...] = ("any",)
    seed: int = 0

    @property
    def kind(self) -> Family:
        return FAMILIES[self.family]

    @property
    def chosen(self) -> Settings:
        """All settings; some are only made when they are used."""
        return {**self.kind.ordinary, **dict(self.changes)}

    @property
    def settings(self) -> Settings:
        return {k: v.made(self.shape[1]) if hasattr(v, "made") else v for k, v in self.chosen.items()}

    @property
    def classifies(self) -> bool:
        return self.kind.target == "labels" and self.chosen.get("loss") != "huber"

    @property
    def may_fail(self) -> bool:
        """Whether the solver may: losses with kinks and far too little regularisation, as the documentation says."""
        settings = self.settings
        alpha, loss, kernel = settings.get("alpha", "auto"), settings.get("loss", self.family), settings.get("kernel")
        if isinstance(alpha, str) or not re.search("svm|hinge|huber|convex", str(loss), re.IGNORECASE):
            return False
        norm = (settings.get("data_norm") or 1.0) if kernel is None else kernel.bound
        return bool(alpha * self.shape[0] < 1e-3 * norm * norm)

    def table(self, number: int) -> Array:
        """The features of one of the tables."""
        return self.bounded(CONTENTS[self.contents[number]](self._chance(number), *self.shape))

    def bounded(self, table: Array) -> Array:
        table = np.clip(table, -self.kind.largest, self.kind.largest)
        return np.abs(table) if self.kind.nonnegative else table

    def housed(self, table: Array) -> Any:
        return self.kind.homes[self.home](table[:, 0] if self.kind.target == "none" else table)

    def target(self, number: int) -> Any:
        """The targets of one of the tables."""
        if self.kind.target in ("none", "nothing"):
            return None
        rows, content = self.shape[0], self.targets[min(number, len(self.targets) - 1)]
        y = self._labels(content, rows) if self.classifies else self._numbers(content, rows, number)
        homes = {"array": np.asarray, "list": np.ndarray.tolist, "series": pd.Series, "column": lambda v: v[:, None]}
        return homes[self.target_home](y)

    def _labels(self, content: str, rows: int) -> Array:
        classes = self.chosen.get("classes")
        labels = np.asarray([0, 1] if classes is None else classes)
        every = np.arange(rows) % len(labels)
        if classes is None:
            # Then the labels that are there are public: they must be the same in all tables.
            return labels[every]
        alike = {"first": 0, "last": len(labels) - 1}
        return labels[np.full(rows, alike[content]) if content in alike else every]

    def _numbers(self, content: str, rows: int, number: int) -> Array:
        made = CONTENTS.get(content, CONTENTS["ordinary"])
        return made(self._chance(number), rows, 1)[:, 0]

    def _chance(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, number))


@dataclass(frozen=True)
class Outcome:
    """What anybody sees of a fit, besides the model that was paid for."""

    error: str | None
    warned: frozenset[tuple[str, str]]


def judge(case: Case) -> Outcome:
    """Fit to each table and judge what comes out; what anybody sees must not depend on the table."""
    outcomes = {_one(case, number) for number in range(len(case.contents))}
    failed = {outcome for outcome in outcomes if (outcome.error or "").startswith("ConvergenceError")}
    if failed:
        assert case.may_fail, f"the solver failed: {failed}"
        outcomes = outcomes - failed or failed
    assert len(outcomes) == 1, f"what anybody sees depends on the records: {outcomes}"
    return outcomes.pop()


def _one(case: Case, number: int) -> Outcome:
    X, y, book = case.housed(case.table(number)), case.target(number), Book()
    before = fingerprint(X), fingerprint(y)
    bits = SeededBits(case.seed)
    bits.seeded = False  # the same noise each time, under a promise as if it were not
    with warnings.catch_warnings(record=True) as caught, _patience():
        warnings.simplefilter("always")
        try:
            released, error = case.kind.run({**case.settings, "random_state": bits}, X, y, book), None
        except EpsilearnError as raised:
            released, error = None, raised
    assert (fingerprint(X), fingerprint(y)) == before, "the fit changed its input"
    warned = frozenset((w.category.__name__, str(w.message)) for w in caught)
    assert {name for name, _ in warned} <= PUBLIC_WARNINGS, f"warnings: {warned}"
    if error is not None:
        check_error(error, book)
        return Outcome(f"{type(error).__name__}: {error}", warned)
    if case.family == "scaler":
        _check_scaler(released, case, X)
        return Outcome(None, warned)
    _check_promise(released, case.settings, book)
    for name, value in _public_parts(released):
        _check_finite(name, value)
    if number == 0 and hasattr(released, "predict"):
        with warnings.catch_warnings(), _patience():
            warnings.simplefilter("error")
            _check_predictions(released, case)
    return Outcome(None, warned)


@contextmanager
def _patience() -> Iterator[None]:
    def too_long(*_: Any) -> None:
        raise TimeoutError(f"no end after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, too_long)
    # Again each second: the first may be raised where it is swallowed.
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------- errors


def check_error(error: BaseException, book: Book) -> None:
    """The library's own, with advice, without a private value, and nothing spent that need not be."""
    assert isinstance(error, EpsilearnError), repr(error)
    said = str(error)
    assert len(said) > 20, repr(error)
    assert ADVICE.search(said), f"does not say what to do: {said}"
    # Numbers that were passed are above 0; so what this speaks of is none of them.
    assert not re.match(r"\w+ must be a finite number above 0", said), f"speaks of what nobody passed: {said}"
    assert "does not prove" not in said, f"a doubt of its own: {said}"
    check_secrets(error)
    spent = (len(book.debits), book.delivered)
    assert spent == ((1, 0) if isinstance(error, ConvergenceError) else (0, 0)), (spent, repr(error))


def check_secrets(error: BaseException | None) -> None:
    """Neither the error nor those behind it quote a private number."""
    while error is not None:
        said = f"{error!r} {error} {getattr(error, '__notes__', '')}".replace(".", "")
        assert CANARY not in said, f"quotes a private value: {said}"
        error = error.__cause__ or error.__context__


# ---------------------------------------------------------------- models and other releases


def _final(model: Any) -> Any:
    """The private step of a pipeline, and the chosen model of a selection."""
    model = getattr(model, "best_estimator_", model)
    return model.steps[-1][1] if hasattr(model, "steps") else model


def _check_promise(released: Any, settings: Settings, book: Book) -> None:
    final = _final(released)
    promise: Guarantee = final.guarantee_ if hasattr(final, "guarantee_") else released.guarantee
    epsilon = float(settings.get("epsilon", 1.0))
    delta = float(settings.get("delta", getattr(final, "delta", 0.0)))
    assert promise.void_reason is None
    assert 0 < promise.epsilon < math.inf, promise
    assert promise.epsilon <= epsilon or promise.claimed_epsilon == epsilon, promise
    assert 0 <= promise.delta <= delta, promise
    assert promise.rows_per_person == settings.get("rows_per_person", 1), promise
    assert not re.search(r"\b(nan|inf)\b", str(promise)), promise
    assert Guarantee.from_json(promise.to_json()) == promise
    (debited,) = book.debits
    assert book.delivered == 1
    assert (debited.epsilon, debited.delta, debited.curve) == (promise.epsilon, promise.delta, promise.curve)


def _public_parts(released: Any) -> Iterator[tuple[str, Any]]:
    """Everything that a model or a release shows to anyone."""
    if not hasattr(released, "predict"):
        yield from {"value": released.value, "noise": released.noise}.items()
        return
    final = _final(released)
    yield from ((name, value) for name, value in vars(final).items() if name.endswith("_") and name[0] != "_")


def _check_finite(name: str, value: Any) -> None:
    if isinstance(value, NoiseLaw):
        assert 0 < value.scale < math.inf, value
        assert 0 < value.deviation < math.inf, value
        assert 0 <= value.step < math.inf, value
        return
    if value is None or isinstance(value, str) or name in ("classes_", "guarantee_", "kernel_", "feature_names_in_"):
        return
    if hasattr(value, "__dataclass_fields__"):
        value = [v for v in vars(value).values() if isinstance(v, int | float)]
    numbers = value.data if sparse.issparse(value) else np.asarray(value, np.float64)
    assert np.isfinite(numbers).all(), f"{name} is not finite: {value}"
    assert name not in ("alpha_", "tolerance_") or value >= 0, (name, value)


def _check_predictions(model: Any, case: Case) -> None:
    """Finite, within the declared classes, and the same after a pickle; whatever is asked about."""
    extremes = [np.full(case.shape[1], size) for size in (0.0, LARGEST, -LARGEST, SMALLEST)]
    points = case.housed(case.bounded(np.vstack([case.table(0)[:2], *extremes])))
    _check_copies(model)
    final = _final(model)
    refusal, predicted = None, np.empty(0)
    try:
        predicted = model.predict(points)
    except EpsilearnError as raised:
        refusal = raised
    if refusal is not None:
        # A public point beyond the kernel's bound, or more points than the session takes.
        assert "declared bound" in str(refusal) or isinstance(refusal, StateError), repr(refusal)
        return
    if case.classifies:
        assert set(predicted.tolist()) <= set(final.classes_.tolist())
    else:
        assert np.isfinite(predicted).all(), f"predictions are not finite: {predicted}"
    for name in ("decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, name):
            numbers = getattr(model, name)(points)
            assert np.isfinite(numbers).all(), f"{name} is not finite: {numbers}"
            assert name != "predict_proba" or np.allclose(numbers.sum(axis=1), 1), numbers
    if not hasattr(final, "_session_"):  # which is live: its noise is its own
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(points), predicted)


def _check_copies(model: Any) -> None:
    copied = clone(model).get_params()
    for name, value in model.get_params().items():
        if not name.endswith(("ledger", "random_state", "steps")) and not hasattr(value, "get_params"):
            assert repr(copied[name]) == repr(value), name


def _check_scaler(scaler: Any, case: Case, X: Any) -> None:
    rows = scaler.transform(X)
    dense = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    assert np.isfinite(dense).all(), dense
    lengths = np.linalg.norm(dense.astype(np.float64) / float(case.settings.get("norm", 1.0)), axis=1)
    assert (lengths <= 1 + 1e-14).all(), lengths
