"""Plans come from public numbers and use the noise their theorems need; execution follows them."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy import stats

from epsilearn import Ledger
from epsilearn.calibration.objective import gaussian_loss, pure_loss
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.erm import Plan, Table, execute, plan
from epsilearn.errors import ConvergenceError, InvalidInput
from epsilearn.losses import CappedSoftmax, Huber, HuberisedHinge, Logistic
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, minimise

LOSSES = [Logistic(), HuberisedHinge(0.5), Huber(1.0, 1.0)]


def make_rows(n: int = 300, d: int = 3, seed: int = 0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    return as_rows(X, np.sign(X[:, 0] + generator.normal(size=n)), Bounds(1.0))


TABLE = Table.of(make_rows())
SETTINGS = [{"epsilon": 1.0}, {"epsilon": 0.3, "delta": 1e-5}]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rows_per_person", [1, 3])
def test_output_plans(loss, rows_per_person):
    found = plan(loss, TABLE, strength=0.05, epsilon=0.6, method="output", rows_per_person=rows_per_person)
    sensitivity = minimiser_sensitivity(loss, 300, TABLE.norm, 0.05, found.certificate)
    assert found.law.scale == pytest.approx(rows_per_person * sensitivity / 0.6, rel=1e-9)
    assert found.law.scale >= rows_per_person * sensitivity / 0.6
    assert found.certificate >= 4 * TABLE.rounding(loss, 1.0)
    assert found.promise.epsilon == 0.6
    assert found.promise.rows_per_person == rows_per_person


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rows_per_person", [1, 3])
def test_pure_objective_plans(loss, rows_per_person):
    """Theorem J for the noise in the objective, the solver's error for the noise on the result: together epsilon."""
    found = plan(loss, TABLE, strength=0.05, epsilon=0.6, rows_per_person=rows_per_person)
    main = pure_loss(loss, 300, TABLE.norm, found.strength, 1 / found.law.scale)
    polish = 2 * found.certificate / found.strength / found.polish.scale
    assert 0.99 * 0.6 < (main + polish) * rows_per_person <= 0.6 * (1 + 1e-6)
    less = pure_loss(loss, 300, TABLE.norm, found.strength, 1 / (0.95 * found.law.scale))
    assert (less + polish) * rows_per_person > 0.6


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gaussian_objective_plans(loss):
    found = plan(loss, TABLE, strength=0.05, epsilon=0.6, delta=1e-5)
    polish = 2 * found.certificate / found.strength / found.polish.scale
    assert gaussian_loss(loss, 300, TABLE.norm, found.strength, found.law.scale, 0.6 - polish) <= 1e-5 * (1 + 1e-6)
    assert gaussian_loss(loss, 300, TABLE.norm, found.strength, 0.95 * found.law.scale, 0.6 - polish) > 1e-5


def test_the_polish_is_small_beside_the_noise():
    for options in SETTINGS:
        found = plan(Logistic(), TABLE, strength=0.05, **options)
        in_result = found.law.deviation / (300 * found.strength)
        assert found.polish.deviation < 0.05 * in_result


def test_the_printed_constants_report_what_is_proven():
    lonely = Table(1, 1, 1.0, TABLE.rounding)
    found = plan(Logistic(), lonely, strength=0.01, epsilon=0.1, calibration="paper")
    assert found.promise.claimed_epsilon == 0.1
    assert found.promise.epsilon > 3.2
    assert found.law.scale == pytest.approx(2 / 0.1)
    crowd = Table(10_000, 1, 1.0, TABLE.rounding)
    found = plan(Logistic(), crowd, strength=0.01, epsilon=0.1, calibration="paper")
    assert found.promise.epsilon == pytest.approx(0.101, rel=1e-3)  # the claim, and the polish
    printed = plan(Logistic(), crowd, strength=0.01, epsilon=0.1, calibration="paper", method="output")
    assert printed.law.scale == pytest.approx(2 / (10_000 * 0.01) / 0.1, rel=0.011)


def test_a_strength_that_cannot_be_private_is_raised_and_stated():
    found = plan(Logistic(), TABLE, strength=1e-9, epsilon=0.1)
    assert found.strength > 1e-3
    assert any("alpha used" in a for a in found.promise.assumptions)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "strength": 0.0},
        {"epsilon": 1.0, "method": "magic"},
        {"epsilon": 1.0, "calibration": "loose"},
        {"epsilon": 1.0, "delta": 1e-6, "calibration": "paper"},
        {"epsilon": 1.0, "rows_per_person": 0},
    ],
)
def test_bad_plans(options):
    with pytest.raises(InvalidInput):
        plan(Logistic(), TABLE, **{"strength": 0.1, **options})


@pytest.mark.parametrize("method", ["objective", "output"])
@pytest.mark.parametrize("options", SETTINGS, ids=["pure", "gaussian"])
def test_execution_is_centred_on_the_minimiser(method, options):
    rows = make_rows(n=4000)
    settled = plan(Logistic(), Table.of(rows), strength=0.05, method=method, **options)
    truth = minimise(Problem(rows, Logistic(), settled.strength), 1e-10).coef
    runs = np.array([execute(settled, Logistic(), rows, random_state=s).value for s in range(200)])
    spread = runs.std(axis=0) / math.sqrt(200)
    assert (np.abs(runs.mean(axis=0) - truth) < 5 * spread).all()


def test_output_noise_as_planned():
    rows = make_rows()
    settled = plan(Logistic(), Table.of(rows), strength=0.05, epsilon=1.0, method="output")
    truth = np.array(minimise(Problem(rows, Logistic(), 0.05), 1e-11).coef)
    norms = [np.linalg.norm(execute(settled, Logistic(), rows, random_state=s).value - truth) for s in range(800)]
    assert stats.kstest(norms, stats.gamma(4, scale=settled.law.scale).cdf).pvalue > 1e-3


def test_a_solver_stopped_early_costs_its_budget_and_releases_nothing(tmp_path):
    rows = make_rows()
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    settled: Plan = plan(Logistic(), Table.of(rows), strength=0.05, epsilon=0.5)
    with pytest.raises(ConvergenceError):
        execute(settled, Logistic(), rows, ledger=ledger, limit=1)
    (entry,) = ledger.history()
    assert entry["status"] == "spent, not delivered"
    release = execute(settled, Logistic(), rows, ledger=ledger, purpose="second try")
    assert release.guarantee.ledger.entry == 2


@pytest.mark.parametrize("method", ["objective", "output"])
def test_cut_slopes_have_no_minimiser_to_release(method):
    with pytest.raises(InvalidInput, match="no minimiser"):
        plan(
            CappedSoftmax(3, 1.0),
            Table(100, 4, 1.0, lambda _loss, _reach: 0.0),
            strength=1.0,
            epsilon=1.0,
            delta=1e-6,
            method=method,
        )


def test_a_plan_does_not_carry_the_records():
    rows = as_rows(np.full((50, 2), 0.7263548), np.ones(50), Bounds(1.0))
    carried = pickle.dumps(plan(Logistic(), Table.of(rows), strength=1.0, epsilon=1.0))
    assert np.float64(0.7263548).tobytes() not in carried
    assert len(carried) < 5000


def test_no_record_can_make_arithmetic_raise_after_the_debit():
    """However strict numpy was told to be: a record that underflows is one like any other."""
    X = np.random.default_rng(0).normal(size=(50, 2)) / 4
    X[0] = 5e-324
    rows = as_rows(X, np.ones(50), Bounds(1.0))
    made = plan(Logistic(), Table.of(rows), strength=1.0, epsilon=1.0)
    with np.errstate(all="raise"):
        assert np.isfinite(execute(made, Logistic(), rows).value).all()
