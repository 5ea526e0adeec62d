"""Random stopping: repeat a private step a geometric number of times and keep the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from epsilearn.checks import check_probability
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import Spender, spending
from epsilearn.mechanisms.tape import answered
from epsilearn.noise.bits import BitSource

__all__ = ["best_of_random_many"]

Outcome = TypeVar("Outcome")

_BITS = 32


def best_of_random_many(
    attempt: Callable[[int, Any], tuple[float, Outcome]],
    candidates: int,
    *,
    stop: float,
    promise: Guarantee,
    ledger: Spender | None,
    purpose: str,
    random_state: Any,
) -> tuple[Outcome, Guarantee]:
    """Try a random candidate; stop with probability ``stop`` after each; keep the best by its own private score.

    Theorem (Liu and Talwar 2019; Papernot and Steinke 2022). If one try (the candidate's index, its result and its
    score together) is epsilon-private, so is the best of a geometric number of tries, with 3 epsilon. The number of
    tries must not depend on the data, and nothing of the others is released.

    Parameters
    ----------
    attempt : callable
        From a candidate's index, and the seeded source if there is one, to its score and its result, privately;
        ``promise`` is three times its promise.
    """
    threshold = int(check_probability("stop", stop) * 2**_BITS)
    if threshold == 0:
        raise InvalidInput(f"stop must be at least 2**-{_BITS}, or the expected number of tries is beyond patience")
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        best: tuple[float, Outcome] | None = None
        while True:
            candidate = answered(source, "try", (candidates,), lambda: None, lambda: _below(candidates, source))
            found = attempt(candidate, source if source.seeded else None)
            if best is None or found[0] > best[0]:
                best = found
            if answered(source, "stop", (threshold,), lambda: None, lambda: source.integer(_BITS) < threshold):
                return best[1], stamped


def _below(limit: int, source: BitSource) -> int:
    """A uniform whole number below ``limit``, by refusing what lies beyond."""
    bits = max(1, (limit - 1).bit_length())
    while True:
        number = source.integer(bits)
        if number < limit:
            return number
