"""Noisy gradient descent: shifts add up, slopes are as short as they say, and every gradient gets its noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from epsilearn import LogisticRegression, erm
from epsilearn.calibration.additive import gaussian_delta
from epsilearn.calibration.centring import shifted_centring
from epsilearn.calibration.gradient import planned_descent, record_shift
from epsilearn.errors import InvalidInput
from epsilearn.losses import CappedSoftmax, Huber, HuberisedHinge, Logistic, Squared
from epsilearn.mechanisms import minimum
from epsilearn.rows import Bounds, as_rows


@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-3)])
@pytest.mark.parametrize("time", [1.0, 300.0, 1e6])
def test_all_releases_together_keep_the_promise(epsilon, delta, time, people):
    shift = record_shift(epsilon, delta, people)
    centring = shifted_centring(1000, 5, shift)
    found = planned_descent(shift, centring, time, 1.0)
    squares = found.steps * Fraction(found.shift) ** 2 + Fraction(centring.shift) ** 2
    assert float(Fraction(shift) ** 2) * (1 - 1e-6) < squares <= Fraction(shift) ** 2
    assert float(gaussian_delta(people * shift, epsilon).upper()) <= delta
    # A gradient that moves by 1, with 5 % less noise than that: the promise is broken.
    less = people * math.sqrt(found.steps / (0.95 * found.scale(1.0)) ** 2 + (centring.shift / 0.95) ** 2)
    assert float(gaussian_delta(less, epsilon).lower()) > 1.05 * delta


def test_steps_follow_the_time_within_bounds():
    steps = [planned_descent(0.1, None, time, 1.0).steps for time in (0.1, 150.0, 300.0, 1e9)]
    assert steps == [30, 50, 80, 80]


@pytest.mark.parametrize("loss", [Logistic(), Logistic(3.0), HuberisedHinge(0.5), Huber(0.5, 1.0)], ids=repr)
def test_what_one_record_can_do_to_a_gradient(loss):
    generator = np.random.default_rng(0)
    moved = 0.0
    for _ in range(300):
        X, weights = generator.normal(size=(2, 3)), generator.normal(size=4) * 10.0 ** generator.uniform(-1, 2)
        y = generator.choice([-1.0, 1.0], size=2)
        each = [as_rows(X[[i]], y[[i]], Bounds(1.0, 0.15)) for i in (0, 1)]
        moved = max(moved, float(np.linalg.norm(each[0].gradient(loss, weights) - each[1].gradient(loss, weights))))
    limit = 2 * loss.lipschitz * Bounds(1.0, 0.15).norm
    assert 0.7 * limit < moved <= limit * (1 + 1e-12)


@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("margin", [0.0, 3.0])
def test_capped_slopes(classes, margin):
    generator = np.random.default_rng(0)
    loss = CappedSoftmax(classes, margin)
    scores = generator.normal(size=(classes - 1, 4000)) * 10.0 ** generator.uniform(-2, 3, size=4000)
    target = generator.integers(classes, size=4000).astype(float)
    slopes = loss.slope(scores, target)
    lengths = np.linalg.norm(slopes, axis=0)
    assert lengths.max() <= loss.lipschitz
    assert np.mean(lengths > 0.999) > 0.2
    # Where they are shorter they are the softmax loss's own, with the true class's score lowered.
    logits = loss.basis @ scores
    logits[target.astype(int), np.arange(4000)] -= margin
    shares = np.exp(logits - logits.max(axis=0))
    shares /= shares.sum(axis=0)
    shares[target.astype(int), np.arange(4000)] -= 1
    own = loss.basis.T @ shares
    short = np.linalg.norm(own, axis=0) < 0.999
    assert short.any()
    assert slopes[:, short] == pytest.approx(own[:, short], abs=1e-12)


@pytest.mark.parametrize("loss", [CappedSoftmax(4, 3.0), Logistic(3.0)], ids=repr)
def test_the_gradient_alone_is_the_sums_gradient(loss):
    generator = np.random.default_rng(0)
    target = generator.integers(4, size=700).astype(float) if loss.outputs > 1 else generator.choice([-1.0, 1.0], 700)
    rows = as_rows(generator.normal(size=(700, 3)), target, Bounds(1.0))
    weights = generator.normal(size=4 * loss.outputs)
    assert rows.gradient(loss, weights) == pytest.approx(rows.sums(loss, weights).gradient, abs=1e-14)


def test_every_gradient_and_the_centre_get_their_noise(monkeypatch):
    """What passes through the door: two sums and as many gradients as were planned, each with enough noise."""
    seen = []
    original = minimum.add_noise

    def watched(values, law, source):
        seen.append((np.size(values), law.scale))
        return original(values, law, source)

    monkeypatch.setattr(minimum, "add_noise", watched)
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(2000, 4)), generator.integers(3, size=2000)
    model = LogisticRegression(epsilon=2.0, delta=1e-5, data_norm=1.0, classes=[0, 1, 2], centre=True)
    plan = model.plan(rows=2000, features=4)
    model.fit(X, y)
    assert (plan.method, model.guarantee_.mechanism) == ("gradient", "noisy gradient descent on centred rows")
    assert [size for size, _ in seen] == [4, 1, *[10] * plan.descent.steps]
    norm = Bounds(1.0, 0.15).norm
    assert all(2 * norm / 2000 / scale <= plan.descent.shift for _, scale in seen[2:])
    assert all(2 * norm / 2000 / (0.95 * scale) > plan.descent.shift for _, scale in seen[2:])
    assert seen[0][1] == plan.centring.mean
    assert seen[1][1] == plan.centring.spread


def test_what_noisy_gradients_cannot_do():
    table = erm.Table(100, 3, 1.0, lambda _loss, _reach: 0.0)
    with pytest.raises(InvalidInput, match="delta above 0"):
        erm.plan(Logistic(), table, strength=0.1, epsilon=1.0, method="gradient")
    with pytest.raises(InvalidInput, match="bounded slope"):
        erm.plan(Squared(), table, strength=0.1, epsilon=1.0, delta=1e-6, method="gradient")


def test_the_promise_is_a_normal_shift():
    plan = erm.plan(
        Logistic(),
        erm.Table(100, 3, 1.0, lambda _loss, _reach: 0.0),
        strength=0.1,
        epsilon=1.0,
        delta=1e-6,
        method="gradient",
    )
    assert plan.promise.curve.kind == "gaussian"
    assert "the solver reaches its certificate" not in plan.promise.assumptions
