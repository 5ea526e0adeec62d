"""Room: the memory that live sessions of one process may take together, counted before it is taken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from epsilearn.errors import InvalidInput, StateError
from epsilearn.service.lanes import Busy

__all__ = ["Room"]


@dataclass
class _Held:
    size: int
    rest: Callable[[], bool]


class Room:
    """Memory for sessions, in bytes. Who was asked longest ago lets go first, unless it is being asked.

    Parameters
    ----------
    size : float
        All that there is.

    Examples
    --------
    >>> room = Room(100)
    >>> room.enter("first", lambda: True)
    >>> room.enter("second", lambda: True)
    >>> room.reserve("first", 60)
    >>> room.reserve("second", 60)   # the first one lets go of its own
    >>> room.taken
    60
    """

    def __init__(self, size: float) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}  # in the order in which they were last asked

    @property
    def taken(self) -> int:
        return sum(held.size for held in self._held.values())

    def check(self, size: int, points: int) -> None:
        """Refuse, before anything is spent, what could never be held whole."""
        if size > self.size:
            raise InvalidInput(
                f"the noise at {points:,} points takes {_gib(size)} of memory, and this server has {_gib(self.size)} "
                "for all sessions (sessions_gib); ask for a smaller max_points"
            )

    def enter(self, name: str, rest: Callable[[], bool]) -> None:
        """A session that may take memory, and lets go of it when it is told to rest, if it can."""
        with self._lock:
            self._held[name] = _Held(0, rest)

    def leave(self, name: str) -> None:
        with self._lock:
            self._held.pop(name, None)

    def reserve(self, name: str, size: int) -> None:
        """Count what a session will take from now on; others are sent to rest for it, or it is refused."""
        if size > self.size:
            raise StateError(
                f"the noise at so many points takes {_gib(size)} of memory, and this server has {_gib(self.size)} for "
                "all sessions (sessions_gib); points that were asked before can be asked again, new ones cannot"
            )
        with self._lock:
            mine = self._held.pop(name, None)
            if mine is None:
                raise StateError("this release takes no questions any more")
            for other in self._held.values():
                if self.taken + size > self.size and other.size and other.rest():
                    other.size = 0
            full = self.taken + size > self.size
            self._held[name] = mine
            if full:
                raise Busy("other sessions take the server's memory at the moment; ask for new points again later")
            mine.size = size


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"
