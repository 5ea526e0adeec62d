"""Functions and sessions: what may be asked about private rows, and who refuses what may not."""

from __future__ import annotations

import functools
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from epsilearn import (
    AboveThreshold,
    BoundedScaler,
    ConvexERM,
    GaussianProcess,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    Lasso,
    Ledger,
    LogisticRegression,
    NonInteractiveLearner,
    PrivateSelection,
    RandomFeatures,
    SemiInteractiveLearner,
    private_score,
)
from epsilearn.errors import InvalidInput
from epsilearn.evaluation import record_scores
from epsilearn.kernel import RBF, Linear
from epsilearn.sessions import check_function, is_session

REFUSED = "may only be asked about public points"


def table(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 2)) / 4
    return X, np.where(X[:, 0] > 0, 1, -1)


def process(kernel=None, **options):
    return GaussianProcessRelease(kernel=kernel or RBF(0.5), classes=[-1, 1], alpha=0.1, **options)


def interactive(**options):
    return InteractiveLearner(**{"kernel": Linear(1.0), "alpha": 0.1, "questions": 1000, "classes": [-1, 1], **options})


SESSIONS = {
    "process": process(),
    "process of a finite map": process(Linear(1.0)),
    "process on landmarks": process(landmarks=np.eye(2)),
    "interactive": interactive(),
    "interactive as printed": interactive(calibration="paper", epsilon=5.0),
}
FUNCTIONS = {
    "logistic": LogisticRegression(data_norm=1.0, classes=[-1, 1]),
    "convex": ConvexERM(data_norm=1.0, classes=[-1, 1]),
    "landmarks": LandmarkClassifier(kernel=RBF(0.5), landmarks=np.eye(2), classes=[-1, 1]),
    "waves": RandomFeatures(kernel=RBF(0.5), n_features=10, classes=[-1, 1]),
    "semi": SemiInteractiveLearner(kernel=Linear(1.0), public_points=np.eye(2) / 2, alpha=0.1, classes=[-1, 1]),
    "non": NonInteractiveLearner(kernel=Linear(1.0), alpha=0.1, classes=[-1, 1]),
}


class Wrapped(ClassifierMixin, BaseEstimator):
    """Somebody's own model around another."""

    def __init__(self, inner=None):
        self._secret = {"kept": [inner]}

    def predict(self, X):
        return self._secret["kept"][0].predict(X)


class Slotted(ClassifierMixin):
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner

    def predict(self, X):
        return self.inner.predict(X)


def closed_over(model):
    return FunctionTransformer(lambda X: model.decision_function(X)[:, None])


NESTED = {
    "itself": lambda model: model,
    "pipeline": lambda model: make_pipeline(BoundedScaler(bounds=(-1, 1)), model),
    "search": lambda model: GridSearchCV(model, {"alpha": [0.1]}),
    "vote": lambda model: VotingClassifier([("a", FUNCTIONS["logistic"]), ("b", model)]),
    "selection": lambda model: PrivateSelection(model, {"alpha": [0.1]}),
    "union": lambda model: make_pipeline(FeatureUnion([("a", FunctionTransformer(model.predict))]), MODEL),
    "closure": lambda model: make_pipeline(closed_over(model), MODEL),
    "partial": lambda model: make_pipeline(FunctionTransformer(functools.partial(model.predict)), MODEL),
    "wrapper": Wrapped,
    "slots": Slotted,
}
MODEL = FUNCTIONS["logistic"]


@pytest.mark.parametrize("wrap", NESTED.values(), ids=NESTED)
def test_a_session_is_found_wherever_it_is(wrap):
    for session in SESSIONS.values():
        assert is_session(wrap(session))
        with pytest.raises(InvalidInput, match=REFUSED):
            check_function(wrap(session))
    for function in FUNCTIONS.values():
        assert not is_session(wrap(function))
        check_function(wrap(function))


def test_live_mechanisms_are_sessions():
    assert is_session(AboveThreshold(threshold=1.0, sensitivity=1.0, epsilon=1.0))
    assert is_session(GaussianProcess(lambda a, b: a @ b.T, sensitivity=1.0, epsilon=1.0, delta=1e-6, max_points=3))


def test_fitted_functions_and_odd_things_are_none():
    X, y = table()
    for function in FUNCTIONS.values():
        assert not is_session(function.fit(X, y))
    assert not is_session(RandomForestClassifier(20).fit(X, y))
    assert not is_session(Lasso(feature_bound=1.0, target_bound=1.0).fit(X, X[:, 0]))
    loop: list = []
    loop.append(loop)
    for odd in (None, 3, "text", loop, np.array([None, loop], object), math, int, pd.DataFrame(X), lambda: X):
        assert not is_session(odd)


class Watched(np.ndarray):
    """An array that notes that somebody looked at it."""

    looks = 0

    def __array_finalize__(self, other):
        Watched.looks += 1


@pytest.mark.parametrize("name", SESSIONS)
def test_scores_of_sessions_are_refused_before_anything_is_read_or_debited(name, tmp_path):
    """The next answers, and how many points are left, are the same as if nobody had tried."""
    X, y = table()
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0)
    session = SESSIONS[name].fit(X, y)
    left = getattr(session, "points_left_", None)
    test = np.zeros((10, 2)).view(Watched)
    Watched.looks = 0
    for model in (session, make_pipeline(BoundedScaler(bounds=(-1, 1)).fit(X), session), Wrapped(session)):
        with pytest.raises(InvalidInput, match=REFUSED):
            private_score(model, test, np.ones(10), epsilon=0.1, ledger=ledger)
    assert ledger.history() == []
    assert Watched.looks == 0
    assert getattr(session, "points_left_", None) == left
    if isinstance(session, InteractiveLearner):
        (answer,) = session.ask(np.zeros((1, 2)))
        assert answer.questions_left == session.questions - 1


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
@pytest.mark.parametrize("name", SESSIONS)
def test_selections_of_sessions_are_refused(name, strategy, tmp_path):
    """Whether the estimator is one, or the grid swaps one in; no table is there to be read."""
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0, delta=1e-3)
    session, options = SESSIONS[name], {"strategy": strategy, "ledger": ledger}
    pipeline = make_pipeline(BoundedScaler(bounds=(-1, 1)), MODEL)
    for estimator, grid in (
        (session, {"alpha": [0.1, 0.2]}),
        (pipeline, {"logisticregression": [MODEL, session]}),
        (make_pipeline(BoundedScaler(bounds=(-1, 1)), session), [{}]),
    ):
        with pytest.raises(InvalidInput, match=REFUSED):
            PrivateSelection(estimator, grid, **options).fit(None, None)
    assert ledger.history() == []


def test_a_long_row_decides_nothing():
    """One row that is long, or whose squares overflow, among the test rows: the same outcome, in silence."""
    X, y = table()
    for function in FUNCTIONS.values():
        model = function.fit(X, y)
        for length in (0.5, 2.0, 1e200, 1e-320):
            test = np.zeros((10, 2))
            test[0, 0] = length
            with np.errstate(all="raise"):
                scores, bounds = record_scores(model, test, np.ones(10))
            assert scores.shape == (10,)
            assert bounds == (0.0, 1.0)


class Fussy(ClassifierMixin, BaseEstimator):
    """Somebody's own model, which does not like some rows."""

    def __init__(self, mood="raise"):
        self.mood = mood

    def predict(self, X):
        X = np.asarray(X)
        if (X > 1).any():
            if self.mood == "raise":
                raise RuntimeError(f"cannot predict {X.max()}")
            if self.mood == "warn":
                import warnings

                warnings.warn(f"odd row {X.max()}", stacklevel=1)
            np.log(-X)
        return np.ones(len(X))


def test_a_model_that_fails_on_a_row_quotes_nothing(tmp_path, recwarn):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0)
    rows = np.zeros((4, 1))
    rows[2] = 48151.625
    # The row that it fails on counts as wrong; that there is a score does not depend on it.
    assert private_score(Fussy(), rows, np.ones(4), epsilon=1000.0).value == pytest.approx(0.75, abs=0.02)
    assert private_score(Fussy(), rows, np.ones(4), ledger=ledger).guarantee.epsilon == 1.0
    assert len(ledger.history()) == 1
    with np.errstate(all="warn"):
        assert private_score(Fussy("warn"), rows, np.ones(4), epsilon=100.0).value > 0.5
        assert private_score(Fussy("numpy"), rows, np.ones(4), epsilon=100.0).value > 0.5
    assert [warning for warning in recwarn if "odd row" in str(warning.message)] == []
    assert [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)] == []


def test_wrong_columns_are_told_in_words_that_help():
    X, y = table()
    plain = RandomForestClassifier(2).fit(X, y)
    with pytest.raises(InvalidInput, match="X has 3 columns, and the model was fitted to 2"):
        private_score(plain, np.zeros((4, 3)), np.ones(4))


def _behind(session, how):
    """A classifier that asks a session where no look at its attributes can see it."""

    class Behind(ClassifierMixin, BaseEstimator):
        classes_ = np.array([-1, 1])

        def fit(self, X, y):
            return self

        def predict(self, X):
            return how(self).predict(X)

        def spend(self):
            """As ledgers have it, into which nobody looks."""

    Behind.session = session
    return Behind()


_GLOBAL = {}


@pytest.mark.parametrize("how", [lambda model: type(model).session, lambda model: _GLOBAL["session"]])
def test_a_session_that_cannot_be_seen_refuses_by_itself(how):
    X, y = table()
    session = GaussianProcessRelease(kernel=RBF(1.0), classes=[-1, 1]).fit(X, y)
    _GLOBAL["session"] = session
    model, left = _behind(session, how), session.points_left_
    check_function(model)
    with pytest.raises(InvalidInput, match=REFUSED):
        private_score(model, X[:20], y[:20])
    assert session.points_left_ == left
    model.predict(X[:3])  # which nobody said to be private
    assert session.points_left_ == left - 3
