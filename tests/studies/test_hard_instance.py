"""The hard instance is as described and its least risk is right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from epsilearn.errors import ConvergenceError, InvalidInput
from epsilearn.studies.hard_instance import (
    HardInstance,
    Quadratic,
    hard_instance,
    instance_sizes,
    least_over_l1_ball,
)


@pytest.fixture(scope="module", params=[1, 2, 3, 4, 5], ids="size {}".format)
def instance(request) -> HardInstance:
    return hard_instance(instance_sizes()[request.param - 1][1], random_state=request.param)


def mean_squared_loss(X, y, theta) -> float:
    return float(np.mean((X.astype(float) @ theta - y) ** 2))


def random_points(features: int, radius: float, count: int, seed: int = 0):
    """Points of the l1 ball: sparse and dense ones, inside and on the surface."""
    generator = np.random.default_rng(seed)
    for i in range(count):
        point = np.zeros(features)
        chosen = generator.choice(features, size=generator.integers(1, features + 1), replace=False)
        point[chosen] = generator.normal(size=len(chosen))
        yield point * radius / np.abs(point).sum() * (1 if i % 2 else generator.random())


def least_by_slsqp(X, y, radius: float) -> float:
    """With twice as many variables, the positive and the negative parts, the ball has flat sides."""
    both = np.hstack([X, -X]).astype(float)
    features = both.shape[1]
    done = optimize.minimize(
        lambda parts: np.mean((both @ parts - y) ** 2),
        np.full(features, radius / (2 * features)),
        jac=lambda parts: 2 * both.T @ (both @ parts - y) / len(y),
        bounds=[(0, None)] * features,
        constraints={"type": "ineq", "fun": lambda p: radius - p.sum(), "jac": lambda p: -np.ones(features)},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert done.success
    return float(done.fun)


def random_regression(seed: int, rows: int = 40, features: int = 8):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, size=(rows, features))
    y = X @ generator.normal(size=features) + generator.normal(size=rows)
    moments = X.T @ X / rows
    risk = Quadratic(lambda theta: moments @ theta, X.T @ y / rows, float(y @ y) / rows, np.linalg.norm(moments, 2))
    return X, y, risk


def test_sizes_follow_from_one_number():
    for size, rows, features in instance_sizes():
        orthogonal = rows - 10 * size
        assert features == 100 * size**2
        # A power of two, the next one from a tenth of code rows times features on; columns need as many rows.
        assert orthogonal & (orthogonal - 1) == 0
        assert 100 * size**3 <= orthogonal < 200 * size**3
        assert orthogonal >= features
    assert [size for size, _, _ in instance_sizes()] == list(range(1, 11))


@pytest.mark.parametrize(("n", "size"), [(138, 1), (1043, 1), (1044, 2), (4125, 2), (4126, 3), (8_231, 3)])
def test_the_largest_size_that_fits_is_made(n, size):
    made = hard_instance(n, random_state=0)
    assert (made.size, made.rows, made.features) == instance_sizes()[size - 1]
    assert made.rows <= n


def test_data_are_signs_and_targets_are_bits(instance):
    assert instance.X.dtype == np.int8
    assert instance.X.shape == (instance.rows, instance.features)
    assert set(np.unique(instance.X)) == {-1, 1}
    assert instance.y.dtype == np.float64
    assert np.array_equal(instance.y, np.arange(instance.rows) < 10 * instance.size)
    assert np.array_equal(instance.code, instance.X[instance.y == 1])


def test_columns_of_the_other_records_are_orthogonal(instance):
    other = instance.X[instance.y == 0].astype(np.float32)
    # Sums of at most 2^14 signs are exact in single precision.
    assert np.array_equal(other.T @ other, len(other) * np.eye(instance.features, dtype=np.float32))


def test_other_records_are_rows_of_sylvesters_matrix():
    other = hard_instance(1044, random_state=0).X[20:]
    for i, j in np.random.default_rng(0).integers((1024, 400), size=(200, 2)):
        assert other[i, j] == (-1) ** int(i & j).bit_count()


def test_nearly_all_columns_are_constant(instance):
    consensus, code = instance.consensus, instance.code
    assert consensus.dtype == np.int8
    constant = consensus != 0
    assert (code[:, constant] == consensus[constant]).all()
    assert (np.abs(code[:, ~constant].sum(axis=0)) < len(code)).all()
    # The code has one column at least, which is more than a thousandth of fewer than 1,000 features.
    assert (~constant).sum() <= max(1, instance.features / 1000)
    assert abs(int(consensus.sum())) <= 2 + (~constant).sum()


def test_the_padding_is_in_random_order():
    consensus = hard_instance(8232, random_state=0).consensus
    # In the order of construction there would be two runs.
    assert np.count_nonzero(np.diff(consensus)) == pytest.approx(800, abs=5 * np.sqrt(400))


def test_code_columns_have_arcsine_bias():
    """Over many codes: half of the entries are +1, and a column's bias is far from a half more often than not."""
    rows, shares = 10, []
    for seed in range(400):
        made = hard_instance(138, random_state=seed)
        odd = np.flatnonzero(made.consensus == 0)
        # A column may be constant by chance; then nothing tells it from the padding.
        shares += list((made.code[:, odd] == 1).mean(axis=0))
    shares = np.array(shares)
    assert shares.mean() == pytest.approx(0.5, abs=5 * 0.3 / np.sqrt(len(shares)))
    # Beta(1/2, 1/2), cut off at 1/3000, mixed with ten throws, given that they are not all alike.
    chances = stats.betabinom(rows, 0.5, 0.5).pmf(np.arange(1, rows))
    counts = np.bincount(np.round(shares * rows).astype(int), minlength=rows + 1)[1:rows]
    assert stats.chisquare(counts, chances / chances.sum() * counts.sum()).pvalue > 1e-4
    # The chance of no constant column is a little larger than without the cut-off.
    assert len(shares) / 400 == pytest.approx(chances.sum(), abs=5 * 0.5 / 20 + 0.01)


def test_instances_follow_from_their_seed():
    same, again, other = (hard_instance(1044, random_state=seed) for seed in (1, 1, 2))
    assert np.array_equal(same.X, again.X)
    assert np.array_equal(same.consensus, again.consensus)
    assert not np.array_equal(same.X, other.X)
    # What has no randomness stays.
    assert np.array_equal(same.X[20:], other.X[20:])


def test_risk_is_the_mean_squared_loss(instance):
    for theta in random_points(instance.features, 1.0, 6, seed=instance.size):
        assert instance.risk(theta) == pytest.approx(mean_squared_loss(instance.X, instance.y, theta), rel=1e-10)
    assert instance.risk([0.0] * instance.features) == 10 * instance.size / instance.rows


@pytest.mark.parametrize("radius", [0.05, 0.5, 1.0, 3.0])
def test_no_point_of_the_ball_has_less_risk(instance, radius):
    least = instance.least_risk(radius)
    near = radius * instance.consensus / np.abs(instance.consensus).sum()
    points = [near, 0.9 * near, *random_points(instance.features, radius, 20)]
    assert all(least * (1 - 1e-9) <= instance.risk(theta) for theta in points)
    assert least < instance.risk(np.zeros(instance.features))


def test_least_risk_has_a_closed_form_without_code_columns():
    """If all columns are constant, the best weight is the same for all but for its sign."""
    made = hard_instance(4126, random_state=0)
    X = made.X.copy()
    X[:30, made.consensus == 0] = 1
    padded = HardInstance(X, made.y, X[0], made.size)
    share = 4096 / (30 * 900)
    assert padded.least_risk() == pytest.approx(30 / 4126 * share / (1 + share), rel=1e-9)
    # A smaller ball binds: all of it goes to the columns in equal parts.
    assert padded.least_risk(0.5) == pytest.approx((30 * 0.5**2 + 4096 * 0.5**2 / 900) / 4126, rel=1e-9)


@pytest.mark.parametrize("radius", [0.3, 1.0])
def test_least_risk_agrees_with_another_solver(radius):
    made = hard_instance(138, random_state=3)
    assert made.least_risk(radius) == pytest.approx(least_by_slsqp(made.X, made.y, radius), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("radius", [0.1, 1.0, 100.0])
def test_the_least_over_the_ball_agrees_with_another_solver(seed, radius):
    X, y, risk = random_regression(seed)
    minimum = least_over_l1_ball(risk, radius)
    assert np.abs(minimum.theta).sum() <= radius * (1 + 1e-12)
    assert minimum.value == pytest.approx(mean_squared_loss(X, y, minimum.theta), rel=1e-12)
    assert minimum.value == pytest.approx(least_by_slsqp(X, y, radius), rel=1e-7)


def test_the_gap_bounds_the_error():
    _, _, risk = random_regression(0)
    least = least_over_l1_ball(risk, 1.0, tolerance=1e-13).value
    for tolerance in (0.3, 0.1, 1e-2, 1e-4):
        rough = least_over_l1_ball(risk, 1.0, tolerance=tolerance)
        assert rough.gap <= tolerance * rough.value
        assert least <= rough.value * (1 + 1e-12)
        assert rough.value - rough.gap <= least * (1 + 1e-12)


def test_what_cannot_be_certified_is_an_error(monkeypatch):
    monkeypatch.setattr("epsilearn.studies.hard_instance.MOST_STEPS", 2)
    with pytest.raises(ConvergenceError, match="no point within 1e-09 of the least risk after 2 steps"):
        least_over_l1_ball(random_regression(0)[2])


@pytest.mark.parametrize(
    ("n", "words"),
    [(137, "n must be at least 138, the smallest hard data set, got 137"), (0, "at least 1"), (1e3, "whole number")],
)
def test_wrong_numbers_of_rows_are_refused(n, words):
    with pytest.raises(InvalidInput, match=words):
        hard_instance(n, random_state=0)


def test_wrong_coefficients_are_refused():
    made = hard_instance(138, random_state=0)
    with pytest.raises(InvalidInput, match=r"theta must have shape \(100,\), got \(99,\)"):
        made.risk(np.zeros(99))
    with pytest.raises(InvalidInput, match="radius"):
        made.least_risk(0.0)
