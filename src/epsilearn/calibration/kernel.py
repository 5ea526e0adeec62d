"""How noisy answers about a kernel machine must be, and how exact they can then be: from public numbers alone.

Jain and Thakurta (2013), as printed and as this project proves it. A value <w*, phi(z)> has a known sensitivity; the
interactive learner (Algorithm 1) asks whether a public hypothesis is far from it, the non-interactive one (Algorithm 3)
looks for the points where it is. Proofs: ``docs/theory/kernels.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scipy.special import gammainccinv, ndtri

from epsilearn.checks import check_failure, check_integer, check_positive
from epsilearn.errors import InvalidInput

__all__ = [
    "PrintedRounds",
    "PrintedSession",
    "Rounds",
    "SparseSession",
    "ball_spread",
    "finite_spread",
    "printed_laplace_scale",
    "printed_rounds",
    "printed_session",
    "rounds",
    "sparse_session",
]

_MOST_UPDATES = 1_000_000
_SHARES = (*(k / 20 for k in range(1, 20)), 0.975)


@dataclass(frozen=True)
class PrintedSession:
    """Algorithm 1 (PINP) as printed.

    Attributes
    ----------
    updates : float
        B; may be below 1.
    rate : float
        epsilon_0: the noise in each value is Laplace of scale 1 / rate.
    tolerance : float
        sigma: a value further than this from the hypothesis, noise included, is answered by itself.
    step : float
        eta: how far the hypothesis then moves.
    """

    updates: float
    rate: float
    tolerance: float
    step: float


def printed_session(
    rows: int,
    strength: float,
    lipschitz: float,
    bound: float,
    norm: float,
    epsilon: float,
    delta: float,
    questions: int,
    failure: float,
) -> PrintedSession:
    """The constants of Algorithm 1 as printed.

    Parameters
    ----------
    rows, strength, lipschitz, bound
        n, lambda, L and R.
    norm : float
        C, a bound on ||w*||; 2 L R / lambda always works.
    questions : int
        T.
    failure : float
        The probability, beta, that some answer is further off than the tolerance.

    Examples
    --------
    >>> found = printed_session(500, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-6, 1000, 0.05)
    >>> round(found.tolerance, 1), found.updates < 1  # larger than any prediction, which is at most 1
    (48.7, True)
    """
    _check(delta, questions, failure)
    logs = math.log(4) - math.log(delta)
    size = rows * strength * epsilon
    updates = size * norm**2 / (200 * lipschitz * bound * math.sqrt(2 * math.log(2 * questions / failure)) * logs)
    rate = size / (200 * lipschitz * bound**2 * math.sqrt(updates) * logs)
    tolerance = 4 / rate * math.log(2 * questions / failure)
    return PrintedSession(updates, rate, tolerance, tolerance / (4 * bound**2))


@dataclass(frozen=True)
class SparseSession:
    """An interactive session by the sparse vector technique.

    Attributes
    ----------
    updates : int
        B: how many answers may come from the private model.
    each : float
        The epsilon of finding one of them.
    deviation : float
        The Gaussian noise in each of them.
    threshold : float
        How far the hypothesis may be off before that happens, noise aside.
    tolerance : float
        With probability 1 - beta no answer is further off than this, and the B updates suffice.
    """

    updates: int
    each: float
    deviation: float
    threshold: float
    tolerance: float


def sparse_session(
    sensitivity: float, rho: float, norm: float, bound: float, questions: int, failure: float
) -> SparseSession:
    """The session with the least tolerance for a zero-concentrated budget.

    Theorem. With Laplace noise of scale 2 S / e on the threshold and 4 S / e on each question, each positive answer
    costs e, hence e**2 / 2 zero-concentrated; Gaussian noise of deviation s on it costs S**2 / (2 s**2). So
    rho = B (e**2 / 2 + S**2 / (2 s**2)).

    With probability 1 - beta no threshold and question err by more than a together, and no positive answer by more
    than g. A positive answer then has |d| at least threshold - a, and moving the hypothesis by its noisy d lowers
    ||w* - w||**2 by at least ((threshold - a)**2 - g**2) / R**2. With threshold = a + sqrt(g**2 + C**2 R**2 / B) that
    happens at most B times, and no answer is off by more than threshold + a.

    Parameters
    ----------
    sensitivity : float
        S: how far one value can move when a person's records are replaced.
    rho : float
        The budget.
    norm : float
        C, a bound on ||w*||.
    bound : float
        R.
    questions : int
        T.
    failure : float
        beta.

    Examples
    --------
    >>> found = sparse_session(2e-6, 0.0163, 1.0, 1.0, 10_000, 0.05)
    >>> found.tolerance < 0.25, found.updates > 16
    (True, True)
    """
    check_positive("rho", rho)
    questions, failure = check_integer("questions", questions), check_failure(failure)
    found = (
        _session(updates, share, sensitivity, rho, norm * bound, questions, failure)
        for updates in _whole_numbers()
        for share in _SHARES
    )
    return min(found, key=lambda session: session.tolerance)


def _session(
    updates: int, share: float, sensitivity: float, rho: float, reach: float, questions: int, failure: float
) -> SparseSession:
    # Both rounded against the user's favour by more than these few operations can err.
    each = math.sqrt(2 * share * rho / updates) * (1 - 1e-12)
    deviation = sensitivity * math.sqrt(updates / (2 * (1 - share) * rho)) * (1 + 1e-12)
    third = failure / 3
    off = 2 * sensitivity / each * math.log(updates / third) + 4 * sensitivity / each * math.log(questions / third)
    noise = -deviation * float(ndtri(third / (2 * updates)))
    threshold = off + math.sqrt(noise**2 + reach**2 / updates)
    return SparseSession(updates, each, deviation, threshold, threshold + off)


def _whole_numbers() -> Iterator[int]:
    """Whole numbers, ever sparser: the best tolerance is flat in them."""
    number = 1
    while number <= _MOST_UPDATES:
        yield number
        number = max(number + 1, number * 21 // 20)


def printed_laplace_scale(sensitivity: float, questions: int, epsilon: float, delta: float) -> float:
    """Independent Laplace noise for T values as papers of the time composed them: S sqrt(8 T log(1/delta)) / epsilon.

    Algorithm 2 (TDDL) prints no constant; this is the usual one, for comparison. What is used is exact composition.
    """
    _check(delta, questions, 0.5)
    return sensitivity * math.sqrt(-8 * questions * math.log(delta)) / epsilon


@dataclass(frozen=True)
class PrintedRounds:
    """Algorithm 3 (TDIL) as printed.

    Attributes
    ----------
    count : int
        B, rounded down, at least 1.
    rate : float
        epsilon_0: the noise in each value is Laplace of scale 1 / (2 rate).
    exponent : float
        A point is chosen with probability proportional to exp(exponent * how far the hypothesis is off there).
    tolerance, step : float
        sigma and eta.
    """

    count: int
    rate: float
    exponent: float
    tolerance: float
    step: float


def printed_rounds(
    rows: int, strength: float, lipschitz: float, bound: float, epsilon: float, delta: float, failure: float
) -> PrintedRounds:
    """The constants of Algorithm 3 as printed; n lambda / (L R**2) stands in its exponent twice.

    Examples
    --------
    >>> found = printed_rounds(500_000, 1e-3, 1.0, 1.0, 1.0, 1e-6, 0.05)
    >>> found.count, round(found.exponent, 1)
    (328, 11.3)
    """
    _check(delta, 1, failure)
    logs = math.log(4) - math.log(delta)
    many = rows * epsilon / (100 * lipschitz * bound * logs)
    rate = rows * epsilon * strength / (10 * lipschitz * bound**2 * math.sqrt(many) * logs)
    tolerance = 4 / rate * math.log(max(2 * many, 2.0) / failure)
    exponent = rate * rows * strength / (8 * lipschitz * bound**2)
    return PrintedRounds(max(1, math.floor(many)), rate, exponent, tolerance, tolerance / (4 * bound**2))


@dataclass(frozen=True)
class Rounds:
    """A non-interactive learner's search for the points where its hypothesis is off.

    Attributes
    ----------
    count : int
        B: the most rounds.
    each : float
        The epsilon of the exponential mechanism in each.
    deviation : float
        The Gaussian noise in each value.
    threshold : float
        The search ends at a point where the hypothesis, noise included, is off by less.
    tolerance : float
        With probability 1 - beta the result is then off by at most this, at every point of the set.
    """

    count: int
    each: float
    deviation: float
    threshold: float
    tolerance: float


def rounds(
    sensitivity: float, rho: float, norm: float, bound: float, spread: Callable[[float], float], failure: float
) -> Rounds:
    """The search with the least tolerance for a zero-concentrated budget.

    Theorem. An exponential mechanism of range e costs e**2 / 8 zero-concentrated, a value S**2 / (2 s**2), so
    rho = B (e**2 / 8 + S**2 / (2 s**2)). With probability 1 - beta each point found is within a of the worst, and no
    value errs by more than g. A round that goes on has |d| at least threshold - g and lowers ||w* - w||**2 by
    ((threshold - g)**2 - g**2) / R**2 or more; with threshold = g + sqrt(g**2 + C**2 R**2 / B) that happens at most B
    times, and where the search ends the hypothesis is nowhere off by more than threshold + g + a.

    Parameters
    ----------
    spread : callable
        ``spread(p)``: by how many units of 2 S / e the exponential mechanism misses the best with probability p.
    sensitivity, rho, norm, bound, failure
        As for `sparse_session`.
    """
    check_positive("rho", rho)
    check_failure(failure)
    found = (
        _search(count, share, sensitivity, rho, norm * bound, spread, failure)
        for count in _whole_numbers()
        for share in _SHARES
    )
    return min(found, key=lambda search: search.tolerance)


def _search(
    count: int,
    share: float,
    sensitivity: float,
    rho: float,
    reach: float,
    spread: Callable[[float], float],
    failure: float,
) -> Rounds:
    each = math.sqrt(8 * share * rho / count) * (1 - 1e-12)
    deviation = sensitivity * math.sqrt(count / (2 * (1 - share) * rho)) * (1 + 1e-12)
    half = failure / (2 * count)
    missed = 2 * sensitivity / each * spread(half)
    noise = -deviation * float(ndtri(half / 2))
    threshold = noise + math.sqrt(noise**2 + reach**2 / count)
    return Rounds(count, each, deviation, threshold, threshold + noise + missed)


def finite_spread(candidates: int) -> Callable[[float], float]:
    """For finitely many candidates: log(candidates / p)."""
    return lambda probability: math.log(candidates / probability)


def ball_spread(dimension: int) -> Callable[[float], float]:
    """For the ball of R**d and a linear kernel: the upper p-quantile of Gamma((d + 1) / 2).

    With s = 1 - |t| for the component t along the direction sought, the density of s is proportional to
    exp(-c s) s**k (2 - s)**k, k = (d - 1) / 2, and without the falling last factor it is a Gamma's.
    """
    shape = (dimension + 1) / 2
    return lambda probability: float(gammainccinv(shape, probability))


def _check(delta: float, questions: int, failure: float) -> None:
    if not 0 < delta < 1:
        raise InvalidInput("calibration='paper' needs delta between 0 and 1: the paper's algorithms are not pure")
    check_integer("questions", questions)
    check_failure(failure)
