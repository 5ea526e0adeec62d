"""Blocks of a table as Arrow has them, into features and targets as they are. Errors quote no value."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.errors import InvalidInput
from epsilearn.rows.passes import interleave

__all__ = ["Columns", "as_arrow", "stretch", "stretches"]

_kept = threading.local()
_MOST_ROWS, _LEAST_ROWS, _BYTES = 1 << 14, 1 << 9, 1 << 24


def stretch(columns: int) -> int:
    """How many rows are worked on at a time: enough to be worth a call, and 16 MiB at most if they can be."""
    return max(_LEAST_ROWS, min(_MOST_ROWS, _BYTES // (8 * columns)))


@dataclass(frozen=True)
class Columns:
    """Which columns are features, in this order, and which is the target.

    Examples
    --------
    >>> import pyarrow as pa
    >>> features, target = Columns(("b", "a"), "y")(pa.table({"a": [1, 2], "b": [0.5, 1.5], "y": ["no", "yes"]}))
    >>> features.tolist(), target.tolist()
    ([[0.5, 1.0], [1.5, 2.0]], ['no', 'yes'])
    """

    names: tuple[str, ...]
    target: str

    def __call__(self, block: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        table = as_arrow(block)
        found = table.column_names
        columns = [_numbers(_plain(table, found, name), name) for name in self.names]
        kind = np.float32 if all(column.dtype == np.float32 for column in columns) else np.float64
        features = np.empty((table.num_rows, len(columns)), kind)
        interleave(_stacked(columns, kind), features)
        return features, _labels(_plain(table, found, self.target))


def as_arrow(block: Any) -> Any:
    """An Arrow table, a record batch or a pandas frame as an Arrow table."""
    import pyarrow as pa

    if isinstance(block, pa.RecordBatch):
        return pa.Table.from_batches([block])
    if isinstance(block, pa.Table):
        return block
    try:
        return pa.Table.from_pandas(block, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # whose text may quote a value
        pass
    # Raised out here: the error that was caught would be carried along.
    raise InvalidInput("some column holds things of several kinds; convert it to one type first")


def stretches(block: Any) -> Iterator[Any]:
    """A block in stretches of some thousand rows: a table or a frame, or features and targets as arrays."""
    if isinstance(block, tuple):
        features, targets = block
        rows = stretch(features.shape[1] if features.ndim == 2 else 1)
        for start in range(0, max(len(targets), features.shape[0]), rows):
            yield features[start : start + rows], targets[start : start + rows]
        return
    table = as_arrow(block)
    rows = stretch(table.num_columns)
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _stacked(columns: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    """The columns one after the other, in memory that each thread keeps: fresh memory takes longer than the copy."""
    shape = len(columns), len(columns[0])
    if getattr(_kept, "columns", np.empty(0)).size < shape[0] * shape[1]:
        _kept.columns = np.empty(shape[0] * shape[1])
    room: NDArray[Any] = _kept.columns.view(kind)[: shape[0] * shape[1]].reshape(shape)
    return np.stack(columns, out=room)


def _plain(table: Any, names: list[str], name: str) -> Any:
    """A column in one piece, without a dictionary and without gaps."""
    import pyarrow as pa

    if names.count(name) != 1:
        raise InvalidInput(f"there are {names.count(name)} columns called {name!r}, and there must be one")
    column = table[name]
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise InvalidInput(f"column {name!r} has missing values; drop or fill them by a rule that looks at no data")
    return column


def _numbers(column: Any, name: str) -> NDArray[Any]:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        # Not its type, which may have been made of values.
        raise InvalidInput(
            f"column {name!r} does not hold numbers, and features must be numbers; describe the table by a schema, or "
            "encode it by a public rule"
        )
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def _labels(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        found = found.astype(str)
    return found
