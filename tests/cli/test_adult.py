"""The raw Adult table, where it is at hand: a hand-written schema is all that a good private model needs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

import epsilearn
from epsilearn.schema import Schema

FOLDER = Path(os.environ.get("EPSILEARN_DATA", "")) / "adult"
SCHEMA = Path(__file__).parents[2] / "examples" / "adult.toml"

pytestmark = pytest.mark.skipif(
    not (FOLDER / "adult.data.gz").is_file(), reason="EPSILEARN_DATA names no folder with the Adult table"
)


def accuracy(command, model: str, table: object) -> float:
    code, out, err = command("evaluate", model, table, "--not-private", "--json")
    assert code == 0, err
    return json.loads(out)["value"]


def test_raw_files_in_a_good_model_out(command, tmp_path):
    words = ("--schema", SCHEMA, "--target", "income", "--epsilon", 1, "--delta", 1e-6, "-o")
    train, test = FOLDER / "adult.data.gz", FOLDER / "adult.test.gz"
    assert command("fit", train, *words, "csv")[0] == 0
    assert accuracy(command, "csv", test) >= 0.832

    names = list(Schema.read(SCHEMA).columns)
    table = pyarrow.csv.read_csv(train, read_options=pyarrow.csv.ReadOptions(column_names=names))
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    assert command("fit", tmp_path / "train.parquet", *words, "parquet")[0] == 0
    assert accuracy(command, "parquet", test) >= 0.832
    one, other = epsilearn.load("csv"), epsilearn.load("parquet")
    assert one.weights.coefficients.shape == other.weights.coefficients.shape
    assert (one.guarantee, one.noise) == (other.guarantee, other.noise)
