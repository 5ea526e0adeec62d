"""Lanes: threads of their own for each kind of long work, and a bounded number of callers who wait without a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, ParamSpec, TypeVar

from epsilearn.errors import EpsilearnError

__all__ = ["Busy", "Lane", "Lanes", "Shared"]

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


class Shared(Generic[T]):
    """One piece of work for all who wait for the same, and for those who come soon after: however many ask, it is done
    once at a time.

    Parameters
    ----------
    lane : Lane
        Where it is done.
    work : callable
        Its result goes to everybody; an error goes to those who wait for it, and is not kept.
    seconds : float
        For how long a result is good.

    Examples
    --------
    >>> shared = Shared(Lane("names", threads=1), lambda: object())
    >>> async def together():
    ...     return await asyncio.gather(*(shared.get() for _ in range(3)))
    >>> len(set(asyncio.run(together())))
    1
    """

    def __init__(self, lane: Lane, work: Callable[[], T], seconds: float = 0.0) -> None:
        self._lane, self._work, self._seconds = lane, work, seconds
        self._task: asyncio.Task[T] | None = None
        self._until = 0.0

    async def get(self) -> T:
        """What the work returned, a moment ago at the earliest."""
        task = self._task
        if task is None or (task.done() and (time.monotonic() >= self._until or _failed(task))):
            task = self._task = asyncio.create_task(self._lane.run("", self._work))
            task.add_done_callback(self._ended)
        # Whoever gives up does not take the others' result away.
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._until = time.monotonic() + self._seconds
        _failed(task)  # an error that nobody waited for is nobody's


def _failed(task: asyncio.Task[T]) -> bool:
    return task.cancelled() or task.exception() is not None


class Lanes:
    """Those of one process: nobody waits for another kind of work than their own."""

    def __init__(self) -> None:
        self.statistics = Lane("statistic", threads=4)
        self.registering = Lane("register", threads=2)
        self.opening = Lane("open", threads=2)  # bills, and what is checked before a release is opened
        self.loading = Lane("load", threads=2)  # releases that this process has not been asked about before
        self.watching = Lane("watch", threads=1)
        self.counting = Lane("count", threads=1)

    def close(self) -> None:
        for lane in vars(self).values():
            lane.close()
