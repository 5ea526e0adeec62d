"""Where the rows of a file are read and summed: in this process, by workers of Dask, by executors of Spark.

For tables that are larger than memory. Parquet files are read as they are, in every pass; any other table is encoded
once, into a Parquet file in a private folder that is gone afterwards.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from epsilearn.checks import check_choice
from epsilearn.encoding import Encoding, encoded
from epsilearn.errors import EpsilearnError, InvalidInput
from epsilearn.files import TableFile
from epsilearn.rows import Parts
from epsilearn.rows.parquet import ParquetRows, parquet_files

__all__ = ["ENGINES", "files_of", "table_in_parts"]

ENGINES = ("memory", "local", "dask", "spark")
_TARGET = "target"
_PATIENCE = 5  # seconds for a scheduler to answer


def files_of(path: Path) -> list[Path]:
    """The files of a table: the table itself, or all of a folder, whose first one's header tells of the others."""
    return parquet_files(path) if path.is_dir() else [path]


@contextmanager
def table_in_parts(
    path: Path,
    file: TableFile,
    encoding: Encoding,
    *,
    rows: int | None,
    engine: str,
    address: str | None = None,
    scratch: Path | None = None,
) -> Iterator[tuple[Parts, None]]:
    """What to fit: a table, encoded where an engine reads it, and no targets besides.

    Parameters
    ----------
    path : Path
        A file, or a folder of Parquet files.
    file : TableFile
        The first of these.
    encoding : Encoding
        How rows become numbers.
    rows : int or None
        How many there are, which must have been declared.
    engine : {"local", "dask", "spark"}
        Who reads them.
    address : str, optional
        Of Dask's scheduler, or Spark's master; by default they are started on this machine.
    scratch : Path, optional
        Where to put a table that must be encoded first; by default where temporary files go.
    """
    check_choice("engine", engine, ENGINES[1:])
    if rows is None:
        raise InvalidInput(
            f"--engine {engine} needs the number of rows, which is public: state it with --rows, or in the schema as "
            "rows = ...; a part that is there twice or not at all is then found out"
        )
    if encoding.schema.sparse:
        raise InvalidInput(f"--engine {engine} reads tables whose columns have names; libsvm files need memory")
    names = [*encoding.schema.features(encoding.target), encoding.target]
    how: dict[str, Any] = {
        "columns": encoding.names,
        "encode": encoding.block,
        "read": names,
        "target": encoding.target,
        "rows": rows,
    }
    if file.format == "parquet":
        with _read_by(engine, address, path, how) as table:
            yield table, None
        return
    if engine != "local":
        raise InvalidInput(f"--engine {engine} reads Parquet files; convert {path.name} first, or use --engine local")
    with tempfile.TemporaryDirectory(prefix="epsilearn-", dir=scratch) as folder:
        if encoding.sparse:
            # Numbers that are mostly zeros take more room than what they stand for.
            yield ParquetRows(_written(file.batches(names), Path(folder)), **how), None
        else:
            yield ParquetRows(_written(_numbers(file, encoding), Path(folder)), target=_TARGET, rows=rows), None


@contextmanager
def _read_by(engine: str, address: str | None, path: Path, how: dict[str, Any]) -> Iterator[Parts]:
    if engine == "local":
        yield ParquetRows(path, **how)
    elif engine == "dask":
        with _dask_client(address) as client:
            yield ParquetRows(path, client=client, **how)
    else:
        with _spark_session(address) as session:
            from epsilearn.rows.spark import SparkRows

            files = [str(file.resolve()) for file in parquet_files(path)]
            yield SparkRows(session.read.parquet(*files), **how)


@contextmanager
def _dask_client(address: str | None) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InvalidInput("--engine dask needs Dask: pip install 'epsilearn[dask]'") from None
    if address is None:
        # One thread a worker: each part is summed by one.
        with (
            LocalCluster(threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        client = Client(address, set_as_default=False, timeout=_PATIENCE)
    except (OSError, ValueError):
        raise EpsilearnError(f"there is no Dask scheduler at {address}; nothing was spent") from None
    with client:
        yield client


@contextmanager
def _spark_session(address: str | None) -> Iterator[Any]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InvalidInput("--engine spark needs Spark and Java 17: pip install 'epsilearn[spark]'") from None
    if address is None or address.startswith("local"):
        # Executors on this machine are to run the Python that runs this, which has what they need.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("epsilearn")
    session = (builder if address is None else builder.master(address)).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _written(tables: Iterator[Any], folder: Path) -> Path:
    """Arrow tables as one Parquet file, a few thousand rows at a time."""
    from pyarrow import parquet

    path, first = folder / "rows.parquet", next(tables, None)
    if first is None:
        raise InvalidInput("the table has no rows; there must be at least one")
    with parquet.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
    return path


def _numbers(file: TableFile, encoding: Encoding) -> Iterator[Any]:
    """The rows of a table as numbers."""
    import pyarrow as pa

    names = [*map(str, range(len(encoding.names))), _TARGET]
    for X, y in encoded(file, encoding):
        yield pa.table([*X.T, y.astype(np.float64)], names)
