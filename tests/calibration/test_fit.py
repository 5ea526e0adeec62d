"""The noise of a whole fit: its parts stay within the budget, and leave the solver something to reach."""

from __future__ import annotations

import math

import pytest

from epsilearn.calibration.fit import planned_noise, stable_minimiser
from epsilearn.calibration.objective import gaussian_loss, pure_loss
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Softmax
from epsilearn.mechanisms.minimum import drawing_error
from epsilearn.mechanisms.release import NoiseLaw

LOSSES = [Logistic(), HuberisedHinge(0.5), Huber(0.5, 1.0), Softmax(4)]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("columns", [1, 50, 100_000])
@pytest.mark.parametrize("strength", [1e-9, 1e-3, 10.0])
def test_the_certificate_leaves_room_for_the_noises_own_rounding(loss, delta, columns, strength):
    """b is drawn to a grid, and that error is the solver's first: what is left must be most of the certificate."""
    found = planned_noise(loss, 10**6, columns, 1.0, strength, 0.5, delta, "objective")
    law = NoiseLaw("gaussian" if delta else "k-norm", found.scale, found.dimension)
    assert found.dimension == columns * loss.outputs
    assert found.deviation == pytest.approx(law.deviation)
    assert found.certificate >= 10 * drawing_error(law) / 10**6


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_parts_of_objective_perturbation_add_up_to_the_budget(loss, people, delta):
    found = planned_noise(loss, 5000, 4, 1.2, 0.05, 0.6, delta, "objective", people, lambda _loss, _reach: 1e-12)
    # K-norm noise of that scale on a solution that is off by the certificate over the strength, on either side.
    polish = 2 * found.certificate / found.strength / found.polish
    assert polish <= found.polish_epsilon
    left = 0.6 / people - polish
    if delta:
        share = delta * math.expm1(0.6 / people) / math.expm1(0.6) if people > 1 else delta
        assert gaussian_loss(loss, 5000, 1.2, found.strength, found.scale, left) <= share * (1 + 1e-9)
        assert gaussian_loss(loss, 5000, 1.2, found.strength, 0.95 * found.scale, left) > 1.2 * share
    else:
        assert pure_loss(loss, 5000, 1.2, found.strength, 1 / found.scale) <= left
        assert pure_loss(loss, 5000, 1.2, found.strength, 1 / (0.95 * found.scale)) > left


@pytest.mark.parametrize("method", ["objective", "output"])
def test_no_certificate_is_asked_for_that_doubles_cannot_give(method):
    rough = planned_noise(Logistic(), 5000, 4, 1.2, 0.05, 0.6, 0.0, method, rounding=lambda _loss, _reach: 1e-3)
    assert rough.certificate >= 4e-3
    exact = planned_noise(Logistic(), 5000, 4, 1.2, 0.05, 0.6, 0.0, method)
    assert 0 < exact.certificate < 1e-4
    # And what the solver may leave is paid for.
    if method == "output":
        assert rough.scale >= (minimiser_sensitivity(Logistic(), 5000, 1.2, 0.05) + 2 * 4e-3 / 0.05) / 0.6
    else:
        assert rough.polish >= 2 * 4e-3 / rough.strength / rough.polish_epsilon


def test_the_rounding_is_asked_for_where_the_weights_may_be():
    asked: list[float] = []

    def rounding(_loss, reach: float) -> float:
        asked.append(reach)
        return 0.0

    certificate, sensitivity = stable_minimiser(Logistic(), 100, 1.0, 0.1, rounding, tight=True)
    assert asked[-1] >= math.sqrt(0.27846 / 0.1)
    assert sensitivity == pytest.approx(minimiser_sensitivity(Logistic(), 100, 1.0, 0.1) + 2 * certificate / 0.1)
    found = planned_noise(Logistic(), 100, 3, 1.0, 0.1, 1.0, 0.0, "objective", rounding=rounding)
    # The noise in the objective moves the minimiser by its length over n times the strength.
    assert asked[-1] >= math.sqrt(0.27846 / 0.1) + 3 * found.scale * math.sqrt(3) / (100 * 0.1)
