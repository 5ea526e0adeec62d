"""A true claim falls no more often than it may, however hard one searches; a false one falls."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from epsilearn import LinearRegression, LogisticRegression, PrivateSelection, erm
from epsilearn.accounting import GaussianShift
from epsilearn.audit import Claim, audit, gaussian_bound, judge
from epsilearn.audit.events import Prospect
from epsilearn.audit.neighbours import Case, Pair, Record, Universe, pairs, search, worst
from epsilearn.audit.subjects import SUBJECTS, Options, subject
from epsilearn.audit.worst import audit_worst, exact_worst, promise_of, worst_releases
from epsilearn.errors import InvalidInput
from epsilearn.linear import model

SURE = 1 - 1e-6
# At this confidence an audit that looked at its judging runs beforehand would be wrong more often than not.
LOW = 0.7


def most_wrong(audits: int) -> float:
    return stats.binom.isf(1e-6, audits, 1 - LOW)


# Soundness.


def test_a_true_gaussian_curve():
    generator, claim = np.random.default_rng(), Claim(GaussianShift(1.0).epsilon(0.01), 0.01, gaussian=True)
    wrong = sum(judge(generator.normal(0, 1, 200), generator.normal(1, 1, 200), claim, LOW).refuted for _ in range(40))
    assert wrong <= most_wrong(40)


def test_runs_that_searched_do_not_judge():
    """Every run has a number: those that are judged came after all those that chose the case."""
    count = itertools.count()
    cases = [Case(lambda _: next(count), 0.0, 1.0, f"{k}") for k in range(3)]
    first, second, _ = worst_releases(cases, Claim(0.5), trials=100, confidence=0.99)
    judged = np.sort(np.concatenate([first, second]).ravel())
    assert judged.tolist() == list(range(next(count) - 200, int(judged[-1]) + 1))


@pytest.mark.slow
def test_a_true_claim_however_one_searches():
    generator = np.random.default_rng()
    cases = [Case(lambda x: x + generator.laplace(scale=2.0), 0.0, 1.0, f"{k}") for k in range(4)]
    wrong = sum(audit_worst(cases, Claim(0.5), trials=100, confidence=LOW)[0].refuted for _ in range(100))
    assert wrong <= most_wrong(100)


def test_no_gaussian_bound_without_a_gaussian_claim():
    generator = np.random.default_rng(0)
    first, second = generator.normal(0, 1, 1000), generator.normal(3, 1, 1000)
    assert judge(first, second, Claim(1.0, 0.01)).gaussian_bound is None
    with_curve = judge(first, second, Claim(1.0, 0.01, gaussian=True))
    assert with_curve.gaussian_bound > with_curve.lower_bound
    assert "a Gaussian curve needs" in str(with_curve)


def test_the_gaussian_bound_by_another_route():
    """The event of a threshold: its probabilities under N(0, 1) and N(mu, 1) are as far apart as mu."""
    runs, mu = 10**9, 1.3
    hits, other_hits = (round(runs * ndtr(x)) for x in (0.2 + mu, 0.2))
    assert gaussian_bound(hits, other_hits, runs, 0.9) == pytest.approx(mu, abs=1e-3)
    assert gaussian_bound(hits, other_hits, runs, 0.9) < mu
    assert gaussian_bound(other_hits, hits, runs, 0.9) == 0.0


# Power.


def test_half_the_deviation_breaks_the_curve_and_not_yet_the_point():
    """At delta = 1e-6 a few thousand runs show too little by themselves; a curve says more than its one point."""
    generator = np.random.default_rng()
    claim = Claim(GaussianShift(0.5).epsilon(1e-6), 1e-6, gaussian=True)
    finding = judge(generator.normal(0, 1, 4000), generator.normal(1, 1, 4000), claim, 0.999)
    assert finding.refuted
    assert finding.lower_bound < claim.epsilon


@pytest.mark.slow
def test_the_worst_pair_of_output_perturbation_shows_more_than_half():
    cases = subject("logistic").cases(Options(epsilon=2.0, method="output", rows=1))
    finding, case = audit_worst(cases, Claim(2.0), trials=2000, confidence=0.999)
    assert 1.0 < finding.lower_bound <= 2.0
    assert case.words.startswith("alpha = 100")


@pytest.mark.slow
def test_half_of_the_noise_is_caught(monkeypatch):
    """In a real build: everything but the scale of the noise is as it was, the promise included."""
    whole = erm.planned_noise
    monkeypatch.setattr(erm, "planned_noise", lambda *public: replace(half := whole(*public), scale=half.scale / 2))
    for estimator, first, second in (
        (LinearRegression(method="output", target_bound=1.0), [1.0], [-1.0]),
        (LogisticRegression(method="output", classes=[0, 1]), [1], [0]),
    ):
        fitted = estimator.set_params(epsilon=1.5, alpha=100.0, data_norm=1.0, fit_intercept=False)
        finding = audit(fitted, ([[1.0]], first), ([[1.0]], second), trials=800)
        assert finding.claimed_epsilon == 1.5
        assert finding.refuted


def with_share_of_noise(monkeypatch, share):
    """Builds with less noise than they promise: in gradients, and in the objective with its polish."""
    descent, noise = erm.planned_descent, erm.planned_noise
    monkeypatch.setattr(erm, "planned_descent", lambda *public: replace(d := descent(*public), shift=d.shift / share))
    monkeypatch.setattr(
        erm,
        "planned_noise",
        lambda *public: replace(d := noise(*public), scale=d.scale * share, polish=d.polish * share),
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "delta", "share"),
    [
        ("logistic-gradient", 0.01, 1 / 2),
        ("softmax-gradient", 0.01, 1 / 2),
        ("logistic-centred", 0.0, 1 / 3),
        ("logistic-centred", 1e-3, 1 / 5),
    ],
)
def test_the_defaults_with_less_noise_are_caught(monkeypatch, name, delta, share):
    """Margins and centred rows; with half of the noise, or with less where half was not found out reliably."""
    options = Options(epsilon=2.0, delta=delta, alpha=100.0, rows=1)
    case = next(case for case in subject(name).cases(options) if "x = (-1)" in case.words or name[-1] == "d")
    honest = audit(case.mechanism, case.first, case.second, trials=1500)
    with_share_of_noise(monkeypatch, share)
    broken = audit(case.mechanism, case.first, case.second, trials=2500)
    print(f"{name}: {honest.best_bound:.3f} as planned, {broken.best_bound:.3f} with {share:.2f} of the noise")
    assert not honest.refuted
    assert broken.refuted


@pytest.mark.slow
def test_a_centre_without_noise_is_caught(monkeypatch):
    centring = model.planned_centring
    monkeypatch.setattr(
        model,
        "planned_centring",
        lambda *public: replace(found := centring(*public), mean=found.mean / 1000, spread=found.spread / 1000),
    )
    case = subject("logistic-centred").cases(Options(alpha=100.0, rows=1))[1]
    assert audit(case.mechanism, case.first, case.second, trials=1500).refuted


@pytest.mark.slow
def test_a_broken_selection_is_caught(monkeypatch):
    """A thousand times the budget for each model. About 0.8 is all that shows: a claim of 1 would stand."""
    case = subject("selection").cases(Options(epsilon=0.3))[0]
    budget = PrivateSelection._one_budget
    monkeypatch.setattr(PrivateSelection, "_one_budget", lambda self: (1000 * budget(self)[0], budget(self)[1]))
    finding = judge(*case.runs.collect(1500), Claim(0.3))
    print(f"selection: {finding.lower_bound:.3f}")
    assert finding.refuted


# The search.


def test_the_universe_keeps_its_bounds():
    generator = np.random.default_rng(0)
    for universe in (Universe(3, 2.0), Universe(2, 1.0, box=True, targets=(-1.0, 1.0), numbers=True)):
        for pair in pairs(universe, 3):
            moved = pair.moved(universe, generator, 1.0)
            for record in (*moved.companions, moved.first, moved.second):
                size = np.abs(record.features).max() if universe.box else np.linalg.norm(record.features)
                assert size <= universe.bound * (1 + 1e-12)
                assert universe.targets[0] <= record.target <= universe.targets[-1]


def test_neighbours_differ_in_one_row():
    for ahead in (False, True):
        for pair in pairs(Universe(2), 4, places=(ahead,)):
            (X, y), (other_X, other_y) = pair.tables()
            differs = np.any(other_X != X, axis=1) | (y != other_y)
            assert differs.tolist() == ([True] + [False] * 3 if ahead else [False] * 3 + [True])


def test_the_search_finds_the_one_that_leaks():
    generator = np.random.default_rng()
    cases = [Case(lambda x, e=e: x + generator.laplace(scale=1 / e), 0.0, 1.0, f"{e}") for e in (0.1, 0.1, 4.0, 0.1)]
    assert search(cases, Prospect(500, 0.0, 0.99), trials=200).words == "4.0"


def test_the_optimiser_makes_it_worse():
    """The noise hides little of a mean, so records further apart are worse: from close by it must move away."""
    universe = Universe(1)
    start = Case.of(None, Pair((), Record((0.1,), 1.0), Record((0.0,), 1.0)), universe)
    moved, distance = worst([start], lambda case: float(abs(case.first[0] - case.second[0]).sum()))
    assert distance > 0.1
    assert abs(moved.first[0] - moved.second[0]).sum() == distance


def test_what_is_written_down_is_enough_to_run_it_again():
    cases = subject("logistic").cases(Options(alpha=1.0, rows=2, rows_per_person=2))
    moved, _ = worst(cases, lambda case: float(abs(case.first[0] - case.second[0]).sum()))
    read = json.loads(json.dumps(moved.to_dict()))
    for table, written in ((moved.first, read["first"]), (moved.second, read["second"])):
        assert all(np.array_equal(part, np.array(again)) for part, again in zip(table, written, strict=True))
    again = LogisticRegression(**read["settings"])
    assert json.loads(json.dumps(Case(again, None, None, "").to_dict()))["settings"] == read["settings"]
    assert again.rows_per_person == 2


def test_a_person_with_several_records():
    (X, y), (other_X, other_y) = next(pairs(Universe(1), 3, copies=2)).tables()
    assert (np.any(other_X != X, axis=1) | (y != other_y)).tolist() == [False, True, True]


# The catalogue.


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_runs_and_promises_what_was_asked(name):
    cases = subject(name).cases(Options(epsilon=1.5))
    assert promise_of(cases).epsilon == pytest.approx(1.5)


def test_settings_without_a_meaning_are_refused():
    for name, options in (
        ("lasso", Options(alpha=1.0)),
        ("gaussian-process", Options(method="output")),
        ("interactive", Options(intercept=True)),
        ("laplace", Options(rows=3)),
        ("laplace", Options(delta=0.1)),
        ("logistic", Options(columns=0)),
    ):
        with pytest.raises(InvalidInput):
            subject(name).cases(options)
    with pytest.raises(InvalidInput, match="exact laws"):
        exact_worst(subject("softmax").cases(Options(rows=1)), Claim(1.0))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_keeps_its_promise(name):
    """Figures: ``pytest -m slow tests/audit -rP``."""
    cases = subject(name).cases(Options())
    finding, case = audit_worst(cases, Claim.of(promise_of(cases)), trials=2000, confidence=SURE, n_jobs=2)
    print(f"{name}: {finding.lower_bound:.3f}, {finding.gaussian_bound}; {case.words}")
    assert not finding.refuted
