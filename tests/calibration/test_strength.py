"""The automatic regularisation: public numbers only, and the same model in other units."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from epsilearn import LinearRegression, LogisticRegression
from epsilearn.calibration.additive import gaussian_scale, laplace_scale
from epsilearn.calibration.objective import gaussian_perturbation, pure_perturbation
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.calibration.strength import automatic_strength, typical_score
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Softmax, Squared

LOSSES = [Logistic(), HuberisedHinge(0.5), Softmax(4), Huber(0.5, 1.0)]
SETTINGS = [(loss, delta, method) for loss in LOSSES for delta in (0.0, 1e-6) for method in ("objective", "output")]
SETTINGS += [(Squared(1.0), delta, "output") for delta in (0.0, 1e-6)]


def names(setting) -> str:
    loss, delta, method = setting
    return f"{loss}-{'gaussian' if delta else 'pure'}-{method}"


every_setting = pytest.mark.parametrize(("loss", "delta", "method"), SETTINGS, ids=map(names, SETTINGS))


def test_there_is_no_way_in_for_a_record():
    """Arguments are a loss and numbers; the module imports neither rows nor noise (import-linter checks that too)."""
    from epsilearn.calibration import strength

    parameters = inspect.signature(automatic_strength).parameters
    assert set(parameters) == {"loss", "rows", "columns", "row_norm", "epsilon", "delta", "method", "score", "growing"}
    assert "numpy" not in vars(strength)


@pytest.mark.parametrize("method", ["objective", "output"])
def test_tables_of_one_shape_get_one_strength(method):
    generator = np.random.default_rng(0)
    found = set()
    for size in (1e-3, 1.0, 1e3):
        X = size * generator.normal(size=(200, 3))
        model = LogisticRegression(method=method, data_norm=1.0, classes=[0, 1]).fit(X, generator.integers(2, size=200))
        found.add(model.alpha_)
    assert len(found) == 1


@every_setting
def test_features_in_other_units(loss, delta, method):
    """Features times c: weights of size 1/c do the same, so the strength must be c squared times as much."""
    one = automatic_strength(loss, 5000, 10, 1.0, 0.7, delta, method, 5.0)
    for c in (1e-3, 0.5, 40.0):
        assert automatic_strength(loss, 5000, 10, c, 0.7, delta, method, 5.0) == pytest.approx(c**2 * one, rel=1e-4)


@every_setting
def test_more_budget_or_more_rows_ask_for_less(loss, delta, method):
    strengths = [
        automatic_strength(loss, 5000, 10, 1.0, epsilon, delta, method, 5.0) for epsilon in (0.1, 0.3, 1.0, 3.0)
    ]
    assert strengths == sorted(strengths, reverse=True)
    assert len(set(strengths)) == 4
    strengths = [automatic_strength(loss, rows, 10, 1.0, 1.0, delta, method, 5.0) for rows in (100, 3000, 100_000)]
    assert strengths == sorted(strengths, reverse=True)
    assert all(0 < s < math.inf for s in strengths)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_objective_perturbation_balances_its_two_errors(loss, delta):
    """The least of ||b||**2 / (2 s n**2) + s ||w0||**2 / 2 by brute force over s."""
    n, columns, epsilon = 20_000, 8, 1.0
    found = automatic_strength(loss, n, columns, 1.2, epsilon, delta, "objective", 5.0)
    weights, typical = columns * loss.outputs, 5.0 * math.sqrt(loss.outputs) / 1.2
    if delta:
        length = math.sqrt(weights) * gaussian_perturbation(loss, n, 1.2, found, epsilon, delta).scale
    else:
        length = weights * pure_perturbation(loss, n, 1.2, found, epsilon).scale
    strengths = found * np.geomspace(0.1, 10, 2001)
    cost = length**2 / (2 * strengths * n**2) + strengths * typical**2 / 2
    assert strengths[np.argmin(cost)] == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize("loss", [*LOSSES, Squared(1.0)], ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_output_perturbation_balances_its_two_errors(loss, delta):
    """The least of beta R**2 c**2 / (2 d n**2 s**2) + s ||w0||**2 / 2, c / (n s) the length of the noise."""
    n, columns, epsilon = 20_000, 8, 1.0
    found = automatic_strength(loss, n, columns, 1.2, epsilon, delta, "output", 5.0)
    weights, typical = columns * loss.outputs, 5.0 * math.sqrt(loss.outputs) / 1.2
    change = minimiser_sensitivity(loss, n, 1.2, found)
    scale = gaussian_scale(change, epsilon, delta) if delta else laplace_scale(change, epsilon)
    length = (math.sqrt(weights) if delta else weights) * scale * found * n
    strengths = found * np.geomspace(0.1, 10, 2001)
    cost = loss.smoothness * 1.2**2 * length**2 / (2 * columns * (n * strengths) ** 2) + strengths * typical**2 / 2
    assert strengths[np.argmin(cost)] == pytest.approx(found, rel=0.03)


def test_a_persons_rows_count():
    """Three records a person are a third of the budget a record."""
    X, y = np.zeros((300, 2)), np.tile([0, 1], 150)
    options = {"data_norm": 1.0, "classes": [0, 1]}
    three = LogisticRegression(rows_per_person=3, epsilon=1.5, **options).fit(X, y).alpha_
    assert three == pytest.approx(LogisticRegression(epsilon=0.5, **options).fit(X, y).alpha_)


@pytest.mark.parametrize("method", ["objective", "output"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_targets_in_other_units(method, delta):
    """Targets in cents instead of euros: the same model times 100, so the same strength."""
    X, y = np.zeros((500, 2)), np.zeros(500)
    one, hundred, range_of_them = (
        LinearRegression(method=method, delta=delta, data_norm=1.0, target_bound=bound).fit(X, y).alpha_
        for bound in (1.0, 100.0, (-30.0, 170.0))
    )
    assert hundred == pytest.approx(one, rel=1e-3)
    assert range_of_them == hundred


@pytest.mark.parametrize("method", ["objective", "output"])
def test_a_typical_score_is_public_too(method):
    assert typical_score(method, target_bound=3.0) == pytest.approx(3 * typical_score(method, target_bound=1.0))
    assert typical_score(method, classes=2) < typical_score(method, classes=3) == typical_score(method, classes=30)
    assert all(0 < typical_score(method, classes) < 100 for classes in (2, 3))


@pytest.mark.parametrize("row_norm", [1e-3, 1.0, 40.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize(
    ("rows", "columns", "epsilon"),
    [(300, 20, 0.1), (10_000, 20, 0.1), (30_000, 100, 1.0), (10**6, 50, 0.1), (10**6, 50, 1.0), (20_000, 50_000, 1.0)],
)
def test_scores_grow_as_noise_shrinks(rows, columns, epsilon, delta, row_norm):
    """The rule of docs/theory/strength.md, at the noise of the strength that was found."""
    loss, score = Logistic(3.0), 3.0
    found = automatic_strength(loss, rows, columns, row_norm, epsilon, delta, "objective", score, growing=True)
    counted = min(columns, 1500)
    if delta:
        length = math.sqrt(counted) * gaussian_perturbation(loss, rows, row_norm, found, epsilon, delta).scale
    else:
        length = counted * pure_perturbation(loss, rows, row_norm, found, epsilon).scale
    t = length / (rows * row_norm)
    expected = row_norm**2 * t / (score * max(5, t**-0.5)) * min(1, t / 0.006)
    assert found == pytest.approx(max(expected, row_norm**2 / (2 * rows * epsilon)), rel=0.02)
