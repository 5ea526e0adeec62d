"""Where ledgers live: SQLite or PostgreSQL, through one set of tables and one code path.

Writers are serialised before they read: by ``BEGIN IMMEDIATE`` in SQLite, by locking the data set's row in
PostgreSQL. A killed process leaves either a whole entry or none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import sqlalchemy as sa

from epsilearn.checks import check_budget, check_integer, is_line
from epsilearn.database import Database, is_usable, make_usable, sqlite_path, wait_for_makers
from epsilearn.errors import InvalidInput, LedgerError, TamperedLedger
from epsilearn.filters import Filter, Totals
from epsilearn.plain_json import parse_json

__all__ = ["DELIVERIES", "Book", "Entry", "Header", "Mark", "Store"]

_VERSION = 1

metadata = sa.MetaData()
_versions = sa.Table("epsilearn_version", metadata, sa.Column("version", sa.Integer, primary_key=True))
_ledgers = sa.Table(
    "epsilearn_ledger",
    metadata,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),
)
_entries = sa.Table(
    "epsilearn_entry",
    metadata,
    sa.Column("dataset", sa.Text, sa.ForeignKey("epsilearn_ledger.dataset"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("totals", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
# So that a page of debits finds its deliveries without reading what came after them.
_is_delivery = _entries.c.kind == sa.literal_column("'delivered'")
DELIVERIES = sa.Index(
    "epsilearn_delivery",
    _entries.c.dataset,
    _entries.c.content,
    sqlite_where=_is_delivery,
    postgresql_where=_is_delivery,
)
# Derived, so that a balance reads no entry but the last: how many of the entries up to this one are debits. It is
# written with its entry, in one transaction, and checked against the chain whenever it is used. Ledgers of earlier
# versions have none, and programs of earlier versions leave it behind: the entries since are then counted one by one.
_counts = sa.Table(
    "epsilearn_count",
    metadata,
    sa.Column("dataset", sa.Text, primary_key=True),  # no foreign key: making the table would then wait for all debits
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("debits", sa.Integer, nullable=False),
)
# A guard against accidents; against intent there is the hash chain.
_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER epsilearn_no_{verb} BEFORE {verb} ON epsilearn_entry "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION epsilearn_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
        "CREATE TRIGGER epsilearn_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON epsilearn_entry "
        "FOR EACH STATEMENT EXECUTE FUNCTION epsilearn_append_only()",
    ],
}


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parse(text: str) -> Any:
    """A table of plain JSON back; anything else, which we never write, is an error."""
    data = parse_json(text, "a ledger's text")
    if not isinstance(data, dict):
        raise InvalidInput("not a ledger's text: it is no table")
    return data


def _hash(data: Any) -> str:
    return hashlib.sha256(_canonical(data).encode()).hexdigest()


@dataclass(frozen=True)
class Header:
    """What was fixed when the ledger was created."""

    dataset: str
    epsilon: float
    delta: float
    rule: Filter
    relation: str
    rows_per_person: int

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "rule": self.rule.to_dict()}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Header:
        fields = {name: data[name] for name in ("dataset", "epsilon", "delta", "relation", "rows_per_person")}
        check_budget(data["epsilon"], data["delta"])
        check_integer("rows_per_person", data["rows_per_person"])
        return Header(rule=Filter.from_dict(data["rule"]), **fields)


@dataclass(frozen=True)
class Entry:
    """One row of the chain: a debit, or the note that it was delivered."""

    dataset: str
    number: int
    time: str
    kind: str
    who: str
    purpose: str
    content: dict[str, Any]
    totals: Totals
    previous: str
    hash: str = ""

    def digest(self) -> str:
        data = {name: value for name, value in vars(self).items() if name != "hash"}
        return _hash({**data, "totals": _totals_to_dict(self.totals)})

    @staticmethod
    def from_row(row: sa.Row[Any]) -> Entry:
        data = dict(row._mapping)
        try:
            totals = {name: Fraction(text) for name, text in _parse(data["totals"]).items()}
            return Entry(**{**data, "content": _parse(data["content"]), "totals": totals})
        except (ValueError, TypeError, ZeroDivisionError, AttributeError):
            raise TamperedLedger(f"entry {data['number']} of {data['dataset']!r} is damaged") from None


def _totals_to_dict(totals: Totals) -> dict[str, str]:
    return {name: str(total) for name, total in totals.items()}


class Mark(NamedTuple):
    """A moment of a chain: how many entries it had, and the hash of the last."""

    length: int
    head: str


class Count(NamedTuple):
    """How many debits there are up to an entry, which has this number and this hash."""

    number: int
    hash: str
    debits: int


class Book:
    """One data set's ledger inside a transaction."""

    def __init__(self, connection: sa.Connection, row: sa.Row[Any]) -> None:
        self._connection = connection
        self.dataset: str = row.dataset
        self.head: str = row.head
        self.length: int = row.length
        try:
            data = _parse(row.content)
            self.header = Header.from_dict(data)
        except (ValueError, KeyError, TypeError):
            raise TamperedLedger(f"the header of {self.dataset!r} is damaged") from None
        if _hash(data) != row.hash:
            raise TamperedLedger(f"the header of {self.dataset!r} was edited: its hash does not fit")
        self.start: str = row.hash

    @cached_property
    def entries(self) -> list[Entry]:
        query = _entries.select().where(_entries.c.dataset == self.dataset).order_by(_entries.c.number)
        return [Entry.from_row(row) for row in self._connection.execute(query)]

    @property
    def totals(self) -> Totals:
        """The running totals, from the last entry alone once that entry has been checked."""
        if self.length == 0 and self.head == self.start:
            return self.header.rule.zero()
        query = _entries.select().where(_entries.c.dataset == self.dataset, _entries.c.number == self.length)
        row = self._connection.execute(query).first()
        last = Entry.from_row(row) if row is not None else None
        if last is None or last.hash != self.head or last.digest() != self.head:
            raise TamperedLedger(
                f"the last entry of {self.dataset!r} does not fit the chain: the ledger was edited; nothing was spent"
            )
        return last.totals

    @property
    def mark(self) -> Mark:
        return Mark(self.length, self.head)

    def hash_at(self, number: int) -> str | None:
        """The hash of the entry of this number, or of the header for 0; None if there is no such entry."""
        if number in (0, self.length):
            return self.head if number == self.length else self.start
        query = sa.select(_entries.c.hash).where(_entries.c.dataset == self.dataset, _entries.c.number == number)
        found: str | None = self._connection.execute(query).scalar()
        return found if 0 < number < self.length else None

    @cached_property
    def count(self) -> Count | None:
        """The debits that were counted already, as far as that goes; never believed where the chain says otherwise."""
        if not is_usable(self._connection, _counts, "SELECT"):
            return None
        columns = sa.select(_counts.c.number, _counts.c.hash, _counts.c.debits)
        row = self._connection.execute(columns.where(_counts.c.dataset == self.dataset)).first()
        if row is None:
            return None
        if self.hash_at(row.number) != row.hash:
            raise TamperedLedger(
                f"debits of {self.dataset!r} were counted up to an entry that is not in the chain: the ledger was "
                "rolled back or edited; nothing was spent"
            )
        return Count(*row)

    @property
    def debits(self) -> int:
        """How many debits there are: those counted already, and those since."""
        number, counted = (0, 0) if self.count is None else (self.count.number, self.count.debits)
        if number == self.length:
            return counted
        since = sa.and_(_entries.c.dataset == self.dataset, _entries.c.number > number, _entries.c.kind == "debit")
        return counted + int(self._connection.execute(sa.select(sa.func.count()).where(since)).scalar_one())

    def newest_debits(self, count: int, before: int | None) -> list[Entry]:
        """So many debits in their order: the newest, or those before an entry."""
        mine = (_entries.c.dataset == self.dataset) & (_entries.c.kind == "debit")
        query = _entries.select().where(mine).order_by(_entries.c.number.desc()).limit(count)
        if before is not None:
            query = query.where(_entries.c.number < before)
        return [Entry.from_row(row) for row in reversed(self._connection.execute(query).all())]

    def delivered(self, debits: list[Entry]) -> set[int]:
        """Which of some debits were delivered: the notes of that say so word for word."""
        notes = {_canonical({"debit": entry.number}): entry.number for entry in debits}
        mine = (_entries.c.dataset == self.dataset) & _is_delivery & _entries.c.content.in_(notes)
        return {notes[row.content] for row in self._connection.execute(sa.select(_entries.c.content).where(mine))}

    def _keep_count(self, count: Count) -> None:
        if not make_usable(self._connection, _counts):
            return  # a role that may do no more than append still appends; others go on from the last count
        values = count._asdict()
        changed = self._connection.execute(_counts.update().where(_counts.c.dataset == self.dataset).values(**values))
        if not changed.rowcount:
            self._connection.execute(_counts.insert().values(dataset=self.dataset, **values))
        self.__dict__["count"] = count

    def append(self, kind: str, who: str, purpose: str, content: dict[str, Any], totals: Totals) -> Entry:
        for name, text in (("who", who), ("purpose", purpose)):
            if not isinstance(text, str) or len(text) > 1000 or not is_line(text):
                raise InvalidInput(f"{name} must be one printable line of at most 1000 characters")
        debits = self.debits + (kind == "debit")
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        plain = Entry(self.dataset, self.length + 1, now, kind, who, purpose, content, totals, self.head)
        entry = Entry(**{**vars(plain), "hash": plain.digest()})
        row = {**vars(entry), "content": _canonical(content), "totals": _canonical(_totals_to_dict(totals))}
        self._connection.execute(_entries.insert().values(**row))
        self._connection.execute(
            _ledgers.update().where(_ledgers.c.dataset == self.dataset).values(head=entry.hash, length=entry.number)
        )
        self.head, self.length = entry.hash, entry.number
        self._keep_count(Count(entry.number, entry.hash, debits))
        return entry


class Store:
    """A database that holds ledgers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url, self.shown = database.url, database.shown

    @staticmethod
    def at(url: str) -> Store:
        """The database at ``url``, which must exist."""
        path = sqlite_path(url)
        if path is not None and not path.is_file():
            raise LedgerError(f"there is no ledger at {path}; create one with `epsilearn ledger create`")
        return Store(Database.at(url))

    @staticmethod
    def create(url: str, header: Header, who: str) -> None:
        """Write a new ledger in one transaction."""
        path = sqlite_path(url)
        if path is not None and not path.parent.is_dir():
            raise LedgerError(f"cannot create a ledger in {path.parent}: there is no such folder")
        try:
            if path is not None and not path.exists():
                # An empty file is an empty database. Nothing is ever moved over it: of several creators, whose file it
                # was does not matter, since the database lets one write after the other.
                path.touch()
        except OSError as error:
            raise LedgerError(f"cannot create a ledger at {path}: {error.strerror}") from None
        Store(Database.at(url))._create(header, who)

    def _create(self, header: Header, who: str) -> None:
        with self._database.transaction(write=True) as connection:
            self.create_in(connection, header, who)

    def create_in(self, connection: sa.Connection, header: Header, who: str) -> None:
        """Write a new ledger as part of a transaction on this database: it is there if that ends well."""
        content = {**header.to_dict(), "created": datetime.now(UTC).isoformat(timespec="microseconds"), "who": who}
        wait_for_makers(connection)
        if not sa.inspect(connection).has_table(_versions.name):
            metadata.create_all(connection)
            for statement in _APPEND_ONLY.get(connection.dialect.name, []):
                connection.exec_driver_sql(statement)
            connection.execute(_versions.insert().values(version=_VERSION))
        _check_version(connection)
        taken = _ledgers.select().where(_ledgers.c.dataset == header.dataset)
        if connection.execute(taken).first() is not None:
            raise LedgerError(f"{self.shown} already has a ledger for {header.dataset!r}; budgets are never reset")
        start = _hash(content)
        row = {"dataset": header.dataset, "content": _canonical(content), "hash": start, "head": start, "length": 0}
        connection.execute(_ledgers.insert().values(**row))

    def find(self, dataset: str | None) -> tuple[str, str, Mark]:
        """The name of a data set's ledger, or of the only one, the hash its chain starts from, and how far it goes."""
        with self._database.transaction(write=False) as connection:
            _check_version(connection)
            rows = connection.execute(_ledgers.select().order_by(_ledgers.c.dataset)).all()
            names = [row.dataset for row in rows]
            if dataset is None and len(rows) != 1:
                raise LedgerError(f"{self.shown} holds {len(rows)} ledgers ({', '.join(names)}); name the data set")
            chosen = [row for row in rows if dataset in (None, row.dataset)]
            if not chosen:
                raise LedgerError(f"{self.shown} has no ledger for {dataset!r}; it has: {', '.join(names) or 'none'}")
            book = Book(connection, chosen[0])
            return book.dataset, book.start, book.mark

    @contextmanager
    def writing(self, dataset: str, start: str, seen: Mark) -> Iterator[Book]:
        """The ledger, locked against other writers until the block ends; committed only if it ends well."""
        with self._database.transaction(write=True) as connection:
            yield self._book(connection, dataset, start, seen, _ledgers.select().with_for_update())

    @contextmanager
    def reading(self, dataset: str, start: str, seen: Mark) -> Iterator[Book]:
        """The ledger as of now."""
        with self._database.transaction(write=False) as connection:
            yield self._book(connection, dataset, start, seen, _ledgers.select())

    def _book(self, connection: sa.Connection, dataset: str, start: str, seen: Mark, query: sa.Select[Any]) -> Book:
        _check_version(connection)
        row = connection.execute(query.where(_ledgers.c.dataset == dataset)).first()
        if row is None:
            raise LedgerError(f"{self.shown} has no ledger for {dataset!r} any more")
        if row.hash != start:
            raise TamperedLedger(f"the ledger of {dataset!r} is not the one that was opened: it was replaced")
        book = Book(connection, row)
        _check_seen(book, seen)
        return book


def _check_seen(book: Book, seen: Mark) -> None:
    """Refuse a chain that does not go on from what was seen of it earlier."""
    if book.hash_at(seen.length) == seen.head:
        return
    how = f"has {book.length} entries and had {seen.length}"
    if book.length >= seen.length:
        how = f"has another entry {seen.length} than it had"
    raise TamperedLedger(
        f"the ledger of {book.dataset!r} is not as this handle saw it last: it {how}. An earlier copy was put in its "
        "place, or entries were removed; put the newest copy back. Nothing was spent"
    )


def _check_version(connection: sa.Connection) -> None:
    if not sa.inspect(connection).has_table(_versions.name):
        raise LedgerError("the database holds no ledger; create one with `epsilearn ledger create`")
    version = connection.execute(sa.select(_versions.c.version)).scalar()
    if version != _VERSION:
        raise LedgerError(f"the ledger is of version {version}; this epsilearn reads version {_VERSION}")
