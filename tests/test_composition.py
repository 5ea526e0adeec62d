"""Composition: the smallest valid total, and the neighbours that make parallel composition cost what it does."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import epsilearn
from epsilearn import Guarantee, compose, parallel, statistics
from epsilearn.accounting import BoundedRange, GaussianShift, LaplaceShift, Pure
from epsilearn.composition import _RULES, Composite
from epsilearn.errors import InvalidInput


def exact_randomised_response(epsilon: float, count: int, delta: float) -> float:
    """The epsilon of `count` randomised responses, from the binomial law of the number of truths."""
    yes = math.exp(epsilon) / (1 + math.exp(epsilon))
    truths = np.arange(count + 1)
    loss = (2 * truths - count) * epsilon
    probability = stats.binom.pmf(truths, count, yes)

    def delta_at(total: float) -> float:
        return float((probability * np.maximum(0, -np.expm1(total - loss))).sum())

    low, high = 0.0, epsilon * count
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def test_a_hundred_pure_releases():
    hundred = [Guarantee.pure(0.1)] * 100
    exact = exact_randomised_response(0.1, 100, 1e-6)
    assert exact == pytest.approx(4.7746, abs=1e-4)
    total = compose(*hundred, delta=1e-6)
    assert exact <= total.epsilon <= 4.776
    assert total.theorem == "optimal composition of equal pure promises"
    assert compose(*hundred).epsilon == 10.0
    # Every rule is an upper bound on the exact value.
    for name, rule in _RULES.items():
        assert rule(total.curve, 1e-6) >= exact * (1 - 1e-12), name


def test_five_percent_less_noise_is_noticed():
    exact = exact_randomised_response(0.1 / 0.95, 100, 1e-6)
    assert compose(*[Guarantee.pure(0.1)] * 100, delta=1e-6).epsilon < exact


def test_the_smallest_total_wins():
    gaussians = [Guarantee(1.0, 1e-6, curve=GaussianShift(0.2))] * 9
    total = compose(*gaussians, delta=1e-6)
    assert total.theorem == "exact composition of Gaussian shifts"
    assert total.epsilon == pytest.approx(GaussianShift(0.6).epsilon(1e-6), rel=1e-9)
    mixed = compose(*gaussians, *[Guarantee(0.3, curve=LaplaceShift(0.3))] * 5, delta=1e-6)
    assert mixed.theorem == "privacy-loss distributions"
    tiny = compose(Guarantee.pure(0.1), Guarantee.pure(0.2), delta=1e-6)
    assert tiny.epsilon <= 0.3


def test_loss_distributions_bound_the_exact_gaussian():
    curve = Composite((GaussianShift(0.2),) * 9)
    exact = GaussianShift(0.6).epsilon(1e-6)
    found = _RULES["privacy-loss distributions"](curve, 1e-6)
    assert exact <= found <= exact + 1e-3


def test_mixed_pure_bounds_against_enumeration():
    """Optimal totals of unequal randomised responses, enumerated, lie below every rule."""
    epsilons = [0.1, 0.3, 0.5, 0.7] * 2
    losses, weights = [], []
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        losses.append(sum(s * e for s, e in zip(signs, epsilons, strict=True)))
        weights.append(math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True)))
    losses, weights = np.array(losses), np.array(weights)
    delta = 1e-3

    def exact_delta(total: float) -> float:
        return float((weights * np.maximum(0, -np.expm1(total - losses))).sum())

    total = compose(*map(Guarantee.pure, epsilons), delta=delta)
    assert exact_delta(total.epsilon) <= delta * (1 + 1e-9)
    assert exact_delta(total.epsilon - 0.01) > delta


def test_fourier_transforms_leave_a_margin():
    from epsilearn.composition import fourier_slack

    assert fourier_slack(10**5, 100) == pytest.approx(4 * 2**-53 * 17.6 * 100 * 316, rel=0.01)
    curve = Composite((Pure(0.1),) * 99 + (Pure(0.2),))
    # Where the margin eats up delta the rule says nothing.
    assert _RULES["privacy-loss distributions"](curve, 2e-11) == math.inf
    assert _RULES["privacy-loss distributions"](curve, 1e-6) < math.inf


def test_deltas_that_sum_to_one_are_refused():
    with pytest.raises(InvalidInput, match="delta"):
        compose(*[Guarantee.from_budget(0.1, 0.6)] * 2)
    with pytest.raises(InvalidInput, match="delta"):
        parallel(*[Guarantee.from_budget(0.1, 0.6, null_records=True)] * 2, partition="attribute")


def test_long_compositions_stay_short_on_paper():
    total = compose(*[Guarantee.pure(0.001)] * 5000)
    assert len(total.to_json()) < 2000
    assert Guarantee.from_json(total.to_json()) == total


def test_exact_decimals_add_up():
    assert compose(*[Guarantee.pure(0.1)] * 10).epsilon == 1.0


def test_nested_compositions_flatten():
    inner = compose(Guarantee.pure(0.1), Guarantee.pure(0.1))
    assert compose(inner, Guarantee.pure(0.1)).curve == Composite((Pure(0.1),) * 3)


def test_composing_keeps_assumptions_and_units():
    one = Guarantee.pure(0.1, assumptions=("a", "b"), rows_per_person=3)
    two = Guarantee.pure(0.1, assumptions=("b", "c"), rows_per_person=3)
    total = compose(one, two)
    assert total.assumptions == ("a", "b", "c")
    assert total.rows_per_person == 3
    with pytest.raises(InvalidInput, match="rows_per_person"):
        compose(one, Guarantee.pure(0.1))


def test_a_void_part_voids_the_whole():
    total = compose(Guarantee.pure(0.1), Guarantee.pure(0.1).void("seeded"))
    assert total.epsilon == math.inf
    assert total.void_reason == "seeded"
    assert parallel(Guarantee.pure(0.1).void("seeded"), partition="index").epsilon == math.inf


def test_what_cannot_be_composed():
    with pytest.raises(InvalidInput, match="at least one"):
        compose()
    with pytest.raises(InvalidInput, match="larger delta"):
        compose(Guarantee(1.0, 1e-6, curve=GaussianShift(0.2)), delta=0.0)
    with pytest.raises(InvalidInput, match=r"release\.guarantee"):
        compose(epsilearn.laplace(1, sensitivity=1, epsilon=1))
    with pytest.raises(InvalidInput, match="delta"):
        compose(Guarantee.pure(1.0), delta=1.5)


def test_odd_combinations():
    from epsilearn.accounting import Renyi

    assert compose(Guarantee.pure(0.001), delta=0.5).epsilon > 0
    curve = Renyi((2.0, 64.0), (0.01, 0.2))
    odd = Guarantee(curve.epsilon(1e-6), 1e-6, curve=curve)
    assert compose(odd, Guarantee.pure(0.1), delta=1e-5).epsilon < math.inf
    assert compose(Guarantee.pure(1e300), Guarantee.pure(1.0), delta=1e-6).epsilon >= 1e300


def test_a_tiny_delta_falls_back_on_rigorous_rules():
    total = compose(*[Guarantee(0.3, curve=BoundedRange(0.3))] * 50, delta=1e-30)
    assert total.epsilon < 15.0
    assert total.theorem != "privacy-loss distributions"


PARTS = [
    Guarantee.pure(0.5, null_records=True),
    Guarantee.pure(0.2, null_records=True),
    Guarantee.pure(0.4, null_records=True),
]


def test_parts_by_index_cost_the_largest():
    assert parallel(*PARTS, partition="index").epsilon == 0.5


def test_parts_by_attribute_cost_the_two_largest():
    total = parallel(*PARTS, partition="attribute")
    assert total.epsilon == 0.9
    assert "2 largest" in total.theorem


def test_deltas_follow_the_same_rule():
    parts = [Guarantee.from_budget(0.5, d, null_records=True) for d in (1e-6, 3e-6, 2e-6)]
    assert parallel(*parts, partition="index").delta == 3e-6
    assert parallel(*parts, partition="attribute").delta == pytest.approx(5e-6)


def test_a_person_with_several_records_can_be_in_several_parts():
    parts = [replace(p, rows_per_person=2) for p in PARTS]
    assert parallel(*parts, partition="index").epsilon == 0.9
    assert parallel(*parts, partition="attribute").epsilon == pytest.approx(1.1)


def test_the_neighbours_that_make_the_difference_necessary():
    """One record moves from part A to part B. Both noisy counts shift: the exact loss is 2 epsilon, not epsilon."""
    epsilon = 0.5
    here, there = (1, 0), (0, 1)  # the counts of parts A and B before and after
    outcome = (10.0, -10.0)  # A looks crowded, B looks empty
    scale = statistics.count([True], epsilon=epsilon).noise.scale
    loss = sum(
        stats.laplace.logpdf(y, a, scale) - stats.laplace.logpdf(y, b, scale)
        for y, a, b in zip(outcome, here, there, strict=True)
    )
    assert loss == pytest.approx(2 * epsilon)
    part = statistics.count([True, False], epsilon=epsilon).guarantee
    assert parallel(part, part, partition="attribute").epsilon == pytest.approx(loss)
    # By index the record stays in its part: only one count shifts.
    assert parallel(part, part, partition="index").epsilon == epsilon < loss


def test_a_mechanism_that_leaks_a_parts_size_is_refused():
    column, flags = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
    leaking = statistics.mean(column[flags], bounds=(0, 5), epsilon=0.5).guarantee
    with pytest.raises(InvalidInput, match="part's size"):
        parallel(leaking, leaking, partition="attribute")
    with pytest.raises(InvalidInput, match="part's size"):
        statistics.mean(column, bounds=(0, 5), where=flags)
    safe = [statistics.sum(column, bounds=(0, 5), where=f, epsilon=0.5).guarantee for f in (flags, ~flags)]
    assert parallel(*safe, partition="attribute").epsilon == 1.0


def test_the_api_asks_which_it_is():
    with pytest.raises(TypeError):
        parallel(*PARTS)
    with pytest.raises(InvalidInput, match="'index' or 'attribute'"):
        parallel(*PARTS, partition="rows")
