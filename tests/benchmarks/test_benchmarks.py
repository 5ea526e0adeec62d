import importlib
import importlib.util
import itertools
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from scipy.integrate import quad
from scipy.stats import norm

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name):
    """A module of the benchmark, which is run as a folder and is no package."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def load_command():
    """What ``python benchmarks`` runs, without running it; its own name is taken."""
    load("figures")  # and, with the modules below, all that it imports
    source = importlib.util.spec_from_file_location("benchmarks_command", FOLDER / "__main__.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


accuracy, conversion, machine, methods = load("accuracy"), load("conversion"), load("machine"), load("methods")
report, scoreboard, speed, summary = load("report"), load("scoreboard"), load("speed"), load("summary")
store, tables, verdicts = load("store"), load("tables"), load("verdicts")


command = load_command()


def integrated_delta(epsilon, noise, sampling):
    """Delta of one step when a record is replaced, by brute force."""

    def density(x, side):
        return (1 - sampling) * norm.pdf(x, 0, noise) + sampling * norm.pdf(x, side, noise)

    def excess(x):
        return max(density(x, 1) - math.exp(epsilon) * density(x, -1), 0.0)

    reach = 1 + 12 * noise
    return quad(excess, -reach, reach, limit=2000, epsabs=1e-13, points=[0, 1, noise, 3 * noise])[0]


@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_whole_table_is_the_gaussian_mechanism_with_sensitivity_two(steps, epsilon):
    noise = conversion.noise_multiplier(epsilon, 1e-8, 1.0, steps)
    # N(0, noise²) against N(2, noise²), so many times over, is one such pair with a shift of 2 sqrt(steps) / noise.
    shift = 2 * math.sqrt(steps) / noise
    exact = norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
    assert 0.985e-8 < exact <= 1e-8
    # And sampling nearly all rows asks for nearly the same.
    nearly = conversion.noise_multiplier(epsilon, 1e-8, 0.9999, steps)
    assert nearly == pytest.approx(noise, rel=2e-3)


@pytest.mark.parametrize(("noise", "sampling", "epsilon"), [(1.0, 0.1, 0.5), (2.0, 0.3, 0.2), (0.7, 0.02, 1.0)])
def test_one_step_on_some_rows_agrees_with_integration(noise, sampling, epsilon):
    exact = integrated_delta(epsilon, noise, sampling)
    found = conversion.composed_delta(epsilon, noise, sampling, 1)
    # Never below, but for the integral's own error, and hardly above.
    assert exact * (1 - 1e-6) <= found <= exact * 1.01 + 1e-12


def test_more_privacy_more_steps_or_more_rows_take_more_noise():
    base = {"epsilon": 0.5, "delta": 1e-7, "sampling": 0.1, "steps": 50}
    middle = conversion.noise_multiplier(**base)
    for harder in ({"epsilon": 0.25}, {"delta": 1e-9}, {"sampling": 0.2}, {"steps": 100}):
        assert conversion.noise_multiplier(**base | harder) > middle


@pytest.mark.parametrize(("sampling", "epsilon"), [(1.0, 0.1), (0.2, 1.0), (0.02, 0.1)])
def test_replacing_takes_more_noise_than_adding_and_less_than_group_privacy(sampling, epsilon):
    arguments = (epsilon, 1e-8, sampling, 50)
    replaced = conversion.noise_multiplier(*arguments)
    assert replaced > conversion.noise_multiplier(*arguments, replace=False)
    assert replaced < conversion.group_noise_multiplier(*arguments)


def test_the_noise_found_keeps_the_promise():
    noise = conversion.noise_multiplier(0.5, 1e-7, 0.05, 100)
    assert conversion.composed_delta(0.5, noise, 0.05, 100) <= 1e-7
    assert conversion.composed_delta(0.5, 0.998 * noise, 0.05, 100) > 1e-7


def test_means_and_standard_errors():
    found = summary.summarised([1.0, 2.0, 3.0, 4.0])
    assert found["mean"] == 2.5
    assert found["error"] == pytest.approx(math.sqrt(5 / 3 / 4))
    assert summary.standard_error([1.0]) == math.inf


def test_a_steady_difference_counts_only_when_paired():
    theirs = [0.70, 0.80, 0.90, 0.75]
    found = summary.compared(
        [value + shift for value, shift in zip(theirs, (0.010, 0.011, 0.009, 0.010), strict=True)], theirs
    )
    assert found["difference"] == pytest.approx(0.01)
    assert (found["paired"], found["unpaired"]) == ("ahead", "level")
    assert summary.compared(theirs, [value + 0.01 for value in theirs])["paired"] == "behind"
    assert summary.compared(theirs, theirs)["paired"] == "level"
    with pytest.raises(ValueError, match="same splits"):
        summary.compared(theirs, theirs[:3])


def test_overlapping_splits_have_a_larger_error():
    values = [0.1, 0.2, 0.3, 0.4]
    # Nadeau and Bengio's variance: that of one value, times 1/k + test rows for each training row.
    expected = math.sqrt(statistics.variance(values) * (1 / 4 + 1 / 4))
    assert summary.corrected_error(values) == pytest.approx(expected)
    train, test = load("datasets").split(1000, 0)
    assert len(test) / len(train) == summary.TEST_SHARE


@pytest.mark.parametrize(("shift", "paired", "corrected"), [(2.0, "ahead", "ahead"), (1.2, "ahead", "level")])
def test_clearly_ahead_needs_more_than_ahead(shift, paired, corrected):
    differences = [-1.0, 0.0, 1.0]  # standard error 0.58, corrected 0.76
    error = summary.corrected_error(differences)
    shift = shift * summary.standard_error(differences)
    found = summary.compared([value + shift for value in differences], [0.0] * 3)
    assert found["corrected_error"] == pytest.approx(error)
    assert (found["paired"], found["corrected"]) == (paired, corrected)


def scores(*values):
    return {"accuracies": list(values)} | summary.summarised(list(values))


WELL, POORLY, ALIKE = scores(0.90, 0.91, 0.92), scores(0.80, 0.82, 0.81), scores(0.91, 0.90, 0.92)


def entry(method, library, found, **more):
    kind = "best of grid" if "edges" in more else "defaults"
    line = {"table": "T", "method": method, "library": library, "epsilon": 1.0, "kind": kind}
    return line | {"settings": {"C": 1.0}} | more | found


def results(ours=WELL, pure=WELL, diffprivlib=POORLY, opacus=POORLY):
    """Everything about one table at one budget."""
    lines = [
        entry("LogisticRegression", "epsilearn", ours),
        entry("LogisticRegression, pure", "epsilearn", pure),
        entry("diffprivlib", "diffprivlib", diffprivlib, edges=["C lowest"]),
        entry("Opacus", "opacus", opacus, edges=[]),
    ]
    times = [{"table": "T", "who": who} for who in ("epsilearn", "diffprivlib (defaults)")]
    found = {
        "tables": [{"name": "T", "rows": 800, "columns": 3, "classes": 2, "delta": 1 / 640_000, "splits": 3}],
        "accuracy": lines,
        "minutes": 1.0,
        "resumed": False,
        "grids": {"diffprivlib": "- T: C 1"},
        "machine": machine.machine(),
        "versions": {"epsilearn": "0.1.0"},
        "speed": {
            "seconds": [time | {"seconds": 1.5, "fits": 3} for time in times],
            "memory": [time | {"rise": 0.5} for time in times],
            "starts": 6,
            "import": {
                "epsilearn": {"import": 0.1, "model": 1.0},
                "diffprivlib": {"import": 1.0, "model": 2.0},
            },
            "first fit": {"first": 5.0, "second": 2.0},
            "noise": {"ratios": {"Gaussian": (0.7, 5.0)}, "reason": None},
        },
    }
    return found | {"comparisons": verdicts.comparisons(found)}


@pytest.mark.parametrize(("opacus", "expected"), [(POORLY, ["T"]), (ALIKE, []), ({"reason": "no"}, ["T"])])
def test_ahead_of_all_needs_every_peer_that_can_run(opacus, expected):
    assert verdicts.ahead_of_all(results(opacus=opacus), 1.0) == expected


def test_what_failed_on_our_side_is_behind_and_listed():
    found = results(ours={"reason": "broken"}, pure={"reason": "too slow", "left_out": True})
    assert verdicts.ahead_of_all(found, 1.0) == []
    assert "ahead of every peer that runs on 0 of 1 tables" in verdicts.summary_text(found)
    assert "clearly behind Opacus (ours failed: broken)" in verdicts.losses(found)
    assert "LogisticRegression: `broken` (all tables)" in report.reasons(found)
    # What was left out on purpose is counted as not compared, and stated.
    pure = verdicts.summary_text(found, scoreboard.PURE)
    assert "0 of 0 tables" in pure
    assert "Not compared with diffprivlib: T (ours is too slow)" in pure
    assert "LogisticRegression, pure: `too slow`" in report.reasons(found)


def test_a_peer_that_cannot_run_is_named():
    found = results(diffprivlib={"reason": "TypeError"})
    assert "1 of 1 tables (clearly on 1" in verdicts.summary_text(found)
    assert "Not compared with diffprivlib: T (it cannot run)" in verdicts.summary_text(found)
    assert "not compared" in verdicts.verdict_table(found)


def test_each_promise_has_its_own_verdicts():
    found = results(pure=scores(0.70, 0.71, 0.72))
    assert verdicts.ahead_of_all(found, 1.0) == ["T"]
    assert verdicts.ahead_of_all(found, 1.0, ours=scoreboard.PURE) == []
    assert "Accuracy on T at ε = 1, pure: clearly behind diffprivlib (-10.00" in verdicts.losses(found)


def test_losses_name_everything_that_is_not_ahead():
    assert verdicts.losses(results()) == "- Nowhere in this run."
    found = results(opacus=ALIKE)
    found["speed"]["seconds"][1]["seconds"] = 1.0
    found["speed"]["memory"][0] = {"table": "T", "who": "epsilearn", "reason": "gone"}
    found["speed"]["import"]["diffprivlib"]["model"] = 0.5
    text = verdicts.losses(found)
    assert "Accuracy on T at ε = 1: level with Opacus" in text
    assert "Time on T: more than diffprivlib (defaults)." in text
    assert "Memory on T: ours could not be measured." in text
    assert "Time to import (model): more than diffprivlib." in text
    assert "memory of epsilearn: `gone` (all tables)" in report.reasons(found)


def test_the_page_has_everything_filled_in():
    template = (FOLDER / "template.md").read_text()
    page = report.page(results(), template)
    assert "{{" not in page
    assert "clearly ahead" in page
    assert "Winners on an edge of their grids: diffprivlib 1 of 1, Opacus 0 of 1." in page
    assert "| T | 800 | 3 | 2 | 1.6e-06 | 3 |" in page


def test_the_page_survives_measurements_that_failed():
    found = results()
    for line in [*found["speed"]["seconds"], *found["speed"]["memory"]]:
        line.pop("seconds", None), line.pop("rise", None), line.update(reason="gone")
    found["speed"] |= {what: {"reason": "gone"} for what in ("import", "first fit", "noise")}
    page = report.page(found, (FOLDER / "template.md").read_text())
    assert "time of epsilearn: `gone`" in page
    assert "| first fit | gone |" in page


GRID = [{"sampling": 0.1, "steps": 10, "clip": clip, "rate": rate / clip} for clip in (0.1, 1.0) for rate in (1, 3, 10)]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (GRID[0], ["clip lowest", "rate x clip lowest"]),
        (GRID[4], ["clip highest"]),
        ({"sampling": 1.0}, []),
    ],
)
def test_winners_on_an_edge_are_named(chosen, expected):
    assert methods.edges(GRID, chosen) == expected


def test_neither_constants_nor_choices_have_edges():
    grid = [
        {"C": strength, "fit_intercept": choice, "max_iter": 5} for strength in (1, 2, 3) for choice in (True, False)
    ]
    assert methods.edges(grid, {"C": 2, "fit_intercept": True, "max_iter": 5}) == []


def test_the_finer_grid_keeps_what_was_tried_before():
    small = methods.Facts("T", 1000, 10, 2, False)
    method = next(method for method in methods.METHODS if method.name == "diffprivlib")
    tried = {settings["C"] for settings in method.grid(small)}
    assert tried >= {1e-3, 1e-2, 1e-1, 1.0, 10.0}
    assert len(tried) == 9


def prepared(**facts):
    return tables.Prepared("nowhere", methods.Facts("T", **{"rows": 800, "columns": 3, "classes": 2} | facts), "digest")


@pytest.fixture
def asked(monkeypatch):
    """What a library is asked that needs no process: more C does better, but 4 only on the first two splits."""
    found = []

    def answers(library, request, threads=None):
        found.append(request)
        for task in request["tasks"]:
            strength = task["settings"].get("C", 0.5)
            lucky = strength < 4 or task["run"] < 2
            yield {"key": task["key"], "accuracy": strength / 10 if lucky else 0.0, "versions": {"fake": "1"}}

    monkeypatch.setattr(accuracy, "answers", answers)
    return found


def grid_method(obstacle=lambda _: None):
    return methods.Method(
        "fake", "sklearn", lambda _: {}, lambda settings, *_: settings,
        lambda _: [{"C": strength} for strength in (1, 2, 3, 4)], private=False, obstacle=obstacle,
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "best"), [(800, 3), (20_000, 3), (10**7, 4)])
def test_finalists_run_on_all_splits(asked, tmp_path, rows, best):
    table = prepared(rows=rows, sparse=False)
    lines = accuracy.measure(store.Store(tmp_path / "kept"), [table], [grid_method()])
    line = next(line for line in lines if line["kind"] == "best of grid")
    # C = 4 is best on the two splits of the choice; with more than one finalist it is found out.
    assert line["settings"] == {"C": best}
    assert line["edges"] == (["C highest"] if best == 4 else [])
    assert len(line["accuracies"]) == (40 if rows == 800 else 10)


def test_only_missing_results_are_made(asked, tmp_path):
    arguments = [prepared(sparse=False)], [grid_method()]
    first = accuracy.measure(store.Store(tmp_path / "kept"), *arguments)
    made = len(asked)
    assert accuracy.measure(store.Store(tmp_path / "kept"), *arguments) == first
    assert len(asked) == made
    lines = (tmp_path / "kept").read_text().splitlines()
    # A line lost and one cut off in the middle are made again, and nothing else.
    (tmp_path / "kept").write_text("\n".join([*lines[1:-1], lines[-1][:20]]) + "\n")
    assert accuracy.measure(store.Store(tmp_path / "kept"), *arguments) == first
    assert sum(len(request["tasks"]) for request in asked[made:]) == 2


def test_what_is_left_out_says_so(asked, tmp_path):
    method = grid_method(obstacle=lambda _: "too slow")
    (line,) = accuracy.measure(store.Store(tmp_path / "kept"), [prepared(sparse=False)], [method])
    assert line["left_out"]
    assert line["reason"] == "too slow"
    assert asked == []


def test_sources_that_change_during_a_run_stop_it(asked, tmp_path, monkeypatch):
    versions = itertools.count()
    monkeypatch.setattr(accuracy, "fingerprint", lambda library: str(next(versions)))
    with pytest.raises(SystemExit, match="changed during the run"):
        accuracy.measure(store.Store(tmp_path / "kept"), [prepared(sparse=False)], [grid_method()])


def test_a_store_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "kept"
    store.Store(path).put({"key": "a", "accuracy": 1})
    with path.open("a") as file:
        file.write('{"key": "b", "accu')
    again = store.Store(path)
    assert (len(again), again.get("a"), again.get("b")) == (1, {"key": "a", "accuracy": 1}, None)
    assert len(store.Store(path, fresh=True)) == 0
    assert not path.exists()


def test_a_failed_timing_is_a_line_with_a_reason_and_is_tried_again(tmp_path, monkeypatch):
    def broken(*_):
        raise subprocess.CalledProcessError(1, "pip")

    for name in ("_in_turn", "_memory", "_imports", "_first_fit"):
        monkeypatch.setattr(speed, name, broken)
    monkeypatch.setattr(speed.noise, "measure", broken)
    kept = store.Store(tmp_path / "kept")
    found = speed.measure(kept, [prepared(sparse=False)], [], repeats=1)
    for what in ("seconds", "memory"):
        (line,) = found[what]
        assert (line["table"], line["who"]) == ("T", "epsilearn")
        assert line["reason"].startswith("CalledProcessError")
    assert found["import"]["reason"] == found["noise"]["reason"] == found["first fit"]["reason"]
    assert len(kept) == 0
    monkeypatch.setattr(speed, "_memory", lambda *_: [{"table": "T", "who": "epsilearn", "rise": 1.0}])
    for _ in range(2):  # the second is from the store
        assert speed.measure(kept, [prepared(sparse=False)], [], repeats=1)["memory"][0]["rise"] == 1.0
    assert len(kept) == 1


def test_the_machine_is_described_wherever_it_is(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sysconf", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.machine()
    assert found["cores"] >= 1
    assert (found["memory"], found["commit"], found["changed"]) == (None, None, False)
    assert machine._processor(tmp_path / "absent")


@pytest.mark.parametrize(
    ("quick", "only", "expected"),
    [
        (False, None, "docs/benchmarks"),
        (True, None, "benchmarks/.results/quick"),
        (False, ["Adult", "KDD Cup 99"], "benchmarks/.results/adult-kdd-cup-99"),
        (True, ["Adult"], "benchmarks/.results/quick-adult"),
    ],
)
def test_partial_pages_have_places_of_their_own(quick, only, expected):
    assert command.destination(quick, only) == FOLDER.parent / expected
