"""Live sessions in the server's database: written down before an answer leaves, by whichever process answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from epsilearn.database import Database
from epsilearn.errors import StateError
from epsilearn.mechanisms.session import JournalEntry
from epsilearn.service import store
from epsilearn.session_file import SessionStore

__all__ = ["DatabaseSession"]


class DatabaseSession(SessionStore):
    """A session by its name. Writers of one session wait for each other, in any process, by a lock on its row.

    Opening one takes minutes and a debit in the same database, so it holds no lock: whoever opens must be the only one
    who does.

    Parameters
    ----------
    database : Database
        The server's.
    name : str
        The session's.
    begun : bool
        Whether it was opened and paid for earlier: then it must be there.
    """

    def __init__(self, database: Database, name: str, *, begun: bool = False) -> None:
        self.name, self._begun = name, begun
        self._database = database
        self._connection: sa.Connection | None = None
        self._pending: dict[str, bytes] = {}

    @contextmanager
    def opening(self) -> Iterator[None]:
        self._pending = {}
        if self._begun and self.read("version") is None:
            raise StateError(
                "what was answered in this session is not in the database any more; a new one would answer otherwise. "
                "Restore the database, or open a new release, which costs its budget again"
            )
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._database.transaction(write=True) as connection:
            mine = sa.select(store.sessions).where(store.sessions.c.session == self.name).with_for_update()
            if connection.execute(mine).first() is None:
                raise StateError(f"there is no session {self.name}; it was never opened")
            self._connection = connection
            try:
                yield
            finally:
                self._connection = None

    def commit(self) -> None:
        """Write down what a session begins with, all at once; refuses if it has begun already."""
        pending, self._pending = self._pending, {}
        with self._database.transaction(write=True) as connection:
            mine = sa.select(store.sessions).where(store.sessions.c.session == self.name)
            if connection.execute(mine).first() is not None:
                raise StateError(f"session {self.name} has been opened already")
            connection.execute(store.sessions.insert().values(session=self.name))
            rows = [{"session": self.name, "name": name, "content": content} for name, content in pending.items()]
            connection.execute(store.values.insert(), rows)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        if self._connection is not None:
            yield self._connection
            return
        with self._database.transaction(write=False) as connection:
            yield connection

    def read(self, name: str) -> bytes | None:
        if name in self._pending:
            return self._pending[name]
        mine = (store.values.c.session == self.name) & (store.values.c.name == name)
        with self._reading() as connection:
            found = connection.execute(sa.select(store.values.c.content).where(mine)).scalar()
        return None if found is None else bytes(found)

    def write(self, name: str, content: bytes) -> None:
        if self._connection is None:
            self._pending[name] = content
            return
        mine = (store.values.c.session == self.name) & (store.values.c.name == name)
        self._connection.execute(store.values.update().where(mine).values(content=content))

    def count(self) -> int:
        mine = sa.select(sa.func.count()).where(store.answers.c.session == self.name)
        with self._reading() as connection:
            return int(connection.execute(mine).scalar() or 0)

    def entries(self, start: int) -> list[JournalEntry]:
        table = store.answers
        mine = (table.c.session == self.name) & (table.c.number >= start)
        query = sa.select(table.c.point, table.c.answer, table.c.detail).where(mine).order_by(table.c.number)
        with self._reading() as connection:
            return [JournalEntry(bytes(p), a, bytes(d)) for p, a, d in connection.execute(query)]

    def digits(self) -> list[tuple[int, int]]:
        table = store.digits
        query = sa.select(table.c.digits, table.c.known).where(table.c.session == self.name).order_by(table.c.number)
        with self._reading() as connection:
            return [(int(digits, 16), known) for digits, known in connection.execute(query)]

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        assert self._connection is not None
        start = self.count()
        rows = [
            {
                "session": self.name,
                "number": start + i,
                "known": hashlib.sha256(entry.code).digest(),
                "point": entry.code,
                "answer": entry.answer,
                "detail": entry.detail,
            }
            for i, entry in enumerate(entries)
        ]
        if rows:
            self._connection.execute(store.answers.insert(), rows)
        if digits:
            table = store.digits
            mine = (table.c.session == self.name) & table.c.number.in_(list(digits))
            self._connection.execute(table.delete().where(mine))
            written = [
                {"session": self.name, "number": number, "known": known, "digits": f"{prefix:x}"}
                for number, (prefix, known) in digits.items()
            ]
            self._connection.execute(table.insert(), written)
        self.write("changes", str(self.changes + 1).encode())
