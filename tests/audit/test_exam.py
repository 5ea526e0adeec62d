"""Every known fault is found by the stated method, and no program without it is accused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from epsilearn.audit import exam as module
from epsilearn.audit.cases import FAULTS, UNREAD
from epsilearn.audit.exam import METHODS, exam, examine
from epsilearn.cli import _run

BY_NAME = {fault.name: fault for fault in FAULTS}
# Runs of the twin take seconds; one of them is enough for the ordinary suite.
SAMPLED = [name for name, fault in BY_NAME.items() if fault.found_by in ("sampling", "bits")]
QUICK = [name for name in BY_NAME if name not in SAMPLED or name == "noise scaled twice"]


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_and_its_twin_is_not_accused(name):
    result = examine(BY_NAME[name])
    assert (result.method, result.accused) == (BY_NAME[name].found_by, "")
    assert result.seen


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_a_fault_that_only_samples_show_is_found_too(name):
    result = examine(BY_NAME[name])
    assert (result.method, result.accused) == (BY_NAME[name].found_by, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in SAMPLED])
def test_no_method_accuses_a_twin(name, monkeypatch):
    """Nor those that the exam does not get to, because a cheaper one has found the fault."""
    monkeypatch.setattr(module, "TRIALS", 400)
    # Noise of numpy's own is right for the law that is computed, and wrong in its bits.
    fault, methods = BY_NAME[name], set(METHODS) - ({"bits", "sampling"} if BY_NAME[name].laws else set())
    assert [method for method in METHODS if method in methods and METHODS[method](fault, True)] == []


def test_there_are_sixteen_public_reports():
    assert len([fault for fault in FAULTS if fault.group == "public"]) + len(UNREAD) == 16
    assert len(BY_NAME) == len(FAULTS)
    assert {fault.group for fault in FAULTS} == {"public", "further", "own"}
    assert {fault.found_by for fault in FAULTS} == set(METHODS)


def test_the_page_about_audits_tells_of_every_fault():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    for fault in FAULTS:
        words = (fault.name, f"| {fault.wrong} | {fault.found_by} |", fault.reference)
        assert any(all(word in line for word in words) for line in page.splitlines()), fault.name
    assert all(unread.reference in page for unread in UNREAD)


def test_a_table_and_its_neighbours_are_of_a_kind():
    for fault in FAULTS:
        assert fault.neighbours
        for neighbour in fault.neighbours:
            assert [type(column) for column in neighbour] == [type(column) for column in fault.table]
            assert not all(np.array_equal(a, b) for a, b in zip(neighbour, fault.table, strict=True))


HONEST = replace(BY_NAME["a budget spent twice"], faulty=BY_NAME["a budget spent twice"].corrected)
UNMENDED = replace(BY_NAME["a budget spent twice"], corrected=BY_NAME["a budget spent twice"].faulty)


def test_what_is_missed_and_what_is_accused_is_said(monkeypatch):
    monkeypatch.setattr(module, "TRIALS", 100)
    found = exam([HONEST, UNMENDED])
    assert [(one.method, one.accused, one.passed) for one in found.results] == [
        ("missed", "", False), ("replay", "replay", False),
    ]  # fmt: skip
    assert not found.passed
    assert str(found).startswith("1 of 2 faults found")
    assert "1 of their twins accused" in str(found)


def test_a_replay_gives_the_same_finding_each_time():
    for name in ("diffprivlib 104 (2)", "opendp 2923", "a giant in a sum", "diffprivlib 104 (5)"):
        assert examine(BY_NAME[name]) == examine(BY_NAME[name])


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def go(faults, *words):
        monkeypatch.setattr(module, "FAULTS", faults)
        code = _run(["audit", "exam", *words], as_json="--json" in words)
        return code, capsys.readouterr()

    return go


def test_the_command_prints_a_table(run):
    code, told = run((BY_NAME["smartnoise 622"], BY_NAME["a giant in a sum"]))
    assert code == 0
    assert "smartnoise 622" in told.out
    assert "opacus 813" in told.out
    assert "2 of 2 faults found" in told.out


def test_the_command_fails_where_a_twin_is_accused(run, tmp_path):
    code, told = run((UNMENDED,), "--json", "--output", "exam.json")
    assert code == 4
    assert json.loads(told.out)["passed"] is False
    assert json.loads((tmp_path / "exam.json").read_text())["results"][0]["accused"] == "replay"


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("--epsilon=1", "is fixed in the exam"),
        ("--trials=500", "is fixed in the exam"),
        ("--claim=1", "is fixed in the exam"),
        ("--by=replay", "the exam tries all of them"),
        ("--plot=a.png", "has nothing to draw"),
    ],
)
def test_the_command_takes_no_settings(run, word, why):
    code, told = run((HONEST,), word)
    assert code == 2
    assert f"{word.partition('=')[0]} " in told.err
    assert why in told.err
