"""An exam for audits: faults that somebody once had, each to be found, and twins without them, none to be accused.

An audit that finds nothing is worth as much as what it would have found. So here are reduced reconstructions of faults
that were reported of other libraries, and of every leak that this one had. The audits are tried in the order of what
they cost, each with a fixed allotment: replay, exact laws where they can be written down, sampling, bits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from epsilearn.audit.bits import audit_bits
from epsilearn.audit.cases import FAULTS, UNREAD, Fault, Unread
from epsilearn.audit.finding import Claim
from epsilearn.audit.laws import ExactFinding
from epsilearn.audit.replay import replay
from epsilearn.audit.trials import Runs
from epsilearn.audit.trials import judge as judged

__all__ = ["METHODS", "Exam", "Result", "exam", "examine"]

# The faults that are left to sampling show in a quarter of their runs or more, and never or hardly ever on the other
# table: missing one of them is ten standard deviations away. A true claim is refuted once in a million judgements.
TRIALS = 1500
CONFIDENCE = 1 - 1e-6


def _replayed(fault: Fault, corrected: bool) -> str:
    claim = fault.epsilon, fault.delta
    found = replay(_program(fault, corrected), fault.table, fault.neighbours, claim=claim)
    return "; ".join(f"{one.kind}: {one.text}" for one in found.differences[:1])


def _computed(fault: Fault, corrected: bool) -> str:
    if fault.laws is None:
        return ""
    found = ExactFinding.of(_claim(fault), fault.laws[corrected]())
    return f"epsilon is {found.real:.3g}, and {fault.epsilon:g} is claimed" if found.refuted else ""


def _sampled(fault: Fault, corrected: bool) -> str:
    releases = _releases(fault, corrected)
    found = None if releases is None else judged(*releases, _claim(fault), CONFIDENCE)
    return f"epsilon is at least {found.lower_bound:.3g}" if found is not None and found.refuted else ""


def _looked_at(fault: Fault, corrected: bool) -> str:
    releases = _releases(fault, corrected)
    found = None if releases is None else audit_bits(*releases, _claim(fault), CONFIDENCE)
    return (
        f"by its bits epsilon is at least {found.finding.lower_bound:.3g}"
        if found is not None and found.refuted
        else ""
    )


METHODS: dict[str, Callable[[Fault, bool], str]] = {
    "replay": _replayed, "exact": _computed, "sampling": _sampled, "bits": _looked_at,
}  # fmt: skip


def _program(fault: Fault, corrected: bool) -> Callable[..., Any]:
    return fault.corrected if corrected else fault.faulty


def _claim(fault: Fault) -> Claim:
    return Claim(fault.epsilon, fault.delta)


def _releases(fault: Fault, corrected: bool) -> tuple[Any, Any] | None:
    """Many releases on the table and on its first neighbour; None of a program that does not release numbers."""
    program = _program(fault, corrected)
    runs = Runs(lambda table: program(*table), fault.table, fault.neighbours[0])
    try:
        runs.rehearse()
    except Exception:  # whatever a faulty program ends in: there is nothing to sample then
        return None
    return runs.collect(TRIALS)


@dataclass(frozen=True)
class Result:
    """What became of one fault.

    Attributes
    ----------
    name, group, wrong, reference : str
        The fault.
    method : str
        The first method that found it, or "missed".
    seen : str
        What that method saw.
    accused : str
        Which of the methods that were tried also accuse the twin: none, if all is well.
    seconds : float
        How long the methods took to find it, without the twin.
    """

    name: str
    group: str
    wrong: str
    reference: str
    method: str
    seen: str
    accused: str
    seconds: float = field(compare=False)

    @property
    def passed(self) -> bool:
        """Whether the fault was found and its twin was not accused."""
        return self.method != "missed" and not self.accused


@dataclass(frozen=True)
class Exam:
    """What became of every fault.

    Attributes
    ----------
    results : tuple of Result
        One for each.
    unread : tuple of Unread
        Reports that there is nothing to reconstruct from.
    """

    results: tuple[Result, ...]
    unread: tuple[Unread, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every fault was found, and no twin was accused."""
        return all(result.passed for result in self.results)

    @property
    def seconds(self) -> float:
        """How long it took to find the faults, without the twins."""
        return sum(result.seconds for result in self.results)

    def __str__(self) -> str:
        found = sum(result.method != "missed" for result in self.results)
        accused = sum(bool(result.accused) for result in self.results)
        return (
            f"{found} of {len(self.results)} faults found in {self.seconds:.1f} s; {accused or 'none'} of their twins "
            f"accused; {len(self.unread)} reports not examined"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "exam",
            "passed": self.passed,
            "seconds": self.seconds,
            "results": [{**asdict(result), "passed": result.passed} for result in self.results],
            "not_examined": [asdict(one) for one in self.unread],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


def exam(faults: Sequence[Fault] | None = None, *, progress: Callable[[float], None] = lambda _share: None) -> Exam:
    """Try the audits on known faults, and on programs that have been mended.

    Parameters
    ----------
    faults : sequence of Fault, optional
        Which; all of them if left out.
    progress : callable, optional
        Called with the share that is done.

    Returns
    -------
    Exam

    Examples
    --------
    >>> from epsilearn.audit.cases import FAULTS
    >>> from epsilearn.audit.exam import exam
    >>> result = exam([fault for fault in FAULTS if fault.name == "smartnoise 622"])
    >>> result.passed, result.results[0].method
    (True, 'replay')
    """
    chosen = FAULTS if faults is None else faults
    results = []
    for number, fault in enumerate(chosen):
        results.append(examine(fault))
        progress((number + 1) / len(chosen))
    return Exam(tuple(results), UNREAD)


def examine(fault: Fault) -> Result:
    """Try one method after the other until one finds the fault; then the same ones on its twin."""
    began = time.perf_counter()
    tried, seen = [], ""
    for name, method in METHODS.items():
        tried.append(name)
        seen = method(fault, False)
        if seen:
            break
    seconds = time.perf_counter() - began
    accused = [name for name in tried if METHODS[name](fault, True)]
    found_by = tried[-1] if seen else "missed"
    return Result(
        fault.name, fault.group, fault.wrong, fault.reference, found_by, seen, ", ".join(accused), seconds
    )  # fmt: skip
