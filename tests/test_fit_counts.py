"""Fits of clones: counted and told, in threads and workers, and debited from the one ledger that they share."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from epsilearn import (
    BoundedScaler,
    ConvexERM,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    Lasso,
    Ledger,
    LinearRegression,
    LogisticRegression,
    NonInteractiveLearner,
    PrivateSelection,
    SemiInteractiveLearner,
)
from epsilearn.audit import audit
from epsilearn.errors import BudgetExceeded, InvalidInput, PrivacyWarning, RepeatedFitWarning
from epsilearn.fit_counts import uncounted
from epsilearn.kernel import RBF, Linear

X = np.random.default_rng(0).normal(size=(60, 2)) / 4
Y = (X[:, 0] > 0).astype(int)


def model(**options):
    return LogisticRegression(**{"data_norm": 1.0, "classes": [0, 1], "epsilon": 0.5, **options})


def told(work) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught if issubclass(warning.category, RepeatedFitWarning)]


@pytest.mark.parametrize(
    ("make", "fits"),
    [
        (lambda: GridSearchCV(model(), {"alpha": [0.1, 1.0]}, cv=2).fit(X, Y), 5),
        (lambda: cross_val_score(model(), X, Y, cv=3), 3),
        (lambda: cross_val_score(make_pipeline(BoundedScaler(bounds=(-1, 1)), model()), X, Y, cv=3), 3),
        (lambda: OneVsRestClassifier(model()).fit(X, np.arange(60) % 3), 3),
        (lambda: CalibratedClassifierCV(model(), cv=2, ensemble=True).fit(X, Y), 2),
    ],
)  # fmt: skip
def test_every_fit_beyond_the_first_is_told(make, fits):
    texts = told(make)
    assert len(texts) == fits - 1
    assert f"this is fit {fits} of one LogisticRegression" in texts[-1]
    assert f"epsilon = {fits * 0.5:g}." in texts[-1]
    assert "PrivateSelection" in texts[-1]
    assert "ledger" in texts[-1]


def test_what_they_add_up_to():
    first = model(delta=1e-6)
    texts = told(lambda: [clone(first).set_params(epsilon=eps).fit(X, Y) for eps in (0.25, 0.5, 1.0)])
    assert "epsilon = 0.75, delta = 2e-06." in texts[0]
    assert "epsilon = 1.75, delta = 3e-06." in texts[1]


def test_separate_estimators_and_seeded_ones_are_not_told():
    assert told(lambda: [model().fit(X, Y) for _ in range(3)]) == []
    seeded = model(random_state=0)
    assert told(lambda: [clone(seeded).fit(X, Y) for _ in range(3)]) == []  # promises nothing that adds up
    first = model()
    with pytest.raises(InvalidInput):
        clone(first).fit(X, Y + 5)  # refused: costs nothing
    assert told(lambda: clone(first).fit(X, Y)) == []


ESTIMATORS = [
    model(),
    ConvexERM(data_norm=1.0, classes=[0, 1]),
    LinearRegression(data_norm=1.0, target_bound=1.0),
    LinearRegression(data_norm=1.0, target_bound=1.0, method="sufficient-statistics"),
    Lasso(feature_bound=1.0, target_bound=1.0, refit=0.5),
    LandmarkClassifier(kernel=RBF(1.0), landmarks=np.eye(2), classes=[0, 1]),
    GaussianProcessRelease(kernel=RBF(1.0), classes=[0, 1]),
    GaussianProcessRelease(kernel=Linear(1.0), classes=[0, 1]),
    InteractiveLearner(kernel=Linear(1.0), alpha=1.0, questions=10, classes=[0, 1]),
    SemiInteractiveLearner(kernel=Linear(1.0), public_points=np.eye(2), alpha=1.0, classes=[0, 1]),
    NonInteractiveLearner(kernel=Linear(1.0), alpha=1.0, classes=[0, 1]),
    PrivateSelection(model(), {"alpha": [0.1, 1.0]}),
    PrivateSelection(model(), {"alpha": [0.1, 1.0]}, strategy="stopping", stop=0.3),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_every_estimator_counts_one_fit_each_and_looks_the_same(estimator):
    fresh = copy.deepcopy(estimator)
    before = repr(fresh), str(fresh.get_params())
    copies = [clone(fresh) for _ in range(3)]
    assert (repr(fresh), str(fresh.get_params())) == before
    assert repr(copies[0]) == before[0]
    texts = told(lambda: [one.fit(X, Y) for one in copies])
    assert len(texts) == 2
    assert f"this is fit 3 of one {type(estimator).__name__}" in texts[1]


def test_plans_rehearsals_selections_and_audits_do_not_count():
    first = LandmarkClassifier(kernel=RBF(1.0), landmarks=np.eye(2), classes=[0, 1])
    work = PrivateSelection(first, {"alpha": [0.1, 1.0, 2.0]})
    assert told(lambda: [first.plan(rows=100, features=2) for _ in range(3)]) == []
    assert told(lambda: work.fit(X, Y)) == []
    assert told(lambda: PrivateSelection(first, {"alpha": [0.1]}, strategy="stopping", stop=0.2).fit(X, Y)) == []
    assert told(lambda: clone(first).fit(X, Y)) == []  # the first that counts
    mechanism = model(epsilon=1.0)
    audited = (X[:3], Y[:3]), (X[:3], 1 - Y[:3])
    assert told(lambda: audit(mechanism, *audited, claimed_epsilon=1.0, trials=100, n_jobs=1)) == []
    with uncounted():
        assert told(lambda: [clone(mechanism).fit(X, Y) for _ in range(2)]) == []
    assert told(lambda: [clone(mechanism).fit(X, Y) for _ in range(2)]) != []


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_a_selection_counts_once_and_its_rehearsals_not_even_for_a_moment(strategy, monkeypatch):
    from epsilearn import fit_counts

    counted: list[str] = []
    add = fit_counts._Account._add
    monkeypatch.setattr(fit_counts._Account, "_add", lambda self, *more: counted.append(self.name) or add(self, *more))
    PrivateSelection(model(), {"alpha": [0.1, 1.0]}, strategy=strategy, stop=0.3).fit(X, Y)
    assert counted == ["PrivateSelection"]


def test_told_before_anything_is_spent():
    """A filter that makes an error of the warning saves the second budget, and the count stays right."""
    first = model()
    clone(first).fit(X, Y)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RepeatedFitWarning)
            second = clone(first)
            with pytest.raises(RepeatedFitWarning, match="this is fit 2 "):
                second.fit(X, Y)
            assert not hasattr(second, "coef_")


def test_the_warning_points_to_the_users_own_line():
    first = model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(first, X, Y, cv=2)
    (warning,) = [w for w in caught if issubclass(w.category, RepeatedFitWarning)]
    assert warning.filename == __file__


def test_pickles_and_copies_are_clones_too():
    first = model()
    again = [pickle.loads(pickle.dumps(clone(first))), copy.deepcopy(clone(first)), copy.copy(clone(first))]
    assert len(told(lambda: [one.fit(X, Y) for one in again])) == 2


def test_threads_count_exactly(monkeypatch):
    from epsilearn import fit_counts

    numbers: list[int] = []
    monkeypatch.setattr(fit_counts, "_text", lambda name, fits, *_: numbers.append(fits) or str(fits))
    first = model()
    clone(first).fit(X, Y)

    def several():
        for _ in range(5):
            clone(first).fit(X, Y)

    threads = [threading.Thread(target=several) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(numbers) == list(range(2, 22))


def test_memory_stays_bounded(monkeypatch):
    from epsilearn import fit_counts

    monkeypatch.setattr(fit_counts, "_MOST_LINEAGES", 3)
    for _ in range(6):
        model().fit(X, Y)
    assert len(fit_counts._totals) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_during_a_count_does_not_hang():
    from epsilearn import fit_counts

    with fit_counts._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if fit_counts._lock.acquire(timeout=600) else 1)
    assert os.waitpid(child, 0)[1] == 0


# ---------------------------------------------------------------- with a ledger


@pytest.mark.parametrize("jobs", [None, 2])
def test_clones_share_one_ledger_and_every_fit_is_debited(jobs, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0)
    search = GridSearchCV(model(ledger=ledger), {"alpha": [0.1, 1.0]}, cv=2, n_jobs=jobs)
    assert told(lambda: search.fit(X, Y)) == []  # a ledger counts by itself
    history = ledger.history()
    assert len(history) == 5
    assert {(entry["status"], entry["purpose"]) for entry in history} == {("delivered", "LogisticRegression.fit")}
    assert ledger.balance().spent_epsilon == 2.5
    assert search.best_estimator_.guarantee_.ledger.dataset == "d"


def test_a_ledger_stops_a_search_that_costs_too_much(tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.2)
    search = GridSearchCV(model(ledger=ledger), {"alpha": [0.1, 1.0]}, cv=2, error_score="raise")
    with pytest.raises(BudgetExceeded):
        search.fit(X, Y)
    assert ledger.balance().spent_epsilon == 1.0


def test_a_clones_ledger_is_the_same_one(tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    twin = clone(clone(model(ledger=ledger)))
    assert twin.ledger is not ledger
    twin.fit(X, Y)
    assert ledger.balance().remaining_epsilon == twin.ledger.balance().remaining_epsilon == 0.5


def test_ensembles_that_seed_their_clones_are_told_of():
    with pytest.warns(PrivacyWarning, match="nothing is promised"):
        BaggingClassifier(model(), n_estimators=2, random_state=0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model(random_state=3)).fit(X, Y)
        PrivateSelection(model(), {"alpha": [0.1]}, random_state=3).fit(X, Y)
