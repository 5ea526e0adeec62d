"""What is put to the test, and what came of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from epsilearn.accounting import Approximate, Curve, GaussianShift, Pure
from epsilearn.audit.counts import epsilon_bound, gaussian_bound
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.checks import check_budget
from epsilearn.errors import InvalidInput
from epsilearn.explanation import detection_rate

__all__ = ["Claim", "Finding", "common_words", "verdict"]

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
    def of(promise: Any, *, printed: bool = False) -> Claim:
        """What a guarantee proves; or, where a paper's constants prove less, what is printed for them.

        Parameters
        ----------
        promise : Guarantee or None
            As a release carries it.
        printed : bool
            Whether to hold it to the paper's claim, if there is one.

        Examples
        --------
        >>> from epsilearn import Guarantee
        >>> promise = Guarantee.pure(2.0, claimed_epsilon=1.0)
        >>> print(Claim.of(promise), "and", Claim.of(promise, printed=True))
        epsilon = 2 and epsilon = 1
        """
        if promise is None:
            raise InvalidInput("the release carries no guarantee; say what to test with claimed_epsilon=")
        if promise.void_reason:
            reason = f"the release promises nothing ({promise.void_reason})"
            raise InvalidInput(f"{reason}; audit it as it is meant to run")
        if printed and promise.claimed_epsilon is not None:
            return Claim(promise.claimed_epsilon, promise.delta)
        return Claim(promise.epsilon, promise.delta, isinstance(promise.curve, GaussianShift))

    @cached_property
    def curve(self) -> Curve:
        """Every (epsilon, delta) that follows from it."""
        if self.gaussian:
            return GaussianShift(self._shift)
        return Approximate(self.epsilon, self.delta) if self.delta else Pure(self.epsilon)

    @cached_property
    def _shift(self) -> float:
        return gaussian_shift(self.epsilon, self.delta)

    def at(self, delta: float) -> float:
        """The epsilon that follows from it at another delta."""
        return self.epsilon if delta == self.delta else self.curve.epsilon(delta)

    def limit(self, alarms: float) -> float:
        """How often the best of all tests with this rate of false alarms can tell one neighbour from the other."""
        if not 0 < alarms < 1:
            return 1.0 if alarms >= 1 else self.delta * (not self.gaussian)
        if self.gaussian:
            return float(ndtr(ndtri(alarms) + self._shift))
        return detection_rate(self.epsilon, self.delta, alarms)

    def __str__(self) -> str:
        at_delta = f" at delta = {self.delta:g}" if self.delta else ""
        return f"epsilon = {self.epsilon:.6g}{at_delta}{', and its Gaussian curve' if self.gaussian else ''}"


def verdict(refuted: bool, claim: Claim) -> str:
    """The first line of what any audit says."""
    return f"{'REFUTED' if refuted else 'not refuted'}: {claim}"


def common_words(
    kind: str,
    claim: Claim,
    refuted: bool,
    *,
    lower_bound: float | None = None,
    confidence: float | None = None,
) -> dict[str, Any]:
    """What every audit writes down, whichever way it went; None where a word has no meaning."""
    return {
        "kind": kind,
        "claimed_epsilon": claim.epsilon,
        "delta": claim.delta,
        "gaussian_curve": claim.gaussian,
        "refuted": refuted,
        "lower_bound": lower_bound,
        "confidence": confidence,
    }


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
    def largest_bound(self) -> float:
        """The largest `lower_bound` that so many runs can give, whatever the mechanism."""
        return self._bound(self.judged, 0)

    @cached_property
    def largest_gaussian_bound(self) -> float | None:
        """The largest `gaussian_bound` that so many runs can give; None if no curve is claimed."""
        return self._gaussian_bound(self.judged, 0) if self.claim.gaussian else None

    def _bound(self, hits: int, other_hits: int) -> float:
        return float(epsilon_bound(hits, other_hits, self.judged, self.claim.delta, self.confidence))

    def _gaussian_bound(self, hits: int, other_hits: int) -> float:
        shift = float(gaussian_bound(hits, other_hits, self.judged, self.confidence))
        return GaussianShift(shift).epsilon(self.claim.delta) if shift > 0 else 0.0

    def __str__(self) -> str:
        other = "second" if self.favoured == "first" else "first"
        lines = [
            verdict(self.refuted, self.claim),
            f"epsilon is at least {self.lower_bound:.4f}, with confidence {self.confidence:.10g}",
            f"seen: {self.event}; in {self.hits[0]} of {self.judged} runs on the {self.favoured} data set, "
            f"in {self.hits[1]} on the {other}",
            f"so many runs can show an epsilon of at most {self.largest_bound:.4f}",
        ]
        if self.gaussian_bound is not None:
            lines.insert(2, f"a Gaussian curve needs an epsilon of at least {self.gaussian_bound:.4f} at this delta")
            lines[-1] += f"; of a Gaussian curve, of at most {self.largest_gaussian_bound:.4f}"
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            **common_words(
                "events", self.claim, self.refuted, lower_bound=self.lower_bound, confidence=self.confidence
            ),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


_PLAIN = ("gaussian_bound", "largest_bound", "largest_gaussian_bound", "trials", "event", "favoured", "hits")
