"""How often somebody may call, and how much at once: a bucket of tokens for each key, and for each address that gives
wrong ones; places for what is in hand."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict

__all__ = ["Buckets", "Places"]

_MOST = 10_000  # callers remembered; whoever was not seen for longest is forgotten first, with a full bucket


class Buckets:
    """Tokens that come back at a steady rate, as many as a minute's worth kept for each caller.

    Parameters
    ----------
    per_minute : float
        How many tokens a caller gets in a minute.

    Examples
    --------
    >>> buckets = Buckets(2)
    >>> [buckets.take("anna") for _ in range(3)][:2]
    [0.0, 0.0]
    >>> buckets.take("anna") > 0   # seconds to wait
    True
    """

    def __init__(self, per_minute: float) -> None:
        self._rate, self._size = per_minute / 60, max(1.0, per_minute)
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """0 if there was a token, else how many seconds until there is one."""
        with self._lock:
            moment = time.monotonic()
            level, before = self._levels.pop(caller, (self._size, moment))
            level = min(self._size, level + (moment - before) * self._rate)
            wait = 0.0 if level >= 1 else (1 - level) / self._rate
            self._levels[caller] = (level if wait else level - 1), moment
            if len(self._levels) > _MOST:
                self._levels.popitem(last=False)
            return wait


class Places:
    """How much of each caller is in hand at the moment, up to a number.

    Parameters
    ----------
    most : int
        For each caller.

    Examples
    --------
    >>> places = Places(1)
    >>> places.enter("anna"), places.enter("anna"), places.enter("bert")
    (True, False, True)
    >>> places.leave("anna")
    >>> places.enter("anna")
    True
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._taken: Counter[str] = Counter()

    def enter(self, caller: str) -> bool:
        """Whether there was a place."""
        with self._lock:
            free = self._taken[caller] < self._most
            self._taken[caller] += free
            return free

    def leave(self, caller: str) -> None:
        """Give it back."""
        with self._lock:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
