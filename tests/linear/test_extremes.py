"""Records at the ends of the doubles, and settings beyond reason: neither may warn, fail or hang."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

from epsilearn import ConvexERM, Lasso, LinearRegression, LinearSVC, LogisticRegression, PrivateSelection
from epsilearn.errors import InvalidInput
from epsilearn.losses import Huber

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2
GIANTS = np.array([[1.7e308], [1.7e308], [-1.7e308], [-1.7e308]])
CLASSES = {"data_norm": 1.0, "classes": [0, 1]}
TARGETS = {"data_norm": 1.0, "target_bound": 1.0}


@pytest.fixture(autouse=True)
def loud():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("kind", [np.array, np.asfortranarray, sparse.csr_array])
def test_giant_records_do_not_warn(kind):
    model = LogisticRegression(**CLASSES).fit(kind(GIANTS), [0, 1, 0, 1])
    assert len(model.predict(kind(GIANTS))) == 4
    LinearRegression(**TARGETS).fit(kind(GIANTS), GIANTS[:, 0])


def test_tiny_rows_are_not_scaled_by_infinity():
    model = Lasso(feature_bound=1.0, target_bound=1.0, data_norm=1e12, delta=1e-6).fit(X, Y)
    assert np.isfinite(model.predict(np.full((1, 3), 5e-324))).all()


@pytest.mark.parametrize("labels", [np.where(Y, 1.0, 0.5), np.ones(20)])
def test_any_number_in_the_label_set_is_a_label(labels):
    LogisticRegression(data_norm=1.0, classes=[0.5, 1.0]).fit(X, labels)


@pytest.mark.parametrize("labels", [np.array(["a", 1], dtype=object), [None, 1], [0.5, 1.0]])
def test_labels_outside_the_set_are_all_refused_alike(labels):
    with pytest.raises(InvalidInput, match="not in classes"):
        LogisticRegression(**CLASSES).fit(X[:2], labels)


@pytest.mark.parametrize("labels", [np.linspace(0.1, 0.123456, 20), np.array(["a", 1] * 10, dtype=object)])
def test_what_are_no_labels_is_refused_without_a_value(labels):
    with pytest.raises(InvalidInput, match="Unknown label type") as caught:
        LogisticRegression(data_norm=1.0).fit(X, labels)
    assert "0.123456" not in str(caught.value)


@pytest.mark.parametrize("model", [Lasso(feature_bound=1.0, target_bound=1.0), LinearRegression(**TARGETS)])
@pytest.mark.parametrize("target", [None, 10**400])
def test_targets_that_are_no_doubles(model, target):
    with pytest.raises(InvalidInput, match=r"NaN|beyond the doubles"):
        model.fit(X[:3], [target, 0.5, 0.5])


def test_masked_values_are_not_read():
    with pytest.raises(InvalidInput, match="masked"):
        LogisticRegression(**CLASSES).fit(np.ma.array(X, mask=X > 0), Y)


def test_duplicates_that_add_up_beyond_the_doubles():
    table = sparse.csr_array(
        (np.array([1.7e308, 1.7e308, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2)
    )
    with pytest.raises(InvalidInput, match="infinite"):
        LogisticRegression(**CLASSES).fit(table, [0, 1])


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_predictions_with_large_coefficients_are_finite(kind):
    model = LinearRegression(method="sufficient-statistics", data_norm=1.0, target_bound=1e100).fit(kind(X), Y)
    assert np.isfinite(model.predict(kind(np.repeat(GIANTS, 3, axis=1)))).all()


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(**TARGETS, epsilon=1e16),
        ConvexERM(loss=Huber(0.5, 1.0), data_norm=1.0, epsilon=1e14),
        ConvexERM(loss=Huber(0.5, 1.0), data_norm=1.0, epsilon=1e15),
    ],
)
@pytest.mark.parametrize("rows", [X, 1e-8 * X])
def test_the_automatic_alpha_can_always_be_solved(model, rows):
    model.fit(rows, np.full(20, 1e300))


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(**CLASSES, epsilon=1.7e308),
        LogisticRegression(**CLASSES, epsilon=5e-324, alpha=1.0),
        LogisticRegression(**CLASSES, epsilon=1e300, delta=1e-6),
        LogisticRegression(**CLASSES, rows_per_person=10**310),
        LogisticRegression(**CLASSES, rows_per_person=10**200, method="output"),
        LogisticRegression(**CLASSES, alpha=5e-324),
        LogisticRegression(data_norm=1e-100, classes=[0, 1], epsilon=1e-30),
        ConvexERM(loss=Huber(0.5, 1.0), data_norm=1e-100, delta=0.999),
        LinearSVC(**CLASSES, width=5e-324),
        LinearRegression(**TARGETS, threshold=5e-324),
        LinearRegression(**TARGETS, threshold=1.7e308),
        LinearRegression(data_norm=1.0, target_bound=1e300, method="output"),
        LinearRegression(data_norm=1.0, target_bound=(0.0, 5e-324), method="sufficient-statistics"),
        LinearRegression(data_norm=1.0, target_bound=(1e300, 1.1e300), method="sufficient-statistics"),
        PrivateSelection(LogisticRegression(**CLASSES), {"alpha": [0.1, 1.0]}, rows_per_person=10**200),
    ],
)
def test_settings_beyond_reason_are_refused(model):
    with pytest.raises(InvalidInput, match=r"must lie|beyond the doubles|must be a finite number"):
        model.fit(X, Y)


@pytest.mark.parametrize("delta", [0.999, 0.9999, 1 - 2.0**-53])
def test_deltas_close_to_one_are_proven(delta):
    assert Lasso(feature_bound=1.0, target_bound=1.0, delta=delta).fit(X, Y).guarantee_.delta == delta


def test_a_failed_selection_keeps_no_earlier_model():
    model = PrivateSelection(LogisticRegression(**CLASSES), {"alpha": [1.0]}).fit(X, Y)
    with pytest.raises(InvalidInput, match="does not have"):
        model.set_params(grid={"strength": [1.0]}).fit(X, Y)
    assert not hasattr(model, "best_estimator_")
