"""Noise in plain floats is told apart by its bits; what leaves by the door is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import epsilearn
from epsilearn import LogisticRegression, statistics
from epsilearn.audit import Claim, audit_bits, judge
from epsilearn.audit.bits import bit_features, reachable
from epsilearn.audit.trials import Runs

SURE = 1 - 1e-6


def numpy_laplace(generator, value, size):
    return value + generator.laplace(size=size)


def textbook_laplace(generator, value, size):
    uniform = generator.random(size) - 0.5
    return value - np.sign(uniform) * np.log(1 - 2 * np.abs(uniform))


def test_lowest_bits():
    numbers = np.array([[1.0], [0.75], [6.0], [2.0**-60], [0.0], [-(1 + 2.0**-52)]])
    assert bit_features(numbers).tolist() == [[0], [-2], [1], [-60], [1100], [-52]]


@pytest.mark.parametrize("noise", [numpy_laplace, textbook_laplace])
@pytest.mark.parametrize("neighbours", [(0.0, 1.0), (0.5, 1.5), (3.0, 4.0)])
def test_plain_floats_are_refuted(noise, neighbours):
    generator = np.random.default_rng()
    releases = [noise(generator, value, 4000) for value in neighbours]
    found = audit_bits(*releases, Claim(1.0), SURE, centres=neighbours, scale=1.0)
    assert found.refuted
    assert "finest bit set" in str(found)


@pytest.mark.parametrize("noise", [numpy_laplace, textbook_laplace])
def test_the_lowest_bit_alone_refutes_zero_and_one(noise):
    """Without knowing anything of the noise: beside 1 no sum has a bit below 2**-53."""
    generator = np.random.default_rng()
    found = audit_bits(noise(generator, 0.0, 4000), noise(generator, 1.0, 4000), Claim(1.0), SURE)
    assert found.refuted
    assert found.grids[0] < found.grids[1] == -53
    assert found.to_dict()["finest_bits"] == found.grids


@pytest.mark.parametrize("noise", [numpy_laplace, textbook_laplace])
@pytest.mark.parametrize("centre", [0.0, 1.0, 0.3])
def test_what_was_reached_is_reachable(noise, centre):
    """No release is ever said to be out of reach of where it came from; most are out of reach from elsewhere."""
    releases = noise(np.random.default_rng(), centre, 3000)[:, None]
    assert reachable(releases, np.full_like(releases, centre), 1.0).all()
    assert reachable(releases, np.full_like(releases, centre + math.pi), 1.0).mean() < 0.9


OURS = {
    "laplace": (lambda value: epsilearn.laplace(value, sensitivity=1, epsilon=1.0), (0.0, 1.0)),
    "gaussian": (lambda value: epsilearn.gaussian(value, sensitivity=1, epsilon=1.0, delta=1e-3), (0.0, 1.0)),
    "k_norm": (lambda value: epsilearn.k_norm(value, sensitivity=1, epsilon=1.0), ([0.0, 0.0], [0.6, 0.8])),
    "count": (lambda flags: statistics.count(flags, epsilon=1.0), ([True, False], [True, True])),
    "mean": (lambda ages: statistics.mean(ages, bounds=(0, 1), epsilon=1.0), ([0.1, 0.0], [0.1, 1.0])),
}


@pytest.mark.parametrize("name", OURS)
def test_ours_are_not(name):
    mechanism, neighbours = OURS[name]
    first, second = Runs(mechanism, *neighbours).collect(400)
    centres = neighbours if name in ("laplace", "gaussian") else None
    found = audit_bits(first, second, Claim(1.0, 1e-3 if name == "gaussian" else 0.0), SURE, centres=centres, scale=1.0)
    assert not found.refuted
    # The grid is public: it does not depend on the data set.
    assert found.grids[0] == found.grids[1]


def test_weights_are_not():
    model = LogisticRegression(epsilon=1.0, alpha=1.0, data_norm=1.0, classes=[0, 1], fit_intercept=False)
    X = np.array([[1.0], [0.3]])
    first, second = Runs(model, (X, [1, 0]), (X, [0, 0])).collect(200)
    found = audit_bits(first[:, :1], second[:, :1], Claim(1.0), SURE)
    assert not found.refuted
    assert found.grids[0] == found.grids[1]


def on_a_grid(generator, value, scale, size):
    return np.rint((value + generator.laplace(scale=scale, size=size)) * 2**10) / 2**10


def test_bits_of_a_true_claim():
    """Noise whose bits say nothing: at a low confidence the claim falls no more often than it may."""
    generator = np.random.default_rng()
    findings = [
        audit_bits(on_a_grid(generator, 0.0, 1.0, 400), on_a_grid(generator, 1.0, 1.0, 400), Claim(1.0), 0.7)
        for _ in range(30)
    ]
    assert sum(finding.refuted for finding in findings) <= stats.binom.isf(1e-6, 30, 0.3)


def test_magnitudes_are_no_affair_of_the_bits():
    """A third of the noise, on a public grid: a false claim, but nothing is wrong with the bits."""
    generator = np.random.default_rng()
    releases = on_a_grid(generator, 0.0, 1 / 3, 4000), on_a_grid(generator, 1.0, 1 / 3, 4000)
    assert judge(*releases, Claim(1.0), SURE).refuted
    assert not audit_bits(*releases, Claim(1.0), SURE).refuted
