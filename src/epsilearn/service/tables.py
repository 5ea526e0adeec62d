"""Data sets: a file on the server, what is public about it, and one budget for everybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.exc import IntegrityError

from epsilearn.database import Database
from epsilearn.encoding import Encoding, read_rows, read_values
from epsilearn.errors import EpsilearnError, InvalidInput, LedgerError, StateError
from epsilearn.files import TableFile
from epsilearn.ledger import Ledger
from epsilearn.schema import SPARSE_TARGET, Schema
from epsilearn.service import store
from epsilearn.service.keys import check_name, is_name

__all__ = ["DataSet", "NotFound", "Tables", "Taken"]


class NotFound(EpsilearnError):
    """There is no such thing, or none that this key may see."""


class Taken(EpsilearnError):
    """It cannot be done as things stand: a name is taken, something has ended or is not ready."""


@dataclass(frozen=True)
class DataSet:
    """A registered table.

    Attributes
    ----------
    name, file : str
        What it is called, and its file in the server's folder.
    schema : Schema
        What is public, the number of rows included.
    digest : str
        Of the file as it was registered.
    same_as : str or None
        The name under which the same table was registered before, if it was: then this one is not read any more.
    """

    name: str
    file: str
    schema: Schema
    digest: str
    created: str
    who: str
    same_as: str | None = None

    @property
    def rows(self) -> int:
        return self.schema.rows or 0


class Tables:
    """The registered data sets of a server, and their files.

    Parameters
    ----------
    database : Database
        The server's.
    folder : Path
        Where files are; nothing outside is ever opened.
    memory : float
        How many bytes a table may take, encoded, and its kernel values.
    """

    def __init__(self, database: Database, folder: Path, memory: float) -> None:
        self._database, self._folder, self._memory = database, folder.resolve(), memory
        # The file's state when its digest was last seen to be the registered one.
        self._seen: dict[str, tuple[int, ...]] = {}
        # One handle for all callers: an older copy of the database in the place of this one is noticed.
        self._ledgers: dict[str, Ledger] = {}

    # ------------------------------------------------------------------------------------------------ registering

    def files(self) -> list[str]:
        """The names of the files in the folder, hidden ones left out."""
        names = sorted(str(path.relative_to(self._folder)) for path in self._folder.rglob("*"))
        return [name for name in names if self._inside(name) is not None]

    def path(self, name: str) -> Path:
        """A file of the folder by its name; nothing else, however it is spelt."""
        path = self._inside(name)
        if path is None:
            raise InvalidInput("there is no such file in the server's folder of tables; see the list of files")
        return path

    def _inside(self, name: str) -> Path | None:
        try:
            path = (self._folder / name).resolve()
            if not path.is_relative_to(self._folder) or not path.is_file():
                return None
        except (OSError, ValueError, RuntimeError):
            return None
        hidden = any(part.startswith(".") for part in path.relative_to(self._folder).parts)
        return None if hidden else path

    def register(
        self, name: str, file: str, schema: Schema, epsilon: float, delta: float, rule: str | None, who: str
    ) -> DataSet:
        """Read the whole file once against its schema, and give the data set its budget, for good."""
        check_name("a data set's name", name)
        path = self.path(file)
        made = DataSet(name, str(path.relative_to(self._folder)), schema, _digest(path), store.now(), who)
        with self._database.transaction(write=False) as connection:
            self._check_new(connection, made)  # before a long reading; what counts is the look below
        made = replace(made, schema=self._checked(path, schema))
        if _digest(path) != made.digest:
            raise Taken("the file was written to while it was read; register it when it is whole")
        with self._database.transaction(write=True) as connection:
            self._insert(connection, made)
            self._give_budget(connection, made, epsilon, delta, rule)
        return made

    def _insert(self, connection: sa.Connection, made: DataSet) -> None:
        """Write a data set down if nobody has in the meantime; others who register wait for this transaction's end."""
        if self._database.is_postgresql:
            # SQLite's one writer waits by itself.
            connection.execute(sa.text(f"LOCK TABLE {store.datasets.name} IN SHARE ROW EXCLUSIVE MODE"))
        self._check_new(connection, made)
        row = {
            "name": made.name, "file": made.file, "digest": made.digest, "public": json.dumps(made.schema.to_dict()),
            "rows": made.rows, "created": made.created, "who": made.who,
        }  # fmt: skip
        try:
            connection.execute(store.datasets.insert().values(**row))
        except IntegrityError:
            raise Taken("this name or this table is registered already: one table has one budget") from None

    def _check_new(self, connection: sa.Connection, new: DataSet) -> None:
        """The same people have one budget, under one name."""
        for known in _listed(connection):
            if known.name == new.name:
                raise Taken(f"there is a data set {new.name!r} already, and budgets are never reset")
            if known.file == new.file or known.digest == new.digest or self._same_file(known.file, new.file):
                raise Taken(f"this table is registered as {known.name!r} already: one table has one budget")

    def _same_file(self, known: str, new: str) -> bool:
        """Whether two names lead to one file, whatever has been written into it since."""
        try:
            return (self._folder / known).samefile(self._folder / new)
        except OSError:
            return False

    def _give_budget(
        self, connection: sa.Connection, made: DataSet, epsilon: float, delta: float, rule: str | None
    ) -> None:
        """The data set's ledger, in the transaction that registers it: there are both, or neither."""
        try:
            Ledger.create_in(
                self._database, connection, dataset=made.name, epsilon=epsilon, delta=delta, rule=rule,
                rows_per_person=made.schema.rows_per_person, who=made.who,
            )  # fmt: skip
        except LedgerError as error:
            if "already has a ledger" not in str(error):
                raise
            raise Taken(
                f"there is a ledger for {made.name!r} in this database already, and budgets are never reset; choose "
                "another name"
            ) from None

    def _checked(self, path: Path, schema: Schema) -> Schema:
        """The schema of exactly this file's columns and rows, every row of which fits it."""
        file = TableFile.described(path, schema)
        if schema.sparse:
            assert schema.others is not None
            # All of it at once: there is no other way to read such a file, and its targets must fit as well.
            rows = len(read_rows(file, Encoding(schema, SPARSE_TARGET), self._memory)[1])
        else:
            schema = schema.matched(file.names())
            rows = sum(batch.num_rows for batch in self._fitting(file, schema))
        if not rows:
            raise InvalidInput("the file has no rows; there must be at least one")
        if schema.rows not in (None, rows):
            raise InvalidInput(f"the file has {rows:,} rows, and the schema says {schema.rows:,}; mend one of them")
        return replace(schema, rows=rows)

    def _fitting(self, file: TableFile, schema: Schema) -> Iterator[Any]:
        used = [name for name, column in schema.columns.items() if not column.ignored]
        for batch in file.batches(used):
            for name in used:
                read_values(batch[name], schema.columns[name], schema.file, f"column {name!r}")
            yield batch

    # ---------------------------------------------------------------------------------------------------- reading

    def ledger(self, dataset: str, who: str) -> Ledger:
        """The one budget of a data set, by a handle that remembers what this process has seen of it."""
        found = self._ledgers.get(dataset)
        if found is None:
            found = self._ledgers.setdefault(dataset, Ledger.within(self._database, dataset=dataset, who=who))
        return found.by(who)

    def all(self) -> list[DataSet]:
        with self._database.transaction(write=False) as connection:
            return _listed(connection)

    def get(self, name: str) -> DataSet:
        row = None
        if is_name(name):
            with self._database.transaction(write=False) as connection:
                row = connection.execute(store.datasets.select().where(store.datasets.c.name == name)).first()
        if row is None:
            raise NotFound(f"there is no data set {name!r}, or none that this key is for")
        return _data_set(row)

    def encoded(self, dataset: DataSet, target: str) -> tuple[Any, NDArray[Any]]:
        """All rows as numbers, and their targets."""
        with self._unchanged(dataset) as file:
            return read_rows(file, Encoding(dataset.schema, target), self._memory)

    def check_memory(self, size: int) -> None:
        """Refuse, before anything is spent, what would take more than a table may."""
        if size > self._memory:
            raise InvalidInput(
                f"the kernel's values between all rows take {size / 2**30:.3g} GiB of memory, and this server has "
                f"{self._memory / 2**30:.3g} GiB for a table (memory_gib); choose the linear or polynomial kernel, or "
                "open a landmark model"
            )

    def column(self, dataset: DataSet, name: str) -> NDArray[Any]:
        """One column: numbers, or positions among its categories."""
        schema = dataset.schema
        with self._unchanged(dataset) as file:
            parts = [
                read_values(batch[name], schema.columns[name], schema.file, f"column {name!r}")
                for batch in file.batches([name])
            ]
        return np.concatenate(parts)

    @contextmanager
    def _unchanged(self, dataset: DataSet) -> Iterator[TableFile]:
        """The data set's file, which must be the one that was registered, before it is read and after."""
        if dataset.same_as is not None:
            raise Taken(
                f"this table was registered as {dataset.same_as!r} before, and one table has one budget: it is read no "
                f"more for {dataset.name!r}. Ask {dataset.same_as!r}"
            )
        changed = StateError(
            f"the file of {dataset.name!r} is not there, or not the one that was registered; nothing was released. Put "
            "it back as it was, or register the new table under a name and a budget of its own"
        )
        path = self._folder / dataset.file
        try:
            before = _state(path)
            if self._seen.get(dataset.name) != before:
                if _digest(path) != dataset.digest:
                    raise changed
                self._seen[dataset.name] = before
            yield TableFile.described(path, dataset.schema)
            if _state(path) != before:
                raise changed
        except (OSError, InvalidInput):
            # The rows were found in order, and few enough, once; whatever is wrong now, its text could speak of them.
            raise changed from None


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(connection: sa.Connection) -> list[DataSet]:
    return [_data_set(row) for row in connection.execute(store.datasets.select().order_by(store.datasets.c.name))]


def _data_set(row: Any) -> DataSet:
    schema = Schema.from_dict(json.loads(row.public))
    return DataSet(row.name, row.file, schema, row.digest, row.created, row.who, row.same_as)
