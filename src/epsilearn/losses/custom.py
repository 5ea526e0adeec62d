"""A loss of one's own, with declared bounds that are checked numerically before they are believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flint import arb

from epsilearn.checks import check_size
from epsilearn.errors import InvalidInput
from epsilearn.losses.interface import Array, Loss
from epsilearn.quiet import quietly

__all__ = ["Custom"]

Function = Callable[[Array, Array], Array]

# Scores near zero finely, and far out coarsely: declared bounds must hold everywhere.
_SCORES = np.concatenate([np.linspace(-30, 30, 6001), *(s * np.geomspace(30, 1e4, 200) for s in (-1.0, 1.0))])
_STEP = 1e-5
_TOLERANCE = 1e-9  # a declaration may be short by this much, and then more than it is counted
_LARGEST_SCORE = 1e300


@dataclass(frozen=True)
class Custom(Loss):
    """A convex loss given by functions of (score, target), with its bounds declared.

    The bounds carry the privacy proof, so they are tested on a grid of scores and targets, and a contradiction is an
    error. The test is not a proof: the guarantee lists the declaration as an assumption. A fit also tries the functions
    on all scores that it can meet, before any record is looked at: there they must be finite.

    Parameters
    ----------
    function, derivative, second_derivative : callable
        The value, slope and curvature in the score, of arrays of scores and targets, element by element.
    declared_lipschitz, declared_smoothness : float
        Bounds on the absolute slope and on the curvature.
    binary : bool
        Whether targets are -1 and 1 (a classifier) or numbers in [-target_bound, target_bound].
    target_bound : float
        The public bound on numeric targets.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Custom(
    ...     lambda s, y: np.sqrt(1 + (s - y) ** 2) - 1,
    ...     lambda s, y: (s - y) / np.sqrt(1 + (s - y) ** 2),
    ...     lambda s, y: (1 + (s - y) ** 2) ** -1.5,
    ...     declared_lipschitz=1.0, declared_smoothness=1.0, binary=False,
    ... )
    >>> round(loss.lipschitz, 6), round(loss.smoothness, 6)
    (1.0, 1.0)
    """

    function: Function
    derivative: Function
    second_derivative: Function
    declared_lipschitz: float = field(kw_only=True)
    declared_smoothness: float = field(kw_only=True)
    binary: bool = field(default=True, kw_only=True)
    target_bound: float = field(default=1.0, kw_only=True)

    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("declared_lipschitz", "declared_smoothness", "target_bound"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        for target in self._targets():
            self._check(target)

    @property
    def classifies(self) -> bool:  # type: ignore[override]
        return self.binary

    @property
    def two_sided(self) -> bool:
        # Even a loss of a margin may rise on both sides of its minimum, and nobody declared that it does not.
        return True

    @property
    def lipschitz(self) -> float:
        return self.declared_lipschitz * (1 + _TOLERANCE)

    @property
    def smoothness(self) -> float:
        return self.declared_smoothness * (1 + _TOLERANCE)

    @property
    def at_zero(self) -> float:
        # How far below its value at 0 the loss can fall is not declared; other bounds on the minimiser remain.
        return math.inf

    def value(self, score: Array, target: Array) -> Array:
        return _evaluated(self.function, score, target)[0]

    def slope(self, score: Array, target: Array) -> Array:
        return _evaluated(self.derivative, score, target)[0]

    def curvature(self, score: Array, target: Array) -> Array:
        return _evaluated(self.second_derivative, score, target)[0]

    def slope_in_balls(self, score: arb, target: arb) -> arb:
        raise NotImplementedError("a loss given by functions of doubles cannot be evaluated in ball arithmetic")

    def slope_rounding(self, score: float) -> float:  # noqa: ARG002 - declared, not derived
        return 1e-12 * (1 + self.declared_lipschitz)

    def check_scores(self, largest: float) -> None:
        """Refuse the loss unless it is finite for scores of up to this size, which may be far beyond the first grid."""
        sizes = np.geomspace(1.0, min(max(largest, 1.0), _LARGEST_SCORE), 1000)
        scores = np.concatenate([-sizes[::-1], [0.0], sizes])
        for target in self._targets():
            self._finite(scores, np.full_like(scores, target))

    def _finite(self, scores: Array, targets: Array) -> list[Array]:
        """Values, slopes and curvatures, each a finite number for each score, whatever other scores there are."""
        return [
            _checked(name, function, scores, targets)
            for name, function in (
                ("value", self.function),
                ("slope", self.derivative),
                ("curvature", self.second_derivative),
            )
        ]

    def _targets(self) -> Array:
        return np.array([-1.0, 1.0]) if self.binary else np.linspace(-self.target_bound, self.target_bound, 21)

    @quietly()
    def _check(self, target: float) -> None:
        targets = np.full_like(_SCORES, target)
        _, slopes, curvatures = self._finite(_SCORES, targets)
        self._check_declaration(slopes, curvatures)
        self._check_derivatives(targets, slopes, curvatures)

    def _check_declaration(self, slopes: Array, curvatures: Array) -> None:
        steepest, most = float(np.abs(slopes).max()), float(curvatures.max())
        if steepest > self.lipschitz:
            raise InvalidInput(f"declared lipschitz is {self.declared_lipschitz:g}, but a slope is {steepest:g}")
        if most > self.smoothness:
            raise InvalidInput(f"declared smoothness is {self.declared_smoothness:g}, but a curvature is {most:g}")
        rise = np.diff(slopes[np.argsort(_SCORES, kind="stable")])
        gaps = np.diff(np.sort(_SCORES))
        if curvatures.min() < -1e-12 or (rise < -1e-9 * self.declared_lipschitz).any():
            raise InvalidInput("the loss is not convex: its slope falls somewhere")
        if (rise > self.declared_smoothness * gaps * (1 + 1e-6) + 1e-9 * self.declared_lipschitz).any():
            raise InvalidInput(
                f"the slope rises faster than the declared smoothness {self.declared_smoothness:g} allows"
            )

    def _check_derivatives(self, targets: Array, slopes: Array, curvatures: Array) -> None:
        """Value, slope and curvature must belong together, away from kinks of the slope."""
        near = np.abs(_SCORES) <= 30
        up, down = _SCORES[near] + _STEP, _SCORES[near] - _STEP
        climb = (self.value(up, targets[near]) - self.value(down, targets[near])) / (2 * _STEP)
        allowed = self.declared_smoothness * _STEP + 1e-5 * (1 + self.declared_lipschitz)
        if (np.abs(climb - slopes[near]) > allowed).any():
            raise InvalidInput("the loss's derivative does not match its values")
        turn = (self.slope(up, targets[near]) - self.slope(down, targets[near])) / (2 * _STEP)
        # A kink of the slope touches few grid points; a wrong formula touches many.
        wrong = np.abs(turn - curvatures[near]) > 1e-3 * (1 + self.declared_smoothness)
        if wrong.mean() > 0.01:
            raise InvalidInput("the loss's second derivative does not match its derivative")


@quietly()
def _evaluated(function: Function, score: Array, target: Array) -> tuple[Array, str]:
    """What somebody's function makes of scores, in silence; no numbers where it fails, and the error's name.

    Scores of private records are among them: the error itself may quote some.
    """
    try:
        found = np.asarray(function(score, target), np.float64)
    except Exception as error:
        return np.full(score.shape, np.nan), type(error).__name__
    return (found, "") if found.shape == score.shape else (np.full(score.shape, np.nan), "")


def _checked(name: str, function: Function, scores: Array, targets: Array) -> Array:
    found, fault = _evaluated(function, scores, targets)
    if fault:
        raise InvalidInput(f"the loss's {name} raised {fault}; it must be a finite number for each score")
    if not np.isfinite(found).all():
        beyond = float(np.abs(scores[~np.isfinite(found)]).min())
        raise InvalidInput(
            f"the loss's {name} must be a finite number for each score, and is not at one of size {beyond:g}; write it "
            "so that nothing overflows, or let a larger alpha keep scores smaller"
        )
    few = len(scores) // 3
    if not np.allclose(_evaluated(function, scores[:few], targets[:few])[0], found[:few], rtol=1e-9, atol=1e-12):
        raise InvalidInput(f"the loss's {name} at one score depends on the others; a record must answer for itself")
    return found
