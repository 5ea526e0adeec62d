"""Releasing minimisers: the right noise in the right place, after the debit and before the solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from epsilearn import Guarantee, Ledger
from epsilearn.errors import BudgetExceeded, ConvergenceError, InvalidInput
from epsilearn.losses import Logistic
from epsilearn.mechanisms import NoiseLaw, minimum
from epsilearn.mechanisms.minimum import Drawn, perturb_objective, perturb_output
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, minimise


@dataclass(frozen=True)
class Found:
    coef: object


PROMISE = Guarantee.pure(0.5)
LAWS = [NoiseLaw("k-norm", 0.3, 4), NoiseLaw("gaussian", 0.3, 4)]
TINY = NoiseLaw("k-norm", 1e-9, 4)


def run_output(law: NoiseLaw, coef: object, seed: int | None = None, **options):
    settings = {"promise": PROMISE, "ledger": None, "purpose": "fit", "random_state": seed, **options}
    return perturb_output(lambda: Found(coef), law=law, **settings)


def run_objective(law: NoiseLaw, solve, seed: int | None = None, polish: NoiseLaw = TINY, **options):
    settings = {"promise": PROMISE, "ledger": None, "purpose": "fit", "random_state": seed, **options}
    return perturb_objective(lambda drawn, _noisy: solve(drawn), law=law, polish=polish, stability=math.inf, **settings)


def norm_law(law: NoiseLaw):
    return stats.gamma(law.dimension, scale=law.scale) if law.kind == "k-norm" else stats.chi(4, scale=law.scale)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_noise_on_the_result(law):
    noise = np.array([run_output(law, np.ones(4), seed).value - 1 for seed in range(4000)])
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, norm_law(law).cdf).pvalue > 1e-3
    assert stats.kstest(0.95 * norms, norm_law(law).cdf).pvalue < 1e-3


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_noise_in_the_objective(law):
    """A 'solver' that hands back the tilt it was given shows the noise it got."""
    noise = np.array([run_objective(law, lambda drawn: Found(drawn.vector), seed).value for seed in range(4000)])
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, norm_law(law).cdf).pvalue > 1e-3
    assert stats.kstest(0.95 * norms, norm_law(law).cdf).pvalue < 1e-3


def test_the_final_noise_hides_the_solvers_error():
    polish = NoiseLaw("k-norm", 0.3, 4)
    noise = np.array([run_objective(LAWS[0], lambda _: Found(np.zeros(4)), s, polish).value for s in range(4000)])
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, stats.gamma(4, scale=0.3).cdf).pvalue > 1e-3
    assert stats.kstest(0.95 * norms, stats.gamma(4, scale=0.3).cdf).pvalue < 1e-3


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_the_rounding_of_drawn_noise_is_bounded(law, monkeypatch):
    drawn: list[Drawn] = []

    def solve(noise: Drawn) -> Found:
        drawn.append(noise)
        return Found(np.zeros(4))

    for bits in (minimum.DRAW_BITS, 50):
        monkeypatch.setattr(minimum, "DRAW_BITS", bits)
        run_objective(law, solve, seed=1)
    coarse, fine = drawn
    distance = np.linalg.norm(coarse.vector - fine.vector)
    assert 0 < distance <= coarse.error
    assert coarse.error < 1e-11 * law.deviation


def test_fractions_go_through_the_door_exactly():
    coef = [Fraction(2**60 + 1), Fraction(1, 3), Fraction(0), Fraction(-5)]
    value = run_output(LAWS[0], coef, seed=3).value
    plain = run_output(LAWS[0], np.zeros(4), seed=3).value
    np.testing.assert_allclose(value - np.array(coef, float), plain, atol=256)
    assert value[1] - plain[1] == pytest.approx(1 / 3, abs=1e-6)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger.create(tmp_path / "b.db", dataset="d", epsilon=0.7)


def both(ledger: Ledger, solve, **options):
    yield lambda: perturb_output(
        solve, law=LAWS[0], promise=PROMISE, ledger=ledger, purpose="fit", random_state=None, **options
    )
    yield lambda: run_objective(LAWS[0], lambda _: solve(), ledger=ledger)


def test_the_debit_comes_first_and_stands(tmp_path):
    def fail():
        assert len(ledger.history()) == 1
        raise ConvergenceError("no convergence")

    for number in range(2):
        ledger = Ledger.create(tmp_path / f"{number}.db", dataset="d", epsilon=0.7)
        with pytest.raises(ConvergenceError):
            list(both(ledger, fail))[number]()
        assert ledger.history()[0]["status"] == "spent, not delivered"


def test_a_refused_fit_is_not_solved(ledger):
    ledger.debit(Guarantee.pure(0.5))
    for run in both(ledger, lambda: pytest.fail("solved without a debit")):
        with pytest.raises(BudgetExceeded):
            run()


def test_noise_that_would_overflow_is_refused(ledger):
    huge = NoiseLaw("gaussian", 1e280, 4)
    with pytest.raises(InvalidInput, match="noise scale"):
        run_output(huge, np.zeros(4), ledger=ledger)
    for law, polish in ((huge, TINY), (LAWS[0], huge)):
        with pytest.raises(InvalidInput, match="noise scale"):
            run_objective(law, lambda _: Found(np.zeros(4)), polish=polish, ledger=ledger)
    assert ledger.history() == []


@pytest.mark.slow
def test_the_released_minimiser_has_the_density_of_the_proof():
    """One column, three rows: the law of the output is (noise density at b(w)) times the Hessian, by quadrature."""
    X, y, strength, scale = np.array([[1.0], [1.0], [-0.5]]), np.array([1.0, -1.0, 1.0]), 0.2, 1.5
    loss, rows = Logistic(), as_rows(X, y, Bounds(1.0, intercept=0.0))

    def solve(drawn: Drawn):
        return minimise(Problem(rows, loss, strength, drawn.vector), 1e-9)

    law, polish = NoiseLaw("k-norm", scale, 1), NoiseLaw("k-norm", 1e-7, 1)
    sample = np.array([run_objective(law, solve, seed, polish).value[0] for seed in range(3000)])
    grid = np.linspace(-60, 60, 200_001)
    tilt, hessian = -3 * strength * grid, np.full_like(grid, 3 * strength)
    for x, target in zip(X[:, 0], y, strict=True):
        labels = np.full_like(grid, target)
        tilt -= loss.slope(grid * x, labels) * x
        hessian += loss.curvature(grid * x, labels) * x * x
    density = np.exp(-np.abs(tilt) / scale) / (2 * scale) * hessian
    cumulated = np.cumsum(density) * (grid[1] - grid[0])
    assert cumulated[-1] == pytest.approx(1, abs=1e-3)
    assert stats.kstest(sample, lambda w: np.interp(w, grid, cumulated)).pvalue > 1e-3
    assert stats.kstest(1.1 * sample, lambda w: np.interp(w, grid, cumulated)).pvalue < 0.05
