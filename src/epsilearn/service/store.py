"""The server's tables, beside those of its ledgers in one database, and how they change from version to version."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from epsilearn.database import Database, sqlite_path
from epsilearn.errors import LedgerError, StateError

__all__ = [
    "UPGRADES", "answers", "calls", "datasets", "digits", "documents", "keys", "log_store", "now", "only_server",
    "opened_store", "releases", "sessions", "statistics", "values",
]  # fmt: skip

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
sessions = sa.Table("epsilearn_session", metadata, sa.Column("session", sa.Text, primary_key=True))
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

# What leads from each version to the next, from the first on. A new database is made as the newest one at once.
UPGRADES: tuple[Callable[[sa.Connection], None], ...] = ()


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
    if path is not None and not path.exists():
        if not make:
            raise LedgerError(f"there is no server's database at {path}; `epsilearn key create` makes one")
        _make_file(path)
    database = Database.at(url)
    with database.transaction(write=True) as connection:
        if database.is_postgresql:
            # Two servers that start at once must not both make the tables.
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7341026)"))
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
    """Where calls are logged: the same database, or a file beside it."""
    path = sqlite_path(database.url)
    if path is not None:
        beside = path.with_name(f"{path.name}.calls")
        if not beside.exists():
            _make_file(beside)
        database = Database.in_file(beside)
    with database.transaction(write=True) as connection:
        if database.is_postgresql:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7341026)"))
        _log_metadata.create_all(connection)
    return database


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(_versions.name):
        return 0
    return int(connection.execute(sa.select(_versions.c.version)).scalar() or 0)


def _make_file(path: Path) -> None:
    """A database file that only its owner reads, whose readers and writer do not wait for each other."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise LedgerError(f"cannot make a database at {path}: {error.strerror}") from None
    engine = Database.in_file(path).engine
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


@contextmanager
def only_server(database: Database) -> Iterator[None]:
    """Hold the database for one server: what another one left unfinished is then nobody's."""
    import fcntl

    taken = StateError(
        f"another server is running on {database.shown}; stop it first, or raise its number of workers instead"
    )
    if database.is_postgresql:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if not connection.execute(sa.text("SELECT pg_try_advisory_lock(7341027)")).scalar():
                raise taken
            yield
        return
    with Path(f"{Path(database.url).resolve()}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise taken from None
        yield
