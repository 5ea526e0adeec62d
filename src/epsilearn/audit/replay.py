"""An audit by replay: run something on a table, then on neighbours with the same random answers, and compare.

Whatever releases through this library learns of its records by the answers of mechanisms alone. So a run on a
neighbouring table that gets the *same answers* must take the same course and show the same things, and the private
values it asked about may have moved by no more than was charged for. Anything else is a finding: another number of
debits, a value that moved too far, an attribute, a warning, an exception, a log line or a file that differs. There is
nothing to sample: one pair of runs shows a fault with certainty, on a pair of tables that has it.

The idea is that of *Privacy in Theory, Bugs in Practice* (2026). See ``docs/audit.md``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import epsilearn
from epsilearn.accounting import Approximate, Curve, Pure
from epsilearn.audit.outcome import observed
from epsilearn.audit.realised import curves_of, distance, exceeds
from epsilearn.checks import check_budget
from epsilearn.errors import InvalidInput
from epsilearn.fit_counts import uncounted
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.tape import taping
from epsilearn.sessions import Session

__all__ = ["Difference", "Replay", "replay"]

_PACKAGE = str(Path(epsilearn.__file__).parent)
_HARNESS = (str(Path(__file__)), str(Path(__file__).with_name("outcome.py")))
# Random answers that no private value is part of.
_PUBLIC = ("noise", "try", "stop")
_MACHINERY = ("mechanisms", "noise", "audit")


@dataclass(frozen=True)
class Difference:
    """One way in which a run on a neighbour was not the same.

    Attributes
    ----------
    kind : str
        "control flow", "charge", "sensitivity", "budget", or what was shown: "exception", "warning", "log line",
        "printed", "file", "result".
    name : str
        Which one: the mechanism's purpose, or the name of what was shown.
    where : str
        The line of the program under audit, as far as it is known.
    neighbour : int
        The first neighbour that shows it.
    text : str
        What was seen.
    """

    kind: str
    name: str
    where: str
    neighbour: int
    text: str

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.kind}: {self.name}{place}: {self.text} (neighbour {self.neighbour})"


@dataclass(frozen=True)
class Replay:
    """What an audit by replay found. Not private: it is computed from the tables without noise.

    Attributes
    ----------
    differences : tuple of Difference
        Each once, with the first neighbour that shows it.
    neighbours : int
        How many tables it was replayed on.
    charges, answers : int
        How many debits and random answers the recorded run had.
    ended : str
        The exception that the recorded run ended with, if it did not return: then little was audited.
    unsettled : tuple of str
        What differs from run to run on the same table, such as a time; it was not compared.
    seconds : float
        How long it took.
    """

    differences: tuple[Difference, ...]
    neighbours: int
    charges: int
    answers: int
    ended: str
    unsettled: tuple[str, ...]
    seconds: float = field(compare=False)

    @property
    def refuted(self) -> bool:
        """Whether something was found."""
        return bool(self.differences)

    def __str__(self) -> str:
        head = f"{len(self.differences)} finding(s)" if self.refuted else "nothing found"
        lines = [
            f"{'REFUTED' if self.refuted else 'not refuted'}: {head}, replayed on {self.neighbours} neighbours",
            f"the run had {self.charges} debit(s) and {self.answers} random answer(s)",
            *([f"it did not return: {self.ended}"] if self.ended else []),
            *map(str, self.differences),
        ]
        if self.unsettled:
            lines.append(f"not compared, because it changes by itself: {', '.join(self.unsettled)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "replay", "refuted": self.refuted, **asdict(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


def replay(
    function: Callable[..., Any],
    table: Any,
    neighbours: Iterable[Any],
    *,
    claim: Guarantee | tuple[float, float] | float | None = None,
) -> Replay:
    """Run a function on a table and replay it, with the same random answers, on neighbours of that table.

    Parameters
    ----------
    function : callable
        Whatever releases through this library, as ``function(*table)``. It is run once for the table, once more to see
        what changes by itself, and once for each neighbour, in this thread; a ledger it uses is debited each time, so
        give it one of its own or none.
    table : tuple
        The function's arguments.
    neighbours : iterable of tuple
        Tables that differ from it in one record, or in as many as one person may have. `hostile_neighbours` makes some.
    claim : Guarantee, (epsilon, delta) or epsilon, optional
        What is claimed of everything together. If left out, the ``guarantee_`` or ``guarantee`` of what comes back.

    Returns
    -------
    Replay

    Examples
    --------
    >>> import epsilearn
    >>> from epsilearn.audit import replay
    >>> def noisy_sum(incomes):
    ...     return epsilearn.laplace(sum(incomes), sensitivity=100.0, epsilon=1.0)
    >>> replay(noisy_sum, ([40.0, 60.0],), [([40.0, 10.0],)]).refuted  # moved by 50, within 100
    False
    >>> found = replay(noisy_sum, ([40.0, 60.0],), [([40.0, 900.0],)])  # somebody forgot to clip
    >>> found.differences[0].kind
    'sensitivity'
    """
    began = time.perf_counter()
    tape = _Recording()
    first, result = _shown(function, table, tape)
    again, _ = _shown(function, table, _Replaying(tape))
    unsettled = tuple(name for name in {**first, **again} if first.get(name) != again.get(name))
    held = _claim(claim, result)
    found: dict[tuple[str, str, str], Difference] = {}
    count = 0
    for number, neighbour in enumerate(neighbours):
        count += 1
        playing = _Replaying(tape)
        shown, _ = _shown(function, neighbour, playing)
        differences = [*playing.differences(number, held), *_compared(first, shown, unsettled, number, playing)]
        for one in differences:
            found.setdefault((one.kind, one.name, one.where), one)
    charges, answers = len(tape.charges), sum(len(charge.answers) for charge in tape.charges)
    ended = first.get("exception", "")
    return Replay(tuple(found.values()), count, charges, answers, ended, unsettled, time.perf_counter() - began)


def _shown(function: Callable[..., Any], table: Any, tape: _Recording) -> tuple[dict[str, str], Any]:
    """What a run on a copy of the table shows, and what came back."""
    if not isinstance(table, tuple):
        raise InvalidInput(f"a table is the tuple of the function's arguments, got {type(table).__name__}")
    results: list[Any] = []
    # A copy: a function that changes its table must not change it for the next run.
    own = deepcopy(table)

    def run() -> Any:
        # The same estimator is fitted again and again, to made-up tables: nothing adds up.
        with taping(tape), uncounted():
            try:
                results.append(function(*own))
            except _Diverged:
                results.append(None)
        return results[0]

    shown = observed(run, Session)
    return shown, results[0] if results else None


def _claim(claim: Any, result: Any) -> tuple[float, float] | None:
    if claim is None:
        claim = getattr(result, "guarantee_", getattr(result, "guarantee", None))
        if not isinstance(claim, Guarantee) or claim.void_reason:
            return None
    if isinstance(claim, Guarantee):
        return claim.epsilon, claim.delta
    return check_budget(*claim) if isinstance(claim, tuple) else check_budget(claim)


def _compared(
    first: dict[str, str], second: dict[str, str], unsettled: Sequence[str], neighbour: int, tape: _Replaying
) -> Iterator[Difference]:
    if tape.diverged:
        return  # what it showed afterwards follows from that
    names = [name for name in {**first, **second} if name not in unsettled and first.get(name) != second.get(name)]
    # An exception explains everything that is then missing.
    for name in ["exception"] if "exception" in names else names:
        kind = name.partition(" ")[0] if name.split(" ")[0] in ("warning", "file", "printed", "exception") else "result"
        kind = "log line" if name.startswith("log line") else kind
        yield Difference(kind, name, "", neighbour, _told(kind, first.get(name), second.get(name)))


def _told(kind: str, one: str | None, other: str | None) -> str:
    if one is None or other is None:
        return f"only on the {'neighbour' if one is None else 'table'}" + (
            f": {one or other}" if kind != "result" else ""
        )
    if kind in ("exception", "warning", "log line"):
        return f"{one!r} against {other!r}"
    return "not the same" if one.split(" ")[:-1] == other.split(" ")[:-1] else f"{one[:60]} against {other[:60]}"


@dataclass
class _Answer:
    kind: str
    public: tuple[Any, ...]
    private: Any
    answer: Any
    where: str


@dataclass
class _Charge:
    guarantee: Guarantee
    purpose: str
    within: int | None
    where: str
    answers: list[_Answer] = field(default_factory=list)


class _Diverged(BaseException):
    """The run took another course; no answer fits any more."""


class _Recording:
    """A tape that draws every answer, and keeps it."""

    def __init__(self) -> None:
        self.charges: list[_Charge] = []
        self.course: list[tuple[str, int]] = []
        self._open: list[int] = []

    def charge(self, guarantee: Guarantee, purpose: str, within: Any) -> int:
        outer = within if within is not None else (self._open[-1] if self._open else None)
        self.charges.append(_Charge(replace(guarantee, ledger=None), purpose, outer, _where()))
        number = len(self.charges) - 1
        self.course.append(("charge", number))
        self._open.append(number)
        self._charged(number)
        return number

    def end(self, charge: int) -> None:
        self._open.remove(charge)

    def answer(
        self,
        charge: int,
        kind: str,
        public: tuple[Any, ...],
        private: Callable[[], Any],
        draw: Callable[[], Any],
    ) -> Any:
        one = _Answer(kind, public, deepcopy(private()), None, _where())
        self.charges[charge].answers.append(one)
        self.course.append((kind, charge))
        one.answer = self._answer(one, charge, draw)
        return deepcopy(one.answer)

    def _charged(self, number: int) -> None:
        """Nothing to compare it with."""

    def _answer(self, one: _Answer, charge: int, draw: Callable[[], Any]) -> Any:  # noqa: ARG002
        return draw()


class _Replaying(_Recording):
    """A tape that gives the answers of an earlier run, as long as the questions are the same."""

    def __init__(self, earlier: _Recording) -> None:
        super().__init__()
        self._earlier = earlier
        self._stray: tuple[str, str, str, str] | None = None

    @property
    def diverged(self) -> bool:
        return self._stray is not None

    def _charged(self, number: int) -> None:
        mine = self.charges[number]
        if self._next() != ("charge", number):
            self._leave("control flow", mine.purpose, mine.where, "a debit that was not there")
        theirs = self._earlier.charges[number]
        if (theirs.purpose, theirs.within) != (mine.purpose, mine.within):
            self._leave("control flow", mine.purpose, mine.where, f"was {theirs.purpose}")
        if theirs.guarantee != mine.guarantee:
            self._leave("charge", mine.purpose, mine.where, _changed(theirs.guarantee, mine.guarantee))

    def _answer(self, one: _Answer, charge: int, draw: Callable[[], Any]) -> Any:  # noqa: ARG002 - never drawn
        purpose = self.charges[charge].purpose
        if self._next() != (one.kind, charge):
            self._leave("control flow", purpose, one.where, "a random answer that was not there")
        theirs = self._earlier.charges[charge].answers[len(self.charges[charge].answers) - 1]
        if theirs.public != one.public:
            self._leave("control flow", purpose, one.where, "asked with other public settings")
        if np.shape(theirs.private) != np.shape(one.private):
            self._leave(
                "control flow", purpose, one.where, f"shape {np.shape(theirs.private)} against {np.shape(one.private)}"
            )
        return deepcopy(theirs.answer)

    def _next(self) -> tuple[str, int] | None:
        """What came at this point of the earlier run."""
        position = len(self.course) - 1
        return self._earlier.course[position] if position < len(self._earlier.course) else None

    def _leave(self, kind: str, name: str, where: str, text: str) -> None:
        self._stray = self._stray or (kind, name, where, text)
        raise _Diverged

    def differences(self, neighbour: int, claim: tuple[float, float] | None) -> Iterator[Difference]:
        """What was not the same, as far as the tape goes."""
        if self._stray is not None:
            kind, name, where, text = self._stray
            yield Difference(kind, name, where, neighbour, text)
            return
        if len(self.course) < len(self._earlier.course):
            kind, charge = self._earlier.course[len(self.course)]
            last = self._earlier.charges[charge]
            yield Difference(
                "control flow", last.purpose, last.where, neighbour, f"ended before a {kind} that was there"
            )
            return
        for number, mine in enumerate(self.charges):
            yield from self._moves(number, neighbour)
            guarantee = mine.guarantee
            total = exceeds(self._curves(number, own=True), guarantee.epsilon, guarantee.delta)
            if total is not None:
                yield Difference(
                    "sensitivity", mine.purpose, self._first_moved(number), neighbour,
                    f"its values moved so far that epsilon is {total:.4g}; charged was {guarantee.epsilon:.4g}",
                )  # fmt: skip
        if claim is not None:
            roots = [number for number, charge in enumerate(self.charges) if charge.within is None]
            total = exceeds([curve for root in roots for curve in self._curves(root)], *claim)
            if total is not None:
                yield Difference(
                    "budget", "everything together", self.charges[roots[0]].where, neighbour,
                    f"epsilon is {total:.4g}; claimed is {claim[0]:.4g}",
                )  # fmt: skip

    def _pairs(self, number: int) -> Iterator[tuple[_Answer, _Answer]]:
        return zip(self._earlier.charges[number].answers, self.charges[number].answers, strict=True)

    def _moves(self, number: int, neighbour: int) -> Iterator[Difference]:
        """Minimisers of an objective with noise in it: held to their stability."""
        for theirs, mine in self._pairs(number):
            if mine.kind != "minimiser":
                continue
            moved, allowed = float(np.linalg.norm(distance(theirs.private, mine.private))), mine.public[1]
            if not moved <= allowed:
                text = f"the minimiser moved by {moved:.4g}; at most {allowed:.4g} is proven"
                yield Difference("sensitivity", self.charges[number].purpose, mine.where, neighbour, text)

    def _first_moved(self, number: int) -> str:
        for theirs, mine in self._pairs(number):
            if mine.kind not in _PUBLIC and np.any(distance(theirs.private, mine.private) != 0):
                return mine.where
        return self.charges[number].where

    def _curves(self, number: int, own: bool = False) -> list[Curve]:
        """What a charge and the ones inside it amount to.

        Noise in an objective is not a noisy value: such a charge counts whole as soon as its minimiser moves, and
        against itself not at all.
        """
        pairings = [
            (mine.kind, mine.public, theirs.private, mine.private, mine.answer)
            for theirs, mine in self._pairs(number)
            if mine.kind not in ("minimiser", *_PUBLIC)
        ]
        inner = [self._curves(n) for n, charge in enumerate(self.charges) if charge.within == number]
        whole = [
            m for t, m in self._pairs(number) if m.kind == "minimiser" and np.any(distance(t.private, m.private) != 0)
        ]
        guarantee = self.charges[number].guarantee
        if whole and not own:
            return [guarantee.curve or _budget(guarantee)]
        if any(mine.kind == "stop" for mine in self.charges[number].answers) and inner:
            # Proven to be three times what one try costs; a pair of tables differs in one side of each try alone.
            worst = max(sum(curve.pure for curve in curves) for curves in inner)
            return [Pure(3 * worst)] if worst > 0 else []
        return [*curves_of(pairings), *(curve for curves in inner for curve in curves)]


def _changed(one: Guarantee, other: Guarantee) -> str:
    """How two guarantees differ, in words of their own if those differ."""
    if str(one) != str(other):
        return f"{one} against {other}"
    names = [part.name for part in fields(one) if getattr(one, part.name) != getattr(other, part.name)]
    return f"the same epsilon and delta, with other {', '.join(names)}"


def _budget(guarantee: Guarantee) -> Curve:
    return Approximate(guarantee.epsilon, guarantee.delta) if guarantee.delta else Pure(guarantee.epsilon)


def _where() -> str:
    """The line of the program under audit that led here; inside this library, the line above its mechanisms."""
    inside = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name in _HARNESS and frame.f_code.co_name == "run":
            return inside
        if name.startswith(_PACKAGE):
            room = Path(name).relative_to(_PACKAGE).parts[0]
            if not inside and room not in _MACHINERY:
                inside = f"epsilearn/{Path(name).relative_to(_PACKAGE).as_posix()}:{frame.f_lineno}"
        elif not name.startswith("<") and "contextlib" not in name:
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return inside
