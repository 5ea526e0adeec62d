"""A membership attack: was this record in the table that a released model was fitted to?

Neighbours differ in one record, so the table has the target or somebody else in its place. Privacy limits how well
*any* attacker can tell, and this one tries: the limit and what was reached stand side by side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.audit.counts import error_rates
from epsilearn.audit.events import Prospect, choose
from epsilearn.audit.finding import Claim, common_words, verdict
from epsilearn.audit.trials import LEAST_TRIALS, Progress, Runs, as_releases
from epsilearn.checks import check_integer, check_probability

__all__ = ["Membership", "attack", "belief", "membership_attack"]

Array = NDArray[np.float64]

_ALARMS = (0.001, 0.01, 0.05, 0.1, 0.5)  # at which the curve is written down


@dataclass(frozen=True)
class Membership:
    """How well an attacker tells whose record was in the table, and how well anyone could.

    Attributes
    ----------
    claim : Claim
        What limits every attack.
    confidence : float
        With it the true curve lies within ``band`` of this one, everywhere at once.
    score : str
        What the attacker went by.
    inside, outside : array
        The attacker's score of models that were fitted with the target, and of models without: the higher, the surer.
    """

    claim: Claim
    confidence: float
    score: str
    inside: Array = field(repr=False)
    outside: Array = field(repr=False)

    @property
    def trials(self) -> int:
        """How many models there were of either kind."""
        return len(self.inside)

    @property
    def band(self) -> float:
        """How far either rate may be off: the inequality of Dvoretzky, Kiefer and Wolfowitz, once for each."""
        return math.sqrt(math.log(4 / (1 - self.confidence)) / (2 * self.trials))

    def curve(self) -> tuple[Array, Array]:
        """False alarms, and how often the target was found, from the strictest threshold to the laxest."""
        return error_rates(self.outside, self.inside)

    def found(self, alarms: float) -> float:
        """How often the target is found at this rate of false alarms."""
        return float(np.interp(alarms, *self.curve()))

    def limit(self, alarms: float) -> float:
        """How often anyone at all could find it."""
        return self.claim.limit(alarms)

    @property
    def area(self) -> float:
        """Under the curve: the chance of telling a model with the target from one without."""
        alarms, found = self.curve()
        return float(np.trapezoid(found, alarms))

    @property
    def advantage(self) -> float:
        """The largest difference between the two rates."""
        alarms, found = self.curve()
        return float(np.max(found - alarms))

    @property
    def refuted(self) -> bool:
        """Whether the curve passes the limit, at this confidence."""
        alarms, found = self.curve()
        suspects = np.flatnonzero(found - self.band > alarms + self.band)
        return any(found[k] - self.band > self.limit(float(alarms[k]) + self.band) for k in suspects)

    def __str__(self) -> str:
        rates = "; ".join(
            f"{self.found(alarms):.1%} at {alarms:.3g} (limit {self.limit(alarms):.1%})" for alarms in _ALARMS[1:4]
        )
        return (
            f"{verdict(self.refuted, self.claim)}\n"
            f"target found, at a rate of false alarms: {rates}\n"
            f"area under the curve {self.area:.3f}, best advantage {self.advantage:.3f}; both rates within "
            f"{self.band:.3f} with confidence {self.confidence:.10g}\n"
            f"the attacker went by {self.score}, on {self.trials} models of either kind"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            **common_words("membership", self.claim, self.refuted, confidence=self.confidence),
            "trials": self.trials,
            "score": self.score,
            "area": self.area,
            "advantage": self.advantage,
            "band": self.band,
            "curve": [{"alarms": a, "found": self.found(a), "limit": self.limit(a)} for a in _ALARMS],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


def membership_attack(
    mechanism: Any,
    inside: Any,
    outside: Any,
    claim: Claim,
    *,
    score: Callable[[Any], float] | None = None,
    statistic: Callable[[Any], Any] | None = None,
    trials: int = 5000,
    confidence: float = 0.999,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Membership:
    """Fit many models with the target's record and many without it, and try to tell which is which.

    Parameters
    ----------
    mechanism : callable or estimator
        As for `audit`.
    inside, outside : object
        The table with the target's record, and the same with another one in its place.
    claim : Claim
        What limits every attack.
    score : callable, optional
        From a released model to how sure the attacker is that the target was inside, such as `belief`. If left out a
        likelihood ratio is learned, from half of the models, and tried on the other half.
    statistic : callable, optional
        What a learned score looks at, as for `audit`.
    trials, confidence, n_jobs, progress
        As for `audit`.

    Returns
    -------
    Membership

    Examples
    --------
    >>> from epsilearn import LogisticRegression
    >>> from epsilearn.audit import Claim, membership_attack
    >>> from epsilearn.audit.membership import belief
    >>> model = LogisticRegression(epsilon=1.0, data_norm=1.0, alpha=1.0, classes=[0, 1])
    >>> inside, outside = ([[1.0], [0.5]], [1, 0]), ([[1.0], [0.5]], [0, 0])
    >>> found = membership_attack(
    ...     model, inside, outside, Claim(1.0), score=lambda m: belief(m, [[1.0]], 1), trials=200, confidence=0.999999
    ... )
    >>> found.refuted
    False
    """
    trials = check_integer("trials", trials, least=LEAST_TRIALS)
    check_probability("confidence", confidence)
    runs = Runs(mechanism, inside, outside, statistic if score is None else score)
    runs.rehearse()
    first, second = runs.collect(trials, n_jobs, progress)
    if score is None:
        return attack(first, second, claim, confidence)
    return Membership(claim, confidence, getattr(score, "__name__", "a given score"), first[:, 0], second[:, 0])


def attack(inside: Any, outside: Any, claim: Claim, confidence: float) -> Membership:
    """Learn a score from half of these releases, and try it on the rest."""
    inside, outside = as_releases(inside, outside)
    half = len(inside) // 2
    prospect = Prospect(len(inside) - half, claim.delta, confidence, claim.gaussian)
    event, _ = choose(inside[:half], outside[:half], prospect)
    sign = 1.0 if event.favoured == "first" else -1.0
    scores = [sign * event.strengths(releases[half:]) for releases in (inside, outside)]
    return Membership(claim, confidence, f"{event.name.rstrip(',')} (learned)", *scores)


def belief(model: Any, row: Any, label: Any) -> float:
    """How well a released model knows a record: the log-probability it gives the label, or minus its squared error.

    Parameters
    ----------
    model : fitted estimator or ReleasedModel
    row : table of one row
        As ``model.predict`` takes it.
    label : object
        The record's label or target.
    """
    # A released model calls its public label set `classes`; an estimator's setting of that name may be left out.
    labels = getattr(model, "classes_", getattr(model, "classes", None))
    if labels is None:
        return -float((np.ravel(model.predict(row))[0] - label) ** 2)
    place = list(labels).index(label)
    if getattr(model, "has_probabilities", hasattr(model, "predict_proba")):
        return float(np.log(np.ravel(model.predict_proba(row))[place]))
    scores = model.scores if hasattr(model, "scores") else model.decision_function
    return float(np.ravel(scores(row))[0] * (1 if place else -1))
