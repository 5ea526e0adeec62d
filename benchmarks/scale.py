"""More rows than memory: seconds, passes and memory of fits to Parquet files, beside what reading them costs.

``python benchmarks/scale.py --folder DIR`` generates tables there (about 14 GB) and takes ten minutes on two cores,
five more with ``--clusters``. Everything is taken in one run; ``--output FILE`` keeps the numbers as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 40
BLOCK = 250_000
GIB = 2.0**30
_FEW = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where tables are generated; about 14 GB")
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the large table")
    parser.add_argument("--output", type=Path, help="where to write the numbers, as JSON")
    parser.add_argument("--clusters", action="store_true", help="measure Dask and Spark too")
    options = parser.parse_args()
    found: dict[str, Any] = {"large": large(options.folder, options.rows), "growth": growth(options.folder)}
    if options.clusters:
        found["clusters"] = clusters(options.folder)
    print(json.dumps(found, indent=1))
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")


def table(folder: Path, rows: int) -> Path:
    """A table of so many rows, written once: normal features of unequal spread, labels with noise."""
    import pyarrow as pa
    from pyarrow import parquet

    home = folder / f"rows-{rows}"
    if (home / "_SUCCESS").exists():
        return home
    home.mkdir(parents=True, exist_ok=True)
    truth = np.random.default_rng(0).normal(size=COLUMNS)
    for number, start in enumerate(range(0, rows, 4 * BLOCK)):
        with parquet.ParquetWriter(home / f"part-{number:04}.parquet", _schema()) as writer:
            for block in range(start, min(start + 4 * BLOCK, rows), BLOCK):
                count = min(BLOCK, rows - block)
                generator = np.random.default_rng([1, block])
                X = generator.normal(size=(count, COLUMNS)) / np.sqrt(COLUMNS) / np.arange(1, COLUMNS + 1) ** 0.25
                y = X @ truth + 0.3 * generator.normal(size=count) > 0.1
                writer.write_table(pa.table([*X.T, y], schema=_schema()))
    (home / "_SUCCESS").touch()
    return home


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([(f"c{j}", pa.float64()) for j in range(COLUMNS)] + [("y", pa.bool_())])


def large(folder: Path, rows: int) -> dict[str, Any]:
    """The large table: one fit in a process of its own, and reading the same files in another."""
    home = table(folder, rows)
    bytes_on_disk = sum(file.stat().st_size for file in home.glob("*.parquet"))
    reading = [_alone(_read, home) for _ in range(2)]
    fits = {name: _alone(_fit, home, rows, options) for name, options in _MODELS.items()}
    reading.append(_alone(_read, home))
    once = statistics.median(found["seconds"] for found in reading)
    for fit in fits.values():
        fit["times reading"] = fit["seconds"] / (once * fit["passes"])
    return {"rows": rows, "columns": COLUMNS, "bytes": bytes_on_disk, "reading once": once, "fits": fits}


_MODELS: dict[str, dict[str, Any]] = {
    "logistic, gaussian": {"delta": 1e-9},
    "logistic, pure": {},
    "moments": {"delta": 1e-9, "method": "sufficient-statistics"},
}


def growth(folder: Path) -> list[dict[str, Any]]:
    """Tables of 1, 2, 4 and 8 million rows: seconds of a fit, per pass and row."""
    lines = []
    for rows in (1_000_000, 2_000_000, 4_000_000, 8_000_000):
        home = table(folder, rows)
        fits = [_alone(_fit, home, rows, {"delta": 1e-9}) for _ in range(3)]
        seconds, passes = statistics.median(f["seconds"] for f in fits), fits[0]["passes"]
        lines.append({"rows": rows, "seconds": seconds, "passes": passes, "microseconds a row": 1e6 * seconds / rows})
        print(lines[-1], flush=True)
    return lines


def clusters(folder: Path) -> dict[str, Any]:
    """What a pass costs on clusters of this machine, for few rows and for many: latency, and rows a second."""
    found: dict[str, Any] = {}
    for name, engine in (("here", _here), ("dask", _on_dask), ("spark", _on_spark)):
        found[name] = {rows: _alone(engine, table(folder, rows), rows) for rows in (_FEW, 4_000_000)}
        print(name, found[name], flush=True)
    return found


def _alone(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """In a process of its own, so that its memory is its own too."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(_measured, work, arguments).result()
    print(f"{work.__name__.strip('_')} {arguments[0].name}: {found}", flush=True)
    return found


def _measured(work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found = work(*arguments)
    return found | {"peak GiB": _peak() / GIB}


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _read(home: Path) -> dict[str, Any]:
    """All batches of all files, by Arrow's own threads, and nothing done with them."""
    from pyarrow import parquet

    start, rows = time.perf_counter(), 0
    for file in sorted(home.glob("*.parquet")):
        with parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as source:
            for batch in source.iter_batches(1 << 14):
                rows += batch.num_rows
    return {"seconds": time.perf_counter() - start, "rows": rows}


def _model(options: dict[str, Any]) -> Any:
    import epsilearn

    if options.get("method") == "sufficient-statistics":
        return epsilearn.LinearRegression(data_norm=1.0, target_bound=(0, 1), **options)
    return epsilearn.LogisticRegression(data_norm=1.0, classes=[False, True], **options)


def _timed(model: Any, parts: Any) -> dict[str, Any]:
    passes = _counted(parts)
    start = time.perf_counter()
    model.fit(parts)
    return {"seconds": time.perf_counter() - start, "passes": len(passes), "a pass": passes}


def _counted(parts: Any) -> list[float]:
    """The seconds of each pass, as they come."""
    seconds: list[float] = []
    gather = parts.gather

    def gathered(work: Any) -> Any:
        start = time.perf_counter()
        found = gather(work)
        seconds.append(time.perf_counter() - start)
        return found

    parts.gather = gathered
    return seconds


def _fit(home: Path, rows: int, options: dict[str, Any]) -> dict[str, Any]:
    from epsilearn import ParquetRows

    # What any fit needs is loaded by a first one, to a small table.
    small = table(home.parent, _FEW)
    _model(options).fit(ParquetRows(small, target="y", rows=_FEW))
    return _timed(_model(options), ParquetRows(home, target="y", rows=rows))


def _here(home: Path, rows: int) -> dict[str, Any]:
    return _fit(home, rows, {"delta": 1e-9})


def _on_dask(home: Path, rows: int) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    from epsilearn import ParquetRows

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        for _ in range(2):  # the first also starts and compiles
            found = _timed(_model({"delta": 1e-9}), ParquetRows(home, target="y", rows=rows, client=client))
    return found


def _on_spark(home: Path, rows: int) -> dict[str, Any]:
    import os
    import sys

    from pyspark.sql import SparkSession

    from epsilearn import SparkRows

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for _ in range(2):
        frame = session.read.parquet(str(home))
        found = _timed(_model({"delta": 1e-9}), SparkRows(frame, target="y", rows=rows))
    session.stop()
    return found


if __name__ == "__main__":
    main()
