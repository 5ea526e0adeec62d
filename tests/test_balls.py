"""Directed rounding, for any number hypothesis can think of."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from epsilearn import Guarantee, compose
from epsilearn.balls import ball, decimal_down, decimal_up, exact, precision, round_down, round_up

finite = st.floats(allow_nan=False, allow_infinity=False)
fractions = st.fractions(min_value=Fraction(1, 10**12), max_value=10**12)


@given(fractions)
def test_rounding_is_directed_and_tight(number):
    up, down = round_up(number), round_down(number)
    assert Fraction(down) <= number <= Fraction(up)
    assert exact(down) <= number <= exact(up)
    assert up <= float(number) * (1 + 2.0**-51)
    assert down >= float(number) * (1 - 2.0**-51)


@given(fractions)
def test_balls_round_outwards(number):
    with precision(80):
        enclosure = ball(number).sqrt()
        assert Fraction(round_down(enclosure)) ** 2 <= number <= Fraction(round_up(enclosure)) ** 2


@given(fractions)
def test_decimals(number):
    assert exact(decimal_down(number)) <= number <= exact(decimal_up(number))
    assert decimal_up(exact(float(number))) == decimal_down(exact(float(number))) == float(number)


@given(finite)
def test_a_double_reads_back_from_its_decimal(number):
    assert float(exact(number)) == number


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
def test_budgets_add_like_decimals(thousandths):
    total = compose(*[Guarantee.pure(t / 1000) for t in thousandths]).epsilon
    assert math.isclose(total, sum(thousandths) / 1000, rel_tol=1e-15)
    assert exact(total) >= Fraction(sum(thousandths), 1000)


@given(st.floats(1e-6, 1e6), st.floats(0, 0.5), st.integers(1, 50), st.text(max_size=20))
def test_guarantees_survive_json(epsilon, delta, rows, text):
    promise = Guarantee(epsilon, delta, mechanism=text, rows_per_person=rows, assumptions=(text,))
    assert Guarantee.from_json(promise.to_json()) == promise
