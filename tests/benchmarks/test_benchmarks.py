import importlib
import math
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


conversion, summary, report = load("conversion"), load("summary"), load("report")


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


def scoreboard(ours, diffprivlib, opacus):
    """Results of one table at one budget."""
    lines = [
        {"method": "LogisticRegression", "kind": "defaults", "library": "epsilearn"} | ours,
        {"method": "diffprivlib", "kind": "best of grid", "library": "diffprivlib"} | diffprivlib,
        {"method": "Opacus", "kind": "best of grid", "library": "opacus"} | opacus,
    ]
    return {"tables": [{"name": "T"}], "accuracy": [line | {"table": "T", "epsilon": 1.0} for line in lines]}


def scores(*values):
    return {"accuracies": list(values)} | summary.summarised(list(values))


def test_ahead_of_all_needs_every_peer_that_can_run():
    ours, behind, level = scores(0.90, 0.91, 0.92), scores(0.80, 0.82, 0.81), scores(0.91, 0.90, 0.92)
    for opacus, expected in ((behind, ["T"]), (level, []), ({"reason": "no"}, ["T"])):
        results = scoreboard(ours, behind, opacus)
        results["comparisons"] = report.comparisons(results)
        assert report.ahead_of_all(results, 1.0) == expected
    results = scoreboard({"reason": "no"}, behind, behind)
    results["comparisons"] = report.comparisons(results)
    assert report.ahead_of_all(results, 1.0) == []
