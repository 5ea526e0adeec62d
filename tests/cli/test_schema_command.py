from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epsilearn.errors import InvalidInput
from epsilearn.files import TableFile
from epsilearn.schema_skeleton import skeleton

CANARY = "Zaphod424242"


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "arrow"])
def test_a_skeleton_names_every_column_and_decides_nothing(command, clinic, tmp_path, kind):
    table = clinic.write(tmp_path, kind)
    code, out, _ = command("schema", table)
    assert code == 0
    assert "9 columns to fill in" in out
    text = Path("schema.toml").read_text()
    data = tomllib.loads(text)
    assert list(data["columns"]) == list(clinic.columns)
    typed = kind in ("parquet", "arrow")
    assert data["columns"]["smokes"] == ({"categories": [False, True]} if typed else {})
    assert all(not column for name, column in data["columns"].items() if name != "smokes")
    assert not any(str(value) in text for value in clinic.columns["note"])
    code, _, err = command("schema", "check", "schema.toml", table)
    assert code == 2
    assert "column 'age' needs exactly one of" in err


def test_a_skeleton_filled_in_passes(command, clinic, tmp_path):
    table = clinic.write(tmp_path, "csv")
    code, text, _ = command("schema", table, "-o", "-")
    assert code == 0
    assert not Path("schema.toml").exists()
    Path("s.toml").write_text(text.replace("# bounds = [0, 1]\n", "bounds = [0, 1]\n"))
    code, out, _ = command("schema", "check", "s.toml", table, "--target", "days", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["columns"], found["features"], found["length"]) == (9, 8, 8**0.5)


def test_a_schema_is_not_overwritten(command, clinic, tmp_path):
    table = clinic.write(tmp_path, "csv")
    Path("schema.toml").write_text("mine")
    code, _, err = command("schema", table)
    assert code == 2
    assert "is there already" in err
    assert Path("schema.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (f"34,{CANARY},1", "field 1 of the first line is"),
        (f"{CANARY},,x", "field 2 of the first line is"),
        (f"{CANARY},-1e5,x", "field 2 of the first line is"),
        (f"{CANARY},a,{CANARY}", "two fields of the first line are equal"),
    ],
)
def test_a_record_is_not_taken_for_names(command, first, text):
    Path("t.csv").write_text(f"{first}\n1,2,3\n")
    code, out, err = command("schema", "t.csv")
    assert code == 2
    assert text in err
    assert CANARY not in out + err
    assert not Path("schema.toml").exists()


def test_files_without_a_header(command):
    Path("t.csv").write_text(f"34,{CANARY},1\n")
    code, _, _ = command("schema", "t.csv", "--no-header", "--names", "age, name,x")
    assert code == 0
    data = tomllib.loads(Path("schema.toml").read_text())
    assert list(data["columns"]) == ["age", "name", "x"]
    assert data["file"]["header"] is False
    assert CANARY not in Path("schema.toml").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("--no-header", "--names", "a,a"),
        ("--no-header",),
        ("--names", "a,b"),
        ("--header", "--names", "a,b"),
        ("--format", "xlsx"),
        ("--header",),
    ],
    ids=" ".join,
)
def test_what_makes_no_schema(command, words):
    Path("t.csv").write_text("a,a\n1,2\n")
    code, _, err = command("schema", "t.csv", *words)
    assert code == 2
    assert err.count("\n") == 1
    assert not Path("schema.toml").exists()


def test_two_columns_of_one_name_in_parquet(command):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    pa.parquet.write_table(table, "t.parquet")
    assert command("schema", "t.parquet")[0] == 2
    assert not Path("schema.toml").exists()


NAMES = ["a.b", 'quote"', "back\\slash", "tab\t", "ünï", "new\nline", "#", "= 5", "[x]", "'", "日本", "\x01", "🙂"]


def test_every_name_survives_toml(tmp_path):
    pa.parquet.write_table(pa.table({name: [1] for name in NAMES}), tmp_path / "t.parquet")
    data = tomllib.loads(skeleton(TableFile.at(tmp_path / "t.parquet")))
    assert list(data["columns"]) == NAMES


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=4))
def test_random_names_survive_toml(tmp_path_factory, names):
    path = tmp_path_factory.getbasetemp() / "names.parquet"
    pa.parquet.write_table(pa.Table.from_arrays([pa.array([1])] * len(names), names), path)
    try:
        text = skeleton(TableFile.at(path))
    except InvalidInput:
        assert len(set(names)) < len(names) or any("\x7f" in name or not name.strip() for name in names)
        return
    assert list(tomllib.loads(text)["columns"]) == names


@pytest.mark.parametrize("name", ["a b.csv", "new\nline.csv", "\x01.csv", "\x7f.csv", "{x}.csv", '"".csv', "ü.csv"])
def test_tables_of_every_name(command, name):
    Path(name).write_text("a,b\n1,2\n")
    assert command("schema", name)[0] == 0
    assert list(tomllib.loads(Path("schema.toml").read_text())["columns"]) == ["a", "b"]


def test_names_that_are_no_text(tmp_path):
    """Words of a command line need not be UTF-8."""
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    shutil.copy(tmp_path / "t.csv", os.fsencode(tmp_path) + b"/\xff.csv")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    for words in ([b"t.csv", b"--no-header", b"--names", b"a,\xff"], [b"\xff.csv"], [b"t.csv", b"-o", b"\xff.toml"]):
        done = subprocess.run(
            [sys.executable, "-m", "epsilearn.cli", "schema", *words],
            cwd=tmp_path, capture_output=True, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 2), done.stderr
        assert b"unexpected" not in done.stderr
        for path in tmp_path.glob("*.toml"):
            tomllib.loads(path.read_text())
            path.unlink()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("schema", "none.csv"), "there is no file"),
        (("schema", "t.xyz"), "unknown kind of file"),
        (("schema", "t.csv", "-o", "no/s.toml"), "cannot write"),
        (("schema", "t.csv", "-o", "/"), ""),
        (("schema", "t.csv", "-o", "."), ""),
        (("schema", "check", "t.csv"), "not TOML"),
        (("schema", "check", "none.toml"), "cannot read the schema"),
        (("schema", "write"), "TABLE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_use(command, words, text):
    Path("t.csv").write_text("a,b\n1,2\n")
    Path("t.xyz").write_text("")
    before = sorted(Path().iterdir())
    code, out, err = command(*words)
    assert code == 2
    assert text.lower() in err.lower().replace("\n", " ")
    assert out == ""
    assert sorted(Path().iterdir()) == before


def test_libsvm_files(command):
    Path("t.svm").write_text(f"1 1:{CANARY}\n")
    code, text, _ = command("schema", "t.svm", "-o", "-")
    assert code == 0
    filled = text.replace("# count", "count").replace("# bounds = [0, 1]  ", "bounds = [0, 1]  ")
    Path("s.toml").write_text(filled.replace("# categories", "categories"))
    code, out, err = command("schema", "check", "s.toml", "t.svm", "--target", "target", "--json")
    assert code == 0, err
    assert json.loads(out)["features"] == 1000
    Path("t.csv").write_text("a\n1\n")
    code, _, err = command("schema", "check", "s.toml", "t.csv")
    assert code == 2
    assert "disagree" in err
