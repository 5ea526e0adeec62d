"""The exponential mechanism and the sparse vector technique, by exact probabilities on neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from epsilearn.calibration.selection import above_threshold_scales, gumbel_scale


def worst_loss(scale: float, candidates: int = 2000) -> float:
    """Scores that move by 1 in opposite directions, among many candidates: the exponential mechanism's worst pair."""
    first = np.zeros(candidates)
    first[0] = 1.0
    second = np.ones(candidates)
    second[0] = 0.0
    p, q = (np.exp(s / scale) / np.exp(s / scale).sum() for s in (first, second))
    return float(np.abs(np.log(p / q)).max())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_gumbel_scale(epsilon):
    scale = gumbel_scale(1, epsilon)
    assert worst_loss(scale) <= epsilon
    assert worst_loss(0.95 * scale) > epsilon


def test_the_privacy_loss_has_bounded_range():
    """Its spread over outcomes is at most epsilon, which is what gives epsilon**2 / 8."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        scores = generator.normal(size=6)
        moved = scores + generator.uniform(-1, 1, size=6)
        scale = gumbel_scale(1, 0.8)
        p, q = (np.exp(s / scale) / np.exp(s / scale).sum() for s in (scores, moved))
        assert np.ptp(np.log(p / q)) <= 0.8 * (1 + 1e-12)


def probability_of_first_yes_last(values: np.ndarray, threshold_scale: float, question_scale: float) -> float:
    """P(no, no, ..., yes), integrated over the noisy threshold."""

    def given(threshold: float) -> float:
        below = stats.laplace.cdf(threshold - values[:-1], scale=question_scale).prod()
        return below * stats.laplace.sf(threshold - values[-1], scale=question_scale)

    def integrand(x: float) -> float:
        return stats.laplace.pdf(x, scale=threshold_scale) * given(x)

    return sum(
        integrate.quad(integrand, a, b, limit=400, epsabs=0, epsrel=1e-9)[0]
        for a, b in ((-60 * threshold_scale, 0), (0, 60 * threshold_scale))
    )


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_above_threshold_scales_by_quadrature(epsilon):
    """The worst pair: all earlier answers move down by 1 and the last one up by 1."""
    threshold_scale, question_scale = above_threshold_scales(1, epsilon, 1)
    count = 200
    losses = {}
    for factor in (1.0, 0.95, 0.5):
        scales = factor * threshold_scale, factor * question_scale
        worst = 0.0
        for level in (-8.0 / epsilon, -20.0 / epsilon):
            first, second = np.full(count, level), np.full(count, level - 1.0)
            second[-1] = first[-1] + 1.0
            first_p, second_p = (probability_of_first_yes_last(v, *scales) for v in (first, second))
            worst = max(worst, abs(math.log(first_p / second_p)))
        losses[factor] = worst
    assert losses[1.0] <= epsilon
    assert losses[0.5] > epsilon
    # The theorem's own inequality has no slack in its two halves: 1 / scale_T + 2 / scale_Q <= epsilon.
    assert 1 / threshold_scale + 2 / question_scale <= epsilon
    assert 1 / (0.95 * threshold_scale) + 2 / (0.95 * question_scale) > epsilon


def test_more_positives_and_more_rows_need_more_noise():
    assert above_threshold_scales(1, 1, 3) == (6.0, 12.0)
    assert above_threshold_scales(1, 1, 1, rows_per_person=4) == (8.0, 16.0)
    assert gumbel_scale(1, 1, rows_per_person=4) == 8.0
