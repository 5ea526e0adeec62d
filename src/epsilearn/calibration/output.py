"""Output perturbation: how far the minimiser itself moves when one record is replaced.

F(w) = (1/n) sum of losses + (strength/2) ||w||**2, rows of norm at most R. Proofs: ``docs/theory/output.md``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["LossBounds", "enclosed_maximum", "gradient_change", "minimiser_sensitivity", "norm_bound"]

_SLACK = 1 + 1e-12  # covers the roundings of the few float operations here
_TOLERANCE = 1e-5


class LossBounds(Protocol):
    """What a calibration needs to know of a loss. All of it is public."""

    @property
    def lipschitz(self) -> float: ...
    @property
    def smoothness(self) -> float: ...
    @property
    def at_zero(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def two_sided(self) -> bool: ...
    @property
    def mirrored(self) -> bool: ...
    @property
    def mean_curvature(self) -> float: ...
    def curvature_at(self, slope: Any) -> Any: ...
    def steepest(self, score: float) -> float: ...
    def pull(self, score: float) -> float: ...


def norm_bound(loss: LossBounds, row_norm: float, strength: float) -> float:
    """A bound on the norm of every minimiser, from public numbers.

    Theorem. Stationarity gives strength ||w|| <= L R. Comparing F(w) with F(0) gives strength ||w||**2 / 2 <= the
    largest loss at 0. Dotting stationarity with w gives strength ||w||**2 <= the largest -s l'(s) over |s| <= R ||w||.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> round(norm_bound(Logistic(), 1.0, 0.01), 3)
    5.277
    """
    bound = min(loss.lipschitz * row_norm / strength, math.sqrt(2 * loss.at_zero / strength)) * _SLACK
    # Each round starts from a valid bound and yields a valid one, so stopping anywhere is safe.
    for _ in range(200):
        better = math.sqrt(loss.pull(row_norm * bound) / strength) * _SLACK
        if better >= bound * (1 - 1e-9):
            break
        bound = better
    return bound


def gradient_change(loss: LossBounds, row_norm: float, weight_norm: float) -> float:
    """The largest ||l'(w.u) u - l'(w.v) v|| over ||w|| <= weight_norm and ||u||, ||v|| <= row_norm.

    Theorem. For the logistic loss with any margin, the squared and the Huber loss (``mirrored``) it is attained by
    rows mirrored at w, at an angle t to it: the maximum of 2 R sin(t) a(R W cos t) over t in [0, pi/2], a(s) the
    steepest slope at scores of size s. For every other loss it is at most 2 R a(R W), since slopes grow with the score.

    The maximum is enclosed by subdivision, not searched: on [t1, t2] it is at most 2 R sin(t2) a(R W cos t1).

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> [round(gradient_change(Logistic(), 1.0, w), 4) for w in (0.0, 1.0, 5.0)]
    [1.0, 1.0991, 1.6173]
    """

    if not loss.mirrored:
        return 2 * row_norm * loss.steepest(row_norm * weight_norm) * _SLACK

    def above(low: float, high: float) -> float:
        return 2 * row_norm * math.sin(high) * loss.steepest(row_norm * weight_norm * math.cos(low))

    def attained(angle: float) -> float:
        return 2 * row_norm * math.sin(angle) * loss.steepest(row_norm * weight_norm * math.cos(angle))

    return enclosed_maximum(above, attained, 0.0, math.pi / 2)


def enclosed_maximum(
    above: Callable[[float, float], float], attained: Callable[[float], float], low: float, high: float
) -> float:
    """An upper bound, within a hundred-thousandth, on a function's maximum, from bounds over intervals."""
    queue, best = [(-above(low, high), low, high)], attained(low)
    while True:
        bound, start, stop = heapq.heappop(queue)
        middle = (start + stop) / 2
        best = max(best, attained(middle))
        if -bound <= best * (1 + _TOLERANCE) or stop - start < 1e-12:
            return -bound * _SLACK
        for part in ((start, middle), (middle, stop)):
            heapq.heappush(queue, (-above(*part), *part))


def minimiser_sensitivity(
    loss: LossBounds, rows: int, row_norm: float, strength: float, certificate: float = 0.0, tight: bool = True
) -> float:
    """How far (in the l2 norm) the released minimiser can move when one record is replaced.

    Theorem. F is strongly convex, so minimisers of neighbours differ by at most the change of the gradient at one of
    them over the strength: S(W) / (n strength). A solver that stops where the gradient's norm is at most
    ``certificate`` adds certificate / strength on either side.

    Parameters
    ----------
    tight : bool
        Whether to use S(W), or the papers' 2 L R.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> paper = minimiser_sensitivity(Logistic(), 1000, 1.0, 0.1, tight=False)
    >>> round(minimiser_sensitivity(Logistic(), 1000, 1.0, 0.1) / paper, 2)
    0.61
    """
    change = 2 * loss.lipschitz * row_norm
    if tight:
        change = min(change, gradient_change(loss, row_norm, norm_bound(loss, row_norm, strength)))
    elif math.isinf(change):
        change = 2 * row_norm * loss.steepest(row_norm * norm_bound(loss, row_norm, strength))
    return (change / (rows * strength) + 2 * certificate / strength) * _SLACK
