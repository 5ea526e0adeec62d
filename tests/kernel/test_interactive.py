"""The interactive learner: exact answers known to the test, whole sessions, what is spent, and who may not copy it."""

from __future__ import annotations

import copy
import math
import multiprocessing
import pickle
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats
from scipy.special import logsumexp
from sklearn.base import clone

from epsilearn import Ledger
from epsilearn.accounting import LaplaceShift, Pure, ZeroConcentrated
from epsilearn.balls import exact
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import SparseSession, printed_session, sparse_session
from epsilearn.composition import Composite
from epsilearn.errors import BudgetExceeded, InvalidInput, StateError
from epsilearn.kernel import RBF, InteractiveLearner, Linear, UserKernel, interactive_sessions
from epsilearn.kernel.erm import FeatureMinimum
from epsilearn.kernel.features import Landmarks
from epsilearn.kernel.interactive import _plan
from epsilearn.kernel.interactive_sessions import SparseLearnerSession, SparsePlan, _PrintedSession, _value_sensitivity
from epsilearn.noise.bits import SeededBits

PRIVATE, PUBLIC = "private model", "public hypothesis"


def table(rows: int, columns: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows on the sphere, most of them near one axis: labels by its sign, and a minimiser near the bound on norms."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, columns))
    X[:, 0] = np.abs(X[:, 0]) + 1.5
    X *= generator.choice([-1, 1], rows)[:, None] / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.sign(X[:, 0])


def sphere(count: int, columns: int = 5, seed: int = 1) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, columns))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def learner(**options) -> InteractiveLearner:
    settings = {"kernel": Linear(1.0), "loss": "hinge", "alpha": 0.5, "questions": 100, "classes": [-1, 1]}
    return InteractiveLearner(**{**settings, **options})


def planned(rows: int = 200, **options):
    """What a learner would do with a table, and the problem; nothing is solved."""
    made = learner(**options)
    problem, _ = made._problem(*table(rows), {})
    return _plan(made, problem), problem


def constants_of(plan: SparsePlan) -> SparseSession:
    return sparse_session(plan.sensitivity, plan.rho, plan.norm, plan.problem.bound, plan.questions, plan.failure)


class Large:
    """200,000 rows and alpha = 0.5, so n lambda epsilon = 100,000; solved once, opened with many seeds."""

    def __init__(self) -> None:
        made = learner(questions=10_000)
        self.problem, _ = made._problem(*table(200_000), {})
        self.plan = _plan(made, self.problem)
        self.minimum = self.problem.solve()
        self.constants = constants_of(self.plan)

    def open(self, seed: int, **changes) -> SparseLearnerSession:
        constants = replace(self.constants, **changes)
        return SparseLearnerSession(self.plan, constants, self.minimum, SeededBits(seed))


@pytest.fixture(scope="module")
def large() -> Large:
    return Large()


# ---------------------------------------------------------------- accuracy


@pytest.mark.slow
def test_ten_thousand_answers_within_a_tolerance_that_says_something(large):
    """The bound on norms is the library's own, which holds for every table; the tolerance is less than a quarter."""
    points = sphere(10_000)
    values = points @ large.minimum.weights
    assert large.plan.norm == large.problem.stability.norm
    assert large.constants.tolerance < large.plan.norm / 4
    assert large.minimum.norm() > 0.9 * large.plan.norm
    failed = 0
    for seed in range(12):
        answers = large.open(seed).ask(points)
        off = np.abs([answer.value for answer in answers] - values)
        failed += off.max() > large.constants.tolerance
        private = np.array([answer.source == PRIVATE for answer in answers])
        assert 1 <= private.sum() <= large.constants.updates
        # A new answer is far closer than the tolerance; without any update the hypothesis would be too far off.
        assert off[private].max() < 0.1 * large.constants.tolerance
        assert [a.questions_left for a in answers] == list(range(9_999, -1, -1))
        assert [a.updates_left for a in answers] == list(large.constants.updates - np.cumsum(private))
        assert {a.source for a in answers} == {PRIVATE, PUBLIC}
    assert failed <= 1  # at most one in twenty is promised; none is expected
    assert np.abs(values).max() > 2 * large.constants.tolerance


def test_an_adversary_who_knows_the_minimiser_cannot_use_up_the_updates(large):
    """Each question is where the hypothesis is off by just enough to be answered; nearly all updates are spent."""
    for seed in range(2):
        session, weights, generator = large.open(seed), np.zeros(5), np.random.default_rng(seed)
        level, spent = large.constants.threshold * 0.98, 0
        for _ in range(3000):
            residual = large.minimum.weights - weights
            length = np.linalg.norm(residual)
            if length <= level:
                break
            across = generator.normal(size=5)
            across -= (across @ residual) / length**2 * residual
            cosine = level / length
            point = cosine * residual / length + math.sqrt(1 - cosine**2) * across / np.linalg.norm(across)
            point *= 1 - 1e-12
            (answer,) = session.ask(point[None])
            assert abs(answer.value - point @ large.minimum.weights) <= large.constants.tolerance
            if answer.source == PRIVATE:
                spent += 1
                weights = weights + (answer.value - point @ weights) / (point @ point) * point
        assert length <= level
        assert 0.3 * large.constants.updates < spent <= large.constants.updates


def test_fit_opens_the_session_that_was_planned(large):
    made = learner(questions=10_000).fit(*table(200_000))
    assert made.session_ == large.constants
    assert made.tolerance_ == large.constants.tolerance
    assert made.alpha_ == 0.5
    assert (made.guarantee_.epsilon, made.guarantee_.delta) == (1.0, 1e-6)
    assert made.guarantee_.curve == ZeroConcentrated(concentrated_budget(1.0, 1e-6))
    points = sphere(50)
    off = made.decision_function(points) - points @ large.minimum.weights
    assert np.abs(off).max() <= made.tolerance_
    assert made.ask(points[:1])[0].questions_left == 10_000 - 51


# ---------------------------------------------------------------- privacy


@pytest.mark.parametrize("people", [1, 2, 7])
@pytest.mark.parametrize("rows", [200, 200_000])
def test_the_noise_used_is_the_noise_planned(large, rows, people):
    """2 S / e on the threshold, 4 S / e on questions, s on answers; S counts all of a person's rows."""
    plan, problem = planned(200, rows_per_person=people)
    if rows > 200:
        plan = replace(large.plan, sensitivity=_value_sensitivity(large.problem, people), people=people)
        problem = large.problem
    constants = constants_of(plan)
    session = SparseLearnerSession(plan, constants, FeatureMinimum(problem.features, np.zeros(5)), SeededBits(0))
    # Two slopes of size 1 over n lambda, and a hundredth for the solver.
    assert 1.0 <= plan.sensitivity / (people * 2 / (rows * 0.5)) < 1.0011
    for used, wanted in (
        (session._far._threshold_scale, 2 * plan.sensitivity / constants.each),
        (session._far._question_scale, 4 * plan.sensitivity / constants.each),
        (session._law.scale, constants.deviation),
    ):
        assert used == pytest.approx(wanted, rel=1e-9)
        assert used >= wanted * (1 - 1e-15)
    assert session._law.kind == "gaussian"
    assert session._far.threshold == constants.threshold
    spent = constants.updates * (constants.each**2 + (plan.sensitivity / constants.deviation) ** 2) / 2
    assert 0.999 * plan.rho < spent <= plan.rho
    assert planned(rows_per_person=people)[0].promise.rows_per_person == people


def log_transcript(noise: tuple[float, float], before: float, last: float, negatives: int) -> float:
    """log P(so many noes, then a yes), values being given relative to the threshold: over the threshold's noise."""
    threshold, question = noise
    t = np.linspace(-60, 120, 60_001) * question
    logs = stats.laplace.logpdf(t, scale=threshold)
    logs += negatives * stats.laplace.logcdf((t - before) / question) + stats.laplace.logsf((t - last) / question)
    return float(logsumexp(logs) + math.log(t[1] - t[0]))


def test_where_an_answer_comes_from_is_as_private_as_planned():
    """All values before the first yes move one way and that one the other: exactly the planned epsilon, no less."""
    plan, _ = planned()
    constants = constants_of(plan)
    session = SparseLearnerSession(plan, constants, None, SeededBits(0))
    noise, moved, worst = (session._far._threshold_scale, session._far._question_scale), plan.sensitivity, 0.0
    for before, last in ((b * noise[1], e * noise[1]) for b in (-5, 0, 3, 10) for e in (-10, -3, 0, 5)):
        for sign in (-1, 1):
            here = log_transcript(noise, before, last, 20)
            there = log_transcript(noise, before + sign * moved, last - sign * moved, 20)
            worst = max(worst, abs(here - there))
    assert 0.99 * constants.each < worst <= constants.each * (1 + 1e-9)


def above(session: SparseLearnerSession, gap: float) -> float:
    """P(a question's noise minus the threshold's >= gap): the difference of two Laplace variables, in closed form."""
    a, b = session._far._question_scale, session._far._threshold_scale
    tail = (a**2 * math.exp(-abs(gap) / a) - b**2 * math.exp(-abs(gap) / b)) / (2 * (a**2 - b**2))
    return tail if gap >= 0 else 1 - tail


def sources(session: SparseLearnerSession, distance: float) -> tuple[float, float]:
    """The probabilities that the private model answers, and that it does not."""
    gap = float(session._far.threshold) - abs(distance)
    return above(session, gap), above(session, -gap)


@pytest.fixture(scope="module")
def single() -> SparseLearnerSession:
    """So few rows that one update is best; the first question of such a session is all that is random."""
    plan, _ = planned(200, questions=1)
    constants = constants_of(plan)
    assert constants.updates == 1
    return SparseLearnerSession(plan, constants, None, SeededBits(0))


def test_the_law_of_one_question_is_private_by_integration(single):
    """The answer's source and its value together, for values as far apart as neighbours' can be.

    The hockey-stick divergence is far below delta: the proof composes as if there were many updates.
    """
    moved, deviation, rho = planned(200, questions=1)[0].sensitivity, single._law.scale, planned(200)[0].rho
    top = float(single._far.threshold)
    distances = np.concatenate([np.linspace(-2, 2, 41) * top, [moved / 2, -moved / 2, 10 * top, top - moved / 2]])
    worst_delta, worst_renyi = 0.0, 0.0
    for here in distances:
        for there in (here - moved, here + moved):
            (p, no_p), (q, no_q) = sources(single, here), sources(single, there)
            assert abs(math.log(p / q)) <= single.constants.each
            assert abs(math.log(no_p / no_q)) <= single.constants.each
            y = np.linspace(here - 12 * deviation, here + 12 * deviation, 4001)
            log_p = math.log(p) + stats.norm.logpdf(y, here, deviation)
            log_q = math.log(q) + stats.norm.logpdf(y, there, deviation)
            excess = np.maximum(np.exp(log_p) - math.e * np.exp(log_q), 0.0)
            worst_delta = max(worst_delta, np.trapezoid(excess, y) + max(no_p - math.e * no_q, 0.0))
            for order in (1.5, 2.0, 5.0, 20.0):
                released = np.trapezoid(np.exp(order * log_p + (1 - order) * log_q), y)
                withheld = math.exp(order * math.log(no_p) + (1 - order) * math.log(no_q))
                worst_renyi = max(worst_renyi, math.log(released + withheld) / (order - 1) / order)
    assert worst_delta <= 1e-6
    assert worst_renyi <= rho
    # Not vacuous: a good part of the concentrated budget is used.
    assert worst_renyi > 0.1 * rho


def test_sessions_follow_that_law():
    """The source's frequency by its closed form, the released values by the normal law; both catch wrong scales."""
    plan, problem = planned(200, questions=1)
    constants = constants_of(plan)
    count, released = 3000, []
    for distance in (-0.8 * constants.threshold, 1.1 * constants.threshold):
        minimum, positives = FeatureMinimum(problem.features, np.array([distance, 0, 0, 0, 0])), 0
        for seed in range(count):
            session = SparseLearnerSession(plan, constants, minimum, SeededBits(seed))
            (answer,) = session.ask(np.eye(5)[:1])
            if answer.source == PRIVATE:
                positives += 1
                released.append(answer.value - distance)
            else:
                assert answer.value == 0.0
        assert stats.binomtest(positives, count, sources(session, distance)[0]).pvalue > 1e-3
    assert len(released) > 2000
    assert stats.kstest(np.array(released) / constants.deviation, stats.norm.cdf).pvalue > 1e-3
    squares = float(np.square(released).sum()) / constants.deviation**2
    for factor, fits in ((1.0, True), (0.95, False)):
        chance = stats.chi2.cdf(squares / factor**2, len(released))
        assert bool(1e-3 < chance < 1 - 1e-3) is fits


@pytest.mark.parametrize("length", [1.0, 1 + 2.0**-31, 1 + 0.99 * 2.0**-30])
def test_points_that_are_let_in_move_no_further_than_planned(length):
    """A public point may be longer than the bound by a rounding; its value's sensitivity must count that."""
    made = learner().fit(*table(200))
    point = np.array([[length, 0.0, 0.0, 0.0, 0.0]])
    made.ask(point)
    plan, stability = made._session_, planned()[1].stability
    counted = plan._far._question_scale * plan.constants.each / 4
    assert Fraction(counted) >= Fraction(stability.sensitivity) * Fraction(length)


def test_landmark_features_that_are_let_in_move_no_further_than_planned():
    """Landmarks that are nearly parallel: rounding can make a point's features longer than the kernel's bound."""
    point = np.array([[0.0, 1.0]])

    def near(gap: float) -> np.ndarray:
        return np.array([[1.0, 0.0], [math.sqrt(1 - gap**2), gap]]) * (1 - 1e-9)

    def length(gap: float) -> float:
        return float(np.linalg.norm(Landmarks(Linear(1.0), near(gap)).features(point)))

    made = learner(landmarks=near(max(np.geomspace(1.5e-5, 1e-3, 200), key=length))).fit(*table(50, 2))
    session = made._session_
    counted = session._far._question_scale * session.constants.each / 4
    problem, _ = clone(made)._problem(*table(50, 2), {})
    features = problem.features.features(point)
    try:
        made.ask(point)
    except InvalidInput:
        return
    assert counted >= problem.stability.sensitivity * np.linalg.norm(features)


# ---------------------------------------------------------------- Algorithm 1 as printed


def laplace_epsilon(each: float, count: int, delta: float) -> float:
    one = pld.from_laplace_mechanism(1 / each, value_discretization_interval=each / 20)
    return one.self_compose(count).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(("rows", "norm", "asked"), [(500, 1.0, 1.0), (500, None, 1.0), (20_000, 2.0, 0.5)])
def test_the_paper_mode_reports_what_composition_proves(rows, norm, asked):
    made = learner(calibration="paper", norm=norm, epsilon=asked, alpha=1.0, questions=1000).fit(*table(rows))
    wanted = printed_session(rows, 1.0, 1.0, 1.0, norm or 2.0, asked, 1e-6, 1000, 0.05)
    assert made.session_ == wanted
    assert made.tolerance_ == wanted.tolerance
    assert made.guarantee_.claimed_epsilon == asked
    # A value moves by 2 / (n lambda), and a thousandth for the solver.
    each = 1.001 * 2 / rows * wanted.rate
    assert made.guarantee_.epsilon == pytest.approx(laplace_epsilon(each, 1000, 1e-6), rel=0.01)
    assert made.guarantee_.epsilon == pytest.approx(Composite((LaplaceShift(each),) * 1000).epsilon(1e-6), rel=1e-4)
    assert f"(claimed: {asked:g})" in str(made.guarantee_)


def test_the_paper_mode_of_a_person_with_several_rows():
    """The printed noise does not know of them, so the proof has that much less to show."""
    one = learner(calibration="paper", questions=50).fit(*table(500)).guarantee_
    three = learner(calibration="paper", questions=50, rows_per_person=3).fit(*table(500)).guarantee_
    assert three.curve.parts[0].bound == pytest.approx(3 * one.curve.parts[0].bound, rel=1e-12)
    assert three.epsilon > 2.9 * one.epsilon


@pytest.mark.parametrize(("rows", "norm", "updates"), [(500, 1.0, 1), (100_000, 1.0, 8), (100_000, 2.0, 29)])
def test_the_paper_mode_moves_by_its_step_until_its_updates_are_spent(rows, norm, updates):
    """A minimiser that no table has, so far away that every answer is its own."""
    plan, problem = planned(200, calibration="paper", norm=norm, alpha=1.0, questions=1000)
    plan = replace(plan, constants=printed_session(rows, 1.0, 1.0, 1.0, norm, 1.0, 1e-6, 1000, 0.05))
    assert updates - 1 < max(plan.constants.updates, 0.5) <= updates
    weights = np.zeros(5)
    weights[:2] = 1e9, -1e9
    session = plan.open(FeatureMinimum(problem.features, weights), SeededBits(0))
    points = np.eye(5)[np.arange(60) % 2]
    answers = session.ask(points)
    assert [a.source for a in answers] == [PRIVATE] * updates + [PUBLIC] * (60 - updates)
    assert [a.updates_left for a in answers[: updates + 1]] == [*range(updates - 1, -1, -1), 0]
    moves = np.bincount(np.arange(updates) % 2, minlength=2) * [1, -1] * plan.constants.step
    assert plan.constants.step == pytest.approx(plan.constants.tolerance / 4, rel=1e-12)
    assert [a.value for a in answers[-2:]] == pytest.approx(list(moves), rel=1e-12)


def test_the_paper_modes_noise_and_tolerance():
    """Laplace noise of scale 1 / epsilon_0 in every value; one within the tolerance leaves the hypothesis as it is."""
    plan, problem = planned(200, calibration="paper", questions=2000)
    plan = replace(plan, constants=replace(plan.constants, updates=2000.0, step=1e-300))
    minimum = FeatureMinimum(problem.features, np.array([2 * plan.constants.tolerance, 0, 0, 0, 0]))
    session = plan.open(minimum, SeededBits(1))
    assert session._law.kind == "laplace"
    assert session._law.scale == pytest.approx(1 / plan.constants.rate, rel=1e-9)
    answers = session.ask(np.repeat(np.eye(5)[:1], 2000, axis=0))
    noise = np.array([a.value for a in answers if a.source == PRIVATE]) - 2 * plan.constants.tolerance
    assert len(noise) == 2000
    assert stats.kstest(noise * plan.constants.rate, stats.laplace.cdf).pvalue > 1e-3
    near = plan.open(FeatureMinimum(problem.features, minimum.weights * 0.4), SeededBits(1)).ask(np.eye(5)[:1])
    assert near[0].source == PUBLIC
    assert near[0].value == 0.0


def test_the_printed_tolerance_holds_with_a_quarter_more():
    """A value just beyond sigma is left to the hypothesis about as often as not, so sigma itself is no bound.

    Noise stays below sigma / 4 with the probability the paper allows, and so the answers within 5 / 4 sigma.
    """
    plan, problem = planned(200, calibration="paper", questions=1000)
    sigma, rate = plan.constants.tolerance, plan.constants.rate

    def left(factor: float) -> int:
        minimum = FeatureMinimum(problem.features, np.array([factor * sigma, 0, 0, 0, 0]))
        answers = [plan.open(minimum, SeededBits(seed)).ask(np.eye(5)[:1])[0] for seed in range(500)]
        return sum(abs(answer.value - factor * sigma) > sigma for answer in answers)

    assert stats.binomtest(left(1.01), 500, math.exp(-0.01 * sigma * rate) / 2).pvalue > 1e-3
    assert left(1.01) > 0.2 * 500
    assert left(1.25) == 0
    assert 1000 * math.exp(-sigma / 4 * rate) == pytest.approx(0.05 / 2, rel=1e-9)


def test_the_paper_modes_noise_is_no_less_than_its_proof_counts():
    """Exactly, for many numbers of rows: one over a rate must not be rounded down."""
    for rows in range(50, 120):
        plan, problem = planned(rows, calibration="paper", questions=3)
        scale = Fraction(_PrintedSession(plan, None, None)._law.scale)
        bound = plan.promise.curve.parts[0].bound
        assert Fraction(_value_sensitivity(problem, 1)) / scale <= max(Fraction(bound), exact(bound)), rows


# ---------------------------------------------------------------- an estimated norm


def random_labels(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels that nothing predicts: a minimiser near 0."""
    return table(rows)[0], np.random.default_rng(3).choice([-1.0, 1.0], rows)


def test_an_estimated_norm_spends_its_share_and_pays_off():
    X, y = random_labels(50_000)
    without, estimated = (learner(estimate_norm=share).fit(X, y) for share in (0.0, 0.1))
    assert estimated.guarantee_.curve == Composite((Pure(0.1), ZeroConcentrated(concentrated_budget(0.9, 1e-6))))
    assert (estimated.guarantee_.epsilon, estimated.guarantee_.delta) == (1.0, 1e-6)
    assert estimated.guarantee_.curve.supports(1.0, 1e-6)
    assert estimated.tolerance_ < 0.3 * without.tolerance_
    # Where the minimiser is as long as any, the share is lost.
    X, y = table(50_000)
    assert learner(estimate_norm=0.1).fit(X, y).tolerance_ > learner().fit(X, y).tolerance_


@pytest.mark.parametrize(
    ("epsilon", "delta", "share"), [(1.0, 1e-6, 0.5), (0.1, 1e-10, 0.1), (8.0, 1e-6, 0.7), (10.0, 1e-6, 0.2)]
)
def test_any_share_of_any_budget_can_go_into_the_estimate(epsilon, delta, share):
    """A pure share and a concentrated rest add up to the budget, whatever they are."""
    made = learner(epsilon=epsilon, delta=delta, estimate_norm=share).fit(*table(200))
    assert made.guarantee_.epsilon == epsilon


@pytest.mark.parametrize("people", [1, 3])
def test_the_estimates_noise_is_the_minimisers_sensitivity_over_its_share(monkeypatch, people):
    laws = []

    def noticed(values, law, source):
        laws.append((values[0], law))
        return original(values, law, source)

    original = interactive_sessions.add_noise
    monkeypatch.setattr(interactive_sessions, "add_noise", noticed)
    plan, problem = planned(500, estimate_norm=0.25, rows_per_person=people)
    minimum = problem.solve()
    plan.open(minimum, SeededBits(0))
    ((value, law),) = laws
    assert value == minimum.norm()
    assert law.kind == "laplace"
    assert law.scale == pytest.approx(1.001 * people * 2 / (500 * 0.5) / 0.25, rel=1e-6)
    assert law.scale >= people * problem.stability.sensitivity / 0.25


def test_the_estimate_is_a_bound_as_often_as_it_must_be():
    """Too small in a tenth of the failures, here a twentieth of the runs; never below the floor or above the bound."""
    plan, problem = planned(20_000, estimate_norm=0.1)
    stability = problem.stability
    for size, misses in ((0.5, 0.05), (0.95, 0.05), (0.0, 0.0)):
        minimum = FeatureMinimum(problem.features, size * stability.norm * np.eye(5)[0])
        found = np.array([plan._estimated(minimum, SeededBits(seed), 0.05) for seed in range(2000)])
        assert found.min() >= stability.norm_floor
        assert found.max() <= stability.norm
        missed = int((found < minimum.norm()).sum())
        assert stats.binomtest(missed, 2000, misses).pvalue > 1e-3
        assert np.median(found) < size * stability.norm + 0.2 * stability.norm


def test_the_estimate_leaves_nine_tenths_of_the_failures_to_the_session(monkeypatch):
    plan, problem = planned(500, estimate_norm=0.2, failure=0.1)
    called = []
    monkeypatch.setattr(SparsePlan, "_estimated", lambda self, minimum, source, failure: called.append(failure) or 0.7)
    session = plan.open(FeatureMinimum(problem.features, np.ones(5)), SeededBits(0))
    assert called == [pytest.approx(0.01)]
    assert plan.rho == concentrated_budget(0.8, 1e-6)
    assert session.constants == sparse_session(plan.sensitivity, plan.rho, 0.7, 1.0, 100, pytest.approx(0.09).expected)


# ---------------------------------------------------------------- what a session does in the end


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", dataset="people", epsilon=10.0, delta=1e-4)


def test_a_session_is_debited_once_and_ends_after_its_questions(ledger):
    made = learner(questions=10, ledger=ledger).fit(*table(500))
    points, head = sphere(11), ledger.verify()
    assert [row["status"] for row in ledger.history()] == ["delivered"]
    assert made.guarantee_.ledger is not None
    assert [a.questions_left for a in made.ask(points[:4])] == [9, 8, 7, 6]
    with pytest.raises(StateError, match="spent"):
        made.ask(points[:7])
    # Refused as a whole: nothing of it was counted.
    assert [a.questions_left for a in made.ask(points[:6])] == [5, 4, 3, 2, 1, 0]
    for _ in range(2):
        with pytest.raises(StateError, match="spent"):
            made.ask(points[:1])
    assert ledger.verify() == head
    assert len(ledger.history()) == 1


def test_a_point_that_is_refused_is_not_counted():
    made = learner(questions=3).fit(*table(500))
    for bad in (2 * np.eye(5)[:1], np.full((1, 5), np.nan), np.zeros((1, 4)), np.zeros((0, 5))):
        with pytest.raises((InvalidInput, ValueError)):
            made.ask(bad)
    assert made.ask(np.eye(5)[:1])[0].questions_left == 2


def test_spent_updates_leave_the_public_hypothesis_and_say_so(large):
    """With so low a threshold that every direction is news; then repeated questions get the hypothesis' answers."""
    session = large.open(0, updates=3, threshold=0.02)
    basis = np.eye(5)[[0, 0, 0, 0, 0, 0]] * np.array([1.0, 0.9, -0.8, 0.7, 0.6, 0.5])[:, None]
    session._minimum = FeatureMinimum(large.problem.features, np.array([1.0, 0, 0, 0, 0]))
    first = session.ask(basis[:1])
    assert first[0].source == PRIVATE
    session._minimum = FeatureMinimum(large.problem.features, np.array([-1.0, 0, 0, 0, 0]))
    second = session.ask(basis[1:2])
    session._minimum = FeatureMinimum(large.problem.features, np.array([1.0, 0, 0, 0, 0]))
    third = session.ask(basis[2:3])
    assert [a[0].updates_left for a in (first, second, third)] == [2, 1, 0]
    weight = third[0].value / -0.8
    session._minimum = FeatureMinimum(large.problem.features, np.array([-1.0, 0, 0, 0, 0]))
    for point, answer in zip(basis[3:], session.ask(basis[3:]), strict=True):
        assert (answer.source, answer.updates_left) == (PUBLIC, 0)
        assert answer.value == pytest.approx(weight * point[0], rel=1e-12)
    assert session._far.remaining == 0


def test_too_small_a_norm_spends_the_updates_and_the_session_goes_on(large):
    """A declared norm that does not hold: the tolerance is wrong, the promise of privacy is not."""
    plan = replace(large.plan, norm=0.02)
    constants = constants_of(plan)
    session = SparseLearnerSession(plan, constants, large.minimum, SeededBits(0))
    answers = session.ask(sphere(2000))
    assert sum(a.source == PRIVATE for a in answers) == constants.updates
    assert answers[-1].updates_left == 0
    assert answers[-1].questions_left == 8000
    assert {a.source for a in answers[-1000:]} == {PUBLIC}


def test_one_at_a_time_equals_a_batch(large):
    points = np.vstack([sphere(150), 0.5 * sphere(50, seed=5), sphere(150)])
    together = large.open(4).ask(points)
    session = large.open(4)
    singly = [session.ask(point[None])[0] for point in points]
    for batch, one in zip(together, singly, strict=True):
        assert replace(batch, value=0.0) == replace(one, value=0.0)
        assert batch.value == pytest.approx(one.value, rel=1e-12, abs=1e-14)
    assert sum(a.source == PRIVATE for a in together) > 2


@pytest.mark.parametrize("kernel", [Linear(1.0), RBF(0.3)], ids=["finite features", "kernel alone"])
def test_the_hypothesis_is_a_function_of_released_answers_alone(kernel):
    """Replayed by hand from what was released; and another table with the same transcript has the same hypothesis."""
    made = learner(kernel=kernel, norm=1.0, alpha=0.1, epsilon=1000.0, questions=120)
    problem, _ = made._problem(*table(400), {})
    plan = _plan(made, problem)
    constants = constants_of(plan)
    session = SparseLearnerSession(plan, constants, problem.solve(), SeededBits(2))
    points = sphere(120)
    answers = session.ask(points)
    assert 3 <= sum(a.source == PRIVATE for a in answers) < 120
    gram, coef = kernel.matrix(points, points), np.zeros(120)
    for position, answer in enumerate(answers):
        guess = gram[position] @ coef
        if answer.source == PRIVATE:
            coef[position] = (answer.value - guess) / gram[position, position]
        else:
            assert answer.value == pytest.approx(guess, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(session._hypothesis.values(points), gram @ coef, rtol=1e-9, atol=1e-12)
    # The other table's private values are never looked at but through the answers.
    other, _ = made._problem(*random_labels(400), {})
    twin = SparseLearnerSession(plan, constants, other.solve(), SeededBits(99))
    transcript = iter([a.value if a.source == PRIVATE else None for a in answers])
    spent = [a.updates_left == 0 for a in answers]
    twin._from_model = lambda exact_value, guess: next(transcript)
    assert twin.ask(points) == answers
    assert any(spent) or next(transcript, "end") == "end"
    np.testing.assert_array_equal(twin._hypothesis.coef, session._hypothesis.coef)
    np.testing.assert_array_equal(twin._hypothesis.values(points), session._hypothesis.values(points))


def test_threads_never_exceed_the_counts(large):
    plan = replace(large.plan, norm=0.02, questions=400)
    session = SparseLearnerSession(plan, constants_of(plan), large.minimum, SeededBits(0))
    answers, refused, points = [], [], sphere(100)

    def work(start: int) -> None:
        generator = np.random.default_rng(start)
        while True:
            try:
                answers.extend(session.ask(points[generator.integers(0, 100, 3)]))
            except StateError:
                refused.append(start)
                return

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 6
    assert sorted(a.questions_left for a in answers) == list(range(1, 400))  # 133 batches of three
    private = [a for a in answers if a.source == PRIVATE]
    assert len(private) <= session.constants.updates
    assert len({a.updates_left for a in private}) == len(private)


def _ask_in_child(made, queue) -> None:
    try:
        made.ask(np.eye(5)[:1])
        queue.put("answered")
    except StateError as error:
        queue.put(str(error))


@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_a_session_cannot_be_copied(calibration):
    made = learner(calibration=calibration).fit(*table(200))
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(StateError, match="cannot be copied or pickled"):
            copying(made)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_ask_in_child, args=(made, queue))
    child.start()
    assert "fork would reuse its noise" in queue.get(timeout=600)
    child.join()
    # A clone is no session at all.
    assert made.ask(np.eye(5)[:1])[0].questions_left == 99
    assert not hasattr(clone(made), "session_")
    assert copy.deepcopy(learner()).questions == 100


# ---------------------------------------------------------------- routes and settings


def test_rows_of_one_person_double_the_noise():
    one, two = planned()[0], planned(rows_per_person=2)[0]
    assert two.sensitivity == pytest.approx(2 * one.sensitivity, rel=1e-12)
    made = learner(rows_per_person=2).fit(*table(200))
    scale = made._session_._far._question_scale * made.session_.each
    assert scale == pytest.approx(8 * one.sensitivity, rel=1e-9)
    assert made.guarantee_.rows_per_person == 2
    assert "person with up to 2 records" in str(made.guarantee_)
    assert made.tolerance_ > constants_of(one).tolerance


def test_public_landmarks():
    """An RBF machine on 200,000 rows through eight landmarks; exact values by solving the same problem again."""
    landmarks = sphere(8, seed=9)
    made = learner(kernel=RBF(0.5), landmarks=landmarks, questions=300, random_state=0).fit(*table(200_000))
    assert made.tolerance_ < made._session_._minimum.norm() / 2
    problem, _ = clone(made)._problem(*table(200_000), {})
    points = sphere(300)
    values = problem.solve().values(points)
    assert np.abs([a.value for a in made.ask(points)] - values).max() <= made.tolerance_
    assert np.abs(values).max() > made.tolerance_
    assert made._session_._updates_left < made.session_.updates


def spectrum(a: str, b: str) -> float:
    """How many pairs of letters two words share."""
    return float(sum(a[i : i + 2] == b[j : j + 2] for i in range(len(a) - 1) for j in range(len(b) - 1)))


def test_a_kernel_of_texts():
    """The hypothesis is made of texts, too: after one answer it speaks of similar ones."""
    words = ["private", "privacy", "kernel", "colonel", "convex", "vexed"] * 20
    made = learner(kernel=UserKernel(spectrum, declared=3.0), questions=5, epsilon=4000.0, alpha=0.5, norm=0.3)
    made.fit(words, [1, 1, -1, -1, 1, -1] * 20)
    assert any("positive semi-definite" in text for text in made.guarantee_.assumptions)
    asked = ["private", "privet", "kern", "private"]
    answers = made.ask(asked)
    assert [a.source for a in answers] == [PRIVATE, PUBLIC, PUBLIC, PUBLIC]
    assert answers[0].value == pytest.approx(made._session_._minimum.values(asked[:1])[0], abs=0.2)
    shares = [spectrum("private", word) / spectrum("private", "private") for word in asked]
    assert [a.value for a in answers] == pytest.approx([answers[0].value * share for share in shares], rel=1e-12)
    assert 0 < shares[1] < 1
    assert (answers[-1].updates_left, answers[-1].questions_left) == (made.session_.updates - 1, 1)
    with pytest.raises(InvalidInput, match="above the declared bound"):
        made.ask(["a text that is far too long for it"])


def test_a_regression_answers_in_the_targets_units():
    X, y = table(200_000)
    made = InteractiveLearner(
        kernel=Linear(1.0), loss="huber", alpha=0.2, questions=100, target_bound=(10.0, 12.0), random_state=0
    ).fit(X, 11 + y)
    points = sphere(50)
    predicted = made.predict(points)
    np.testing.assert_allclose(predicted, 11 + made._session_._minimum.values(points), atol=made.tolerance_)
    assert made.predict(np.eye(5)[:1]) > 11.2
    with pytest.raises(StateError, match="spent"):
        made.predict(points)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delta": 0.0}, "delta > 0"),
        ({"calibration": "loose"}, "calibration"),
        ({"questions": 0}, "questions"),
        ({"failure": 1.0}, "failure"),
        ({"norm": -1.0}, "norm"),
        ({"estimate_norm": 1.0}, "estimate_norm"),
        ({"estimate_norm": math.nan}, "estimate_norm"),
        ({"estimate_norm": 0.1, "norm": 1.0}, "give one of them"),
        ({"estimate_norm": 0.1, "calibration": "paper"}, "no part of the paper"),
        ({"epsilon": 1e-300, "delta": 1e-300}, "epsilon must lie"),
        ({"alpha": 0.0}, "alpha"),
        ({"rows_per_person": 0}, "rows_per_person"),
        ({"kernel": "rbf"}, "kernel"),
    ],
)
def test_what_cannot_work_costs_nothing(ledger, options, text):
    with pytest.raises(InvalidInput, match=text):
        learner(ledger=ledger, **options).fit(*table(200))
    assert ledger.history() == []


def test_a_seeded_session_promises_nothing_and_is_not_paid_for(ledger):
    with pytest.raises(BudgetExceeded):
        learner(ledger=ledger, random_state=1).fit(*table(200))
    made = learner(random_state=1).fit(*table(200))
    assert made.guarantee_.void_reason == "seeded"


def test_a_given_norm_is_used_where_it_is_smaller_than_the_bound_that_always_holds():
    always = planned()[1].stability.norm
    assert planned(norm=0.3)[0].norm == 0.3
    assert planned(norm=1e9)[0].norm == planned()[0].norm == always
