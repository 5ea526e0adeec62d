"""A test score is a release: its value, its noise, and what a record can do to it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.cluster import KMeans
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression as PlainRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from epsilearn import Guarantee, Ledger, LogisticRegression, private_score
from epsilearn.errors import BudgetExceeded, InvalidInput
from epsilearn.evaluation import record_scores


class Says(ClassifierMixin, BaseEstimator):
    """A classifier that says what its first column says."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]


class Guesses(RegressorMixin, BaseEstimator):
    """A regressor that guesses what its first column says."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.asarray(X, float)[:, 0]


def column(values) -> np.ndarray:
    return np.asarray(values)[:, None]


# ---------------------------------------------------------------- each record's score


def test_a_classifiers_records_are_right_or_wrong():
    scores, bounds = record_scores(Says(), column([1, 2, 3, 1]), [1, 2, 2, 2])
    assert scores.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert bounds == (0.0, 1.0)
    scores, _ = record_scores(Says(), column(["a", "b"]), pd.Series(["a", "a"]))
    assert scores.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("bound", [2.0, (-2.0, 2.0), np.float32(2.0), [-2, 2]])
def test_a_regressors_records_have_clipped_errors(bound):
    predicted = column([0.0, 1.0, 1e300, -math.inf, 5.0, -1e9])
    truth = [1.0, -1.0, 0.0, 2.0, 7.0, 1e9]
    scores, (low, high) = record_scores(Guesses(), predicted, truth, bound)
    assert scores.tolist() == [1.0, 4.0, 4.0, 16.0, 0.0, 16.0]
    assert (low, high) == (0.0, 16.0)


def test_no_prediction_and_no_target_leads_outside_the_range():
    generator = np.random.default_rng(0)
    for low, high in ((-1.0, 1.0), (0.1, 0.3), (-1e-5, 1e7), (1e10, 1e10 + 1)):
        wild = np.concatenate(
            [generator.normal(size=500) * 10.0 ** generator.integers(-300, 300, 500), [math.inf, low]]
        )
        truth = np.where(np.isinf(wild), high, generator.permutation(wild))
        truth = np.nan_to_num(truth, posinf=1e300, neginf=-1e300)
        scores, (least, most) = record_scores(Guesses(), column(wild), truth, (low, high))
        assert least == 0.0
        assert (scores >= 0).all()
        assert scores.max() <= most * (1 + 1e-15)


def test_a_prediction_that_is_no_number_is_the_worst():
    scores, (_, worst) = record_scores(Guesses(), column([math.nan] * 3), [1.0, 0.0, -1.0], 1.0)
    assert scores.tolist() == [worst] * 3


# ---------------------------------------------------------------- the release


def test_accuracy_and_its_noise():
    """One record moves the accuracy by 1/n: Laplace noise of 1 / (n epsilon). Seeded."""
    y = np.arange(400) % 4 > 0
    model = DummyClassifier().fit(column(y), y)
    runs = [private_score(model, column(y), y, epsilon=0.5, random_state=s) for s in range(1500)]
    assert runs[0].noise.scale == pytest.approx(1 / (400 * 0.5), rel=1e-9)
    values = np.array([r.value for r in runs]) - 0.75
    assert stats.kstest(values, stats.laplace(scale=1 / 200).cdf).pvalue > 1e-3
    for off in (0.75, 1.33):
        assert stats.kstest(values, stats.laplace(scale=off / 200).cdf).pvalue < 1e-3


def test_mean_squared_error_and_its_noise():
    y = np.linspace(-1, 1, 500)
    model = DummyRegressor(strategy="constant", constant=0.0).fit(column(y), y)
    release = private_score(model, column(y), y, epsilon=2.0, target_bound=(-1.0, 3.0))
    assert release.noise.scale == pytest.approx(16 / (500 * 2.0), rel=1e-9)
    runs = [private_score(model, column(y), y, epsilon=2.0, target_bound=1.0, random_state=s).value for s in range(200)]
    assert np.mean(runs) == pytest.approx(np.mean(y**2), abs=5 * 4 / 1000 / math.sqrt(100))


@pytest.mark.parametrize(("model", "bound"), [(Says(), None), (Guesses(), 1.0)])
def test_neighbours_differ_by_no_more_than_the_noise_hides(model, bound):
    """One seed, one noise: the difference of two releases is the difference of the true scores."""
    n, epsilon, worst = 50, 3.0, 0.0
    X, y = column(np.full(n, 1.0)), np.tile([1.0, -1.0], 25)
    options = {"epsilon": epsilon, "target_bound": bound, "random_state": 1}
    first = private_score(model, X, y, **options)
    for predicted in (1.0, -1.0, 1e300):
        for target in (1.0, -1.0, -1e300, 0.3):
            other_X, other_y = X.copy(), y.copy()
            other_X[0], other_y[0] = predicted, target
            worst = max(worst, abs(private_score(model, other_X, other_y, **options).value - first.value))
    assert 0.99 * first.noise.scale * epsilon < worst <= first.noise.scale * epsilon * (1 + 1e-6)


def test_a_released_score_lies_where_scores_can():
    y = np.ones(2)
    model = DummyClassifier().fit(column(y), y)
    values = [private_score(model, column(y), y, epsilon=0.1, random_state=s).value for s in range(50)]
    assert set(values) & {0.0, 1.0}
    assert min(values) == 0.0
    assert max(values) == 1.0
    assert any(0 < v < 1 for v in values)
    regressor = DummyRegressor().fit(column(y), y)
    values = [
        private_score(regressor, column(y), y, epsilon=0.1, target_bound=2.0, random_state=s).value for s in range(50)
    ]
    assert min(values) == 0.0
    assert max(values) == 16.0


def test_what_is_promised(tmp_path):
    y = np.arange(100) % 2
    model = DummyClassifier().fit(column(y), y)
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0, rows_per_person=3)
    release = private_score(model, column(y), y, epsilon=0.6, rows_per_person=3, ledger=ledger)
    assert release.guarantee.epsilon == 0.6
    assert release.guarantee.rows_per_person == 3
    assert release.noise.scale == pytest.approx(3 / (100 * 0.6), rel=1e-9)
    assert Guarantee.from_json(release.guarantee.to_json()) == release.guarantee
    assert ledger.history()[0]["purpose"] == "private_score"
    with pytest.raises(BudgetExceeded):
        private_score(model, column(y), y, epsilon=0.6, rows_per_person=3, ledger=ledger)
    assert len(ledger.history()) == 1
    seeded = private_score(model, column(y), y, random_state=0)
    assert seeded.guarantee.epsilon == math.inf
    with pytest.raises(BudgetExceeded):
        private_score(model, column(y), y, epsilon=0.1, rows_per_person=3, ledger=ledger, random_state=0)


def test_any_fitted_model_will_do():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 2)) / 2
    y = np.where(X[:, 0] > 0, "up", "down")
    private = LogisticRegression(epsilon=5.0, data_norm=1.5, classes=["down", "up"], random_state=0).fit(X, y)
    assert private_score(private, X, y, epsilon=50.0).value > 0.9
    assert private_score(private, sparse.csr_array(X), y, epsilon=50.0).value > 0.9
    pipeline = make_pipeline(StandardScaler(), PlainRegression()).fit(X, X[:, 0])
    assert private_score(pipeline, X, X[:, 0], epsilon=50.0, target_bound=2.0).value < 0.05
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert private_score(private, frame.to_numpy(), list(y), epsilon=50.0).value > 0.9


# ---------------------------------------------------------------- what is refused costs nothing

SECRET = 48151.625


@pytest.mark.parametrize(
    ("model", "X", "y", "options"),
    [
        (KMeans(), column([1.0, 2.0]), [1, 2], {}),
        (Guesses(), column([1.0, 2.0]), [SECRET, 2.0], {}),
        (Guesses(), column([1.0, 2.0]), [SECRET, math.nan], {"target_bound": 1.0}),
        (Guesses(), column([1.0, 2.0]), [SECRET, math.inf], {"target_bound": 1.0}),
        (Guesses(), column([1.0, 2.0]), [SECRET, 2.0], {"target_bound": 0.0}),
        (Guesses(), column([1.0, 2.0]), [SECRET, 2.0], {"target_bound": (1.0, 1.0)}),
        (Guesses(), column([1.0, 2.0]), [SECRET, 2.0], {"target_bound": 1e-200}),
        (Says(), column([1.0, 2.0]), [SECRET, 2.0, 3.0], {}),
        (Says(), column([1.0, 2.0]), [[SECRET, 2.0], [3.0, 4.0]], {}),
        (Says(), column([1.0, 2.0]), [SECRET, 2.0], {"epsilon": 0.0}),
        (Says(), column([1.0, 2.0]), [SECRET, 2.0], {"rows_per_person": 0}),
        (Says(), column([1.0, 2.0]), [SECRET, 2.0], {"epsilon": math.inf}),
        (Says(), np.zeros((0, 1)), [], {}),
    ],
)
def test_what_is_refused_costs_nothing_and_is_not_quoted(model, X, y, options, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=10.0)
    with pytest.raises((InvalidInput, ValueError)) as caught:
        private_score(model, X, y, ledger=ledger, **options)
    assert str(SECRET) not in str(caught.value)
    assert ledger.history() == []


@pytest.mark.parametrize(("y", "bound"), [([1.0, 2.0], 1e200), (["Miller", "2"], 1.0)])
def test_odd_numbers_and_texts_are_refused_in_our_own_words(y, bound):
    with pytest.raises(InvalidInput) as caught:
        private_score(Guesses(), column([1.0, 2.0]), y, target_bound=bound)
    assert "Miller" not in str(caught.value)


def test_predictions_in_a_column_are_read_as_a_vector():
    class Column(Guesses):
        def predict(self, X):
            return np.asarray(X, float)

    scores, _ = record_scores(Column(), column([0.0, 1.0, 2.0]), [0.0, 0.0, 0.0], 5.0)
    assert scores.tolist() == [0.0, 1.0, 4.0]


def test_a_row_that_one_of_our_models_fails_on_counts_as_wrong():
    # A step before it can make anything of a record, and whether there is an answer would tell of that.
    X = np.abs(np.random.default_rng(0).normal(size=(400, 1)))
    y = X[:, 0] > 0.5
    model = make_pipeline(FunctionTransformer(np.log1p), LogisticRegression(data_norm=3.0, classes=[False, True]))
    model.fit(X, y)
    before, _ = record_scores(model, X, y)
    X[0] = -1.0
    after, _ = record_scores(model, X, y)
    assert after[0] == 0
    np.testing.assert_array_equal(before[1:], after[1:])


@pytest.mark.parametrize(
    "X",
    [np.zeros((10, 3)), [[0.0, 0.0, 0.0]] * 10, pd.DataFrame({"b": np.zeros(10), "a": np.zeros(10)})],
    ids=["array", "list", "names"],
)
def test_what_no_row_can_mend_is_an_error_before_anything_is_spent(tmp_path, X):
    ledger = Ledger.create(tmp_path / "ledger.db", dataset="table", epsilon=1.0)
    frame = pd.DataFrame({"a": np.zeros(40), "b": np.ones(40)})
    model = LogisticRegression(data_norm=1.0, classes=[0, 1]).fit(frame, np.arange(40) % 2)
    with pytest.raises(InvalidInput, match="columns"):
        private_score(model, X, np.zeros(10, int), ledger=ledger)
    assert ledger.balance().spent_epsilon == 0


def test_labels_that_cannot_be_compared_count_as_wrong():
    y = np.array([0, 1, 0, 1], object)
    y[1] = np.array([1, 2])
    assert record_scores(Says(), column([0, 1, 0, 1]), y)[0].tolist() == [1, 0, 1, 1]
