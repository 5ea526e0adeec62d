"""The command line, as a person meets it: one process a command, exit codes, one-line errors, valid JSON."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from epsilearn import Guarantee, Ledger
from epsilearn.cli import _run


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; give back its exit code, output and complaints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("epsilearn.cli.common.console.width", 120)

    def go(*words: str) -> tuple[int, str, str]:
        code = _run(list(words), as_json="--json" in words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


@pytest.fixture
def table(tmp_path) -> Path:
    generator = np.random.default_rng(0)
    lines = [f"{i},{generator.integers(18, 95)},{generator.choice(['m', 'f'])}" for i in range(500)]
    path = tmp_path / "patients.csv"
    path.write_text("id,age,sex\n" + "\n".join(lines) + "\n")
    return path


def test_the_real_program_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "epsilearn.cli", "explain", "--epsilon", "1"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for text in ("0.731", "1.359 (capped at 1)", "0.462"):
        assert text in done.stdout
    assert (tmp_path / "epsilon-1.png").read_bytes().startswith(b"\x89PNG")
    refused = subprocess.run(
        [sys.executable, "-m", "epsilearn.cli", "explain", "--epsilon", "-1"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert refused.stderr.strip() == "error: epsilon must be a finite number above 0, got -1.0"


def test_explain_as_json(run):
    code, out, _ = run("explain", "--epsilon", "1", "--figure", "f.svg", "--json")
    data = json.loads(out)
    assert code == 0
    assert round(data["winning_probability"], 3) == 0.731
    assert Path(data["figure"]).read_text().startswith("<?xml")
    code, out, _ = run("explain", "--epsilon", "100000", "--json")
    assert json.loads(out)["lecture_winning_bound"] == "infinity"


def test_a_statistic_with_a_ledger(run, table):
    assert run("ledger", "create", "b.db", "--dataset", "patients", "--epsilon", "1")[0] == 0
    code, out, _ = run(
        "stats", str(table), "--column", "age", "--bounds", "0,120", "--epsilon", "0.5",
        "--ledger", "b.db", "--guarantee", "g.json", "--json",
    )  # fmt: skip
    assert code == 0
    data = json.loads(out)
    assert abs(data["value"] - 56) < 20
    promise = Guarantee.from_json(Path("g.json").read_text())
    assert promise == Guarantee.from_dict(data["guarantee"])
    assert run("ledger", "verify", "b.db", "--head", promise.ledger.head)[0] == 0
    code, out, err = run(
        "stats", str(table), "--column", "age", "--bounds", "0,120", "--epsilon", "0.6", "--ledger", "b.db"
    )
    assert code == 3
    assert out == ""
    assert "requested epsilon 0.6, spent epsilon 0.5 of epsilon 1" in err.replace("\n", " ")
    code, out, _ = run("ledger", "show", "b.db")
    assert "50.0%" in out
    code, out, _ = run("ledger", "history", "b.db", "--json")
    (entry,) = json.loads(out)
    assert entry["purpose"] == "mean of age"
    code, out, _ = run("ledger", "history", "b.db")
    assert "mean of age" in out
    assert "delivered" in out


@pytest.mark.parametrize(
    "words",
    [
        ("--column", "age", "--statistic", "sum", "--bounds", "0,120"),
        ("--column", "age", "--statistic", "variance", "--bounds", "0,120", "--delta", "1e-6"),
        ("--column", "age", "--statistic", "median", "--bounds", "0,120"),
        ("--column", "age", "--statistic", "quantile", "--q", "0.9", "--bounds", "0,120"),
        ("--column", "age", "--statistic", "histogram", "--edges", "0,30,60,120"),
        ("--column", "sex", "--statistic", "histogram", "--categories", "m,f,x"),
        ("--column", "sex", "--statistic", "count", "--equals", "m"),
        ("--column", "age", "--statistic", "count", "--equals", "40"),
    ],
    ids=" ".join,
)
def test_every_statistic(run, table, words):
    code, out, err = run("stats", str(table), *words, "--epsilon", "2")
    assert (code, err) == (0, "")
    assert "promise" in out
    code, out, _ = run("stats", str(table), *words, "--epsilon", "2", "--json")
    assert json.loads(out)["guarantee"]["epsilon"] == 2


def test_every_option_is_read_before_the_debit(run, table):
    """Even one the statistic does not use: a release that is paid for must be shown."""
    run("ledger", "create", "b.db", "--dataset", "d", "--epsilon", "1")
    words = ("--column", "age", "--bounds", "0,120", "--edges", "a,b", "--ledger", "b.db")
    assert run("stats", str(table), *words)[0] == 2
    assert Ledger("b.db").history() == []


def test_histograms_say_what_they_count(run, table):
    words = ("stats", str(table), "--column", "age", "--statistic", "histogram", "--edges", "0,30,120")
    _, out, _ = run(*words)
    assert "0 to 30" in out
    assert "30 to 120" in out
    assert json.loads(run(*words, "--json")[1])["bins"] == ["0 to 30", "30 to 120"]


def write_parquet(frame: pa.Table, path: Path) -> None:
    pa.parquet.write_table(frame, path)


def write_feather(frame: pa.Table, path: Path) -> None:
    pa.feather.write_feather(frame, path)


def write_arrow(frame: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, frame.schema) as writer:
        writer.write_table(frame)


def write_gzip(frame: pa.Table, path: Path) -> None:
    rows = "\n".join(str(v) for v in frame["age"].to_pylist())
    path.write_bytes(gzip.compress(f"age\n{rows}\n".encode()))


def write_tsv(frame: pa.Table, path: Path) -> None:
    path.write_text("id\tage\n" + "\n".join(f"{i}\t{v}" for i, v in enumerate(frame["age"].to_pylist())))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.parquet", write_parquet),
        ("t.feather", write_feather),
        ("t.arrow", write_arrow),
        ("t.csv.gz", write_gzip),
        ("t.tsv", write_tsv),
    ],
)
def test_every_kind_of_file(run, tmp_path, name, write):
    write(pa.table({"age": [20, 30, 40]}), tmp_path / name)
    code, out, err = run("stats", name, "--column", "age", "--bounds", "0,100", "--epsilon", "1e6", "--json")
    assert code == 0, err
    assert abs(json.loads(out)["value"] - 30) < 0.01


CANARY = "424242"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (f"id,age\n1,20\n2,{CANARY},9\n3,40\n", "line 3: 3 fields where there are 2 columns"),
        (f"id,age\n1,20\n{CANARY}\n", "line 3: 1 fields where there are 2 columns"),
        (f"id,age\n1,20\n2,x{CANARY}\n", "not a number"),
        (f"id,age\n1,20\n2,\n3,{CANARY}\n", "missing"),
        (f"id,age\n1,nan\n2,{CANARY}\n", "NaN"),
        (f"id,age\n1,inf\n2,{CANARY}\n", "infinite"),
        ("id,age\n", "no rows"),
        ("", "empty"),
        ("id\n1\n", "no column 'age'"),
    ],
    ids=range(9),
)
def test_bad_tables_are_one_line_cost_nothing_and_quote_nothing(run, content, text):
    Path("t.csv").write_text(content)
    run("ledger", "create", "b.db", "--dataset", "d", "--epsilon", "1")
    code, out, err = run(
        "stats", "t.csv", "--column", "age", "--bounds", "0,9", "--ledger", "b.db", "--guarantee", "g.json"
    )
    assert code == 2
    assert text in err
    assert CANARY not in err + out
    assert err.count("\n") == 1
    assert not Path("g.json").exists()
    assert Ledger("b.db").history() == []


def test_a_column_that_turns_into_text_far_down_quotes_nothing(run):
    rows = [str(i) for i in range(400_000)] + [f"x{CANARY}"]
    Path("t.csv").write_text("age\n" + "\n".join(rows))
    code, _, err = run("stats", "t.csv", "--column", "age", "--bounds", "0,9")
    assert code == 2
    assert "not a number" in err
    assert CANARY not in err


@pytest.mark.parametrize(("common", "other"), [("1", "2.5"), ("01234", "K1A"), ("true", "unknown"), ("", "x")])
def test_one_record_moves_a_count_by_at_most_one(run, common, other):
    """CSV has no types: guessing them would let one odd record change how every other one is read."""
    counts = []
    for last in (common, other):
        Path("t.csv").write_text("code,n\n" + f"{common},1\n" * 999 + f"{last},1\n")
        words = ("--column", "code", "--statistic", "count", "--equals", common, "--epsilon", "1e6", "--json")
        code, out, err = run("stats", "t.csv", *words)
        assert code == 0, err
        counts.append(json.loads(out)["value"])
    assert counts == [1000, 999]


def test_counts_compare_numbers_where_the_file_has_types(run, tmp_path):
    write_parquet(pa.table({"age": [1.0, 2.5, 1.0]}), tmp_path / "t.parquet")
    words = ("--column", "age", "--statistic", "count", "--equals", "1", "--epsilon", "1e6", "--json")
    assert json.loads(run("stats", "t.parquet", *words)[1])["value"] == 2


def neighbours_of(lines: list[str], row: int, other: str) -> list[str]:
    return [*lines[:row], other, *lines[row + 1 :]]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("other", ['50,"Bob', '"50,Bob', '50,B"ob', "", ' ,"', '50,"a\nb"'])
def test_one_record_cannot_swallow_the_others(run, name, other):
    """A quotation mark that is never closed joins lines; a blank line may vanish. Both are errors or harmless."""
    lines = neighbours_of(["50,name"] * 1000, 500, other)
    text = "age,name\n" + "\n".join(lines) + "\n"
    Path(name).write_text(text.replace(",", "\t") if name == "t.tsv" else text)
    code, out, err = run(
        "stats", name, "--column", "age", "--statistic", "sum", "--bounds", "0,100", "--epsilon", "1e6", "--json"
    )
    if code == 0:
        assert abs(json.loads(out)["value"] - 50_000) <= 100.1
    else:
        assert code == 2
        assert "Bob" not in out + err


def test_blank_lines_of_a_single_column_are_not_dropped(run):
    Path("t.csv").write_text("code\n" + "a\n" * 5 + "\n" + "a\n" * 4)
    words = ("--column", "code", "--statistic", "histogram", "--categories", "a,", "--epsilon", "1e6", "--json")
    code, out, err = run("stats", "t.csv", *words)
    assert code == 0, err
    assert json.loads(out)["value"] == [9, 1]


def test_a_file_without_a_header_is_not_quoted(run):
    Path("t.csv").write_text("34,Alice Smith,HIV+\n35,Bob,HIV-\n")
    code, out, err = run("stats", "t.csv", "--column", "age", "--bounds", "0,100")
    assert code == 2
    assert "Alice" not in out + err


def test_equals_reads_numbers_exactly(run, tmp_path):
    big = 2**53 + 1
    write_parquet(pa.table({"id": [big, big - 1, big]}), tmp_path / "t.parquet")
    words = ("stats", "t.parquet", "--column", "id", "--statistic", "count", "--epsilon", "1e6", "--json", "--equals")
    assert json.loads(run(*words, str(big))[1])["value"] == 2
    assert run(*words, "1,2")[0] == 2
    write_parquet(pa.table({"id": [1.0, float("nan")]}), tmp_path / "t.parquet")
    assert run(*words, "1")[0] == 2


def test_two_columns_of_one_name(run):
    Path("t.csv").write_text("age,age\n1,2\n")
    code, _, err = run("stats", "t.csv", "--column", "age", "--bounds", "0,9")
    assert code == 2
    assert "2 columns called 'age'" in err


def test_damaged_files(run):
    for name in ("t.parquet", "t.arrow"):
        Path(name).write_bytes(b"PAR1 nonsense " * 10)
        code, _, err = run("stats", name, "--column", "age", "--bounds", "0,9")
        assert (code, err.count("\n")) == (2, 1)
        assert "damaged or of another kind" in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("stats", "nowhere.csv", "--column", "age", "--bounds", "0,1"), "there is no file"),
        (("stats", "t.xyz", "--column", "age", "--bounds", "0,1"), "unknown kind of file"),
        (("stats", "t.csv", "--column", "age"), "--bounds is missing"),
        (("stats", "t.csv", "--column", "age", "--bounds", "1,0"), "below the upper"),
        (("stats", "t.csv", "--column", "age", "--bounds", "a,b"), "numbers separated by commas"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--epsilon", "0"), "epsilon must be"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--epsilon", "nan"), "epsilon must be"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--delta", "1"), "delta must lie"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--epsilon", "1e-300"), "noise scale"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--ledger", "no.db"), "there is no ledger"),
        (
            ("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--guarantee", "no/g.json"),
            "cannot write no/g.json",
        ),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--guarantee", "."), "it is a folder"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--guarantee", "x" * 300), "cannot write"),
        (("stats", "t.csv", "--column", "age", "--statistic", "mode"), "unknown statistic"),
        (("stats", "t.csv", "--column", "age", "--statistic", "count"), "--equals"),
        (("stats", "t.csv", "--column", "age", "--statistic", "histogram"), "--edges or --categories"),
        (("stats", "t.csv", "--column", "age", "--statistic", "median", "--bounds", "0,1", "--delta", "0.1"), "pure"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--rows-per-person", "0"), "rows_per_person"),
        (("stats", "t.csv", "--column", "age", "--bounds", "0,1", "--edges", "a,b"), "--edges must be numbers"),
        (("stats", "t.csv"), "--column"),
        (("stats",), "FILE"),
        (("explain",), "--epsilon"),
        (("explain", "--epsilon", "x"), "--epsilon"),
        (("explain", "--epsilon", "1", "--figure", "f.txt"), ".png, .svg or .pdf"),
        (("explain", "--epsilon", "1", "--figure", "no/f.png"), "cannot write the figure"),
        (("ledger",), "command"),
        (("ledger", "show", "no.db"), "there is no ledger"),
        (("ledger", "create", "b.db", "--dataset", "d", "--epsilon", "-1"), "epsilon"),
        (("nonsense",), "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_use(run, words, text):
    Path("t.csv").write_text("age\n1\n2\n")
    Path("t.xyz").write_text("")
    before = set(Path().iterdir())
    code, out, err = run(*words)
    assert code == 2
    assert text.lower() in err.lower().replace("\n", " ")
    assert out == ""
    code, out, err = run(*words, "--json")
    assert code == 2
    assert json.loads(out)["code"] == 2
    assert set(Path().iterdir()) == before


def test_verify_finds_tampering(run):
    run("ledger", "create", "b.db", "--dataset", "d", "--epsilon", "1")
    code, out, err = run("ledger", "verify", "b.db", "--head", "f" * 64)
    assert code == 3
    assert "rolled back" in err
    code, out, _ = run("ledger", "verify", "b.db", "--json")
    assert json.loads(out)["intact"] is True


def test_help_and_version(run):
    code, out, _ = run()
    assert code == 0
    assert "ledger" in out
    code, out, _ = run("--version")
    assert (code, out.split()[0]) == (0, "epsilearn")


def test_interruption(run, monkeypatch):
    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("epsilearn.explanation.explain", interrupt)
    assert run("explain", "--epsilon", "1")[0] == 130


def test_a_reader_that_goes_away(tmp_path):
    command = f"{sys.executable} -m epsilearn.cli explain --epsilon 1 | head -n 1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
