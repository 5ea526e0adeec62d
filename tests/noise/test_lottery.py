"""Tickets from one uniform variate: exactly the one it falls in, at whatever cost of bits, and never another."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from flint import arb
from scipy import stats

from epsilearn import threads
from epsilearn.balls import ball, precision
from epsilearn.errors import EntropyError
from epsilearn.noise import lottery
from epsilearn.noise import weights as passes
from epsilearn.noise.bits import SeededBits
from epsilearn.noise.lottery import ColumnLottery, Columns, draw_ticket

BITS = 600  # of the reference's boundaries
WHOLE = 2**61  # numbers up to here do not fit a double
# From where to where logits go: those that stand still, and what is added to them.
LOGITS = {
    "tiny": ((-1e-9, 1e-9), (-1e-9, 1e-9)),
    "ordinary": ((-2, 2), (-2, 2)),
    "wide": ((-40, 40), (-40, 40)),
    "huge": ((-5000, 5000), (-5000, 5000)),
    "far above": ((300_000, 300_004), (-2, 2)),
    "far below": ((-300_004, -300_000), (-2, 2)),
    "beyond doubles": ((0, 700), (0, 700)),
    "equal": ((2, 2), (0, 0)),
}


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


UNIT = Fraction(10**6, WHOLE) * Fraction(10**9, 10**9 + 7)  # of the whole numbers; not a double


def numbers_between(generator: np.random.Generator, ends: tuple[float, float], count: int) -> np.ndarray:
    """Whole numbers that are logits from one end to the other."""
    low, high = (end / 10**6 * WHOLE for end in ends)
    return generator.uniform(low, np.nextafter(high, np.inf), count).astype(np.int64)


def walk(generator, kind: str, count: int, share: float, signed: bool, draws: int = 6) -> Iterator[Columns]:
    """Columns as a path hands them over: more and more of them touched, now and then in a new order."""
    present = np.flatnonzero(generator.random(count) < share)
    still = numbers_between(generator, LOGITS[kind][0], len(present))
    order, generation = generator.permutation(len(present)), 0
    for draw in range(draws):
        if draw == 2 * draws // 3:
            order, generation = generator.permutation(len(present)), generation + 1
        touched = order[: -(-len(order) * draw // (draws - 1))]
        moved = numbers_between(generator, LOGITS[kind][1], len(touched))
        yield Columns(count, present, still, touched, moved, UNIT, UNIT, generation, signed)


def exact_logits(columns: Columns) -> list[Fraction]:
    """Those of all tickets, in order."""
    logits = [Fraction(0)] * columns.count
    for column, number in zip(columns.present, columns.still, strict=True):
        logits[column] += columns.second * int(number)
    for position, number in zip(columns.touched, columns.moved, strict=True):
        logits[columns.present[position]] += columns.first * int(number)
    return [half for logit in logits for half in (logit, -logit)] if columns.signed else logits


def boundaries(logits: list[Fraction]) -> list[int]:
    """Where one ticket ends and the next begins, in units of 2**-BITS, rounded down but for the last few digits."""
    with precision(BITS + 100):
        top = max(logits)
        weights = {logit: ball(logit - top).exp() for logit in set(logits)}
        sums = list(accumulate(weights[logit] for logit in logits))
        shares = [total / sums[-1] * arb(2) ** BITS for total in sums[:-1]]
        return [int(share.mid().floor().unique_fmpz()) for share in shares]


def reference(logits: list[Fraction], seed: int) -> int:
    """The ticket of a seeded variate, with twice as many digits until that is certain."""
    edges, slack = boundaries(logits), 1 << 20
    source = SeededBits(seed)
    digits, known = source.integer(64), 64
    while True:
        low, high = digits << (BITS - known), (digits + 1) << (BITS - known)
        ticket = bisect(edges, low)
        after = ticket == 0 or edges[ticket - 1] + slack < low
        if after and (ticket == len(edges) or high + slack < edges[ticket]):
            return ticket
        digits, known = digits << known | source.integer(known), 2 * known


@pytest.fixture
def floats_only(monkeypatch):
    """No comparison may be left to ball arithmetic."""
    monkeypatch.setattr(lottery, "_exact_column", lambda *_: pytest.fail("floats should have decided"))


def drawn_by(one: ColumnLottery, columns: Columns, source) -> int:
    one._source = source
    return one.draw(columns)


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize("kind", LOGITS)
def test_the_ticket_is_the_one_the_variate_falls_in(kind, signed):
    """Absent columns anywhere, everywhere or nowhere; one column or several blocks of them; touched as one goes."""
    generator, seed = np.random.default_rng(0), 0
    for count in (1, 2, 7, 40, 3 * passes.BLOCK + 5):
        for share in (0.0, 0.2, 0.8, 1.0):
            one = ColumnLottery(SeededBits(0))
            for columns in walk(generator, kind, count, share, signed):
                seed += 1
                found = drawn_by(one, columns, SeededBits(seed))
                assert found == reference(exact_logits(columns), seed), (count, share, seed)


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_many_blocks_and_long_gaps(signed):
    generator = np.random.default_rng(1)
    for share in (0.01, 0.5):
        one = ColumnLottery(SeededBits(0))
        for seed, columns in enumerate(walk(generator, "ordinary", 2500, share, signed, draws=8)):
            found = drawn_by(one, columns, SeededBits(seed))
            assert found == reference(exact_logits(columns), seed)


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize("absent", [True, False], ids=["one absent", "all present"])
@pytest.mark.usefixtures("floats_only")
def test_logits_that_grow_and_shrink_from_draw_to_draw(signed, absent):
    """What weights are relative to has to follow, up and down, without a new generation: floats go on deciding."""
    generator = np.random.default_rng(2)
    count = 2 * passes.BLOCK
    present = np.arange(int(absent), count)
    still, touched = generator.integers(-20, 21, len(present)), generator.permutation(len(present))
    one = ColumnLottery(SeededBits(0))
    for seed, size in enumerate([0, 1, 50, 250, 450, 480, 650, 2000, 2300, 9000, 2000, 700, 3, 0, -1, -400, -9000, 2]):
        for sign in (1, -1):  # with all of one sign the largest of all may be far below zero
            moved = sign * generator.integers(950, 1001, len(touched))
            columns = Columns(
                count, present, still, touched, moved, Fraction(size, 1001), Fraction(1, 30), 0, signed
            )  # fmt: skip
            found = drawn_by(one, columns, SeededBits(seed))
            assert found == reference(exact_logits(columns), seed), size


def restarts(logit: int, draws: int = 10) -> int:
    """How often all columns are weighed in so many draws, where they all have this logit and none is absent."""
    started = []

    class Counted(ColumnLottery):
        def _start(self, columns: Columns) -> None:
            started.append(columns)
            super()._start(columns)

    none, one = np.empty(0, np.int64), Counted(SeededBits(0))
    columns = Columns(9, np.arange(9), np.full(9, logit), none, none, Fraction(1), Fraction(1), 0, False)
    for _ in range(draws):
        one.draw(columns)
    return len(started)


@pytest.mark.parametrize("logit", [0, 130, -130, 299, 301, -301, 5000, -5000])
def test_all_columns_are_weighed_once(logit):
    assert restarts(logit) == 1


@pytest.mark.parametrize("logit", [-145, -299])
def test_all_columns_are_weighed_once_between_the_thresholds(logit):
    assert restarts(logit) == 1


def test_columns_never_touched_keep_their_weight_in_all_draws():
    """Only a few are touched, the others decide: their sums must not have lost or kept what has been moved."""
    generator = np.random.default_rng(3)
    count = 5 * passes.BLOCK
    still = generator.integers(-3, 4, count)
    order = generator.permutation(count)
    one = ColumnLottery(SeededBits(0))
    for seed in range(60):
        touched = order[:seed]
        moved = generator.integers(-3, 4, seed)
        columns = Columns(count, np.arange(count), still, touched, moved, Fraction(1), Fraction(1, 7), 0, False)
        assert drawn_by(one, columns, SeededBits(seed)) == reference(exact_logits(columns), seed)


def near_boundaries(generator, edges: list[int], most: int, widest: int = 32) -> Iterator[tuple[str, int]]:
    """Digits of variates whose first 64 are those of a boundary, or a little off it, and the tickets there."""
    for edge in generator.permutation(np.array(edges, object))[:most]:
        for exponent in (None, 0, *generator.integers(1, widest, 4)):
            for sign in (1, -1):
                first = (edge >> (BITS - 64)) + (0 if exponent is None else sign << int(exponent))
                if 0 <= first < 2**64:
                    for then in ("0000001", "1111110"):
                        digits = f"{first:064b}" + then
                        yield digits, bisect(edges, int(digits.ljust(BITS, "0"), 2))


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize("kind", ["ordinary", "wide", "far above", "far below"])
def test_variates_next_to_a_boundary(rigged, kind, signed):
    """As far off as floats err, and less: a margin that is too narrow gives a wrong ticket here."""
    generator = np.random.default_rng(4)
    for columns in list(walk(generator, kind, 100, 0.8, signed))[1:4]:
        edges = boundaries(exact_logits(columns))
        one = ColumnLottery(SeededBits(0))
        for digits, ticket in near_boundaries(generator, edges, 4):
            assert drawn_by(one, columns, rigged(digits)) == ticket


def some_columns(signed: bool) -> Columns:
    return Columns(
        7, integers(1, 2, 5), integers(3, -4, 7), integers(2, 0), integers(5, -6), Fraction(1, 9), Fraction(1, 11), 0,
        signed,
    )  # fmt: skip


def absent_at_the_end(signed: bool) -> Columns:
    columns = some_columns(signed)
    return replace(columns, count=6, present=integers(0, 1, 2))


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize("make", [some_columns, absent_at_the_end])
@pytest.mark.parametrize(("agreeing", "needed"), [(64, 128), (70, 128), (120, 128), (140, 256), (300, 512)])
def test_bits_rigged_onto_a_boundary_are_extended_and_never_redrawn(rigged, make, signed, agreeing, needed):
    """The two runs share hundreds of bits and lie on either side of a boundary, which the next ones decide."""
    columns = make(signed)
    for ticket, edge in enumerate(boundaries(exact_logits(columns))):
        digits = format(edge >> (BITS - agreeing), f"0{agreeing}b")
        below, above = rigged(digits, "0"), rigged(digits, "1")
        assert ColumnLottery(below).draw(columns) == ticket
        assert ColumnLottery(above).draw(columns) == ticket + 1
        assert below.drawn == above.drawn == needed


def test_64_bits_are_enough_away_from_boundaries(rigged):
    columns = some_columns(True)
    edges = [0, *boundaries(exact_logits(columns)), 1 << BITS]
    for ticket in range(14):
        source = rigged(format((edges[ticket] + edges[ticket + 1]) >> (BITS - 63), "064b"))
        assert ColumnLottery(source).draw(columns) == ticket
        assert source.drawn == 64


def test_the_ends_are_no_boundaries(rigged):
    """A variate of nothing but zeros or ones is in the first or the last ticket; nothing else needs to be known."""
    for columns in (some_columns(True), some_columns(False)):
        tickets = 14 if columns.signed else 7
        assert ColumnLottery(rigged("", "0")).draw(columns) == 0
        assert ColumnLottery(rigged("", "1")).draw(columns) == tickets - 1
    assert draw_ticket(np.array([1.0, 2.0]), 0.0, lambda: [arb(1), arb(2)], rigged("", "0")) == 0
    assert draw_ticket(np.array([1.0, 2.0]), 0.0, lambda: [arb(1), arb(2)], rigged("", "1")) == 1


def test_bits_that_never_decide_are_refused(rigged):
    """The middle of two equal tickets, in all its digits: fair bits do not do that."""
    one = np.zeros(2, np.int64)
    columns = Columns(2, integers(0, 1), one, one[:0], one[:0], Fraction(1), Fraction(1), 0, False)
    with pytest.raises(EntropyError, match="nothing was released"):
        ColumnLottery(rigged("1", "0")).draw(columns)
    with pytest.raises(EntropyError, match="nothing was released"):
        draw_ticket(np.zeros(2), 0.0, lambda: [arb(0), arb(0)], rigged("1", "0"))


@pytest.mark.parametrize("columns", [1, 3, 200])
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_no_column_present(rigged, columns, signed):
    """All tickets are equal: they are the variate's multiple, also on a boundary, where nobody has a number."""
    none = np.empty(0, np.int64)
    empty = Columns(columns, none, none, none, none, Fraction(1), Fraction(1), 0, signed)
    tickets = columns * (1 + signed)
    for seed in range(20):
        found = ColumnLottery(SeededBits(seed)).draw(empty)
        assert found == SeededBits(seed).integer(64) * tickets >> 64
    for digits, ticket in near_boundaries(np.random.default_rng(5), boundaries([Fraction(0)] * tickets), 3):
        assert ColumnLottery(rigged(digits)).draw(empty) == ticket


def test_threads_do_not_matter(monkeypatch):
    generator = np.random.default_rng(6)
    walks = [list(walk(generator, kind, 500, 0.9, True)) for kind in ("ordinary", "huge")]
    stretches = []

    def counted(work, count, worth):
        results = threads.in_threads(work, count, worth)
        stretches.append(len(results))
        return results

    def tickets() -> list[list[int]]:
        made = [ColumnLottery(SeededBits(7)) for _ in walks]
        return [[one.draw(columns) for columns in columns_] for one, columns_ in zip(made, walks, strict=True)]

    monkeypatch.setattr(lottery, "in_threads", counted)
    alone = tickets()
    assert set(stretches) == {1}
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 5)
    monkeypatch.setattr(lottery, "_WORTH", 3)
    assert tickets() == alone
    assert max(stretches) == 5


@pytest.mark.usefixtures("floats_only")
def test_doubt_is_rare():
    """Balls are for ties."""
    generator = np.random.default_rng(8)
    for kind in ("tiny", "ordinary", "far above", "far below", "equal"):
        for signed in (True, False):
            one = ColumnLottery(SeededBits(9))
            for columns in walk(generator, kind, 1000, 0.5, signed):
                for _ in range(20):
                    one.draw(columns)


@pytest.mark.parametrize("logit", [21, 25], ids=["too low", "too high"])
@pytest.mark.usefixtures("floats_only")
def test_millions_of_columns_cost_no_accuracy(rigged, logit):
    """Plain sums of these blocks err by thousands of roundings, in one direction; the margin is 1300 of them."""
    count = 2**21
    none, present = np.empty(0, np.int64), np.arange(count)
    columns = Columns(
        count, present, np.full(count, logit), none, none, Fraction(1), Fraction(1, 10), 0, False
    )  # fmt: skip
    one = ColumnLottery(SeededBits(0))
    for ticket in (64, 1000, count // 3, count // 2, 3 * count // 4, *range(count - 640, count - 60, 64), count - 5):
        for roundings in (-1600, -1400, 1400, 1600):
            digits = (ticket << 64) // count + (roundings << 11)
            assert drawn_by(one, columns, rigged(f"{digits:064b}")) == ticket - (roundings < 0)


def law(logits: list[float]) -> np.ndarray:
    weights = np.exp(np.array(logits))
    return weights / weights.sum()


@pytest.mark.slow
def test_frequencies_follow_the_exponential_law():
    """And a law whose logits are 5 % larger is refused."""
    columns, draws = some_columns(True), 100_000
    logits = [float(logit) for logit in exact_logits(columns)]
    one = ColumnLottery(SeededBits(10))
    seen = np.bincount([one.draw(columns) for _ in range(draws)], minlength=len(logits))
    assert stats.chisquare(seen, draws * law(logits)).pvalue > 1e-3
    assert stats.chisquare(seen, draws * law([1.05 * logit for logit in logits])).pvalue < 1e-6


# Tickets with logits of their own.


def random_logits(generator, count: int, kind: str) -> list[Fraction]:
    low, high = LOGITS[kind][0]
    return [Fraction(float(x)) * Fraction(10**9, 10**9 + 7) for x in generator.uniform(low, high, count)]


def floats(logits: list[Fraction]) -> tuple[np.ndarray, float]:
    """In doubles, and how far these are off."""
    found = np.array([float(logit) for logit in logits])
    return found, float(np.abs(found).max()) * 2.0**-53


@pytest.mark.parametrize("kind", LOGITS)
def test_a_ticket_is_the_one_the_variate_falls_in(kind):
    generator = np.random.default_rng(11)
    for seed, count in enumerate([1, 1, 2, 2, 3, 5, 10, 30, 100, 300, 1000]):
        logits = random_logits(generator, count, kind)
        found = draw_ticket(*floats(logits), lambda logits=logits: [ball(x) for x in logits], SeededBits(seed))
        assert found == reference(logits, seed)


@pytest.mark.parametrize("error", [0.0, 1e-13, 1e-9, 1e-5])
@pytest.mark.parametrize("kind", ["ordinary", "far above", "far below"])
def test_logits_that_are_off_do_not_change_the_ticket(rigged, kind, error):
    """Anything within the stated error, next to a boundary and far from it."""
    generator = np.random.default_rng(12)
    for count in (2, 9, 40):
        logits = random_logits(generator, count, kind)
        rounded, own = floats(logits)
        edges = boundaries(logits)
        for digits, ticket in near_boundaries(generator, edges, 3, widest=52):
            for signs in (np.ones(count), np.arange(count) % 2 * 2.0 - 1, generator.uniform(-1, 1, count)):
                off = rounded + error * signs
                found = draw_ticket(off, error + 2 * own, lambda: [ball(x) for x in logits], rigged(digits))  # noqa: B023
                assert found == ticket


@pytest.mark.parametrize(("agreeing", "needed"), [(64, 128), (70, 128), (140, 256), (300, 512)])
def test_a_ticket_on_a_boundary_follows_further_bits(rigged, agreeing, needed):
    logits = random_logits(np.random.default_rng(13), 12, "ordinary")
    for ticket, edge in enumerate(boundaries(logits)):
        digits = format(edge >> (BITS - agreeing), f"0{agreeing}b")
        for then in "01":
            source = rigged(digits, then)
            assert draw_ticket(*floats(logits), lambda: [ball(x) for x in logits], source) == ticket + int(then)
            assert source.drawn == needed


def test_exact_logits_are_asked_for_only_if_floats_tie():
    logits, error = floats([2 * logit for logit in random_logits(np.random.default_rng(14), 12, "ordinary")])

    def unexpected():
        raise AssertionError("floats should have decided")

    source, draws = SeededBits(15), 50_000
    seen = np.bincount([draw_ticket(logits, error, unexpected, source) for _ in range(draws)], minlength=12)
    assert stats.chisquare(seen, draws * law(list(logits))).pvalue > 1e-3
    assert stats.chisquare(seen, draws * law(list(1.05 * logits))).pvalue < 1e-6
