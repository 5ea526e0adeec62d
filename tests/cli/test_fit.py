"""``epsilearn fit`` from end to end: every model, every kind of file, what it reads, and what is left when it ends."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import epsilearn
from epsilearn import Guarantee, Ledger
from epsilearn.cli import _run

CANARY = "Zaphod424242"
FILES = ["guarantee.json", "model.json", "report.html"]

MODELS = {
    "logistic": ("died", "logistic"),
    "four": ("stage", "logistic"),
    "svm": ("died", "svm"),
    "linear": ("days", "linear"),
    "lasso": ("days", "lasso"),
    "sparse-logistic": ("died", "sparse-logistic"),
    "landmark": ("died", "landmark"),
    "landmark-number": ("days", "landmark"),
}
PAIRS = list(zip(MODELS, ["csv.gz", "parquet", "tsv", "arrow"] * 2, strict=True))
MATRIX = [(name, kind) for name in MODELS for kind in ("csv", "csv.gz", "tsv", "parquet", "arrow")]


def options(name, folder):
    """Words for a model; landmark models get a few public rows."""
    target, model = MODELS[name]
    words = ["--target", target, "--model", model]
    if model == "landmark":
        public = folder / "public.csv"
        public.write_text(
            "age,weight,ward,smokes,grade,died,stage,days\n"
            "10,70,surgery,true,0,no,I,3\n50,80,medicine,false,1,yes,II,5\n90,60,eye,true,2.5,no,IV,9\n"
        )
        words += ["--public-landmarks", public]
    return words


def left(folder=Path()):
    """Everything of a fit that is left behind."""
    return sorted(path.name for path in folder.iterdir() if path.name.endswith("partial") or path.name == "out")


def check_fit(command, clinic, folder, name, kind):
    table, schema = clinic.write(folder, kind), clinic.write_schema(folder)
    words = ("fit", table, "--schema", schema, "--epsilon", 3, *options(name, folder))
    code, out, err = command(*words, "-o", "out")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in Path("out").iterdir()) == FILES
    assert left() == ["out"]
    model = epsilearn.load("out")
    assert Guarantee.from_json(Path("out/guarantee.json").read_text()) == model.guarantee
    assert model.guarantee.epsilon == pytest.approx(3.0)
    predicted = model.predict(clinic.arrow())
    code, out, _ = command("predict", "out", table)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("prediction")
    assert [line.split(",")[0] for line in lines[1:]] == [str(value) for value in predicted.tolist()]
    return model


@pytest.mark.parametrize(("name", "kind"), PAIRS, ids=str)
def test_every_model_from_a_file_to_predictions(command, clinic, tmp_path, name, kind):
    check_fit(command, clinic, tmp_path, name, kind)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [pair for pair in MATRIX if pair not in PAIRS], ids=str)
def test_every_model_from_every_kind_of_file(command, clinic, tmp_path, name, kind):
    check_fit(command, clinic, tmp_path, name, kind)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["died", "days"])
def test_landmarks_that_are_drawn(command, clinic, tmp_path, target):
    table, schema = clinic.write(tmp_path, "csv"), clinic.write_schema(tmp_path)
    words = ("--schema", schema, "--epsilon", 3, "--target", target, "--model", "landmark", "-o", "out")
    assert command("fit", table, *words)[0] == 0
    assert len(epsilearn.load("out").weights.features.landmarks) == 500


NUMBERED = """
version = 1
file = {format = "libsvm"}
columns = {target = {categories = [-1, 1]}}
others = {bounds = [0, 1], count = 12}
"""


def write_libsvm(path, rows=150):
    chance = np.random.default_rng(0)
    lines = []
    for _ in range(rows):
        here = np.flatnonzero(chance.random(12) < 0.4)
        values = " ".join(f"{i + 1}:{chance.random():.3f}" for i in here)
        lines.append(f"{1 if 0 in here else -1} {values}")
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize(
    ("model", "name"), [("logistic", "t.svm"), ("sparse-logistic", "t.svm.gz"), ("landmark", "t.svm")]
)
def test_libsvm_files(command, model, name):
    table = write_libsvm(Path(name))
    Path("s.toml").write_text(NUMBERED)
    words = ["--public-landmarks", write_libsvm(Path("public.svm"), 4)] if model == "landmark" else []
    words = ["--schema", "s.toml", "--target", "target", "--epsilon", 5, "--model", model, *words]
    code, _, err = command("fit", table, *words, "-o", "out")
    assert code == 0, err
    assert sorted(path.name for path in Path("out").iterdir()) == FILES
    code, out, err = command("predict", "out", table)
    assert code == 0, err
    assert {line.split(",")[0] for line in out.splitlines()[1:]} <= {"-1", "1"}
    assert len(out.splitlines()) == 151


def test_a_dry_run_says_what_the_fit_then_does(command, clinic, tmp_path):
    Ledger.create("b.db", dataset="d", epsilon=50.0)
    for number, name in enumerate(("four", "svm", "lasso", "landmark-number")):
        table, schema = clinic.write(tmp_path, "parquet"), clinic.write_schema(tmp_path)
        words = (
            "fit",
            table,
            "--schema",
            schema,
            "--epsilon",
            2,
            *options(name, tmp_path),
            "--ledger",
            "b.db",
            "--json",
        )
        before = len(Ledger("b.db").history())
        foreseen = json.loads(command(*words, "--dry-run")[1])
        assert len(Ledger("b.db").history()) == before
        folder = f"out{number}"
        done = json.loads(command(*words, "-o", folder)[1])
        promise = {**done["guarantee"], "ledger": None}
        assert foreseen["guarantee"] == promise
        model = epsilearn.load(folder)
        assert foreseen["noise"]["scale"] == pytest.approx(model.noise.scale, rel=1e-9)
        assert (foreseen["rows"], foreseen["method"]) == (clinic.rows, model.method)
        assert foreseen["features"] == model.schema.width(model.target)
        if foreseen["alpha"] is not None:
            assert foreseen["alpha"] == pytest.approx(done["settings"]["alpha"], rel=1e-9)
        assert foreseen["steps"] == done["settings"].get("steps")
    assert all(entry["status"] == "delivered" for entry in Ledger("b.db").history())
    Ledger("b.db").verify()


ADULT = """
version = 1
rows_per_person = 1
[file]
format = "csv"
header = false
strip = true
missing = ["?", ""]
[columns.age]
bounds = [17, 90]
[columns.work]
categories = ["Private", "State-gov", "unknown"]
missing = "unknown"
other = "unknown"
[columns.weight]
ignore = true
[columns.country]
categories = ["United-States", "elsewhere"]
other = "elsewhere"
missing = "elsewhere"
[columns.income]
categories = ["<=50K", ">50K"]
aliases = { "<=50K." = "<=50K", ">50K." = ">50K" }
"""


def adult_lines(rows, dot):
    chance = random.Random(rows)
    for _ in range(rows):
        age, work = chance.randint(17, 90), chance.choice(["Private", "State-gov", "Never", "?"])
        country = chance.choice(["United-States", "Peru", "?"])
        yield f"{age}, {work}, {chance.randint(1, 9**6)}, {country}, {'>' if age > 50 else '<='}50K{dot}"


def test_a_file_like_the_raw_adult_and_its_test_file(command):
    Path("adult.data").write_text("\n".join(adult_lines(300, "")) + "\n\n")
    Path("adult.test").write_text("\n".join(adult_lines(80, ".")) + "\n")
    Path("s.toml").write_text(ADULT)
    code, _, err = command(
        "fit", "adult.data", "--schema", "s.toml", "--target", "income", "--epsilon", 50, "-o", "out"
    )
    assert code == 0, err
    code, out, err = command("evaluate", "out", "adult.test", "--not-private", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["rows"], found["score"]) == (80, "accuracy")
    assert found["value"] > 0.8
    code, out, err = command("predict", "out", "adult.test")
    assert code == 0, err
    assert {line.split(",")[0] for line in out.splitlines()[1:]} == {"<=50K", ">50K"}


BROKEN = {
    "unlisted": (f"1,a,no\n2,{CANARY},yes\n", "column 'w' has a value that is not among its categories"),
    "not a number": (f"1,a,no\nx{CANARY},b,yes\n", "column 'n' holds something that is not a number"),
    "missing": (f"1,a,no\n,b,{CANARY}\n", "column 'n' has missing values"),
    "infinite": ("1,a,no\ninf,b,yes\n", "infinite"),
    "fields": (f"1,a,no\n2,b,yes,{CANARY}\n", "line 3: 4 fields where there are 3 columns"),
    "empty line": (f"1,a,no\n\n2,b,{CANARY}\n", "line 3 is empty"),
    "quote": (f'1,a,no\n2,a,"{CANARY}\n3,b,no\n', "error"),
    "label": (f"1,a,no\n2,b,{CANARY}\n", "column 'y' has a value that is not among its categories"),
    "no rows": ("", "no rows"),
    "late": ("1,a,no\n" * 70_000 + f"2,{CANARY},yes\n", "not among its categories"),
}
SMALL = {"n": {"bounds": [0, 10]}, "w": {"categories": ["a", "b"]}, "y": {"categories": ["no", "yes"]}}


def small_schema(as_toml, **changes):
    data = {"version": 1, "columns": SMALL, **changes}
    Path("s.toml").write_text("\n".join(f"{name} = {as_toml(value)}" for name, value in data.items()))


def everything_in(folder):
    return b"".join(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix not in (".csv", ".svm")
    )


@pytest.mark.parametrize("case", BROKEN)
def test_a_refused_table_costs_nothing_and_says_nothing(command, as_toml, tmp_path, case):
    content, text = BROKEN[case]
    small_schema(as_toml)
    Path("t.csv").write_text("n,w,y\n" + content)
    Ledger.create("b.db", dataset="d", epsilon=50.0)
    words = ("fit", "t.csv", "--schema", "s.toml", "--target", "y", "--epsilon", 1, "--ledger", "b.db", "-o", "out")
    code, out, err = command(*words)
    assert code == 2
    assert text in err
    assert (out, err.count("\n")) == ("", 1)
    assert Ledger("b.db").history() == []
    assert left() == []
    assert CANARY not in out + err
    assert CANARY.encode() not in everything_in(tmp_path)
    code, out, _ = command(*words, "--json")
    assert (code, json.loads(out)["code"]) == (2, 2)


def test_a_refused_libsvm_table(command, tmp_path):
    Path("s.toml").write_text(NUMBERED)
    Path("t.svm").write_text(f"1 1:0.5\n-1 2:{CANARY}\n")
    Ledger.create("b.db", dataset="d", epsilon=50.0)
    words = (
        "fit",
        "t.svm",
        "--schema",
        "s.toml",
        "--target",
        "target",
        "--epsilon",
        1,
        "--ledger",
        "b.db",
        "-o",
        "out",
    )
    code, out, err = command(*words)
    assert code == 2
    assert CANARY not in out + err
    assert Ledger("b.db").history() == []
    assert left() == []


def test_values_of_rows_are_nowhere_in_a_release(command, as_toml, tmp_path):
    """Ignored and unlisted values, and numbers beyond their bounds, do not leave the machine."""
    columns = {**SMALL, "w": {"categories": ["a", "b"], "other": "b"}, "name": {"ignore": True}}
    small_schema(as_toml, columns=columns)
    rows = [f"{i % 11},{'a' if i % 2 else 'b'},{'yes' if i % 3 else 'no'},{CANARY}" for i in range(60)]
    rows[7] = f"424242424242,{CANARY},yes,{CANARY}"
    Path("t.csv").write_text("n,w,y,name\n" + "\n".join(rows) + "\n")
    Ledger.create("b.db", dataset="d", epsilon=50.0)
    words = ("--schema", "s.toml", "--target", "y", "--epsilon", 1, "--ledger", "b.db", "-o", "out")
    code, out, err = command("fit", "t.csv", *words)
    assert code == 0, err
    for text in (CANARY, "424242424242"):
        assert text not in out + err
        assert text.encode() not in everything_in(tmp_path)


@pytest.mark.parametrize(
    ("header", "changes", "text"),
    [
        ("n,w,y,more", {}, "1 of the file's 4 columns are not in the schema"),
        ("n,w,z", {}, "the file has no column 'y'"),
        ("n,w,y,n", {"others": {"bounds": [0, 1]}}, "same name"),
        ("n,w,y", {"rows": 99}, "has 2 rows, and the schema says 99"),
    ],
)
def test_headers_that_do_not_fit(command, as_toml, header, changes, text):
    small_schema(as_toml, **changes)
    extra = ",5" * (header.count(",") - 2)
    Path("t.csv").write_text(f"{header}\n1,a,no{extra}\n2,b,yes{extra}\n")
    Ledger.create("b.db", dataset="d", epsilon=50.0)
    words = ("--schema", "s.toml", "--target", "y", "--epsilon", 1, "--ledger", "b.db", "-o", "out")
    code, _, err = command("fit", "t.csv", *words)
    assert code == 2
    assert text in err
    assert Ledger("b.db").history() == []


def test_other_columns_share_their_bounds(command, as_toml):
    small_schema(as_toml, others={"bounds": [0, 5]})
    Path("t.csv").write_text("p,n,w,y,q\n" + "1,2,a,no,9\n3,4,b,yes,1\n" * 20)
    assert command("fit", "t.csv", "--schema", "s.toml", "--target", "y", "--epsilon", 9, "-o", "out")[0] == 0
    model = epsilearn.load("out")
    assert model.encoding.names == ["p", "n", "w = a", "w = b", "q"]
    assert model.schema.columns["q"].bounds == (0, 5)


@pytest.fixture
def small(command, as_toml):
    """A small table that fits its schema, a ledger, and the words to fit it."""
    small_schema(as_toml)
    Path("t.csv").write_text("n,w,y\n" + "1,a,no\n9,b,yes\n" * 40)
    Ledger.create("b.db", dataset="d", epsilon=2.0)
    return ["fit", "t.csv", "--schema", "s.toml", "--target", "y", "--epsilon", "1", "--ledger", "b.db"]


BAD_USE = {
    "no output": ((), "where to?"),
    "there already": (("-o", "folder"), "there already"),
    "a file is there": (("-o", "t.csv"), "there already"),
    "a dangling link": (("-o", "link"), "there already"),
    "no parent": (("-o", "no/out"), "cannot write"),
    "parent is a file": (("-o", "t.csv/out"), "cannot write"),
    "root": (("-o", "/"), ""),
    "here": (("-o", "."), "there already"),
    "nothing": (("-o", ""), ""),
    "long": (("-o", "x" * 300), "cannot write"),
    "read-only": (("-o", "/proc/self/out"), "cannot write"),
    "no ledger": (("-o", "out", "--ledger", "no.db"), "there is no ledger"),
    "no database": (("-o", "out", "--ledger", "postgresql://nobody@127.0.0.1:1/x"), ""),
    "ledger is a table": (("-o", "out", "--ledger", "t.csv"), ""),
    "no data set": (("-o", "out", "--dataset", "other"), ""),
    "memory": (("-o", "out", "--memory", "1e300"), "--memory"),
    "little memory": (("-o", "out", "--memory", "1e-9"), "too large"),
    "no memory": (("-o", "out", "--memory", "nan"), "--memory"),
    "rows": (("-o", "out", "--rows", "79"), "80 rows"),
    "no rows": (("-o", "out", "--rows", "0"), "--rows"),
    "many rows": (("-o", "out", "--rows", "1" + "0" * 400), "--rows"),
    "epsilon": (("-o", "out", "--epsilon", "0"), "epsilon must be"),
    "no epsilon": (("-o", "out", "--epsilon", "nan"), "epsilon must be"),
    "tiny epsilon": (("-o", "out", "--epsilon", "1e-300"), ""),
    "delta": (("-o", "out", "--delta", "1"), "delta"),
    "alpha": (("-o", "out", "--alpha", "-1"), "alpha"),
    "huge alpha": (("-o", "out", "--alpha", "1e300"), ""),
    "no alpha": (("-o", "out", "--alpha", "much"), "--alpha must be a number or auto"),
    "model": (("-o", "out", "--model", "tree"), "model must be"),
    "radius": (("-o", "out", "--radius", "1"), "--radius is for"),
    "zero radius": (("-o", "out", "--model", "sparse-logistic", "--radius", "0"), "radius must be"),
    "alpha of a path": (("-o", "out", "--model", "sparse-logistic", "--alpha", "1"), "no meaning"),
    "landmarks": (("-o", "out", "--public-landmarks", "t.csv"), ""),
    "own rows": (("-o", "out", "--model", "landmark", "--public-landmarks", "t.csv"), "public rows"),
    "own rows, linked": (("-o", "out", "--model", "landmark", "--public-landmarks", "same.csv"), "public rows"),
    "target": (("-o", "out", "--target", "nobody"), "no column 'nobody'"),
    "numbers": (("-o", "out", "--model", "linear"), "predicts numbers"),
    "schema": (("-o", "out", "--schema", "no.toml"), "cannot read the schema"),
}


@pytest.mark.parametrize("case", BAD_USE)
def test_bad_use_costs_nothing_and_leaves_nothing(command, small, case):
    words, text = BAD_USE[case]
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")
    Path("same.csv").symlink_to("t.csv")
    before = sorted(Path().iterdir())
    code, out, err = command(*small, *words)
    assert code == 2, (out, err)
    assert text.lower() in err.lower()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(Path().iterdir()) == before
    assert Ledger("b.db").history() == []


def test_a_budget_that_does_not_suffice(command, small):
    assert command(*small, "-o", "out")[0] == 0
    code, _, err = command(*small, "--epsilon", "1.1", "-o", "again")
    assert code == 3
    assert "requested epsilon 1.1, spent epsilon 1 of epsilon 2" in err
    assert not Path("again").exists()
    assert len(Ledger("b.db").history()) == 1


def test_the_report_and_the_ledger_agree(command, small):
    assert command(*small, "-o", "out", "--purpose", "a <test>")[0] == 0
    (entry,) = Ledger("b.db").history()
    assert (entry["purpose"], entry["status"]) == ("a <test>", "delivered")
    promise = epsilearn.load("out").guarantee
    assert (promise.ledger.entry, promise.ledger.head) == (entry["entry"], entry["head"])
    assert "50.0% of the budget is used" in Path("out/report.html").read_text()


@pytest.mark.parametrize("words", [("--purpose", "\udcff"), ("--target", "\udcff"), ("--dataset", "\udcff")], ids=repr)
def test_words_that_are_no_text(command, small, words):
    """What a shell hands over need not be UTF-8."""
    code, _, _ = command(*small, *words, "-o", "out")
    assert code in (0, 2)
    history = Ledger("b.db").history()
    assert len(history) == Path("out").exists()
    assert all(entry["status"] == "delivered" for entry in history)


def test_a_folder_whose_name_is_no_text(command, small):
    code, _, _ = command(*small, "-o", "out\udcff")
    assert code in (0, 2)
    assert len(Ledger("b.db").history()) == Path("out\udcff").exists()


def test_a_disk_that_is_full(command, small):
    """A limit on the size of files stands for it: as with a full disk, writing fails after the debit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    words = [word for word in small if word not in ("--ledger", "b.db")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        code, out, err = command(*words, "-o", "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code in (1, 2)
    assert "cannot write" in err
    assert (out, err.count("\n")) == ("", 1)
    assert left() == []


# ------------------------------------------------------------------------------------- what is read of a table

CALLS = "trace=openat,open,read,pread64,readv,preadv,mmap,lseek,sendfile,copy_file_range"
RUN_ALL = """
import json, sys
from epsilearn.cli import _run
for words in json.load(sys.stdin):
    assert _run(words, as_json=False) == 0, words
"""


def traced(lines):
    """What commands do with files, as strace sees it: lines of its log."""
    if shutil.which("strace") is None:
        if os.environ.get("CI"):
            pytest.fail("strace is needed here: apt install strace")
        pytest.skip("no strace on this machine; install Debian's package of that name")
    done = subprocess.run(
        ["strace", "-ff", "--seccomp-bpf", "-y", "-e", CALLS, "-o", "strace", sys.executable, "-c", RUN_ALL],
        capture_output=True, text=True, check=False, input=json.dumps([list(map(str, words)) for words in lines]),
    )  # fmt: skip
    if "not permitted" in done.stderr and "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    return [line for log in Path().glob("strace.*") for line in log.read_text(errors="replace").splitlines()]


def calls_on(log, name):
    """(call, arguments, result) of everything that was done with a file of this name."""
    found = [re.search(r"(\w+)\((.*)\)\s+=\s+(-?\d+)", line) for line in log if name in line]
    assert all(found)
    return [(match[1], match[2], int(match[3])) for match in found if int(match[3]) >= 0]


def reads(calls):
    """The ranges of bytes that were read, one after the other."""
    position, found = 0, []
    for call, arguments, result in calls:
        if call in ("open", "openat"):
            position = 0
        elif call == "lseek":
            position = result
        elif call == "read":
            found.append((position, position + result))
            position += result
        elif call == "pread64":
            offset = int(arguments.rsplit(", ", 1)[1])
            found.append((offset, offset + result))
        else:
            pytest.fail(f"{call} of the table: {arguments}")
    return [(start, end) for start, end in found if end > start]


HEADER = "n,w,y\n"


def write_large(kind):
    """A table of a megabyte or more."""
    numbers, rows = np.random.default_rng(0).random(100_000), 100_000
    path = Path(f"large.{kind}").absolute()
    if kind in ("csv", "csv.gz"):
        text = HEADER + "".join(f"{number:.6f},a,no\n" for number in numbers)
        path.write_bytes(gzip.compress(text.encode(), 1) if kind == "csv.gz" else text.encode())
    elif kind == "svm":
        path.write_text("".join(f"1 1:{number:.6f} 3:1\n" for number in numbers))
    else:
        table = pa.table({"n": numbers, "w": ["a"] * rows, "y": ["no"] * rows})
        (pa.parquet.write_table if kind == "parquet" else pa.feather.write_feather)(table, path)
    return path


def commands_without_rows(path):
    schema, target = ("numbered.toml", "target") if path.suffix == ".svm" else ("s.toml", "y")
    yield ["schema", path, "-o", "-"]
    yield ["schema", "check", schema, path]
    yield ["fit", path, "--schema", schema, "--target", target, "--epsilon", 1, "--dry-run", "--rows", 100_000]


def zipped_header(content):
    """How many bytes of a gzipped file the first line takes."""
    unzip, text, needed = zlib.decompressobj(wbits=31), b"", 0
    while b"\n" not in text:
        text += unzip.decompress(content[needed : needed + 1])
        needed += 1
    return needed


def test_schemas_and_dry_runs_read_headers_alone_to_the_byte(command, as_toml):
    small_schema(as_toml)
    Path("numbered.toml").write_text(NUMBERED)
    paths = {kind: write_large(kind) for kind in ("csv", "csv.gz", "parquet", "arrow", "svm")}
    log = traced([words for path in paths.values() for words in commands_without_rows(path)])
    sizes = {kind: path.stat().st_size for kind, path in paths.items()}
    ranges = {kind: reads(calls_on(log, f"{path.name}>")) for kind, path in paths.items()}
    spans = {kind: (min(a for a, _ in found), max(b for _, b in found)) for kind, found in ranges.items() if found}
    assert spans["csv"] == (0, len(HEADER))
    assert spans["csv.gz"] == (0, zipped_header(paths["csv.gz"].read_bytes()))
    footer = 8 + int.from_bytes(paths["parquet"].read_bytes()[-8:-4], "little")
    assert spans["parquet"] == (sizes["parquet"] - footer, sizes["parquet"])
    message = 16 + int.from_bytes(paths["arrow"].read_bytes()[12:16], "little")
    assert spans["arrow"] == (0, message)
    assert "svm" not in spans
    assert max(footer, message, spans["csv.gz"][1]) < min(sizes.values()) / 50


# --------------------------------------------------------------------------------------------------- interruptions

LIMIT = 600  # seconds; far more than anything here takes


@pytest.fixture(scope="session")
def busy(tmp_path_factory):
    """A folder with a table that takes a while, and its schema."""
    folder = tmp_path_factory.mktemp("busy")
    chance = np.random.default_rng(0)
    numbers = chance.random((20_000, 12)).round(4).astype(str)
    lines = [",".join(row) + (",yes" if float(row[0]) > 0.5 else ",no") for row in numbers.tolist()]
    names = [f"x{i}" for i in range(12)]
    for name, rows in (("t.csv", 20_000), ("few.csv", 60)):
        (folder / name).write_text(",".join([*names, "y"]) + "\n" + "\n".join(lines[:rows]) + "\n")
    columns = "\n".join(f"[columns.{name}]\nbounds = [0, 1]" for name in names)
    (folder / "s.toml").write_text(f'version = 1\n{columns}\n[columns.y]\ncategories = ["no", "yes"]\n')
    return folder


SERVER = """
import gc, json, os, signal, sys
from epsilearn import Ledger
from epsilearn.cli import _run, main

folder = sys.argv[1]
Ledger.create(folder + "/warm.db", dataset="d", epsilon=1.0)
words = ["fit", folder + "/few.csv", "--schema", folder + "/s.toml", "--target", "y", "--epsilon", "1"]
assert _run([*words, "--ledger", folder + "/warm.db", "-o", folder + "/warm"], as_json=True) == 0
# What the first run left behind is cleared away here, not in every child: Python loses a signal that comes while it
# calls what wants to hear of garbage, and there is much of it to go through.
gc.collect()
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    here, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(here)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), stream)
        code = None
        try:
            try:
                main(words)
            except SystemExit as end:
                code = end.code
            sys.stdout.flush()
        except BaseException:
            if code is None:  # the signal came before the program had begun: it ends like one that never did
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        # Arrow's threads did not come along in the fork, and taking them down would fail.
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Fit:
    """A process of its own that fits; the modules are loaded already, so that little time is lost."""

    def __init__(self, server, busy, here):
        self._server, self._here, self.returncode = server, here, None
        words = ["fit", str(busy / "t.csv"), "--schema", str(busy / "s.toml"), "--target", "y", "--epsilon", "0.001"]
        line = json.dumps([str(here), [*words, "--ledger", "b.db", "-o", "out"]])
        server.stdin.write(line.encode() + b"\n")
        self.pid = int(server.stdout.readline())

    def poll(self, timeout=0.0):
        if self.returncode is None and select.select([self._server.stdout], [], [], timeout)[0]:
            self.returncode = int(self._server.stdout.readline())
        return self.returncode

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.kill(self.pid, number)

    def complaint(self):
        assert self.poll(LIMIT) is not None
        return (self._here / "stderr").read_text()


@pytest.fixture(scope="module")
def start(busy):
    """What starts a fit of the busy table in a folder."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as server:
        while server.stdout.readline() != b"ready\n":
            assert server.poll() is None
        yield lambda here: Fit(server, busy, here)
        server.stdin.close()


def check_after(here, number, process, debits):
    """What must hold after a fit that was sent a signal; how many debits there are now."""
    err = process.complaint()
    history = Ledger(str(here / "b.db")).history()
    Ledger(str(here / "b.db")).verify()
    new = history[debits:]
    assert len(new) <= 1
    partial = [path.name for path in here.iterdir() if path.name.endswith(".partial")]
    if (here / "out").exists():
        assert sorted(path.name for path in (here / "out").iterdir()) == FILES
        model = epsilearn.load(here / "out")
        assert model.guarantee.ledger.head == new[0]["head"]
        if number is not signal.SIGKILL:
            assert new[0]["status"] == "delivered"
    else:
        assert all(entry["status"] == "spent, not delivered" for entry in new)
        assert process.returncode != 0
    if number is not signal.SIGKILL:
        assert partial == []
        assert process.returncode in (0, 130, -number), err
        assert err.startswith("error: interrupted" if process.returncode == 130 else "")
        assert err.count("\n") == (process.returncode == 130)
    return len(history)


def wait_for(condition, process):
    """Wait until something is so, or the process has ended; whether it is so."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return bool(found or condition())


def has_begun_to_write(here):
    return lambda: list(here.glob(".out*.partial"))


def has_debited(here, debits=0):
    return lambda: len(Ledger(str(here / "b.db")).history()) > debits


@contextlib.contextmanager
def busy_ledger(here):
    """The ledger is kept busy from outside: whoever would debit it waits."""
    lock = sqlite3.connect(here / "b.db", isolation_level=None, timeout=LIMIT)
    lock.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        lock.execute("ROLLBACK")
        lock.close()


def interrupt_often(start, here, moments, seed):
    Ledger.create(str(here / "b.db"), dataset="d", epsilon=1.0)
    process = start(here)
    assert process.poll(LIMIT) == 0
    debits, chance, cut = check_after(here, signal.SIGINT, process, 0), random.Random(seed), 0
    for i in range(moments):
        for path in (here / "out", *here.glob("*.partial"), *here.glob(".*.partial")):
            shutil.rmtree(path, ignore_errors=True)
        number = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[i % 3]
        # Some time after it began, began to write, or paid: by the clock alone a busy machine would hit none of these.
        moment = (lambda: True, has_begun_to_write(here), has_debited(here, debits))[i // 3 % 3]
        process = start(here)
        wait_for(moment, process)
        if process.poll(0.01 + chance.random() / 10) is None:
            process.send_signal(number)
        debits = check_after(here, number, process, debits)
        cut += process.returncode != 0
    assert cut >= moments / 4


def test_a_fit_that_is_interrupted(start, tmp_path):
    interrupt_often(start, tmp_path, 12, seed=1)


@pytest.mark.slow
def test_a_fit_that_is_interrupted_at_many_moments(start, tmp_path):
    interrupt_often(start, tmp_path, 60, seed=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_between_the_folder_and_the_ledger_nobody_interrupts(start, tmp_path, number):
    """The ledger is kept busy after the debit, so that the fit has to wait with its delivery."""
    for attempt in range(20):
        here = tmp_path / str(attempt)
        here.mkdir()
        Ledger.create(str(here / "b.db"), dataset="d", epsilon=1.0)
        process = start(here)
        wait_for(has_debited(here), process)
        with busy_ledger(here):
            in_time = Ledger(str(here / "b.db")).history()[0]["status"] != "delivered"
            if in_time:
                assert wait_for((here / "out").exists, process)
                process.send_signal(number)
                # However long it takes, nothing may come of it; whatever would is given some time.
                assert process.poll(0.2) is None
        assert check_after(here, number, process, 0) == 1
        assert (here / "out").exists()
        if in_time:
            return
    pytest.fail("every fit was delivered before its ledger could be kept busy")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_after_the_debit_an_interrupted_fit_reads_spent_not_delivered(start, tmp_path, number):
    Ledger.create(str(tmp_path / "b.db"), dataset="d", epsilon=1.0)
    process = start(tmp_path)
    wait_for(has_debited(tmp_path), process)
    process.send_signal(number)
    assert check_after(tmp_path, number, process, 0) == 1


def test_what_a_killed_fit_left_is_cleared_by_the_next(start, tmp_path):
    Ledger.create(str(tmp_path / "b.db"), dataset="d", epsilon=1.0)
    with busy_ledger(tmp_path):
        process = start(tmp_path)
        assert wait_for(has_begun_to_write(tmp_path), process)
        process.send_signal(signal.SIGKILL)
        assert check_after(tmp_path, signal.SIGKILL, process, 0) == 0
    assert list(tmp_path.glob(".out*.partial"))
    check_after(tmp_path, signal.SIGINT, start(tmp_path), 0)
    assert (tmp_path / "out").exists()


def test_two_fits_into_one_folder_pay_once(start, busy, command, tmp_path):
    Ledger.create(str(tmp_path / "b.db"), dataset="d", epsilon=1.0)
    with busy_ledger(tmp_path):
        process = start(tmp_path)
        assert wait_for(has_begun_to_write(tmp_path), process)
        words = ("--schema", busy / "s.toml", "--target", "y", "--epsilon", 0.001, "--ledger", "b.db", "-o", "out")
        code, _, err = command("fit", busy / "few.csv", *words)
    assert code == 2
    assert "another process is writing" in err
    assert check_after(tmp_path, signal.SIGINT, process, 0) == 1


@pytest.mark.slow
def test_the_real_program_is_interrupted(busy, tmp_path):
    Ledger.create(str(tmp_path / "b.db"), dataset="d", epsilon=1.0)
    words = [busy / "t.csv", "--schema", busy / "s.toml", "--target", "y", "--epsilon", "0.001"]
    process = subprocess.Popen(
        [sys.executable, "-m", "epsilearn.cli", "fit", *words, "--ledger", "b.db", "-o", "out"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert wait_for(has_begun_to_write(tmp_path), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("error: interrupted")
    assert left(tmp_path) == []


# ------------------------------------------------------------------------------------------------------- random words

WORDS = [
    "fit", "plan", "schema", "predict", "show", "evaluate", "export", "stats", "explain", "ledger", "check", "write",
    "t.csv", "s.toml", "out", "b.db", "--schema", "--target", "y", "n", "--epsilon", "1", "0", "-1", "nan", "inf",
    "1e300", "1e-300", "--delta", "--model", "logistic", "lasso", "linear", "svm", "-o", "new", ".", "/", "", "--rows",
    "80", "--features", "--json", "--dry-run", "--ledger", "--alpha", "--method", "output", "--radius", "--norm",
    "--memory", "--top", "--format", "onnx", "--not-private", "--help", "--column", "--classes", "3", "--loss", "é\n",
]  # fmt: skip
BASES = [
    ["fit", "t.csv", "--schema", "s.toml", "--target", "y", "--epsilon", "1", "--ledger", "b.db", "-o", "new"],
    ["fit", "t.csv", "--schema", "s.toml", "--target", "n", "--epsilon", "1", "--model", "linear", "--dry-run"],
    ["plan", "--rows", "80", "--features", "3", "--epsilon", "1"],
    ["schema", "t.csv"],
    ["predict", "model", "t.csv"],
    ["evaluate", "model", "t.csv", "--epsilon", "1"],
    ["show", "model"],
    ["export", "model", "--format", "sklearn"],
]
MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "swap", "add"]), st.integers(0, 20), st.sampled_from(WORDS)), max_size=4
)


@pytest.fixture(scope="session")
def playground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "t.csv").write_text("n,w,y\n" + "1,a,no\n9,b,yes\n" * 40)
    text = 'version = 1\ncolumns = {n = {bounds = [0, 10]}, w = {categories = ["a", "b"]}, '
    (folder / "s.toml").write_text(text + 'y = {categories = ["no", "yes"]}}')
    before = Path.cwd()
    os.chdir(folder)
    try:
        words = ["--schema", "s.toml", "--target", "y", "--epsilon", "1", "-o", "model"]
        assert _run(["fit", "t.csv", *words], as_json=False) == 0
    finally:
        os.chdir(before)
    return folder


def say(folder, words, capsys):
    """Run words in the playground and put it in order again; nothing may be half done."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        Path("b.db").unlink(missing_ok=True)
        Ledger.create("b.db", dataset="d", epsilon=100.0)
        files = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.name != "b.db"}
        code = _run(list(words), as_json="--json" in words)
        captured = capsys.readouterr()
        assert code in (0, 1, 2, 3)
        assert code != 1 or "unexpected" not in captured.out + captured.err, captured
        assert "Traceback" not in captured.out + captured.err
        if Path("b.db").is_file():
            history = Ledger("b.db").history()
            fits = words and words[0] == "fit"
            if fits and any(entry["status"] == "delivered" for entry in history):
                assert code == 0
            assert not any(path.name.endswith("partial") for path in Path().iterdir())
        for path in Path().iterdir():
            if path.is_dir() and path.name != "model":
                assert sorted(part.name for part in path.iterdir()) == FILES
                epsilearn.load(path)
                shutil.rmtree(path)
            elif path not in files and path.is_file() and path.name != "b.db":
                path.unlink()
        for path, content in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    finally:
        os.chdir(before)


def mutated(base, changes):
    words = list(base)
    for kind, number, word in changes:
        place = number % (len(words) + 1)
        if kind == "add" or place >= len(words):
            words.insert(place, word)
        elif kind == "put":
            words[place] = word
        elif kind == "drop":
            del words[place]
        else:
            words[place], words[0] = words[0], words[place]
    return words


FEW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=FEW)
@given(st.sampled_from(BASES), MUTATIONS)
def test_random_words(playground, capsys, base, changes):
    say(playground, mutated(base, changes), capsys)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=FEW)
@given(st.sampled_from(BASES), MUTATIONS)
def test_hundreds_of_random_words(playground, capsys, base, changes):
    say(playground, mutated(base, changes), capsys)


CELL = st.sampled_from(
    ["", "1", "5.5", "-3", "a", "b", "c", "yes", "no", "?", "true", "1e999", "nan", '"', "é", " a", "x,y", "\r"]
)
LINES = st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=6)
COLUMN = st.sampled_from(
    [
        {"bounds": [0, 10]},
        {"bounds": [-1, 1], "missing": 0},
        {"categories": ["a", "b"], "other": "b", "missing": "a"},
        {"categories": ["yes", "no"]},
        {"categories": [1, 5.5], "other": 1},
        {"categories": [False, True], "missing": False},
        {"ignore": True},
    ]
)
WRITTEN = st.fixed_dictionaries({"strip": st.booleans(), "missing": st.sampled_from([[""], ["?", ""], []])})


def fit_random_table(folder, as_toml, capsys, columns, written, lines, model, good):
    names = ["p", "q", "y"]
    data = {"version": 1, "file": written, "columns": dict(zip(names, columns, strict=True))}
    (folder / "r.toml").write_text("\n".join(f"{name} = {as_toml(value)}" for name, value in data.items()))
    lines = [",".join(cells) for cells in lines] + ["1,a,yes", "5.5,b,no"] * good
    (folder / "r.csv").write_text("p,q,y\n" + "\n".join(lines) + "\n", newline="")
    words = ["fit", "r.csv", "--schema", "r.toml", "--target", "y", "--epsilon", "1", "--model", model]
    say(folder, [*words, "--ledger", "b.db", "-o", "new"], capsys)


TABLES = (
    st.tuples(COLUMN, COLUMN, COLUMN),
    WRITTEN,
    LINES,
    st.sampled_from(["logistic", "svm", "linear", "lasso", "sparse-logistic"]),
    st.integers(0, 10),
)


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=FEW)
@given(*TABLES)
def test_random_tables(playground, as_toml, capsys, columns, written, lines, model, good):
    fit_random_table(playground, as_toml, capsys, columns, written, lines, model, good)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=FEW)
@given(*TABLES)
def test_hundreds_of_random_tables(playground, as_toml, capsys, columns, written, lines, model, good):
    fit_random_table(playground, as_toml, capsys, columns, written, lines, model, good)


def test_words_for_landmarks_are_refused_for_other_models(command, small):
    code, _, err = command(*small, "--kernel", "polynomial", "-o", "out")
    assert code == 2
    assert "for landmark models" in err
    assert not Path("out").exists()
