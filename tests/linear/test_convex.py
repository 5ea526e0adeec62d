"""Losses of one's own: the same models as the built-in ones, and declarations as assumptions."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor

from epsilearn import ConvexERM, LinearRegression, LinearSVC, LogisticRegression
from epsilearn.errors import InvalidInput
from epsilearn.losses import Custom, Huber, HuberisedHinge, Logistic, Softmax, Squared

BOUNDS = {"data_norm": 1.5, "alpha": 0.1}


def table(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, (X[:, 0] > 0).astype(int)


def own(loss, **declared) -> Custom:
    """A built-in loss as someone else would write it down."""
    return Custom(
        loss.value, loss.slope, loss.curvature,
        declared_lipschitz=loss.lipschitz, declared_smoothness=loss.smoothness, **declared,
    )  # fmt: skip


def test_known_losses_are_the_known_models():
    X, y = table()
    options = {"random_state": 3, "classes": [0, 1], **BOUNDS}
    for delta in (0.0, 1e-6):
        for method in ("objective", "output"):
            chosen = {"delta": delta, "method": method, **options}
            expected = LogisticRegression(**chosen).fit(X, y).coef_
            np.testing.assert_array_equal(ConvexERM(**chosen).fit(X, y).coef_, expected)
            np.testing.assert_array_equal(ConvexERM(loss=Logistic(), **chosen).fit(X, y).coef_, expected)
            machine = LinearSVC(width=0.3, **chosen).fit(X, y).coef_
            np.testing.assert_array_equal(ConvexERM(loss=HuberisedHinge(0.3), **chosen).fit(X, y).coef_, machine)


def test_huber_is_the_known_regression():
    X, _ = table()
    y = X[:, 0] - 0.5
    expected = LinearRegression(threshold=0.4, target_bound=2.0, random_state=3, **BOUNDS).fit(X, y)
    found = ConvexERM(loss=Huber(0.4, 2.0), random_state=3, **BOUNDS).fit(X, y)
    np.testing.assert_allclose(found.coef_[0], expected.coef_)
    np.testing.assert_allclose(found.predict(X), expected.predict(X))
    ridge = LinearRegression(method="output", target_bound=2.0, random_state=3, **BOUNDS).fit(X, y)
    found = ConvexERM(loss=Squared(2.0), method="output", random_state=3, **BOUNDS).fit(X, y)
    np.testing.assert_allclose(found.predict(X), ridge.predict(X))


@pytest.mark.parametrize("method", ["objective", "output"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_declared_loss_gets_at_least_the_noise_of_a_known_one(method, delta):
    """What is declared says nothing of a trade-off or of the minimiser's norm: the papers' bounds, and no less."""
    X, y = table()
    options = {"method": method, "delta": delta, "classes": [0, 1], "epsilon": 2.0, **BOUNDS}
    known = ConvexERM(loss=Logistic(), **options).fit(X, y)
    declared = ConvexERM(loss=own(Logistic()), **options).fit(X, y)
    assert declared.noise_.scale >= known.noise_.scale
    text = " ".join(declared.guarantee_.assumptions)
    assert "the loss's declared bounds hold" in text
    assert "declared" not in " ".join(known.guarantee_.assumptions)
    # Without a trade-off the same noise, but for what a slope of either sign costs.
    hinge = ConvexERM(loss=HuberisedHinge(0.5), **options).fit(X, y)
    same = ConvexERM(loss=own(HuberisedHinge(0.5)), **options).fit(X, y)
    assert 1 - 1e-6 <= same.noise_.scale / hinge.noise_.scale <= (1.05 if method == "objective" and delta else 1 + 1e-5)


def test_a_declared_loss_without_noise_is_the_known_model():
    X, y = table()
    options = {"epsilon": 1e7, "classes": [0, 1], **BOUNDS}
    known = LogisticRegression(**options).fit(X, y)
    declared = ConvexERM(loss=own(Logistic()), **options).fit(X, y)
    np.testing.assert_allclose(declared.coef_, known.coef_, atol=1e-4)
    assert declared.score(X, y) > 0.9


def test_a_wrong_declaration_never_reaches_a_fit():
    steep = Huber(2.0, 1.0)
    with pytest.raises(InvalidInput, match="slope is"):
        Custom(
            steep.value, steep.slope, steep.curvature,
            declared_lipschitz=1.0, declared_smoothness=1.0, binary=False,
        )  # fmt: skip


def test_the_loss_decides_what_kind_of_estimator_it_is():
    X, y = table()
    classifier, regressor = ConvexERM(classes=[0, 1], **BOUNDS), ConvexERM(loss=Huber(), random_state=0, **BOUNDS)
    assert is_classifier(classifier)
    assert is_regressor(regressor)
    assert hasattr(classifier, "decision_function")
    assert not hasattr(regressor, "decision_function")
    lettered = ConvexERM(classes=["b", "a"], epsilon=5.0, random_state=0, **BOUNDS).fit(X, np.where(y, "b", "a"))
    assert lettered.classes_.tolist() == ["a", "b"]
    assert lettered.score(X, np.where(y, "b", "a")) > 0.9
    np.testing.assert_array_equal(lettered.predict(X) == "b", lettered.decision_function(X) > 0)
    assert -1 < regressor.fit(X, X[:, 0]).score(X, np.clip(X[:, 0], -1, 1)) <= 1
    assert is_regressor(clone(regressor))


def test_targets_are_clipped_to_the_losss_own_bound():
    X, _ = table()
    wild, tame = X[:, 0] * 1e6, np.clip(X[:, 0] * 1e6, -2.0, 2.0)
    options = {"loss": own(Huber(0.5, 2.0), binary=False, target_bound=2.0), "random_state": 1, **BOUNDS}
    np.testing.assert_array_equal(ConvexERM(**options).fit(X, wild).coef_, ConvexERM(**options).fit(X, tame).coef_)


@pytest.mark.parametrize("loss", ["logistic", Logistic, 1.0, Softmax(2), Softmax(3), object()])
def test_what_is_no_loss_of_one_score(loss):
    X, y = table()
    with pytest.raises(InvalidInput, match="loss must be a loss of one score"):
        ConvexERM(loss=loss, **BOUNDS).fit(X, y)


def test_three_classes_need_softmax():
    X, _ = table()
    with pytest.raises(InvalidInput, match="Only binary classification is supported by ConvexERM, not 3 classes"):
        ConvexERM(**BOUNDS).fit(X, np.arange(300) % 3)


class Steeper(Logistic):
    """A loss of someone's own by another way: what it says of itself is its author's word."""

    @property
    def lipschitz(self) -> float:
        return 2.0

    @property
    def smoothness(self) -> float:
        return 0.5

    def curvature_at(self, slope):
        return 0.5

    def value(self, score, target):
        return 2 * Logistic().value(score, target)

    def slope(self, score, target):
        return 2 * Logistic().slope(score, target)

    def curvature(self, score, target):
        return 2 * Logistic().curvature(score, target)


def test_a_subclass_of_a_known_loss_is_taken_as_it_is():
    """Not computed as its parent would be, and its bounds an assumption."""
    X, y = table()
    options = {"epsilon": 1e7, "classes": [0, 1], "data_norm": 1.5}
    steep = ConvexERM(loss=Steeper(), alpha=0.2, **options).fit(X, y)
    plain = ConvexERM(loss=Logistic(), alpha=0.1, **options).fit(X, y)
    np.testing.assert_allclose(steep.coef_, plain.coef_, atol=1e-3)
    assert any("declared bounds" in assumption for assumption in steep.guarantee_.assumptions)


class TimeUp(Exception):
    pass


def give_up(*_: object) -> None:
    raise TimeUp


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_unbounded_slope_in_the_objective_is_refused_whatever_alpha(delta):
    X, _ = table(50)
    with pytest.raises(InvalidInput, match="bounded slope"):
        ConvexERM(loss=Squared(1.0), data_norm=1.0, alpha=0.1, delta=delta).fit(X, X[:, 0])
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 20.0)  # a search for the strength would have no end
    try:
        with pytest.raises(InvalidInput, match="bounded slope"):
            ConvexERM(loss=Squared(1.0), data_norm=1.0, delta=delta).fit(X, X[:, 0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
