"""What is put to the test, and what came of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from epsilearn.accounting import GaussianShift
from epsilearn.audit.counts import epsilon_bound, gaussian_bound
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.checks import check_budget
from epsilearn.explanation import detection_rate
from epsilearn.guarantee import Guarantee

__all__ = ["Claim", "Finding"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Claim:
    """What a mechanism is held to.

    Attributes
    ----------
    epsilon, delta : float
        The promise.
    gaussian : bool
        Whether the whole Gaussian curve through (epsilon, delta) is promised, and not that one point alone.
    """

    epsilon: float
    delta: float = 0.0
    gaussian: bool = False

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)

    @staticmethod
    def of(promise: Guarantee) -> Claim:
        """What a guarantee proves."""
        return Claim(promise.epsilon, promise.delta, isinstance(promise.curve, GaussianShift))

    def limit(self, alarms: float) -> float:
        """How often the best of all tests with this rate of false alarms can tell one neighbour from the other."""
        if not 0 < alarms < 1:
            return 1.0 if alarms >= 1 else self.delta * (not self.gaussian)
        if self.gaussian:
            return float(ndtr(ndtri(alarms) + gaussian_shift(self.epsilon, self.delta)))
        return detection_rate(self.epsilon, self.delta, alarms)

    def __str__(self) -> str:
        at_delta = f" at delta = {self.delta:g}" if self.delta else ""
        return f"epsilon = {self.epsilon:.6g}{at_delta}{', and its Gaussian curve' if self.gaussian else ''}"


@dataclass(frozen=True)
class Finding:
    """What an audit found. Not private: it was computed from the audited data without noise.

    Attributes
    ----------
    claim : Claim
        What was put to the test.
    confidence : float
        A true claim is refuted with probability ``1 - confidence`` at most.
    trials : int
        How many releases there were from each data set.
    event : str
        What was looked for in the releases; chosen from runs that did not count.
    favoured : {"first", "second"}
        The data set on which it is the more likely.
    hits : tuple of int
        How often it was seen in the runs that counted, on the favoured data set and on the other.
    strengths : tuple of array
        By how much, in the runs that counted, on the favoured data set and on the other: seen is a strength of at
        least ``threshold``. For figures.
    """

    claim: Claim
    confidence: float
    trials: int
    event: str
    favoured: str
    hits: tuple[int, int]
    threshold: float = field(repr=False, compare=False)
    strengths: tuple[Array, Array] = field(repr=False, compare=False)

    @property
    def claimed_epsilon(self) -> float:
        """The epsilon that was put to the test."""
        return self.claim.epsilon

    @property
    def delta(self) -> float:
        """The delta that goes with it."""
        return self.claim.delta

    @property
    def judged(self) -> int:
        """How many runs counted, on each data set."""
        return self.trials - self.trials // 2

    @cached_property
    def lower_bound(self) -> float:
        """With the stated confidence no smaller epsilon is true at this delta."""
        return self._bound(*self.hits)

    @cached_property
    def gaussian_bound(self) -> float | None:
        """The epsilon at this delta of the least Gaussian curve that is not refuted; None if no curve is claimed."""
        return self._gaussian_bound(*self.hits) if self.claim.gaussian else None

    @property
    def best_bound(self) -> float:
        """The larger of the two bounds."""
        return max(self.lower_bound, self.gaussian_bound or 0.0)

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at this confidence."""
        return self.best_bound > self.claim.epsilon

    @cached_property
    def reach(self) -> float:
        """The largest bound that so many runs can give, whatever the mechanism."""
        extreme = (self.judged, 0)
        return max(self._bound(*extreme), self._gaussian_bound(*extreme) if self.claim.gaussian else 0.0)

    def _bound(self, hits: int, other_hits: int) -> float:
        return float(epsilon_bound(hits, other_hits, self.judged, self.claim.delta, self.confidence))

    def _gaussian_bound(self, hits: int, other_hits: int) -> float:
        shift = float(gaussian_bound(hits, other_hits, self.judged, self.confidence))
        return GaussianShift(shift).epsilon(self.claim.delta) if shift > 0 else 0.0

    def __str__(self) -> str:
        other = "second" if self.favoured == "first" else "first"
        lines = [
            f"{'REFUTED' if self.refuted else 'not refuted'}: {self.claim}",
            f"epsilon is at least {self.lower_bound:.4f}, with confidence {self.confidence:.10g}",
            f"seen: {self.event}; in {self.hits[0]} of {self.judged} runs on the {self.favoured} data set, "
            f"in {self.hits[1]} on the {other}",
            f"so many runs can show an epsilon of at most {self.reach:.4f}",
        ]
        if self.gaussian_bound is not None:
            lines.insert(2, f"a Gaussian curve needs an epsilon of at least {self.gaussian_bound:.4f} at this delta")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "claimed_epsilon": self.claim.epsilon,
            "delta": self.claim.delta,
            "lower_bound": self.lower_bound,
            "gaussian_bound": self.gaussian_bound,
            "refuted": self.refuted,
            "reach": self.reach,
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


_PLAIN = ("confidence", "trials", "event", "favoured", "hits")
