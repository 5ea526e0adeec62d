"""What epsilon means, against brute force over adversaries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from epsilearn import explain
from epsilearn.errors import InvalidInput
from epsilearn.explanation import detection_rate, winning_probability


def test_the_numbers_of_the_lecture():
    meaning = explain(1.0)
    assert meaning.winning_probability == pytest.approx(0.731, abs=5e-4)
    assert meaning.lecture_winning_bound == pytest.approx(1.359, abs=5e-4)
    assert meaning.posterior_shift == pytest.approx(math.tanh(0.5), abs=1e-12)
    assert meaning.lecture_posterior_bound == pytest.approx(math.exp(2) - 1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("candidates", [2, 3, 10])
def test_randomised_response_attains_the_winning_probability(epsilon, candidates):
    """m-ary randomised response is epsilon-private, and Bob wins exactly this often: the bound is tight."""
    truth = math.exp(epsilon) / (math.exp(epsilon) + candidates - 1)
    assert winning_probability(epsilon, 0.0, candidates) == pytest.approx(truth, rel=1e-12)
    assert winning_probability(epsilon, 0.0, candidates) >= truth - 1e-15


@pytest.mark.parametrize("delta", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("candidates", [2, 4])
def test_the_winning_probability_with_delta_is_tight(delta, candidates):
    """With probability delta the value itself comes out, otherwise randomised response."""
    epsilon = 0.8
    response = math.exp(epsilon) / (math.exp(epsilon) + candidates - 1)
    attained = delta + (1 - delta) * response
    bound = winning_probability(epsilon, delta, candidates)
    assert attained <= bound + 1e-12
    assert bound == pytest.approx(attained, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
def test_no_private_pair_moves_beliefs_further_than_the_bound(epsilon):
    """Random likelihoods within e**epsilon of each other, random priors; and a pair that attains the bound."""
    bound = explain(epsilon).posterior_shift
    generator, worst = np.random.default_rng(0), 0.0
    for _ in range(3000):
        prior = generator.dirichlet(np.full(4, 0.5))
        likelihood = generator.uniform(0.1, 1, 4)
        other = likelihood * np.exp(generator.choice([-epsilon, epsilon], 4))
        posterior, alternative = (x * prior / (x @ prior) for x in (likelihood, other))
        worst = max(worst, np.abs(posterior - alternative).max())
    assert worst <= bound + 1e-12
    sigma = 1 / (1 + math.exp(-epsilon))
    assert sigma - (1 - sigma) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.01), (1.0, 1e-3)])
def test_with_delta_beliefs_about_two_values_move_too_far_only_rarely(epsilon, delta):
    """On the dominating pair, the chance of a shift beyond the bound stays below the stated exception."""
    meaning = explain(epsilon, delta)
    yes, no = ((1 - delta) / (1 + math.exp(s * epsilon)) for s in (-1, 1))
    p, q = np.array([delta, yes, no, 0.0]), np.array([0.0, no, yes, delta])
    for prior in np.linspace(0.01, 0.99, 99):
        posterior = prior * p / (prior * p + (1 - prior) * q)
        too_far = np.abs(posterior - prior) > meaning.posterior_shift + 1e-12
        assert p[too_far].sum() <= meaning.posterior_exception
        assert q[too_far].sum() <= meaning.posterior_exception


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 0.01), (3.0, 0.1)])
def test_no_test_detects_more(epsilon, delta):
    """All tests on the dominating pair (fail openly with delta, else randomised response), enumerated."""
    yes = (1 - delta) / (1 + math.exp(-epsilon))
    no = (1 - delta) / (1 + math.exp(epsilon))
    p, q = np.array([delta, yes, no, 0.0]), np.array([0.0, no, yes, delta])
    for accept in itertools.product((0.0, 0.5, 1.0), repeat=4):
        alarms, found = float(q @ accept), float(p @ accept)
        if 0 < alarms < 1:
            assert found <= detection_rate(epsilon, delta, alarms) + 1e-12


def test_words_and_figure(tmp_path):
    meaning = explain(0.5, 1e-6)
    assert "62.2% of the time" in str(meaning)
    assert "except with probability" in str(meaning)
    for name in ("figure.png", "figure.svg"):
        meaning.save_figure(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 30.0, 1e3, 1e8, 1e300])
def test_extreme_budgets(epsilon):
    meaning = explain(epsilon)
    assert 0.5 <= meaning.winning_probability <= 1
    assert 0 < meaning.posterior_shift <= 1
    assert 0.05 <= meaning.detection_rate <= 1


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0), (-1, 0), (math.nan, 0), (1, 1), (1, -1), ("1", 0)])
def test_bad_budgets(epsilon, delta):
    with pytest.raises(InvalidInput):
        explain(epsilon, delta)
