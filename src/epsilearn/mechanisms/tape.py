"""A tape of what mechanisms were asked and answered, for audits that replay a run on a neighbouring table.

Every random answer of this library is drawn by `answered`: which kind of mechanism, with which public settings, on
which private value. Ordinarily that only draws. Under `taping` the tape is handed all of it, and may give the answer
of an earlier run instead. A tape holds private values: it is for audits on made-up data, and stays in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from epsilearn.guarantee import Guarantee
from epsilearn.noise.bits import BitSource, source_of

__all__ = ["Tape", "TapedBits", "answered", "bits_of", "charged", "taping"]

Answer = TypeVar("Answer")


class Tape(Protocol):
    """What a run is recorded on, or replayed from."""

    def charge(self, guarantee: Guarantee, purpose: str, within: Any) -> Any:
        """Note a debit, inside another one or None; what comes back identifies it."""

    def end(self, charge: Any) -> None:
        """Note that the block of a debit is left."""

    def answer(
        self,
        charge: Any,
        kind: str,
        public: tuple[Any, ...],
        private: Callable[[], Any],
        draw: Callable[[], Answer],
    ) -> Answer:
        """Note one answer under a debit: drawn now, or an earlier run's."""


# A context, not a global: what other threads release meanwhile must never be answered from a tape.
_current: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def taping(tape: Tape) -> Iterator[None]:
    """Have everything that this thread draws pass by the tape."""
    token = _current.set(tape)
    try:
        yield
    finally:
        _current.reset(token)


class TapedBits:
    """Random bits of a source, handed out for one debit that is on a tape."""

    def __init__(self, source: BitSource, tape: Tape, charge: Any) -> None:
        self.seeded = source.seeded
        self.source, self.tape, self.charge = source, tape, charge

    def integer(self, bits: int) -> int:
        return self.source.integer(bits)

    def words(self, count: int) -> NDArray[np.uint64]:
        return self.source.words(count)


def bits_of(random_state: Any) -> BitSource:
    """The bit source meant by ``random_state``, as `source_of` says; one that is on a tape stays on it."""
    return random_state if type(random_state) is TapedBits else source_of(random_state)


@contextmanager
def charged(source: BitSource, guarantee: Guarantee, purpose: str) -> Iterator[BitSource]:
    """The bits for what was just debited: the source itself, or on a tape, if there is one, as part of this debit."""
    inner = source if isinstance(source, TapedBits) else None
    tape = _current.get() if inner is None else inner.tape
    if tape is None:
        yield source
        return
    charge = tape.charge(guarantee, purpose, None if inner is None else inner.charge)
    try:
        yield TapedBits(source if inner is None else inner.source, tape, charge)
    finally:
        tape.end(charge)


def answered(
    source: BitSource,
    kind: str,
    public: tuple[Any, ...],
    private: Callable[[], Any],
    draw: Callable[[], Answer],
) -> Answer:
    """A random answer: drawn, or as a tape has it.

    Parameters
    ----------
    source : BitSource
        The bits it is drawn with; they know the debit it belongs to.
    kind : str
        Which mechanism, as `epsilearn.audit.realised` knows them.
    public : tuple
        Everything it depends on but the private value.
    private : callable
        Gives the private value; called for a tape alone.
    draw : callable
        Draws the answer.
    """
    if not isinstance(source, TapedBits):
        return draw()
    return source.tape.answer(source.charge, kind, public, private, draw)
