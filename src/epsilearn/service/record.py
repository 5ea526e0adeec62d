"""The log of every call: written down before the answer leaves, several at once where several are waiting."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any

from epsilearn.database import Database
from epsilearn.service import store

__all__ = ["CallLog"]

_MOST_AT_ONCE = 500


class CallLog:
    """Calls, appended by one thread; whoever waits for its future knows that its call is on the disk.

    Parameters
    ----------
    database : Database
        Where the log is: see `epsilearn.service.store.log_store`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: queue.SimpleQueue[tuple[dict[str, Any], Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="epsilearn-log", daemon=True)
        self._thread.start()

    def write(self, call: dict[str, Any]) -> Future[None]:
        """A future that ends when the call is written down, or with the error that kept it from being."""
        done: Future[None] = Future()
        self._waiting.put(({**call, "time": store.now()}, done))
        return done

    def close(self) -> None:
        """Write what is left, and stop."""
        self._waiting.put(None)
        self._thread.join(timeout=30)

    def listed(self, before: int | None, count: int) -> list[dict[str, Any]]:
        """The newest calls, or those before a number."""
        query = store.calls.select().order_by(store.calls.c.number.desc()).limit(count)
        if before is not None:
            query = query.where(store.calls.c.number < before)
        with self._database.transaction(write=False) as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def _work(self) -> None:
        ended = False
        while not ended:
            batch = [self._waiting.get()]
            while len(batch) < _MOST_AT_ONCE:
                try:
                    batch.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            ended = None in batch
            waiting = [item for item in batch if item is not None]
            if waiting:
                self._commit(waiting)

    def _commit(self, waiting: list[tuple[dict[str, Any], Future[None]]]) -> None:
        try:
            with self._database.transaction(write=True) as connection:
                connection.execute(store.calls.insert(), [call for call, _ in waiting])
        except BaseException as error:
            for _, done in waiting:
                done.set_exception(error)
            return
        for _, done in waiting:
            done.set_result(None)
