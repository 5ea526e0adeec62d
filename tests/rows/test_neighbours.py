"""One record must not move what is public, nor what is done to the others; and none can break a certificate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from epsilearn.erm import Table, plan
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Softmax, Squared
from epsilearn.rows import Bounds, as_rows
from epsilearn.solvers import Problem, minimise

LAYOUTS = [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array]
LOSSES = [Logistic(), HuberisedHinge(0.5), Squared(1.0), Huber(0.5, 1.0), Softmax(3)]


def neighbours(n: int = 200, d: int = 50) -> list[np.ndarray]:
    """The same rows but for the first: short, full, gigantic, tiny, or empty."""
    X = np.random.default_rng(0).normal(size=(n, d)) * (np.random.default_rng(1).random((n, d)) < 0.1)
    firsts = [np.eye(d)[0], np.ones(d), np.full(d, 1.7e308), np.full(d, 1e-320), np.zeros(d)]
    return [np.vstack([first, X[1:]]) for first in firsts]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_plans_do_not_depend_on_a_record(layout, loss):
    tables = [Table.of(as_rows(layout(X), np.zeros(200), Bounds(1.0))) for X in neighbours()]
    assert len({(t.rows, t.columns, t.norm, t.rounding(loss, 3.0)) for t in tables}) == 1
    for method in ("output", "objective") if loss != Squared(1.0) else ("output",):
        plans = [plan(loss, t, strength=1e-5, epsilon=1.0, delta=1e-6, method=method) for t in tables]
        assert all(p == plans[0] for p in plans)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_record_does_not_move_the_others(layout):
    factors = [as_rows(layout(X), np.zeros(200), Bounds(0.5))._factors[1:] for X in neighbours()]
    assert all(np.array_equal(f, factors[0]) for f in factors)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("n", [4, 40_000])
def test_giants_are_shortened_like_anybody(layout, loss, n):
    """Rows of the largest doubles, also of opposite signs: the minimum is that with the same directions, shorter."""
    generator = np.random.default_rng(3)
    X = generator.normal(size=(n, 2))
    y = generator.integers(0, 3, n).astype(float) if isinstance(loss, Softmax) else generator.choice([-1.0, 1.0], n)
    giants, ordinary = X.copy(), X.copy()
    giants[1], ordinary[1] = [1.7e308, -1.7e308], [1.7, -1.7]
    giants[2], ordinary[2] = [1.7e308, 0.0], [1.7, 0.0]
    strength, target = 0.01, 1e-9
    found = [minimise(Problem(as_rows(layout(Z), y, Bounds(1.0)), loss, strength), target) for Z in (giants, ordinary)]
    assert all(f.certificate <= target for f in found)
    np.testing.assert_allclose(found[0].coef, found[1].coef, atol=2.1 * target / strength)


def test_a_bound_that_is_not_a_number_is_not_accepted(monkeypatch):
    from epsilearn.errors import ConvergenceError
    from epsilearn.solvers import newton

    rows = as_rows(np.ones((3, 1)), np.ones(3), Bounds(1.0))
    monkeypatch.setattr(newton, "_norm", lambda _vector: float("nan"))
    with pytest.raises(ConvergenceError):
        minimise(Problem(rows, Logistic(), 0.1), 1e-3, limit=5)
