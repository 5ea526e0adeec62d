"""Databases that must not lose anything: SQLite files and PostgreSQL, through one code path.

Every connection is opened for one transaction and closed after it, so nothing is shared across forks or threads. What
is committed is on the disk.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from epsilearn.errors import LedgerError

try:
    import fcntl
except ModuleNotFoundError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

__all__ = ["Database", "is_usable", "make_usable", "sqlite_path", "wait_for_makers"]

_BUSY_SECONDS = 120
_MAKING_TABLES = 7341028  # the number of a lock
_NAMED = 7341029  # the first number of locks that have a second one


class Database:
    """A database file, or a database of a server.

    Parameters
    ----------
    url : str
        As given.
    engine : Engine
        Connects to it.
    shown : str
        The URL without a password, for messages.
    fence : callable, optional
        Called at the start of every writing transaction, with its connection; raises if this process may not write any
        more.
    """

    def __init__(
        self, url: str, engine: sa.Engine, shown: str, fence: Callable[[sa.Connection], None] | None = None
    ) -> None:
        self.url, self.engine, self.shown, self._fence = url, engine, shown, fence

    @classmethod
    def at(cls, url: str) -> Database:
        """The database at a file name or URL; nothing is opened yet."""
        path = sqlite_path(url)
        if path is not None:
            return cls.in_file(path)
        try:
            parsed = sa.make_url(url)
            if parsed.get_backend_name() != "postgresql":
                raise ArgumentError
            if "+" not in parsed.drivername:
                parsed = parsed.set(drivername="postgresql+psycopg")
            engine = sa.create_engine(parsed, poolclass=NullPool)
        except ModuleNotFoundError as error:
            raise LedgerError(f"this ledger needs {error.name}: run `pip install epsilearn[postgresql]`") from error
        except (ArgumentError, NoSuchModuleError):
            raise LedgerError("the ledger's URL is not one: give a file name or postgresql://user@host/name") from None
        return cls(url, engine, parsed.render_as_string(hide_password=True))

    @classmethod
    def in_file(cls, path: Path, shown: str | None = None) -> Database:
        """A SQLite file, which must exist when it is used."""
        return cls(str(path), _sqlite_engine(path), shown or str(path))

    def fenced(self, fence: Callable[[sa.Connection], None]) -> Database:
        """The same database, for somebody who must be allowed to write anew in each transaction."""
        return Database(self.url, self.engine, self.shown, fence)

    def check_fence(self) -> None:
        """Raise if this process may not write any more: for what is written elsewhere on behalf of this database."""
        if self._fence is not None:
            with self.transaction(write=False) as connection:
                self._fence(connection)

    @property
    def is_postgresql(self) -> bool:
        return bool(self.engine.dialect.name == "postgresql")

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sa.Connection]:
        """One transaction; a writing one of SQLite waits for all others before it reads anything."""
        options: dict[str, Any] = {"epsilearn_write": write}
        if self.is_postgresql:
            # Writers wait for the row and then see its newest state; a reader's header and entries are of one moment.
            # SQLite does both by itself.
            options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
        try:
            with self.engine.connect().execution_options(**options) as connection, connection.begin():
                if self.is_postgresql and write:
                    # Whatever the server or the role is set to: a debit is on disk before anything is released.
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
                if self._fence is not None and write:
                    self._fence(connection)
                yield connection
        except DBAPIError as error:
            raise LedgerError(f"{_trouble(error)} ({self.shown}); nothing was released") from error

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """One holder of this name at a time, in any process; nobody else waits, and whoever dies lets go of it.

        Not for what must never be done twice: a connection may be lost without its holder's knowledge.
        """
        digest = hashlib.sha256(name.encode())
        with ExitStack() as ended:
            if self.is_postgresql:
                self._lock_number(int.from_bytes(digest.digest()[:4], signed=True), ended)
            else:
                self._lock_file(digest.hexdigest()[:32], ended)
            yield

    def _lock_number(self, number: int, ended: ExitStack) -> None:
        try:
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            ended.callback(connection.close)
            connection.execute(sa.select(sa.func.pg_advisory_lock(_NAMED, number)))
        except DBAPIError as error:
            raise LedgerError(f"{_trouble(error)} ({self.shown}); nothing was released") from error

    def _lock_file(self, name: str, ended: ExitStack) -> None:
        if fcntl is None:
            raise LedgerError("this system has no locks of files; use a database of PostgreSQL. Nothing was released")
        folder = Path(f"{self.url}.locks")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            fcntl.flock(ended.enter_context((folder / name).open("w")), fcntl.LOCK_EX)
        except OSError as error:
            raise LedgerError(
                f"cannot lock a file in {folder}: {error.strerror}; let this user write there. Nothing was released"
            ) from None


def is_usable(connection: sa.Connection, table: sa.Table, *rights: str) -> bool:
    """Whether there is such a table, and these rights to it: a role of PostgreSQL may have been given others alone."""
    if connection.dialect.name != "postgresql":
        return bool(sa.inspect(connection).has_table(table.name))
    each = (sa.func.has_table_privilege(sa.func.to_regclass(table.name), right) for right in rights)
    return bool(connection.execute(sa.select(sa.and_(*each))).scalar())


def make_usable(connection: sa.Connection, table: sa.Table) -> bool:
    """Whether a table can be read and written, made first if it is not there and may be made."""
    rights = ("SELECT", "INSERT", "UPDATE")
    if is_usable(connection, table, *rights):
        return True
    wait_for_makers(connection)
    if not sa.inspect(connection).has_table(table.name) and _may_make_tables(connection):
        table.create(connection)
    return is_usable(connection, table, *rights)


def wait_for_makers(connection: sa.Connection) -> None:
    """Nobody else makes tables until this transaction ends: in PostgreSQL two who make the same one would collide."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING_TABLES)))


def _may_make_tables(connection: sa.Connection) -> bool:
    if connection.dialect.name != "postgresql":
        return True  # whoever may write the file
    allowed = sa.func.has_schema_privilege(sa.func.current_schema(), "CREATE")
    return bool(connection.execute(sa.select(allowed)).scalar())


def _trouble(error: DBAPIError) -> str:
    text = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "no answer"
    known = {
        "readonly": "the ledger is read-only: make it writable for this user",
        "not a database": "the file is not a ledger",
        "disk is full": "the disk is full: the ledger cannot take a debit",
        "disk i/o": "the ledger cannot be written: the disk is full or failing",
        "locked": f"the ledger stayed locked by another process for {_BUSY_SECONDS} s",
        "no such table": "the file is not a ledger",
        "unable to open": "the ledger cannot be opened",
    }
    return next((say for sign, say in known.items() if sign in text.lower()), f"the ledger failed: {text}")


def sqlite_path(url: str) -> Path | None:
    """The file meant by a plain path or a sqlite URL; None for other databases."""
    scheme, separator, rest = url.partition("://")
    if separator and not scheme.startswith("sqlite"):
        return None
    if separator:
        url = rest.removeprefix("/")
    if not url or url == ":memory:" or "\0" in url:
        raise LedgerError("a ledger must be a file or a database: it has to outlive this process")
    return Path(url).absolute()


def _sqlite_engine(path: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
        # A debit must survive a power cut, not only a crash: sync the folder too.
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("epsilearn_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
