"""Printed claims that fail, each computed on one pair of neighbours, or by itself where it is no claim of privacy.

``docs/errata.md`` lists what the sources print and what holds; the ``errata`` study runs what is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import brentq

from epsilearn import erm, laplace, statistics
from epsilearn.accounting import LaplaceShift
from epsilearn.audit.exact import real_epsilon
from epsilearn.calibration.frank_wolfe import (
    automatic_steps,
    choice_scale,
    corner_error,
    paper_scale,
    paper_steps,
    worst_curvature,
)
from epsilearn.calibration.kernel import printed_rounds, printed_session
from epsilearn.calibration.objective import pure_loss, pure_perturbation
from epsilearn.composition import Composite
from epsilearn.explanation import explain
from epsilearn.losses import HuberisedHinge, Logistic
from epsilearn.rows import Bounds, as_rows
from epsilearn.studies.divergences import noisy_choices, objective_loss, search_outputs

__all__ = ["AUDITED", "CLAIMS", "NUMBERS", "Audited", "Claim", "Number", "lasso_pair", "theorem_2"]

# One record against another; any others are empty, and do not matter.
LONELY, EMPTY, OPPOSITE = [(1.0, 1.0)], [(0.0, 1.0)], [(1.0, -1.0)]


@dataclass(frozen=True)
class Claim:
    """A printed promise, and what is true on one pair of neighbours.

    Attributes
    ----------
    name : str
        Where it is printed.
    pair : str
        The neighbours.
    claimed : float
        The epsilon that is printed.
    real : float
        The least epsilon that is true on the pair, at the same delta.
    delta : float
        The delta of both.
    """

    name: str
    pair: str
    claimed: float
    real: float
    delta: float = 0.0


@dataclass(frozen=True)
class Number:
    """A printed number that promises no privacy, and what is computed in its place."""

    name: str
    printed: str
    computed: str


def theorem_2(size: float, epsilon: float) -> tuple[float, float]:
    """Real and proven epsilon of the 2008 paper's Theorem 2 as printed, at n lambda = ``size``.

    The pair is a record x = 1, y = 1 against x = 0, all others being empty.
    """
    rate = 1 / pure_perturbation(Logistic(), 1, 1.0, size, epsilon, tight=False).scale
    return objective_loss(Logistic(), LONELY, EMPTY, size, rate), pure_loss(Logistic(), 1, 1.0, size, rate)


def _theorem_2() -> Claim:
    return Claim("2008, Theorem 2", "n = 1, lambda = 0.01: x = 1 against x = 0", 0.1, theorem_2(0.01, 0.1)[0])


def _theorem_2_with_less_noise() -> Claim:
    """Less noise makes the difference easier to see in releases: this is the claim that is audited."""
    return Claim("2008, Theorem 2, at 0.7", "the same, less noise", 0.7, theorem_2(0.01, 0.7)[0])


def _theorem_3() -> Claim:
    """Bounded slopes, and curvature 1 / (2 width): nothing in the theorem keeps the width from being small."""
    real = objective_loss(HuberisedHinge(0.005), LONELY, OPPOSITE, n_strength=1.0, rate=0.1 / 2)
    return Claim("2008, Theorem 3", "hinge rounded over a width of 0.005: y = 1 against y = -1", 0.1, real)


def _definition_2() -> Claim:
    """The standard deviation of Laplace noise is sqrt(2) times its scale: here the scale is S / (sqrt(2) epsilon)."""
    sensitivity = deviation = 1.0
    real = LaplaceShift(sensitivity / (deviation / math.sqrt(2))).epsilon(0.0)
    return Claim("2008, Definition 2", "a sum of bits, one bit replaced", 1.0, real)


def _lecture_tables() -> tuple[Any, Any]:
    """Nine records x = 0 and one x = 1, whose target is 1 or -1."""
    column = np.zeros((10, 1))
    column[-1] = 1.0
    first, second = np.zeros(10), np.zeros(10)
    first[-1], second[-1] = 1.0, -1.0
    return (column, first), (column, second)


def _least_squares(table: tuple[Any, Any]) -> float:
    return float(np.linalg.lstsq(*table, rcond=None)[0][0])


# 2 M sqrt(k) (N + P M) / n with M = N = P = k = 1 and n = 10.
_LECTURE_SENSITIVITY = 2 * (1 + 1) / 10


def _lecture_regression() -> Claim:
    first, second = map(_least_squares, _lecture_tables())
    real = abs(first - second) / _LECTURE_SENSITIVITY
    return Claim("Lecture, Theorem 6", "nine x = 0, one x = 1 with y = 1 against y = -1", 1.0, real)


def _lecture_parallel() -> Claim:
    """A replaced record leaves one part and enters another: both counts move by 1."""
    real = Composite((LaplaceShift(1.0), LaplaceShift(1.0))).epsilon(0.0)
    return Claim("Lecture, Theorem 8", "a count in each of two wards; a patient changes wards", 1.0, real)


def lasso_pair(epsilon: float) -> Claim:
    """Algorithm 2 as printed with the linear loss <theta, d>, d = 1 against d = -1.

    The corners' scores are 1/n and -1/n, or the reverse, whatever was chosen before: the choices are independent.
    """
    rows, steps, delta = 1000, 300, 1e-3
    scale = paper_scale(rows, 1.0, steps, epsilon, delta)
    real = real_epsilon(*noisy_choices(2 / rows, scale, steps - 1), delta)
    pair = "linear loss, T = 300: d = 1 against d = -1, the others cancel"
    return Claim("LASSO, Algorithm 2", pair, epsilon, real, delta)


def _lasso() -> Claim:
    """Caught only where composition's second-order term, which is missing, is large."""
    return lasso_pair(20.0)


def _kernel_search() -> Claim:
    """Linear loss, so that the minimiser is a mean over lambda: one record pulls it right or left by 1 / (n lambda)."""
    rows, strength, delta = 1_000_000, 0.1, 1e-6
    found = printed_rounds(rows, strength, 1.0, 1.0, 1.0, delta, 0.05)
    moved, rest = 1 / (rows * strength), (rows - 1) / (rows * strength)
    right, left = (search_outputs(found, (side, rest), angle=0.2) for side in (moved, -moved))
    pair = "n = 10^6, lambda = 0.1, two candidates: x to the right against x to the left"
    return Claim("Kernels, Algorithm 3", pair, 1.0, real_epsilon(right, left, delta), delta)


CLAIMS: tuple[Callable[[], Claim], ...] = (
    _theorem_2, _theorem_2_with_less_noise, _theorem_3, _definition_2, _lecture_regression, _lecture_parallel, _lasso,
    _kernel_search,
)  # fmt: skip


@dataclass(frozen=True)
class Audited:
    """A claim that real releases are held against."""

    name: str
    claimed: float
    mechanism: Callable[[Any], Any]
    first: Any
    second: Any


def _audited_theorem_2() -> Audited:
    pair = [as_rows(np.array([[x]]), np.ones(1), Bounds(1.0, intercept=0.0)) for x in (1.0, 0.0)]
    plan = erm.plan(Logistic(), erm.Table.of(pair[0]), strength=0.01, epsilon=0.7, calibration="paper")
    return Audited("2008, Theorem 2, at 0.7", 0.7, lambda rows: erm.execute(plan, Logistic(), rows), *pair)


def _audited_regression() -> Audited:
    def mechanism(table: Any) -> Any:
        return laplace(_least_squares(table), sensitivity=_LECTURE_SENSITIVITY, epsilon=1.0)

    return Audited("Lecture, Theorem 6", 1.0, mechanism, *_lecture_tables())


def _audited_parallel() -> Audited:
    def mechanism(wards: Any) -> Any:
        return [statistics.count(wards == ward, epsilon=1.0).value for ward in (0, 1)]

    first, second = np.zeros(10, dtype=int), np.zeros(10, dtype=int)
    second[0] = 1
    return Audited("Lecture, Theorem 8", 1.0, mechanism, first, second)


AUDITED: tuple[Callable[[], Audited], ...] = (_audited_theorem_2, _audited_regression, _audited_parallel)


def _noisy_sum() -> Number:
    noise = statistics.sum([0, 1, 1], bounds=(0, 1), epsilon=0.1).noise
    assert noise is not None
    chebyshev = math.sqrt(2 / 0.05) / 0.1
    computed = f"{noise.half_width(0.95):.1f}; Chebyshev's inequality {chebyshev:.1f}"
    return Number("Lecture, noisy sum: 95 % within, epsilon = 0.1", "14.5", computed)


def _guessing_game() -> Number:
    meaning = explain(1.0)
    printed, tight = meaning.lecture_winning_bound, meaning.winning_probability
    return Number("Lecture, guessing game: chance of winning, epsilon = 1", f"{printed:.3f}", f"{tight:.3f}")


def _semantic_privacy() -> Number:
    meaning = explain(1.0)
    printed, tight = meaning.lecture_posterior_bound, meaning.posterior_shift
    return Number("Lecture, Theorem 3: shift of belief, epsilon = 1", f"{printed:.2f}", f"{tight:.3f}")


def _lemmas() -> Number:
    """2 (1 + lambda) / lambda**2 (Lemma 3) against 8 / lambda (Lemma 4), both times the same."""
    crossing = brentq(lambda strength: 2 * (1 + strength) / strength**2 - 8 / strength, 0.01, 0.99)
    return Number("2008, Lemma 4 is below Lemma 3 for lambda below", "1", f"{crossing:.4f}")


def _steps() -> Number:
    rows, epsilon, delta, columns = 10_000, 1.0, 10_000**-1.1, 500

    def error(steps: int) -> float:
        return corner_error(choice_scale(rows, 4.0, 1.0, epsilon, delta, steps, 1), 2 * columns)

    printed = paper_steps(rows, 4.0, worst_curvature(2.0, 1.0), epsilon)
    chosen = automatic_steps(2.0, 1.0, error)
    return Number("LASSO, Theorem 2.5: steps at n = 10^4, epsilon = 1", f"{printed}", f"{chosen}")


def _curvature() -> Number:
    """Definition 2.1 on the corners of the l1 ball, for a small quadratic loss; a random matrix is as good as any."""
    matrix = np.random.default_rng(0).normal(size=(5, 3))
    corners = [sign * corner for corner in np.eye(3) for sign in (1.0, -1.0)]

    def loss(theta: Any) -> float:
        return float(np.sum((matrix @ theta - 1) ** 2))

    def excess(start: Any, corner: Any, step: float) -> float:
        end, gradient = start + step * (corner - start), 2 * matrix.T @ (matrix @ start - 1)
        return 2 / step**2 * (loss(end) - loss(start) - float(gradient @ (end - start)))

    printed = max(float(np.sum((matrix @ (a - b)) ** 2)) for a, b in product(corners, corners))
    computed = max(excess(a, b, step) for a, b in product(corners, corners) for step in (0.25, 0.5, 1.0))
    return Number("LASSO, Remark 1: curvature of a small quadratic loss", f"{printed:.2f}", f"{computed:.2f}")


def _tolerance() -> Number:
    found = printed_session(500, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-6, 1000, 0.05)
    name = "Kernels, Algorithm 1: tolerance at n lambda epsilon = 500; predictions are at most 1"
    return Number(name, "useful", f"{found.tolerance:.1f}, after {found.updates:.3f} updates")


def _beyond_tolerance() -> Number:
    found = printed_session(500, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-6, 1000, 0.05)
    chance = math.exp(-0.01 * found.tolerance * found.rate) / 2
    name = "Kernels, Algorithm 1: chance that an error of 1.01 tolerances is left to stand"
    return Number(name, "0", f"{chance:.2f}")


NUMBERS: tuple[Callable[[], Number], ...] = (
    _noisy_sum, _guessing_game, _semantic_privacy, _lemmas, _steps, _curvature, _tolerance, _beyond_tolerance,
)  # fmt: skip
