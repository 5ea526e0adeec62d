"""Questions to one release, answered by one thread: those that wait together share one kernel product."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from epsilearn.errors import EpsilearnError, StateError
from epsilearn.service.kinds import Live
from epsilearn.service.lanes import Busy
from epsilearn.service.pace import Pace

__all__ = ["Asker", "Told"]

_MOST_ROWS = 4096
_MOST_WAITING = 256  # requests


@dataclass(frozen=True)
class Told:
    """What a request is told: its answers, and what may still be asked."""

    answers: list[dict[str, Any]]
    left: dict[str, float | None]


@dataclass
class _Waiting:
    X: Any
    done: Future[Told] = field(default_factory=Future)


class Asker:
    """A queue before a live release.

    Where the path to an answer depends on private values, answers are written down and leave only at steps of a pace
    that begins when the thread takes the questions up, and the next ones wait until then: neither an answer's own time,
    nor when others see that it was given, nor how long they waited says more than a number of such steps.

    Parameters
    ----------
    live : Live
        What is asked.
    pace : Pace
        The one that its journal goes by as well.
    """

    def __init__(self, live: Live, pace: Pace) -> None:
        self.live, self._pace = live, pace
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock, self._closed = threading.Lock(), False
        threading.Thread(target=self._work, name="epsilearn-asker", daemon=True).start()

    def ask(self, X: Any) -> Future[Told]:
        """The answers to some encoded points, when they are there."""
        waiting = _Waiting(X)
        with self._lock:
            if self._closed:
                raise StateError("this release takes no questions any more")
            if self._queue.qsize() >= _MOST_WAITING:
                raise Busy("too many are waiting for this release already; ask again in a few seconds")
            self._queue.put(waiting)
        return waiting.done

    def close(self) -> None:
        """Answer what is waiting, and stop."""
        with self._lock:
            self._closed = True
            self._queue.put(None)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            # What nobody waits for any more is not asked.
            batch = [waiting for waiting in self._together(first) if waiting.done.set_running_or_notify_cancel()]
            if not batch:
                continue
            self._pace.begin()
            results = self._results(batch)
            # Answers that were written down have waited already; what was not, errors too, waits here.
            self._pace.wait()
            for waiting, result in zip(batch, results, strict=True):
                if isinstance(result, BaseException):
                    waiting.done.set_exception(result)
                else:
                    waiting.done.set_result(result)

    def _together(self, first: _Waiting) -> list[_Waiting]:
        """Whatever else is waiting, until there are many rows."""
        batch, rows = [first], first.X.shape[0]
        while rows < _MOST_ROWS:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                self._queue.put(None)
                break
            batch.append(waiting)
            rows += waiting.X.shape[0]
        return batch

    def _results(self, batch: list[_Waiting]) -> list[Told | BaseException]:
        self._pace.work()
        try:
            answers = self.live.answers(_stacked([waiting.X for waiting in batch]))
            left = self.live.left()
        except EpsilearnError as error:
            if len(batch) == 1:
                return [error]
            # One request that cannot be answered must not take the others with it.
            return [self._results([waiting])[0] for waiting in batch]
        except BaseException as error:
            return [error] * len(batch)
        ends = np.cumsum([waiting.X.shape[0] for waiting in batch])
        return [Told(answers[e - w.X.shape[0] : e], left) for w, e in zip(batch, ends, strict=True)]


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)
