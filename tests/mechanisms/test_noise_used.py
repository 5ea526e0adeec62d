"""The noise a mechanism really uses is the one its sensitivity needs: for one row a person, and for several."""

from __future__ import annotations

import math

import numpy as np
import pytest

import epsilearn
from epsilearn import AboveThreshold, GaussianProcess, statistics
from epsilearn.accounting import GaussianShift
from epsilearn.mechanisms import selection

ROWS = pytest.mark.parametrize("rows", [1, 3])
EXACTLY = {"rel": 1e-9}


@ROWS
@pytest.mark.parametrize("value", [1.0, [1.0, 2.0], np.zeros(200)], ids=["number", "vector", "long vector"])
def test_laplace_and_k_norm(rows, value):
    for mechanism in (epsilearn.laplace, epsilearn.k_norm):
        scale = mechanism(value, sensitivity=0.7, epsilon=0.5, rows_per_person=rows).noise.scale
        assert scale == pytest.approx(rows * 0.7 / 0.5, **EXACTLY)
        assert scale >= rows * 0.7 / 0.5


@ROWS
def test_gaussian(rows):
    release = epsilearn.gaussian([1.0], sensitivity=0.7, epsilon=0.5, delta=1e-5, rows_per_person=rows)
    sigma = release.noise.scale
    assert GaussianShift(rows * 0.7 / sigma).delta(0.5) <= 1e-5 * (1 + 1e-9)
    assert GaussianShift(rows * 0.7 / (0.95 * sigma)).delta(0.5) > 1e-5
    assert release.guarantee.curve.shift == pytest.approx(rows * 0.7 / sigma, **EXACTLY)


@pytest.fixture
def gumbel_scales(monkeypatch) -> list[float]:
    """The scales handed to the noisy maximum, which runs as always."""
    seen: list[float] = []
    original = selection.noisy_argmax

    def spy(scores, scale, source):
        seen.append(scale)
        return original(scores, scale, source)

    monkeypatch.setattr(selection, "noisy_argmax", spy)
    return seen


@ROWS
def test_exponential_and_quantile(rows, gumbel_scales):
    epsilearn.exponential(np.zeros(5), sensitivity=0.7, epsilon=0.5, rows_per_person=rows)
    statistics.quantile(np.arange(9.0), bounds=(0, 9), epsilon=0.5, rows_per_person=rows)
    assert gumbel_scales == pytest.approx([2 * rows * 0.7 / 0.5, 2 * rows / 0.5], **EXACTLY)


@ROWS
@pytest.mark.parametrize("positives", [1, 4])
def test_above_threshold(rows, positives):
    session = AboveThreshold(threshold=0, sensitivity=0.7, epsilon=0.5, positives=positives, rows_per_person=rows)
    each = 0.5 / positives
    assert session._threshold_scale == pytest.approx(2 * rows * 0.7 / each, **EXACTLY)
    assert session._question_scale == pytest.approx(4 * rows * 0.7 / each, **EXACTLY)
    assert session.guarantee.curve.pure == 0.5
    assert session.guarantee.curve.rho == pytest.approx(positives * each**2 / 2, **EXACTLY)


@ROWS
def test_statistics(rows):
    options = {"epsilon": 0.5, "rows_per_person": rows}
    column = np.arange(8.0)
    scales = {
        statistics.count(column > 3, **options).noise.scale: 1,
        statistics.sum(column, bounds=(-1, 4), **options).noise.scale: 5,
        statistics.mean(column, bounds=(-1, 4), **options).noise.scale: 5 / 8,
        statistics.variance(column, bounds=(-1, 4), **options).noise.scale: 7 / 64 * 25,
        statistics.histogram(column, edges=[0, 1, 2], **options).noise.scale: 2,
    }
    for scale, sensitivity in scales.items():
        assert scale == pytest.approx(rows * sensitivity / 0.5, **EXACTLY)


@ROWS
def test_histograms_by_brute_force(rows):
    """Move `rows` records from one bin to another: how far the counts go, in both norms."""
    before, after = np.array([5, 5, 5]), np.array([5 - rows, 5 + rows, 5])
    pure = statistics.histogram(["a"], categories=["a", "b", "c"], epsilon=0.5, rows_per_person=rows)
    assert np.abs(before - after).sum() / pure.noise.scale == pytest.approx(0.5, **EXACTLY)
    rounded = statistics.histogram(["a"], categories=["a"], epsilon=0.5, delta=1e-5, rows_per_person=rows)
    shift = np.linalg.norm(before - after) / rounded.noise.scale
    assert GaussianShift(shift).delta(0.5) <= 1e-5 * (1 + 1e-9)
    assert GaussianShift(shift / 0.95).delta(0.5) > 1e-5


def rbf(a, b):
    return np.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))


SPREAD = np.random.default_rng(0).uniform(-1, 1, size=(50, 1))


def opened(**options) -> GaussianProcess:
    settings = {"sensitivity": 0.05, "epsilon": 1.0, "delta": 1e-6, "max_points": 60, **options}
    session = GaussianProcess(rbf, **settings)
    session.release(SPREAD, np.zeros(50))
    return session


@ROWS
def test_gaussian_process(rows):
    session = opened(rows_per_person=rows)
    assert rows * 0.05 <= session._process_noise.law.tau * session.guarantee.curve.shift <= rows * 0.05 * 1.001


def test_the_error_of_function_values_is_paid_for():
    """The worst error vector: each entry off by twice the declared error, along the factor's weakest direction."""
    session = opened(value_error=1e-5)
    points = SPREAD
    factor, tau = session._process_noise._factor.matrix, session._process_noise.law.tau
    weakest = np.linalg.svd(factor)[0][:, -1]
    shift = 0.05 * rbf(points, points)[:, 0] + 2e-5 * np.sign(weakest)
    length = np.linalg.norm(np.linalg.solve(factor, shift)) / tau
    assert length <= session.guarantee.curve.shift
    assert length > 0.05 * session.guarantee.curve.shift


def test_the_error_of_kernel_values_is_paid_for():
    """The true kernel may be larger than the computed one by the declared error, everywhere at once."""
    session = opened(kernel_error=1e-6)
    points = SPREAD
    gap = session._process_noise._factor.matrix @ session._process_noise._factor.matrix.T - (rbf(points, points) + 1e-6)
    assert np.linalg.eigvalsh(gap).min() > 0


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_intervals_of_whole_numbers_cover(epsilon):
    """Rounding to whole numbers widens what the noise alone would do."""
    from scipy import stats

    law = statistics.count([True], epsilon=epsilon).noise
    reach = math.floor(law.half_width(0.95))
    assert 1 - 2 * stats.laplace.sf(reach + 0.5, scale=law.scale) >= 0.95


@pytest.mark.parametrize("name", ["laplace", "exponential"])
def test_what_the_noise_needs_is_loaded_before_the_debit(name, tmp_path, monkeypatch):
    from epsilearn.noise import tables

    def missing(_quantile):
        raise OSError("no table")

    ledger = epsilearn.Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    monkeypatch.setattr(tables, "table_of", missing)
    with pytest.raises(OSError, match="no table"):
        getattr(epsilearn, name)(np.zeros(1000), sensitivity=1, epsilon=0.5, ledger=ledger)
    assert ledger.history() == []


def test_numpys_numbers_will_do(tmp_path):
    from fractions import Fraction

    ledger = epsilearn.Ledger.create(
        tmp_path / "b.db", dataset="d", epsilon=np.float32(2.0), rows_per_person=np.int64(2)
    )
    options = {"sensitivity": np.float32(1), "rows_per_person": np.int64(2), "ledger": ledger}
    epsilearn.laplace(np.float32(3), epsilon=np.float32(0.5), **options)
    epsilearn.exponential(np.zeros(3, np.float32), epsilon=Fraction(1, 2), **options)
    AboveThreshold(threshold=np.int64(3), epsilon=np.float64(0.5), positives=np.int64(2), **options).ask(np.float32(1))
    statistics.count([True], epsilon=np.float32(0.5), rows_per_person=np.int64(2), ledger=ledger)
    assert ledger.balance().spent_epsilon == 2.0
    assert ledger.verify()
