"""A pace: moments at which what private values led to may be seen, whatever they were."""

from __future__ import annotations

import math
import time

__all__ = ["Pace"]


class Pace:
    """Steps of equal length, counted from a beginning. One thread goes by it.

    Parameters
    ----------
    seconds : float
        The length of a step; 0 where nothing has to wait.

    Examples
    --------
    >>> pace = Pace(0.01)
    >>> pace.begin()
    >>> start = time.monotonic()
    >>> pace.wait()
    >>> pace.wait()   # nothing has happened since: this is the same moment
    >>> pace.work()
    >>> pace.wait()
    >>> time.monotonic() - start > 0.015
    True
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._start, self._worked = time.monotonic(), False

    def begin(self) -> None:
        """Count from now on."""
        self._start = time.monotonic()
        self.work()

    def work(self) -> None:
        """Something private begins: its end has to wait for a step."""
        self._worked = True

    def wait(self) -> None:
        """Wait for the next step, unless nothing private has begun since the last one."""
        if self._seconds and self._worked:
            steps = math.ceil((time.monotonic() - self._start) / self._seconds)
            time.sleep(max(0.0, self._start + steps * self._seconds - time.monotonic()))
        self._worked = False
