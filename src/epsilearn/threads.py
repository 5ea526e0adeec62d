"""Work by all processors at once: on stretches of an array, or on a stream of parts."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from epsilearn.quiet import quietly

__all__ = ["alone", "in_order", "in_threads", "one_thread_each"]

Part = TypeVar("Part")
Result = TypeVar("Result")

_here = threading.local()


@contextmanager
def alone() -> Iterator[None]:
    """This thread starts none of ours: there are others beside it, or threads that wait for it."""
    before, _here.alone = _is_alone(), True
    try:
        yield
    finally:
        _here.alone = before


def _is_alone() -> bool:
    return getattr(_here, "alone", False)


def _workers() -> int:
    return 1 if _is_alone() else os.cpu_count() or 1


def _stay_alone() -> None:
    # A pool's thread that waited for the pool's threads could wait for ever.
    _here.alone = True


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="epsilearn", initializer=_stay_alone)


if hasattr(os, "register_at_fork"):
    # A fork takes no threads along: the child makes its own.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_threads(work: Callable[[slice], Result], count: int, worth: int) -> list[Result]:
    """The results for stretches of ``range(count)``, in order; one stretch if there are not ``worth`` for a thread.

    The work must release the interpreter's lock, as compiled functions here do. It is done in silence: see `quietly`.

    Examples
    --------
    >>> in_threads(lambda part: part.stop - part.start, 10, worth=100)
    [10]
    """
    work, threads = quietly()(work), min(_workers(), count // worth)
    if threads < 2:
        return [work(slice(0, count))]
    ends = [count * k // threads for k in range(threads + 1)]
    return list(_pool().map(work, map(slice, ends, ends[1:])))


def in_order(work: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """The results for each part, in order, while the next few parts are worked on: only a few results are ever held.

    The linear algebra library gets one thread a part: its own threads would fight with these. Work is done in silence.

    Examples
    --------
    >>> list(in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    work, workers, waiting = quietly()(work), _workers(), deque[Future[Result]]()
    if workers == 1:
        yield from map(work, parts)
        return
    with one_thread_each():
        try:
            for part in parts:
                if len(waiting) == 3 * workers:
                    yield waiting.popleft().result()
                waiting.append(_pool().submit(work, part))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def one_thread_each() -> AbstractContextManager[Any]:
    """The linear algebra library keeps to the thread that calls it, as others call it beside that one."""
    return _linear_algebra().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _linear_algebra() -> ThreadpoolController:
    return ThreadpoolController()
