"""One contract for every mechanism: promise, debit, noise, release, in that order, whatever goes wrong."""

from __future__ import annotations

import copy
import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import epsilearn
from epsilearn import Ledger
from epsilearn.errors import BudgetExceeded, EntropyError, InvalidInput
from epsilearn.noise import bits as bits_module


def rbf(a, b):
    return np.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))


def process(**options):
    session = epsilearn.GaussianProcess(rbf, sensitivity=0.1, delta=1e-6, max_points=10, **options)
    return session, session.release(np.array([[0.0], [1.0]]), np.zeros(2)).value


def threshold(**options):
    session = epsilearn.AboveThreshold(threshold=0.0, sensitivity=1.0, positives=3, **options)
    return session, [session.ask(1e9) for _ in range(3)]


def one_shot(function, value, **fixed):
    def run(**options):
        release = function(value, **fixed, **options)
        return release, release.value

    return run


MECHANISMS = {
    "laplace": one_shot(epsilearn.laplace, 3.0, sensitivity=1.0),
    "laplace vector": one_shot(epsilearn.laplace, [1.0, 2.0], sensitivity=1.0),
    "long laplace vector": one_shot(epsilearn.laplace, np.zeros(500), sensitivity=1.0),
    "k-norm": one_shot(epsilearn.k_norm, [1.0, 2.0, 3.0], sensitivity=1.0),
    "gaussian": one_shot(epsilearn.gaussian, [1.0, 2.0], sensitivity=1.0, delta=1e-6),
    "exponential": one_shot(epsilearn.exponential, np.zeros(1000), sensitivity=1.0),
    "above threshold": threshold,
    "gaussian process": process,
}


@pytest.fixture(params=MECHANISMS)
def mechanism(request):
    return MECHANISMS[request.param]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", dataset="patients", epsilon=1.0, delta=1e-5)


def test_it_promises_what_was_asked(mechanism):
    release, _ = mechanism(epsilon=0.7)
    assert release.guarantee.epsilon == 0.7
    assert release.guarantee.void_reason is None
    assert release.guarantee.curve.epsilon(release.guarantee.delta) <= 0.7 * (1 + 1e-9)
    assert release.guarantee.relation == "replace-one"
    assert release.guarantee.assumptions


def test_it_debits_the_ledger_and_is_stamped(mechanism, ledger):
    release, _ = mechanism(epsilon=0.4, ledger=ledger, purpose="testing")
    (entry,) = ledger.history()
    assert entry["guarantee"]["epsilon"] == 0.4
    assert entry["purpose"] == "testing"
    assert entry["status"] == "delivered"
    assert release.guarantee.ledger.entry == entry["entry"]
    assert ledger.verify(release.guarantee.ledger.head)


def test_a_refused_request_draws_no_noise(mechanism, ledger, monkeypatch):
    mechanism(epsilon=0.9, ledger=ledger)
    bits_module._forget_buffer()
    monkeypatch.setattr(os, "urandom", lambda _: pytest.fail("noise was drawn before the debit"))
    with pytest.raises(BudgetExceeded, match=r"requested epsilon 0\.95"):
        mechanism(epsilon=0.95, ledger=ledger)
    assert len(ledger.history()) == 1


def test_a_failure_after_the_debit_is_spent_not_delivered(mechanism, ledger, monkeypatch, request):
    def fail(_count):
        raise OSError

    bits_module._forget_buffer()
    monkeypatch.setattr(os, "urandom", fail)
    try:
        mechanism(epsilon=0.4, ledger=ledger)
    except EntropyError:
        pass
    else:
        pytest.fail("something was released without random bits")
    (entry,) = ledger.history()
    # A session is delivered when it is opened; what fails is its first answer.
    session = request.node.callspec.params["mechanism"] in ("above threshold", "gaussian process")
    assert session or entry["status"] == "spent, not delivered"


def test_seeds_repeat_void_the_promise_and_are_refused_by_a_ledger(mechanism, ledger):
    (release, first), (_, second) = mechanism(epsilon=0.5, random_state=1), mechanism(epsilon=0.5, random_state=1)
    np.testing.assert_array_equal(first, second)
    assert release.guarantee.epsilon == math.inf
    assert release.guarantee.void_reason == "seeded"
    with pytest.raises(BudgetExceeded, match="seeded"):
        mechanism(epsilon=0.5, random_state=1, ledger=ledger)
    assert ledger.history() == []


def test_unseeded_runs_differ(mechanism, request):
    outcomes = [np.asarray(mechanism(epsilon=0.01)[1], float).tolist() for _ in range(40)]
    if request.node.callspec.params["mechanism"] != "above threshold":
        assert len({str(o) for o in outcomes}) > 1


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, "1", None])
def test_bad_budgets_cost_nothing(mechanism, ledger, epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        mechanism(epsilon=epsilon, ledger=ledger)
    assert ledger.history() == []


@pytest.mark.parametrize("epsilon", [1e-300, 1e300])
def test_noise_that_would_overflow_is_refused(mechanism, ledger, epsilon, request):
    name = request.node.callspec.params["mechanism"]
    if "gaussian" in name:  # delta bounds its noise from both sides: there is nothing to overflow
        assert np.isfinite(np.asarray(mechanism(epsilon=epsilon)[1], float)).all()
        return
    with pytest.raises(InvalidInput, match="noise scale"):
        mechanism(epsilon=epsilon, ledger=ledger)
    assert ledger.history() == []


@pytest.mark.parametrize("rows", [0, -1, 1.5, True])
def test_bad_rows_per_person(mechanism, rows):
    with pytest.raises(InvalidInput, match="rows_per_person"):
        mechanism(epsilon=1.0, rows_per_person=rows)


def test_the_unit_is_named_and_must_fit_the_ledger(mechanism, ledger):
    release, _ = mechanism(epsilon=0.5, rows_per_person=4)
    assert release.guarantee.unit == "person with up to 4 records"
    with pytest.raises(BudgetExceeded, match="rows_per_person=4"):
        mechanism(epsilon=0.5, rows_per_person=4, ledger=ledger)


def test_releases_can_be_stored_and_sessions_cannot(mechanism):
    release, _ = mechanism(epsilon=0.5)
    if isinstance(release, epsilearn.mechanisms.Release):
        assert pickle.loads(pickle.dumps(release)).guarantee == release.guarantee
        return
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(epsilearn.errors.StateError, match="reuse its noise"):
            copier(release)
