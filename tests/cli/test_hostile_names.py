"""Names that somebody made to take over a terminal, in every command that prints what files hold."""

from __future__ import annotations

import ast
import json
import sys
import unicodedata
import warnings
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.test_ledger import edit

import epsilearn.cli
from epsilearn import Guarantee, Ledger, Schema
from epsilearn.cli.common import harmless, show_warning
from epsilearn.job import Job
from epsilearn.ledger_store import Header, Store
from epsilearn.model_file import model_to_json

# A colour, a window's title, bells, a C1 control, an override of direction, ends of lines, markup and an emoji's code.
EVIL = "a\x1b[31mb\x1b]0;pwn\x07c\x9b1md\u202etxt\u2066\n\r\u2028\x7f[red]x[/red][/]:bomb:\\[bold]"
SEEN = harmless(EVIL)
COMMANDS = Path(epsilearn.cli.__file__).parent


def check(text: str, *, told: bool = True) -> None:
    """Nothing is left that a terminal obeys, and the name can be read."""
    left = {char for char in text if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029"} - {"\n"}
    assert not left, text
    if told:
        # A narrow column folds it.
        assert "".join(SEEN.split()) in "".join(text.split()), text


@pytest.fixture(scope="module")
def model():
    columns = {EVIL: {"bounds": [0, 1]}, "t" + EVIL: {"categories": ["no" + EVIL, "yes" + EVIL, "other"]}}
    job = Job(Schema.from_dict({"version": 1, "columns": columns}), "t" + EVIL, epsilon=50.0)
    return job.fit(job.encoding.matrix(table().drop_columns(["t" + EVIL])), job.encoding.targets(table()))


def table() -> pa.Table:
    return pa.table({EVIL: [0.1, 0.9, 0.5] * 20, "t" + EVIL: ["no" + EVIL, "yes" + EVIL, "other"] * 20})


@pytest.fixture
def files(command, model, as_toml):
    """A model, a table and a schema that somebody else made."""
    Path("model.json").write_text(model_to_json(model), encoding="utf-8")
    pyarrow.parquet.write_table(table(), "t.parquet")
    pyarrow.parquet.write_table(pa.table({"x" + EVIL: [1, 2]}), "other.parquet")
    public = model.schema.to_dict()["columns"]
    Path("s.toml").write_text(f"version = 1\ncolumns = {as_toml(public)}\n", encoding="utf-8")
    Path("bad.toml").write_text(
        f"version = 1\ncolumns = {as_toml({**public, EVIL: {'bounds': [2, 1]}})}\n", encoding="utf-8"
    )
    return command


def test_escapes_are_shown():
    assert SEEN.startswith(r"a\x1b[31mb\x1b]0;pwn\x07c\x9b1md\u202etxt\u2066\n\r\u2028\x7f[red]x")
    assert harmless("Jürgen 年次\u3000報告 م\u200cی 👩\u200d🔬") == "Jürgen 年次\u3000報告 م\u200cی 👩\u200d🔬"
    assert harmless("two\nlines\x1b", "\n") == "two\nlines\\x1b"


def test_show(files):
    code, out, err = files("show", "model.json")
    assert (code, err) == (0, "")
    check(out)
    code, out, _ = files("show", "model.json", "--json")
    check(out, told=False)
    assert json.loads(out)["target"] == "t" + EVIL


def test_a_guarantee_that_somebody_wrote(files, model):
    promise = replace(model.guarantee, theorem=EVIL, relation=EVIL)
    Path("other.json").write_text(model_to_json(replace(model, guarantee=promise)), encoding="utf-8")
    _, out, _ = files("show", "other.json")
    check(out)


def test_predictions(files, monkeypatch):
    """As they are for a program; on a terminal they cannot be obeyed."""
    code, raw, err = files("predict", "model.json", "t.parquet")
    assert (code, err) == (0, "")
    assert "yes" + EVIL in raw
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, _ = files("predict", "model.json", "t.parquet")
    assert code == 0
    check(out.replace("\\n", "").replace("\n", ""), told=False)
    assert "probability of yes" + harmless(EVIL, "\n") in out
    code, out, _ = files("predict", "model.json", "t.parquet", "-o", "p\x1b[31m.csv")
    assert code == 0
    check(out)


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "model.json", "other.parquet"),
        ("evaluate", "model.json", "other.parquet", "--not-private"),
        ("schema", "check", "s.toml", "other.parquet"),
        ("schema", "check", "bad.toml"),
        ("schema", "check", "s.toml", "--target", "no" + EVIL),
        ("fit", "other.parquet", "--schema", "s.toml", "--target", "t" + EVIL, "--epsilon", "1", "-o", "out"),
        ("fit", "t.parquet", "--schema", "bad.toml", "--target", "t" + EVIL, "--epsilon", "1", "-o", "out"),
        ("stats", "other.parquet", "--column", EVIL, "--bounds", "0,1"),
        ("show", "no" + EVIL),
        ("ledger", "show", "no" + EVIL),
        ("audit", "no.py:" + EVIL),
        ("study", EVIL),
        (EVIL,),
    ],
    ids=lambda words: " ".join(words[:2]).encode("unicode_escape").decode()[:20],
)
def test_complaints(files, words):
    code, out, err = files(*words)
    assert (code, out) == (2, "")
    check(out + err, told=False)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "\\x1b" in err
    code, out, err = files(*words, "--json")
    check(out + err, told=False)


def test_a_fit_and_a_score(files):
    out_folder = "out\x1b[31m[red]"
    words = ("--schema", "s.toml", "--target", "t" + EVIL, "--epsilon", "9")
    for more in (("-o", out_folder), ("--dry-run", "--rows", "60")):
        code, out, err = files("fit", "t.parquet", *words, *more)
        assert code == 0, err
        check(out + err, told=False)
    code, out, _ = files("evaluate", out_folder, "t.parquet", "--epsilon", "5")
    assert code == 0
    check(out, told=False)
    code, out, _ = files("export", out_folder, "--format", "onnx", "-o", "m\x1b[31m.onnx")
    assert code in (0, 2)
    check(out, told=False)


def test_statistics(files):
    code, out, err = files("stats", "t.parquet", "--column", EVIL, "--bounds", "0,1")
    assert (code, err) == (0, "")
    check(out)


def test_a_skeleton(files, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    pyarrow.parquet.write_table(pa.table({EVIL.replace("\x7f", ""): [1]}), "t.parquet")  # TOML has no \x7f
    code, out, err = files("schema", "t.parquet", "-o", "-")
    assert code == 0, err
    check(out, told=False)
    assert "pwn" in out


def test_ledgers(command):
    """The library takes no such name; a file that somebody else made holds what it likes."""
    rule = epsilearn.filters.Filter.of("pure", 1.0, 0.0)
    for name in ("d" + EVIL, "e" + EVIL):
        Path("l.db").touch()
        Store.create("l.db", Header(name, 1.0, 0.0, rule, "replace-one", 1), "ada")
    ledger = Ledger("l.db", dataset="d" + EVIL, who="ada")
    ledger.debit(Guarantee.pure(0.1), "count")
    for words in (("show",), ("history",), ("verify",)):
        code, out, err = command("ledger", *words, "l.db", "--dataset", "d" + EVIL)
        assert (code, err) == (0, "")
        check(out, told=words != ("history",))
        code, out, err = command("ledger", *words, "l.db")  # which of the two?
        assert code == 2
        check(err)
    evil = EVIL.replace("'", "''")
    edit(ledger, f"UPDATE epsilearn_entry SET purpose = '{evil}', who = '{evil}', time = '{evil}'")
    code, out, err = command("ledger", "history", "l.db", "--dataset", "d" + EVIL)
    assert (code, err) == (0, "")
    check(out, told=False)  # folded beside others
    assert out.count(r"a\x1b[31mb\x1b]0;pwn") == 3
    code, out, _ = command("ledger", "history", "l.db", "--dataset", "d" + EVIL, "--json")
    check(out, told=False)
    edit(ledger, 'UPDATE epsilearn_entry SET content = \'{"epsilon": [], "debit": {}}\'')
    code, out, _ = command("ledger", "history", "l.db", "--dataset", "d" + EVIL)
    assert (code, "damaged" in out) == (0, True)
    code, _, err = command("ledger", "verify", "l.db", "--dataset", "d" + EVIL)
    assert code == 3
    check(err, told=False)


def test_warnings(monkeypatch, capsys):
    def warn(*_, **__):
        warnings.warn(EVIL, UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(epsilearn.cli, "_run", warn)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit):
        epsilearn.cli.main(["show"])
    assert warnings.showwarning is show_warning
    err = capsys.readouterr().err
    check(err)
    assert err.startswith("warning: ")


def test_nothing_is_printed_past_the_one_place():
    """Every command prints through `common`, where a text is made harmless; a version is our own."""
    for path in sorted(COMMANDS.glob("*.py")):
        tree = ast.parse(path.read_text())
        if path.name == "common.py":
            continue
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        taken = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
        assert "print" not in used or path.name == "__init__.py", path.name
        assert not taken & {"escape", "print"}, path.name
        assert "Console" not in taken or path.name == "audit.py", path.name  # a bar that says "auditing"
