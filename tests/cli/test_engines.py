"""``epsilearn fit --engine``: the same models from tables that are never all in memory."""

from __future__ import annotations

import itertools
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.cli.test_fit import CANARY, FILES, MODELS, options

import epsilearn
from epsilearn import Ledger


def split(clinic, folder: Path, count: int = 3) -> Path:
    """The clinic's table as a folder of Parquet files."""
    parts, table = folder / "parts", clinic.arrow()
    parts.mkdir()
    ends = np.linspace(0, table.num_rows, count + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        pyarrow.parquet.write_table(table.slice(start, stop - start), parts / f"{number}.parquet")
    return parts


def words(clinic, folder, name, table, engine, rows=True):
    found = ["fit", table, "--schema", clinic.write_schema(folder), "--epsilon", 3, *options(name, folder)]
    return [*found, "--engine", engine, *(["--rows", clinic.arrow().num_rows] if rows else [])]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_fitted_to_a_folder_of_files(command, clinic, tmp_path, name):
    code, _, err = command(*words(clinic, tmp_path, name, split(clinic, tmp_path), "local"), "-o", "out")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in Path("out").iterdir()) == FILES
    model = epsilearn.load("out")
    assert model.guarantee.epsilon == pytest.approx(3.0)
    assert len(model.predict(clinic.arrow())) == clinic.arrow().num_rows


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "arrow", "parquet"])
def test_every_kind_of_file_can_be_larger_than_memory(command, clinic, tmp_path, kind):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    table = clinic.write(tmp_path, kind)
    code, _, err = command(*words(clinic, tmp_path, "logistic", table, "local"), "--scratch", scratch, "-o", "out")
    assert (code, err) == (0, "")
    assert not list(scratch.iterdir())
    assert epsilearn.load("out").predict(clinic.arrow()) is not None


def test_dask_needs_nothing_to_be_started(command, clinic, tmp_path):
    """Spark's turn is in test_engine_sockets.py: in a process of its own, as a Java machine keeps its settings."""
    parts = split(clinic, tmp_path)
    code, out, err = command(*words(clinic, tmp_path, "logistic", parts, "dask"), "--json", "-o", "out")
    assert code == 0, err
    assert json.loads(out)["output"] == "out"
    assert epsilearn.load("out").guarantee.epsilon == pytest.approx(3.0)


def refused(command, clinic, folder, engine, *more):
    """What an engine that cannot be started says; nothing is spent, and nothing is left."""
    ledger = Ledger.create(folder / "budget.db", dataset="clinic", epsilon=10.0)
    found = words(clinic, folder, "logistic", split(clinic, folder), engine)
    code, out, err = command(*found, "--ledger", "budget.db", *more, "-o", "out")
    assert code in (1, 2)
    assert ledger.history() == []
    assert not Path("out").exists()
    assert "Traceback" not in out + err
    assert "table" not in err
    return err


@pytest.mark.parametrize(
    ("engine", "module", "more"),
    [
        ("dask", "dask.delayed", ()),
        ("dask", "distributed", ("--address", "tcp://127.0.0.1:1")),
        ("spark", "pyspark.sql", ()),
        ("spark", "py4j", ()),
        ("spark", "pandas", ()),
    ],
)
def test_a_missing_package_is_named_with_what_brings_it(command, clinic, tmp_path, monkeypatch, engine, module, more):
    if engine == "spark":
        need_spark()
    monkeypatch.setitem(sys.modules, module, None)
    said = refused(command, clinic, tmp_path, engine, *more)
    assert module.partition(".")[0] in said
    assert f"pip install 'epsilearn[{engine}]'" in said


@pytest.mark.parametrize("java", ["none", "elsewhere", "old"])
def test_a_missing_java_is_named(command, clinic, tmp_path, monkeypatch, java):
    need_spark()
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    if java == "none":
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(home))
    else:
        monkeypatch.setenv("JAVA_HOME", str(home))
    if java == "old":
        (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
        (home / "bin" / "java").chmod(0o755)
    said = refused(command, clinic, tmp_path, "spark")
    assert "17 or newer" in said
    assert ("could not be started" in said) == (java == "old")


def need_spark() -> None:
    if find_spec("pyspark") is None:
        reason = "no pyspark; pip install 'epsilearn[spark]'"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


def test_the_number_of_rows_must_be_declared_and_right(command, clinic, tmp_path):
    parts = split(clinic, tmp_path)
    Ledger.create(tmp_path / "budget.db", dataset="clinic", epsilon=10.0)
    code, _, err = command(*words(clinic, tmp_path, "logistic", parts, "local", rows=False), "-o", "out")
    assert code == 2
    assert "needs the number of rows" in err
    wrong = [*words(clinic, tmp_path, "logistic", parts, "local", rows=False), "--rows", 7, "--ledger", "budget.db"]
    code, _, err = command(*wrong, "-o", "out")
    assert code == 2
    assert "7 were declared" in err
    assert Ledger(tmp_path / "budget.db").history() == []
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--engine", "ray"], "engine"),
        (["--engine", "local", "--address", "tcp://127.0.0.1:1"], "--address is for"),
        (["--engine", "dask", "--scratch", "."], "--scratch is for"),
        (["--engine", "memory"], "is a folder"),
    ],
)
def test_words_without_a_meaning_are_refused(command, clinic, tmp_path, more, reason):
    table = split(clinic, tmp_path)
    found = ["fit", table, "--schema", clinic.write_schema(tmp_path), "--epsilon", 3, *options("logistic", tmp_path)]
    code, _, err = command(*found, *more, "-o", "out")
    assert code == 2
    assert reason in err


def test_a_cluster_that_is_not_there_costs_nothing(command, clinic, tmp_path):
    parts = split(clinic, tmp_path)
    Ledger.create(tmp_path / "budget.db", dataset="clinic", epsilon=10.0)
    found = words(clinic, tmp_path, "logistic", parts, "dask")
    code, _, err = command(*found, "--address", "tcp://127.0.0.1:1", "--ledger", "budget.db", "-o", "out")
    assert code == 1
    assert "no Dask scheduler" in err
    assert Ledger(tmp_path / "budget.db").history() == []


def test_a_record_outside_the_schema_is_named_by_its_file_alone(command, clinic, tmp_path):
    parts, table = split(clinic, tmp_path), clinic.arrow()
    stage = table.column_names.index("stage")
    spoilt = table.slice(0, 50).set_column(stage, "stage", pa.array([CANARY] * 50))
    pyarrow.parquet.write_table(spoilt, parts / "9.parquet")
    found = words(clinic, tmp_path, "logistic", parts, "local", rows=False)
    code, out, err = command(*found, "--rows", table.num_rows + 50, "-o", "out")
    assert code == 2
    assert "9.parquet: column 'stage' has a value that is not among its categories" in err
    assert CANARY not in out + err
    assert not Path("out").exists()


def test_a_file_of_the_table_is_no_public_landmark(command, clinic, tmp_path):
    parts = split(clinic, tmp_path)
    found = ["fit", parts, "--schema", clinic.write_schema(tmp_path), "--epsilon", 3, "--target", "died"]
    found += ["--model", "landmark", "--public-landmarks", parts / "1.parquet", "--engine", "local", "--rows", 200]
    code, _, err = command(*found, "-o", "out")
    assert code == 2
    assert "must be public rows" in err


def test_a_dry_run_reads_no_row(command, clinic, tmp_path):
    parts = split(clinic, tmp_path)
    code, out, _ = command(*words(clinic, tmp_path, "logistic", parts, "local"), "--dry-run")
    assert code == 0
    assert "nothing was read but the header" in out
