"""Private linear regression: three methods, one answer when there is no noise, and the noise of the theorems."""

from __future__ import annotations

import math

import numpy as np
import pytest

from epsilearn import LinearRegression
from epsilearn.calibration.additive import gaussian_scale
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.calibration.regression import moments_sensitivity, noise_norm
from epsilearn.errors import InvalidInput
from epsilearn.linear.regression import _solve, public_targets
from epsilearn.losses import Squared

METHODS = ["objective", "output", "sufficient-statistics"]


def line(n: int = 1000, d: int = 3, noise: float = 0.05, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-0.5, 0.5, size=(n, d))
    return X, X @ np.linspace(1, -1, d) + 0.2 + noise * generator.normal(size=n)


def ridge(X: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    return np.linalg.solve(X.T @ X / len(y) + alpha * np.eye(X.shape[1]), X.T @ y / len(y))


# ---------------------------------------------------------------- the right model


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_without_noise_it_is_ridge_regression_of_the_clipped_rows(method, intercept, delta):
    X, y = line()
    X[:50] *= 40  # beyond the bound
    y[50:100] = 30.0
    model = LinearRegression(
        method=method, epsilon=1e7, delta=delta, alpha=0.02, data_norm=1.0, target_bound=1.5, threshold=100.0,
        fit_intercept=intercept,
    ).fit(X, y)  # fmt: skip
    Z = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1, keepdims=True))
    constant = model._bounds_.intercept
    Z = np.column_stack([Z, np.full(len(X), constant)]) if intercept else Z
    expected = ridge(Z, np.clip(y, -1.5, 1.5), 0.02)
    found = np.append(model.coef_, model.intercept_ / constant) if intercept else model.coef_
    np.testing.assert_allclose(found, expected, atol=1e-2)
    np.testing.assert_allclose(model.predict(X), Z @ expected, atol=2e-3)
    assert isinstance(model.intercept_, float)
    assert model.coef_.shape == (3,)
    assert model.alpha_ == pytest.approx(0.02)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (99.0, 101.0), (-1e6, 1e6)])
def test_a_range_of_targets_is_centred(method, low, high):
    """Targets shifted and stretched with their range: the same model, shifted and stretched."""
    X, y = line()
    options = {"method": method, "epsilon": 2.0, "alpha": 0.1, "data_norm": 1.0, "random_state": 4}
    base = LinearRegression(target_bound=1.0, **options).fit(X, np.clip(y, -1, 1))
    middle, half = (low + high) / 2, (high - low) / 2
    other = LinearRegression(target_bound=(low, high), **options).fit(X, middle + half * np.clip(y, -1, 1))
    np.testing.assert_allclose(other.predict(X), middle + half * base.predict(X), atol=2e-3 * half)


def test_targets_are_brought_inside_their_bounds():
    y = np.array([-1e300, -2.0, 0.5, 7.0, 1e300])
    clipped, middle, half = public_targets(y, 2.0)
    assert clipped.tolist() == [-2.0, -2.0, 0.5, 2.0, 2.0]
    assert (middle, half) == (0.0, 2.0)
    clipped, middle, half = public_targets(y, (0.0, 8.0))
    assert clipped.tolist() == [-4.0, -4.0, -3.5, 3.0, 4.0]
    assert (middle, half) == (4.0, 4.0)
    for low, high in ((0.1, 0.3), (-1e-3, 1e9), (1e15, 1e15 + 1)):
        clipped, _, half = public_targets(np.array([low, high, -1e300, 1e300]), (low, high))
        assert np.abs(clipped).max() <= half


@pytest.mark.parametrize("method", METHODS)
def test_an_ordinary_budget_is_enough_for_many_rows(method):
    X, y = line(n=40_000)
    model = LinearRegression(
        method=method, epsilon=1.0, delta=1e-9, data_norm=0.9, target_bound=1.5, random_state=0
    ).fit(X, y)
    assert model.score(X, y) > (0.95 if method == "sufficient-statistics" else 0.5)


def test_a_threshold_left_out_follows_the_targets():
    X, y = line(n=300)
    one, ten = (
        LinearRegression(data_norm=1.0, target_bound=bound, alpha=0.1).fit(X, y).noise_.scale for bound in (1.0, 10.0)
    )
    assert ten == pytest.approx(10 * one, rel=1e-6)
    half = LinearRegression(data_norm=1.0, target_bound=1.0, threshold=0.125, alpha=0.1).fit(X, y).noise_.scale
    assert half == pytest.approx(0.5 * one, rel=0.05)


# ---------------------------------------------------------------- the theorems' noise


def test_the_noise_on_least_squares():
    X, y = line()
    model = LinearRegression(method="output", epsilon=0.5, data_norm=1.0, target_bound=1.5, alpha=0.1).fit(X, y)
    norm = math.hypot(1.0, model._bounds_.intercept)
    exactly = minimiser_sensitivity(Squared(1.5), 1000, norm, 0.1)
    assert model.noise_.scale == pytest.approx(1.01 * exactly / 0.5, rel=1e-6)


@pytest.mark.parametrize("rows_per_person", [1, 4])
def test_the_noise_on_moments(rows_per_person):
    """One vector of d (d + 1) / 2 + d numbers, of the joint sensitivity sqrt(4.5)."""
    X, y = line()
    options = {"method": "sufficient-statistics", "data_norm": 1.0, "target_bound": 1.5, "epsilon": 0.5}
    pure = LinearRegression(rows_per_person=rows_per_person, **options).fit(X, y).noise_
    assert (pure.kind, pure.dimension) == ("k-norm", 4 * 5 // 2 + 4)
    assert pure.scale == pytest.approx(rows_per_person * math.sqrt(4.5) / 0.5, rel=1e-9)
    assert pure.scale > rows_per_person * moments_sensitivity() / 0.5  # the rounding of the sums is counted
    normal = LinearRegression(rows_per_person=rows_per_person, delta=1e-6, **options).fit(X, y).noise_
    expected = gaussian_scale(math.sqrt(4.5), 0.5, 1e-6, rows_per_person)
    assert normal.scale == pytest.approx(expected, rel=1e-9)
    assert normal.scale > expected


def test_the_rounding_of_huge_sums_is_counted(monkeypatch):
    from epsilearn.rows import memory

    X, y = line(n=50)
    options = {"method": "sufficient-statistics", "data_norm": 1.0, "target_bound": 1.5}
    moments = memory._MemoryRows.moments

    def rough(self):
        found = moments(self)
        return type(found)(found.gram, found.cross, 1e-3)

    monkeypatch.setattr(memory._MemoryRows, "moments", rough)
    scale = LinearRegression(**options).fit(X, y).noise_.scale
    assert scale == pytest.approx(math.sqrt(4.5) + 2 * math.sqrt(2) * 50 * 1e-3, rel=1e-6)


def test_the_noise_reaches_the_moments(monkeypatch):
    """What the ridge is solved from is the moments plus noise of the stated law, in the packed vector's norm."""
    from epsilearn.linear import regression

    seen = []
    unpack = regression._unpack
    monkeypatch.setattr(regression, "_unpack", lambda values, *rest: seen.append(values) or unpack(values, *rest))
    X, y = np.zeros((10, 9)), np.zeros(10)
    for seed in range(150):
        model = LinearRegression(
            method="sufficient-statistics", data_norm=1.0, target_bound=1.0, random_state=seed, fit_intercept=False
        ).fit(X, y)
    lengths = np.linalg.norm(seen, axis=1)
    assert lengths.mean() == pytest.approx(54 * model.noise_.scale, rel=0.035)


# ---------------------------------------------------------------- the ridge that noisy moments ask for


def test_the_ridge_falls_as_the_data_speak_up():
    generator = np.random.default_rng(0)
    strengths = []
    for n in (10, 100, 100_000):
        gram = n * np.eye(3) / 3
        weights, strength = _solve(gram, gram @ np.ones(3), n, 5.0, None)
        strengths.append(strength)
        assert np.isfinite(weights).all()
    assert strengths[0] >= strengths[1] >= strengths[2] == 0
    assert strengths[0] > 0
    # Where the data are lost in the noise: a share of the noise's norm, and no more than all of it.
    assert 0.2 * noise_norm(3, 5.0, 0.05) < 10 * strengths[0] <= noise_norm(3, 5.0, 0.05)
    assert weights == pytest.approx(np.ones(3))
    # A direction that noise made negative carries nothing: no weight explodes.
    gram = np.diag([-3.0, 1e-9, 50.0])
    weights, _ = _solve(gram, generator.normal(size=3), 10, 2.0, 1e-12)
    assert np.abs(weights).max() <= 3 / 2.0


def test_a_given_ridge_is_used():
    gram, cross = np.diag([10.0, 20.0]), np.array([1.0, 1.0])
    weights, strength = _solve(gram, cross, 100, 1e-3, 0.5)
    assert strength == 0.5
    np.testing.assert_allclose(weights, [1 / 60, 1 / 70])


# ---------------------------------------------------------------- refusals


def test_what_the_papers_do_not_have():
    X, y = line(n=50)
    bounds = {"data_norm": 1.0, "target_bound": 1.0}
    with pytest.raises(InvalidInput, match="not in the papers"):
        LinearRegression(method="sufficient-statistics", calibration="paper", **bounds).fit(X, y)
    with pytest.raises(InvalidInput, match="printed"):
        LinearRegression(calibration="paper", delta=1e-6, **bounds).fit(X, y)


def test_the_lectures_regression_reports_what_is_proven():
    X, y = line(n=500)
    model = LinearRegression(
        method="output", calibration="paper", epsilon=0.5, alpha=0.01, data_norm=1.0, target_bound=1.0
    ).fit(X, y)
    assert model.noise_.kind == "laplace"
    assert model.guarantee_.claimed_epsilon == 0.5
    assert model.guarantee_.epsilon > 10 * 0.5


def test_moments_of_too_many_sparse_columns():
    from scipy import sparse

    X = sparse.random_array((20, 2001), density=0.01, format="csr", rng=0)
    with pytest.raises(InvalidInput, match="2002 by 2002"):
        LinearRegression(method="sufficient-statistics", data_norm=1.0, target_bound=1.0).fit(X, np.zeros(20))


def test_texts_as_targets_are_refused_without_being_quoted():
    with pytest.raises(InvalidInput, match="must be numbers") as caught:
        LinearRegression(data_norm=1.0, target_bound=1.0).fit(np.eye(3), np.array(["1.0", "Miller 48151", "2.0"]))
    assert "48151" not in repr(caught.value)
    assert caught.value.__context__ is None
