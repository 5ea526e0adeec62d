"""Every home that private rows can have: in memory, in files, with the workers of a cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from scipy import sparse

import epsilearn as el

# What `fit` is to be given, for a table of numbers and its targets; a table in parts brings its targets along.
Home = Callable[[np.ndarray, np.ndarray], AbstractContextManager[tuple[Any, Any]]]


def frame_of(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of the same name each time, so that two runs can be compared by it."""
    made = Path(tempfile.gettempdir()) / f"epsilearn-joints-{os.getpid()}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def written_in_parts(X: np.ndarray, y: np.ndarray, place: Path) -> Path:
    """Two Parquet files of two row groups or more each."""
    frame = frame_of(X).assign(target=y)
    half = len(X) // 2
    for number, part in enumerate((frame[:half], frame[half:])):
        table = pa.Table.from_pandas(part, preserve_index=False)
        pyarrow.parquet.write_table(table, place / f"{number}.parquet", row_group_size=10)
    return place


def _in_memory(rows: Callable[[np.ndarray], Any], targets: Callable[[np.ndarray], Any] = np.asarray) -> Home:
    @contextlib.contextmanager
    def opened(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[Any, Any]]:
        yield rows(X), targets(y)

    return opened


@contextlib.contextmanager
def _parquet(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[Any, None]]:
    with folder() as place:
        yield el.ParquetRows(str(written_in_parts(X, y, place)), target="target", rows=len(X)), None


@contextlib.contextmanager
def _dask(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[Any, None]]:
    import dask.dataframe as dd

    frame = dd.from_pandas(frame_of(X).assign(target=y), npartitions=3)
    yield el.DaskRows(frame, target="target", rows=len(X)), None


@functools.cache
def _session() -> Any:
    """One Spark for all cells, in two threads of a Java machine that ends with this process."""
    from tests.rows.conftest import spark_session

    return spark_session("local[2]")


@contextlib.contextmanager
def _spark(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[Any, None]]:
    with folder() as place:
        frame = _session().read.parquet(str(written_in_parts(X, y, place)))
        yield el.SparkRows(frame, target="target", rows=len(X)), None


IN_MEMORY: dict[str, Home] = {
    "numpy": _in_memory(np.ascontiguousarray),
    "numpy, by columns": _in_memory(np.asfortranarray),
    "numpy, single": _in_memory(lambda X: np.clip(X, -3e38, 3e38).astype(np.float32)),
    "lists": _in_memory(np.ndarray.tolist, np.ndarray.tolist),
    "sparse": _in_memory(sparse.csr_array),
    "pandas": _in_memory(frame_of, pd.Series),
    "polars": _in_memory(lambda X: pl.from_pandas(frame_of(X)), pl.Series),
}
IN_PARTS: dict[str, Home] = {"Parquet": _parquet, "Dask": _dask, "Spark": _spark}
HOMES = IN_MEMORY | IN_PARTS

# Of one column, for statistics.
COLUMNS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.asarray,
    "list": np.ndarray.tolist,
    "pandas": pd.Series,
    "polars": pl.Series,
    "Arrow": pa.array,
    "Arrow, chunked": lambda column: pa.chunked_array([column[:7], column[7:]]),
}
