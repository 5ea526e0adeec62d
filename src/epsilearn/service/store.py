"""The server's tables, beside those of its ledgers in one database, and how they change from version to version."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from epsilearn.balls import exact
from epsilearn.database import Database, sqlite_path, wait_for_makers
from epsilearn.errors import LedgerError
from epsilearn.ledger_store import DELIVERIES

__all__ = [
    "UPGRADES", "answers", "calls", "counted", "datasets", "digits", "documents", "keys", "log_store", "now",
    "opened_store", "releases", "servers", "sessions", "statistics", "values",
]  # fmt: skip

_PATIENCE = 60.0  # seconds to wait for another process that is making the same file

metadata = sa.MetaData()
_versions = sa.Table("epsilearn_service_version", metadata, sa.Column("version", sa.Integer, primary_key=True))


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null)


# Keys: only digests, never the keys themselves.
keys = sa.Table(
    "epsilearn_key",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _text("digest"),
    _text("role"),
    _text("name"),
    _text("datasets"),  # a JSON list of names; null stands for all
    _text("created"),
    _text("who"),
    _text("expires", null=True),
    _text("revoked", null=True),
)
datasets = sa.Table(
    "epsilearn_dataset",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    _text("file"),
    _text("digest"),  # of the file, so that another in its place is noticed
    _text("public"),  # the schema, as JSON
    sa.Column("rows", sa.BigInteger, nullable=False),
    _text("created"),
    _text("who"),
    # The name under which the same table had a budget before: then this one is not read any more. Only a server of
    # version 1, which two could ask at once, has left such.
    _text("same_as", null=True),
)
# One table has one budget, whatever else goes wrong.
for _column in (datasets.c.file, datasets.c.digest):
    _first = datasets.c.same_as.is_(None)
    sa.Index(f"epsilearn_one_{_column.name}", _column, unique=True, sqlite_where=_first, postgresql_where=_first)
# One row: which server it is, counted from the first that ever ran, and whether it has ended by itself.
servers = sa.Table(
    "epsilearn_server",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("ended", sa.Boolean, nullable=False),
)
releases = sa.Table(
    "epsilearn_release",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, sa.ForeignKey("epsilearn_dataset.name"), nullable=False, index=True),
    _text("kind"),
    _text("settings"),
    _text("status"),
    _text("message"),
    _text("facts"),  # what is public about it once it is open: guarantee, noise, ...
    _text("created"),
    _text("who"),
    # The epsilons of all its statistics, added up exactly, those that are being answered included: a fraction.
    sa.Column("asked", sa.Text, nullable=False, server_default="0"),
)
documents = sa.Table(
    "epsilearn_document",
    metadata,
    sa.Column("release", sa.Text, sa.ForeignKey("epsilearn_release.id"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    _text("content"),
)
# Statistics: a question is claimed before it is paid for, and answered once.
statistics = sa.Table(
    "epsilearn_statistic",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("release", sa.Text, sa.ForeignKey("epsilearn_release.id"), nullable=False),
    _text("question"),
    sa.Column("lost", sa.Integer, nullable=False, default=0),
    sa.Column("epsilon", sa.Float(53), nullable=False),
    _text("answer", null=True),
    _text("created"),
    _text("who"),
    sa.UniqueConstraint("release", "question", "lost"),
)
# Live sessions: as private as the records.
sessions = sa.Table(
    "epsilearn_session",
    metadata,
    sa.Column("session", sa.Text, primary_key=True),
    # How many of its answers came from the private model, where others do not.
    sa.Column("private", sa.Integer, nullable=False, server_default="0"),
)
values = sa.Table(
    "epsilearn_session_value",
    metadata,
    sa.Column("session", sa.Text, sa.ForeignKey("epsilearn_session.session"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
answers = sa.Table(
    "epsilearn_answer",
    metadata,
    sa.Column("session", sa.Text, sa.ForeignKey("epsilearn_session.session"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # A digest of the point: an index takes no points of any length.
    sa.Column("known", sa.LargeBinary, nullable=False),
    sa.Column("point", sa.LargeBinary, nullable=False),
    sa.Column("answer", sa.Float(53), nullable=False),
    sa.Column("detail", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("session", "known"),
)
digits = sa.Table(
    "epsilearn_digits",
    metadata,
    sa.Column("session", sa.Text, sa.ForeignKey("epsilearn_session.session"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("known", sa.Integer, nullable=False),
    _text("digits"),
)
# The log has a file of its own where the database is one: with one writer at a time, how long a call waits to be logged
# would tell how long somebody else's answer took.
_log_metadata = sa.MetaData()
calls = sa.Table(
    "epsilearn_call",
    _log_metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    _text("time"),
    _text("key", null=True),
    _text("who"),
    _text("address"),
    _text("method"),
    _text("path"),
    sa.Column("status", sa.Integer, nullable=False),
)
# Calls that are counted rather than listed: refused ones by the minute, old ones by the day.
counted = sa.Table(
    "epsilearn_call_count",
    _log_metadata,
    *(sa.Column(name, sa.Text, primary_key=True) for name in ("time", "key", "who", "address", "method", "path")),
    sa.Column("status", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("calls", sa.BigInteger, nullable=False),
)


def _to_version_2(connection: sa.Connection) -> None:
    """One table, one budget, by the database itself; and servers are counted.

    Where a table has two budgets already, the first one stays, and the table is not read for the others any more.
    """
    connection.exec_driver_sql("ALTER TABLE epsilearn_dataset ADD COLUMN same_as TEXT")
    found = connection.execute(sa.text("SELECT name, file, digest FROM epsilearn_dataset ORDER BY created, name")).all()
    first: dict[str, str] = {}
    mark = sa.text("UPDATE epsilearn_dataset SET same_as = :first WHERE name = :name")
    for name, file, digest in found:
        before = first.get(f"file {file}") or first.get(f"digest {digest}")
        if before is not None:
            connection.execute(mark, {"first": before, "name": name})
            continue
        first |= {f"file {file}": name, f"digest {digest}": name}
    for column in ("file", "digest"):
        connection.exec_driver_sql(
            f"CREATE UNIQUE INDEX epsilearn_one_{column} ON epsilearn_dataset ({column}) WHERE same_as IS NULL"
        )
    connection.exec_driver_sql(
        "CREATE TABLE epsilearn_server (number INTEGER PRIMARY KEY, term BIGINT NOT NULL, ended BOOLEAN NOT NULL)"
    )


def _to_version_3(connection: sa.Connection) -> None:
    """Running totals: what statistics have taken, and how many answers were private, without reading them all.

    And the ledgers' deliveries have an index, unless somebody else has made their tables and keeps them.
    """
    if sa.inspect(connection).has_table("epsilearn_entry"):
        with suppress(DBAPIError), connection.begin_nested():
            DELIVERIES.create(connection, checkfirst=True)
    connection.exec_driver_sql("ALTER TABLE epsilearn_release ADD COLUMN asked TEXT DEFAULT '0' NOT NULL")
    connection.exec_driver_sql("ALTER TABLE epsilearn_session ADD COLUMN private INTEGER DEFAULT 0 NOT NULL")
    asked: defaultdict[str, Fraction] = defaultdict(Fraction)
    for release, epsilon in connection.execute(sa.text("SELECT release, epsilon FROM epsilearn_statistic")):
        asked[release] += exact(epsilon)
    for release, total in asked.items():
        change = sa.text("UPDATE epsilearn_release SET asked = :total WHERE id = :release")
        connection.execute(change, {"total": str(total), "release": release})
    # The first byte of what is written beside an interactive answer says whether it was private.
    details = sa.text(
        "SELECT a.session, a.detail FROM epsilearn_answer a JOIN epsilearn_release r ON r.id = a.session "
        "WHERE r.kind = 'interactive'"
    )
    private = Counter(session for session, detail in connection.execute(details) if bytes(detail)[0])
    for session, count in private.items():
        change = sa.text("UPDATE epsilearn_session SET private = :count WHERE session = :session")
        connection.execute(change, {"count": count, "session": session})


# What leads from each version to the next, from the first on. A new database is made as the newest one at once.
UPGRADES: tuple[Callable[[sa.Connection], None], ...] = (_to_version_2, _to_version_3)


def now() -> str:
    """This moment, as it is written down."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def opened_store(
    url: str, *, make: bool = False, upgrades: Sequence[Callable[[sa.Connection], None]] = UPGRADES
) -> Database:
    """The server's database, of this version: an older one is brought up to it, a newer one is refused.

    Parameters
    ----------
    url : str
        A SQLite file or a PostgreSQL URL.
    make : bool
        Whether to make what is not there yet.
    upgrades : sequence of callables
        What leads from each version to the next.
    """
    path = sqlite_path(url)
    if path is not None:
        if not make and not path.exists():
            raise LedgerError(f"there is no server's database at {path}; `epsilearn key create` makes one")
        _make_file(path)
    database = Database.at(url)
    with database.transaction(write=True) as connection:
        wait_for_makers(connection)
        version = _version(connection)
        if version == 0 and not make:
            raise LedgerError(f"{database.shown} holds no server's tables; `epsilearn key create` makes them")
        newest = 1 + len(upgrades)
        if version > newest:
            raise LedgerError(
                f"the server's database is of version {version}, and this epsilearn knows {newest}: it was used by a "
                "newer one; install that, nothing was changed"
            )
        if version == 0:
            metadata.create_all(connection)
        for step in upgrades[version - 1 :] if version else ():
            step(connection)
        connection.execute(_versions.delete())
        connection.execute(_versions.insert().values(version=newest))
    return database


def log_store(database: Database) -> Database:
    """Where calls are logged: the same database, or a file beside it; whoever may not write there logs nothing."""
    path, state = sqlite_path(database.url), database
    if path is not None:
        beside = path.with_name(f"{path.name}.calls")
        _make_file(beside)
        database = Database.in_file(beside).fenced(lambda _connection: state.check_fence())
    with database.transaction(write=True) as connection:
        wait_for_makers(connection)
        _log_metadata.create_all(connection)
    return database


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(_versions.name):
        return 0
    return int(connection.execute(sa.select(_versions.c.version)).scalar() or 0)


def _make_file(path: Path) -> None:
    """A database file that only its owner reads, whose readers and writer do not wait for each other."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            # Also of a file that is there: whoever made it may have died before this.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = Database.in_file(path).engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
            finally:
                connection.close()
            return
        except OSError as error:
            raise LedgerError(f"cannot make a database at {path}: {error.strerror}") from None
        except sqlite3.Error as error:
            # Another process that makes it at this very moment; SQLite does not wait for that by itself.
            if time.monotonic() > end or "locked" not in str(error):
                raise LedgerError(f"cannot use {path} as a database; is it one, and may it be written?") from None
            time.sleep(0.05)
