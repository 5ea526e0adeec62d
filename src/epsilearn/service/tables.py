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
from numpy.typing import NDArray

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
    """

    name: str
    file: str
    schema: Schema
    digest: str
    created: str
    who: str

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
        How many bytes a table may take, encoded.
    """

    def __init__(self, database: Database, folder: Path, memory: float) -> None:
        self._database, self._folder, self._memory = database, folder.resolve(), memory
        # The file's state when its digest was last seen to be the registered one.
        self._seen: dict[str, tuple[int, ...]] = {}

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
        digest = _digest(path)
        self._check_new(name, str(path.relative_to(self._folder)), digest)
        schema = self._checked(path, schema)
        if _digest(path) != digest:
            raise Taken("the file was written to while it was read; register it when it is whole")
        self._ledger_for(name, epsilon, delta, rule, schema.rows_per_person, who)
        made = DataSet(name, str(path.relative_to(self._folder)), schema, digest, store.now(), who)
        row = {
            "name": name, "file": made.file, "digest": digest, "public": json.dumps(schema.to_dict()),
            "rows": schema.rows, "created": made.created, "who": who,
        }  # fmt: skip
        with self._database.transaction(write=True) as connection:
            if connection.execute(store.datasets.select().where(store.datasets.c.name == name)).first() is not None:
                raise Taken(f"somebody else has just registered {name!r}")
            connection.execute(store.datasets.insert().values(**row))
        return made

    def _check_new(self, name: str, file: str, digest: str) -> None:
        """The same people have one budget, under one name."""
        for known in self.all():
            if known.name == name:
                raise Taken(f"there is a data set {name!r} already, and budgets are never reset")
            if known.file == file or known.digest == digest:
                raise Taken(f"this table is registered as {known.name!r} already: one table has one budget")

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

    def _ledger_for(
        self, name: str, epsilon: float, delta: float, rule: str | None, rows_per_person: int, who: str
    ) -> None:
        """A ledger for a new name; one that a server made just before it died is taken over if it is the same."""
        try:
            Ledger.create(
                self._database.url, dataset=name, epsilon=epsilon, delta=delta, rule=rule,
                rows_per_person=rows_per_person, who=who,
            )  # fmt: skip
        except LedgerError as error:
            if "already has a ledger" not in str(error):
                raise
            # Nothing has been registered by this name, so nothing was ever released.
            found = Ledger(self._database.url, dataset=name).balance()
            same = (found.epsilon, found.delta, found.rows_per_person) == (epsilon, delta, rows_per_person)
            if found.debits or not same or (rule is not None and found.rule != rule):
                raise Taken(f"there is a ledger for {name!r} already; budgets are never reset") from None

    # ---------------------------------------------------------------------------------------------------- reading

    def ledger(self, dataset: str, who: str) -> Ledger:
        """The one budget of a data set."""
        return Ledger(self._database.url, dataset=dataset, who=who)

    def all(self) -> list[DataSet]:
        with self._database.transaction(write=False) as connection:
            rows = connection.execute(store.datasets.select().order_by(store.datasets.c.name)).all()
        return [_data_set(row) for row in rows]

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


def _data_set(row: Any) -> DataSet:
    schema = Schema.from_dict(json.loads(row.public))
    return DataSet(row.name, row.file, schema, row.digest, row.created, row.who)
