"""What a promise means: what an adversary who knows everything else can and cannot conclude.

The guessing game: Alice's record is one of m values, each equally likely. Bob knows all other records and sees
the release. Proofs: ``docs/theory/meaning.md``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from flint import arb

from epsilearn.balls import ball, exact, precision, round_up
from epsilearn.checks import check_budget, check_integer, check_probability

__all__ = ["Explanation", "detection_rate", "explain", "winning_probability"]

_CANDIDATES = (2, 10, 100, 1000)
_HUGE = 1e4  # nothing is left to protect, and e to this power is too long to write down


@dataclass(frozen=True)
class Explanation:
    """The consequences of (epsilon, delta), each an upper bound on what any adversary can do.

    Attributes
    ----------
    winning_probability : float
        Bob's best chance to name the right one of two values: (e**epsilon + delta) / (1 + e**epsilon).
    lecture_winning_bound : float
        The looser e**epsilon / 2 of introductory texts, which says nothing once it reaches 1.
    posterior_shift : float
        How far taking part can move anybody's belief about anything: tanh(epsilon / 2). With delta > 0 this is
        about which of two values is yours, and holds except with probability `posterior_exception`.
    lecture_posterior_bound : float
        The looser e**(2 epsilon) - 1.
    among : dict
        Bob's best chance among m equally likely values.
    detection_rate : float
        How often a test that raises a false alarm 5 % of the time can detect a record.
    """

    epsilon: float
    delta: float
    winning_probability: float
    lecture_winning_bound: float
    posterior_shift: float
    posterior_exception: float
    lecture_posterior_bound: float
    among: dict[int, float]
    detection_rate: float

    def sentences(self) -> list[str]:
        """The promise in plain words."""
        promise = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else "")
        lines = [
            f"What {promise} means. Suppose somebody knows every record but yours, and sees the release.",
            f"Told that your record is one of two values, they guess right at most {self.winning_probability:.1%} "
            "of the time; without the release, 50.0%.",
            "Among 10, 100 or 1000 equally likely values: at most "
            + ", ".join(f"{self.among[m]:.2%}" for m in _CANDIDATES[1:])
            + "; by blind guessing 10%, 1%, 0.1%.",
            f"A test for your record that raises a false alarm 5% of the time finds it at most "
            f"{self.detection_rate:.1%} of the time.",
            f"Taking part moves nobody's belief {'which of two values is yours' if self.delta else 'about you'} by "
            f"more than {100 * self.posterior_shift:.1f} percentage points"
            + (f", except with probability {self.posterior_exception:.2g}." if self.delta else "."),
        ]
        lines.append(
            "It says nothing about what is true of people like you: a study may show that smokers fall ill, and "
            "that holds for a smoker who did not take part."
        )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "among": {str(m): p for m, p in self.among.items()}}

    def save_figure(self, path: str | os.PathLike[str]) -> None:
        """Write a small figure: the winning probability, and what a test can detect."""
        from epsilearn.plots import explanation_figure

        explanation_figure(self).savefig(path)


def explain(epsilon: float, delta: float = 0.0) -> Explanation:
    """Say what (epsilon, delta) means.

    Parameters
    ----------
    epsilon, delta : float
        The promise.

    Returns
    -------
    Explanation
        Numbers, sentences and a figure.

    Examples
    --------
    >>> from epsilearn import explain
    >>> meaning = explain(1.0)
    >>> round(meaning.winning_probability, 3), round(meaning.posterior_shift, 3)
    (0.731, 0.462)
    >>> round(meaning.lecture_winning_bound, 3)
    1.359
    """
    epsilon, delta = check_budget(epsilon, delta)
    with precision(128):
        eps, share = ball(exact(min(epsilon, _HUGE))), ball(exact(delta))
        exception = _capped(2 * share / (1 - (-eps).exp())) if delta else 0.0
        shift = round_up((eps / 2).tanh())
        lecture_win = _unless_huge(eps, lambda x: x.exp() / 2)
        lecture_shift = _unless_huge(2 * eps, arb.expm1)
    return Explanation(
        epsilon=epsilon,
        delta=delta,
        winning_probability=winning_probability(epsilon, delta),
        lecture_winning_bound=lecture_win,
        posterior_shift=min(1.0, shift),
        posterior_exception=exception,
        lecture_posterior_bound=lecture_shift,
        among={m: winning_probability(epsilon, delta, m) for m in _CANDIDATES},
        detection_rate=detection_rate(epsilon, delta, 0.05),
    )


def winning_probability(epsilon: float, delta: float = 0.0, candidates: int = 2) -> float:
    """Bob's best chance among m equally likely values: (e**epsilon + (m - 1) delta) / (e**epsilon + m - 1)."""
    check_integer("candidates", candidates, least=2)
    if epsilon > _HUGE:
        return 1.0
    with precision(128):
        # Divided through by e**epsilon, nothing overflows.
        others = (candidates - 1) * (-ball(exact(epsilon))).exp()
        return _capped((1 + others * ball(exact(delta))) / (1 + others))


def detection_rate(epsilon: float, delta: float, false_alarms: float) -> float:
    """The largest true-positive rate of any test with this false-positive rate."""
    check_probability("false_alarms", false_alarms)
    if epsilon > _HUGE:
        return 1.0
    with precision(128):
        eps, share, alarms = ball(exact(epsilon)), ball(exact(delta)), ball(exact(false_alarms))
        first = _unless_huge(eps, lambda x: x.exp() * alarms + share)
        return min(1.0, first, round_up(1 - (-eps).exp() * (1 - alarms - share)))


def _capped(number: arb) -> float:
    return min(1.0, round_up(number))


def _unless_huge(exponent: arb, function: Callable[[arb], arb]) -> float:
    return math.inf if exponent > 700 else round_up(function(exponent))
