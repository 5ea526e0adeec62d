"""Kernels of records at the ends of the doubles, and of settings beyond reason."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

from epsilearn import (
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    RandomFeatures,
    SemiInteractiveLearner,
)
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel import RBF, HistogramIntersection, Laplacian, Linear, Polynomial, ball_net

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2


@pytest.fixture(autouse=True)
def loud():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("rows", [X, 1e300 * X])
@pytest.mark.parametrize("kernel", [Linear(1e50), Polynomial(3, 1.0, 1e13)])
def test_features_beyond_single_precision_are_refused_whatever_the_records(kernel, rows):
    model = LandmarkClassifier(kernel=kernel, landmarks=X[:5].copy(), whitening=0.0, rank=None, classes=[0, 1])
    with pytest.raises(InvalidInput, match="the kernel's bound"):
        model.fit(rows, Y)


@pytest.mark.parametrize("kernel", [RBF(1e100), Laplacian(1e100), RBF(1e-100), Laplacian(1e-100)])
def test_records_far_apart(kernel):
    RandomFeatures(kernel=kernel, n_features=6, classes=[0, 1]).fit(X * 1e300, Y)
    LandmarkClassifier(kernel=kernel, landmarks=np.ones((1, 3)), classes=[0, 1]).fit(X * 1e300, Y)
    far = np.array([[1.7e308], [-1.7e308], [1e200], [0.0]])
    np.testing.assert_array_equal(kernel.matrix(far, far), np.eye(4))


@pytest.mark.parametrize("kernel", [RBF, Laplacian])
@pytest.mark.parametrize("gamma", [5e-324, 1e-310, 1e300])
def test_gamma_lies_where_an_infinite_distance_gives_zero(kernel, gamma):
    with pytest.raises(InvalidInput, match="gamma must lie between"):
        kernel(gamma)


@pytest.mark.parametrize("record", [1.7e-160, 5e-324, 0.0, 1.7])
def test_tiny_records_are_solved(record):
    kernel, points = HistogramIntersection(), np.ones((2, 1)) / 2
    SemiInteractiveLearner(kernel=kernel, epsilon=1e9, classes=[0, 1], public_points=points).fit([[record]], [0])


def test_budgets_of_any_type_become_plain_numbers():
    shared = {"classes": [0, 1], "epsilon": np.float32(0.5), "rows_per_person": np.int64(3)}
    model = SemiInteractiveLearner(public_points=X[:3].copy(), **shared).fit(X, Y)
    assert Guarantee.from_json(model.guarantee_.to_json()).rows_per_person == 3
    GaussianProcessRelease(**shared).fit(X, Y)
    assert "0.333" in str(InteractiveLearner(classes=[0, 1], delta=Fraction(1, 3)).fit(X, Y).guarantee_)


@pytest.mark.parametrize(
    "model",
    [
        GaussianProcessRelease(kernel=Linear(1e100)),
        GaussianProcessRelease(alpha=1e300),
        GaussianProcessRelease(max_points=10**400),
        InteractiveLearner(rows_per_person=10**200),
        InteractiveLearner(questions=10**400),
        InteractiveLearner(calibration="paper", questions=10**12),
        InteractiveLearner(calibration="paper", questions=50, norm=1e-300),
    ],
)
def test_settings_beyond_reason_are_refused(model):
    with pytest.raises(InvalidInput):
        model.set_params(classes=[0, 1]).fit(X, Y)


def test_large_budgets_are_proven():
    InteractiveLearner(classes=[0, 1], epsilon=1e6).fit(X, Y)


def test_degrees_and_nets_beyond_the_doubles():
    with pytest.raises(InvalidInput, match="degree"):
        Polynomial(10**6)
    with pytest.raises(InvalidInput, match="net"):
        ball_net(1, 1, 5e-324)
    points = np.full((1, 1), 0.5)
    SemiInteractiveLearner(public_points=points, kernel=Polynomial(200, 0.5, 0.5), classes=[0, 1]).fit(X[:, :1], Y)
