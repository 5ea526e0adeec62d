"""Objective perturbation: noise b in the objective, F(w) + b.w / n. Proofs: ``docs/theory/objective.md``.

Gradient and curvature of a replaced record belong to the same score, so they trade off: where the loss is steepest
it is least curved. That trade-off is what these calibrations use and the papers do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx
from scipy.stats import chi2

from epsilearn.calibration.output import LossBounds
from epsilearn.checks import check_budget, check_integer, check_positive
from epsilearn.errors import InvalidInput

__all__ = ["Perturbation", "gaussian_loss", "gaussian_perturbation", "pure_loss", "pure_perturbation"]

Array = NDArray[np.float64]

_SLACK = 1 + 1e-9
_ROUNDING = 1 + 1e-12  # covers the roundings of the few float operations of a bound
# Into how many cells slopes are cut: more of them follow the trade-off more closely, and add more tails.
_CELLS = (1, 2, 4, 8, 16, 32)
# Gauss and Legendre's rule on [0, 1].
_NODES, _NODE_WEIGHTS = (np.polynomial.legendre.leggauss(20)[0] + 1) / 2, np.polynomial.legendre.leggauss(20)[1] / 2


@dataclass(frozen=True)
class Perturbation:
    """How to perturb the objective.

    Attributes
    ----------
    strength : float
        The regularisation actually used; raised if the one asked for cannot be private enough.
    scale : float
        Pure: ||b|| has a Gamma(d, scale) law. Gaussian: the deviation of each coordinate of b.
    """

    strength: float
    scale: float


def pure_loss(loss: LossBounds, rows: int, row_norm: float, strength: float, rate: float) -> float:
    """The largest privacy loss of the exact minimiser when b has density proportional to exp(-rate ||b||).

    Theorem J. sup over scores of rate R (|l'| + L) + k log(1 + l'' R**2 / (n strength)), k the rank of a record's
    curvature (1 for a loss of one score). The Hessians of neighbours share all records but one, so the determinants'
    ratio is that of one record's change, at the same score as the slope.
    """
    steepest, weight = loss.lipschitz, row_norm**2 / (rows * strength)

    def at(slopes: Array) -> Array:
        bends: Array = loss.rank * np.log1p(loss.curvature_at(slopes) * weight)
        return rate * row_norm * (slopes + steepest) + bends

    return _concave_maximum(at, 0.0, steepest) * _ROUNDING


def _concave_maximum(function: Callable[[Array], Array], low: float, high: float) -> float:
    """An upper bound, tight to a billionth or so, on a concave function's maximum over an interval.

    Two neighbouring points of a concave function bound it beyond them by the line through them.
    """
    for _ in range(4):
        points = np.linspace(low, high, 65)
        values = function(points)
        best = int(np.argmax(values))
        low, high = points[max(best - 1, 0)], points[min(best + 1, 64)]
    cells = np.maximum(values[:-1], values[1:])
    from_left = np.append(np.inf, values[1:-1] + np.diff(values)[:-1])
    from_right = np.append(values[1:-1] - np.diff(values)[1:], np.inf)
    return float(np.max(np.maximum(cells, np.minimum(from_left, from_right))))


def _unchanging(loss: LossBounds) -> bool:
    """Whether a loss is one of the library's own: frozen, and equal only to those that promise the same."""
    if not type(loss).__module__.startswith("epsilearn.losses."):
        return False
    try:
        hash(loss)
    except TypeError:
        return False
    return True


Planned = TypeVar("Planned", bound=Callable[..., Perturbation])


def _remembered(plan: Planned) -> Planned:
    """The same plan asked for again is looked up: planning takes longer than a fit to a small table.

    Plans depend on public numbers alone, so one that is kept tells nothing. Only losses that cannot change stand for
    themselves; what any other promised the last time it may no longer promise.
    """
    kept: Callable[..., Perturbation] = lru_cache(maxsize=512)(plan)

    @wraps(plan)
    def look_up(loss: LossBounds, *numbers: Any, **named: Any) -> Perturbation:
        return (kept if _unchanging(loss) else plan)(loss, *numbers, **named)

    return cast(Planned, look_up)


@_remembered
def pure_perturbation(
    loss: LossBounds, rows: int, row_norm: float, strength: float, epsilon: float, tight: bool = True
) -> Perturbation:
    """The noise that makes the exact minimiser epsilon-private.

    The largest rate with `pure_loss` at most epsilon. If that is below epsilon / (4 L R), the strength is raised to
    the least one that reaches it. As printed (2008), the rate is epsilon / (2 L R) for every strength: proven for the
    logistic loss only if n strength epsilon >= 2 R**2.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> pure_perturbation(Logistic(), 10_000, 1.0, 0.01, 1.0).scale  # doctest: +ELLIPSIS
    2.0000...
    >>> pure_perturbation(Logistic(), 10, 1.0, 0.001, 0.1).strength > 0.001
    True
    """
    check_integer("rows", rows)
    check_positive("row_norm", row_norm)
    check_positive("strength", strength)
    check_budget(epsilon)
    printed = epsilon / (2 * loss.lipschitz * row_norm)
    if not tight:
        return Perturbation(strength, 1 / printed)
    strength = _enough_strength(lambda s: pure_loss(loss, rows, row_norm, s, printed / 2) <= epsilon, strength)
    low, high = printed / 2, printed
    for _ in range(60):
        middle = (low + high) / 2
        fits = pure_loss(loss, rows, row_norm, strength, middle) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return Perturbation(strength, _SLACK / low)


def _enough_strength(fits: Callable[[float], bool], strength: float) -> float:
    """The least strength, at least the given one, that fits; fitting is monotone."""
    if fits(strength):
        return strength
    low, high = strength, 2 * strength
    while not fits(high):
        low, high = high, _doubled(high)
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _doubled(number: float) -> float:
    if number > 1e250:
        raise InvalidInput("no noise is enough for this budget with these bounds; ask for another epsilon or delta")
    return 2 * number


def gaussian_loss(
    loss: LossBounds, rows: int, row_norm: float, strength: float, scale: float, epsilon: float, prior: float = 0.0
) -> float:
    """A bound on delta(epsilon) of the exact minimiser when b is normal with deviation ``scale``.

    Theorem C. Cut the slopes [0, L] into cells at points s, let c(s) be the largest log(1 + l'' R**2 / (n strength))
    of the cells that meet at s, and G(e, a) = Phi(a/2 - e/a) - exp(e) Phi(-a/2 - e/a), which is what a normal shift of
    length a costs: delta <= the sum over s of G(epsilon - c(s), (s + L) R / scale) + G(epsilon - c(s), s R / scale),
    where epsilon - c(s) exceeds half the square of each shift. Any cells will do; the best of a few choices is taken.

    Losses of several scores, r the rank of a record's curvature: with k = 2 L R / scale, c = r log(1 + beta R**2 / (n
    strength)) and G(a) = G(epsilon - c - (k**2 - a**2) / 2, a), delta <= r**2 G(k) + 2 r G(k/2). Where slopes can have
    either sign (regression, custom losses): delta <= the largest 2 G(k cos t) + 2 G(k sin t) over angles t.

    After releases whose privacy loss is that of a normal shift of length ``prior``, and which the rows may depend on,
    every shift a becomes sqrt(a**2 + prior**2), and for each that is not 0 there is G(epsilon - c(s) - a**2 / 2, prior)
    / 2 on top; in the sums for several scores and either sign, G(prior) once. Where slopes can have either sign, the
    angle may then differ from release to release: 2 G(k) + 2 G(k / sqrt(2)) instead.

    Also delta <= the expectation of (1 - e**(epsilon - A))+ for A the largest loss given the noise's length in the
    span of the records' gradients, which is chi distributed with 2 r degrees of freedom. The smaller of the two, where
    nothing was released before.
    """
    by_maximum = _by_maximum(loss, rows, row_norm, strength, scale, epsilon, prior)
    return by_maximum if prior else min(by_maximum, _by_length(loss, rows, row_norm, strength, scale, epsilon))


def _by_maximum(
    loss: LossBounds, rows: int, row_norm: float, strength: float, scale: float, epsilon: float, prior: float = 0.0
) -> float:
    if loss.two_sided or loss.rank > 1:
        return _by_largest(loss, rows, row_norm, strength, scale, epsilon, prior)
    weight, unit = row_norm**2 / (rows * strength), row_norm / scale
    # Without a trade-off one cell is best.
    choices = _CELLS if loss.curvature_at(loss.lipschitz) < loss.mean_curvature else _CELLS[:1]
    bounds = [_by_cells(loss, cells, weight, unit, epsilon, prior) for cells in choices]
    if prior:
        # What the prior shift costs alone is counted for every cell, and here once: less where delta is not small.
        bounds.append(_by_largest(loss, rows, row_norm, strength, scale, epsilon, prior))
    return min(bounds)


def _by_cells(loss: LossBounds, cells: int, weight: float, unit: float, epsilon: float, prior: float) -> float:
    slopes = np.linspace(0, loss.lipschitz, cells + 1)
    bends = np.log1p(_cell_curvatures(loss, slopes) * weight) * _ROUNDING
    # At each end of a cell the larger bend of the two cells that meet there.
    left = epsilon - np.maximum(np.append(bends, 0.0), np.append(0.0, bends))
    ends, left = np.concatenate([slopes, slopes + loss.lipschitz]), np.concatenate([left, left])
    shifts = ends * unit * _ROUNDING
    # The shift of length 0, which costs nothing while there is room for its bend.
    total = float(np.sum(_shift_costs(left[1:], np.hypot(shifts[1:], prior)))) if left[0] > 0 else 1.0
    if prior:
        by_prior = _shift_costs(left - shifts**2 / 2, np.full(len(left), prior))
        total += float(by_prior[0] + np.sum(by_prior[1:]) / 2)
    return min(1.0, total * _SLACK)


def _cell_curvatures(loss: LossBounds, slopes: Array) -> Array:
    """The largest curvature in each cell of slopes.

    It is concave: in a cell it is at most what the lines through the neighbouring points say, and the largest of all.
    """
    curvature = np.broadcast_to(loss.curvature_at(slopes), slopes.shape)
    rise = np.diff(curvature)
    over = np.minimum(np.append(np.inf, curvature[1:-1] + rise[:-1]), np.append(curvature[1:-1] - rise[1:], np.inf))
    found: Array = np.minimum(np.maximum.reduce([over, curvature[:-1], curvature[1:]]), loss.mean_curvature)
    return found


def _shift_costs(epsilon: Array, shift: Array) -> Array:
    """The delta of normal shifts of these lengths; 1 where epsilon is less than half the square of one."""
    starts = epsilon / shift - shift / 2
    costs: Array = np.where(starts > 0, _excess_tail(np.maximum(starts, 0.0), shift), 1.0)
    return costs


def _by_largest(
    loss: LossBounds, rows: int, row_norm: float, strength: float, scale: float, epsilon: float, prior: float
) -> float:
    k = 2 * loss.lipschitz * row_norm / scale
    z = epsilon - _determinant(loss, rows, row_norm, strength) - k**2 / 2 - prior**2 / 2
    if z <= 0:
        return 1.0

    def part(a: float) -> float:
        together = math.hypot(a, prior)
        return float(_excess_tail(z / together, together))

    before = part(0.0) if prior else 0.0
    if loss.two_sided:
        # Over angles from 0 to 45 degrees, each cell bounded by its larger deviations. What was released before may
        # choose the angle: then all of them are one cell.
        angles = np.linspace(0, math.pi / 4, 2 if prior else 65)
        cells = zip(np.cos(angles[:-1]), np.sin(angles[1:]), strict=True)
        return min(1.0, (max(2 * part(k * float(c)) + 2 * part(k * float(s)) for c, s in cells) + before) * _SLACK)
    return min(1.0, (loss.rank**2 * part(k) + 2 * loss.rank * part(k / 2) + before) * _SLACK)


def _excess_tail(start: Any, step: Any) -> Any:
    """Phi(-u) - e**(u a + a**2 / 2) Phi(-u - a), without cancelling: phi(u) times the integral of 1 - t M(t) from u to
    u + a, M being Mills' ratio Phi(-t) / phi(t), whose derivative is t M(t) - 1.

    Examples
    --------
    >>> round(float(_excess_tail(1.0, 0.5)) / (0.158655253931457 - 1.868245957432222 * 0.066807201268858), 9)
    1.0
    """
    start, step = np.asarray(start, np.float64), np.asarray(step, np.float64)
    # A tail too small for doubles is 0, also where somebody wants to be told of that.
    with np.errstate(under="ignore", over="ignore"):
        density = np.exp(-(start**2) / 2) / math.sqrt(2 * math.pi)
    points = start[..., None] + np.minimum(step, 1.0)[..., None] * _NODES
    near = step * ((1 - points * _mills(points)) @ _NODE_WEIGHTS)
    return density * np.where(step > 1, _mills(start) - _mills(start + step), near)


def _mills(points: Any) -> Any:
    return math.sqrt(math.pi / 2) * erfcx(points / math.sqrt(2))


def _determinant(loss: LossBounds, rows: int, row_norm: float, strength: float) -> float:
    """The largest logarithm of the ratio of neighbours' Hessian determinants."""
    return loss.rank * math.log1p(loss.mean_curvature * row_norm**2 / (rows * strength)) * _ROUNDING


def _by_length(loss: LossBounds, rows: int, row_norm: float, strength: float, scale: float, epsilon: float) -> float:
    """The integral over the length t, bounded above by a Riemann sum: the loss grows with t."""
    slopes = np.linspace(0, loss.lipschitz, 401)
    bends = loss.rank * np.log1p(_cell_curvatures(loss, slopes) * row_norm**2 / (rows * strength))
    shifts = row_norm * (slopes[1:] + loss.lipschitz) / scale
    # No cell can be the worst whose bend and shift are both no larger than another's.
    keep = np.append(bends[:-1] > np.maximum.accumulate(bends[::-1])[::-1][1:], True)
    bends, shifts = bends[keep], shifts[keep]
    freedom = 2 * loss.rank
    lengths = np.append(np.linspace(0, 12 + math.sqrt(freedom), 1201), 40.0 + math.sqrt(freedom))
    # The worst loss at the upper end of each length cell, times that cell's exact probability.
    worst = np.max(bends[None] + shifts[None] * lengths[1:, None] + shifts[None] ** 2 / 2, axis=1)
    beyond = chi2.sf(lengths**2, freedom)
    mass = (beyond[:-1] - beyond[1:]) @ -np.expm1(np.minimum(0, epsilon - worst)) + beyond[-1]
    return min(1.0, float(mass) * _SLACK)


@_remembered
def gaussian_perturbation(
    loss: LossBounds, rows: int, row_norm: float, strength: float, epsilon: float, delta: float, prior: float = 0.0
) -> Perturbation:
    """The normal noise that makes the exact minimiser (epsilon, delta)-private; the strength as in the pure case.

    ``prior`` is the length of the normal shift that earlier releases amount to; the promise is for all of them.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> found = gaussian_perturbation(Logistic(), 10_000, 1.0, 0.1, 1.0, 1e-6)
    >>> round(found.scale, 2)
    8.45
    """
    check_integer("rows", rows)
    check_positive("row_norm", row_norm)
    check_positive("strength", strength)
    check_budget(epsilon, delta)
    # Half of epsilon at most for the determinant: the same rule as for pure noise at rate epsilon / (4 L R).
    strength = _enough_strength(lambda s: _determinant(loss, rows, row_norm, s) <= epsilon / 2, strength)
    unit = loss.lipschitz * row_norm
    scale = _least_scale(
        lambda s: _by_maximum(loss, rows, row_norm, strength, s, epsilon, prior) <= delta, 1e-6 * unit, unit, 1e-6
    )

    def fits_by_length(scale: float) -> bool:
        return _by_length(loss, rows, row_norm, strength, scale, epsilon) <= delta

    # The other bound is dear to evaluate, and seldom the smaller one: ask once before searching with it.
    if not prior and fits_by_length(0.999 * scale):
        scale = _least_scale(fits_by_length, scale / 2, 0.999 * scale, 1e-4)
    return Perturbation(strength, scale * _SLACK)


def _least_scale(fits: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The least scale from ``low`` on that fits, to a relative precision and rounded up; fitting is monotone."""
    while not fits(high):
        low, high = high, _doubled(high)
    while high - low > precision * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
