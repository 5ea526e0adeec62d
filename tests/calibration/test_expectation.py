from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from epsilearn.calibration.expectation import EASY, HARD, Signal, _accuracy, accuracy_lost, error_added
from epsilearn.calibration.fit import FitNoise, planned_noise
from epsilearn.losses import Huber, Logistic


def noise_at(epsilon, rows=5000, columns=20, method="objective", loss=None):
    return planned_noise(loss or Logistic(), rows, columns, 1.0, 1e-3, epsilon, 1e-6, method)


@pytest.mark.parametrize("signal", [EASY, HARD])
@pytest.mark.parametrize("method", ["objective", "output"])
def test_more_budget_loses_less(signal, method):
    lost = [accuracy_lost(noise_at(e, method=method), 5000, 20, 1.0, signal) for e in (0.01, 0.1, 1, 10, 100)]
    assert lost == sorted(lost, reverse=True)
    assert 0 <= lost[-1] < lost[0] < 0.5


@pytest.mark.parametrize("method", ["objective", "output"])
def test_no_noise_and_no_regularisation_lose_nothing(method):
    noise = FitNoise(method, False, 20, 1e-12, 1e-12, 1e-12)
    assert accuracy_lost(noise, 5000, 20, 1.0, HARD) == pytest.approx(0, abs=1e-5)
    assert error_added(noise, 5000, 20, 1.0, 1.0, HARD) == pytest.approx(0, abs=1e-5)


def test_nothing_but_noise_is_guessing():
    noise = FitNoise("output", False, 20, 1e-3, 1e9, 1e-12)
    assert accuracy_lost(noise, 5000, 20, 1.0, EASY) == pytest.approx(_accuracy(1.0, EASY.spread) - 0.5, abs=1e-4)
    crushed = FitNoise("objective", False, 20, 1e300, 1e-9, 1e-12)
    assert accuracy_lost(crushed, 5000, 20, 1.0, EASY) <= _accuracy(1.0, EASY.spread) - 0.5 + 1e-9


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("spread", [0.5, 3.0, 5.0])
def test_accuracy_against_an_integral(correlation, spread):
    rest = math.sqrt(max(1 - correlation**2, 1e-12))

    def right(z):
        yes = stats.norm.cdf(correlation * z / rest)
        truth = 1 / (1 + math.exp(-spread * z))
        return stats.norm.pdf(z) * (yes * truth + (1 - yes) * (1 - truth))

    expected = integrate.quad(right, -9, 0)[0] + integrate.quad(right, 0, 9)[0]
    assert _accuracy(correlation, spread) == pytest.approx(expected, abs=2e-3)


def test_added_error_against_a_simulation():
    """Directions, shrinking and noise as the module's text states them, drawn rather than summed."""
    rows, columns, half, signal = 1000, 5, 2.0, Signal(1.0, 2.5, 3.0)
    noise = noise_at(1.0, rows, columns, loss=Huber(target_bound=half))
    chance, j = np.random.default_rng(0), np.arange(1, columns + 1)
    spread = 0.5 * j**-1.0 / (j**-1.0).sum()
    share = j**-2.5 / (j**-2.5).sum() * (half / 3) ** 2
    points = chance.normal(size=(400, columns)) * np.sqrt(spread)
    best = np.sqrt(share / spread)
    kept = spread / (spread + noise.strength)
    b = chance.normal(size=(4000, columns)) * noise.deviation / rows
    private = kept * best + b / (spread + noise.strength)
    simulated = math.sqrt((((private - best) @ points.T) ** 2).mean())
    assert error_added(noise, rows, columns, 1.0, half, signal) == pytest.approx(simulated, rel=0.1)


def test_more_directions_than_anybody_counts():
    noise = noise_at(1.0, columns=10**6)
    assert 0 < accuracy_lost(noise, 5000, 10**6, 1.0, EASY) < 0.5
    assert math.isfinite(error_added(noise, 5000, 10**6, 1.0, 1.0, HARD))


def test_an_easy_table_loses_less_than_a_hard_one():
    for epsilon in (0.1, 1.0, 10.0):
        noise = noise_at(epsilon, 50_000, 100)
        assert accuracy_lost(noise, 50_000, 100, 1.0, EASY) < accuracy_lost(noise, 50_000, 100, 1.0, HARD)
