"""Lanes: threads of their own for each kind of long work, and a bounded number of callers who wait without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from epsilearn.errors import EpsilearnError

__all__ = ["Busy", "Lane", "Lanes"]

P = ParamSpec("P")
T = TypeVar("T")

_WAITING = 64  # callers who may wait for one thing
_ALTOGETHER = 512  # and in one lane


class Busy(EpsilearnError):
    """Too many are waiting for the same already; ``wait`` says after how many seconds to ask again."""

    def __init__(self, text: str, wait: float = 5.0) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass
class _Line:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class Lane:
    """Threads for one kind of work.

    What has one key is done one after the other, whoever comes first. So whoever asks much of one release keeps nobody
    from another, and who waits for a turn takes no thread from anybody.

    Parameters
    ----------
    name : str
        Of the threads.
    threads : int
        How many keys are worked on at once.
    waiting : int
        How many callers may wait for one key.

    Examples
    --------
    >>> asyncio.run(Lane("sums", threads=1).run("a key", sum, [1, 2]))
    3
    """

    def __init__(self, name: str, threads: int, waiting: int = _WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"epsilearn-{name}")
        self._waiting, self._length = waiting, 0
        self._lines: dict[str, _Line] = {}

    async def run(self, key: str, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """What ``work`` returns, done in one of the lane's threads when it is this caller's turn."""
        line = self._lines.get(key) or _Line()
        if line.length > self._waiting or self._length >= _ALTOGETHER:
            raise Busy("too many are waiting for this already; ask again in a few seconds")
        self._lines[key] = line
        line.length += 1
        self._length += 1
        try:
            async with line.turn:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._pool, lambda: work(*arguments, **options))
        finally:
            line.length -= 1
            self._length -= 1
            if not line.length:
                self._lines.pop(key, None)

    def close(self) -> None:
        """Finish what is being done; nobody is let in any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Lanes:
    """Those of one process: nobody waits for another kind of work than their own."""

    def __init__(self) -> None:
        self.statistics = Lane("statistic", threads=4)
        self.registering = Lane("register", threads=2)
        self.opening = Lane("open", threads=2)  # bills, and what is checked before a release is opened
        self.loading = Lane("load", threads=2)  # releases that this process has not been asked about before
        self.watching = Lane("watch", threads=1)

    def close(self) -> None:
        for lane in vars(self).values():
            lane.close()
