"""A fault on which audits are examined: a small program that has it, and a twin that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from epsilearn.audit.laws import Laws

__all__ = ["Fault", "Unread"]


@dataclass(frozen=True)
class Fault:
    """A reconstructed fault.

    Attributes
    ----------
    name : str
        Where it was: a repository and a number, or what it is called here.
    wrong : str
        What was wrong, in a sentence.
    reference : str
        The report; for a fault of this library's own, the test that keeps it away.
    faulty, corrected : callable
        A program with the fault, and its twin without: functions of the table.
    table : tuple
        Made-up data, as the functions take them.
    neighbours : tuple of tuple
        Tables that differ from it as neighbours do. The first is the one that is sampled.
    epsilon, delta : float
        What both programs claim.
    found_by : str
        The first method that finds it.
    group : str
        "public" for the sixteen public reports, "further" for other public reports, "own" for this library's past.
    laws : tuple of callable, optional
        The laws of what the two programs release on the table and on its first neighbour, where somebody can write
        them down: the faulty one's, then the corrected one's.
    """

    name: str
    wrong: str
    reference: str
    faulty: Callable[..., Any]
    corrected: Callable[..., Any]
    table: tuple[Any, ...]
    neighbours: tuple[tuple[Any, ...], ...]
    epsilon: float = 1.0
    delta: float = 0.0
    found_by: str = "replay"
    group: str = "own"
    laws: tuple[Callable[[], Laws], Callable[[], Laws]] | None = None


@dataclass(frozen=True)
class Unread:
    """A report whose text we could not read, so that there is nothing to reconstruct.

    Attributes
    ----------
    name : str
        The repository and the number.
    reference : str
        Its address.
    instead : str
        What is examined in its place.
    """

    name: str
    reference: str
    instead: str
