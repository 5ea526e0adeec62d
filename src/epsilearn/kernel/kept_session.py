"""An interactive session that is written down: it goes on after a restart, and the same question has one answer.

What is kept is what the session's future depends on: every answer with the step that the hypothesis took for it, and
the digits of the threshold's noise. Nothing leaves before it stands in the journal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from epsilearn.errors import StateError
from epsilearn.kernel.interactive_sessions import PRIVATE_MODEL, PUBLIC_HYPOTHESIS, Answer, SparseLearnerSession
from epsilearn.kernel.kernels import Kernel
from epsilearn.mechanisms.selection import LiveMechanism
from epsilearn.mechanisms.session import Journal, JournalEntry
from epsilearn.quiet import quietly

__all__ = ["KeptSession", "was_private"]

_DETAIL = struct.Struct("<?d")  # whether the private model answered, and the hypothesis's step


def was_private(entry: JournalEntry) -> bool:
    """Whether the private model gave this answer."""
    return bool(_DETAIL.unpack(entry.detail)[0])


class KeptSession(LiveMechanism):
    """Answers from a journal where a question was asked before, and from the session where not.

    Parameters
    ----------
    make : callable
        A session that has answered nothing yet, with the same public constants and the same minimiser each time.
    journal : Journal
        Where answers are written down before they leave, shared by any number of processes.
    kernel : Kernel
        Tells points by their codes.
    """

    _session: SparseLearnerSession
    _changes: int
    _count: int
    _known: dict[bytes, tuple[float, str]]

    def __init__(self, make: Callable[[], SparseLearnerSession], journal: Journal, kernel: Kernel) -> None:
        super().__init__()
        self._make, self._journal, self._kernel = make, journal, kernel
        self._forget()

    @property
    def constants(self) -> Any:
        return self._session.constants

    @quietly()
    def ask(self, points: Any) -> list[Answer]:
        """An answer for each point. One that was asked before, by anybody, gets the same, and is no new question."""
        # A child has no business with its parent's handle of the journal; it opens the session by itself.
        self._check_alive()
        codes = list(self._kernel.encode(points))
        with self._lock:
            refusal: StateError | None = None
            try:
                with self._journal.writing():
                    self._catch_up()
                    positions = self._positions_of_new(codes)
                    try:
                        self._session.check_left(len(positions))
                    except StateError as error:
                        refusal = error  # nothing has been drawn: what is in memory is still true
                    else:
                        self._answer_new(codes, positions, points)
            except BaseException:
                # What was drawn but not written down must never be used.
                self._forget()
                raise
            if refusal is not None:
                raise refusal
            left = self._session.updates_left, self._session.questions_left
            return [Answer(*self._known[code], *left) for code in codes]

    def _positions_of_new(self, codes: list[bytes]) -> list[int]:
        fresh = {code: position for position, code in reversed(list(enumerate(codes))) if code not in self._known}
        return sorted(fresh.values())

    def _answer_new(self, codes: list[bytes], positions: list[int], points: Any) -> None:
        if not positions:
            return
        new = self._kernel.join([self._kernel.part(points, slice(p, p + 1)) for p in positions])
        entries = []
        for position, (answer, step) in zip(positions, self._session.ask_with_steps(new), strict=True):
            detail = _DETAIL.pack(answer.source == PRIVATE_MODEL, step)
            entries.append(JournalEntry(codes[position], answer.value, detail))
            self._known[codes[position]] = answer.value, answer.source
        self._journal.add(entries, {0: self._session.threshold_digits()})
        self._changes, self._count = self._journal.changes, self._count + len(entries)

    def _forget(self) -> None:
        self._changes, self._count = -1, 0
        self._known = {}
        self._session = self._make()

    def _catch_up(self) -> None:
        """Take over what others have written, or all of it after a restart."""
        if self._journal.changes == self._changes:
            return
        entries, digits = self._journal.entries(self._count), self._journal.digits()
        for entry in entries:
            private, step = _DETAIL.unpack(entry.detail)
            self._known[entry.code] = entry.answer, PRIVATE_MODEL if private else PUBLIC_HYPOTHESIS
            self._session.replay(self._kernel.decode([entry.code]), step, private)
        if digits:
            self._session.restore_threshold(digits[0])
        elif self._count + len(entries):
            raise StateError("this session's journal lacks its noise; restore it, or open a new session")
        self._count += len(entries)
        self._changes = self._journal.changes
