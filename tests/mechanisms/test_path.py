"""The private steps of a path: corners by the exponential law, gradients with the planned noise; the debit first."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import log_softmax

from epsilearn.balls import ball, precision
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.path import PrivateSteps, private_steps
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.noise.bits import OperatingSystemBits, SeededBits
from epsilearn.noise.door import grid_of
from epsilearn.noise.lottery import ColumnLottery

SCALE = 0.7


def steps_with(source: Any, scale: float = SCALE) -> PrivateSteps:
    return PrivateSteps(scale, source, ColumnLottery(source))


def linear(values: list[Fraction], present: list[int], count: int) -> SimpleNamespace:
    """Scores as a path hands them over, in units of 1 / 1000; half of each number has moved."""
    whole = np.array([int(1000 * value) for value in values], np.int64)
    places = np.arange(len(present))
    return SimpleNamespace(
        count=count, present=np.array(present), still=whole - whole // 2, touched=places, moved=whole // 2,
        first=Fraction(1, 1000), second=Fraction(1, 1000), generation=0,
    )  # fmt: skip


def check_law(seen: np.ndarray, logs: Callable[[float], np.ndarray], off: float = 0.05) -> None:
    """Pearson's test at the scale; and the likelihood's slope refuses another scale."""
    assert stats.chisquare(seen, seen.sum() * np.exp(logs(1.0))).pvalue > 1e-3
    for factor in (1 - off, 1 + off):
        chances = np.exp(logs(factor))
        slope = logs(1.001 * factor) - logs(factor / 1.001)
        slope = slope - chances @ slope
        assert 2 * stats.norm.sf(abs(seen @ slope) / math.sqrt(seen.sum() * (chances @ slope**2))) < 1e-6


# ---------------------------------------------------------------- corners


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_columns_are_drawn_by_the_exponential_law_of_their_scores(signed):
    """Column 1 has no entries: its score is 0, and it can be drawn. A negative is the next number after its column."""
    values, size = [Fraction(-2, 5), Fraction(1, 10), Fraction(3, 10)], Fraction(6)
    scores = linear(values, [0, 2, 3], 4)
    steps = steps_with(SeededBits(0))
    everywhere = [values[0], Fraction(0), values[1], values[2]]
    logits = np.array([-float(size * v * s) / SCALE for v in everywhere for s in ((1, -1) if signed else (1,))])
    runs = 20_000
    seen = np.bincount([steps.column(scores, size, signed) for _ in range(runs)], minlength=len(logits))
    assert len(seen) == len(logits) == (8 if signed else 4)
    check_law(seen, lambda factor: log_softmax(logits / factor))


POINTS = np.array([[0.5, 0.0, -1.0], [0.25, 2.0, 0.125], [-1.0, 0.3, 0.0], [0.0, 0.0, 0.0]])


def test_points_are_drawn_by_the_exponential_law_of_their_products():
    sums, unit = np.array([700, -1600, 1800]), Fraction(1, 1000)
    steps = steps_with(SeededBits(1))
    logits = -float(unit) * (POINTS @ sums) / SCALE
    seen = np.bincount([steps.corner(POINTS, sums, unit) for _ in range(20_000)], minlength=4)
    check_law(seen, lambda factor: log_softmax(logits / factor))


def test_a_corner_is_the_one_its_variate_falls_in_however_large_the_sums():
    """Sums up to 2**53 and products that nearly cancel: the same corner as in exact numbers, from the same bits."""
    generator = np.random.default_rng(3)
    for bits in (10, 30, 45, 53):
        unit = Fraction(1, 2 ** (bits - 2)) * Fraction(2**20, 2**20 + 7)
        for seed in range(40):
            points = np.round(generator.normal(size=(6, 3)), 2)
            points[3] = points[2] + 1e-9
            sums = generator.integers(-(2**bits) + 1, 2**bits, 3)
            found = steps_with(SeededBits(seed)).corner(points, sums, unit)
            digits = SeededBits(seed).integer(64)
            with precision(400):
                products = [sum(Fraction(p) * int(s) for p, s in zip(point, sums, strict=True)) for point in points]
                weights = [ball(-unit * product / Fraction(SCALE)).exp() for product in products]
                below = sum(weights[:found], ball(0)) / sum(weights, ball(0))
                above = sum(weights[: found + 1], ball(0)) / sum(weights, ball(0))
                assert not below > ball(Fraction(digits + 1, 2**64))
                assert not above < ball(Fraction(digits, 2**64))


def test_the_least_score_with_laplace_noise():
    """Probabilities by quadrature over the winner's noisy score."""
    scores = np.array([0.0, 0.8, -0.6, 1.5])
    steps = steps_with(SeededBits(4))
    ends = [-25.0, *sorted(scores), 25.0]

    def logs(factor: float) -> np.ndarray:
        def density(x: float, winner: int) -> float:
            others = np.delete(scores, winner)
            wins = stats.laplace.sf(x, others, factor * SCALE).prod()
            return stats.laplace.pdf(x, scores[winner], factor * SCALE) * wins

        # Gauss-Legendre between the kinks.
        parts = [
            sum(integrate.fixed_quad(np.vectorize(density), a, b, (w,), n=24)[0] for a, b in pairwise(ends))
            for w in range(4)
        ]
        return np.log(np.array(parts) / sum(parts))

    seen = np.bincount([steps.laplace_corner(scores) for _ in range(12_000)], minlength=4)
    check_law(seen, logs, off=0.1)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("length", [50, 5000], ids=["ball path", "float path"])
def test_gradients_have_the_planned_noise(length):
    steps, unit = steps_with(SeededBits(5), 0.3), 0.01
    sums = np.random.default_rng(6).integers(-(2**40), 2**40, length)
    runs = 20_000 // length
    noise = np.concatenate([steps.gradient(sums, unit) - unit * sums.astype(float) for _ in range(runs)])
    # Sums of this size leave an ulp of 2**-20 on the differences.
    assert stats.kstest(noise / 0.3, "norm").pvalue > 1e-3
    for factor in (0.95, 1.05):
        total = ((noise / (factor * 0.3)) ** 2).sum()
        assert 2 * min(stats.chi2.cdf(total, noise.size), stats.chi2.sf(total, noise.size)) < 1e-6
    assert len(np.unique(noise)) > 0.99 * noise.size


def test_gradients_leave_through_the_door():
    """On a grid that knows the noise and nothing of the sums: multiples of 2**-20 of its deviation, in sums."""
    for unit, scale in ((0.01, 0.3), (2.0**-40, 1e-6), (3.7e-9, 5.0)):
        step = 2.0 ** grid_of(scale / unit * (1 + 2.0**-50))
        for sums in (np.zeros(100, np.int64), np.arange(100) ** 5, np.full(100, 7)):
            noisy = steps_with(SeededBits(7), scale).gradient(sums, unit)
            whole = noisy / unit / step
            np.testing.assert_allclose(whole, np.rint(whole), atol=1e-6)


def test_gradients_noise_is_no_less_than_planned():
    """The deviation in sums is rounded: never down."""
    generator = np.random.default_rng(8)
    for _ in range(200):
        scale, unit = np.exp(generator.uniform(-30, 30, 2)).tolist()
        assert Fraction(scale / unit * (1 + 2.0**-50)) * Fraction(unit) >= Fraction(scale)


# ---------------------------------------------------------------- the order of things


class Book:
    """As much of a ledger as a step sees."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, str]] = []

    @contextmanager
    def spend(self, guarantee: Guarantee, purpose: str):
        self.entries.append((str(guarantee), purpose, "spent, not delivered"))
        yield guarantee
        self.entries[-1] = (*self.entries[-1][:2], "delivered")


PROMISE = Guarantee.pure(0.5)
KINDS = {"gumbel": 4, "laplace": 200, "gaussian": 200}


@pytest.mark.parametrize("kind", KINDS)
def test_the_debit_comes_before_the_steps(kind):
    book = Book()
    with private_steps(NoiseLaw(kind, 0.4, KINDS[kind]), PROMISE, book, "a test", None) as (steps, stamped):
        assert book.entries == [(str(PROMISE), "a test", "spent, not delivered")]
        assert stamped == PROMISE
        assert steps.scale == 0.4
        assert isinstance(steps.source, OperatingSystemBits)
    assert [entry[2] for entry in book.entries] == ["delivered"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_breaks_off_stays_debited(kind):
    book = Book()
    with (
        pytest.raises(RuntimeError, match="midway"),
        private_steps(NoiseLaw(kind, 0.4, KINDS[kind]), PROMISE, book, "a test", None),
    ):
        raise RuntimeError("midway")
    assert [entry[2] for entry in book.entries] == ["spent, not delivered"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300, math.inf, math.nan])
def test_scales_that_doubles_cannot_carry_cost_nothing(kind, scale):
    book = Book()
    with (
        pytest.raises(InvalidInput, match="noise scale"),
        private_steps(NoiseLaw(kind, scale, KINDS[kind]), PROMISE, book, "a test", None),
    ):
        raise AssertionError("no steps may be handed out")
    assert book.entries == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_prepared_costs_nothing(kind, monkeypatch):
    """Tables that cannot be loaded, a compiler that fails: before the debit."""
    from epsilearn.mechanisms import path

    def broken(dimension: int) -> None:
        raise MemoryError

    monkeypatch.setitem(path._PREPARE, kind, broken)
    book = Book()
    with pytest.raises(MemoryError), private_steps(NoiseLaw(kind, 0.4, 9), PROMISE, book, "a test", None):
        raise AssertionError("no steps may be handed out")
    assert book.entries == []


def test_a_seed_repeats_and_voids():
    law, found = NoiseLaw("gumbel", 0.4, 4), []
    for _ in range(2):
        with private_steps(law, PROMISE, None, "a test", 7) as (steps, stamped):
            found.append([steps.corner(POINTS, np.array([1, 2, 3]), Fraction(1)) for _ in range(50)])
        assert stamped.epsilon == math.inf
        assert stamped.void_reason == "seeded"
    assert found[0] == found[1]
    with private_steps(law, PROMISE, None, "a test", None) as (steps, stamped):
        assert [steps.corner(POINTS, np.array([1, 2, 3]), Fraction(1)) for _ in range(200)] != found[0] * 4
    assert stamped.epsilon == 0.5
