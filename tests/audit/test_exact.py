"""Exact laws against other routes, against real releases, and against what is promised."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from epsilearn import Lasso, LinearRegression, LinearSVC, LogisticRegression, SparseLogisticRegression
from epsilearn.accounting import GaussianShift
from epsilearn.audit import Claim
from epsilearn.audit.events import Prospect
from epsilearn.audit.exact import Laws, exact_laws
from epsilearn.audit.subjects import Options, subject
from epsilearn.audit.worst import exact_worst

ONE, OTHER = ([[1.0], [0.3]], [1, 0]), ([[1.0], [0.3]], [0, 0])
BOUNDS = {"data_norm": 1.0, "fit_intercept": False}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize("method", ["objective", "output"])
def test_probabilities_add_up(method, delta, intercept):
    model = LogisticRegression(
        epsilon=1.0, delta=delta, alpha=0.5, data_norm=1.0, method=method, fit_intercept=intercept, classes=[0, 1]
    )
    laws = exact_laws(model, ONE, OTHER)
    assert np.exp(laws.first).sum() == pytest.approx(1, abs=2e-3)
    assert np.exp(laws.second).sum() == pytest.approx(1, abs=2e-3)
    assert 0 < laws.epsilon(delta) <= 1.0


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_noise_on_the_result_by_another_route(delta):
    """Ridge regression of one record: y / (1 + alpha); the noise's scale is public."""
    model = LinearRegression(method="output", epsilon=1.0, delta=delta, alpha=2.0, target_bound=1.0, **BOUNDS)
    laws = exact_laws(model, ([[1.0]], [1.0]), ([[1.0]], [-1.0]))
    distance = 2 / (1 + 2.0) / model.plan(rows=1, features=1).law.scale
    expected = GaussianShift(distance).epsilon(delta) if delta else distance
    assert laws.epsilon(delta) == pytest.approx(expected, rel=1e-3)


def test_the_law_of_real_releases():
    model = LogisticRegression(epsilon=2.0, alpha=0.2, classes=[0, 1], **BOUNDS)
    weights = [model.fit(*ONE).coef_[0, 0] for _ in range(300)]
    laws, other = exact_laws(model, ONE, ([[1.0], [-0.9]], [0, 1])), exact_laws(model, OTHER, OTHER)
    # The laws come without their points: what each gives the half where it is the larger of the two must be seen there.
    assert np.exp(laws.first).sum() == pytest.approx(np.exp(other.first).sum(), abs=1e-3)
    plan = model.plan(rows=2, features=1)
    noise = stats.laplace(scale=plan.law.scale)
    for point in (-3.0, 0.0, 2.0):
        # w is below a point just when the noise that leads there is above the one that leads to the point.
        slopes = sum(x * (1 / (1 + math.exp(-x * point)) - y) for x, y in ((1.0, 1), (0.3, 0)))
        chance = noise.sf(-(2 * plan.strength * point + slopes))
        hits = int(np.sum(np.array(weights) < point))
        assert stats.binom.cdf(hits, 300, chance) > 1e-7
        assert stats.binom.sf(hits - 1, 300, chance) > 1e-7


@pytest.mark.parametrize("name", ["logistic", "svc", "linear-regression", "convex"])
@pytest.mark.parametrize("method", ["objective", "output"])
def test_promises_are_kept_exactly_and_nearly_used_up(name, method):
    finding, _ = exact_worst(subject(name).cases(Options(epsilon=1.0, method=method, rows=2)), Claim(1.0))
    assert not finding.refuted
    # A flipped label moves the logistic gradient by half of what its bound allows for.
    least = 0.45 if (name, method) == ("logistic", "objective") else 0.6 if name == "svc" else 0.9
    assert finding.real > least


def test_printed_constants_are_refuted_exactly():
    finding, case = exact_worst(
        subject("logistic").cases(Options(epsilon=0.7, calibration="paper", rows=1)), Claim(0.7)
    )
    assert finding.refuted
    assert finding.real == pytest.approx(3.092, abs=0.2)
    assert finding.to_dict()["refuted"]
    assert str(finding).startswith("REFUTED: epsilon = 0.7\n")
    assert case.words.startswith("alpha = 0.01, n = 1")


@pytest.mark.parametrize(
    "model",
    [
        Lasso(epsilon=2.0, feature_bound=1.0, target_bound=1.0, n_steps=3),
        Lasso(epsilon=2.0, feature_bound=1.0, target_bound=1.0, n_steps=3, delta=1e-3, calibration="paper"),
        SparseLogisticRegression(epsilon=2.0, feature_bound=1.0, classes=[0, 1], n_steps=3),
    ],
)
def test_paths_are_walked_as_often_as_enumerated(model):
    first, second = ([[1.0, -1.0], [0.5, 0.2]], [1, 0]), ([[-1.0, 1.0], [0.5, 0.2]], [1, 0])
    laws = exact_laws(model, first, second)
    assert len(laws.first) == 4**2
    assert np.exp(laws.first).sum() == pytest.approx(1)
    assert laws.epsilon(0.0) <= model.plan(rows=2, features=2).promise.epsilon
    seen = Counter()
    for _ in range(400):
        fitted = model.fit(*first)
        seen[tuple(fitted.selected_)] += 1
    # A column is chosen or its negative: two corners each.
    for k, expected in enumerate(np.exp(laws.first).reshape(2, 2, 2, 2).sum(axis=(1, 3)).ravel()):
        hits = seen[divmod(k, 2)]
        assert stats.binom.cdf(hits, 400, expected) > 1e-7
        assert stats.binom.sf(hits - 1, 400, expected) > 1e-7


def test_what_cannot_be_computed():
    wide = ([[1.0, 0.0, 0.0]], [1]), ([[0.0, 1.0, 0.0]], [1])
    assert exact_laws(LinearSVC(alpha=1.0, classes=[0, 1], **BOUNDS), *wide) is None
    assert exact_laws(Lasso(feature_bound=1.0, target_bound=1.0, n_steps=40), *wide) is None
    assert exact_laws(LinearRegression(method="sufficient-statistics", target_bound=1.0, **BOUNDS), *wide) is None


def test_the_ideal_audit_of_a_coin():
    laws = Laws(np.log([0.75, 0.25]), np.log([0.25, 0.75]))
    assert laws.ideal(Prospect(10**8, 0.0, 0.99)) == pytest.approx(math.log(3), abs=1e-3)
    assert laws.ideal(Prospect(100, 0.0, 0.99)) < 0.8
