"""Work on stretches of an array by all processors at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

__all__ = ["in_threads"]

Result = TypeVar("Result")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="epsilearn")


if hasattr(os, "register_at_fork"):
    # A fork takes no threads along: the child makes its own.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_threads(work: Callable[[slice], Result], count: int, worth: int) -> list[Result]:
    """The results for stretches of ``range(count)``, in order; one stretch if there are not ``worth`` for a thread.

    The work must release the interpreter's lock, as compiled functions here do, and start no threads itself.

    Examples
    --------
    >>> in_threads(lambda part: part.stop - part.start, 10, worth=100)
    [10]
    """
    threads = min(os.cpu_count() or 1, count // worth)
    if threads < 2:
        return [work(slice(0, count))]
    ends = [count * k // threads for k in range(threads + 1)]
    return list(_pool().map(work, map(slice, ends, ends[1:])))
