"""Private selection: which rows each candidate sees, how it chooses, what it costs, and the theorem for stopping."""

from __future__ import annotations

import math
import pickle
import signal
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from epsilearn import (
    BoundedScaler,
    Guarantee,
    Ledger,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateSelection,
)
from epsilearn.errors import BudgetExceeded, ConvergenceError, InvalidInput
from epsilearn.mechanisms.release import spending
from epsilearn.mechanisms.stopping import best_of_random_many
from epsilearn.noise.bits import SeededBits

BINARY = {"data_norm": 1.5, "classes": [0, 1]}


class Stub(BaseEstimator):
    """As private as its parameters say: keeps a note of each fit, and is right as often as its setting says."""

    notes: ClassVar[list[dict[str, Any]]] = []
    judged: ClassVar[list[np.ndarray]] = []

    def __init__(
        self, *, right=0.5, epsilon=1.0, delta=0.0, rows_per_person=1, ledger=None, random_state=None, classes=None
    ):
        self.right = right
        self.epsilon = epsilon
        self.delta = delta
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.classes = classes

    def fit(self, X, y):
        promise = Guarantee.from_budget(float(self.epsilon), float(self.delta))
        with spending(promise, self.ledger, "Stub.fit", None):
            if self.right == "never":
                raise ConvergenceError("the solver did not reach it")
            self.notes.append({"rows": np.asarray(X)[:, 0].astype(int), **self.get_params()})
            self.fitted_ = True
            self.guarantee_ = promise
        return self


class Classifies(ClassifierMixin, Stub):
    """The first column numbers the rows; the second is the label."""

    def fit(self, X, y):
        np.testing.assert_array_equal(np.asarray(X)[:, 1], y)
        self.classes_ = np.asarray(self.classes)
        return super().fit(X, y)

    def predict(self, X):
        X = np.asarray(X)
        self.judged.append(X[:, 0].astype(int))
        return np.where(np.arange(len(X)) < round(self.right * len(X)), X[:, 1], 1 - X[:, 1])


class Regresses(RegressorMixin, Stub):
    """Off by ``right`` everywhere."""

    def predict(self, X):
        self.judged.append(np.asarray(X)[:, 0].astype(int))
        return np.asarray(X)[:, 1] + self.right


@pytest.fixture(autouse=True)
def _forget():
    Stub.notes.clear()
    Stub.judged.clear()


def numbered(n: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 2
    return np.column_stack([np.arange(n), y]).astype(float), y


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0, delta=1e-3)


# ---------------------------------------------------------------- disjoint parts


def test_parts_are_disjoint_and_fixed_by_row_number():
    """Each candidate's rows, and the judges', are apart; together they are all; and only n decides which."""
    X, y = numbered(103)
    grid = {"right": [0.1, 0.5, 0.9]}
    PrivateSelection(Classifies(), grid, holdout=0.2).fit(X, y)
    parts, judges = [note["rows"] for note in Stub.notes], Stub.judged
    assert len(parts) == 3
    assert all(np.array_equal(judge, judges[0]) for judge in judges)
    everyone = np.concatenate([*parts, judges[0]])
    assert sorted(everyone) == list(range(103))
    assert len(judges[0]) == round(0.2 * 103)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    Stub.notes.clear()
    PrivateSelection(Classifies(), grid, holdout=0.2).fit(np.column_stack([X[:, 0], 1 - y]), 1 - y)
    assert all(np.array_equal(note["rows"], part) for note, part in zip(Stub.notes, parts, strict=True))
    # A table sorted by label is not cut into one label a part.
    assert all(0.2 < np.mean(part % 2) < 0.8 for part in parts)


@pytest.mark.parametrize(("rows_per_person", "epsilon", "delta"), [(1, 0.8, 0.0), (1, 0.8, 1e-6), (4, 0.8, 0.0)])
def test_every_part_and_the_choice_get_the_whole_budget(rows_per_person, epsilon, delta, monkeypatch):
    """By parallel composition. A person's rows may lie in several parts: they are a group."""
    from epsilearn import selection

    chosen = []
    exponential = selection.exponential

    def spy(scores, **options):
        chosen.append(options)
        return exponential(scores, **options)

    monkeypatch.setattr(selection, "exponential", spy)
    X, y = numbered(100)
    search = PrivateSelection(
        Classifies(epsilon=99.0, delta=0.5, rows_per_person=7, ledger="never asked", random_state=3),
        {"right": [0.1, 0.9]}, epsilon=epsilon, delta=delta, rows_per_person=rows_per_person,
    ).fit(X, y)  # fmt: skip
    for note in Stub.notes:
        assert note["epsilon"] == pytest.approx(epsilon / rows_per_person)
        assert note["epsilon"] * rows_per_person <= epsilon
        assert note["delta"] == delta
        assert (note["rows_per_person"], note["ledger"], note["random_state"]) == (1, None, None)
    assert chosen[0]["epsilon"] == pytest.approx(epsilon / rows_per_person)
    assert 1.0 <= chosen[0]["sensitivity"] < 1 + 1e-9
    assert chosen[0].get("ledger") is None
    promise = search.guarantee_
    assert (promise.epsilon, promise.delta, promise.rows_per_person) == (epsilon, delta, rows_per_person)
    assert search.best_estimator_.guarantee_ == promise
    assert Guarantee.from_json(promise.to_json()) == promise


@pytest.mark.slow
def test_the_choice_has_the_exponential_mechanisms_probabilities():
    """exp(epsilon marks / 2) by the marks on the judges' rows. Seeded; at 1.4 times the epsilon, or 0.7, it fails."""
    X, y = numbered(40)
    rights = [0.2, 0.5, 0.8, 1.0]
    searches = [
        PrivateSelection(Classifies(), {"right": rights}, epsilon=0.7, holdout=0.5, random_state=seed).fit(X, y)
        for seed in range(1000)
    ]
    picks = Counter(search.best_params_["right"] for search in searches)
    marks = np.array([round(r * 20) for r in rights])
    observed = [picks[r] for r in rights]
    for epsilon, fits in ((0.7, True), (1.0, False), (0.5, False)):
        weights = np.exp(epsilon * marks / 2)
        found = stats.chisquare(observed, 1000 * weights / weights.sum()).pvalue
        assert (found > 1e-3) == fits


def test_a_regressors_marks_are_shares_of_the_largest_error():
    X, _ = numbered(40)
    rights, options = [0.0, 1.0, 3.0], {"epsilon": 0.7, "holdout": 0.5, "target_bound": (0.0, 4.0)}
    searches = [
        PrivateSelection(Regresses(), {"right": rights}, random_state=seed, **options).fit(X, X[:, 1])
        for seed in range(600)
    ]
    picks = Counter(search.best_params_["right"] for search in searches)
    # Predictions 0..1 plus the setting, clipped to [0, 4]: errors of 0, 1, 9 out of 16, for each of 20 judges.
    weights = np.exp(0.7 / 2 * 20 * (1 - np.array([0, 1, 9]) / 16))
    assert stats.chisquare([picks[r] for r in rights], 600 * weights / weights.sum()).pvalue > 1e-3


def test_one_judge_moves_each_mark_by_one_at_most(monkeypatch):
    """The worst a judge can do: wrong for all that were right. And the sum's rounding is counted."""
    from epsilearn import selection

    seen = []
    exponential = selection.exponential
    monkeypatch.setattr(selection, "exponential", lambda s, **o: seen.append((s, o)) or exponential(s, **o))
    X, _ = numbered(60)
    for target in (0.0, 1e9, -1e9, 0.37):
        changed, targets = X.copy(), X[:, 1].copy()
        judge = np.random.default_rng(60).permutation(60)[0]  # the first of the judges' rows
        changed[judge, 1], targets[judge] = 1e300, target
        PrivateSelection(
            Regresses(), {"right": [0.0, 0.1, -7.0]}, holdout=0.5, target_bound=(-0.3, 0.9), random_state=0
        ).fit(changed, targets)
    marks = np.array([s for s, _ in seen])
    moved = np.abs(marks[:, None] - marks[None]).max()
    assert 0.9 < moved <= seen[0][1]["sensitivity"]


# ---------------------------------------------------------------- random stopping


def tries(count: int, stop: float | None, candidates: int, **options: Any) -> list[int]:
    X, y = numbered(20)
    found = []
    for seed in range(count):
        Stub.notes.clear()
        PrivateSelection(
            Classifies(), {"right": np.linspace(0.1, 0.9, candidates)}, strategy="stopping", stop=stop,
            random_state=seed, **options,
        ).fit(X, y)  # fmt: skip
        found.append(len(Stub.notes))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "candidates", "expected"), [(0.3, 2, 0.3), (None, 2, 0.25), (0.8, 5, 0.8)])
def test_the_number_of_tries_is_geometric(stop, candidates, expected):
    """Seeded; 300 of them tell 0.3 from 0.45."""
    found = np.array(tries(300, stop, candidates))
    counts = [np.sum(found == k) for k in range(1, 4)] + [np.sum(found > 3)]
    shares = [expected * (1 - expected) ** k for k in range(3)] + [(1 - expected) ** 3]
    assert stats.chisquare(counts, 300 * np.array(shares)).pvalue > 1e-3
    other = expected + 0.15 if expected < 0.5 else expected - 0.15
    shares = [other * (1 - other) ** k for k in range(3)] + [(1 - other) ** 3]
    assert stats.chisquare(counts, 300 * np.array(shares)).pvalue < 1e-3


@pytest.mark.parametrize("rows_per_person", [1, 2])
def test_each_try_costs_a_third(rows_per_person, monkeypatch):
    from epsilearn import selection

    scored = []
    private_score = selection.private_score
    monkeypatch.setattr(selection, "private_score", lambda *a, **o: scored.append((a, o)) or private_score(*a, **o))
    X, y = numbered(100)
    search = PrivateSelection(
        Classifies(), {"right": [0.1, 0.9]}, strategy="stopping", stop=0.2, epsilon=0.6,
        rows_per_person=rows_per_person, holdout=0.3,
    ).fit(X, y)  # fmt: skip
    share = 0.6 / 3 / rows_per_person
    assert len(scored) == len(Stub.notes) >= 1
    for note, ((_, judge, _), options) in zip(Stub.notes, scored, strict=True):
        assert note["epsilon"] == pytest.approx(share)
        assert 3 * rows_per_person * note["epsilon"] <= 0.6 * (1 + 1e-15)
        assert options["epsilon"] == note["epsilon"]
        assert options.get("ledger") is None
        # A try's fit and its score see different rows, so a try costs what each of them does.
        assert not set(note["rows"]) & set(judge[:, 0].astype(int))
        assert len(note["rows"]) == 70
    assert search.guarantee_.epsilon == 0.6
    assert (note["delta"], note["rows_per_person"], note["ledger"]) == (0.0, 1, None)


def test_stopping_keeps_the_best_and_every_candidate_has_its_chance():
    X, y = numbered(400)
    counts: Counter[float] = Counter()
    for seed in range(40):
        Stub.notes.clear()
        search = PrivateSelection(
            Classifies(), {"right": [0.1, 0.5, 0.9]}, strategy="stopping", stop=0.2, epsilon=30.0, random_state=seed
        ).fit(X, y)
        tried = [note["right"] for note in Stub.notes]
        counts.update(tried)
        assert search.best_params_ == {"right": max(tried)}
    assert stats.chisquare([counts[r] for r in (0.1, 0.5, 0.9)]).pvalue > 1e-3


def test_stopping_for_regressors_prefers_small_errors():
    X, _ = numbered(400)
    wins = Counter()
    for seed in range(30):
        search = PrivateSelection(
            Regresses(), {"right": [0.0, 1.0]}, strategy="stopping", stop=0.05, epsilon=30.0, target_bound=2.0,
            random_state=seed,
        ).fit(X, X[:, 1])  # fmt: skip
        wins[search.best_params_["right"]] += 1
    assert wins[0.0] > wins[1.0]
    assert wins[0.0] > 20


def test_stopping_is_proven_for_pure_promises_only(ledger):
    X, y = numbered(20)
    with pytest.raises(InvalidInput, match="pure"):
        PrivateSelection(Classifies(), {"right": [0.5]}, strategy="stopping", delta=1e-9, ledger=ledger).fit(X, y)
    assert ledger.history() == []
    assert Stub.notes == []


def exact_best(probabilities: np.ndarray, stop: float) -> np.ndarray:
    """The distribution of the best of a geometric number of tries, each an outcome 0 < 1 < 2 ... with these chances."""
    below = np.concatenate([[0.0], np.cumsum(probabilities)])
    at_most = stop * below / (1 - (1 - stop) * below)
    return np.diff(at_most)


def test_the_best_of_random_many_has_its_exact_distribution():
    """Outcomes with private scores of their own; the mechanism against the formula, and with ties."""
    chances = np.array([0.5, 0.3, 0.2])
    for stop in (0.5, 0.1):
        counts = np.zeros(3)
        for seed in range(2000):
            generator = np.random.default_rng([seed, 1])  # another stream than the mechanism's
            outcome, _ = best_of_random_many(
                lambda _, __, g=generator: (float(k := g.choice(3, p=chances)), k), 1,
                stop=stop, promise=Guarantee.pure(1.0), ledger=None, purpose="", random_state=seed,
            )  # fmt: skip
            counts[outcome] += 1
        assert stats.chisquare(counts, 2000 * exact_best(chances, stop)).pvalue > 1e-3


def test_stopping_costs_three_times_a_try_and_no_more():
    """Brute force over pairs of epsilon-close distributions: the best of a geometric number is 3 epsilon-close."""
    generator, worst = np.random.default_rng(0), 0.0
    for _ in range(3000):
        size = int(generator.integers(2, 5))
        first = generator.dirichlet(np.full(size, 0.3)) + 1e-12
        second = first * np.exp(0.2 * generator.choice([-1.0, 1.0], size))
        first, second = first / first.sum(), second / second.sum()
        epsilon = np.abs(np.log(first / second)).max()  # what one try reveals
        for stop in (0.5, 0.05, 1e-4):
            loss = np.abs(np.log(exact_best(first, stop) / exact_best(second, stop))).max()
            assert loss <= 3 * epsilon + 1e-4
            worst = max(worst, loss / (epsilon + 1e-3))
    assert worst > 2.2  # and nearly as much is attained


def test_candidates_are_drawn_evenly():
    from epsilearn.mechanisms.stopping import _below

    for limit in (1, 2, 3, 5, 8, 13):
        source = SeededBits(limit)
        counts = np.bincount([_below(limit, source) for _ in range(3000)], minlength=limit)
        assert len(counts) == limit
        assert limit == 1 or stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("stop", [0.0, 1.0, -0.5, math.nan, 1e-12, "often"])
def test_a_bad_probability_of_stopping_costs_nothing(stop, ledger):
    X, y = numbered(20)
    with pytest.raises(InvalidInput, match="stop"):
        PrivateSelection(Classifies(), {"right": [0.5]}, strategy="stopping", stop=stop, ledger=ledger).fit(X, y)
    assert ledger.history() == []
    assert Stub.notes == []


def test_seeded_tries_do_not_share_their_noise():
    X, y = numbered(40)
    PrivateSelection(Classifies(), {"right": [0.5]}, strategy="stopping", stop=0.05, random_state=3).fit(X, y)
    states = [note["random_state"] for note in Stub.notes]
    assert len(states) > 2
    # One stream of bits for all tries, or a seed of its own for each.
    assert not all(isinstance(state, int) and state == states[0] for state in states)


# ---------------------------------------------------------------- ledgers and failures


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_one_debit_for_everything(strategy, ledger):
    X, y = numbered(60)
    search = PrivateSelection(Classifies(), {"right": [0.1, 0.9]}, strategy=strategy, epsilon=0.6, ledger=ledger)
    search.fit(X, y)
    (entry,) = ledger.history()
    assert (entry["status"], entry["purpose"]) == ("delivered", "PrivateSelection.fit")
    assert entry["guarantee"]["epsilon"] == 0.6
    assert search.guarantee_.ledger.entry == 1
    assert clone(search).fit(X, y).guarantee_.epsilon == 0.6
    assert len(ledger.history()) == 2


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_nothing_is_fitted_when_the_budget_is_spent_or_a_seed_is_given(strategy, ledger):
    X, y = numbered(60)
    for options in ({"epsilon": 11.0}, {"epsilon": 1.0, "random_state": 0}):
        search = PrivateSelection(Classifies(), {"right": [0.1, 0.9]}, strategy=strategy, ledger=ledger, **options)
        with pytest.raises(BudgetExceeded):
            search.fit(X, y)
        assert not hasattr(search, "best_estimator_")
    assert Stub.notes == []
    assert ledger.history() == []


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_a_candidate_that_fails_costs_the_budget_and_releases_nothing(strategy, ledger):
    X, y = numbered(60)
    search = PrivateSelection(Classifies(), {"right": ["never"]}, strategy=strategy, ledger=ledger)
    with pytest.raises(ConvergenceError):
        search.fit(X, y)
    (entry,) = ledger.history()
    assert entry["status"] == "spent, not delivered"
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"strategy": "best"}, "strategy"),
        ({"holdout": 0.0}, "holdout"),
        ({"holdout": 1.5}, "holdout"),
        ({"holdout": 0.999}, "too few"),
        ({"rows_per_person": 0}, "rows_per_person"),
        ({"grid": {"epsilon": [1.0, 2.0]}}, "must not vary 'epsilon'"),
        ({"grid": [{"right": [1.0]}, {"ledger": [None]}]}, "must not vary 'ledger'"),
        ({"grid": {"random_state": [1]}}, "must not vary 'random_state'"),
        ({"grid": {"wrong": [1.0]}}, "wrong"),
        ({"estimator": Plain()}, "must be private"),
        ({"grid": {"right": np.linspace(0, 1, 100)}}, "too few"),
    ],
)
def test_what_is_refused_costs_nothing(options, message, ledger):
    X, y = numbered(60)
    search = PrivateSelection(**{"estimator": Classifies(), "grid": {"right": [0.1, 0.9]}, "ledger": ledger, **options})
    with pytest.raises(ValueError, match=message):
        search.fit(X, y)
    assert ledger.history() == []
    assert Stub.notes == []


class TimeUp(Exception):
    pass


def give_up(*_: object) -> None:
    raise TimeUp


def spoiled(case: str) -> tuple[Any, Any, dict[str, Any]]:
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    grid: dict[str, Any] = {"grid": {"alpha": [0.1, 1.0]}}
    missing, unjudged, untold = X.copy(), X.copy(), X[:, 0].copy()
    order = np.random.default_rng(60).permutation(60)  # the judges' rows come first
    missing[order[-1], 1] = unjudged[order[0], 1] = untold[order[0]] = math.nan
    regressor = LinearRegression(data_norm=1.0, target_bound=1.0)
    return {
        "a missing feature": (missing, y, grid),
        "a judge's missing feature": (unjudged, y, grid),
        "a judge's missing target": (X, untold, {"estimator": regressor, "target_bound": 1.0, **grid}),
        "one dimension": (X[:, 0], y, grid),
        "a candidate's own setting": (X, y, {"grid": {"alpha": [0.1, -1.0]}}),
        "an empty grid": (X, y, {"grid": []}),
        "a bad norm": (X, y, {"estimator": LogisticRegression(data_norm=-1.0, classes=[0, 1]), **grid}),
        "no bound for targets": (X, X[:, 0], {"estimator": regressor, **grid}),
    }[case]  # fmt: skip


SPOILED = [
    "a missing feature", "a judge's missing feature", "a judge's missing target", "one dimension",
    "a candidate's own setting", "an empty grid", "a bad norm", "no bound for targets",
]  # fmt: skip


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
@pytest.mark.parametrize("case", SPOILED)
def test_what_a_candidate_would_refuse_costs_nothing_either(case, strategy, ledger):
    X, y, options = spoiled(case)
    search = PrivateSelection(
        **{"estimator": LogisticRegression(**BINARY), "strategy": strategy, "stop": 0.01, "ledger": ledger, **options}
    )
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 20.0)  # of no candidates at all none would ever be drawn
    try:
        with pytest.raises((ValueError, TypeError)):
            search.fit(X, y)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ledger.history() == []


# ---------------------------------------------------------------- with real estimators


def easy(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 3)) / 2
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_a_good_setting_is_found(strategy):
    """A bound a million times too large drowns the rows in noise."""
    X, y = easy()
    search = PrivateSelection(
        LogisticRegression(**BINARY),
        {"data_norm": [1.5, 1e6]},
        strategy=strategy,
        epsilon=5.0,
        stop=0.02,
        random_state=2,
    ).fit(X, y)
    assert search.best_params_ == {"data_norm": 1.5}
    assert search.score(X, y) > 0.9
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    np.testing.assert_array_equal(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    np.testing.assert_array_equal(search.decision_function(X), search.best_estimator_.decision_function(X))
    assert search.classes_.tolist() == [0, 1]
    assert search.n_features_in_ == 3


def test_nothing_of_the_other_candidates_is_kept():
    X, y = easy(400)
    search = PrivateSelection(LogisticRegression(**BINARY), {"alpha": [0.1, 0.2, 0.3]}).fit(X, y)
    kept = set(vars(search)) - set(search.get_params(deep=False))
    assert kept == {"best_estimator_", "best_params_", "guarantee_", "classes_", "n_features_in_"}
    assert set(vars(search.best_estimator_)) - set(search.best_estimator_.get_params()) == {
        "coef_", "intercept_", "classes_", "guarantee_", "noise_", "alpha_", "method_", "n_features_in_",
        "_bounds_",
    }  # fmt: skip
    content = pickle.dumps(search)
    assert not any(number.tobytes() in content for number in X.ravel())
    assert search.estimator.get_params() == LogisticRegression(**BINARY).get_params()


def test_a_part_without_one_of_the_labels_is_no_error():
    """Whether a part happens to lack a rare label must not show."""
    X, _ = easy(40)
    rare = np.zeros(40, int)
    rare[5] = 1
    for classes, assumed in ((None, True), ([0, 1], False), ([0, 1, 2], False)):
        estimator = LogisticRegression(data_norm=1.0, classes=classes)
        search = PrivateSelection(estimator, {"alpha": [0.1, 1.0, 2.0]}).fit(X, rare)
        assert ("label set is public" in search.guarantee_.assumptions) == assumed
        assert search.classes_.tolist() == list(range(3 if classes and len(classes) == 3 else 2))
    with pytest.raises(InvalidInput, match="not in classes"):
        PrivateSelection(LogisticRegression(data_norm=1.0, classes=[0, 1]), {"alpha": [0.1]}).fit(X, rare + 1)


def test_pipelines():
    X, y = easy()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    pipeline = make_pipeline(BoundedScaler(bounds=(-2.0, 2.0)), LogisticRegression(data_norm=1.0, classes=[0, 1]))
    # Bounds so wide that nothing is left of the features lose against sensible ones.
    grid = {"logisticregression__alpha": [1e-3], "boundedscaler__bounds": [(-2.0, 2.0), (-1e6, 1e6)]}
    search = PrivateSelection(pipeline, grid, epsilon=5.0, random_state=0).fit(frame, y)
    assert search.best_params_["boundedscaler__bounds"] == (-2.0, 2.0)
    assert search.score(frame, y) > 0.9
    assert search.best_estimator_[-1].guarantee_ == search.guarantee_
    assert search.best_estimator_[-1].epsilon == 5.0
    assert search.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(InvalidInput, match="must not vary 'epsilon'"):
        PrivateSelection(pipeline, {"logisticregression__epsilon": [1.0]}).fit(frame, y)


def test_regressors():
    X, _ = easy()
    search = PrivateSelection(
        LinearRegression(data_norm=1.5, target_bound=1.0, method="sufficient-statistics"),
        {"alpha": [1e-3, 1e3]}, epsilon=5.0, delta=1e-6, target_bound=1.0, random_state=0,
    ).fit(X, np.clip(X[:, 0], -1, 1))  # fmt: skip
    assert search.best_params_ == {"alpha": 1e-3}
    assert not hasattr(search, "predict_proba")
    assert not hasattr(search, "classes_")
    assert search.predict(X).shape == (4000,)


@pytest.mark.parametrize(
    "make",
    [
        np.asfortranarray,
        sparse.csr_array,
        sparse.coo_array,
        lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
        lambda X: pl.DataFrame({name: X[:, j] for j, name in enumerate("abc")}),
    ],
)
@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_tables_of_all_kinds(make, strategy):
    X, y = easy(300)
    options = {"grid": {"alpha": [0.1, 10.0]}, "epsilon": 3.0, "random_state": 2, "strategy": strategy}
    expected = PrivateSelection(LogisticRegression(**BINARY), **options).fit(X, y)
    found = PrivateSelection(LogisticRegression(**BINARY), **options).fit(make(X), pd.Series(y))
    assert found.best_params_ == expected.best_params_
    np.testing.assert_allclose(found.best_estimator_.coef_, expected.best_estimator_.coef_, atol=0.05)


def test_lists_are_tables_too():
    X, y = easy(100)
    PrivateSelection(LogisticRegression(**BINARY), {"alpha": [0.1]}).fit(X.tolist(), y.tolist())


def test_a_pipeline_that_learns_from_the_rows_is_refused(ledger):
    """A StandardScaler's means would be released with the model, and nothing protects them."""
    from sklearn.preprocessing import FunctionTransformer

    X, y = easy(200)
    model, grid = LogisticRegression(**BINARY), {"logisticregression__alpha": [0.1]}
    with pytest.raises(
        InvalidInput, match="'standardscaler' of the pipeline is refused: StandardScaler learns from the rows"
    ):
        PrivateSelection(make_pipeline(StandardScaler(), model), grid, ledger=ledger).fit(X, y)
    assert ledger.history() == []
    PrivateSelection(make_pipeline(FunctionTransformer(), model), grid).fit(X, y)


def test_constants_that_prove_less_than_they_claim_are_refused(ledger):
    X, y = easy(60)
    estimator = LogisticRegression(calibration="paper", **BINARY)
    with pytest.raises(InvalidInput, match="does not promise its budget"):
        PrivateSelection(estimator, {"alpha": [1e-3, 1.0]}, ledger=ledger).fit(X, y)
    assert ledger.history() == []


def test_the_promise_rests_on_what_its_candidates_rest_on():
    X, y = easy(200)
    search = PrivateSelection(LogisticRegression(**BINARY), {"data_norm": [1.0, 2.0]}).fit(X, y)
    text = " ".join(search.guarantee_.assumptions)
    for bound in (1.0, 2.0):
        assert f"rows are scaled to a norm of at most {math.hypot(bound, 0.15 * bound):g}" in text
    assert "the solver reaches its certificate" in text
    assert len(set(search.guarantee_.assumptions)) == len(search.guarantee_.assumptions)


# ---------------------------------------------------------------- every candidate is judged before a row is read


class Untouchable:
    """A table that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"somebody looked at {name}")

    def __array__(self, *_, **__):
        raise AssertionError("somebody read it")


def scaled(step=None) -> Pipeline:
    return Pipeline([("s", step or BoundedScaler(bounds=(-2, 2))), ("lr", LogisticRegression(**BINARY))])


LEAKY_GRIDS = {
    "a step": (scaled(), {"s": [MaxAbsScaler()]}, "'s' of the pipeline is refused: MaxAbsScaler"),
    "one of several": (scaled(), {"s": [StandardScaler(), "passthrough"], "lr__alpha": [0.01, 0.1]}, "StandardScaler"),
    "all steps": (scaled(), {"steps": [scaled(PCA()).steps]}, "PCA"),
    "a pipeline's memory": (scaled(), {"memory": [None, "cache"]}, "disk"),
    "an encoder's setting": (
        scaled(OneHotEncoder(categories=[[0, 1]], handle_unknown="ignore")), {"s__categories": ["auto"]}, "categories"
    ),
    "within columns": (
        scaled(ColumnTransformer([("c", BoundedScaler(), [0])], sparse_threshold=0)),
        {"s__c": [StandardScaler()]}, "'s__c'",
    ),
    "columns by their types": (
        scaled(ColumnTransformer([("c", BoundedScaler(), [0])], sparse_threshold=0)),
        {"s__transformers": [[("c", BoundedScaler(), make_column_selector())]]}, "'s__c'",
    ),
    "the private step": (scaled(), {"lr": [LogisticRegression(**BINARY), Plain()]}, "must be private"),
    "no private step": (scaled(), {"lr": ["passthrough"]}, "must be private"),
    "a search": (GridSearchCV(scaled(), {}), [{}], "must be private"),
    "a budget in the middle": (scaled(LogisticRegression(**BINARY)), [{}], "budget of its own"),
    "another budget": (scaled(), {"lr__epsilon": [1.0]}, "must not vary 'epsilon'"),
    "two kinds": (scaled(), {"lr": [LogisticRegression(**BINARY), LinearRegression()]}, "mixes"),
}  # fmt: skip


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
@pytest.mark.parametrize(("estimator", "grid", "words"), LEAKY_GRIDS.values(), ids=LEAKY_GRIDS)
def test_a_grid_cannot_swap_in_what_learns(estimator, grid, words, strategy, ledger):
    """Found in a review: MaxAbsScaler in a grid released a record to the last digit, under epsilon = 0.1."""
    search = PrivateSelection(estimator, grid, epsilon=0.1, strategy=strategy, ledger=ledger)
    with pytest.raises(InvalidInput, match=words):
        search.fit(Untouchable(), Untouchable())
    assert ledger.history() == []


def test_a_grid_may_swap_public_and_private_steps():
    X, y = easy(300)
    grid = [
        {"s": ["passthrough", BoundedScaler(bounds=(-1, 1))]},
        {"lr": [LinearSVC(**BINARY), LogisticRegression(**BINARY)], "lr__alpha": [0.1]},
        {"lr": [LogisticRegression(data_norm=1.0)]},
    ]
    search = PrivateSelection(scaled(), grid, epsilon=1.0).fit(X, y)
    assert search.best_estimator_[-1].epsilon == 1.0
    assert search.classes_.tolist() == [0, 1]
    assert "label set is public" in search.guarantee_.assumptions  # the last candidate's
    with pytest.raises(InvalidInput, match="lr__wrong"):
        PrivateSelection(scaled(), {"lr__wrong": [1]}).fit(X, y)
