"""A live session on disk: its promise, its points and its noise, written down before an answer leaves.

The file is as private as the records are: whoever has the noise can take it off the answers. It is made readable by its
owner alone. An older copy must never be put in its place, since points answered after the copy would get new noise.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from epsilearn.errors import StateError
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.session import JournalEntry

__all__ = ["SessionFile", "SessionStore"]

_VERSION = "2"
_PATIENCE = 600.0  # seconds to wait for another process's answer, or for its fit
_TABLES = (
    "CREATE TABLE IF NOT EXISTS session (name TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY, point BLOB UNIQUE NOT NULL, answer REAL NOT NULL, "
    "detail BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS normals (number INTEGER PRIMARY KEY, known INTEGER NOT NULL, digits TEXT NOT NULL)",
)


class SessionStore(ABC):
    """Where a live session is kept: its promise, what it is about, and its journal.

    Whoever keeps sessions says how things are read and written; what is written when is decided here.
    """

    name: str

    @abstractmethod
    def opening(self) -> AbstractContextManager[None]:
        """One opener at a time: nobody else begins this session until the block ends."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """One writer of this session at a time, in any process."""

    @abstractmethod
    def commit(self) -> None:
        """Make what was written so far stand, for whoever must know that it does before the block ends."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Something that was written down by this name."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write something down by a name."""

    @property
    def changes(self) -> int:
        return int(self.read("changes") or b"0")

    @abstractmethod
    def count(self) -> int:
        """How many points there are."""

    @abstractmethod
    def entries(self, start: int, count: int | None = None) -> list[JournalEntry]:
        """Points from the given number on, in order: all, or so many."""

    def reserve(self, size: int) -> None:
        """Told how many bytes the session will hold in memory, before anything is drawn; raises if that is too much."""
        del size  # here nobody counts

    @abstractmethod
    def digits(self) -> list[tuple[int, int]]:
        """The random digits of each variate, and how many they are."""

    @abstractmethod
    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        """Write down new points, and the variates that are new or known more finely: all of it, or nothing."""

    def begin(self, plan: str, records: Iterable[bytes], promise: Guarantee) -> None:
        """Write down what the session promises, and what it is about."""
        salt = secrets.token_bytes(32)
        for name, content in {
            "version": _VERSION.encode(),
            "plan": plan.encode(),
            "salt": salt,
            "records": _fingerprint(salt, records),
            "promise": promise.to_json().encode(),
            "changes": b"0",
        }.items():
            self.write(name, content)

    def resume(self, plan: str, records: Iterable[bytes]) -> Guarantee | None:
        """The promise of a session begun earlier, None if there is none; refuses one about anything else."""
        version = self.read("version")
        if version is None:
            return None
        if version != _VERSION.encode():
            raise StateError(f"{self.name} is a session of another version; open a new one with a new file")
        if self.read("plan") != plan.encode():
            raise StateError(
                f"{self.name} is a session with other settings or another number of records; use the same ones, "
                "or open a new session with a new file, which costs its budget again"
            )
        if not hmac.compare_digest(self.read("records") or b"", _fingerprint(self.read("salt") or b"", records)):
            raise StateError(
                f"{self.name} is a session about other records: the same noise on both would give away how they "
                "differ. Use the same records in the same order, or open a new session with a new file"
            )
        return Guarantee.from_json((self.read("promise") or b"").decode())


class SessionFile(SessionStore):
    """A session's journal in a SQLite file, shared by any number of processes on one machine.

    Parameters
    ----------
    path : str or Path
        The file; made if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> from epsilearn import Guarantee
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = SessionFile(folder.name + "/session.db")
    >>> with file.writing():
    ...     file.begin("rbf, n = 10", [b"private", b"records"], Guarantee.pure(1.0))
    >>> again = SessionFile(folder.name + "/session.db")
    >>> with again.writing():
    ...     print(again.resume("rbf, n = 10", [b"private", b"records"]))
    epsilon = 1, per record, replace-one
    >>> file.close(), again.close(), folder.cleanup()
    (None, None, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = self.path.name
        try:
            # Made before SQLite would make it, so that nobody else can ever read it.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._file = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            # An answer leaves only when what it rests on is on the disk, whatever happens to the machine next.
            self._file.execute("PRAGMA synchronous = EXTRA")
        except (OSError, sqlite3.Error):
            raise self._broken() from None

    def opening(self) -> AbstractContextManager[None]:
        return self.writing()

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            # Inside: an interruption while waiting for the lock arrives when it has been given.
            self._file.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                self._file.execute(statement)
            yield
            self.commit()
        except BaseException as error:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._broken() from None
            raise

    def commit(self) -> None:
        if self._file.in_transaction:
            self._file.execute("COMMIT")

    def read(self, name: str) -> bytes | None:
        found = self._file.execute("SELECT content FROM session WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def write(self, name: str, content: bytes) -> None:
        self._file.execute("INSERT OR REPLACE INTO session VALUES (?, ?)", (name, content))

    def count(self) -> int:
        return int(self._file.execute("SELECT COUNT(*) FROM answers").fetchone()[0])

    def entries(self, start: int, count: int | None = None) -> list[JournalEntry]:
        found = self._file.execute(
            "SELECT point, answer, detail FROM answers WHERE number >= ? ORDER BY number LIMIT ?",
            (start, -1 if count is None else count),
        )
        return [JournalEntry(bytes(point), answer, bytes(detail)) for point, answer, detail in found]

    def digits(self) -> list[tuple[int, int]]:
        found = self._file.execute("SELECT digits, known FROM normals ORDER BY number")
        return [(int(digits, 16), known) for digits, known in found]

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        start = self.count()
        self._file.executemany(
            "INSERT INTO answers VALUES (?, ?, ?, ?)",
            [(start + i, entry.code, entry.answer, entry.detail) for i, entry in enumerate(entries)],
        )
        self._file.executemany(
            "INSERT OR REPLACE INTO normals VALUES (?, ?, ?)",
            [(number, known, f"{prefix:x}") for number, (prefix, known) in digits.items()],
        )
        self.write("changes", str(self.changes + 1).encode())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _broken(self) -> StateError:
        return StateError(
            f"{self.name} cannot be used as a session: it is missing its folder, locked, full, read-only or no "
            "session file. Nothing was answered"
        )


def _fingerprint(salt: bytes, records: Iterable[bytes]) -> bytes:
    """A keyed digest of the records, each with its length before it."""
    digest = hmac.new(salt, digestmod=hashlib.sha256)
    for record in records:
        digest.update(len(record).to_bytes(8, "little"))
        digest.update(record)
    return digest.digest()
