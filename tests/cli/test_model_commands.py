"""``predict``, ``show``, ``evaluate``, ``export`` and ``plan``, as a person meets them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import onnxruntime
import pytest

from epsilearn import Ledger, LogisticRegression
from epsilearn.model_file import model_to_json
from epsilearn.outlook import outlook

CANARY = "Zaphod424242"


@pytest.fixture
def kept(command, releases):
    """Write a released model to a file, and give back its name."""

    def write(name, model=None):
        path = Path(f"{name}.json")
        path.write_text(model_to_json(model or releases[name]), encoding="utf-8")
        return path

    return write


def table_of(text):
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("name", ["logistic", "four", "svm", "linear", "landmark", "smokes"])
def test_predictions_are_the_models_own(command, kept, releases, clinic, tmp_path, name):
    model = releases[name]
    code, out, err = command("predict", kept(name), clinic.write(tmp_path, "csv"))
    assert (code, err) == (0, "")
    head, *rows = table_of(out)
    assert [row[0] for row in rows] == [str(value) for value in model.predict(clinic.arrow()).tolist()]
    if model.has_probabilities:
        assert head[1:] == [f"probability of {value}" for value in model.classes.tolist()]
        found = np.array([row[1:] for row in rows], float)
        np.testing.assert_array_equal(found, model.predict_proba(clinic.arrow()))
    else:
        assert head == ["prediction"]


def test_predictions_in_a_file(command, kept, clinic, tmp_path):
    table = clinic.write(tmp_path, "parquet")
    printed = command("predict", kept("four"), table)[1]
    code, out, _ = command("predict", "four.json", table, "-o", "p.csv")
    assert (code, out) == (0, "p.csv: 200 predictions of stage\n")
    assert Path("p.csv").read_text() == printed


def test_rows_without_their_target(command, kept, clinic, tmp_path):
    columns = {name: values for name, values in clinic.columns.items() if name not in ("died", "note")}
    lines = [",".join("" if v is None else str(v) for v in row) for row in zip(*columns.values(), strict=True)]
    Path("t.csv").write_text(",".join(columns) + "\n" + "\n".join(lines))
    assert (
        command("predict", kept("logistic"), "t.csv")[1]
        == command("predict", "logistic.json", clinic.write(tmp_path, "csv"))[1]
    )


def test_rows_without_header_and_target(command, as_toml):
    columns = {"n": {"bounds": [0, 10]}, "y": {"categories": ["no", "yes"]}, "w": {"categories": ["a", "b"]}}
    schema = {"version": 1, "file": {"header": False}, "columns": columns}
    Path("s.toml").write_text("\n".join(f"{name} = {as_toml(value)}" for name, value in schema.items()))
    Path("t.csv").write_text("1,no,a\n9,yes,b\n" * 30)
    Path("bare.csv").write_text("1,a\n9,b\n" * 30)
    assert command("fit", "t.csv", "--schema", "s.toml", "--target", "y", "--epsilon", 9, "-o", "out")[0] == 0
    whole = command("predict", "out", "t.csv")
    assert whole[0] == 0
    assert command("predict", "out", "bare.csv", "--without-target") == whole
    code, _, err = command("predict", "out", "bare.csv")
    assert code == 2
    assert "line 1: 2 fields where there are 3 columns" in err


@pytest.mark.parametrize("name", ["logistic", "linear"])
def test_scores_are_releases(command, kept, clinic, tmp_path, name):
    table = clinic.write(tmp_path, "csv")
    Ledger.create("b.db", dataset="d", epsilon=2e6)
    exact = json.loads(command("evaluate", kept(name), table, "--not-private", "--json")[1])
    assert (exact["guarantee"], exact["rows"]) == (None, clinic.rows)
    words = ("evaluate", f"{name}.json", table, "--ledger", "b.db", "--json", "--epsilon")
    private = json.loads(command(*words, "1e6")[1])
    assert private["value"] == pytest.approx(exact["value"], abs=0.05)
    assert private["guarantee"]["epsilon"] == 1e6
    assert private["half_width_95"] < 0.05
    (entry,) = Ledger("b.db").history()
    assert entry["status"] == "delivered"
    assert command(*words, "2e6")[0] == 3
    assert len(Ledger("b.db").history()) == 1


def test_aliases_in_the_labels_of_a_test_file(command, kept, clinic):
    lines = [line.replace(",yes,", ",yes.,").replace(",no,", ",no.,") for line in clinic.lines()]
    Path("test.csv").write_text(",".join(clinic.columns) + "\n" + "\n".join(lines))
    Path("same.csv").write_text(",".join(clinic.columns) + "\n" + "\n".join(clinic.lines()))
    kept("logistic")
    found = [command("evaluate", "logistic.json", t, "--not-private", "--json") for t in ("test.csv", "same.csv")]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give its --epsilon, or say --not-private"),
        (("--epsilon", "1", "--not-private"), "give its --epsilon, or say --not-private"),
        (("--not-private", "--ledger", "b.db"), "leave --ledger out"),
        (("--epsilon", "0", "--ledger", "b.db"), "epsilon must be"),
        (("--epsilon", "1", "--ledger", "no.db"), "there is no ledger"),
    ],
)
def test_scores_that_are_refused(command, kept, clinic, tmp_path, words, text):
    Ledger.create("b.db", dataset="d", epsilon=2.0)
    code, _, err = command("evaluate", kept("logistic"), clinic.write(tmp_path, "csv"), *words)
    assert code == 2
    assert text in err
    assert Ledger("b.db").history() == []


@pytest.mark.parametrize("verb", [("predict",), ("evaluate", "--epsilon", "1", "--ledger", "b.db")], ids=" ".join)
def test_bad_rows_quote_nothing(command, kept, clinic, verb):
    Ledger.create("b.db", dataset="d", epsilon=2.0)
    lines = clinic.lines()
    for column, value in ((0, f"x{CANARY}"), (3, CANARY), (4, CANARY), (7, CANARY)):
        cells = lines[5].split(",")
        cells[column] = value
        Path("t.csv").write_text("\n".join([",".join(clinic.columns), *lines[:5], ",".join(cells)]))
        code, out, err = command(verb[0], kept("logistic"), "t.csv", *verb[1:])
        assert code == 2
        assert (out, err.count("\n")) == ("", 1)
        assert CANARY not in err
    assert Ledger("b.db").history() == []


def test_nothing_is_written_where_rows_are_bad(command, kept, clinic):
    Path("t.csv").write_text("\n".join([",".join(clinic.columns), *clinic.lines(), "1"]))
    Path("p.csv").write_text("mine")
    assert command("predict", kept("logistic"), "t.csv", "-o", "p.csv")[0] == 2
    assert Path("p.csv").read_text() == "mine"
    assert not list(Path().glob(".*partial"))


def test_a_model_shown(command, kept, releases):
    code, out, _ = command("show", kept("logistic"), "--top", "3")
    assert code == 0
    for text in ("logistic regression of died", "epsilon = 5", releases["logistic"].guarantee.theorem, "intercept"):
        assert text in out
    found = json.loads(command("show", "logistic.json", "--top", "3", "--json")[1])
    weights = [abs(entry["weights"][0]) for entry in found["weights"]]
    assert weights == sorted(np.abs(releases["logistic"].weights.coefficients[0]), reverse=True)[:3]
    assert command("show", "logistic.json", "--top", "-1")[0] == 2


@pytest.mark.parametrize("name", ["four", "lasso", "landmark", "numbered-lasso", "short"])
def test_every_model_can_be_shown(command, kept, name):
    assert command("show", kept(name))[0] == 0
    assert json.loads(command("show", f"{name}.json", "--json")[1])["guarantee"]["epsilon"] <= 5.0


def test_a_void_promise_is_shown_as_none(command, kept, releases):
    model = releases["logistic"]
    path = kept("void", replace(model, guarantee=model.guarantee.void("seeded")))
    code, out, _ = command("show", path)
    assert code == 0
    assert "no promise (seeded)" in out


def test_exports(command, kept, releases, clinic):
    code, out, _ = command("export", kept("logistic"), "--format", "onnx")
    assert code == 0
    assert out.startswith("model.onnx: ")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] == releases["logistic"].schema.features("died")
    code, _, err = command("export", "logistic.json", "--format", "sklearn")
    assert code == 2
    assert "use --format onnx" in err
    assert not Path("model.joblib").exists()


def test_a_pipeline_exported(command, as_toml):
    columns = {"n": {"bounds": [0, 10]}, "w": {"categories": ["a", "b"]}, "y": {"categories": ["no", "yes"]}}
    Path("s.toml").write_text(f"version = 1\ncolumns = {as_toml(columns)}")
    Path("t.csv").write_text("n,w,y\n" + "1,a,no\n9,b,yes\n" * 40)
    assert command("fit", "t.csv", "--schema", "s.toml", "--target", "y", "--epsilon", 9, "-o", "out")[0] == 0
    assert command("export", "out", "--format", "sklearn", "-o", "p.joblib")[0] == 0
    import pandas as pd

    predicted = joblib.load("p.joblib").predict(pd.DataFrame({"n": [1, 9], "w": ["a", "b"]}))
    assert predicted.tolist() == [row[0] for row in table_of(command("predict", "out", "t.csv")[1])[1:3]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("predict", "none.json", "t.csv"), "there is no model file"),
        (("predict", "t.csv", "t.csv"), "not a model file"),
        (("predict", "logistic.json", "none.csv"), "there is no file"),
        (("predict", "logistic.json", "t.csv"), "has no column 'age'"),
        (("predict", "logistic.json", "t.svm"), "not the kind of file"),
        (("predict", "numbered.json", "t.csv"), "not the kind of file"),
        (("predict", "logistic.json", "empty.csv"), "no rows"),
        (("predict", "logistic.json", "t.csv", "-o", "/"), ""),
        (("predict", "logistic.json", "t.csv", "-o", "no/p.csv"), "cannot write"),
        (("export", "logistic.json", "--format", "pmml"), "--format must be"),
        (("export", "logistic.json", "--format", "onnx", "-o", "no/m.onnx"), "cannot write"),
        (("export", "logistic.json"), "--format"),
        (("show", "."), "there is no model file"),
        (("show",), "MODEL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_use(command, kept, clinic, words, text):
    kept("logistic")
    kept("numbered")
    Path("t.csv").write_text("a,b\n1,2\n")
    Path("empty.csv").write_text(",".join(clinic.columns) + "\n")
    Path("t.svm").write_text("1 1:1\n")
    before = sorted(Path().iterdir())
    code, out, err = command(*words)
    assert code == 2
    assert text.lower() in err.lower()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(Path().iterdir()) == before


def test_a_plan_without_a_table(command):
    code, out, _ = command("plan", "--rows", 1000, "--features", 5, "--epsilon", 1, "--json")
    assert code == 0
    found = json.loads(out)
    estimator = LogisticRegression(data_norm=5**0.5, classes=[0, 1], epsilon=1.0)
    assert found["lost"] == list(outlook(estimator, 1000, 5).lost)
    for rows, which in zip(found["rows_needed"], (0, 1), strict=True):
        assert outlook(estimator, rows, 5).lost[which] <= 0.01 < outlook(estimator, int(rows / 1.1), 5).lost[which]


@pytest.mark.parametrize("model", ["svm", "linear", "lasso", "sparse-logistic"])
def test_plans_of_every_model(command, model):
    code, out, err = command("plan", "--rows", 5000, "--features", 5, "--epsilon", 100, "--model", model, "--json")
    assert code == 0, err
    assert json.loads(out)["guarantee"]["epsilon"] <= 100


@pytest.mark.parametrize(("people", "delta"), [(1, 0.0), (3, 1e-6)])
def test_a_plan_prints_the_guarantee_that_the_fit_will_carry(command, people, delta):
    words = ("plan", "--rows", 300, "--features", 4, "--epsilon", 2, "--delta", delta, "--rows-per-person", people)
    generator = np.random.default_rng(0)
    X, y = generator.uniform(-1, 1, (300, 4)), generator.integers(0, 3, 300)
    model = LogisticRegression(data_norm=2.0, classes=[0, 1, 2], epsilon=2.0, delta=delta, rows_per_person=people).fit(
        X, y
    )
    code, out, err = command(*words, "--classes", 3)
    assert code == 0, err
    told = " ".join(out.split())  # however wide the terminal is
    assert str(model.guarantee_) in told
    assert model.guarantee_.theorem in told
    # Noisy gradients, where there is a delta: no theorem about the loss, and the plan says so.
    assert ("no bound is known" in told) == (delta > 0)
    promised = json.loads(command(*words, "--classes", 3, "--json")[1])["guarantee"]
    assert promised == model.guarantee_.to_dict()


@pytest.mark.parametrize("loss", ["0.05", "0.2", "0.4"])
def test_a_plan_ends_however_few_rows_are_needed(command, loss):
    words = ("plan", "--rows", 1000, "--features", 2, "--epsilon", 50, "--loss", loss, "--json")
    easy, hard = json.loads(command(*words)[1])["rows_needed"]
    assert 1 <= easy <= hard < 10_000


@pytest.mark.parametrize(
    "words",
    [
        ("--rows", "0"),
        ("--features", "0"),
        ("--features", "1" + "0" * 400),
        ("--rows", "1" + "0" * 400),
        ("--norm", "0"),
        ("--norm", "nan"),
        ("--norm", "1e300"),
        ("--norm", "1e-300"),
        ("--classes", "1"),
        ("--model", "landmark"),
        ("--model", "linear", "--target-bound", "0"),
        ("--model", "linear", "--target-bound", "nan"),
        ("--model", "lasso", "--radius", "0"),
        ("--loss", "0"),
        ("--loss", "nan"),
        ("--loss", "-1"),
        ("--epsilon", "inf"),
        ("--alpha", "x"),
        ("--method", "magic"),
        ("--rows-per-person", "0"),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_plans_that_are_refused(command, words):
    code, out, err = command("plan", "--rows", 1000, "--features", 5, "--epsilon", 1, *words)
    assert code == 2, out
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["1e-300", "1e-6", "1e6", "1e300"])
@pytest.mark.parametrize("model", ["logistic", "linear", "lasso"])
def test_plans_at_the_ends(command, model, epsilon):
    assert command("plan", "--rows", 1000, "--features", 5, "--epsilon", epsilon, "--model", model)[0] in (0, 2)
