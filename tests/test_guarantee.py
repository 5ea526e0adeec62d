from __future__ import annotations

import dataclasses
import json
import math

import pytest

from epsilearn import Guarantee
from epsilearn.accounting import GaussianShift, Pure
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import LedgerStamp

FULL = Guarantee(
    0.5,
    1e-6,
    mechanism="Gaussian mechanism",
    theorem="analytic",
    assumptions=("n is public",),
    rows_per_person=3,
    curve=GaussianShift(0.1),
    claimed_epsilon=0.4,
    null_records=True,
    ledger=LedgerStamp("patients", 3, "ab" * 32),
)


@pytest.mark.parametrize("promise", [FULL, Guarantee.pure(1.0), Guarantee.pure(1.0).void("seeded")], ids=str)
def test_json_round_trip(promise):
    text = promise.to_json()
    assert Guarantee.from_json(text) == promise
    json.loads(text, parse_constant=lambda _: pytest.fail("not plain JSON"))


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.epsilon = 0.1


def test_it_says_what_is_proven_beside_what_is_claimed():
    assert str(FULL) == ("epsilon = 0.5 (claimed: 0.4), delta = 1e-06, per person with up to 3 records, replace-one")
    assert str(FULL.void("seeded")) == "no promise (seeded)"


def damaged(**changes):
    data = FULL.to_dict()
    for name, value in changes.items():
        if value is ...:
            del data[name]
        else:
            data[name] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        damaged(epsilon=-1),
        damaged(epsilon="lots"),
        damaged(epsilon="infinity"),
        damaged(delta=1.5),
        damaged(delta="0"),
        damaged(version=2),
        damaged(version=...),
        damaged(surprise=1),
        damaged(rows_per_person=0),
        damaged(assumptions="n"),
        damaged(assumptions=[1]),
        damaged(curve={"kind": "pure"}),
        damaged(ledger={"dataset": "x"}),
        [],
        None,
    ],
    ids=range(15),
)
def test_damaged_json_is_refused(data):
    with pytest.raises(InvalidInput):
        Guarantee.from_json(json.dumps(data))


def test_text_that_is_not_json_is_refused():
    with pytest.raises(InvalidInput, match="not JSON"):
        Guarantee.from_json("{")


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_promise_needs_a_finite_epsilon(epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        Guarantee.pure(epsilon)


def test_void_promises_explain_nothing():
    with pytest.raises(InvalidInput, match="seeded"):
        Guarantee.pure(1.0).void("seeded").explain()
    assert Guarantee.pure(1.0).explain().epsilon == 1.0


def test_the_curve_must_prove_the_promise():
    with pytest.raises(InvalidInput, match="does not prove"):
        Guarantee(0.1, curve=Pure(10.0))
    with pytest.raises(InvalidInput, match="does not prove"):
        Guarantee(0.1, 1e-9, curve=GaussianShift(1.0))
    with pytest.raises(InvalidInput, match="does not prove"):
        Guarantee(1e-9, curve=Composite((Pure(100.0),)))
    with pytest.raises(InvalidInput, match="at least one part"):
        Composite(())
    assert Guarantee.pure(1.0).void("seeded").curve is None


def test_a_void_promise_cannot_keep_its_epsilon():
    with pytest.raises(InvalidInput, match="infinite"):
        Guarantee(1.0, void_reason="seeded")
