"""Centring: what a replaced row can do to the two sums, what their noise promises, and what is made of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from epsilearn import LogisticRegression
from epsilearn.balls import exact
from epsilearn.calibration.additive import gaussian_delta, gaussian_shift
from epsilearn.calibration.centring import UNITS, Centring, leaves_room, planned_centring, shifted_centring
from epsilearn.calibration.objective import gaussian_perturbation
from epsilearn.losses import Logistic
from epsilearn.rows import Bounds, as_rows

COLUMNS = 5
MOVE = 2 * (UNITS + math.sqrt(COLUMNS) / 2 + 1)


def tables():
    """Neighbours: a row at the bound against its opposite, beyond it, at 0, and random ones of every size."""
    generator = np.random.default_rng(0)
    one = np.ones(COLUMNS) / math.sqrt(COLUMNS)
    rows = [
        one,
        -one,
        1e9 * one,
        -1e9 * one,
        np.zeros(COLUMNS),
        1e-300 * one,
        np.eye(COLUMNS)[0],
        -1e308 * np.eye(COLUMNS)[1],
    ]
    rows += list(generator.normal(size=(20, COLUMNS)) * 10.0 ** generator.uniform(-3, 3, size=(20, 1)))
    rest = generator.normal(size=(7, COLUMNS))
    for first in rows:
        for second in rows:
            yield np.vstack([rest, first]), np.vstack([rest, second])


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, sparse.csr_array], ids=["C", "Fortran", "sparse"])
@pytest.mark.parametrize("norm", [1.0, 3.7])
def test_what_one_row_can_do_to_the_sums(make, norm):
    furthest, widest = 0.0, 0
    centre = np.full(COLUMNS, 0.2)
    for pair in tables():
        first, second = (as_rows(make(X), np.ones(len(X)), Bounds(norm)) for X in pair)
        furthest = max(furthest, float(np.linalg.norm(first.total(UNITS) - second.total(UNITS))))
        widest = max(widest, abs(first.spread(centre, UNITS) - second.spread(centre, UNITS)))
    assert 0.999 * MOVE < furthest <= MOVE
    assert 0.5 * UNITS < widest <= UNITS


def test_sums_are_those_of_the_rows():
    X = np.random.default_rng(0).normal(size=(10_000, COLUMNS)) / 3
    rows = as_rows(X, np.ones(len(X)), Bounds(1.0))
    inside = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    assert rows.total(UNITS) / UNITS == pytest.approx(inside.sum(axis=0), abs=1e-4)
    squares = np.minimum(((inside - 0.1) ** 2).sum(axis=1), 1)
    assert rows.spread(np.full(COLUMNS, 0.1), UNITS) / UNITS == pytest.approx(squares.sum(), abs=1e-3)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_moved_rows(make, kind):
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(kind)
    centre, radius = np.array([0.1, 0.0, -0.2]), 0.5
    moved = as_rows(make(X), np.ones(50), Bounds(2.0, 0.3)).moved(centre, radius, 0.15)
    expected = (X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / 2) / 2 - centre) / radius
    expected /= np.maximum(1, np.linalg.norm(expected, axis=1, keepdims=True))
    assert moved.bounds == Bounds(1.0, 0.15)
    assert moved.total(UNITS) / UNITS == pytest.approx(expected.sum(axis=0), abs=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-3)])
def test_normal_noise_amounts_to_its_shift(epsilon, delta):
    for rows in (100, 1000, 10**6):
        found, whole = planned_centring(rows, COLUMNS, epsilon, delta), gaussian_shift(epsilon, delta)
        shifts = [Fraction(MOVE) / Fraction(found.mean), Fraction(UNITS) / Fraction(found.spread)]
        assert sum(shift**2 for shift in shifts) <= Fraction(found.shift) ** 2
        assert found.shift**2 <= 0.12 * whole**2 * (1 + 1e-6)
        # With 5 % less noise more is shown than the shift says.
        assert sum((shift / Fraction(95, 100)) ** 2 for shift in shifts) > Fraction(found.shift) ** 2


def least(cost, most: float) -> float:
    """The share of at most so much that costs least, by brute force."""
    shares = np.geomspace(1e-9, most, 20_001)
    return float(shares[np.argmin([cost(share) for share in shares])])


@pytest.mark.parametrize("rows", [100, 3000, 10**5, 10**7])
@pytest.mark.parametrize("columns", [2, 50])
def test_shares_are_worth_their_cost(rows, columns):
    """What a share takes from the fit, and what its noise adds to the length of moved rows, taken to be a tenth."""
    whole = gaussian_shift(0.5, 1e-8)
    found = planned_centring(rows, columns, 0.5, 1e-8)
    mean = least(lambda share: share / 2 + columns * (2 / (rows * whole)) ** 2 / share / (2 * 0.01), 0.1)
    spread = least(lambda share: share / 2 + 1 / (rows * whole * math.sqrt(share)) / (2 * 0.01), 0.02)
    assert (2 * UNITS / (found.mean * whole)) ** 2 == pytest.approx(mean, rel=1e-2)
    assert (UNITS / (found.spread * whole)) ** 2 == pytest.approx(spread, rel=1e-2)
    found = planned_centring(rows, columns, 0.5, 0.0)
    mean = least(lambda share: share + (2 * columns / (rows * 0.5 * share)) ** 2 / (2 * 0.01), 0.1)
    spread = least(lambda share: share + math.sqrt(2) / (rows * 0.5 * share) / (2 * 0.01), 0.02)
    assert 2 * UNITS / (found.mean * 0.5) == pytest.approx(mean, rel=1e-2)
    assert UNITS / (found.spread * 0.5) == pytest.approx(spread, rel=1e-2)


def test_pure_noise_costs_its_share():
    for rows in (100, 1000, 10**6):
        found = planned_centring(rows, COLUMNS, 0.7, 0.0)
        spent = Fraction(MOVE) / Fraction(found.mean) + Fraction(UNITS) / Fraction(found.spread)
        assert spent <= exact(found.epsilon)
        assert found.epsilon <= 0.12 * 0.7 * (1 + 1e-9)
        assert spent / Fraction(95, 100) > exact(found.epsilon)


def test_a_person_with_several_rows_gets_a_share_of_the_shift():
    assert shifted_centring(100, COLUMNS, 0.05).mean == pytest.approx(2 * shifted_centring(100, COLUMNS, 0.1).mean)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-4, 1e-6), (0.1, 1e-3), (1.0, 1e-3), (50.0, 1e-3), (1.0, 1e-300)])
def test_where_there_is_room_noise_in_the_objective_is_found(epsilon, delta):
    assert leaves_room(epsilon, delta)
    prior = planned_centring(1000, COLUMNS, epsilon, delta).shift
    found = gaussian_perturbation(Logistic(), 1000, 1.0, 1.0, 0.99 * epsilon, delta, prior)
    assert float(gaussian_delta(math.hypot(2 / found.scale, prior), epsilon).mid()) <= delta


def test_the_centre_is_shrunk_and_stays_in_the_ball():
    found = Centring(rows=100, columns=4, mean=10.0 * UNITS, spread=float(UNITS), shift=0.1)
    assert found.deviation == pytest.approx(0.1)
    assert not found.centre(np.full(4, 0.09 * 100 * UNITS)).any()
    centre = found.centre(np.array([0.5, 0, 0, 0]) * 100 * UNITS)
    assert centre == pytest.approx([0.5 * (1 - 4 * 0.01 / 0.25), 0, 0, 0])
    assert np.linalg.norm(found.centre(np.full(4, 50.0 * 100 * UNITS))) == pytest.approx(1)


def test_it_is_worthwhile_where_the_mean_can_be_told_from_noise():
    assert planned_centring(100_000, 20, 1.0, 1e-9).worthwhile
    assert not planned_centring(100, 20, 0.1, 1e-9).worthwhile
    assert not planned_centring(10**8, 10**4, 1.0, 1e-9).worthwhile


def centre_on_a_boundary(row: np.ndarray) -> np.ndarray:
    """A centre from which the row's squared distance is floored to another unit if its terms are added otherwise."""

    def floored(first: float, add) -> int:
        apart = row - np.append(first, rest)
        return math.floor(float(add(apart * apart)) * UNITS)

    def in_order(terms: np.ndarray) -> float:
        return float(np.cumsum(terms)[-1])

    generator = np.random.default_rng(0)
    while True:
        rest = generator.normal(size=len(row) - 1) * 0.02
        low, high = 0.01, 0.01 + 1e-7
        if floored(low, in_order) == floored(high, in_order):
            continue
        start = floored(low, in_order)
        while np.nextafter(low, high) < high:
            middle = (low + high) / 2
            low, high = (middle, high) if floored(middle, in_order) == start else (low, middle)
        for step in range(-300, 300):
            first = low + step * np.spacing(low)
            if floored(first, in_order) != floored(first, np.sum):
                return np.append(first, rest)


def test_a_giant_does_not_change_what_the_other_rows_add():
    """A giant among strided rows makes for a copy that is kept in another order."""
    row = np.random.default_rng(1).normal(size=60) / 16
    centre = centre_on_a_boundary(row)
    wide = np.tile(np.append(0.0, row), (1000, 1))
    spreads = set()
    for first in (1.0, 1e150):
        wide[0, 1:] = first
        rows = as_rows(wide[:, 1:], np.ones(1000), Bounds(1.0))
        spreads.add(rows.spread(centre, UNITS))
    # The first row is cut at 1 in both.
    assert len(spreads) == 1


def test_there_is_room_for_one_score_or_for_a_pure_promise():
    assert leaves_room(0.1, 0.0, rank=9)
    assert not leaves_room(0.1, 1e-3, rank=9)
    model = LogisticRegression(
        method="objective", data_norm=1.0, classes=list(range(10)), epsilon=0.1, delta=1e-3, centre="auto"
    )
    assert model.plan(rows=10**6, features=5).centring is None
