"""Live sessions in the server's database: written down before an answer leaves, by whichever process answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from epsilearn.database import Database
from epsilearn.errors import StateError
from epsilearn.mechanisms.session import JournalEntry
from epsilearn.service import store
from epsilearn.session_file import SessionStore

__all__ = ["DatabaseSession"]

_MOST_NUMBERS = 10_000  # in one statement


class DatabaseSession(SessionStore):
    """A session by its name. Its writers wait for each other, in any process, by a lock that nobody else waits for.

    Noise is drawn under that lock, and outside of any transaction; it is written down by a short one, which finds the
    session as it was when the lock was taken, or refuses. So what is drawn is thrown away only where a lock was lost,
    never for how long it took.

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
    reserve : callable, optional
        Told how many bytes the session will hold in memory; raises if they are too many.
    private : callable, optional
        Whether an answer came from the private model: such are counted.
    wait : callable, optional
        Waits until answers that were found may be written down, which others can see: see `epsilearn.service.pace`.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        begun: bool = False,
        reserve: Callable[[int], None] | None = None,
        private: Callable[[JournalEntry], bool] | None = None,
        wait: Callable[[], None] | None = None,
    ) -> None:
        self.name, self._begun = name, begun
        self._reserve, self._private, self._wait = reserve, private, wait
        self._database = database
        self._version: int | None = None  # of the session as its writer knows it
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
        with self._database.lock(f"session {self.name}"):
            found = self.read("changes")
            if found is None:
                raise StateError(f"there is no session {self.name}; it was never opened")
            self._version = int(found)
            try:
                yield
            finally:
                self._version = None

    def reserve(self, size: int) -> None:
        if self._reserve is not None:
            self._reserve(size)

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

    def read(self, name: str) -> bytes | None:
        if name in self._pending:
            return self._pending[name]
        with self._database.transaction(write=False) as connection:
            return self._value(connection, name)

    def _value(self, connection: sa.Connection, name: str) -> bytes | None:
        mine = (store.values.c.session == self.name) & (store.values.c.name == name)
        found = connection.execute(sa.select(store.values.c.content).where(mine)).scalar()
        return None if found is None else bytes(found)

    def write(self, name: str, content: bytes) -> None:
        self._pending[name] = content

    @property
    def changes(self) -> int:
        # A writer goes by what it has read: whoever else wrote since, its own next words are then refused.
        return super().changes if self._version is None else self._version

    def count(self) -> int:
        with self._database.transaction(write=False) as connection:
            return self._count(connection)

    def private_count(self) -> int:
        """How many answers came from the private model."""
        mine = sa.select(store.sessions.c.private).where(store.sessions.c.session == self.name)
        with self._database.transaction(write=False) as connection:
            return int(connection.execute(mine).scalar() or 0)

    def _count(self, connection: sa.Connection) -> int:
        # They are numbered from 0 on, and none is ever removed.
        last = sa.select(sa.func.max(store.answers.c.number)).where(store.answers.c.session == self.name)
        found = connection.execute(last).scalar()
        return 0 if found is None else int(found) + 1

    def entries(self, start: int, count: int | None = None) -> list[JournalEntry]:
        table = store.answers
        mine = (table.c.session == self.name) & (table.c.number >= start)
        query = sa.select(table.c.point, table.c.answer, table.c.detail).where(mine).order_by(table.c.number)
        with self._database.transaction(write=False) as connection:
            return [JournalEntry(bytes(p), a, bytes(d)) for p, a, d in connection.execute(query.limit(count))]

    def digits(self) -> list[tuple[int, int]]:
        table = store.digits
        query = sa.select(table.c.digits, table.c.known).where(table.c.session == self.name).order_by(table.c.number)
        with self._database.transaction(write=False) as connection:
            return [(int(digits, 16), known) for digits, known in connection.execute(query)]

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        assert self._version is not None, "only inside `writing`"
        if self._wait is not None:
            # Before the transaction: everybody sees how many answers there are, and that SQLite's one writer writes.
            self._wait()
        with self._database.transaction(write=True) as connection:
            self._check_version(connection)
            start = self._count(connection)
            if entries:
                connection.execute(store.answers.insert(), [self._row(start + i, e) for i, e in enumerate(entries)])
            if self._private is not None:
                self._count_private(connection, sum(map(self._private, entries)))
            if digits:
                self._write_digits(connection, digits)
            changed = store.values.update().where(store.values.c.session == self.name, store.values.c.name == "changes")
            connection.execute(changed.values(content=str(self._version + 1).encode()))
        self._version += 1

    def _check_version(self, connection: sa.Connection) -> None:
        """Refuse what was drawn if anybody else has written in the meantime: then a lock was lost."""
        connection.execute(sa.select(store.sessions).where(store.sessions.c.session == self.name).with_for_update())
        if int(self._value(connection, "changes") or -1) != self._version:
            raise StateError("another process has answered in this session at the same time; nothing was. Ask again")

    def _count_private(self, connection: sa.Connection, more: int) -> None:
        private, mine = store.sessions.c.private, store.sessions.c.session == self.name
        connection.execute(store.sessions.update().where(mine).values(private=private + more))

    def _row(self, number: int, entry: JournalEntry) -> dict[str, object]:
        known = hashlib.sha256(entry.code).digest()
        return {
            "session": self.name, "number": number, "known": known, "point": entry.code, "answer": entry.answer,
            "detail": entry.detail,
        }  # fmt: skip

    def _write_digits(self, connection: sa.Connection, digits: dict[int, tuple[int, int]]) -> None:
        table, numbers = store.digits, list(digits)
        for start in range(0, len(numbers), _MOST_NUMBERS):
            here = table.c.number.in_(numbers[start : start + _MOST_NUMBERS])
            connection.execute(table.delete().where(table.c.session == self.name, here))
        rows = [
            {"session": self.name, "number": number, "known": known, "digits": f"{prefix:x}"}
            for number, (prefix, known) in digits.items()
        ]
        connection.execute(table.insert(), rows)
