"""The log of calls: those of known callers are listed, written down before the answer leaves; refused ones are counted.

Whoever has no key must not be able to fill the disk, so what is refused at the door is counted by the minute. Listed
calls are folded when they are old or very many: those that were answered into counts by the day, which say for good who
was told something by which release, and those that were not into nothing.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from epsilearn.database import Database
from epsilearn.errors import EpsilearnError
from epsilearn.service import store
from epsilearn.service.faults import complain
from epsilearn.service.keys import Caller

__all__ = ["CallLog"]

_MOST_AT_ONCE = 500
_FOLDED_AT_ONCE = 1000
_LOOK_SECONDS = 30.0
SEVERAL = "several"  # addresses
_Key = tuple[str, str, str, str, str, str, int]


class CallLog:
    """Calls, appended by one thread; whoever waits for its future knows that its call is on the disk.

    Parameters
    ----------
    database : Database
        Where the log is: see `epsilearn.service.store.log_store`.
    most : int
        How many calls are listed; older ones are folded into counts.
    days : float
        For how long they are.
    """

    def __init__(self, database: Database, most: int = 1_000_000, days: float = 400.0) -> None:
        self._database, self._most, self._days = database, most, days
        self._waiting: queue.SimpleQueue[tuple[dict[str, Any], Future[None]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, str, str, int], list[Any]] = {}  # calls and address by minute, key, who, status
        self._since_fold = _FOLDED_AT_ONCE  # an earlier server may have left something to do
        self._thread = threading.Thread(target=self._work, name="epsilearn-log", daemon=True)
        self._thread.start()

    def write(self, call: dict[str, Any]) -> Future[None]:
        """A future that ends when the call is written down, or with the error that kept it from being."""
        done: Future[None] = Future()
        self._waiting.put(({**call, "time": store.now()}, done))
        return done

    def count(self, status: int, caller: Caller | None, address: str) -> None:
        """A call that was refused before anything of it was read: one more in this minute."""
        who = ("", "") if caller is None else (caller.key, caller.name)
        with self._lock:
            seen = self._refused.setdefault((store.now()[:16], *who, status), [0, address])
            seen[0] += 1
            if seen[1] != address:
                seen[1] = SEVERAL

    def close(self) -> None:
        """Write what is left, and stop."""
        self._waiting.put(None)
        self._thread.join(timeout=30)

    def listed(self, before: int | None, count: int) -> list[dict[str, Any]]:
        """The newest calls, or those before a number."""
        query = store.calls.select().order_by(store.calls.c.number.desc()).limit(count)
        if before is not None:
            query = query.where(store.calls.c.number < before)
        return self._rows(query)

    def counted(self, start: int, count: int) -> list[dict[str, Any]]:
        """Counts of calls that are not listed, the newest first, from some place on."""
        order = [column.desc() if column.name == "time" else column for column in store.counted.primary_key]
        return self._rows(store.counted.select().order_by(*order).offset(start).limit(count))

    def _rows(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        with self._database.transaction(write=False) as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    # ---------------------------------------------------------------------------------------------------- the thread

    def _work(self) -> None:
        ended = False
        while not ended:
            batch = self._batch()
            ended = None in batch
            waiting = [item for item in batch if item is not None]
            if waiting:
                self._commit(waiting)
            try:
                self._write_counts(everything=ended)
                self._fold(len(waiting))
            except EpsilearnError:
                pass  # nobody waits for this; it is tried again with the next
            except Exception as error:
                complain(error)  # whatever it was, calls go on being written down

    def _batch(self) -> list[tuple[dict[str, Any], Future[None]] | None]:
        batch: list[tuple[dict[str, Any], Future[None]] | None] = []
        try:
            while len(batch) < _MOST_AT_ONCE:
                batch.append(self._waiting.get(block=not batch, timeout=_LOOK_SECONDS))
        except queue.Empty:
            pass
        return batch

    def _commit(self, waiting: list[tuple[dict[str, Any], Future[None]]]) -> None:
        # Written down all the same where nobody waits any more.
        awaited = [done for _, done in waiting if done.set_running_or_notify_cancel()]
        try:
            with self._database.transaction(write=True) as connection:
                connection.execute(store.calls.insert(), [call for call, _ in waiting])
        except BaseException as error:
            for done in awaited:
                done.set_exception(error)
            return
        for done in awaited:
            done.set_result(None)

    def _write_counts(self, *, everything: bool) -> None:
        """The minutes that are over, each in as few rows as there were keys and reasons."""
        minute, counts = store.now()[:16], dict[_Key, int]()
        with self._lock:
            over = [name for name in self._refused if everything or name[0] < minute]
            for time, key, who, status in over:
                calls, address = self._refused[time, key, who, status]
                counts[time, key, who, address, "", "", status] = calls
        if not counts:
            return
        with self._database.transaction(write=True) as connection:
            self._add(connection, counts)
        with self._lock:
            for name in over:
                del self._refused[name]

    def _fold(self, more: int) -> None:
        """Fold a few of the oldest calls, if they are too old or too many: whoever waits behind this waits briefly."""
        self._since_fold += more
        if more and self._since_fold < _FOLDED_AT_ONCE:
            return
        calls, counted = store.calls.c, store.counted.c
        horizon = (datetime.now(UTC) - timedelta(days=self._days)).isoformat(timespec="microseconds")
        with self._database.transaction(write=True) as connection:
            newest = connection.execute(sa.select(sa.func.max(calls.number))).scalar() or 0
            oldest = store.calls.select().order_by(calls.number).limit(_FOLDED_AT_ONCE)
            # Another process that is folding has these rows to itself.
            found = connection.execute(oldest.with_for_update(skip_locked=True)).all()
            old = [row for row in found if row.number <= newest - self._most or row.time < horizon]
            if old:
                self._add(connection, Counter(_by_day(row) for row in old if row.status < 400))
                connection.execute(store.calls.delete().where(calls.number.in_([row.number for row in old])))
            connection.execute(store.counted.delete().where(counted.time < horizon, counted.status >= 400))
        if len(old) < _FOLDED_AT_ONCE:
            self._since_fold = 0

    def _add(self, connection: sa.Connection, counts: dict[_Key, int]) -> None:
        if not counts:
            return
        insert = (postgresql if self._database.is_postgresql else sqlite).insert(store.counted)
        names = [column.name for column in store.counted.primary_key]
        total = store.counted.c.calls + insert.excluded.calls
        rows = [{**dict(zip(names, key, strict=True)), "calls": calls} for key, calls in counts.items()]
        connection.execute(insert.on_conflict_do_update(index_elements=names, set_={"calls": total}), rows)


def _by_day(row: Any) -> _Key:
    return row.time[:10], row.key or "", row.who, "", row.method, row.path, row.status
