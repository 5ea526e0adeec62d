"""Settings that are the private table itself, or lie in its memory: told by identity, never by comparing contents.

A comparison of contents would be an oracle: whoever chooses the settings could ask what the table holds. So a copy of
the table cannot be told from public points, and is the user's own word.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.exceptions import TooHardError
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.errors import InvalidInput
from epsilearn.reach import reachable

__all__ = ["check_apart"]

_MOST_WORK = 10_000  # beyond which two entangled views are taken to meet


def check_apart(settings: Any, X: Any, y: Any = None) -> None:
    """Refuse settings that hold the private table, or a part or view of it, wherever they hold it.

    Parameters
    ----------
    settings : object
        An estimator, a grid, or a tuple of such; looked at before anything is copied.
    X, y : object
        The private rows and targets as they were given.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import LandmarkClassifier
    >>> X = np.zeros((10, 2))
    >>> check_apart(LandmarkClassifier(landmarks=X[:3]), X)
    Traceback (most recent call last):
    epsilearn.errors.InvalidInput: a setting of LandmarkClassifier is the private table, or a part or view of it...
    """
    held = [item for item in reachable(settings, fitted=False) if item is not settings and not callable(item)]
    if held and (_same_objects(held, X, y) or _same_memory(held, (X, y))):
        owners = settings if isinstance(settings, tuple) else (settings,)
        raise InvalidInput(
            f"a setting of {type(owners[0]).__name__} is the private table, or a part or view of it; landmarks, public "
            "points, candidates and the like become part of what is released, so they must be public and not records: "
            "draw or choose them without looking at the table"
        )


def _same_objects(held: list[Any], X: Any, y: Any) -> bool:
    """Whether something held is the table, or one of its rows where those are objects of their own."""
    private = {id(item) for item in (X, y) if _tells(item)}
    # Not of y: its elements are labels, which `classes` names as well.
    if isinstance(X, (list, tuple, dict)) or (isinstance(X, np.ndarray) and X.dtype == object):
        rows: Iterable[Any] = X.values() if isinstance(X, dict) else X.flat if isinstance(X, np.ndarray) else X
        private.update(id(row) for row in rows if _tells(row))
    return any(id(item) in private for item in held)


def _tells(item: Any) -> bool:
    """Whether it means anything that two objects are the same one: not for numbers, texts, or what is empty."""
    return not isinstance(item, (tuple, frozenset)) or len(item) > 0


def _same_memory(held: list[Any], private: tuple[Any, ...]) -> bool:
    public = [array for item in held for array in _arrays(item)]
    if not public:
        return False
    # A list's rows may be arrays of their own.
    parts = (part for item in private for part in (item, *(item if isinstance(item, (list, tuple)) else ())))
    mine = [array for part in parts for array in _arrays(part)]
    if not mine:
        return False
    if _files(mine) & _files(public):
        return True
    bounds = np.array([byte_bounds(array) for array in mine], np.uint64)
    for array in public:
        low, high = (np.uint64(end) for end in byte_bounds(array))
        near = np.flatnonzero((bounds[:, 0] < high) & (bounds[:, 1] > low))
        if any(_meet(array, mine[k]) for k in near):
            return True
    return False


def _files(arrays: list[NDArray[Any]]) -> set[tuple[int, int]]:
    """The files that arrays are mapped from: one that is mapped twice lies in two places of memory."""
    found = set()
    for array in arrays:
        base: Any = array
        while base is not None:
            if isinstance(base, np.memmap) and base.filename is not None:
                with suppress(OSError):  # it may be gone
                    status = Path(base.filename).stat()
                    found.add((status.st_dev, status.st_ino))
            base = getattr(base, "base", None)
    return found


def _meet(first: NDArray[Any], second: NDArray[Any]) -> bool:
    try:
        return bool(np.shares_memory(first, second, max_work=_MOST_WORK))  # type: ignore[arg-type]
    except TooHardError:
        return True


def _arrays(item: Any) -> list[NDArray[Any]]:
    """The memory that a table, a column or a matrix lies in, as arrays; none where that cannot be told."""
    try:
        return [array for array in _views(item) if array.size]
    except Exception:  # an odd object of somebody else's must neither fail here nor be quoted
        return []


def _views(item: Any) -> Iterator[NDArray[Any]]:
    home = type(item).__module__.partition(".")[0]
    if isinstance(item, np.ndarray):
        yield item
    elif sparse.issparse(item):
        for name in ("data", "indices", "indptr", "row", "col"):
            part = getattr(item, name, None)
            if isinstance(part, np.ndarray):
                yield part
    elif home == "pandas":
        columns = (column for _, column in item.items()) if hasattr(item, "columns") else (item,)
        for column in columns:
            yield from _pandas_views(column.array)
    elif home == "polars":
        level = sys.modules["polars"].CompatLevel.newest()
        for column in item.get_columns() if hasattr(item, "get_columns") else (item,):
            yield from _arrow_views(column.to_arrow(compat_level=level))
    elif home == "pyarrow":
        for column in item.columns if hasattr(item, "columns") else (item,):
            yield from _arrow_views(column)
    elif home != "dask" and (_is_array_like(item) or isinstance(item, (memoryview, bytearray)) or home == "array"):
        yield np.asarray(item)


def _is_array_like(item: Any) -> bool:
    return hasattr(type(item), "__array__") or hasattr(type(item), "__array_interface__")


def _pandas_views(column: Any) -> Iterator[NDArray[Any]]:
    """A column's own memory; nothing is converted, which would copy it."""
    if hasattr(column, "__arrow_array__") and "Arrow" in type(column).__name__:
        yield from _arrow_views(column.__arrow_array__())
        return
    for name in ("codes", "asi8", "_data", "_ndarray"):  # categories, times, nullable numbers, plain ones
        part = getattr(column, name, None)
        if isinstance(part, np.ndarray):
            yield part
            return


def _arrow_views(column: Any) -> Iterator[NDArray[Any]]:
    for chunk in column.chunks if hasattr(column, "chunks") else (column,):
        for buffer in chunk.buffers():
            if buffer is not None and buffer.size:
                yield np.frombuffer(buffer, np.uint8)
