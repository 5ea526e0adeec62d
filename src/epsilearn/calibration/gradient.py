"""Gradient perturbation: steps of gradient descent, each a Gaussian mechanism. Proofs: ``docs/theory/gradient.md``.

Nothing is asked of the loss but bounded slopes, and nothing of the solver: a step that starts from a public point and
moves by a public rule along a noisy gradient ends at a public point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from epsilearn.balls import exact, round_down
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.calibration.centring import Centring

__all__ = ["Descent", "planned_descent", "record_shift"]

# More steps follow the gradient more closely and cost nothing but time; fewer than the first number are too coarse.
_FEWEST, _MOST = 30, 80
# How far one step may go, in squared lengths of a row: beyond it descent overshoots where rows agree most.
_LONGEST_RATE = 3.0


@dataclass(frozen=True)
class Descent:
    """How many noisy steps, how far they go in all, and how much one may show. All of it is public.

    Attributes
    ----------
    steps : int
        How many gradients are released.
    time : float
        The sum of the step sizes.
    shift : float
        The length of the normal shift that one gradient's release amounts to.
    """

    steps: int
    time: float
    shift: float

    def scale(self, sensitivity: float) -> float:
        """The deviation of the noise in one gradient that moves by at most this much when a record is replaced.

        Examples
        --------
        >>> round(Descent(100, 300.0, 0.1).scale(0.5), 6)
        5.0
        """
        return sensitivity / self.shift * (1 + 1e-12)


def record_shift(epsilon: float, delta: float, rows_per_person: int) -> float:
    """The length of the normal shift that one record may make, so that a person's records together keep the promise.

    Theorem. k records that are replaced one after the other shift a Gaussian mechanism by at most k times one's shift.
    """
    return round_down(exact(gaussian_shift(epsilon, delta)) / rows_per_person)


def planned_descent(shift: float, centring: Centring | None, time: float, row_norm: float) -> Descent:
    """The steps that a record's shift allows, after a centring if there was one.

    Theorem. Releases whose shifts are m1, m2, ..., each chosen after the ones before, together amount to a shift of
    sqrt(m1**2 + m2**2 + ...): T steps and a centring of length c may have sqrt((shift**2 - c**2) / T) each.

    Examples
    --------
    >>> found = planned_descent(0.1, None, 300.0, 1.0)
    >>> found.steps, round(found.shift * math.sqrt(found.steps), 6)
    (80, 0.1)
    """
    steps = min(max(math.ceil(time * row_norm**2 / _LONGEST_RATE), _FEWEST), _MOST)
    spent = centring.shift if centring else 0.0
    left = math.sqrt((shift - spent) * (shift + spent) / steps) * (1 - 1e-12)
    return Descent(steps, time, left)
