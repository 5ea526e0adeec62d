"""Where the rows of a file are read and summed: in this process, by workers of Dask, by executors of Spark.

For tables that are larger than memory. Parquet files are read as they are, in every pass; any other table is encoded
once, into a Parquet file in a private folder that is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
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
_LONGEST_PATH = 40  # bytes of a folder in which sockets of Spark have room for their names; all have 104


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
            from epsilearn.rows.spark import SparkRows, parquet_frame

            yield SparkRows(parquet_frame(session, parquet_files(path)), **how)


@contextmanager
def _dask_client(address: str | None) -> Iterator[Any]:
    """Whoever computes: workers at an address, or Dask's own threads in this process, which listen nowhere."""
    if address is None:
        _need("dask", "dask.delayed")
        yield "threads"
        return
    _need("dask", "distributed")
    from distributed import Client

    try:
        client = Client(address, set_as_default=False, timeout=_PATIENCE)
    except (OSError, ValueError):
        raise EpsilearnError(f"there is no Dask scheduler at {address}; nothing was spent") from None
    with client:
        yield client


@contextmanager
def _spark_session(address: str | None) -> Iterator[Any]:
    _need("spark", "pyspark.sql", "py4j", "pandas", "pyarrow")
    if shutil.which("java", path=_java_path()) is None:
        raise InvalidInput(
            "--engine spark needs Java 17 or newer, and there is none: install it (Debian: apt-get install "
            "default-jre-headless), or say in JAVA_HOME where it is"
        )
    with _private_folder() as folder:
        session = _started("local[*]" if address is None else address, folder)
        try:
            yield session
        finally:
            session.stop()


def _started(address: str, folder: str) -> Any:
    """A session of Spark; on this machine one that nobody else can talk to."""
    from pyspark.sql import SparkSession

    settings = _SPARK
    if address.startswith("local"):
        settings = settings | _SPARK_HERE | {"spark.local.dir": folder, "spark.python.unix.domain.socket.dir": folder}
        # Executors on this machine are to run the Python that runs this, which has what they need.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    # Inherited by Java: what Spark writes, wherever it was told to, is for this account alone.
    before = os.umask(0o077)
    try:
        return SparkSession.builder.appName("epsilearn").master(address).config(map=settings).getOrCreate()
    except Exception as error:
        fault = type(error).__name__
    finally:
        os.umask(before)
    raise EpsilearnError(
        f"Spark could not be started at {address} ({fault}); is that where it is, and does `java -version` say 17 or "
        "newer? Nothing was spent"
    )


_LOOPBACK = "127.0.0.1"
# Of every session: how often it reads is shown to nobody, and what it says of a record that it cannot read neither.
_SPARK = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.api.mode": "classic"}
# Of those on this machine. The secret is made up inside the Java machine: it is on no command line and in no file. The
# sockets between Java and Python are in a folder that no other account can enter.
_SPARK_HERE = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}


@contextmanager
def _private_folder() -> Iterator[str]:
    """A folder that only this account can enter, with a path short enough for sockets in it."""
    usual = tempfile.gettempdir()
    place = usual if len(os.fsencode(usual)) <= _LONGEST_PATH else "/tmp"
    # Java deletes its files too, and may be faster.
    with tempfile.TemporaryDirectory(prefix="epsilearn-", dir=place, ignore_cleanup_errors=True) as folder:
        yield folder


def _java_path() -> str:
    """Where Spark looks for Java: in JAVA_HOME alone if there is one."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin") if home else os.environ.get("PATH", os.defpath)


def _need(engine: str, *modules: str) -> None:
    """Refuse to start where a package is missing."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            package = (error.name or module).partition(".")[0]
            raise InvalidInput(
                f"--engine {engine} needs {package}, which cannot be imported: pip install 'epsilearn[{engine}]'"
            ) from None


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
