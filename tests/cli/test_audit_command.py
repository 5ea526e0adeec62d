"""``epsilearn audit`` as a person meets it: names, files, releases of others; exit code 4 for a refuted claim."""

from __future__ import annotations

import json

import numpy as np
import pytest

import epsilearn
from epsilearn.audit.subjects import SUBJECTS
from epsilearn.cli import _run
from epsilearn.errors import InvalidInput

SURE = ("--confidence", "0.999999")
ALONE = ("--jobs", "1")

MECHANISM = """
import numpy as np

FIRST, SECOND, EPSILON = [0, 1, 1], [0, 1, 0], 1.0
STATISTIC = float


def noisy_sum(answers):
    return sum(answers) + np.random.default_rng().laplace(scale=1 / 4)


def honest_sum(answers):
    return sum(answers) + np.random.default_rng().laplace(scale=1.0)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def go(*words: str) -> tuple[int, str, str]:
        code = _run(["audit", *words], as_json="--json" in words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


@pytest.fixture
def releases(tmp_path):
    """Laplace noise of epsilon 3, from another program."""
    generator = np.random.default_rng(0)
    for name, centre in (("first", 0.0), ("second", 1.0)):
        np.save(tmp_path / f"{name}.npy", generator.laplace(centre, 1 / 3, size=2000))
    return "--releases", "first.npy", "second.npy"


def test_names_are_listed(run):
    code, out, _ = run()
    assert code == 0
    assert all(name in out for name in SUBJECTS)


def test_a_name_with_all_that_can_be_written(run, tmp_path):
    words = ("laplace", "--trials", "400", *SURE, *ALONE)
    code, out, _ = run(*words, "--plot", "seen.png", "--output", "found.json")
    assert code == 0
    assert "not refuted: epsilon = 1" in out
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["subject"] == "Laplace noise on a number"
    assert not written["refuted"]
    # All that it takes to run it again.
    assert written["settings"] == {"function": "laplace", "sensitivity": 1.0, "epsilon": 1.0}
    assert (written["first"], written["second"], written["epsilearn"]) == (0.0, 1.0, epsilearn.__version__)
    code, out, _ = run(*words, "--json")
    assert set(json.loads(out)) == set(written)


@pytest.mark.parametrize("way", ["bits", "membership"])
def test_other_ways_to_look(run, tmp_path, way):
    code, out, _ = run("gaussian", "--trials", "400", *SURE, *ALONE, "--by", way, "--plot", "seen.svg")
    assert code == 0
    assert "not refuted: epsilon = 1 at delta = 0.01, and its Gaussian curve" in out
    assert (tmp_path / "seen.svg").read_text().startswith("<?xml")


def test_printed_constants_are_held_to_their_claim(run, tmp_path):
    code, out, _ = run("logistic", "--calibration", "paper", "--epsilon", "0.7", "--rows", "1", "--by", "exact")
    assert code == 4
    assert "REFUTED: epsilon = 0.7" in out
    code, out, _ = run("logistic", "--epsilon", "0.7", "--rows", "1", "--by", "exact", "--plot", "seen.png", "--json")
    assert code == 0
    assert (tmp_path / "seen.png").stat().st_size > 10_000
    found = json.loads(out)
    assert (found["kind"], found["confidence"], found["before_polish"]) == ("exact", None, True)
    assert found["settings"]["epsilon"] == 0.7
    assert len(found["first"][0]) == 1


def test_the_same_words_in_every_kind(run, tmp_path):
    words = {"kind", "claimed_epsilon", "delta", "lower_bound", "confidence", "refuted"}
    for way in ("exact", "bits", "membership"):
        sampled = () if way == "exact" else ("--trials", "100", *ALONE)
        _, out, _ = run("svc", "--rows", "1", "--alpha", "100", "--by", way, *sampled, "--json")
        found = json.loads(out)
        assert words <= set(found)
        assert found["kind"] == way
        assert found["settings"]["alpha"] == 100.0


def test_releases_of_another_program(run, releases):
    assert run(*releases, "--claim", "1")[0] == 4
    assert run(*releases, "--claim", "3", *SURE)[0] == 0
    assert run(*releases, "--claim", "1", "--by", "bits")[0] == 4
    code, out, _ = run(*releases, "--claim", "1", "--by", "membership", "--json")
    assert code == 4
    assert json.loads(out)["area"] > 0.8


def test_a_function_of_a_file(run, tmp_path):
    (tmp_path / "mine.py").write_text(MECHANISM)
    code, out, _ = run("mine.py:noisy_sum", "--trials", "2000", *ALONE)
    assert code == 4
    assert "mine.py:noisy_sum" in out
    assert run("mine.py:noisy_sum", "--trials", "400", "--claim", "4", *SURE, *ALONE)[0] == 0
    assert run("mine.py:honest_sum", "--trials", "400", *SURE, *ALONE)[0] == 0


def test_floats_whose_noise_is_known(run, tmp_path):
    """At 3 and 4 the lowest bit says little; where a release can have come from says all."""
    text = MECHANISM.replace("[0, 1, 1], [0, 1, 0]", "[3], [4]").replace("scale=1.0", "scale=1.0, size=None")
    (tmp_path / "mine.py").write_text(text + "\nCENTRES, SCALE = (3.0, 4.0), 1.0\n")
    words = ("mine.py:honest_sum", "--trials", "2000", *ALONE)
    assert run(*words, "--by", "bits")[0] == 4
    assert run(*words, *SURE)[0] == 0
    (tmp_path / "mine.py").write_text(text + "\nSCALE = 1.0\n")
    code, _, err = run(*words, "--by", "bits")
    assert (code, "CENTRES and SCALE" in err) == (2, True)


def test_a_file_that_raises(run, tmp_path):
    (tmp_path / "mine.py").write_text(MECHANISM + "\ndef broken(answers):\n    return answers.nothing\n")
    code, _, err = run("mine.py:broken", *ALONE)
    assert code == 2
    assert err.startswith("error: mine.py raised AttributeError: 'list' object has no attribute 'nothing'")
    (tmp_path / "mine.py").write_text("raise ValueError('boom')")
    code, _, err = run("mine.py:noisy_sum")
    assert (code, "mine.py raised ValueError: boom" in err, "debit" in err) == (2, True, False)


def test_a_name_that_nothing_has_is_told_all_that_there_are(run):
    code, _, err = run("nosuch")
    assert code == 2
    for name in (*SUBJECTS, "exam", "FILE.py:FUNCTION"):
        assert repr(name) in err


def test_copied_noise_is_told_in_words_of_the_command(run, tmp_path):
    shared = "generator = np.random.default_rng()\ndef shared(x):\n    return generator.laplace()\n"
    (tmp_path / "mine.py").write_text(MECHANISM + shared)
    code, _, err = run("mine.py:shared", "--trials", "100", "--jobs", "2")
    assert code == 2
    assert err.strip().endswith("or use --jobs 1")


def test_a_figure_that_cannot_be_written_after_all(run, releases, monkeypatch):
    def full(*_):
        raise InvalidInput("no space left")

    monkeypatch.setattr("epsilearn.cli.audit.save_figure", full)
    code, out, err = run(*releases, "--claim", "1", "--plot", "seen.png")
    assert (code, "REFUTED" in out, "no space left" in err) == (4, True, True)


@pytest.mark.parametrize(
    "words",
    [
        ("nobody",),
        ("laplace", "--rows", "3"),
        ("laplace", "--claim", "1"),
        ("laplace", "--trials", "10"),
        ("laplace", "--confidence", "1"),
        ("laplace", "--by", "magic"),
        ("laplace", "--by", "replay", "--trials", "1000"),
        ("laplace", "--by", "replay", "--plot", "seen.png"),
        ("laplace", "--by", "exact"),
        ("svc", "--by", "exact", "--trials", "1000"),
        ("svc", "--by", "exact", "--confidence", "0.9"),
        ("svc", "--by", "exact", "--jobs", "1"),
        ("laplace", "--jobs", "0"),
        ("laplace", "--plot", "seen.gif"),
        ("laplace", "--plot", "missing/seen.png"),
        ("laplace", "--output", "missing/found.json"),
        ("gaussian", "--delta", "0"),
        ("laplace", "--epsilon", "0"),
        ("lasso", "--centre"),
        ("--epsilon", "2"),
        (
            "--by",
            "exact",
        ),
        ("--output", "found.json"),
        ("mine.py",),
        ("--releases", "first.npy", "second.npy", "--claim", "1", "--trials", "1000"),
        ("lasso", "--alpha", "1"),
        ("--releases", "first.npy", "second.npy"),
        ("--releases", "first.npy", "second.npy", "--claim", "1", "--by", "exact"),
        ("--releases", "first.npy", "missing.npy", "--claim", "1"),
        ("svc", "--releases", "first.npy", "second.npy", "--claim", "1"),
        ("missing.py:function",),
        ("mine.py:nothing",),
        ("mine.py:noisy_sum", "--epsilon", "2"),
        ("laplace", "--claim-delta", "0.1"),
    ],
)
def test_bad_use(run, releases, tmp_path, words):
    (tmp_path / "mine.py").write_text(MECHANISM)
    code, _, err = run(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
