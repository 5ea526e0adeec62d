"""Private paths, whole: every sequence of choices on tiny tables, by exact probabilities, on all neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np
import pytest
from scipy import integrate, sparse, stats
from scipy.special import expit, log_softmax

from epsilearn import frank_wolfe
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.calibration.frank_wolfe import LogisticSlope, SquaredSlope
from epsilearn.constraints import ConstraintSet, GroupBall, L1Ball, L2Ball, LqBall, Polytope, Simplex
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.noise.bits import SeededBits
from epsilearn.rows.fixed import fixed_rows
from epsilearn.rows.paths import gradient_at

TRIANGLE = [[0.1, 0.0], [0.0, 0.2], [-0.1, -0.1]]


@dataclass(frozen=True)
class Case:
    """A set in the plane, its corners and the path's start written out, a loss and public bounds."""

    constraint: ConstraintSet
    corners: tuple[tuple[float, ...], ...]
    start: tuple[float, ...]
    squared: bool
    feature_bound: float
    target_bound: float
    length: float = math.inf

    @property
    def targets(self) -> list[float]:
        return [-self.target_bound, self.target_bound]


def on_axes(radius: float) -> tuple[tuple[float, ...], ...]:
    return (radius, 0.0), (-radius, 0.0), (0.0, radius), (0.0, -radius)


def a_case(kind: str, squared: bool, feature_bound: float, target_bound: float = 1.0, **more: Any) -> Case:
    bounds = squared, feature_bound, target_bound
    if kind == "l1":
        radius = more.pop("radius", 0.1)
        return Case(L1Ball(radius), on_axes(radius), (0.0, 0.0), *bounds, **more)
    if kind == "simplex":  # it does not hold 0: the path starts at the first corner
        return Case(Simplex(0.1), ((0.1, 0.0), (0.0, 0.1)), (0.1, 0.0), *bounds, **more)
    return Case(Polytope(TRIANGLE), tuple(map(tuple, TRIANGLE)), (0.0, 0.1 / 3), *bounds, **more)


# Targets far beyond the reach of scores, or scores that hardly move a logistic slope: there the theorem is nearly
# attained in every step, since a slope at the start of the path is nearly as steep as any.
CASES = {
    "l1, squared": a_case("l1", True, 0.5, 4.0),
    "simplex, squared": a_case("simplex", True, 0.5, 4.0),
    "triangle, squared": a_case("triangle", True, 0.5, 4.0),
    "l1, logistic": a_case("l1", False, 0.5),
    "simplex, logistic": a_case("simplex", False, 0.5),
    "triangle, logistic": a_case("triangle", False, 0.5),
    # Unit bounds, where the first step is only half as steep as the bound; and rows cut to a length.
    "unit l1, squared": a_case("l1", True, 1.0, 1.0, radius=1.0),
    "unit l1, logistic": a_case("l1", False, 3.0, radius=1.0),
    "l1, squared, short": a_case("l1", True, 0.5, 4.0, length=0.6),
    "triangle, logistic, short": a_case("triangle", False, 2.0, length=2.5),
}
TIGHT = list(CASES)[:6]
every_case = pytest.mark.parametrize("name", CASES)


def planned(case: Case, rows: int, steps: int = 3, columns: int = 2, **options: Any) -> frank_wolfe.PathPlan:
    bounds = SquaredSlope(case.target_bound) if case.squared else LogisticSlope()
    table = frank_wolfe.PathTable(rows, columns, case.feature_bound, case.length)
    return frank_wolfe.plan(bounds, table, case.constraint, steps=steps, **{"epsilon": 1.0, **options})


# ---------------------------------------------------------------- tables


def worst_records(case: Case, columns: int = 2) -> np.ndarray:
    """Every combination of signs at the bounds, and a null record."""
    signs = product((-1, 1), repeat=columns)
    records = [[*(case.feature_bound * np.array(s)), y] for s in signs for y in case.targets]
    return np.array([*records, [0.0] * columns + [case.targets[0]]])


def other_records(case: Case, count: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, size=(count, 2)) * case.feature_bound
    y = generator.uniform(*case.targets, count) if case.squared else generator.choice([-1.0, 1.0], count)
    return np.column_stack([X, y])


def neighbours(records: np.ndarray, rows: int) -> np.ndarray:
    """All tables: which other rows there are, which record stands in the last row, the rows, their numbers."""
    others = combinations_with_replacement(range(len(records)), rows - 1)
    return np.array([[records[[*other, last]] for last in range(len(records))] for other in others])


def cut(case: Case, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets inside the bounds, by the definition."""
    X = np.clip(tables[..., :-1], -case.feature_bound, case.feature_bound)
    lengths = np.maximum(np.linalg.norm(X, axis=-1, keepdims=True), 1e-300)
    return X * np.minimum(1.0, case.length / lengths), np.clip(tables[..., -1], *case.targets)


# ---------------------------------------------------------------- scores and probabilities of all sequences


def scores_by_definition(case: Case, tables: np.ndarray, steps: int = 3) -> list[np.ndarray]:
    """<s, mean gradient> for every table, every sequence of corners so far and every corner, step by step."""
    X, y = cut(case, tables)
    corners, points = np.array(case.corners)[:, : X.shape[-1]], np.array([case.start[: X.shape[-1]]])
    found = []
    for t in range(1, steps):
        margins = np.einsum("...np,kp->...nk", X, points)
        slopes = 2 * (margins - y[..., None]) if case.squared else -y[..., None] * expit(-y[..., None] * margins)
        gradients = np.einsum("...nk,...np->...kp", slopes, X) / X.shape[-2]
        found.append(gradients @ corners.T)
        mu = 2 / (t + 2)
        points = ((1 - mu) * points[:, None] + mu * corners[None]).reshape(-1, corners.shape[1])
    return found


class Dictated:
    """In the place of the private steps: makes the choices it is told to, and keeps the scores they were made from."""

    def __init__(self, choices: tuple[int, ...]) -> None:
        self._choices, self.scores = iter(choices), []

    def column(self, gradient: Any, size: Fraction, signed: bool) -> int:
        numbers = [Fraction(0)] * gradient.count
        for column, whole in zip(gradient.present.tolist(), gradient.still.tolist(), strict=True):
            numbers[column] += gradient.second * whole
        for position, whole in zip(gradient.touched.tolist(), gradient.moved.tolist(), strict=True):
            numbers[gradient.present[position]] += gradient.first * whole
        self.scores.append([float(size * n * sign) for n in numbers for sign in ((1, -1) if signed else (1,))])
        return next(self._choices)

    def corner(self, points: np.ndarray, sums: np.ndarray, unit: Fraction) -> int:
        exactly = [sum(Fraction(p) * int(s) for p, s in zip(point, sums, strict=True)) for point in points.tolist()]
        self.scores.append([float(unit * product) for product in exactly])
        return next(self._choices)

    def laplace_corner(self, scores: np.ndarray) -> int:
        self.scores.append(list(scores))
        return next(self._choices)


def scores_of_the_real_path(case: Case, plan: frank_wolfe.PathPlan, tables: np.ndarray, layout=np.array) -> list:
    """The same from the integers that the real path chooses by."""
    flat, count = tables.reshape(-1, *tables.shape[-2:]), len(case.corners)
    found = [np.empty((len(flat), count**t, count)) for t in range(plan.steps - 1)]
    for index, table in enumerate(flat):
        rows = fixed_rows(layout(table[:, :-1]), plan.features, length=case.length)
        target = np.clip(table[:, -1], *case.targets)
        for sequence, choices in enumerate(product(range(count), repeat=plan.steps - 2)):
            steps = Dictated((*choices, 0))
            frank_wolfe.walk(plan, rows, target, steps)
            for t, scores in enumerate(steps.scores):
                found[t][index, sequence // count ** (plan.steps - 2 - t)] = scores
    return [scores.reshape(*tables.shape[:-2], *scores.shape[1:]) for scores in found]


def gumbel(scores: np.ndarray, scale: float) -> np.ndarray:
    """Log probabilities proportional to exp(-score / scale)."""
    return log_softmax(-scores / scale, axis=-1)


def laplace(scores: np.ndarray, scale: float) -> np.ndarray:
    """Log probabilities of the least of two scores with Laplace noise: their difference has a closed tail."""
    assert scores.shape[-1] == 2
    ahead = (scores[..., ::-1] - scores) / scale
    tail = np.log((2 + np.abs(ahead)) / 4) - np.abs(ahead)
    return np.where(ahead < 0, tail, np.log1p(-np.exp(tail)))


def sequences(steps: list[np.ndarray], scale: float, law=gumbel) -> np.ndarray:
    """Log probabilities of all sequences of choices."""
    total = np.zeros((*steps[0].shape[:-2], 1))
    for scores in steps:
        total = (total[..., None] + law(scores, scale)).reshape(*total.shape[:-1], -1)
    return total


def worst_loss(logs: np.ndarray) -> float:
    """The largest log ratio over all sequences and pairs of neighbours, in both directions."""
    return float(np.ptp(logs, axis=1).max())


def worst_delta(logs: np.ndarray, epsilon: float) -> float:
    """The largest hockey-stick divergence over all ordered pairs of neighbours."""
    chances, moved = np.exp(logs), np.exp(logs + epsilon)
    return max(float(np.maximum(chances[:, [i]] - moved, 0).sum(axis=-1).max()) for i in range(logs.shape[1]))


@cache
def by_definition(name: str, rows: int) -> list[np.ndarray]:
    case = CASES[name]
    records = np.vstack([worst_records(case), other_records(case, 3)])
    return scores_by_definition(case, neighbours(records, rows))


@cache
def by_the_real_path(name: str, rows: int) -> list[np.ndarray]:
    case = CASES[name]
    # (x, y) and (-x, -y) have the same gradient: one of each pair. A giant is cut like anybody.
    records = worst_records(case)[1::2]
    giant = [1e300, -1e-300, 1e300 if case.squared else 1.0]
    records = np.vstack([records, worst_records(case)[-1:], other_records(case, 1), [giant]])
    return scores_of_the_real_path(case, planned(case, rows), neighbours(records, rows))


# ---------------------------------------------------------------- the exponential mechanism, step by step


@every_case
@pytest.mark.parametrize("layout", [np.array, sparse.csr_array], ids=["dense", "sparse"])
def test_the_real_path_chooses_by_the_definition(name, layout):
    """Up to the levels to which features, targets and slopes are cut."""
    case = CASES[name]
    records = np.vstack([worst_records(case), other_records(case, 12)])
    tables = np.random.default_rng(1).choice(records, size=(20, 3))
    for steps in (2, 3, 4):
        plan = planned(case, 3, steps)
        real = scores_of_the_real_path(case, plan, tables, layout)
        expected = scores_by_definition(case, tables, steps)
        for one, other in zip(real, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5 * plan.law.scale)


@every_case
@pytest.mark.parametrize("rows", [1, 3])
def test_a_pure_promise_holds_for_every_sequence_and_pair(name, rows):
    for epsilon in (0.1, 1.0, 8.0, 30.0):
        plan = planned(CASES[name], rows, epsilon=epsilon)
        assert (plan.promise.epsilon, plan.promise.delta, plan.law.kind) == (epsilon, 0.0, "gumbel")
        for scores in (by_definition(name, rows), by_the_real_path(name, rows)):
            assert worst_loss(sequences(scores, plan.law.scale)) <= epsilon * (1 + 1e-12)


# How much of a pure epsilon = 30 the worst pair of four rows attains, up to the third digit.
ATTAINED = {
    "l1, squared": 0.987,
    "simplex, squared": 0.987,
    "triangle, squared": 0.975,
    "l1, logistic": 0.975,
    "simplex, logistic": 0.975,
    "triangle, logistic": 0.952,
}


@pytest.mark.parametrize("name", TIGHT)
def test_five_percent_less_noise_breaks_a_pure_promise(name):
    """Three rows agree on a corner, the fourth agrees or disagrees: another corner's odds change by nearly all."""
    scale = planned(CASES[name], 4, epsilon=30.0).law.scale
    attained = worst_loss(sequences(by_definition(name, 4), scale)) / 30.0
    assert attained == pytest.approx(ATTAINED[name], abs=1e-3)
    for scores in (by_definition(name, 4), by_the_real_path(name, 4)):
        assert worst_loss(sequences(scores, 0.95 * scale)) > 30.0


def test_unit_bounds_leave_a_factor_of_two_in_short_paths():
    """At the start of the path scores are 0, so the slope is 2 |y|, half of 2 (c + |y|): room that T = 3 cannot use."""
    scale = planned(CASES["unit l1, squared"], 4, epsilon=30.0).law.scale
    scores = by_definition("unit l1, squared", 4)
    assert worst_loss(sequences(scores, scale)) == pytest.approx(15.0, abs=0.1)
    assert worst_loss(sequences(scores, 0.45 * scale)) > 30.0


def test_five_percent_less_noise_breaks_a_small_promise_on_more_rows():
    """At epsilon = 1 it takes some fifty rows that agree; then the worst pair attains 99.8 % of it."""
    case, rows = a_case("l1", True, 0.5, 40.0), 50
    scale = planned(case, rows, epsilon=1.0).law.scale
    last = worst_records(case)
    tables = np.array([[np.vstack([np.tile(other, (rows - 1, 1)), one]) for one in last] for other in last])
    scores = scores_by_definition(case, tables)
    assert 0.998 < worst_loss(sequences(scores, scale)) <= 1.0
    assert worst_loss(sequences(scores, 0.95 * scale)) > 1.0


# Where the promise is a sum of pure ones, and where it is concentrated: two choices need a large delta for that.
ADDED, CONCENTRATED = [(8.0, 1e-6), (30.0, 1e-3)], [(0.5, 0.05), (0.5, 0.2), (2.0, 0.2)]


@every_case
@pytest.mark.parametrize(("epsilon", "delta"), ADDED + CONCENTRATED)
def test_a_promise_with_delta_holds_for_every_pair(name, epsilon, delta):
    for rows in (1, 2, 4):
        plan = planned(CASES[name], rows, epsilon=epsilon, delta=delta)
        assert ("zCDP" in plan.promise.theorem) == ((epsilon, delta) in CONCENTRATED)
        for scores in (by_definition(name, rows), by_the_real_path(name, rows)):
            assert worst_delta(sequences(scores, plan.law.scale), epsilon) <= delta


@pytest.mark.parametrize("name", TIGHT)
def test_less_noise_breaks_a_promise_with_delta(name):
    """5 % where pure promises add up (10 % for the triangle); concentrated ones of two choices have more room."""
    pure = 0.9 if "triangle" in name else 0.95
    for epsilon, delta, factor in ((8.0, 1e-6, pure), (0.5, 0.05, 0.7), (0.5, 0.2, 0.6)):
        scale = planned(CASES[name], 4, epsilon=epsilon, delta=delta).law.scale
        assert worst_delta(sequences(by_definition(name, 4), factor * scale), epsilon) > delta, (epsilon, delta)


def one_column(squared: bool = True) -> Case:
    """A single column, so that paths of ten steps have 2**9 sequences."""
    return Case(L1Ball(0.1), ((0.1,), (-0.1,)), (0.0,), squared, 0.5, 4.0 if squared else 1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.01), (1.0, 1e-3), (1.0, 1e-4), (3.0, 0.01)])
@pytest.mark.parametrize("squared", [True, False], ids=["squared", "logistic"])
def test_ten_steps_of_concentrated_privacy(epsilon, delta, squared):
    """The true delta is a third of the promise at most; at 0.8 of the noise it exceeds it."""
    case = one_column(squared)
    for rows in (1, 2, 4):
        plan = planned(case, rows, 10, columns=1, epsilon=epsilon, delta=delta)
        assert "zCDP" in plan.promise.theorem
        scores = scores_by_definition(case, neighbours(worst_records(case, 1), rows), 10)
        assert worst_delta(sequences(scores, plan.law.scale), epsilon) <= 0.5 * delta
    assert worst_delta(sequences(scores, 0.8 * plan.law.scale), epsilon) > delta


@pytest.mark.parametrize("rows_per_person", [2, 3])
def test_a_person_with_several_rows(rows_per_person):
    """All of a person's rows replaced at once, while the others agree."""
    case, rows, epsilon = CASES["l1, squared"], 8, 30.0
    scale = planned(case, rows, epsilon=epsilon, rows_per_person=rows_per_person).law.scale
    records = worst_records(case)
    persons = list(combinations_with_replacement(range(len(records)), rows_per_person))
    others = [[one] * (rows - rows_per_person) for one in range(len(records))]
    tables = np.array([[records[[*other, *person]] for person in persons] for other in others])
    scores = scores_by_definition(case, tables)
    assert 0.98 * epsilon < worst_loss(sequences(scores, scale)) <= epsilon
    assert worst_loss(sequences(scores, 0.95 * scale)) > epsilon


# ---------------------------------------------------------------- the library draws from these laws


def drawn(plan: frank_wolfe.PathPlan, case: Case, table: np.ndarray, runs: int, source: Any) -> np.ndarray:
    """How often each sequence came."""
    rows = fixed_rows(table[:, :-1], plan.features, length=case.length)
    target, count = np.clip(table[:, -1], *case.targets), len(case.corners)
    seen = np.zeros(count ** (plan.steps - 1), int)
    for _ in range(runs):
        walked = frank_wolfe.execute(plan, rows, target, random_state=source)
        assert walked.chosen is not None
        seen[int(np.ravel_multi_index(walked.chosen, [count] * (plan.steps - 1)))] += 1
    return seen


def fit_of(seen: np.ndarray, chances: np.ndarray) -> float:
    """Pearson's test, with the sequences that hardly ever come in one cell."""
    expected = seen.sum() * chances
    rare = expected < 10
    cells = [np.append(numbers[~rare], numbers[rare].sum()) for numbers in (seen, expected)]
    return float(stats.chisquare(*([numbers[cells[1] > 0] for numbers in cells])).pvalue)


def fit_of_scale(seen: np.ndarray, logs: Any, factor: float) -> float:
    """The test that is sharpest against another scale: the likelihood's slope, whose mean and deviation are known."""
    chances = np.exp(logs(factor))
    slope = logs(1.001 * factor) - logs(factor / 1.001)
    slope = slope - chances @ slope
    return float(2 * stats.norm.sf(abs(seen @ slope) / math.sqrt(seen.sum() * (chances @ slope**2))))


def check_frequencies(seen: np.ndarray, logs: Any, least: float) -> None:
    """The law at the planned scale fits; those at 10 % more or less do not."""
    assert fit_of(seen, np.exp(logs(1.0))) > least
    assert fit_of_scale(seen, logs, 1.0) > least
    for factor in (0.9, 1.1):
        assert fit_of_scale(seen, logs, factor) < 1e-6


# Tables and budgets at which a sequence tells most of the scale.
TELLING = {
    "l1, squared": (30.0, [[0.36, 0.08, -1.58], [0.27, -0.04, -2.87]], 4500),
    "triangle, logistic": (20.0, [[-0.11, -0.11, 1.0], [-0.32, -0.12, 1.0]], 5200),
    "l1, logistic": (30.0, [[-0.33, -0.21, 1.0], [0.0, -0.21, -1.0]], 3500),
    "simplex, squared": (80.0, [[0.34, 0.34, 3.76], [0.33, 0.12, -2.28]], 5000),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "l1, logistic" else pytest.mark.slow) for name in TELLING]
)
def test_sequences_come_as_often_as_they_should(name):
    """Two with the operating system's bits: those cannot be fixed, so no false alarm in a million runs."""
    fair = name in list(TELLING)[:2]
    case = CASES[name]
    epsilon, table, runs = TELLING[name]
    plan = planned(case, 2, epsilon=epsilon)
    scores = scores_by_definition(case, np.array([table]))
    seen = drawn(plan, case, np.array(table), runs, None if fair else SeededBits(1))
    check_frequencies(seen, lambda f: sequences(scores, f * plan.law.scale)[0], 1e-6 if fair else 1e-3)


# ---------------------------------------------------------------- the noise as printed


def test_the_law_of_two_noisy_scores_by_quadrature():
    for scores in ([0.0, 0.0], [0.3, -1.0], [2.0, -5.0], [-0.1, 0.2]):
        for scale in (0.5, 2.0):

            def first(x: float, a: float = scores[0], b: float = scores[1], scale: float = scale) -> float:
                return stats.laplace.pdf(x, a, scale) * stats.laplace.sf(x, b, scale)

            ends = [-60.0, *sorted(scores), 60.0]
            found = sum(integrate.quad(first, *pair, limit=200)[0] for pair in pairwise(ends))
            assert np.exp(laplace(np.array(scores), scale))[0] == pytest.approx(found, rel=1e-7)


def as_printed(rows: int, steps: int, epsilon: float, delta: float, columns: int = 500) -> Guarantee:
    table = frank_wolfe.PathTable(rows, columns, 1.0)
    options = {"epsilon": epsilon, "delta": delta, "steps": steps, "calibrated": "paper"}
    return frank_wolfe.plan(SquaredSlope(1.0), table, L1Ball(1.0), **options).promise


@pytest.mark.parametrize(
    ("rows", "steps", "epsilon", "added"),
    [(10**4, 10, 0.5, True), (10**5, 34, 0.5, False), (10**4, 10, 1.0, True), (10**4, 464, 0.5, False)],
)
def test_what_is_proven_for_the_printed_noise(rows, steps, epsilon, added):
    """T - 1 choices, each e = 2 S / b private: their sum, or (T - 1) e**2 / 2 zero-concentrated by a grid of orders."""
    delta = rows**-1.1
    promise = as_printed(rows, steps, epsilon, delta)
    scale = 4 * math.sqrt(8 * steps * math.log(1 / delta)) / (rows * epsilon)
    each = 2 * (2 * 4 / rows) / scale
    a = 1 + np.exp(np.linspace(-12, 30, 1_000_001))
    rho = (steps - 1) * each**2 / 2
    concentrated = (rho * a + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)).min()
    assert added == ((steps - 1) * each < concentrated)
    assert promise.epsilon == pytest.approx(min((steps - 1) * each, concentrated), rel=1e-6)
    assert promise.claimed_epsilon == epsilon
    assert promise.epsilon > 1.1 * epsilon
    assert promise.delta == delta
    assert "claimed" in str(promise)
    assert Guarantee.from_json(promise.to_json()) == promise


def test_the_printed_noises_theorem_is_the_one_that_proves_it():
    assert "zero-concentrated" in as_printed(10**5, 34, 0.5, 1e-5).theorem
    assert "zero-concentrated" not in as_printed(10**4, 10, 0.5, 1e-4).theorem


def test_a_person_with_several_rows_is_promised_less_for_the_printed_noise():
    table = frank_wolfe.PathTable(10_000, 500, 1.0)
    options = {"epsilon": 0.5, "delta": 1e-4, "steps": 10, "calibrated": "paper"}
    one, three = (frank_wolfe.plan(SquaredSlope(1.0), table, L1Ball(1.0), rows_per_person=k, **options) for k in (1, 3))
    assert one.law == three.law
    assert three.promise.epsilon == pytest.approx(3 * one.promise.epsilon, rel=1e-6)


PRINTED = {
    "l1, one column": Case(L1Ball(0.1), ((0.1,), (-0.1,)), (0.0,), True, 1.0, 10.0),
    "simplex": Case(Simplex(0.1), ((0.1, 0.0), (0.0, 0.1)), (0.1, 0.0), True, 1.0, 10.0),
}


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize(
    ("rows", "steps", "epsilon", "delta", "violates"),
    [
        (2, 3, 30.0, 0.2, True),
        (3, 6, 10.0, 0.2, True),
        (2, 6, 30.0, 0.01, True),
        (2, 9, 10.0, 0.2, True),
        # Small budgets: half the noise that the argument needs is missing, but the argument has more room than that,
        # and tiny tables show no violation. What is claimed is unproven there, and not refuted here.
        (2, 9, 1.0, 1e-3, False),
        (3, 6, 0.5, 0.01, False),
    ],
)
def test_the_printed_noise_keeps_what_is_reported_and_not_what_is_claimed(name, rows, steps, epsilon, delta, violates):
    case = PRINTED[name]
    columns = len(case.start)
    plan = planned(case, rows, steps, columns, epsilon=epsilon, delta=delta, calibrated="paper")
    assert plan.law.kind == "laplace"
    scores = scores_by_definition(case, neighbours(worst_records(case, columns), rows), steps)
    logs = sequences(scores, plan.law.scale, laplace)
    assert plan.promise.claimed_epsilon == epsilon
    assert worst_delta(logs, plan.promise.epsilon) <= delta
    if violates:
        assert plan.promise.epsilon > epsilon
        assert worst_delta(logs, epsilon) > 1.05 * delta


def test_the_pure_part_of_what_is_reported_is_nearly_attained():
    """Two choices of e = 2 S / b each: the worst pair of three rows loses 94 % of 2 e, and more at 0.9 of the noise."""
    case = PRINTED["simplex"]
    plan = planned(case, 3, 3, epsilon=30.0, delta=0.2, calibrated="paper")
    scores = scores_by_definition(case, neighbours(worst_records(case), 3), 3)
    assert plan.promise.epsilon == pytest.approx(2 * 4 * 30 / math.sqrt(8 * 3 * math.log(5)), rel=1e-6)
    attained = worst_loss(sequences(scores, plan.law.scale, laplace)) / plan.promise.epsilon
    assert attained == pytest.approx(0.94, abs=5e-3)
    assert worst_loss(sequences(scores, 0.9 * plan.law.scale, laplace)) > plan.promise.epsilon


def test_the_printed_noise_is_what_is_drawn():
    case = CASES["simplex, squared"]
    plan = planned(case, 2, epsilon=40.0, delta=0.2, calibrated="paper")
    table = np.array([[0.03, 0.32, 2.63], [0.19, 0.29, 0.92]])
    scores = scores_by_definition(case, table[None])
    seen = drawn(plan, case, table, 5000, SeededBits(2))
    check_frequencies(seen, lambda f: sequences(scores, f * plan.law.scale, laplace)[0], 1e-3)


# ---------------------------------------------------------------- what a path is worth


def ends(case: Case, steps: int) -> np.ndarray:
    """The last points of all sequences."""
    corners, points = np.array(case.corners), np.array([case.start])
    for t in range(1, steps):
        points = ((1 - 2 / (t + 2)) * points[:, None] + 2 / (t + 2) * corners[None]).reshape(-1, 2)
    return points


def risks(case: Case, tables: np.ndarray, points: np.ndarray) -> np.ndarray:
    X, y = cut(case, tables)
    margins = np.einsum("...np,kp->...nk", X, points)
    losses = (margins - y[..., None]) ** 2 if case.squared else np.logaddexp(0, -y[..., None] * margins)
    return losses.mean(axis=-2)


@every_case
@pytest.mark.parametrize("epsilon", [1.0, 30.0])
def test_the_mean_excess_risk_stays_below_its_bound(name, epsilon):
    """The exact mean over all sequences, against the best of many mixtures of corners."""
    case = CASES[name]
    records = np.vstack([worst_records(case), other_records(case, 12)])
    tables = np.random.default_rng(5).choice(records, size=(30, 4))
    mixtures = np.random.default_rng(6).dirichlet([0.3] * len(case.corners), size=2000) @ np.array(case.corners)
    best = np.minimum(risks(case, tables, mixtures).min(axis=-1), risks(case, tables, np.array(case.corners)).min(-1))
    for steps in (2, 4, 6):
        plan = planned(case, 4, steps, epsilon=epsilon)
        chances = np.exp(sequences(scores_by_definition(case, tables, steps), plan.law.scale))
        excess = (chances * risks(case, tables, ends(case, steps))).sum(axis=-1) - best
        assert excess.max() <= plan.excess_bound


# ---------------------------------------------------------------- noisy gradients

ROUND_SETS = {
    "l2": L2Ball(0.5),
    "lq": LqBall(1.5, 0.5),
    "groups": GroupBall((0, 0, 1, 1, 1), 0.5),
    "l1": L1Ball(0.5),
}
ROUND = {"epsilon": 1.0, "delta": 1e-6, "method": "gradient"}


def record_gradients(plan, rows_of, target, point, size) -> np.ndarray:
    """Mean gradients of tables of one record each, from the real integers."""
    unit = float(plan.features.unit * plan.slopes.unit)
    return unit * np.array(
        [gradient_at(rows_of(x), point, size, np.array([y]), plan.code, plan.slopes) for x, y in target]
    )


@pytest.mark.parametrize("name", ROUND_SETS)
@pytest.mark.parametrize("length", [math.inf, 1.2], ids=["any length", "short"])
@pytest.mark.parametrize("squared", [True, False], ids=["squared", "logistic"])
def test_a_record_moves_the_gradient_by_no_more_than_the_noise_hides(name, length, squared):
    """Records at the bounds, beyond them and inside, at points all over the set: the l2 distance of any two."""
    constraint, bound, columns, steps, rows = ROUND_SETS[name], 2.0, 5, 4, 7
    # Targets far beyond the scores, so that opposite records have opposite slopes and the bound is nearly attained.
    half = 60.0
    table = frank_wolfe.PathTable(rows, columns, bound, length)
    bounds = SquaredSlope(half) if squared else LogisticSlope()
    plan = frank_wolfe.plan(bounds, table, constraint, steps=steps, **ROUND)
    assert plan.law.kind == "gaussian"
    generator = np.random.default_rng(2)
    signs = generator.choice([-1.0, 1.0], size=(12, columns))
    X = np.vstack([bound * signs, 1e300 * signs[:3], generator.normal(size=(5, columns)), np.eye(columns)])
    y = generator.choice([-half, half] if squared else [-1.0, 1.0], len(X))
    records = [*zip(X, y, strict=True), *zip(X, -y, strict=True)]
    size, moved = constraint.l1_norm(columns), 0.0
    for direction in [*generator.normal(size=(6, columns)), *np.eye(columns)[:2]]:
        point = constraint.minimiser(direction)
        gradients = record_gradients(
            plan, lambda x: fixed_rows(x[None], plan.features, length=length), records, point, size
        )
        moved = max(moved, np.linalg.norm(gradients[:, None] - gradients[None], axis=2).max() / rows)
    hidden = plan.law.scale * gaussian_shift(1.0, 1e-6) / math.sqrt(steps - 1)
    assert moved <= hidden * (1 + 1e-9)
    # Of two logistic records with one x and opposite labels, only one can have the steepest slope.
    assert moved > (0.95 if squared else 0.45) * hidden


def test_a_bound_on_the_rows_length_lowers_the_noise_and_holds():
    """Both bounds hold for the integers themselves, exactly."""
    generator = np.random.default_rng(3)
    X = np.vstack([generator.normal(size=(50, 400)), 1e300 * generator.choice([-1, 1], size=(3, 400)), np.eye(400)[:5]])
    scales = {}
    for length in (math.inf, 1.0):
        table = frank_wolfe.PathTable(len(X), 400, 1.0, length)
        plan = frank_wolfe.plan(SquaredSlope(1.0), table, L2Ball(1.0), steps=5, **ROUND)
        scales[length] = plan.law.scale
        rows = fixed_rows(X, plan.features, length=length)
        unit = plan.features.unit
        for index in range(0, len(X), 4):
            only = np.zeros(len(X), np.int64)
            only[index] = 1
            whole = [int(z) for z in rows.combine(only)]
            assert max(map(abs, whole)) * unit <= 1
            if math.isfinite(length):
                assert sum(z * z for z in whole) * unit**2 <= Fraction(length) ** 2
                assert sum(z * z for z in whole) * unit**2 > (0.99 if index < 53 else 0.9)
    # 2 (1 + 1) 1 against 2 (20 + 1) 20.
    assert scales[math.inf] / scales[1.0] == pytest.approx(42 * 20 / 4, rel=1e-6)


class Witness(L2Ball):
    """An l2 ball that keeps the directions it is asked for."""

    asked: list[np.ndarray] = []  # noqa: RUF012 - shared on purpose, and cleared by the test

    def minimiser(self, direction: np.ndarray) -> np.ndarray:
        self.asked.append(np.array(direction))
        return super().minimiser(direction)


def test_the_noise_on_gradients_is_what_was_planned():
    """Null records have no gradient: what the set is asked for is the noise."""
    table = frank_wolfe.PathTable(10, 1000, 1.0)
    plan = frank_wolfe.plan(LogisticSlope(), table, Witness(1.0), steps=21, **ROUND)
    rows = fixed_rows(np.zeros((10, 1000)), plan.features)
    Witness.asked.clear()
    walked = frank_wolfe.execute(plan, rows, np.ones(10), random_state=5)
    assert walked.chosen is None
    noise = np.concatenate(Witness.asked)
    assert noise.shape == (20_000,)
    assert plan.law.dimension == 1000
    assert stats.kstest(noise / plan.law.scale, "norm").pvalue > 1e-3
    for factor in (0.95, 1.05):
        total = ((noise / (factor * plan.law.scale)) ** 2).sum()
        assert 2 * min(stats.chi2.cdf(total, 20_000), stats.chi2.sf(total, 20_000)) < 1e-6
    Witness.asked.clear()


def test_a_noisy_gradient_path_ends_inside_the_set():
    for constraint in ROUND_SETS.values():
        table = frank_wolfe.PathTable(20, 5, 1.0)
        plan = frank_wolfe.plan(SquaredSlope(1.0), table, constraint, steps=6, **ROUND)
        rows = fixed_rows(np.random.default_rng(4).uniform(-1, 1, size=(20, 5)), plan.features)
        walked = frank_wolfe.execute(plan, rows, np.ones(20))
        assert constraint.contains(walked.point)
        assert walked.chosen is None


# ---------------------------------------------------------------- plans


def test_sums_fit_whatever_the_rows_and_steps():
    """Of n rows at the bounds with all weight on one column: in an int64, or exactly in a double."""
    for rows, steps in product((1, 1000, 10**6, 10**9), (2, 30, 1000, 10**4)):
        table = frank_wolfe.PathTable(rows, 3, 7.0)
        weights = (steps - 1) * (steps + 2) // 2
        squared = frank_wolfe.plan(SquaredSlope(1.0), table, L1Ball(), epsilon=1.0, delta=1e-6, steps=steps)
        if squared.affine:
            assert rows * squared.features.count**2 * weights < 2**62
        else:
            assert rows * squared.features.count * squared.slopes.count < 2**53
        assert rows * squared.features.count * squared.targets.count < 2**62
        logistic = frank_wolfe.plan(LogisticSlope(), table, L1Ball(), epsilon=1.0, delta=1e-6, steps=steps)
        assert rows * logistic.features.count * logistic.slopes.count < 2**53
        assert min(squared.features.count, logistic.features.count) >= 2**7 or rows * steps > 10**9


def test_whole_features_are_whole_numbers_of_levels_whatever_their_type():
    for bound, count in ((1.0, 2**20), (3.0, 2**20 - 1), (2.5, 2**20), (1000.0, 1048000), (2.0**21, 2**20)):
        plan = frank_wolfe.plan(SquaredSlope(1.0), frank_wolfe.PathTable(100, 3, bound), L1Ball(), epsilon=1.0, steps=4)
        assert plan.features.count == count
        if bound == int(bound) < count:
            assert (1 / plan.features.unit).denominator == 1


def test_long_squared_paths_keep_their_levels():
    """Where the square of the features has no room, slopes are rounded instead."""
    squared, steps = CASES["l1, squared"], 2**12
    short, long = (planned(squared, 10**6, number, delta=1e-6) for number in (20, steps))
    assert short.affine
    assert not long.affine
    assert long.features.count >= 2**14


def test_too_many_rows_for_exact_sums_are_refused():
    with pytest.raises(InvalidInput, match="no room for exact sums"):
        planned(CASES["l1, squared"], 2**40, 2**18, delta=1e-6)


def test_absurdly_many_steps_are_refused_at_once():
    """Before a curve of so many parts fills the memory."""
    with pytest.raises(InvalidInput, match="steps"):
        planned(CASES["l1, squared"], 100, 10**18)


def test_a_polytope_may_have_a_corner_at_zero():
    """Whether the rows' length is bounded or not."""
    triangle = Polytope([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for length in (1.0, math.inf):
        table = frank_wolfe.PathTable(100, 2, 1.0, length)
        plan = frank_wolfe.plan(SquaredSlope(1.0), table, triangle, epsilon=1.0, steps=4)
        # Three choices of a third each, scores of sensitivity 2 * 4 / n.
        assert plan.law.scale == pytest.approx(2 * (2 * 4 / 100) * 3, rel=1e-6)


def test_sets_without_corners_need_a_delta():
    with pytest.raises(InvalidInput, match="delta"):
        frank_wolfe.plan(SquaredSlope(1.0), frank_wolfe.PathTable(10, 2, 1.0), L2Ball(), epsilon=1.0, steps=4)


def test_curves_say_no_less_than_the_noise_reveals():
    """What composes later: the losses of all steps, from the noise's scale and the scores' sensitivity by hand."""
    table, steps = frank_wolfe.PathTable(1000, 20, 2.0), 30
    # |<x, s>| is 1 at most and |y| too: slopes of 4, scores that move by 2 * 4 / n.
    options = {"steps": steps, "epsilon": 0.5}
    pure = frank_wolfe.plan(SquaredSlope(1.0), table, L1Ball(0.5), **options)
    each = 2 * (2 * 4 / 1000) / pure.law.scale
    assert pure.promise.curve.pure == pytest.approx((steps - 1) * each, rel=1e-9)
    assert pure.promise.curve.rho == pytest.approx((steps - 1) * each**2 / 8, rel=1e-9)
    loose = frank_wolfe.plan(SquaredSlope(1.0), table, L1Ball(0.5), delta=1e-6, **options)
    each = 2 * (2 * 4 / 1000) / loose.law.scale
    assert loose.promise.curve.rho == pytest.approx((steps - 1) * each**2 / 8, rel=1e-9)
    # Every record has a length of 2 sqrt(20) at most, and scores of 2 sqrt(20) / 2.
    rounded = frank_wolfe.plan(SquaredSlope(1.0), table, L2Ball(0.5), delta=1e-6, **options)
    moved = 2 * 2 * (math.sqrt(20) + 1) * 2 * math.sqrt(20) / 1000
    assert rounded.promise.curve.shift == pytest.approx(math.sqrt(steps - 1) * moved / rounded.law.scale, rel=1e-9)


def test_methods():
    table = frank_wolfe.PathTable(100, 3, 1.0)
    options = {"epsilon": 1.0, "delta": 1e-6, "steps": 4}
    kinds = {
        method: frank_wolfe.plan(SquaredSlope(1.0), table, L1Ball(), method=method, **options).law.kind
        for method in ("auto", "corners", "gradient")
    }
    assert kinds == {"auto": "gumbel", "corners": "gumbel", "gradient": "gaussian"}
    with pytest.raises(InvalidInput, match="no few corners"):
        frank_wolfe.plan(SquaredSlope(1.0), table, L2Ball(), method="corners", **options)
    with pytest.raises(InvalidInput, match="prints no noise"):
        frank_wolfe.plan(SquaredSlope(1.0), table, L2Ball(), calibrated="paper", **options)
