"""``epsilearn audit`` as a person meets it: names, files, releases of others; exit code 4 for a refuted claim."""

from __future__ import annotations

import json

import numpy as np
import pytest

from epsilearn.audit.subjects import SUBJECTS
from epsilearn.cli import _run

SURE = ("--confidence", "0.999999")

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
        code = _run(["audit", *words, "--jobs", "1"] if words else ["audit"], as_json="--json" in words)
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
    words = ("laplace", "--trials", "400", *SURE)
    code, out, _ = run(*words, "--plot", "seen.png", "--output", "found.json")
    assert code == 0
    assert "not refuted: epsilon = 1" in out
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["subject"] == "Laplace noise on a number"
    assert not written["refuted"]
    code, out, _ = run(*words, "--json")
    assert set(json.loads(out)) == set(written)


@pytest.mark.parametrize("way", ["--bits", "--membership"])
def test_other_ways_to_look(run, tmp_path, way):
    code, out, _ = run("gaussian", "--trials", "400", *SURE, way, "--plot", "seen.svg")
    assert code == 0
    assert "not refuted: epsilon = 1 at delta = 0.01, and its Gaussian curve" in out
    assert (tmp_path / "seen.svg").read_text().startswith("<?xml")


def test_printed_constants_are_held_to_their_claim(run):
    code, out, _ = run("logistic", "--calibration", "paper", "--epsilon", "0.7", "--rows", "1", "--exact")
    assert code == 4
    assert "REFUTED: epsilon = 0.7" in out
    code, out, _ = run("logistic", "--epsilon", "0.7", "--rows", "1", "--exact")
    assert code == 0


def test_releases_of_another_program(run, releases):
    assert run(*releases, "--claim", "1")[0] == 4
    assert run(*releases, "--claim", "3", *SURE)[0] == 0
    assert run(*releases, "--claim", "1", "--bits")[0] == 4
    code, out, _ = run(*releases, "--claim", "1", "--membership", "--json")
    assert code == 4
    assert json.loads(out)["area"] > 0.8


def test_a_function_of_a_file(run, tmp_path):
    (tmp_path / "mine.py").write_text(MECHANISM)
    code, out, _ = run("mine.py:noisy_sum", "--trials", "2000")
    assert code == 4
    assert "mine.py:noisy_sum" in out
    assert run("mine.py:noisy_sum", "--trials", "400", "--claim", "4", *SURE)[0] == 0
    assert run("mine.py:honest_sum", "--trials", "400", *SURE)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("nobody",),
        ("laplace", "--rows", "3"),
        ("laplace", "--claim", "1"),
        ("laplace", "--trials", "10"),
        ("laplace", "--confidence", "1"),
        ("laplace", "--bits", "--membership"),
        ("laplace", "--exact"),
        ("svc", "--exact", "--plot", "seen.png"),
        ("lasso", "--alpha", "1"),
        ("--releases", "first.npy", "second.npy"),
        ("--releases", "first.npy", "second.npy", "--claim", "1", "--exact"),
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
