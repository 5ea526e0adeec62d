"""Private choices: the exponential mechanism and the sparse vector technique."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.accounting import BoundedRange, Pure
from epsilearn.balls import ball, exact, round_up
from epsilearn.calibration.selection import above_threshold_scales, gumbel_scale
from epsilearn.checks import check_budget, check_integer
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput, StateError
from epsilearn.forks import process_mark
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import FAIR_BITS, Release, Spender, spending
from epsilearn.mechanisms.tape import answered
from epsilearn.mechanisms.values import as_values, exactly
from epsilearn.noise.bits import BitSource
from epsilearn.noise.choice import noisy_argmax, prepare
from epsilearn.noise.door import check_scale
from epsilearn.noise.quantiles import LAPLACE
from epsilearn.noise.variates import Uniform, Variate, decide
from epsilearn.quiet import quietly
from epsilearn.sessions import Session, check_asked_publicly

__all__ = ["AboveThreshold", "LiveMechanism", "exponential"]

_MOST_POSITIVES = 1_000_000


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
    epsilon : float
        The budget.

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
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    epsilon, _ = check_budget(epsilon)
    scale = check_scale(gumbel_scale(sensitivity, epsilon, rows_per_person))
    promise = Guarantee(
        epsilon,
        mechanism="exponential mechanism",
        theorem="exponential mechanism by Gumbel noise; bounded range",
        assumptions=("n is public", f"each score's sensitivity is at most {float(sensitivity):g}", FAIR_BITS),
        rows_per_person=rows_per_person,
        curve=BoundedRange(epsilon),
    )
    prepare(len(array))
    with spending(promise, ledger, purpose, random_state) as (source, promise):
        chosen = answered(source, "choice", (scale,), lambda: array / scale, lambda: noisy_argmax(array, scale, source))
        return Release(chosen, promise)


def _as_scores(scores: Any) -> NDArray[np.float64]:
    values, shape = as_values(scores, "scores")
    if len(shape) != 1:
        raise InvalidInput(f"scores must be one row of at least one number, got shape {shape}")
    if not isinstance(values, np.ndarray):
        raise InvalidInput("scores must be doubles: an integer above 2**53, or a fraction, would have to be rounded")
    return values


class LiveMechanism(Session):
    """A mechanism with memory: its promise holds for one run of one object, so copies are refused."""

    def __init__(self) -> None:
        self._process = process_mark()
        self._lock = threading.Lock()

    def _check_alive(self) -> None:
        check_asked_publicly(self)
        if self._process != process_mark():
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
        self.threshold = Fraction(exactly(threshold, "threshold"))
        rows_per_person, positives = (
            check_integer("rows_per_person", rows_per_person),
            check_integer("positives", positives),
        )
        if positives > _MOST_POSITIVES:
            raise InvalidInput(
                f"positives must be at most {_MOST_POSITIVES}, each of which the promise counts; use several sessions"
            )
        epsilon, _ = check_budget(epsilon)
        scales = above_threshold_scales(sensitivity, epsilon, positives, rows_per_person)
        self._threshold_scale, self._question_scale = map(check_scale, scales)
        each = round_up(exact(epsilon) / positives)
        promise = Guarantee(
            epsilon,
            mechanism="above-threshold",
            theorem="sparse vector technique",
            assumptions=("n is public", f"each question's sensitivity is at most {float(sensitivity):g}", FAIR_BITS),
            rows_per_person=rows_per_person,
            curve=Pure(epsilon) if positives == 1 else Composite((Pure(each),) * positives),
        )
        self._positives = positives
        # The session's answers leave one by one: opening it is the delivery.
        with spending(promise, ledger, purpose, random_state) as (self._source, self.guarantee):
            self._state = positives, Variate(LAPLACE, self._source)

    @quietly()
    def ask(self, value: float | Fraction) -> bool:
        """Whether ``value`` plus noise reaches the noisy threshold; raises once the positives are used up."""
        asked = Fraction(exactly(value, "value"))
        self._check_alive()
        with self._lock:
            remaining, threshold_noise = self._state
            if remaining == 0:
                raise StateError("all positive answers are used up; open a new session, which costs its budget again")
            question_noise, next_noise = Variate(LAPLACE, self._source), Variate(LAPLACE, self._source)
            positive = answered(
                self._source, "threshold", (self.threshold, self._threshold_scale, self._question_scale), lambda: asked,
                lambda: decide(self._excess(asked, question_noise, threshold_noise)),
            )  # fmt: skip
            if positive:
                # One assignment: an interruption leaves either the old state or the new one, never half of each.
                self._state = remaining - 1, next_noise
            return positive

    @property
    def remaining(self) -> int:
        """How many positive answers are left."""
        return self._state[0]

    # For a session that is kept, and for nobody else: the digits are private.

    def _digits(self) -> tuple[int, int]:
        """The random digits of the threshold's noise, and how many they are."""
        return self._state[1].digits()

    def _restore(self, remaining: int, digits: tuple[int, int]) -> None:
        """Go on as a session of the same promise that was kept: so many positives left, the threshold's noise this."""
        if not 0 <= remaining <= self._positives:
            raise StateError(f"a session of {self._positives} positive answers cannot have {remaining} left")
        self._state = remaining, Variate(LAPLACE, self._source, Uniform(self._source, *digits))

    def _excess(self, value: Fraction, question: Variate, threshold: Variate) -> Callable[[int], arb]:
        gap = value - self.threshold
        return lambda bits: (
            ball(gap)
            + ball(self._question_scale) * question.ball(bits)
            - ball(self._threshold_scale) * threshold.ball(bits)
        )
