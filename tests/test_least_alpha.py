"""No record decides whether there is an answer: at the least alpha that is accepted hostile tables are solved, and less
is refused before anything is spent."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from epsilearn import Ledger, LinearRegression, LinearSVC, LogisticRegression
from epsilearn.calibration.fit import least_strength
from epsilearn.calibration.strength import automatic_strength
from epsilearn.erm import Table, execute, plan
from epsilearn.errors import ConvergenceError, InvalidInput
from epsilearn.kernel import RBF, GaussianProcessRelease, InteractiveLearner, LandmarkClassifier
from epsilearn.kernel import erm as kernel_erm
from epsilearn.kernel.erm import GramProblem
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Softmax, Squared
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, minimise
from epsilearn.solvers.newton import DIRECT

LOSSES = [
    Logistic(), Logistic(3.0), HuberisedHinge(0.5), HuberisedHinge(1e-4), Huber(0.25, 1.0), Huber(1e-4, 1.0),
    Squared(1.0), Softmax(3), Softmax(6),
]  # fmt: skip


def tables(n: int, d: int):
    """Separable and not, well and badly conditioned, and for each a flipped label and a row of zeros."""
    generator = np.random.default_rng(0)
    gauss = generator.normal(size=(n, d))
    shapes = {
        "powers": np.vander(np.linspace(0, 1, n), d),
        "gauss": gauss,
        "axes": np.eye(d)[np.arange(n) % d],
        "alike": np.ones((n, d)) + 1e-9 * gauss,
        "skew": gauss * np.geomspace(1, 1e-12, d),
    }
    halves, turns = np.arange(n) < n // 2, np.arange(n) % 2 == 0
    for shape in shapes.values():
        X = shape / np.linalg.norm(shape, axis=1).max()
        for side in (halves, turns, X @ gauss[0] > 0, np.ones(n, bool)):
            y = np.where(side, 1.0, -1.0)
            flipped, zero = y.copy(), X.copy()
            flipped[0], zero[0] = -y[0], 0.0
            yield from ((X, y), (X, flipped), (zero, y))


def prepared(loss, X, y):
    if isinstance(loss, Softmax):
        y = (y > 0) + (np.arange(len(y)) % 7 == 3).astype(float)
    return as_rows(X, y, Bounds(1.0, 0.15))


@pytest.mark.parametrize(("method", "epsilon", "delta"), [("output", 1.0, 0.0), ("objective", 300.0, 1e-6)])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_hostile_neighbours_are_solved_at_the_least_alpha(loss, method, epsilon, delta):
    """A budget so large that noise in the objective leaves alpha as it was given."""
    if method == "objective" and math.isinf(loss.lipschitz):
        return
    for X, y in tables(20, 5):
        rows = prepared(loss, X, y)
        least = least_strength(loss, rows.n, rows.norm)
        made = plan(loss, Table.of(rows), strength=least, epsilon=epsilon, delta=delta, method=method)
        assert made.strength == least
        execute(made, loss, rows)  # raises where the solver fails


@pytest.mark.parametrize("loss", [*LOSSES[:3], Huber(0.25, 1.0)], ids=repr)
def test_hostile_neighbours_are_solved_by_their_kernel_values(loss):
    kernel = RBF(1.0)
    for X, y in list(tables(20, 5))[::2]:
        problem = GramProblem(kernel, kernel.points(X), y, loss, least_strength(loss, 20, kernel.bound))
        problem.solve()


def zigzag() -> Problem:
    """Steps from nothing leap from kink to kink here, and never end."""
    generator = np.random.default_rng(5)
    X, y = np.eye(20)[generator.integers(20, size=300)], generator.choice([-1.0, 1.0], 300)
    loss = HuberisedHinge(2e-5)
    rows = as_rows(X, y, Bounds(1.0, 0.15))
    return Problem(rows, loss, least_strength(loss, rows.n, rows.norm))


def test_what_steps_from_nothing_do_not_reach_stages_do():
    problem, target = zigzag(), 1e-6
    with pytest.raises(ConvergenceError, match="did not reach"):
        minimise(problem, target, limit=DIRECT)
    assert minimise(problem, target).certificate <= target


def test_stages_reach_it_by_kernel_values_too(monkeypatch):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(20, 5)), generator.choice([-1.0, 1.0], 20)
    kernel, loss = RBF(0.2), HuberisedHinge(1e-3)
    problem = GramProblem(kernel, kernel.points(X), y, loss, least_strength(loss, 20, kernel.bound))
    problem.solve()
    monkeypatch.setattr(kernel_erm, "minimise_dual", partial(kernel_erm.minimise_dual, limit=DIRECT))
    with pytest.raises(ConvergenceError, match="did not reach"):
        problem.solve()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("factor", [1.0, 2.0, 1e3, math.inf])
def test_smoother_losses_are_the_same_loss_with_wider_kinks(loss, factor):
    smooth, times = loss.smoother(factor)
    assert smooth.smoothness / times <= loss.smoothness * (1 + 1e-12)
    if math.isfinite(loss.lipschitz):
        assert smooth.lipschitz / times == pytest.approx(loss.lipschitz)
    assert loss.smoother(1.0) == (loss, 1.0)


@pytest.mark.parametrize(("method", "epsilon"), [("output", 1.0), ("objective", 300.0)])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_less_is_refused_with_the_least_by_name(loss, method, epsilon):
    if method == "objective" and math.isinf(loss.lipschitz):
        return
    table = Table(50, 4, 2.0, lambda _loss, _reach: 0.0)
    least = least_strength(loss, 50, 2.0)
    with pytest.raises(InvalidInput, match=f"least that is supported .* is {least:.3g}"):
        plan(loss, table, strength=0.99 * least, epsilon=epsilon, method=method)
    # Where noise in the objective raises it anyway, nothing is too little.
    if method == "objective":
        assert plan(loss, table, strength=0.99 * least, epsilon=0.1).strength > least


MODELS = {
    "logistic": LogisticRegression(method="output", data_norm=1.0, classes=[-1, 1]),
    "three classes": LogisticRegression(method="objective", epsilon=300.0, data_norm=1.0, classes=[-1, 1, 2]),
    "svm": LinearSVC(method="output", data_norm=1.0, classes=[-1, 1]),
    "linear": LinearRegression(method="output", data_norm=1.0, target_bound=1.0),
    "the lecture": LinearRegression(method="output", calibration="paper", data_norm=1.0, target_bound=1.0),
    "landmarks": LandmarkClassifier(kernel=RBF(1.0), landmarks=np.eye(3), method="output", classes=[-1, 1]),
    "session": InteractiveLearner(kernel=RBF(1.0), epsilon=1.0, delta=1e-6, classes=[-1, 1]),
    "process": GaussianProcessRelease(kernel=RBF(1.0), epsilon=1.0, delta=1e-6, classes=[-1, 1]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_refuse_before_they_spend(name, tmp_path):
    from sklearn.base import clone

    ledger = Ledger.create(tmp_path / "budget.db", dataset="rows", epsilon=1000.0, delta=0.1)
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.where(np.arange(20) % 2, 1, -1)
    with pytest.raises(InvalidInput, match="least that is supported"):
        clone(MODELS[name]).set_params(alpha=1e-12, ledger=ledger).fit(X, y)
    assert ledger.history() == []


def test_the_automatic_alpha_is_never_below_it():
    for loss in LOSSES:
        for method in ("output", "objective"):
            if method == "objective" and math.isinf(loss.lipschitz):
                continue
            for epsilon in (1.0, 1e6, 1e12):
                found = automatic_strength(loss, 1000, 5, 1.0, epsilon, 0.0, method, 5.0)
                assert found >= least_strength(loss, 1000, 1.0)
