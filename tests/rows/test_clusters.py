"""Clusters at their worst: workers killed in the middle of a fit, tasks that fail, tasks that run twice at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.rows.conftest import make_table, prepare_spark, spark_session, write_parquet

from epsilearn import DaskRows, LogisticRegression, SparkRows
from epsilearn.errors import InvalidInput, StateError


def model(**options):
    return LogisticRegression(classes=[False, True], data_norm=1.0, delta=1e-6, random_state=5, **options)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def expected(table):
    return model().fit(table.X, table.targets["label"])


def noted(frame: pd.DataFrame, folder: str, pause: float) -> pd.DataFrame:
    """The partition as it is; the process that computes it leaves a note, and takes its time."""
    with (Path(folder) / f"{os.getpid()}").open("a") as notes:
        notes.write(f"{len(frame)}\n")
    time.sleep(pause)
    return frame


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_fit_changes_nothing(tmp_path):
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    table = make_table(8000, 4)
    notes = tmp_path / "notes"
    notes.mkdir()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        frame = dd.from_pandas(table.frame("label"), npartitions=12)
        frame = frame.map_partitions(noted, str(notes), 0.05, meta=frame._meta)
        killed = []

        def kill_one():
            # Once both workers are busy with the second pass or a later one.
            end = time.monotonic() + 600
            while sum(len(note.read_text().splitlines()) for note in notes.iterdir()) < 18:
                if time.monotonic() > end:
                    return  # the fit has failed, and says why
                time.sleep(0.02)
            victim = next(int(note.name) for note in notes.iterdir())
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

        killer = threading.Thread(target=kill_one)
        killer.start()
        found = model().fit(DaskRows(frame, target="label", rows=8000, client=client))
        killer.join()
    assert len(killed) == 1
    assert len(list(notes.iterdir())) >= 3  # another took its place
    np.testing.assert_array_equal(found.coef_, expected(table).coef_)


def test_a_frame_that_is_another_each_time_is_refused(dask_client, tmp_path):
    import dask.dataframe as dd

    table = make_table(3000, 2)
    frame = dd.from_pandas(table.frame("label"), npartitions=3)
    shuffled = frame.map_partitions(lambda part: part.sample(frac=1.0), meta=frame._meta)
    with pytest.raises(StateError, match=r"partition \d is not what it was"):
        model().fit(DaskRows(shuffled, target="label", rows=3000, client=dask_client))


def test_a_partition_that_cannot_be_read_is_said_without_what_it_says(dask_client):
    import dask.dataframe as dd

    def fail(part):
        raise ValueError("patient 4711 is ill")

    frame = dd.from_pandas(make_table(3000, 2).frame("label"), npartitions=3)
    broken = frame.map_partitions(fail, meta=frame._meta)
    with pytest.raises(InvalidInput) as caught:
        model().fit(DaskRows(broken, target="label", rows=3000, client=dask_client))
    assert "4711" not in str(caught.value)
    assert caught.value.__context__ is None


def test_workers_without_a_package_are_said_to_lack_it():
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    # Every import of it fails there, as if it had never been installed.
    lacking = "import sys\nsys.modules['epsilearn'] = None\n"
    frame = dd.from_pandas(make_table(300, 2).frame("label"), npartitions=1)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", preload=lacking) as cluster,
        Client(cluster, set_as_default=False) as client,
        # They would otherwise die one by one, and the fit wait for ever.
        pytest.raises(InvalidInput, match=r"workers cannot import epsilearn: install epsilearn\[dask\] where they run"),
    ):
        model().fit(DaskRows(frame, target="label", rows=300, client=client))


def test_a_column_of_several_kinds_is_refused_without_its_values(dask_client, caplog):
    import dask
    import dask.dataframe as dd

    @dask.delayed
    def partition():
        return pd.DataFrame({"c0": [1.0, "patient 4711"], "label": [True, False]}, dtype=object)

    frame = dd.from_delayed([partition()], meta=pd.DataFrame({"c0": [1.0], "label": [True]}), verify_meta=False)
    with pytest.raises(InvalidInput, match=r"partition 0: some column holds things of several kinds") as caught:
        model().fit(DaskRows(frame, target="label", rows=2, client=dask_client))
    assert "4711" not in str(caught.value) + caplog.text


def test_numbered_columns_of_a_frame(dask_client):
    import dask.dataframe as dd

    table = make_table(2000, 2)
    numbered = pd.DataFrame(np.column_stack([table.X, table.targets["label"]]))
    frame = dd.from_pandas(numbered, npartitions=2)
    found = LogisticRegression(classes=[0.0, 1.0], data_norm=1.0, delta=1e-6, random_state=5).fit(
        DaskRows(frame, target=2, rows=2000, client=dask_client)
    )
    np.testing.assert_array_equal(found.coef_, expected(table).coef_)


def test_arrays_of_unknown_chunks_that_do_not_match_are_refused(dask_client):
    import dask.dataframe as dd

    frame = dd.from_pandas(make_table(2000, 2).frame("label"), npartitions=4)
    X, y = frame[frame["c0"] > -9][["c0", "c1"]].values, frame[frame["c0"] > 0]["label"].values
    rows = int((make_table(2000, 2).X[:, 0] > 0).sum())
    with pytest.raises(InvalidInput, match="do not fit together"):
        model().fit(DaskRows(X, target=y, rows=rows, client=dask_client))


def test_dask_tables_that_do_not_fit_together_are_refused(dask_client):
    import dask.array as da
    import dask.dataframe as dd

    X = da.ones((100, 2), chunks=(10, 2))
    with pytest.raises(InvalidInput, match="need targets of one"):
        DaskRows(X, target="y", rows=100)
    frame = dd.from_pandas(make_table(100, 2).frame("label"), npartitions=3)
    with pytest.raises(InvalidInput, match="no column 'y'"):
        DaskRows(frame, target="y", rows=100)
    with pytest.raises(InvalidInput, match="must be a Dask data frame"):
        DaskRows(np.ones((3, 2)), target="y", rows=3)


# ---------------------------------------------------------------------------------------------------------- Spark


def _spark_process(*words: str) -> subprocess.Popen[bytes]:
    command = [str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-class"), *words]
    # A group of its own: the script starts Java, and executors, which must end with it.
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=os.environ | {"SPARK_WORKER_DIR": tempfile.gettempdir()},
    )  # fmt: skip


@pytest.fixture(scope="module")
def impatient_spark(tmp_path_factory):
    """A master and two workers at addresses of their own, and speculation: whatever is slow is started twice.

    Spark starts no second copy of a task on the host that has the first, so the workers need two.
    """
    prepare_spark()
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    quiet = ("--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    started = [_spark_process(f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), *quiet)]
    for host in ("127.0.0.2", "127.0.0.3"):
        folder = str(tmp_path_factory.mktemp("worker"))
        size = ("--cores", "1", "--memory", "1g", "--work-dir", folder)
        started.append(_spark_process(f"{deploy}.worker.Worker", "--host", host, *size, *quiet, url))
    session = None
    try:
        session = spark_session(
            url,
            **{
                "spark.executor.memory": "700m",
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                "spark.cores.max": "2",
                "spark.speculation": "true",
                "spark.speculation.interval": "50ms",
                "spark.speculation.multiplier": "1.01",
                "spark.speculation.quantile": "0.1",
                "spark.speculation.minTaskRuntime": "0ms",
            },
        )
        yield session
    finally:
        if session is not None:
            session.stop()
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=300)


def _meddled(folder: str, kind: str):
    """Partitions as they are; some attempts fail, or are so slow that others are started beside them."""

    def through(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        part, attempt = context.partitionId(), context.attemptNumber()
        with (Path(folder) / f"{context.stageId()}-{part}-{context.taskAttemptId()}").open("w") as note:
            note.write(str(attempt))
        for number, batch in enumerate(batches):
            yield batch
            if kind == "fails" and attempt == 0 and part % 2 == 0 and number == 0:
                raise OSError("lost in the middle of a partition")
            if kind == "dawdles" and attempt == 0 and part == 1:
                # Until somebody else has begun the same partition, however busy the machine is.
                beside, end = f"{context.stageId()}-{part}-*", time.monotonic() + 120
                while len(list(Path(folder).glob(beside))) < 2 and time.monotonic() < end:
                    time.sleep(0.1)

    return through


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fails", "dawdles"])
def test_tasks_that_are_run_again_or_twice_count_once(impatient_spark, tmp_path, kind):
    table = make_table(8000, 4)
    notes = tmp_path / "notes"
    notes.mkdir()
    folder = write_parquet(table, "label", tmp_path / "table", files=4)
    frame = impatient_spark.read.parquet(str(folder))
    assert frame.rdd.getNumPartitions() >= 3
    meddled = frame.mapInArrow(_meddled(str(notes), kind), frame.schema)
    found = model().fit(SparkRows(meddled, target="label", rows=8000))
    attempts = [note.read_text() for note in notes.iterdir()]
    # Some partitions of some passes were computed more than once.
    tasks = {tuple(note.name.split("-")[:2]) for note in notes.iterdir()}
    assert len(attempts) > len(tasks)
    np.testing.assert_array_equal(found.coef_, expected(table).coef_)


@pytest.mark.slow
def test_a_damaged_file_is_named_by_spark_too(impatient_spark, tmp_path):
    folder = write_parquet(make_table(8000, 4), "label", tmp_path / "table")
    frame = impatient_spark.read.parquet(str(folder))
    rows = SparkRows(frame, target="label", rows=8000)
    damaged = folder / "part-1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:2000])
    with pytest.raises(InvalidInput, match=r"part-1.parquet cannot be read by Spark") as caught:
        model().fit(rows)
    assert caught.value.__context__ is None


@pytest.mark.slow
def test_executors_without_a_package_are_said_to_lack_it(impatient_spark, tmp_path):
    def lacking(batches):
        import sys

        sys.modules["numba"] = None
        import numba  # noqa: F401

        yield from batches

    folder = write_parquet(make_table(100, 2), "label", tmp_path / "table")
    frame = impatient_spark.read.parquet(str(folder))
    frame = frame.mapInArrow(lacking, frame.schema)
    with pytest.raises(InvalidInput, match="executors cannot import numba"):
        model().fit(SparkRows(frame, target="label", rows=100))


@pytest.mark.slow
def test_a_column_that_is_not_there_is_refused(impatient_spark, tmp_path):
    folder = write_parquet(make_table(100, 2), "label", tmp_path / "table")
    frame = impatient_spark.read.parquet(str(folder))
    with pytest.raises(InvalidInput, match="0 columns called 'y'"):
        SparkRows(frame, target="y", rows=100)
