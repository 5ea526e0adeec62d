"""Exact laws against other routes, against real releases, and against what is promised."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from epsilearn import Lasso, LinearRegression, LinearSVC, LogisticRegression, SparseLogisticRegression
from epsilearn.accounting import GaussianShift
from epsilearn.audit import Claim
from epsilearn.audit.events import Prospect
from epsilearn.audit.exact import COARSER, ExactFinding, Laws, _Prepared, exact_laws
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


@pytest.mark.slow
@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.6, 0.8)])
def test_two_weights_against_the_gaussian_curve(direction):
    """The same in the plane, where quadrature is coarser: off by no more than it says, and a true claim stands."""
    model = LinearRegression(method="output", epsilon=1.0, delta=0.01, alpha=50.0, target_bound=1.0, **BOUNDS)
    tables = ([direction], [1.0]), ([direction], [-1.0])
    finest, *coarser = (exact_laws(model, *tables, fineness) for fineness in (1.0, *COARSER))
    curve = GaussianShift(2 / (1 + 50.0) / model.plan(rows=1, features=2).law.scale)
    truth = Claim(curve.epsilon(0.01), 0.01, gaussian=True)
    finding = ExactFinding.of(truth, finest, coarser)
    assert not finding.refuted
    assert len(finding.curve) == 6
    for point in finding.curve:
        assert abs(point.real - curve.epsilon(point.delta)) <= point.error < 0.02
    assert ExactFinding.of(Claim(0.99 * truth.epsilon, 0.01), finest, coarser).refuted
    # Noise that is right at one delta, and elsewhere not: a Gaussian curve says more than its point.
    steeper = replace(finest, first=3 * finest.first - np.logaddexp.reduce(3 * finest.first))
    assert ExactFinding.of(Claim(steeper.epsilon(0.01), 0.01), steeper).refuted is False
    assert ExactFinding.of(Claim(steeper.epsilon(0.01), 0.01, gaussian=True), steeper).refuted


KS = [
    ("objective", 0.0, ONE),
    ("objective", 0.01, ONE),
    ("output", 0.01, ONE),
    ("objective", 0.01, ([[1.0, 0.0], [0.3, -0.6]], [1, 0])),
]


def agreement(laws, releases):
    """The least chance, over a few directions, that such releases are draws from the first law."""
    directions = np.array([[1.0]]) if laws.points.shape[1] == 1 else np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    chances = []
    for direction in directions:
        places = laws.points @ direction
        order = np.argsort(places)
        below = np.cumsum(np.exp(laws.first[order]))
        chances.append(stats.kstest(np.interp(releases @ direction, places[order], below), "uniform").pvalue)
    return min(chances)


@pytest.mark.parametrize(("method", "delta", "table"), KS)
def test_the_law_of_real_releases(monkeypatch, method, delta, table):
    model = LogisticRegression(epsilon=2.0, delta=delta, alpha=0.2, method=method, classes=[0, 1], **BOUNDS)
    releases = np.array([model.fit(*table).coef_[0] for _ in range(300)])
    laws = exact_laws(model, table, table, 0.5)
    assert np.exp(laws.first).sum() == pytest.approx(1, abs=1e-3)
    assert agreement(laws, releases) > 1e-6
    right = _Prepared.log_density
    moved = 0.7 * releases.std()
    monkeypatch.setattr(_Prepared, "log_density", lambda self, points: right(self, points - moved))
    assert agreement(exact_laws(model, table, table, 0.5), releases) < 1e-6


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
    assert json.loads(finding.to_json())["refuted"]
    assert "the exact minimiser's epsilon is 3.0" in str(finding)
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
