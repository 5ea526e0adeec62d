"""Landmarks and random features: private linear models over them, and nothing more than that."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from epsilearn import LinearRegression, LinearSVC, LogisticRegression
from epsilearn.errors import InvalidInput, PrivacyWarning
from epsilearn.kernel import (
    RBF,
    LandmarkClassifier,
    LandmarkRegressor,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    RandomFeatures,
    UserKernel,
)
from epsilearn.kernel.features import Fourier, Landmarks

Z = np.random.default_rng(1).normal(size=(12, 2))
PLAIN = {"rank": None, "whitening": 0.0}


def table(classes: int = 2, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + 0.2 * generator.normal(size=n), [[0.0], [-0.5, 0.5]][classes - 2])


def targets(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X, _ = table(n=n)
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1]


# ---------------------------------------------------------------- the linear model over hand-made features

WAYS = [
    {},
    {"delta": 1e-6},
    {"method": "output"},
    {"method": "output", "delta": 1e-6, "epsilon": 3.0},
    {"alpha": 0.05, "rows_per_person": 2},
]
every_way = pytest.mark.parametrize("options", WAYS, ids=str)


def as_given(model, X, settings) -> dict[str, Any]:
    """Settings with the regularisation that a model on features chooses: linear models choose by rules of their own."""
    return {"alpha": model.plan(rows=len(X), features=X.shape[1]).strength, **settings}


def check_same(model: Any, linear: Any, psi: Any, X: Any, y: Any) -> None:
    """The same seeded bits, the same problem: the same weights, to the last bit."""
    model.fit(X, y)
    linear.fit(psi, y)
    np.testing.assert_array_equal(np.atleast_2d(model.coef_), np.atleast_2d(linear.coef_))
    assert model.noise_ == linear.noise_
    assert model.alpha_ == linear.alpha_
    scores = getattr(linear, "decision_function", linear.predict)(psi)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-5)


@every_way
@pytest.mark.parametrize("whitening", [0.0, 0.8])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_landmark_classifier_is_logistic_regression_on_projections(options, whitening, classes):
    X, y = table(classes)
    own = Landmarks(RBF(0.5), Z, 6, whitening)
    settings = {"classes": list(range(classes)), "random_state": 3, **options}
    model = LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, rank=6, whitening=whitening, **settings)
    linear = LogisticRegression(data_norm=own.bound, fit_intercept=False, **as_given(model, X, settings))
    check_same(model, linear, own.table(X), X, y)
    assert model.coef_.shape == (1 if classes == 2 else 3, 6)


@every_way
def test_with_the_hinge_it_is_a_support_vector_machine(options):
    X, y = table()
    settings = {"classes": [0, 1], "random_state": 3, **options}
    model = LandmarkClassifier(kernel=Laplacian(0.5), landmarks=Z, loss="hinge", **PLAIN, **settings)
    linear = LinearSVC(data_norm=1.0, fit_intercept=False, **as_given(model, X, settings))
    check_same(model, linear, Landmarks(Laplacian(0.5), Z).table(X), X, y)


@pytest.mark.parametrize("options", [{}, {"delta": 1e-6}, {"alpha": 0.05, "rows_per_person": 2}], ids=str)
def test_a_landmark_regressor_is_linear_regression_on_projections(options):
    X, y = targets()
    settings = {"target_bound": (-1.0, 2.0), "random_state": 3, **options}
    model = LandmarkRegressor(kernel=Polynomial(2, 1.0, 4.0), landmarks=Z, **PLAIN, **settings)
    linear = LinearRegression(data_norm=Polynomial(2, 1.0, 4.0).bound, fit_intercept=False, **settings)
    inside, _ = model.kernel.inside(X)
    check_same(model, linear, Landmarks(model.kernel, Z).table(inside), X, y)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X))


@pytest.mark.parametrize("kernel", [RBF(0.5), Laplacian(0.5)], ids=repr)
@pytest.mark.parametrize("loss", ["logistic", "hinge", "huber"])
def test_random_features_are_linear_models_over_cosines(kernel, loss):
    X, y = targets() if loss == "huber" else table()
    psi = Fourier(kernel, 2, 30, seed=7).table(X)
    settings = {"random_state": 3, **({"target_bound": 1.0} if loss == "huber" else {"classes": [0, 1]})}
    kind = {"logistic": LogisticRegression, "hinge": LinearSVC, "huber": LinearRegression}[loss]
    model = RandomFeatures(kernel=kernel, n_features=30, feature_seed=7, loss=loss, **settings)
    linear = kind(data_norm=1.0 + 1e-12, fit_intercept=False, **as_given(model, X, settings))
    check_same(model, linear, psi, X, y)
    other = RandomFeatures(kernel=kernel, n_features=30, feature_seed=8, loss=loss, **settings).fit(X, y)
    assert not np.allclose(other.coef_, model.coef_)


def dot(a: Any, b: Any) -> float:
    return float(np.dot(a, b))


@pytest.mark.parametrize("form", ["rows", "function", "precomputed"])
def test_records_are_learned_from_as_they_will_be_judged(form, monkeypatch):
    """Also those beyond the bound: training sees the features whose product with the weights is the score."""
    X, y = table(n=60)
    X = np.column_stack([X, 3 * X[:, 0]])  # the landmarks see only a part of each point
    public = np.eye(3)[:2]
    if form == "rows":
        kernel, private, landmarks = Linear(1.0), X, public
    elif form == "function":
        kernel, private, landmarks = UserKernel(dot, 1.0), list(X), list(public)
    else:
        together = np.vstack([X, public])
        kernel, private, landmarks = Precomputed(together @ together.T, 1.0), np.arange(60), [60, 61]
    seen = []
    own = LandmarkClassifier._fit_weights

    def watched(self, features, *rest):
        seen.append(np.asarray(features, np.float64))
        return own(self, features, *rest)

    monkeypatch.setattr(LandmarkClassifier, "_fit_weights", watched)
    model = LandmarkClassifier(kernel=kernel, landmarks=landmarks, classes=[0, 1], **PLAIN).fit(private, y)
    (psi,) = seen
    psi = psi * np.minimum(1.0, 1.0 / np.linalg.norm(psi, axis=1))[:, None]
    np.testing.assert_allclose(psi @ model.coef_[0], model.decision_function(private), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- classes and probabilities


def test_three_classes_have_probabilities_that_sum_to_one():
    X, y = table(3, n=2000)
    model = LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, epsilon=20.0, classes=[0, 1, 2], random_state=0).fit(X, y)
    shares = model.predict_proba(X)
    assert shares.shape == (2000, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(shares, softmax(model.decision_function(X), axis=1))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), shares, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), shares.argmax(axis=1))
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-6)  # one class's weights follow from the others'
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("kind", [LandmarkClassifier, RandomFeatures])
def test_two_classes_have_probabilities_by_the_logistic_loss_only(kind):
    X, y = table()
    public = {"landmarks": Z} if kind is LandmarkClassifier else {"n_features": 20}
    model = kind(kernel=RBF(0.5), classes=[0, 1], **public).fit(X, y)
    second = expit(model.decision_function(X))
    np.testing.assert_allclose(model.predict_proba(X), np.column_stack([1 - second, second]))
    for name in ("predict_proba", "predict_log_proba"):
        assert hasattr(model, name)
        assert not hasattr(kind(loss="hinge", **public), name)
    assert not hasattr(RandomFeatures(loss="huber"), "predict_proba")
    assert not hasattr(LandmarkRegressor(), "predict_proba")


def test_labels_of_any_kind_come_back():
    X, y = table(3)
    names = np.array(["well", "ill", "unknown"])[y]
    model = LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, classes=["well", "ill", "unknown"]).fit(X, names)
    assert model.classes_.tolist() == ["ill", "unknown", "well"]
    assert set(model.predict(X)) <= set(names)


def test_the_hinge_and_the_regressor_refuse_what_is_not_theirs():
    X, y = table(3)
    with pytest.raises(InvalidInput, match="Only binary"):
        LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, loss="hinge").fit(X, y)
    with pytest.raises(InvalidInput, match="LandmarkRegressor"):
        LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, loss="huber").fit(*targets())
    with pytest.raises(InvalidInput, match="loss must be one of"):
        RandomFeatures(loss="squared").fit(X, y)
    with pytest.raises(InvalidInput, match="landmarks="):
        LandmarkRegressor(target_bound=1.0).fit(*targets())
    with pytest.raises(InvalidInput, match="RBF or Laplacian"):
        RandomFeatures(kernel=Linear(1.0)).fit(*table())
    with pytest.raises(InvalidInput, match="rank"):
        LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, rank="best").fit(*table())
    with pytest.raises(InvalidInput, match="whitening"):
        LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, whitening=2.0).fit(*table())


# ---------------------------------------------------------------- rank


def test_a_larger_budget_affords_more_directions():
    X, y = table()
    many = np.random.default_rng(2).normal(size=(80, 2))
    ranks = [
        LandmarkClassifier(kernel=RBF(0.5), landmarks=many, epsilon=e, classes=[0, 1]).fit(X, y).coef_.shape[1]
        for e in (0.01, 1.0, 100.0)
    ]
    assert 1 <= ranks[0] < ranks[1] < ranks[2] <= 80
    all_of_them = LandmarkClassifier(kernel=RBF(0.5), landmarks=many, classes=[0, 1], **PLAIN).fit(X, y)
    assert all_of_them.coef_.shape[1] == Landmarks(RBF(0.5), many).columns
    # The number comes from public numbers alone: other records, the same number.
    again = LandmarkClassifier(kernel=RBF(0.5), landmarks=many, epsilon=1.0, classes=[0, 1]).fit(100 * X, 1 - y)
    assert again.coef_.shape[1] == ranks[1]


# ---------------------------------------------------------------- tables and promises


@pytest.mark.parametrize(
    "model",
    [
        LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, classes=[0, 1], random_state=5),
        LandmarkClassifier(kernel=Polynomial(2, 1.0, 4.0), landmarks=Z, classes=[0, 1], random_state=5),
        RandomFeatures(kernel=RBF(0.5), n_features=20, classes=[0, 1], random_state=5),
        RandomFeatures(kernel=Laplacian(0.5), n_features=20, classes=[0, 1], random_state=5),
    ],
    ids=lambda model: f"{type(model).__name__}, {type(model.kernel).__name__}",
)
def test_sparse_and_single_precision_rows_are_the_same_rows(model, monkeypatch):
    X, y = table()
    X = np.where(np.abs(X) < 0.2, 0.0, X).astype(np.float32).astype(np.float64)
    seen = []
    own = type(model)._fit_weights
    monkeypatch.setattr(type(model), "_fit_weights", lambda self, psi, *rest: seen.append(psi) or own(self, psi, *rest))
    expected = clone(model).fit(X, y)
    for form in (sparse.csr_array, sparse.csc_matrix, np.float32, np.asfortranarray):
        found = clone(model).fit(form(X), y)
        np.testing.assert_allclose(seen[-1], seen[0], atol=1e-6)
        assert seen[-1].dtype == np.float32  # half the memory: rows are what they say
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0.05, atol=0.05 * np.abs(expected.coef_).max())
        np.testing.assert_allclose(expected.decision_function(form(X)), expected.decision_function(X), atol=1e-5)


def test_the_guarantee_states_the_bound_on_features():
    X, y = table()
    promises = {
        "norm of at most 17;": LandmarkClassifier(kernel=Polynomial(2, 1.0, 4.0), landmarks=Z, classes=[0, 1], **PLAIN),
        "norm of at most 1;": RandomFeatures(kernel=RBF(0.5), n_features=10, classes=[0, 1]),
    }
    for words, model in promises.items():
        assert words in "; ".join(model.fit(X, y).guarantee_.assumptions)
        assert "label set" not in "; ".join(model.guarantee_.assumptions)
    model = RandomFeatures(kernel=RBF(0.5), n_features=10).fit(X, y)
    assert "label set is public" in model.guarantee_.assumptions
    model = LandmarkRegressor(kernel=RBF(0.5), landmarks=Z, target_bound=(0.0, 3.0)).fit(*targets())
    assert "half-width 1.5" in "; ".join(model.guarantee_.assumptions)


def test_regression_learns_and_stays_in_range_of_sense():
    generator = np.random.default_rng(3)
    X = generator.uniform(-2, 2, size=(4000, 1))
    y = 5 + np.sin(2 * X[:, 0])
    landmarks = np.linspace(-2, 2, 10)[:, None]
    options = {"kernel": RBF(2.0), "target_bound": (3.5, 6.5), "epsilon": 5.0, "delta": 1e-6, "random_state": 0}
    models = [
        LandmarkRegressor(landmarks=landmarks, **options),
        RandomFeatures(n_features=30, loss="huber", **options),
    ]
    for model in models:
        assert model.fit(X, y).score(X, y) > 0.7
        assert model.predict(X).mean() == pytest.approx(5.0, abs=0.4)


MODELS = [
    LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, classes=[0, 1]),
    LandmarkClassifier(kernel=UserKernel(dot, 4.0), landmarks=list(Z), loss="hinge", classes=[0, 1]),
    LandmarkRegressor(kernel=Polynomial(2, 1.0, 4.0), landmarks=Z, target_bound=1.0),
    RandomFeatures(kernel=Laplacian(0.5), n_features=20, classes=[0, 1]),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_settings_can_be_read_changed_and_copied(model):
    X, y = table()
    settings = model.get_params()
    assert clone(model).get_params().keys() == settings.keys()
    changed = clone(model).set_params(alpha=0.3, epsilon=2.0)
    assert (changed.alpha, changed.epsilon) == (0.3, 2.0)
    assert (model.alpha, model.epsilon) == (settings["alpha"], 1.0)
    fitted = changed.fit(X, y)
    assert fitted.alpha_ >= 0.3
    assert not hasattr(clone(fitted), "coef_")
    for again in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
        assert again.guarantee_ == fitted.guarantee_
        assert not np.array_equal(again.fit(X, y).coef_, fitted.coef_)  # fresh noise
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)


def test_defaults_are_an_rbf_and_no_seed():
    assert RandomFeatures().get_params()["kernel"] is None
    model = RandomFeatures().fit(*table())
    assert model.kernel_ == RBF()
    assert model.coef_.shape == (1, 200)
    assert model.guarantee_.void_reason is None
    with pytest.warns(PrivacyWarning, match="target_bound was not given"):
        RandomFeatures(loss="huber", n_features=10).fit(*targets())


# ---------------------------------------------------------------- scikit-learn's own checks


def expected_to_fail(estimator: Any) -> dict[str, str]:
    """scikit-learn wants regressors without scores; here the loss decides what the one class does."""
    if estimator.loss == "huber":
        return {"check_regressors_no_decision_function": "the loss decides, and a regressor's scores are its targets"}
    return {}


@pytest.mark.filterwarnings("ignore::epsilearn.errors.PrivacyWarning")
@parametrize_with_checks(
    [RandomFeatures(), RandomFeatures(loss="huber", n_features=20)], expected_failed_checks=expected_to_fail
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
