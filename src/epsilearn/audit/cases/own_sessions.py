"""Leaks that this library had: sessions that remember, and budgets that were spent more than once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from epsilearn.audit.cases.fault import Fault
from epsilearn.mechanisms import AboveThreshold, laplace

__all__ = ["FAULTS"]

_PUBLIC_POINTS = (0.0, 1.0, 2.0)


class _Session:
    """A released function: an answer for each point that somebody asks about, remembered for the next."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = list(values)
        self.answers: dict[float, Any] = {}

    def ask(self, point: float) -> float:
        if point not in self.answers:
            near = sum(abs(value - point) < 0.5 for value in self._values)
            self.answers[point] = laplace(near, sensitivity=1.0, epsilon=0.1)
        return float(self.answers[point].value)


def _score(training: Sequence[float], rows: Sequence[float], *, at_rows: bool) -> Any:
    """How often a session is right about private rows, each of which it is asked about."""
    session = _Session(training)
    answers = [session.ask(point) for point in (rows if at_rows else _PUBLIC_POINTS)]
    right = sum(answer > 0.5 for answer in answers) if at_rows else sum(row in _PUBLIC_POINTS for row in rows)
    return laplace(right, sensitivity=1.0, epsilon=0.1)


def _kept(training: Sequence[float], held_out: Sequence[float], *, asked: bool) -> Any:
    """A session that was chosen by how it did on rows that were held out, and is handed over."""
    session = _Session(training)
    for point in held_out if asked else _PUBLIC_POINTS:
        session.ask(point)
    return session


def _refit(values: Sequence[float], *, shares: tuple[float, float]) -> list[Any]:
    """A path and a refit, whose forecast spoke of the path alone."""
    return [laplace(sum(values), sensitivity=1.0, epsilon=share) for share in shares]


class _Register:
    """Data sets by name, each with a budget, and the file that they are kept in."""

    def __init__(self, by_file: bool) -> None:
        self._by_file = by_file
        self._left: dict[str, float] = {}

    def add(self, name: str, file: str) -> None:
        self._left.setdefault(file if self._by_file else name, 1.0)

    def total(self, name: str, file: str, values: Sequence[float]) -> Any:
        key = file if self._by_file else name
        if self._left[key] < 1.0:
            return None
        self._left[key] = 0.0
        return laplace(sum(values), sensitivity=1.0, epsilon=1.0)


def _two_names(values: Sequence[float], *, by_file: bool) -> list[Any]:
    """One file under two names."""
    register = _Register(by_file)
    for name in ("stays", "stays again"):
        register.add(name, "stays.csv")
    return [register.total(name, "stays.csv", values) for name in ("stays", "stays again")]


def _begun_again(values: Sequence[float], *, look_at_ledger: bool) -> list[bool]:
    """A session whose row is gone from the database, although the ledger says that it was paid for."""
    kept: dict[str, AboveThreshold] = {}
    paid: set[str] = set()
    answers = []
    for _ in range(2):
        if "release" not in kept:
            if look_at_ledger and "release" in paid:
                break
            kept["release"] = AboveThreshold(threshold=-1e9, sensitivity=1.0, epsilon=1.0)
            paid.add("release")
        answers.append(kept.pop("release").ask(sum(values)))
    return answers


def _batches(values: Sequence[float], others: Sequence[float], *, together: bool) -> Any:
    """An answer of mine, computed along with what somebody else asks at the same time."""
    weight = float(laplace(sum(values), sensitivity=1.0, epsilon=1.0).value)
    mine = weight * 0.1
    if not together:
        return mine
    running = np.cumsum([*(weight * other for other in others), mine])
    return float(running[-1] - running[-2])


def _allowance(values: Sequence[float], *, exact: bool) -> list[Any]:
    """As many answers at a tenth of the budget as there is room for."""
    price: Any = Fraction(1, 10) if exact else 0.1
    spent, answers = 0 * price, []
    while spent < 1:
        answers.append(laplace(sum(values), sensitivity=1.0, epsilon=0.1))
        spent += price
    return answers


FAULTS = (
    Fault(
        "a score of a live session",
        "A session was asked about private test rows, and showed how many different ones there were.",
        "tests/test_sessions.py",
        partial(_score, at_rows=True),
        partial(_score, at_rows=False),
        ([0.0, 1.0], [1.0, 1.0]),
        (([0.0, 1.0], [1.0, 2.0]),),
    ),
    Fault(
        "a session that was chosen",
        "Selection asked sessions about rows that were held out, and handed over the one it kept, with the rows in it.",
        "tests/test_sessions.py",
        partial(_kept, asked=True),
        partial(_kept, asked=False),
        ([0.0, 1.0], [1.0, 1.5]),
        (([0.0, 1.0], [1.0, 2.5]),),
    ),
    Fault(
        "a forecast without its refit",
        "What a fit was said to promise left out the refit.",
        "tests/test_outlook.py",
        partial(_refit, shares=(0.5, 0.5)),
        partial(_refit, shares=(0.25, 0.25)),
        ([0.5, 0.0],),
        (([0.5, 1.0],),),
        epsilon=0.5,
    ),
    Fault(
        "one file, two budgets",
        "A file could be registered under two names, one after the other or at the same moment, and each had a budget.",
        "tests/service/test_registration.py",
        partial(_two_names, by_file=False),
        partial(_two_names, by_file=True),
        ([0.5, 0.0],),
        (([0.5, 1.0],),),
    ),
    Fault(
        "a session begun again",
        "A session that was deleted from the database was begun again without a debit.",
        "tests/service/test_answers.py",
        partial(_begun_again, look_at_ledger=False),
        partial(_begun_again, look_at_ledger=True),
        ([0.5, 0.0],),
        (([0.5, 1.0],),),
    ),
    Fault(
        "who else asked",
        "The last bits of an answer depended on what others asked at the same time.",
        "tests/service/test_answers.py",
        partial(_batches, together=True),
        partial(_batches, together=False),
        ([0.5, 0.25], [0.3, 7.1]),
        # Several: a sum that happens to be exact shows nothing.
        tuple(([0.5, 0.25], [10.0**power / 3, 10.0**power / 7]) for power in range(6, 16)),
    ),
    Fault(
        "an allowance and its rounding",
        "Ten tenths add up to less than 1 in doubles, and an eleventh answer was given.",
        "tests/service/test_statistics.py",
        partial(_allowance, exact=False),
        partial(_allowance, exact=True),
        ([0.5, 0.0],),
        (([0.5, 1.0],),),
    ),
)
