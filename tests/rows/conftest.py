"""One table in every home that rows can have: memory, sparse, Parquet files, a Dask cluster, a Spark cluster."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from epsilearn import DaskRows, ParquetRows, SparkRows

ROOT = Path(__file__).parents[2]
PARTS = ("parquet", "dask frame", "dask array", pytest.param("spark", marks=pytest.mark.slow))
HOMES = ("memory", "sparse", *PARTS)


@dataclass(frozen=True)
class SomeTable:
    """Features with their names, labels of two and of three classes, and numbers to predict."""

    X: np.ndarray
    targets: dict[str, np.ndarray]

    @property
    def names(self) -> list[str]:
        return [f"c{j}" for j in range(self.X.shape[1])]

    def frame(self, target: str) -> pd.DataFrame:
        return pd.DataFrame(self.X, columns=self.names).assign(**{target: self.targets[target]})


def make_table(rows: int = 20_011, columns: int = 6, seed: int = 0) -> SomeTable:
    """Rows longer than any bound and rows of zeros, in no particular order."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, columns)) * (generator.random((rows, columns)) < 0.6)
    X[:3], X[3] = 0.0, 100.0
    score = X @ generator.normal(size=columns) + 0.3 * generator.normal(size=rows)
    targets = {"label": score > 0, "kind": np.digitize(score, [-0.5, 0.5]), "number": np.clip(score / 3, -2, 2)}
    return SomeTable(X, targets)


def write_parquet(table: SomeTable, target: str, folder: Path, files: int = 3, group: int = 3000) -> Path:
    """The table in several files of several row groups, none of which is as long as another."""
    folder.mkdir(exist_ok=True)
    ends = np.linspace(0, np.sqrt(len(table.X)), files + 1).astype(int) ** 2
    ends[-1] = len(table.X)
    frame = table.frame(target)
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        frame.iloc[start:stop].to_parquet(folder / f"part-{number}.parquet", row_group_size=group)
    return folder


@pytest.fixture(scope="session")
def some_table() -> SomeTable:
    return make_table()


@pytest.fixture(scope="session")
def dask_client() -> Iterator[Any]:
    """A real scheduler with two worker processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def prepare_spark() -> None:
    """Skip where there is no Java or no pyspark, fail where CI has none; else say where everything is."""
    reason = "no pyspark; pip install 'epsilearn[spark]'" if find_spec("pyspark") is None else ""
    if shutil.which("java") is None:
        reason = "no Java on this machine; install Debian's default-jre-headless"
    if reason:
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    import pyspark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_SCALA_VERSION"] = "2.13"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def spark_session(master: str = "local-cluster[2,1,1024]", **settings: str) -> Any:
    """A real driver, and by default a master and two executors, each a Java machine of its own with one core."""
    prepare_spark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("epsilearn tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The executors are started elsewhere, and must find the same package, and what tests define.
        "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "spark.sql.files.maxPartitionBytes": "200k",
        "spark.sql.files.openCostInBytes": "0",
        **settings,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    return session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = spark_session()
    yield session
    session.stop()


@pytest.fixture
def at_home(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, SomeTable, str], tuple[Any, ...]]:
    """What `fit` is to be given for a table that lives in a home of this name."""

    def make(home: str, table: SomeTable, target: str) -> tuple[Any, ...]:
        rows = len(table.X)
        if home == "memory":
            return table.X, table.targets[target]
        if home == "sparse":
            return sparse.csr_array(table.X), table.targets[target]
        if home == "parquet":
            folder = write_parquet(table, target, tmp_path / f"parquet-{target}")
            return (ParquetRows(folder, target=target, rows=rows),)
        if home == "spark":
            folder = write_parquet(table, target, tmp_path / f"spark-{target}")
            frame = request.getfixturevalue("spark").read.parquet(str(folder))
            return (SparkRows(frame, target=target, rows=rows),)
        client = request.getfixturevalue("dask_client")
        if home == "dask frame":
            import dask.dataframe as dd

            frame = dd.from_pandas(table.frame(target), npartitions=5)
            return (DaskRows(frame, target=target, rows=rows, client=client),)
        import dask.array as da

        X, y = da.from_array(table.X, chunks=(3000, 4)), da.from_array(table.targets[target], chunks=7000)
        return (DaskRows(X, target=y, rows=rows, client=client),)

    return make
