"""Attacks stay below the limit of a true claim, pass that of a false one, and take estimators and released models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from epsilearn import LinearRegression, LinearSVC, LogisticRegression
from epsilearn.audit import Claim, membership_attack
from epsilearn.audit.membership import Membership, attack, belief
from epsilearn.explanation import detection_rate

SURE = 1 - 1e-6


def laplace(epsilon, size, generator):
    return [generator.laplace(centre, 1 / epsilon, (size, 1)) for centre in (0.0, 1.0)]


def test_a_true_limit_is_passed_no_more_often_than_may_be():
    generator = np.random.default_rng()
    wrong = sum(attack(*laplace(1.0, 200, generator), Claim(1.0), 0.7).refuted for _ in range(40))
    assert wrong <= stats.binom.isf(1e-6, 40, 0.3)


def test_a_false_limit_is_passed():
    found = attack(*laplace(3.0, 2000, np.random.default_rng()), Claim(1.0), SURE)
    assert found.refuted
    assert found.area > 0.8
    assert str(found).startswith("REFUTED")


def test_the_curve_of_known_scores():
    inside, outside = np.array([3.0, 2.0, 1.0, 0.0]), np.array([2.0, 1.0, 0.0, -1.0])
    found = Membership(Claim(1.0), 0.9, "given", inside, outside)
    alarms, hits = found.curve()
    assert alarms.tolist() == [0, 0, 0.25, 0.5, 0.75, 1]
    assert hits.tolist() == [0, 0.25, 0.5, 0.75, 1, 1]
    assert found.advantage == 0.25
    assert found.area == pytest.approx(0.71875)
    assert found.limit(0.05) == detection_rate(1.0, 0.0, 0.05)
    assert [point["alarms"] for point in found.to_dict()["curve"]] == [0.001, 0.01, 0.05, 0.1, 0.5]


def test_the_limit_of_a_gaussian_curve():
    claim = Claim(1.0, 0.01, gaussian=True)
    assert claim.limit(0.05) < Claim(1.0, 0.01).limit(0.05)
    assert (claim.limit(0.0), claim.limit(1.0), Claim(1.0, 0.01).limit(0.0)) == (0.0, 1.0, 0.01)


def test_a_score_of_ones_own_and_a_learned_one():
    model = LogisticRegression(epsilon=4.0, method="output", alpha=1.0, data_norm=1.0, classes=[0, 1])
    inside, outside = ([[1.0]], [1]), ([[1.0]], [0])
    options = {"trials": 200, "confidence": SURE}
    by_loss = membership_attack(model, inside, outside, Claim(4.0), score=lambda m: belief(m, [[1.0]], 1), **options)
    learned = membership_attack(model, inside, outside, Claim(4.0), **options)
    for found, trials in ((by_loss, 200), (learned, 100)):
        assert not found.refuted
        assert found.trials == trials
        assert found.area > 0.6


def test_belief_in_a_record():
    X, y = np.array([[1.0], [-1.0]] * 500), np.array([1, 0] * 500)
    settings = {"epsilon": 50.0, "data_norm": 1.0, "alpha": 0.1}
    logistic = LogisticRegression(classes=[0, 1], **settings).fit(X, y)
    assert np.log(0.5) < belief(logistic, [[1.0]], 1) < 0
    assert belief(logistic, [[1.0]], 0) < np.log(0.5)
    svc = LinearSVC(classes=[0, 1], **settings).fit(X, y)
    assert belief(svc, [[1.0]], 1) == -belief(svc, [[1.0]], 0) > 0
    numbers = LinearRegression(target_bound=1.0, **settings).fit(X, y)
    assert belief(numbers, [[1.0]], 1.0) > belief(numbers, [[1.0]], -1.0)
