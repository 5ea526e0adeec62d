"""One server at a time: a lock that keeps a second one from starting, and a number that keeps the first from writing
if it has lost the lock.

A lock can be lost without its holder's knowledge: a connection is cut, a file is removed. So every server has a number,
its term, in the database; whoever begins a new one raises it, and every writing transaction of a server reads it first.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from epsilearn.database import Database
from epsilearn.errors import LedgerError, StateError
from epsilearn.service.store import servers

__all__ = ["fenced", "only_server"]

_LOCK = 7341027  # the number of the lock in PostgreSQL
_COME_BACK = 2.0  # seconds for a server that lost its connection to take its lock again
_LOOK = 0.25  # seconds between looks at whether this server was told to stop
_ASK = 40  # looks between questions whether the connection is still there, if nothing has been heard of its end
_log = logging.getLogger("epsilearn.service")


def fenced(database: Database, term: int) -> Database:
    """The database for the server of this term: it writes as long as no other has begun."""

    def check(connection: sa.Connection) -> None:
        # Whoever begins a new term waits for the transactions that have read the old one.
        if connection.execute(sa.select(servers.c.term).with_for_update(read=True)).scalar() != term:
            raise LedgerError(f"another server has begun on {database.shown}; this one writes no more")

    return database.fenced(check)


@contextmanager
def only_server(database: Database, replaced: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold the database for one server, and tell its term: what another one left unfinished is then nobody's.

    Parameters
    ----------
    database : Database
        The server's.
    replaced : callable, optional
        Called if another server has begun in the meantime; by default this process is told to stop.
    """
    if not database.is_postgresql:
        with _locked_file(database):
            yield from _served(database)
        return
    lock = _taken_lock(database)
    if not _ended(database):
        # The last one did not end by itself. If it has only lost its connection it takes its lock again now.
        lock.close()
        lock = _left_alone(database)
    watch = _Watch(database, lock, replaced or _stop)
    try:
        yield from _served(database, watch)
    finally:
        watch.close()


def _served(database: Database, watch: _Watch | None = None) -> Iterator[int]:
    term = _begin(database)
    if watch is not None:
        watch.start(term)
    try:
        yield term
    finally:
        # If this cannot be written, the next one waits a moment before it begins.
        with suppress(LedgerError), database.transaction(write=True) as connection:
            connection.execute(servers.update().where(servers.c.term == term).values(ended=True))


def _begin(database: Database) -> int:
    with database.transaction(write=True) as connection:
        found = connection.execute(sa.select(servers.c.term).with_for_update()).scalar()
        if found is None:
            connection.execute(servers.insert().values(number=1, term=1, ended=False))
        else:
            connection.execute(servers.update().values(term=found + 1, ended=False))
        return int(found or 0) + 1


def _ended(database: Database) -> bool:
    with database.transaction(write=False) as connection:
        return bool(connection.execute(sa.select(servers.c.ended)).scalar() in (None, True))


def _running(database: Database) -> StateError:
    return StateError(
        f"another server is running on {database.shown}; stop it first, or raise its number of workers instead"
    )


@contextmanager
def _locked_file(database: Database) -> Iterator[None]:
    with Path(f"{Path(database.url).resolve()}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _running(database) from None
        yield


def _taken_lock(database: Database) -> sa.Connection:
    lock = _try_lock(database)
    if lock is None:
        raise _running(database)
    return lock


def _left_alone(database: Database) -> sa.Connection:
    """The lock, if nobody comes back for it in time."""
    end = time.monotonic() + _COME_BACK
    while time.monotonic() < end:
        time.sleep(0.1)
        _taken_lock(database).close()
    return _taken_lock(database)


def _try_lock(database: Database) -> sa.Connection | None:
    """A connection that holds the lock until it ends."""
    with ExitStack() as ended:
        connection = database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        ended.callback(connection.close)
        if not connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LOCK))).scalar():
            return None
        ended.pop_all()
        return connection


def _stop() -> None:
    _log.error("another server has begun on this database; this one ends")
    os.kill(os.getpid(), signal.SIGTERM)


class _Watch:
    """A thread that notices when the connection with the lock ends, and takes the lock again."""

    def __init__(self, database: Database, lock: sa.Connection, replaced: Callable[[], None]) -> None:
        self._database, self._lock, self._replaced = database, lock, replaced
        self._term, self._closed = 0, threading.Event()
        self._thread = threading.Thread(target=self._work, name="epsilearn-lock", daemon=True)

    def start(self, term: int) -> None:
        self._term = term
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._lock.close()

    def _work(self) -> None:
        while self._holds() or self._closed.is_set() or self._regained():
            if self._closed.is_set():
                return
        self._replaced()

    def _holds(self) -> bool:
        """Whether the connection is there; waits until something is heard of it, or for some seconds."""
        try:
            wire = self._lock.connection.driver_connection
            assert wire is not None
            heard = select.poll()  # whatever the number of the file is: select knows those below 1024 alone
            heard.register(wire.fileno(), select.POLLIN)
            for _ in range(_ASK):
                if self._closed.is_set() or heard.poll(1000 * _LOOK):
                    break
            self._lock.execute(sa.select(1))
        except Exception:  # whichever library finds out first
            return False
        return True

    def _regained(self) -> bool:
        """Whether the lock is this server's again; False once another has begun."""
        while not self._closed.wait(0.05):
            found = None
            try:
                # Somebody else may hold it for a moment, to see whether this server comes back.
                found = _try_lock(self._database)
                with self._database.transaction(write=False) as connection:
                    mine = connection.execute(sa.select(servers.c.term)).scalar() == self._term
            except (DBAPIError, LedgerError):
                mine = None  # the database is away, for everybody
            if mine and found is not None:
                self._lock.invalidate()
                self._lock.close()
                self._lock = found
                return True
            if found is not None:
                found.close()
            if mine is False:
                return False
        return True
