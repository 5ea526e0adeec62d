"""Each loss's declared bounds against brute force over scores and targets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from epsilearn.errors import InvalidInput
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Squared

LOSSES = [
    Logistic(),
    HuberisedHinge(0.5),
    HuberisedHinge(0.1),
    HuberisedHinge(1.5),
    Squared(1.0),
    Squared(3.0),
    Huber(1.0, 1.0),
    Huber(0.3, 2.0),
    Huber(5.0, 1.0),
]
SCORES = np.linspace(-30, 30, 60_001)


def targets(loss) -> list[float]:
    bound = 1.0 if loss.classifies else loss.target_bound
    return [-bound, bound] if loss.classifies else list(np.linspace(-bound, bound, 9))


def over_all(loss, function, scores: np.ndarray = SCORES) -> float:
    return max(float(np.max(function(scores, np.full_like(scores, y)))) for y in targets(loss))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
class TestEveryLoss:
    def test_slope_and_curvature_are_derivatives(self, loss):
        step = 1e-6
        for y in targets(loss):
            target = np.full_like(SCORES, y)
            numeric = (loss.value(SCORES + step, target) - loss.value(SCORES - step, target)) / (2 * step)
            np.testing.assert_allclose(loss.slope(SCORES, target), numeric, atol=1e-5)
            numeric = (loss.slope(SCORES + step, target) - loss.slope(SCORES - step, target)) / (2 * step)
            differs = np.abs(loss.curvature(SCORES, target) - numeric) > 1e-3
            assert differs.sum() <= 4  # only where the curvature jumps

    def test_it_is_convex_and_not_negative(self, loss):
        for y in targets(loss):
            target = np.full_like(SCORES, y)
            assert (loss.value(SCORES, target) >= 0).all()
            assert (np.diff(loss.slope(SCORES, target)) >= -1e-12).all()

    def test_bounds_hold_and_are_tight(self, loss):
        if math.isfinite(loss.lipschitz):
            steepest = over_all(loss, lambda s, y: np.abs(loss.slope(s, y)))
            assert loss.lipschitz * (1 - 1e-9) <= steepest <= loss.lipschitz or steepest > 0.999 * loss.lipschitz
        assert over_all(loss, loss.curvature) == pytest.approx(loss.smoothness, rel=1e-6)
        assert over_all(loss, loss.value, np.zeros(1)) == pytest.approx(loss.at_zero, rel=1e-12)

    def test_steepness_at_a_score(self, loss):
        for score in (0.0, 0.1, 0.7, 1.0, 2.5, 10.0):
            found = over_all(loss, lambda s, y: np.abs(loss.slope(s, y)), np.array([-score, score]))
            assert found <= loss.steepest(score) * (1 + 1e-12)

    def test_the_pull_outwards(self, loss):
        for reach in (0.05, 0.3, 0.9, 1.3, 4.0, 20.0):
            scores = np.linspace(-reach, reach, 20_001)
            found = over_all(loss, lambda s, y: -s * loss.slope(s, y), scores)
            assert found <= loss.pull(reach) * (1 + 1e-9)
            assert found >= loss.pull(reach) * (1 - 1e-3)

    def test_curvature_against_slope(self, loss):
        if not math.isfinite(loss.lipschitz):
            return
        for y in targets(loss):
            target = np.full_like(SCORES, y)
            slopes, curvatures = np.abs(loss.slope(SCORES, target)), loss.curvature(SCORES, target)
            assert all(c <= loss.curvature_at(s) + 1e-12 for s, c in zip(slopes[::50], curvatures[::50], strict=True))


def test_bad_parameters():
    for make in (lambda: HuberisedHinge(0.0), lambda: Squared(-1.0), lambda: Huber(math.nan), lambda: Huber(1.0, 0.0)):
        with pytest.raises(InvalidInput):
            make()


def test_logistic_far_out_does_not_overflow():
    scores = np.array([-1e4, 1e4])
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(Logistic().value(scores, np.ones(2))).all()
        np.testing.assert_allclose(Logistic().slope(scores, np.ones(2)), [-1, 0], atol=1e-300)
