"""Private classifiers: the right model, the noise of the theorems, labels of all kinds."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as Plain

from epsilearn import LinearSVC, LogisticRegression
from epsilearn.calibration.additive import gaussian_scale
from epsilearn.errors import InvalidInput
from epsilearn.losses import HuberisedHinge
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, minimise

# With so much budget next to nothing is left of the noise, and the model is the regularised minimiser.
LOUD = {"epsilon": 1e7, "data_norm": 2.0, "alpha": 0.01}


def blobs(n: int = 2000, classes: int = 3, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Easy data: classes apart, rows of norm up to about two."""
    generator = np.random.default_rng(seed)
    y = generator.integers(classes, size=n)
    return np.eye(max(d, classes))[y][:, :d] + 0.2 * generator.normal(size=(n, d)), y


def clipped(X: np.ndarray, norm: float, intercept: float) -> np.ndarray:
    short = X * np.minimum(1, norm / np.linalg.norm(X, axis=1, keepdims=True))
    return np.column_stack([short, np.full(len(X), intercept)]) if intercept else short


# ---------------------------------------------------------------- the right model


@pytest.mark.parametrize("method", ["objective", "output"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("classes", [2, 4])
def test_without_noise_it_is_scikit_learns_model_of_the_clipped_rows(method, intercept, classes):
    """The intercept a constant column, regularised like the others, as the objective says."""
    X, y = blobs(500, classes)
    X = 3 * X  # many rows beyond the bound
    model = LogisticRegression(method=method, fit_intercept=intercept, classes=range(classes), **LOUD).fit(X, y)
    constant = model._bounds_.intercept
    assert (constant > 0) == intercept
    Z = clipped(X, 2.0, constant)
    plain = Plain(C=1 / (500 * 0.01), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(Z, y)
    found = np.column_stack([model.coef_, model.intercept_ / constant]) if intercept else model.coef_
    np.testing.assert_allclose(found, plain.coef_, atol=2e-4 if method == "objective" else 2e-3)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(Z), atol=1e-3)
    assert model.coef_.shape == (1 if classes == 2 else classes, 4)
    assert model.intercept_.shape == (1 if classes == 2 else classes,)


def test_without_noise_the_machine_is_the_minimiser_of_its_hinge():
    X, y = blobs(300, 2)
    model = LinearSVC(width=0.3, classes=[0, 1], **LOUD).fit(X, y)
    constant = model._bounds_.intercept
    rows = as_rows(X, 2.0 * y - 1, Bounds(2.0, intercept=constant))
    expected = minimise(Problem(rows, HuberisedHinge(0.3), 0.01), 1e-10).coef
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_ / constant), expected, atol=2e-4)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_easy_data_is_learned_at_an_ordinary_budget(delta, classes):
    X, y = blobs(6000, classes, d=5)
    settings = {"epsilon": 1.0, "delta": delta, "data_norm": 2.0, "classes": range(classes), "random_state": 0}
    assert LogisticRegression(centre=False, **settings).fit(X, y).score(X, y) > 0.97
    # Centring rows that are centred already costs an eighth of the budget, and gains nothing.
    assert LogisticRegression(**settings).fit(X, y).score(X, y) > 0.96


def test_the_machine_learns_easy_data():
    X, y = blobs(6000, 2)
    assert LinearSVC(epsilon=1.0, data_norm=2.0, classes=[0, 1], random_state=0).fit(X, y).score(X, y) > 0.97


# ---------------------------------------------------------------- the theorems' noise


def row_norm(model) -> float:
    """R: the bound on the features and the intercept's column together."""
    return math.hypot(model.data_norm, model._bounds_.intercept)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_noise_of_objective_perturbation(intercept):
    """n alpha epsilon is large, so the rate is epsilon / (2 R); R counts the intercept, and 1 % is polish."""
    X, y = blobs(4000, 2)
    model = LogisticRegression(epsilon=0.5, data_norm=2.0, alpha=0.1, fit_intercept=intercept, classes=[0, 1]).fit(X, y)
    assert model.noise_.kind == "k-norm"
    assert model.noise_.dimension == 4 + intercept
    assert (row_norm(model) > 2.0) == intercept
    assert model.noise_.scale == pytest.approx(2 * row_norm(model) / (0.99 * 0.5), rel=1e-6)
    assert model.alpha_ == 0.1


@pytest.mark.parametrize("classes", [3, 10])
def test_the_noise_of_softmax(classes):
    """Pure: 2 sqrt(2) R / scale + (K - 1) log(1 + R**2 / (K n alpha)) = 0.99 epsilon; in (K - 1) d dimensions."""
    X, y = blobs(4000, classes, d=10)
    model = LogisticRegression(epsilon=0.5, data_norm=2.0, alpha=0.1, classes=range(classes)).fit(X, y)
    norm = row_norm(model)
    room = 0.99 * 0.5 - (classes - 1) * math.log1p(norm**2 / (classes * 4000 * 0.1))
    assert model.noise_.scale == pytest.approx(2 * math.sqrt(2) * norm / room, rel=1e-5)
    assert model.noise_.dimension == (classes - 1) * 11


def test_the_noise_of_output_perturbation():
    """As printed: 2 L R / (n alpha) and one per cent for the solver; tight needs less."""
    X, y = blobs(4000, 2)
    options = {"method": "output", "epsilon": 0.5, "data_norm": 2.0, "alpha": 0.1, "classes": [0, 1]}
    printed = LogisticRegression(calibration="paper", **options).fit(X, y)
    norm = row_norm(printed)
    assert printed.noise_.scale == pytest.approx(1.01 * 2 * norm / (4000 * 0.1) / 0.5, rel=1e-6)
    tight = LogisticRegression(**options).fit(X, y)
    assert 0.5 * printed.noise_.scale < tight.noise_.scale < 0.95 * printed.noise_.scale
    three = LogisticRegression(**{**options, "classes": [0, 1, 2]}).fit(X, y)
    assert three.noise_.scale == pytest.approx(math.sqrt(2) * printed.noise_.scale, rel=1e-5)
    normal = LogisticRegression(delta=1e-6, **{**options, "classes": [0, 1, 2]}).fit(X, y)
    sensitivity = 1.01 * 2 * math.sqrt(2) * norm / (4000 * 0.1)
    assert normal.noise_.scale == pytest.approx(gaussian_scale(sensitivity, 0.5, 1e-6), rel=1e-6)
    # What it adds up to with others: a Gaussian mechanism of that sensitivity, for all of a person's rows.
    for people in (1, 3):
        model = LogisticRegression(delta=1e-6, rows_per_person=people, **{**options, "classes": [0, 1, 2]}).fit(X, y)
        shift = model.guarantee_.curve.shift
        assert shift == pytest.approx(people * sensitivity / model.noise_.scale, rel=1e-6)
        assert shift >= people * sensitivity / model.noise_.scale * (1 - 1e-9)


def test_a_persons_rows_multiply_what_is_proven_of_the_papers_constants():
    """0.3 for a person with three rows is 0.1 a row; what is proven of that counts three times as well."""
    X, y = blobs(20, 2)
    options = {"alpha": 0.01, "data_norm": 1.0, "calibration": "paper", "classes": [0, 1]}
    one = LogisticRegression(epsilon=0.1, **options).fit(X, y)
    three = LogisticRegression(epsilon=0.3, rows_per_person=3, **options).fit(X, y)
    assert three.noise_.scale == pytest.approx(one.noise_.scale, rel=1e-9)
    assert three.guarantee_.epsilon == pytest.approx(3 * one.guarantee_.epsilon, rel=1e-6)
    assert three.guarantee_.claimed_epsilon == 0.3


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_the_papers_constants_come_with_what_is_proven(kind):
    X, y = blobs(20, 2)
    few = kind(epsilon=0.1, alpha=0.01, data_norm=1.0, calibration="paper", classes=[0, 1]).fit(X, y)
    assert few.guarantee_.claimed_epsilon == 0.1
    assert few.guarantee_.epsilon > 0.4
    assert "claimed: 0.1" in str(few.guarantee_)
    assert few.alpha_ == 0.01
    tight = kind(epsilon=0.1, alpha=0.01, data_norm=1.0, classes=[0, 1]).fit(X, y)
    assert tight.guarantee_.epsilon == 0.1
    assert tight.alpha_ > 0.01  # raised, and said so
    assert f"alpha used: {tight.alpha_:.6g}" in tight.guarantee_.assumptions
    with pytest.raises(InvalidInput, match="printed"):
        kind(delta=1e-6, calibration="paper", data_norm=1.0, classes=[0, 1]).fit(X, y)


def test_the_printed_softmax_is_not_proven_either():
    X, y = blobs(30, 3)
    model = LogisticRegression(epsilon=0.1, alpha=0.01, data_norm=1.0, calibration="paper", classes=range(3)).fit(X, y)
    assert model.guarantee_.claimed_epsilon == 0.1
    proven = 0.1 + 2 * math.log1p(row_norm(model) ** 2 / (3 * 30 * 0.01)) + 0.001  # and the polish
    assert model.guarantee_.epsilon == pytest.approx(proven, rel=1e-6)


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(["ill", "well"]), ["well", "ill"]),
        (np.array(["ill", "well"], object), ("ill", "well")),
        (np.array([False, True]), [False, True]),
        (np.array([-1, 1]), [1, -1]),
        (np.array([0.0, 1.0]), [0, 1]),
        (np.array([10**12, 5]), np.array([5, 10**12])),
    ],
)
@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_labels_of_all_kinds(kind, labels, classes):
    X, y = blobs(3000, 2)
    truth = np.sort(labels)[y]
    model = kind(epsilon=5.0, data_norm=2.0, classes=classes, random_state=0).fit(X, truth)
    assert model.classes_.tolist() == sorted(labels.tolist())
    assert model.score(X, truth) > 0.97
    assert np.mean(model.predict(X) == truth) == model.score(X, truth)
    assert "label set is public" not in model.guarantee_.assumptions
    np.testing.assert_array_equal(model.predict(X) == model.classes_[1], model.decision_function(X) > 0)


def test_labels_from_pandas():
    X, y = blobs(3000, 3)
    names = np.array(["a", "b", "c"])[y]
    for series in (pd.Series(names), pd.Series(names, dtype="category"), pd.Series(names, dtype="string[python]")):
        model = LogisticRegression(epsilon=5.0, data_norm=2.0, classes=list("cab"), random_state=0)
        assert model.fit(X, series).score(X, names) > 0.95
        assert model.classes_.tolist() == ["a", "b", "c"]


def test_labels_left_out_are_an_assumption():
    X, y = blobs(200, 3)
    given = LogisticRegression(data_norm=2.0, classes=range(3)).fit(X, y)
    read = LogisticRegression(data_norm=2.0).fit(X, y)
    assert set(read.guarantee_.assumptions) - set(given.guarantee_.assumptions) == {"label set is public"}
    np.testing.assert_array_equal(read.classes_, given.classes_)


def test_a_class_nobody_has_costs_no_error():
    """The label set is public, so a class that is absent from the rows, or even all but one, is no news."""
    X, y = blobs(500, 2)
    model = LogisticRegression(data_norm=2.0, classes=[0, 1, 2, 3]).fit(X, y)
    assert model.coef_.shape == (4, 4)
    assert model.predict_proba(X).shape == (500, 4)
    lonely = LogisticRegression(data_norm=2.0, classes=["no", "yes"], epsilon=5.0, random_state=0).fit(
        X, np.full(500, "no")
    )
    assert (lonely.predict(X) == "no").mean() > 0.9
    LinearSVC(data_norm=2.0, classes=[0, 1]).fit(X[:1], [1])


def test_the_order_of_the_classes_is_the_sorted_one():
    X, y = blobs(400, 3)
    models = [
        LogisticRegression(data_norm=2.0, classes=classes, random_state=3).fit(X, y).coef_
        for classes in ([0, 1, 2], [2, 0, 1], (1, 2, 0), np.arange(3), pd.Index([2, 1, 0]))
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])


def test_the_machine_refuses_three_classes_and_points_to_softmax():
    X, y = blobs(100, 3)
    for classes in (None, [0, 1, 2]):
        with pytest.raises(InvalidInput, match="Only binary classification is supported by LinearSVC, and there are 3"):
            LinearSVC(data_norm=1.0, classes=classes).fit(X, y)


# ---------------------------------------------------------------- predictions


@pytest.mark.parametrize("classes", [2, 3, 12])
def test_probabilities(classes):
    X, y = blobs(3000, classes, d=12)
    model = LogisticRegression(epsilon=3.0, data_norm=2.0, classes=range(classes), random_state=0).fit(X, y)
    shares = model.predict_proba(X)
    assert shares.shape == (3000, classes)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-12)
    assert (shares >= 0).all()
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], model.predict(X))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), shares, atol=1e-12)
    scores = model.decision_function(X)
    assert scores.shape == ((3000,) if classes == 2 else (3000, classes))
    if classes == 2:
        np.testing.assert_allclose(shares[:, 1], expit(scores), atol=1e-12)
    else:
        np.testing.assert_allclose(scores.sum(axis=1), 0, atol=1e-9)  # one direction is left out


def test_probabilities_of_scores_far_apart():
    X, y = blobs(200, 3)
    model = LogisticRegression(data_norm=2.0, classes=range(3)).fit(X, y)
    model.coef_ = model.coef_ * 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_sparse_and_dense_rows_are_predicted_alike(classes):
    X, y = blobs(500, classes)
    X = X * (np.abs(X) > 0.2)
    model = LogisticRegression(data_norm=1.0, classes=range(classes)).fit(sparse.csr_array(X), y)
    dense = model.decision_function(X)
    for make in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        np.testing.assert_allclose(model.decision_function(make(X)), dense, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_logarithms_of_probabilities_are_finite(classes):
    X, y = blobs(200, classes)
    model = LogisticRegression(data_norm=2.0, classes=range(classes)).fit(X, y)
    model.coef_ = model.coef_ * 1e6
    logs = model.predict_log_proba(X)
    assert logs.shape == (200, classes)
    assert np.isfinite(logs).all()
