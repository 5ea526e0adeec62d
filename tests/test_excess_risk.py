"""The mean excess risk of private paths stays below its bound, and falls as rows are added."""

from __future__ import annotations

import numpy as np
import pytest

from epsilearn import frank_wolfe
from epsilearn.calibration.frank_wolfe import SquaredSlope, excess_bound
from epsilearn.constraints import L1Ball, L2Ball, LqBall, Simplex
from epsilearn.rows.fixed import fixed_rows

COLUMNS = 30
SETS = [
    pytest.param(L2Ball(1.0), "gradient", id="l2"),
    pytest.param(LqBall(1.5), "gradient", id="lq"),
    pytest.param(Simplex(1.0), "gradient", id="simplex by gradients"),
    pytest.param(Simplex(1.0), "corners", id="simplex by corners"),
    pytest.param(L1Ball(1.0), "corners", id="l1"),
]


def measured(constraint, method, rows, fits=8):
    generator = np.random.default_rng(7)
    X = generator.normal(size=(rows, COLUMNS))
    X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
    truth = constraint.minimiser(-(np.arange(COLUMNS, dtype=float) ** 4))
    y = np.clip(X @ truth + 0.05 * generator.normal(size=rows), -1, 1)
    plan = frank_wolfe.plan(
        SquaredSlope(1.0),
        frank_wolfe.PathTable(rows, COLUMNS, 1.0, 1.0),
        constraint,
        epsilon=1.0,
        delta=1e-6,
        method=method,
    )
    table = fixed_rows(X, plan.features, length=1.0)

    def risk(theta):
        return float(np.mean((X @ theta - y) ** 2))

    found = [frank_wolfe.execute(plan, table, y, random_state=seed).point for seed in range(fits)]
    assert all(constraint.contains(point, 1e-9) for point in found)
    # The true weights are in the set, so the least risk is at most theirs and, less the noise's share, at least 0.
    return float(np.mean([risk(point) for point in found])) - risk(truth), plan, risk(np.zeros(COLUMNS)) - risk(truth)


@pytest.mark.parametrize(("constraint", "method"), SETS)
def test_the_mean_excess_risk_stays_below_its_bound_and_falls(constraint, method):
    few, few_plan, zero = measured(constraint, method, 2_000)
    many, many_plan, _ = measured(constraint, method, 100_000, fits=2)
    assert few <= few_plan.excess_bound
    assert many <= many_plan.excess_bound
    assert many_plan.excess_bound < few_plan.excess_bound / 3
    # Fifty times the rows: the rate promises a factor of thirteen; less than half of that is far from luck.
    assert many < max(few, zero) / 5


def test_the_bound_follows_the_recursion():
    # h_{t+1} = (1 - mu) h_t + mu e + mu^2 Gamma / 2 with equality: the bound is what its proof says, to a whisker.
    curvature, error, start = 3.0, 0.2, 5.0
    excess = start
    for step in range(1, 50):
        mu = 2 / (step + 2)
        excess = (1 - mu) * excess + mu * error + mu**2 * curvature / 2
        bound = excess_bound(curvature, step + 1, start, error)
        assert excess <= bound
        assert excess >= 0.9 * bound - 2 * start / ((step + 1) * (step + 2))
