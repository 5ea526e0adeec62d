"""Sums in twice the precision: the bound holds for any order and grouping, and plain sums exceed it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from epsilearn.rows.totals import Total, roundings

UNIT = 2.0**-53


def addends(count, seed=0):
    """Numbers that cancel, of very different sizes."""
    generator = np.random.default_rng(seed)
    some = generator.normal(size=count // 2) * 2.0 ** generator.integers(-30, 30, count // 2)
    numbers = np.concatenate([some, -some * (1 + 2.0**-40), generator.normal(size=count - 2 * (count // 2))])
    return generator.permutation(numbers)


def total_of(numbers, groups):
    """Each group by itself, and then the groups."""
    whole = Total()
    for group in np.array_split(numbers, groups):
        part = Total()
        for number in group:
            part.add(np.array([number]))
        whole = whole.merged(part)
    return float(whole.value[0])


@pytest.mark.parametrize("groups", [1, 7, 300])
@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_within_its_bound(groups, seed):
    numbers = addends(2000, seed)
    exact = sum(map(Fraction, numbers))
    size = float(sum(map(abs, map(Fraction, numbers))))
    assert abs(Fraction(total_of(numbers, groups)) - exact) <= Fraction(roundings(len(numbers)) * UNIT * size)


def test_it_does_not_grow_with_the_number_of_addends_where_a_plain_sum_does():
    numbers = np.full(1_000_000, 0.1)
    exact = sum([Fraction(0.1)] * 1000) * 1000
    plain = 0.0
    for number in numbers.tolist():
        plain += number
    bound = Fraction(roundings(len(numbers)) * UNIT) * exact
    assert abs(Fraction(plain) - exact) > 100 * bound
    doubled = Total()
    for group in numbers.reshape(1000, 1000):
        doubled.add(np.asarray(sum(map(Fraction, group.tolist()))).astype(float))
    assert abs(Fraction(float(doubled.value)) - exact) <= 2 * bound


def test_whole_numbers_are_exact_in_any_size():
    total = Total()
    for number in (2**62, 2**62, 5):
        total.add(np.array([number], dtype=object))
    assert total.value.tolist() == [2**63 + 5]
    ints = Total()
    ints.add(np.array([2**62, -1]))
    ints.add(np.array([3, 4]))
    assert ints.value.tolist() == [2**62 + 3, 3]


def test_nothing_may_be_merged_into_something():
    total = Total()
    total.add(np.array([1.0]))
    assert total.merged(Total()).value.tolist() == Total().merged(total).value.tolist() == [1.0]


def test_merging_touches_neither():
    """An engine may run an addition a second time with what is left of the first."""
    first, second = Total(), Total()
    for number in (1.0, 1e-20):
        first.add(np.array([number]))
        second.add(np.array([3 * number]))
    once, again = first.merged(second), first.merged(second)
    assert once.value.tolist() == again.value.tolist() == [4.0]
    assert (first.value.tolist(), second.value.tolist()) == ([1.0], [3.0])


def test_a_total_does_not_share_its_first_addend():
    first = np.array([1.0, 2.0])
    total = Total()
    total.add(first)
    total.add(np.ones(2))
    assert first.tolist() == [1.0, 2.0]


def test_whole_numbers_are_exact_on_their_way_through_parts():
    """Beyond 64 bits, as the sums for centring are from 2**33 rows on."""
    halves = []
    for _ in range(2):
        half = Total()
        for _ in range(3):
            half.add(np.array([2**62 - 1], dtype=object))
        halves.append(half)
    assert halves[0].merged(halves[1]).value.tolist() == [6 * (2**62 - 1)]
