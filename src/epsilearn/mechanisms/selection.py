"""Private choices: the exponential mechanism and the sparse vector technique."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from flint import arb

from epsilearn.accounting import BoundedRange, Pure
from epsilearn.balls import ball, exact, round_up
from epsilearn.calibration.selection import above_threshold_scales, gumbel_scale
from epsilearn.checks import check_budget, check_integer
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput, StateError
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import Release, Spender, spending
from epsilearn.noise.bits import BitSource
from epsilearn.noise.choice import noisy_argmax
from epsilearn.noise.door import check_scale, check_values
from epsilearn.noise.quantiles import LAPLACE
from epsilearn.noise.variates import Variate, decide

__all__ = ["AboveThreshold", "LiveMechanism", "exponential"]


def exponential(
    scores: Any,
    *,
    sensitivity: float,
    epsilon: float,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "exponential",
    random_state: int | BitSource | None = None,
) -> Release:
    """Choose an index with probability proportional to exp(epsilon * score / (2 sensitivity)).

    Parameters
    ----------
    scores : array of float, shape (candidates,)
        The higher the better. Up to tens of millions.
    sensitivity : float
        How far any one score can move when one record is replaced.

    Returns
    -------
    Release
        ``value`` is the index, exactly the one the mechanism over the reals would choose.

    Examples
    --------
    >>> import epsilearn
    >>> epsilearn.exponential([0.0, 0.0, 1000.0], sensitivity=1.0, epsilon=1.0).value
    2
    """
    array = _as_scores(scores)
    check_integer("rows_per_person", rows_per_person)
    scale = check_scale(gumbel_scale(sensitivity, epsilon, rows_per_person))
    promise = Guarantee(
        epsilon,
        mechanism="exponential mechanism",
        theorem="exponential mechanism by Gumbel noise; bounded range",
        assumptions=("n is public", f"each score's sensitivity is at most {float(sensitivity):g}"),
        rows_per_person=rows_per_person,
        curve=BoundedRange(epsilon),
    )
    with spending(promise, ledger, purpose, random_state) as (source, promise):
        return Release(noisy_argmax(array, scale, source), promise)


def _as_scores(scores: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        array = np.ascontiguousarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("scores must be an array of numbers") from None
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"scores must be one row of at least one number, got shape {np.shape(scores)}")
    check_values(array)
    return array


class LiveMechanism:
    """A mechanism with memory: its promise holds for one run of one object, so copies are refused."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()

    def _check_alive(self) -> None:
        if self._process != os.getpid():
            raise StateError(
                f"this {type(self).__name__} belongs to the process that made it: a fork would reuse its noise; "
                "make a new one in the child, which costs its budget again"
            )

    def __reduce__(self) -> NoReturn:
        raise StateError(f"a {type(self).__name__} cannot be copied or pickled: the copy would reuse its noise")


class AboveThreshold(LiveMechanism):
    """Answer any number of yes-or-no questions, paying only for the yeses.

    Parameters
    ----------
    threshold : float
        Questions ask whether a value is at least this, noise aside. Public.
    sensitivity : float
        How far any one asked value can move when one record is replaced.
    epsilon : float
        The budget of the whole session.
    positives : int
        How many positive answers to give before the session ends.

    Attributes
    ----------
    guarantee : Guarantee
        The promise of the whole session, debited when it is opened.
    remaining : int
        Positive answers left.

    Examples
    --------
    >>> from epsilearn import AboveThreshold
    >>> session = AboveThreshold(threshold=100.0, sensitivity=1.0, epsilon=1.0, positives=1)
    >>> session.ask(-1e6), session.ask(1e6), session.remaining
    (False, True, 0)
    """

    def __init__(
        self,
        *,
        threshold: float,
        sensitivity: float,
        epsilon: float,
        positives: int = 1,
        rows_per_person: int = 1,
        ledger: Spender | None = None,
        purpose: str = "above-threshold",
        random_state: int | BitSource | None = None,
    ) -> None:
        super().__init__()
        self.threshold = _finite("threshold", threshold)
        check_integer("rows_per_person", rows_per_person)
        scales = above_threshold_scales(sensitivity, epsilon, positives, rows_per_person)
        self._threshold_scale, self._question_scale = map(check_scale, scales)
        each = round_up(exact(check_budget(epsilon)[0]) / positives)
        promise = Guarantee(
            epsilon,
            mechanism="above-threshold",
            theorem="sparse vector technique",
            assumptions=("n is public", f"each question's sensitivity is at most {float(sensitivity):g}"),
            rows_per_person=rows_per_person,
            curve=Pure(epsilon) if positives == 1 else Composite((Pure(each),) * positives),
        )
        # The session's answers leave one by one: opening it is the delivery.
        with spending(promise, ledger, purpose, random_state) as (self._source, self.guarantee):
            self.remaining = positives
            self._threshold_noise = Variate(LAPLACE, self._source)

    def ask(self, value: float) -> bool:
        """Whether ``value`` plus noise reaches the noisy threshold; raises once the positives are used up."""
        value = _finite("value", value)
        self._check_alive()
        with self._lock:
            if self.remaining == 0:
                raise StateError("all positive answers are used up; open a new session, which costs its budget again")
            question_noise = Variate(LAPLACE, self._source)
            positive = decide(self._excess(value, question_noise))
            if positive:
                self.remaining -= 1
                self._threshold_noise = Variate(LAPLACE, self._source)
            return positive

    def _excess(self, value: float, noise: Variate) -> Callable[[int], arb]:
        gap = Fraction(value) - Fraction(self.threshold)
        return lambda bits: (
            ball(gap)
            + ball(self._question_scale) * noise.ball(bits)
            - ball(self._threshold_scale) * self._threshold_noise.ball(bits)
        )


def _finite(name: str, number: Any) -> float:
    try:
        value = float(number)
        check_values(np.array([value]))
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a finite number") from None
    return value
