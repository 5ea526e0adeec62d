"""From the columns of a table to numbers inside public bounds, by the schema alone.

Every column becomes one number between -1 and 1, or one number for each category of which exactly one is 1. What a
schema does not allow is an error that names the column and quotes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.columns import as_numbers, numbers_in
from epsilearn.errors import InvalidInput
from epsilearn.files import TableFile
from epsilearn.preprocessing import BoundedScaler
from epsilearn.quiet import quietly
from epsilearn.schema import SPARSE_TARGET, FileFormat, Schema
from epsilearn.schema_columns import Column, one_line

__all__ = ["Encoding", "as_numbered", "as_table", "encoded", "read_rows"]

Array = NDArray[np.float64]
_BYTES = {False: 8, True: 12}  # of one entry, in a dense and a sparse matrix


class _Numbers(Sequence[str]):
    """The names of numbered columns, of which there may be millions: each made when it is asked for."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return _Numbers(self._numbers[place]) if isinstance(place, slice) else str(self._numbers[place])


@dataclass(frozen=True)
class Encoding:
    """How a table with this schema becomes a matrix, for a model of this target.

    Parameters
    ----------
    schema : Schema
        With every column of the table.
    target : str
        The column to be predicted.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from epsilearn.schema import Schema
    >>> columns = {"age": {"bounds": [0, 100]}, "ward": {"categories": ["a", "b"]}, "days": {"bounds": [0, 30]}}
    >>> encoding = Encoding(Schema.from_dict({"version": 1, "columns": columns}), "days")
    >>> encoding.names
    ['age', 'ward = a', 'ward = b']
    >>> encoding.matrix(pa.table({"age": [75, 120], "ward": ["a", "b"]})).round(6).tolist()
    [[0.5, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    schema: Schema
    target: str

    @property
    def names(self) -> Sequence[str]:
        """What each number of a row stands for."""
        others = self.schema.others
        if others is not None and others.count is not None:
            return _Numbers(range(others.first, others.first + others.count))
        names = []
        for name in self.schema.features(self.target):
            categories = self.schema.columns[name].categories
            names += [name] if categories is None else [f"{name} = {_shown(value)}" for value in categories]
        return names

    @property
    def sparse(self) -> bool:
        """Whether the matrix is sparse: where most of its entries are zero for certain."""
        return self.schema.sparse or self.schema.width(self.target) > 2 * len(self.schema.features(self.target))

    @property
    def bytes_per_row(self) -> int:
        """What a row takes in memory; for libsvm files, whose rows differ, nothing is known."""
        entries = len(self.schema.features(self.target)) if self.sparse else self.schema.width(self.target)
        return _BYTES[self.sparse] * entries + 16

    @quietly()
    def matrix(self, table: Any) -> Any:
        """The features of an Arrow table, or of a sparse matrix for a schema whose columns are numbered."""
        if self.schema.sparse:
            return self._numbered(table)
        import pyarrow as pa

        names = self.schema.features(self.target)
        public = {name: self.schema.columns[name] for name in names}
        columns = {name: self._column(table, name) for name in names}
        scaler = BoundedScaler(
            bounds={name: column.bounds for name, column in public.items() if column.bounds is not None},
            categories={name: range(column.width) for name, column in public.items() if column.categories is not None},
            norm=math.sqrt(len(names)),
            sparse_output=self.sparse,
        )
        found = pa.table(columns)
        # Nothing is learned from rows, and these have been checked: one will do.
        return scaler.fit(found.slice(0, 1)).transform(found)

    @quietly()
    def targets(self, table: Any) -> NDArray[Any]:
        """The target of each row: a number, or the position of its class."""
        return self._column(table, self.target)

    def block(self, table: Any) -> tuple[Any, NDArray[Any]]:
        """Features and targets of some rows."""
        found = as_table(table)
        return self.matrix(found), self.targets(found)

    def class_values(self) -> NDArray[Any] | None:
        """The classes of the target, in the schema's order; None if it is a number."""
        categories = self.schema.columns[self.target].categories
        return None if categories is None else np.array(categories)

    def _column(self, table: Any, name: str) -> NDArray[Any]:
        if name not in table.column_names:
            raise InvalidInput(f"the table has no column {one_line(name)}, which the model needs")
        if table.column_names.count(name) > 1:
            raise InvalidInput(f"the table has several columns called {one_line(name)}; names must differ")
        return read_values(table[name], self.schema.columns[name], self.schema.file, f"column {one_line(name)}")

    def _numbered(self, X: Any) -> Any:
        """Entries inside their bounds and divided by the larger one; 0 stays 0."""
        assert self.schema.others is not None
        low, high = self.schema.others.bounds
        X = sparse.csr_array(X, dtype=np.float64, copy=True)
        if X.shape[1] != self.schema.others.count:
            raise InvalidInput(f"the rows have {X.shape[1]} columns, and the schema says {self.schema.others.count}")
        X.sum_duplicates()
        if not np.isfinite(X.data).all():
            raise InvalidInput("the rows have missing, NaN or infinite values; fill them by a public rule")
        X.data = np.clip(X.data, low, high) / max(abs(low), abs(high))
        return X


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_values(column: Any, specification: Column, written: FileFormat, label: str) -> NDArray[Any]:
    """An Arrow column as numbers, or as positions among its categories; an error says what to do, and no value."""
    import pyarrow as pa

    if not _is_sound(column):
        raise InvalidInput(f"{label} is damaged: it holds texts that are not UTF-8, or points outside its dictionary")
    column = _plain(column, written)
    categories = specification.categories
    if categories is None:
        numbers = _filled(_numbers(column, label), specification.missing, label)
        return as_numbers(numbers, label)
    single = pa.types.is_float32(column.type)
    if isinstance(categories[0], bool):
        column, kind = _booleans(column, label), pa.bool_()
    elif isinstance(categories[0], str):
        column, kind = _texts(column, specification.aliases, label), pa.string()
    else:
        column, kind = _numbers(column, label), pa.float64()
    values = pa.array(categories, kind)
    if single and kind == pa.float64():
        # In the column's own precision, in which 0.1 is another number.
        values = values.cast(pa.float32()).cast(pa.float64())
    return _positions(_filled(column, specification.missing, label), specification, values, label)


def _is_sound(column: Any) -> bool:
    """Whether what a file says of its own bytes is true, which readers do not check."""
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid:  # whose text may quote a value
        return False
    return True


def _plain(column: Any, written: FileFormat) -> Any:
    """Without dictionaries, and null where a text means that nothing is known."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if str(column.type) in ("large_string", "string_view"):
        column = column.cast(pa.string())
    if not pa.types.is_string(column.type):
        return column
    if written.strip:
        column = compute.utf8_trim_whitespace(column)
    unknown = compute.is_in(column, pa.array(written.missing, pa.string()))
    return compute.if_else(unknown, pa.scalar(None, pa.string()), column)


def _numbers(column: Any, label: str) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_string(column.type):
        found = numbers_in(column)
        if found is None:
            raise InvalidInput(
                f"{label} holds something that is not a number; mend it, name it in the schema's [file] missing if it "
                "means that nothing is known, or declare categories"
            )
    elif _is_number(column.type) or pa.types.is_boolean(column.type):
        found = column.cast(pa.float64(), safe=False)
    elif pa.types.is_null(column.type):
        found = column.cast(pa.float64())
    else:
        raise InvalidInput(f"{label} is of type {column.type}, which is neither number nor text; convert it first")
    return compute.if_else(compute.is_nan(found), pa.scalar(None, pa.float64()), found)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _texts(column: Any, aliases: dict[str, str], label: str) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_string(column.type):
        if not (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type) or pa.types.is_null(column.type)):
            raise InvalidInput(f"{label} is of type {column.type}, and its categories are texts; convert it first")
        column = column.cast(pa.string())
    if not aliases:
        return column
    which = compute.index_in(column, pa.array(aliases, pa.string()))
    return compute.coalesce(pa.chunked_array(pa.array(list(aliases.values()), pa.string()).take(which)), column)


def _booleans(column: Any, label: str) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.bool_())
    if pa.types.is_string(column.type):
        words = compute.utf8_lower(column)
        yes, no = compute.equal(words, "true"), compute.equal(words, "false")
        if compute.all(compute.or_(yes, no)).as_py() is not False:
            return yes
    raise InvalidInput(f"{label} has booleans for categories and holds something other than true and false")


def _filled(column: Any, missing: Any, label: str) -> Any:
    if not column.null_count:
        return column
    if missing is None:
        raise InvalidInput(
            f"{label} has missing values; say in the schema what stands for them (missing = ...), without looking at "
            "the data"
        )
    return column.fill_null(missing)


def _positions(column: Any, specification: Column, values: Any, label: str) -> NDArray[np.int64]:
    """Where each value stands among the categories."""
    import pyarrow as pa
    from pyarrow import compute

    assert specification.categories is not None
    if values.type == pa.float64():
        # Arrow tells 0.0 from -0.0.
        column, values = compute.add(column, 0.0), compute.add(values, 0.0)
    found = compute.index_in(column, values)
    if found.null_count and specification.other is not None:
        found = found.fill_null(specification.categories.index(specification.other))
    if found.null_count:
        raise InvalidInput(
            f"{label} has a value that is not among its categories; list every category, or say which one stands for "
            "the others (other = ...)"
        )
    return np.asarray(found.to_numpy()).astype(np.int64)


def read_rows(
    file: TableFile,
    encoding: Encoding,
    memory: float,
    progress: Callable[[int], None] | None = None,
    extra: int = 0,
) -> tuple[Any, NDArray[Any]]:
    """All rows of a file as a matrix and their targets, never holding more of the file than a few thousand rows.

    ``memory`` is how many bytes the matrix may take; a larger table is refused, and the error says how large is too
    large. ``progress`` is told how many rows have been read. ``extra`` bytes a row are needed later.
    """
    schema = encoding.schema
    if schema.sparse:
        _check_sparse_size(file, memory)
    size = encoding.bytes_per_row + extra
    _check_rows(file, encoding, schema.rows or file.rows() or 0, size, memory)
    rows, blocks = 0, []
    for X, y in encoded(file, encoding):
        rows += len(y)
        _check_rows(file, encoding, rows, size, memory)
        blocks.append((X, y))
        if progress is not None:
            progress(rows)
    if schema.rows is not None and rows != schema.rows:
        raise InvalidInput(f"{file.path.name} has {rows:,} rows, and the schema says {schema.rows:,}; mend one of them")
    parts, targets = [X for X, _ in blocks], np.concatenate([y for _, y in blocks])
    return (sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)), targets


def encoded(file: TableFile, encoding: Encoding, targets: bool = True) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Encoded rows of a file, a few thousand at a time, and their targets; without these where nobody asks for them."""
    found = False
    for rows, table in _raw(file, encoding, targets):
        found = True
        yield encoding.matrix(rows), encoding.targets(table) if targets else np.zeros(0)
    if not found:
        raise InvalidInput(f"{file.path.name} has no rows; there must be at least one")


def _raw(file: TableFile, encoding: Encoding, targets: bool) -> Iterator[tuple[Any, Any]]:
    """What holds the features of some rows, and what holds their targets."""
    import pyarrow as pa

    schema = encoding.schema
    if schema.sparse:
        assert schema.others is not None
        assert schema.others.count is not None
        X, y = file.sparse_rows(schema.others.count, schema.others.first)
        if X.shape[0]:
            yield X, pa.table({SPARSE_TARGET: y})
        return
    columns = [*schema.features(encoding.target), *([encoding.target] if targets else [])]
    for table in file.batches(columns):
        if table.num_rows:
            yield table, table


def _check_sparse_size(file: TableFile, memory: float) -> None:
    if (size := file.sparse_size()) > memory:
        raise InvalidInput(
            f"{file.path.name} is too large: its rows take {size / 2**30:.3g} GiB in memory, and "
            f"{memory / 2**30:.3g} are allowed; allow more, or split the file"
        )


def _check_rows(file: TableFile, encoding: Encoding, rows: int, size: int, memory: float) -> None:
    """Refuse more rows of this size than fit; a libsvm file's rows differ, and it was looked at as a whole."""
    most = int(memory / size)
    if not encoding.schema.sparse and rows > most:
        raise InvalidInput(
            f"{file.path.name} is too large: with this schema and model a row takes {size} bytes, so more than "
            f"{most:,} rows need more than the {memory / 2**30:.3g} GiB allowed; allow more memory, or ignore columns"
        )


def as_table(data: Any) -> Any:
    """A data frame, an Arrow table or a dict of columns as an Arrow table."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    fault = isinstance(data, (str, bytes)) or not (
        isinstance(data, (dict, pa.RecordBatch)) or hasattr(data, "__arrow_c_stream__") or hasattr(data, "columns")
    )
    table = None
    if not fault:
        try:
            frame = hasattr(data, "iloc")
            table = pa.Table.from_pandas(data, preserve_index=False) if frame else pa.table(data)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # whose text may quote a value
            table = None
    if table is None:
        raise InvalidInput(
            "expected a table: a data frame, an Arrow table, or a dict from names to columns of equal length, each of "
            "one type"
        )
    return table


def as_numbered(data: Any) -> Any:
    """A matrix of numbers, sparse or not, for a schema whose columns are numbered."""
    found = data if sparse.issparse(data) else np.asarray(data)
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        raise InvalidInput("expected a matrix of numbers, sparse or not, with the columns that the schema counts")
    return found
