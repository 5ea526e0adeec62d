"""The non-interactive learner: exact laws of small searches, whole searches, nets, and what the model holds."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from epsilearn import Ledger
from epsilearn.accounting import BoundedRange, LaplaceShift, ZeroConcentrated
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import ball_spread, finite_spread, printed_rounds, rounds
from epsilearn.composition import Composite
from epsilearn.errors import BudgetExceeded, InvalidInput
from epsilearn.kernel import RBF, Linear, NonInteractiveLearner, Polynomial, non_interactive
from epsilearn.kernel.erm import FeatureMinimum, GramMinimum
from epsilearn.kernel.hypothesis import Hypothesis
from epsilearn.kernel.non_interactive import _Candidates, _plan_printed, _plan_tight, _search, _sensitivity, ball_net
from epsilearn.mechanisms.search import choose_in_ball
from epsilearn.noise.bits import SeededBits

LONGEST = 1 + 2.0**-20


def table(rows: int, columns: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows on the sphere, most of them near one axis: labels by its sign, and a minimiser near the bound on norms."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, columns))
    X[:, 0] = np.abs(X[:, 0]) + 1.5
    X *= generator.choice([-1, 1], rows)[:, None] / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.sign(X[:, 0])


def sphere(count: int, columns: int = 3, seed: int = 1) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, columns))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def learner(**options) -> NonInteractiveLearner:
    settings = {"kernel": Linear(1.0), "loss": "hinge", "alpha": 0.5, "classes": [-1, 1]}
    return NonInteractiveLearner(**{**settings, **options})


class Planned:
    """What a learner would do with a table; nothing is solved unless asked."""

    def __init__(self, rows: int = 200, columns: int = 3, **options) -> None:
        self.learner = learner(**options)
        self.problem, _ = self.learner._problem(*table(rows, columns), {})
        self.space = self.learner._space(self.problem)
        self.sensitivity = _sensitivity(self.learner, self.problem)
        make = _plan_tight if self.learner.calibration == "tight" else _plan_printed
        self.plan = make(self.learner, self.problem, self.space)

    def search(self, minimum, seed: int = 0, plan=None) -> Hypothesis:
        return _search(plan or self.plan, self.space, self.problem, minimum, SeededBits(seed))

    def minimum(self, *weights: float) -> FeatureMinimum:
        return FeatureMinimum(self.problem.features, np.pad(weights, (0, self.problem.features.columns - len(weights))))


@pytest.fixture(scope="module")
def single() -> Planned:
    """A search of one round among three candidates: so few rows, and so short a minimiser."""
    made = Planned(candidates=np.eye(3), norm=1e-3)
    assert made.plan.count == 1
    return made


def as_if_large(monkeypatch, sensitivity: float) -> None:
    """Plan for values of so small a sensitivity, as of a table with far more rows."""
    monkeypatch.setattr(non_interactive, "_sensitivity", lambda learner, problem: sensitivity)


# ---------------------------------------------------------------- privacy


@pytest.mark.parametrize("people", [1, 4])
@pytest.mark.parametrize("candidates", [None, np.eye(3)], ids=["ball", "candidates"])
def test_the_noise_used_is_the_noise_planned(people, candidates):
    made = Planned(5000, candidates=candidates, rows_per_person=people)
    plan, moves, stability = made.plan, made.sensitivity, made.problem.stability
    # Two slopes of size 1 over n lambda, and a hundredth for the solver; points a little beyond the bound included.
    assert 1.0 <= moves / (people * 2 / (5000 * 0.5)) < 1.0011
    assert Fraction(moves) >= people * Fraction(stability.sensitivity) * Fraction(LONGEST)
    spread = ball_spread(3) if candidates is None else finite_spread(3)
    found = rounds(moves, concentrated_budget(1.0, 1e-6), stability.norm, 1.0, spread, 0.05)
    assert (plan.count, plan.threshold, plan.tolerance) == (found.count, found.threshold, found.tolerance)
    assert plan.law.kind == "gaussian"
    assert plan.law.scale == found.deviation
    assert plan.exponent == pytest.approx(found.each / (2 * moves), rel=1e-9)
    assert 2 * Fraction(moves) * Fraction(plan.exponent) <= Fraction(found.each)
    spent = plan.count * ((2 * moves * plan.exponent) ** 2 / 8 + (moves / plan.law.scale) ** 2 / 2)
    assert 0.999 * plan.promise.curve.rho < spent <= plan.promise.curve.rho
    assert plan.promise.rows_per_person == people
    assert plan.stops
    assert plan.step is None


def log_chances(distances: np.ndarray, exponent: float) -> np.ndarray:
    scores = exponent * np.abs(distances)
    return scores - logsumexp(scores)


def test_a_choices_privacy_loss_has_the_planned_range(single):
    """Scores all moved by the sensitivity, up or down: the worst pair attains it, so 5 % more would exceed it."""
    made, moves, widest = single, single.sensitivity, 0.0
    found = rounds(moves, made.plan.promise.curve.rho, 1e-3, 1.0, finite_spread(3), 0.05)
    for scores in product((2 * moves, 5 * moves, 100 * moves), repeat=3):
        for signs in product((-1, 0, 1), repeat=3):
            there = np.array(scores) + moves * np.array(signs)
            losses = log_chances(np.array(scores), made.plan.exponent) - log_chances(there, made.plan.exponent)
            widest = max(widest, float(losses.max() - losses.min()))
    assert 0.95 * found.each < widest <= found.each


def shifted(mu: float, epsilon: float) -> float:
    """The delta of N(0, 1) against N(mu, 1)."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def search_delta(here: np.ndarray, there: np.ndarray, exponent: float, deviation: float, epsilon: float) -> float:
    """The hockey-stick divergence of (index, noisy value): a Gaussian's for each index, at what its chance leaves."""
    log_p, log_q = log_chances(here, exponent), log_chances(there, exponent)
    return sum(
        math.exp(p) * shifted(abs(a - b) / deviation, epsilon - (p - q))
        for p, q, a, b in zip(log_p, log_q, here, there, strict=True)
    )


def test_one_round_among_three_candidates_is_private_exactly(single):
    """The law of all that a search of one round looks at, for values as far apart as neighbours' can be."""
    made, moves, deltas = single, single.sensitivity, {}
    for factor in (1.0, 0.8):
        exponent, deviation = made.plan.exponent / factor, made.plan.law.scale * factor
        deltas[factor] = max(
            search_delta(moves * np.array(values), moves * (np.array(values) + signs), exponent, deviation, 1.0)
            for values in product((0.5, 3.0, 10.0, 100.0), repeat=3)
            for signs in product((-1, 0, 1), repeat=3)
        )
    assert 1e-9 < deltas[1.0] <= 1e-6
    # A fifth less noise would break the promise; the rest is what concentrated composition costs for one round.
    assert deltas[0.8] > 1e-6


def test_searches_follow_that_law(single):
    """Which candidate, and what value: by many seeded searches of one round that always moves."""
    made, plan = single, replace(single.plan, threshold=-1.0)
    minimum = made.minimum(5 / plan.exponent, -6 / plan.exponent, 5.5 / plan.exponent)
    chosen, noises = np.zeros(3, int), []
    for seed in range(3000):
        function = made.search(minimum, seed, plan)
        index = int(function.points[0].argmax())
        chosen[index] += 1
        noises.append((function.coef[0] - minimum.weights[index]) / plan.law.scale)
    for factor, fits in ((1.0, True), (1.25, False)):
        chances = np.exp(log_chances(minimum.weights, factor * plan.exponent))
        assert bool(stats.chisquare(chosen, chances * 3000).pvalue > 1e-3) is fits
    assert stats.kstest(noises, stats.norm.cdf).pvalue > 1e-3
    squares = float(np.square(noises).sum())
    assert 1e-3 < stats.chi2.cdf(squares, 3000) < 1 - 1e-3
    assert stats.chi2.cdf(squares / 0.95**2, 3000) > 1 - 1e-3


def test_scores_are_cut_off_whatever_the_hypothesis_has_become(single, monkeypatch):
    made, seen = single, []
    monkeypatch.setattr(non_interactive, "choose_index", lambda scores, scale, source: seen.append(scores) or 0)
    function = Hypothesis(made.problem.kernel, made.problem.features)
    function.add(np.eye(3)[1:2], np.array([1e300]))
    most = non_interactive._most_distance(made.problem)
    made.space.choose(function, np.array([0.1, 0.2, -0.3]), 1.0, most, SeededBits(0))
    np.testing.assert_array_equal(seen[0], [0.1, most, 0.3])
    # No honest distance is cut: a minimiser and a hypothesis of at most its norm are closer.
    assert most >= 2 * made.problem.stability.norm * made.problem.bound


def component_law(dimension: int, tilt: float) -> Callable[[np.ndarray], np.ndarray]:
    """The law of |t|, t of density exp(tilt |t|) (1 - t**2)**((d - 1) / 2), integrated."""
    t = np.linspace(0, 1, 100_001)
    with np.errstate(divide="ignore"):
        logs = tilt * (t - 1) + (dimension - 1) / 2 * np.log1p(-(t**2))
    cumulative = integrate.cumulative_trapezoid(np.exp(logs - logs.max()), t, initial=0.0)
    return lambda x: np.interp(x, t, cumulative / cumulative[-1])


def test_points_of_the_ball_lean_along_what_is_sought(monkeypatch):
    """The search hands the sampler its residual, exponent and radius; a tilt that is 5 % off is caught."""
    made, calls = Planned(20_000, 10), []

    def noticed(vector, rate, radius, source):
        calls.append((np.array(vector, float), rate, radius))
        return choose_in_ball(vector, rate, radius, source)

    monkeypatch.setattr(non_interactive, "choose_in_ball", noticed)
    minimum = made.problem.solve()
    function = made.search(minimum)
    (vector, rate, radius), count = calls[0], 1500
    np.testing.assert_allclose(np.abs(vector), np.abs(minimum.weights))
    assert (rate, radius) == (made.plan.exponent, 1.0)
    if len(function.coef) and len(calls) > 1:
        weights = function.coef[0] * function.points[0]
        np.testing.assert_allclose(np.abs(calls[1][0]), np.abs(minimum.weights - weights), rtol=1e-9)
    length = np.linalg.norm(vector)
    exact_vector = [Fraction(float(v)) for v in vector]
    points = np.array([choose_in_ball(exact_vector, rate, radius, SeededBits(seed)) for seed in range(count)])
    assert np.linalg.norm(points, axis=1).max() <= LONGEST
    t = points @ vector / length
    law = component_law(10, rate * length)
    assert rate * length > 20
    assert stats.kstest(np.abs(t), law).pvalue > 1e-3
    assert stats.binomtest(int((t > 0).sum()), count).pvalue > 1e-3
    gap = np.linspace(0, 1, 100_001)
    mean = float(integrate.trapezoid(law(1 - gap), gap))
    spread = float((1 - np.abs(t)).std()) / math.sqrt(count)
    assert abs((1 - np.abs(t)).mean() - mean) < 3.3 * spread
    assert abs((1 - np.abs(t)).mean() - 1.05 * mean) > 3.3 * spread
    # The rest has no direction.
    rest = points - t[:, None] * vector / length
    assert np.abs(rest.mean(axis=0)).max() < 5 * rest.std() / math.sqrt(count)


# ---------------------------------------------------------------- accuracy


class Large:
    """200,000 rows and alpha = 0.5, so n lambda epsilon = 100,000; solved once, searched with many seeds."""

    def __init__(self) -> None:
        self.made = Planned(200_000)
        self.minimum = self.made.problem.solve()


@pytest.fixture(scope="module")
def large() -> Large:
    return Large()


def test_the_search_of_the_ball_ends_within_its_tolerance_everywhere(large):
    """The distance's maximum over the ball is the residual's norm, so it is known exactly."""
    plan, weights = large.made.plan, large.minimum.weights
    assert plan.tolerance < large.made.problem.stability.norm / 8
    assert np.linalg.norm(weights) > 8 * plan.tolerance
    offs, found = [], []
    for seed in range(60):
        function = large.made.search(large.minimum, seed)
        points = sphere(200, seed=seed) * np.random.default_rng(seed).uniform(size=(200, 1))
        off = np.abs(function.values(points) - points @ weights)
        offs.append(np.linalg.norm(function.weights(3) - weights))
        assert off.max() <= offs[-1] * (1 + 1e-9)
        assert np.linalg.norm(function.points, axis=1).max() <= LONGEST
        found.append(len(function.coef))
    assert np.mean(np.array(offs) > plan.tolerance) <= 0.05
    assert 1 <= min(found) <= max(found) < plan.count


def test_fit_releases_the_search_that_was_planned(large):
    X, y = table(200_000)
    model = learner(random_state=3).fit(X, y)
    function = large.made.search(large.minimum, 3)
    np.testing.assert_array_equal(model.dual_coef_, function.coef)
    np.testing.assert_array_equal(model.points_, function.points)
    assert model.tolerance_ == large.made.plan.tolerance
    points = sphere(300)
    assert np.abs(model.decision_function(points) - points @ large.minimum.weights).max() <= model.tolerance_
    # New points that are too long are scaled down as in training.
    np.testing.assert_allclose(model.decision_function(7 * points), model.decision_function(points), rtol=1e-9)
    assert model.score(X[:1000], y[:1000]) > 0.95
    assert model.guarantee_.void_reason == "seeded"
    model = learner().fit(*table(500))
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 1e-6)
    assert model.guarantee_.curve == ZeroConcentrated(concentrated_budget(1.0, 1e-6))


def test_a_thousand_dimensions(monkeypatch):
    """The ball of R**1000 is drawn from as it is; with many rows (assumed here) the search comes near."""
    model = learner().fit(*table(1500, 1000))
    assert model.predict(sphere(5, 1000)).shape == (5,)
    assert model.points_ is None or np.linalg.norm(model.points_, axis=1).max() <= LONGEST
    as_if_large(monkeypatch, 1e-7)
    made = Planned(50, 1000)
    minimum = made.minimum(0.7, -0.3, 0.2)
    assert made.plan.tolerance < 0.15
    function = made.search(minimum)
    assert 1 < len(function.coef) < made.plan.count
    assert np.linalg.norm(function.points, axis=1).max() <= LONGEST
    assert np.linalg.norm(function.weights(1000) - minimum.weights) <= made.plan.tolerance


def test_a_net_of_candidates_and_landmarks():
    """An RBF machine on 200,000 rows through eight landmarks, sought on a net of the ball."""
    net = ball_net(3, 1.0, 0.2)
    made = Planned(200_000, kernel=RBF(0.5), landmarks=sphere(8, seed=9), candidates=net)
    minimum = made.problem.solve()
    values = minimum.values(net)
    assert made.plan.tolerance < min(made.problem.stability.norm / 8, np.abs(values).max() / 4)
    for seed in range(15):
        function = made.search(minimum, seed)
        assert np.abs(function.values(net) - values).max() <= made.plan.tolerance
        assert 1 < len(function.coef) < made.plan.count
        # Every point found is a candidate, as it was given.
        assert cKDTree(net).query(function.points)[0].max() == 0.0


def test_a_net_of_candidates_and_the_kernel_alone(monkeypatch):
    """An RBF machine of 300 points with a norm near the bound, planned as if there were many more."""
    as_if_large(monkeypatch, 2e-5)
    net = ball_net(2, 1.0, 0.15)
    made = Planned(300, 2, kernel=RBF(2.0), candidates=net)
    points = made.problem.points
    coef = np.where(points[:, 0] > 0, 1.0, -1.0)
    coef *= made.problem.stability.norm / math.sqrt(coef @ made.problem.kernel.matrix(points, points) @ coef)
    minimum = GramMinimum(made.problem.kernel, points, coef, np.ones(300), made.problem.stability.norm)
    values = minimum.values(net)
    assert np.abs(values).max() > 4 * made.plan.tolerance
    for seed in range(15):
        function = made.search(minimum, seed)
        assert np.abs(function.values(net) - values).max() <= made.plan.tolerance
        assert 2 < len(function.coef) < made.plan.count


def test_a_search_that_finds_nothing_releases_zero():
    """A few rows: the first point is already near enough for this noise."""
    model = learner(random_state=0).fit(*table(50))
    assert model.tolerance_ > 1
    assert len(model.dual_coef_) == 0
    assert model.points_ is None
    np.testing.assert_array_equal(model.decision_function(sphere(4)), np.zeros(4))


def test_a_search_ends_where_it_is_near_enough_and_at_its_last_round_at_the_latest(large, monkeypatch):
    calls = []

    def noticed(*arguments):
        calls.append(1)
        return choose_in_ball(*arguments)

    monkeypatch.setattr(non_interactive, "choose_in_ball", noticed)
    function = large.made.search(large.minimum)
    assert len(calls) == len(function.coef) + 1
    calls.clear()
    # A threshold that noise alone passes: no more rounds than were paid for.
    plan = replace(large.made.plan, count=7, threshold=0.0)
    assert len(large.made.search(large.made.minimum(1e6), 0, plan).coef) == len(calls) == 7


# ---------------------------------------------------------------- nets


@pytest.mark.parametrize(
    ("dimension", "radius", "spacing"),
    [(1, 1.0, 0.25), (1, 1.0, 0.3), (2, 1.0, 0.1), (2, 3.0, 1.0), (3, 0.7, 0.11), (4, 1.0, 0.4), (2, 1e6, 1e5),
     (2, 1.0, 5.0), (2, 1e-4, 1e-5), (2, 1e-12, 1e-13)],
)  # fmt: skip
def test_a_net_covers_the_ball(dimension, radius, spacing):
    net = ball_net(dimension, radius, spacing)
    generator = np.random.default_rng(0)
    inside = sphere(4000, dimension) * generator.uniform(size=(4000, 1)) ** (1 / dimension) * radius
    edge = sphere(4000, dimension, seed=2) * radius
    distances, _ = cKDTree(net).query(np.vstack([inside, edge, np.zeros((1, dimension))]))
    assert distances.max() <= spacing * (1 + 1e-9)
    # No point is outside, or there twice, and the net is not finer than it need be.
    assert np.linalg.norm(net, axis=1).max() <= radius * (1 + 1e-9)
    assert len(np.unique(net, axis=0)) == len(net)
    assert distances.max() > 0.7 * min(spacing, radius)
    Linear(radius).check_public(net)


@pytest.mark.parametrize(("dimension", "spacing"), [(3, 0.01), (20, 0.5), (1000, 0.9), (1, 1e-9)])
def test_too_fine_a_net_is_refused(dimension, spacing):
    with pytest.raises(InvalidInput, match="wider"):
        ball_net(dimension, 1.0, spacing)


@pytest.mark.parametrize(("dimension", "radius", "spacing"), [(0, 1.0, 0.1), (2, -1.0, 0.1), (2, 1.0, 0.0)])
def test_nets_of_nothing(dimension, radius, spacing):
    with pytest.raises(InvalidInput):
        ball_net(dimension, radius, spacing)


# ---------------------------------------------------------------- Algorithm 3 as printed


def test_the_paper_mode_is_planned_as_printed():
    made = Planned(20_000, calibration="paper", alpha=0.1, epsilon=0.7, failure=0.02)
    wanted = printed_rounds(20_000, 0.1, 1.0, 1.0, 0.7, 1e-6, 0.02)
    plan = made.plan
    assert (plan.count, plan.exponent, plan.step) == (wanted.count, wanted.exponent, wanted.step)
    assert plan.threshold == plan.tolerance == wanted.tolerance
    assert plan.law.kind == "laplace"
    assert plan.law.scale == pytest.approx(1 / (2 * wanted.rate), rel=1e-9)
    assert not plan.stops
    # What is proven: a choice of this range and a Laplace release of this shift, as often as there are rounds.
    parts = set(plan.promise.curve.parts)
    assert len(plan.promise.curve.parts) == 2 * wanted.count
    (choice,) = {part for part in parts if isinstance(part, BoundedRange)}
    (value,) = {part for part in parts if isinstance(part, LaplaceShift)}
    moves = 1.001 * 2 / (20_000 * 0.1)
    assert choice.bound == pytest.approx(2 * moves * wanted.exponent, rel=1e-5)
    assert value.bound == pytest.approx(moves * 2 * wanted.rate, rel=1e-5)
    assert Fraction(made.sensitivity) / Fraction(plan.law.scale) <= Fraction(value.bound)
    assert 2 * Fraction(made.sensitivity) * Fraction(plan.exponent) <= Fraction(choice.bound)
    assert plan.promise.claimed_epsilon == 0.7
    again = Composite((choice,) * wanted.count + (value,) * wanted.count)
    assert plan.promise.epsilon == pytest.approx(again.epsilon(1e-6), rel=1e-12)


def test_the_paper_claims_less_than_it_proves():
    """n = 5 * 10**5, lambda = 10**-3: claimed 1, proven for over 4, and no update since nothing is so far off."""
    X, y = table(500_000, 2)
    model = learner(calibration="paper", alpha=1e-3).fit(X, y)
    assert model.guarantee_.claimed_epsilon == 1.0
    assert 4.0 < model.guarantee_.epsilon < 4.7
    assert "(claimed: 1)" in str(model.guarantee_)
    assert model.tolerance_ > 100
    assert len(model.dual_coef_) == 0


def test_the_paper_mode_moves_by_its_step_for_all_its_rounds(monkeypatch):
    """A minimiser that no table has: far off along one axis, so that all points lie there and all steps are alike."""
    rows = 20_000
    made, calls = Planned(rows, calibration="paper"), []
    assert 5 < made.plan.count < 20

    def noticed(*arguments):
        calls.append(choose_in_ball(*arguments))
        return calls[-1]

    monkeypatch.setattr(non_interactive, "choose_in_ball", noticed)
    function = made.search(made.minimum(1e6))
    assert len(function.coef) == len(calls) == made.plan.count
    np.testing.assert_array_equal(function.coef, np.sign(function.points[:, 0]) * made.plan.step)
    assert (np.abs(function.points[:, 0]) > 0.99).all()
    # Too near to move, it still goes through all of its rounds.
    calls.clear()
    assert len(made.search(made.minimum(0.1)).coef) == 0
    assert len(calls) == made.plan.count


# ---------------------------------------------------------------- what is released


@pytest.mark.parametrize("route", ["ball", "kernel alone", "landmarks", "monomials"])
def test_the_released_model_holds_nothing_private(route):
    options = {
        "ball": {},
        "kernel alone": {"kernel": RBF(0.5), "candidates": ball_net(3, 1.0, 0.5)},
        "landmarks": {"kernel": RBF(0.5), "candidates": ball_net(3, 1.0, 0.5), "landmarks": sphere(6)},
        "monomials": {"kernel": Polynomial(2, 1.0, 1.0), "candidates": ball_net(3, 1.0, 0.5)},
    }[route]
    X, y = table(400)
    model = learner(random_state=1, epsilon=500.0, **options).fit(X, y)
    assert len(model.dual_coef_) >= 1
    text = pickle.dumps(model)
    # Neither a row nor a column's worth of labels is in what leaves, nor anything as long as the table.
    assert not any(row.tobytes() in text or row.astype(np.float32).tobytes() in text for row in X)
    assert y.tobytes() not in text
    smaller = pickle.dumps(learner(random_state=1, epsilon=500.0, **options).fit(X[:200], y[:200]))
    assert abs(len(text) - len(smaller)) < 8 * 200
    points = sphere(40)
    restored = pickle.loads(text)
    np.testing.assert_array_equal(restored.decision_function(points), model.decision_function(points))
    np.testing.assert_array_equal(restored.predict(points), model.predict(points))
    assert restored.guarantee_ == model.guarantee_
    if route == "landmarks":
        features = model._function_.features
        values = features.features(points) @ features.features(model.points_).T @ model.dual_coef_
    else:
        values = model.kernel.matrix(points, model.points_) @ model.dual_coef_
    np.testing.assert_allclose(model.decision_function(points), values, rtol=1e-9, atol=1e-12)


def test_a_regression_predicts_in_the_targets_units():
    X, y = table(200_000)
    model = NonInteractiveLearner(
        kernel=Linear(1.0), loss="huber", alpha=0.2, target_bound=(10.0, 12.0), random_state=0
    ).fit(X, 11 + y)
    problem, _ = NonInteractiveLearner(kernel=Linear(1.0), loss="huber", alpha=0.2, target_bound=(10.0, 12.0))._problem(
        X, 11 + y, {}
    )
    points = sphere(100)
    np.testing.assert_allclose(model.predict(points), 11 + problem.solve().values(points), atol=model.tolerance_)
    assert model.predict(np.eye(3)[:1]) > 11.2


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", dataset="people", epsilon=10.0, delta=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delta": 0.0}, "delta > 0"),
        ({"kernel": RBF(1.0)}, "candidates"),
        ({"kernel": Polynomial(2, 1.0, 1.0)}, "candidates"),
        ({"kernel": Linear(1.0), "landmarks": np.eye(3)}, "candidates"),
        ({"candidates": 2 * np.eye(3)}, "above the declared bound"),
        ({"candidates": np.eye(4)}, "3 columns"),
        ({"candidates": np.full((1, 3), np.nan)}, "NaN"),
        ({"calibration": "loose"}, "calibration"),
        ({"failure": 0.0}, "failure"),
        ({"norm": -1.0}, "norm"),
        ({"epsilon": 1e-300, "delta": 1e-300}, "epsilon must lie"),
        ({"rows_per_person": 0}, "rows_per_person"),
    ],
)
def test_what_cannot_work_costs_nothing(ledger, options, text):
    with pytest.raises(InvalidInput, match=text):
        learner(ledger=ledger, **options).fit(*table(200))
    assert ledger.history() == []


def test_a_search_is_debited_once(ledger):
    model = learner(ledger=ledger).fit(*table(200))
    assert [row["status"] for row in ledger.history()] == ["delivered"]
    assert model.guarantee_.ledger is not None
    model.predict(sphere(1000))
    assert len(ledger.history()) == 1
    with pytest.raises(BudgetExceeded):
        learner(ledger=ledger, random_state=0).fit(*table(200))


def test_candidates_may_be_any_collection_of_points():
    assert _Candidates(RBF(1.0), np.eye(3)).spread(0.1) == pytest.approx(math.log(30), rel=1e-12)
    one = learner(candidates=np.eye(3).tolist(), random_state=0, epsilon=100.0).fit(*table(5000))
    two = learner(candidates=np.eye(3), random_state=0, epsilon=100.0).fit(*table(5000))
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    assert set(map(tuple, one.points_)) <= set(map(tuple, np.eye(3)))
