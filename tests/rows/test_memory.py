"""Rows in memory: one contract for every layout, and rounding bounds checked in extended precision."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from epsilearn.balls import ball, precision
from epsilearn.errors import InvalidInput
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Loss, Softmax, Squared
from epsilearn.rows import Bounds, DenseRows, SparseRows, as_rows

LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "pandas": pd.DataFrame,
    "polars": lambda X: pl.DataFrame({f"c{j}": X[:, j] for j in range(X.shape[1])}),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
}
LOSSES = [Logistic(), HuberisedHinge(0.5), Squared(1.0), Huber(0.5, 1.0)]


class Unknown(Logistic):
    """The logistic loss under a name the compiled passes do not know."""


def table(n: int = 5000, d: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)) * (generator.random((n, d)) < 0.6)
    X[0] = 0.0
    return X, generator.choice([-1.0, 1.0], n), generator.normal(size=d + 1)


def clipped(X: np.ndarray, bounds: Bounds) -> np.ndarray:
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    scaled = X * np.minimum(1, bounds.data_norm / np.maximum(norms, 1e-300))
    return np.hstack([scaled, np.full((len(X), 1), bounds.intercept)])[:, : X.shape[1] + (bounds.intercept != 0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [*LOSSES, Unknown()], ids=repr)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_sums_against_plain_numpy(layout, loss, intercept):
    X, y, coef = table()
    bounds = Bounds(1.5, intercept=intercept)
    rows = as_rows(LAYOUTS[layout](X), y, bounds)
    Z = clipped(X, bounds)
    coef = coef[: rows.d]
    sums = rows.sums(loss, coef)
    scores = Z @ coef
    assert sums.value == pytest.approx(loss.value(scores, y).mean(), rel=1e-10)
    np.testing.assert_allclose(sums.gradient, Z.T @ loss.slope(scores, y) / len(y), atol=1e-11)
    hessian = (Z * loss.curvature(scores, y)[:, None]).T @ Z / len(y)
    if rows.dense:
        np.testing.assert_allclose(rows.hessian(), hessian, atol=1e-10)
    np.testing.assert_allclose(rows.product(coef), hessian @ coef, atol=1e-10)


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_single_precision_is_read_as_it_is(make):
    X, y, coef = table()
    narrow = X.astype(np.float32)
    sums = as_rows(make(narrow), y, Bounds(1.5)).sums(Logistic(), coef)
    wide = as_rows(np.ascontiguousarray(narrow.astype(float)), y, Bounds(1.5)).sums(Logistic(), coef)
    np.testing.assert_allclose(sums.gradient, wide.gradient, atol=1e-12)


def test_no_copy_is_made_of_what_can_be_read():
    X, y, _ = table()
    assert DenseRows(X, y, Bounds())._X is X
    assert DenseRows(np.asfortranarray(X), y, Bounds())._X.flags.f_contiguous
    before = X.copy()
    DenseRows(X, y, Bounds(0.1)).sums(Logistic(), np.zeros(8))
    np.testing.assert_array_equal(X, before)
    compressed = sparse.csr_array(X)
    assert np.shares_memory(SparseRows(compressed, y, Bounds())._X.data, compressed.data)


def exact_gradient(rows: DenseRows, X: np.ndarray, y: np.ndarray, coef: np.ndarray, loss: Loss) -> list[Fraction]:
    """Rational arithmetic throughout; slopes of piecewise linear losses are rational."""
    total = [Fraction(0)] * len(coef)
    weights = [Fraction(c) for c in coef]
    for x, target, factor in zip(X, y, rows._factors, strict=True):
        row = [Fraction(v) * Fraction(factor) for v in x] + [Fraction(rows._bounds.intercept)]
        score = sum((a * b for a, b in zip(row, weights, strict=True)), Fraction(0))
        residual = score - Fraction(target)
        slope = max(-Fraction(loss.threshold), min(Fraction(loss.threshold), residual))
        total = [t + slope * a for t, a in zip(total, row, strict=True)]
    return [t / len(X) for t in total]


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_the_rounding_bound_holds_against_rational_arithmetic(make, size):
    X, y, coef = table(n=700, d=5, seed=3)
    loss, coef = Huber(0.7, 1.0), coef[:6] * size
    rows = as_rows(make(X), y, Bounds(1.0))
    sums = rows.sums(loss, coef)
    exact = exact_gradient(rows, X, y, coef, loss)
    error = math.sqrt(sum(float(Fraction(g) - e) ** 2 for g, e in zip(sums.gradient, exact, strict=True)))
    assert 0 < error <= sums.error
    assert sums.error <= rows.rounding(loss, float(np.linalg.norm(coef)) * 1.001)
    assert sums.error < 1e-11 * size


def test_the_rounding_bound_for_the_logistic_loss_in_balls():
    from flint import arb

    from epsilearn.balls import ball, precision

    X, y, coef = table(n=400, d=5, seed=4)
    rows = as_rows(X, y, Bounds(1.0))
    sums = rows.sums(Logistic(), coef[:6])
    with precision(200):
        total = [arb(0)] * 6
        for x, target, factor in zip(X, y, rows._factors, strict=True):
            row = [ball(float(v)) * ball(float(factor)) for v in x] + [arb(1)]
            margin = ball(float(target)) * sum((a * ball(float(c)) for a, c in zip(row, coef, strict=False)), arb(0))
            slope = -ball(float(target)) / (1 + margin.exp())
            total = [t + slope * a for t, a in zip(total, row, strict=True)]
        errors = [float((t / 400 - ball(float(g))).abs_upper()) for t, g in zip(total, sums.gradient, strict=True)]
    assert 0 < math.hypot(*errors) <= sums.error < 1e-12


def test_clipped_rows_lie_inside_the_bound_exactly():
    """Half of all rows clipped in plain floats exceed the bound by a rounding; none of these do."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(2000, 9)) * 10
    for make in (np.ascontiguousarray, sparse.csr_array):
        rows = as_rows(make(X), np.ones(2000), Bounds(1.3, intercept=0.5))
        for x, factor in zip(X, rows._factors, strict=True):
            square = sum(Fraction(v) ** 2 for v in x) * Fraction(factor) ** 2
            assert Fraction(1.3) ** 2 * Fraction(999_999, 10**6) < square <= Fraction(1.3) ** 2
    assert Fraction(rows.norm) ** 2 >= Fraction(1.3) ** 2 + Fraction(1, 4)


def test_short_rows_are_left_alone():
    rows = as_rows(np.array([[0.1, 0.2], [0.0, 0.0]]), np.ones(2), Bounds(1.0))
    assert (rows._factors == 1).all()
    empty = as_rows(sparse.csr_array((3, 4)), np.ones(3), Bounds(1.0))
    assert np.isfinite(empty.sums(Logistic(), np.zeros(5)).gradient).all()


@pytest.mark.filterwarnings("error")
def test_large_and_tiny_features():
    for size in (1e200, 1e-200, 1e-310):
        rows = as_rows(np.array([[size, -size]]), np.ones(1), Bounds(1.0))
        sums = rows.sums(Logistic(), np.ones(3))
        assert np.isfinite(sums.gradient).all()
        assert np.linalg.norm(rows._X * rows._factors[:, None]) <= 1.0
        compressed = as_rows(sparse.csr_array(np.array([[size, -size]])), np.ones(1), Bounds(1.0))
        np.testing.assert_allclose(compressed._factors, rows._factors, rtol=1e-12)
    # A huge row is scaled to the bound, not to nothing.
    huge = as_rows(np.array([[3e200, 4e200]]), np.ones(1), Bounds(1.0, intercept=0.0))
    np.testing.assert_allclose(huge.sums(Logistic(), np.zeros(2)).gradient, [-0.3, -0.4], rtol=1e-9)


def test_duplicates_in_a_sparse_matrix_are_added():
    twice = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 3))
    rows = SparseRows(twice, np.ones(1), Bounds(10.0, intercept=0.0))
    assert rows.sums(Squared(1.0), np.zeros(3)).gradient.tolist() == [0.0, -3.0, 0.0]


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_sample_is_every_sixteenth_row_of_many(make):
    X, y, coef = table(n=40_000)
    few = as_rows(make(X), y, Bounds()).sample()
    alone = as_rows(make(X[::16]), y[::16], Bounds()).sums(Logistic(), coef)
    np.testing.assert_array_equal(few.sums(Logistic(), coef).gradient, alone.gradient)
    assert as_rows(make(X[:1000]), y[:1000], Bounds()).sample() is None


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([[1.0, math.nan]]), [1.0]),
        (np.array([[math.inf]]), [1.0]),
        (np.zeros((0, 3)), []),
        (np.zeros((3, 0)), [1.0] * 3),
        (np.zeros(3), [1.0] * 3),
        (np.array([["a"]]), [1.0]),
        (np.array([[1j]]), [1.0]),
        (np.zeros((3, 2)), [1.0] * 2),
        (np.zeros((2, 2)), [1.0, math.nan]),
        (sparse.csr_array(np.array([[math.nan]])), [1.0]),
        (sparse.csr_array((0, 3)), []),
    ],
)
def test_bad_tables(X, y):
    with pytest.raises(InvalidInput):
        as_rows(X, y, Bounds())


def test_bad_bounds():
    for options in ({"data_norm": 0.0}, {"data_norm": math.inf}, {"intercept": -1.0}, {"intercept": math.nan}):
        with pytest.raises(InvalidInput):
            Bounds(**options)


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_cancelling_scores_are_counted_in_the_rounding(make):
    """Large weights that cancel: the score is all rounding error, and so is the slope."""
    from epsilearn.balls import ball, precision

    generator = np.random.default_rng(7)
    X = generator.uniform(0.1, 0.9, size=(40, 2))
    coef = np.array([1e9, -1e9 * 0.7, 3e8 * math.pi])
    X[:, 0] = (0.7 * X[:, 1] * 1e9 - 3e8 * math.pi) / 1e9
    rows = as_rows(make(X), np.ones(40), Bounds(2.0))
    sums = rows.sums(Logistic(), coef)
    with precision(200):
        exact = rows.gradient_in_balls(Logistic(), [Fraction(float(c)) for c in coef])
        errors = [float((e - ball(float(g))).abs_upper()) for e, g in zip(exact, sums.gradient, strict=True)]
    assert 1e-9 < math.hypot(*errors) <= sums.error


# ---------------------------------------------------------------- several outputs


def several(n: int = 5000, d: int = 7, classes: int = 4, seed: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X, _, _ = table(n, d, seed)
    return X, generator.integers(classes, size=n).astype(float), generator.normal(size=(classes - 1) * (d + 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_sums_of_several_outputs_against_plain_numpy(layout, intercept):
    X, y, coef = several()
    loss, bounds = Softmax(4), Bounds(1.5, intercept=intercept)
    rows = as_rows(LAYOUTS[layout](X), y, bounds)
    Z = clipped(X, bounds)
    weights = coef[: 3 * rows.d].reshape(3, rows.d)
    sums = rows.sums(loss, weights.ravel())
    scores = weights @ Z.T
    assert sums.value == pytest.approx(loss.value(scores, y).mean(), rel=1e-10)
    np.testing.assert_allclose(sums.gradient.reshape(3, -1), loss.slope(scores, y) @ Z / len(y), atol=1e-11)
    curvature = loss.curvature(scores, y)
    np.testing.assert_allclose(rows.hessian(), (Z.T * loss.weights(curvature)) @ Z / len(y), atol=1e-10)
    change = np.random.default_rng(9).normal(size=weights.shape)
    expected = loss.bend(curvature, change @ Z.T) @ Z / len(y)
    np.testing.assert_allclose(rows.product(change.ravel()).reshape(3, -1), expected, atol=1e-10)


def test_the_whole_hessian_of_several_outputs_has_the_mean_that_steers():
    """Formed column by column from products: its blocks on the diagonal have the Hessian of `sums` as their mean."""
    X, y, coef = several(n=300, d=2)
    rows, loss = as_rows(X, y, Bounds(1.5)), Softmax(4)
    rows.sums(loss, coef)
    whole = np.array([rows.product(unit) for unit in np.eye(9)])
    np.testing.assert_allclose(whole, whole.T, atol=1e-14)
    assert np.linalg.eigvalsh(whole).min() > -1e-14
    blocks = [whole[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] for k in range(3)]
    np.testing.assert_allclose(sum(blocks) / 3, rows.hessian(), atol=1e-14)


def test_rows_serve_losses_of_one_and_of_several_outputs_in_turn():
    X, y, coef = several(n=100, d=3, classes=3)
    rows, fresh = as_rows(X, y, Bounds()), as_rows(X, y, Bounds())
    one, two = np.ones(4), coef[:8]
    for loss, at in ((Squared(), one), (Softmax(3), two), (Squared(), one), (Softmax(3), two)):
        rows.sums(loss, at)
        found = rows.product(at)
        fresh.sums(loss, at)
        np.testing.assert_array_equal(found, fresh.product(at))


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1.0, 1e7])
def test_the_rounding_bound_for_several_outputs_in_balls(make, size):
    X, y, coef = several(n=200, d=4, classes=5)
    loss, coef = Softmax(5), coef * size
    # Rows on which two classes are level, so that the score's rounding shows in the slope.
    weights = loss.basis @ coef.reshape(4, 5)
    gap = weights[0] - weights[1]
    X[:150] -= np.outer((X[:150] @ gap[:4] + gap[4]) / (gap[:4] @ gap[:4]), gap[:4])
    rows = as_rows(make(X), y, Bounds(30.0))
    sums = rows.sums(loss, coef)
    with precision(250):
        exact = rows.gradient_in_balls(loss, [Fraction(float(c)) for c in coef])
        errors = [float(abs(e - ball(float(g))).upper()) for e, g in zip(exact, sums.gradient, strict=True)]
    assert 1e-19 * size < math.hypot(*errors) <= sums.error
    assert sums.error <= rows.rounding(loss, float(np.linalg.norm(coef)) * 1.001)
    assert sums.error < 1e-10 * (1 + size)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_gradients_in_balls_against_plain_numpy(make):
    X, y, coef = several(n=60, d=3, classes=4)
    bounds = Bounds(0.8, intercept=0.3)
    rows, Z = as_rows(make(X), y, bounds), clipped(X, bounds)
    with precision(100):
        found = rows.gradient_in_balls(Softmax(4), [Fraction(float(c)) for c in coef])
    expected = Softmax(4).slope(coef.reshape(3, 4) @ Z.T, y) @ Z / 60
    np.testing.assert_allclose([float(f.mid()) for f in found], expected.ravel(), atol=1e-11)


# ---------------------------------------------------------------- moments

MOMENT_LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "single precision": lambda X: X.astype(np.float32),
    "csr": sparse.csr_array,
    "csr, single precision": lambda X: sparse.csr_array(X.astype(np.float32)),
}


@pytest.mark.parametrize("layout", MOMENT_LAYOUTS)
@pytest.mark.parametrize("intercept", [0.0, 0.1])
@pytest.mark.parametrize("n", [3, 2500])
def test_moments_and_their_rounding_against_rational_arithmetic(layout, intercept, n):
    """Every stretch, clipped rows and whole ones, targets of many digits; the bound holds and is not idle."""
    generator = np.random.default_rng(10)
    X = generator.normal(size=(n, 2)).astype(np.float32).astype(float)
    y = generator.uniform(-0.7, 0.7, size=n)
    rows = as_rows(MOMENT_LAYOUTS[layout](X), y, Bounds(1.1, intercept=intercept))
    found = rows.moments()
    gram, cross = [[Fraction(0)] * rows.d for _ in range(rows.d)], [Fraction(0)] * rows.d
    for x, target, factor in zip(X, y, rows._factors, strict=True):
        row = [Fraction(float(v)) * Fraction(float(factor)) for v in x] + [Fraction(intercept)] * (intercept != 0)
        for i, a in enumerate(row):
            cross[i] += a * Fraction(float(target))
            for j, b in enumerate(row):
                gram[i][j] += a * b
    gaps = [float(Fraction(float(found.gram[i, j])) - gram[i][j]) for i in range(rows.d) for j in range(rows.d)]
    assert 0 < math.hypot(*gaps) <= found.error * n * rows.norm**2
    gaps = [float(Fraction(float(c)) - e) for c, e in zip(found.cross, cross, strict=True)]
    assert 0 < math.hypot(*gaps) <= found.error * n * rows.norm * 0.7
    assert found.error < 1e-12
    np.testing.assert_array_equal(found.gram, found.gram.T)


def test_the_rounding_of_moments_is_counted_where_it_is_worst():
    """Each addend a little less than half a unit of the growing sum above 1: all of that is lost, always downwards."""
    target = 1 + 0.99 * 2.0**-46
    rows = as_rows(np.ones((256, 1)), np.full(256, target), Bounds(1.001, intercept=0.0))
    assert (rows._factors == 1).all()
    found = rows.moments()
    lost = float(256 * Fraction(target) - Fraction(float(found.cross[0])))
    size = 256 * rows.norm * target
    assert 40 * 2.0**-53 * size < lost <= found.error * size


def test_the_rounding_of_a_gradient_is_counted_where_it_is_worst():
    """The same sum as a gradient: hundreds of additions, each of which loses something."""
    target = 1 + 0.99 * 2.0**-46
    rows = as_rows(np.ones((256, 1)), np.full(256, target), Bounds(1.001, intercept=0.0))
    sums = rows.sums(Squared(1.0001), np.zeros(1))
    lost = float(Fraction(target) + Fraction(float(sums.gradient[0])))
    assert 40 * 2.0**-53 < lost <= sums.error


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_a_losss_own_rounding_is_counted(make):
    class Rough(Logistic):
        def slope_rounding(self, score: float) -> float:
            return 1e-6 * (1 + score)

    X, y, coef = table(n=50, d=3)
    rows = as_rows(make(X), y, Bounds(2.0))
    reach = rows.norm * float(np.linalg.norm(coef[:4]))
    assert rows.sums(Rough(), coef[:4]).error >= rows.norm * 1e-6 * (1 + reach)
    assert rows.rounding(Rough(), 7.0) >= rows.norm * 1e-6 * (1 + 7 * rows.norm)


# ---------------------------------------------------------------- which matrices are formed


def test_sparse_rows_form_a_hessian_of_few_columns_only():
    few, many = (sparse.random_array((30, d), density=0.01, format="csr", rng=0) for d in (1999, 2000))
    assert as_rows(few, np.ones(30), Bounds()).dense  # with the intercept's column: 2000
    assert not as_rows(many, np.ones(30), Bounds()).dense
    assert as_rows(many, np.ones(30), Bounds(intercept=0.0)).dense


@pytest.mark.parametrize("intercept", [0.0, 0.7])
@pytest.mark.parametrize("n", [1, 2047, 6000])
def test_a_sparse_hessian_is_the_dense_one(intercept, n):
    X, y, coef = table(n=n)
    bounds = Bounds(1.5, intercept=intercept)
    dense, compressed = as_rows(X, y, bounds), as_rows(sparse.csr_array(X), y, bounds)
    coef = coef[: dense.d]
    dense.sums(Logistic(), coef)
    compressed.sums(Logistic(), coef)
    np.testing.assert_allclose(compressed.hessian(), dense.hessian(), atol=1e-14)


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("number", [np.float64(0.75), np.float32(0.75), np.float16(0.75), Fraction(3, 4)])
def test_bounds_of_other_kinds_of_numbers(number):
    bounds = Bounds(number, intercept=number)
    assert type(bounds.data_norm) is type(bounds.intercept) is float
    assert bounds == Bounds(0.75, 0.75)
    X, y, coef = table(n=20, d=3)
    rows = as_rows(X, y, bounds)
    rows.gradient_in_balls(Logistic(), [Fraction(float(c)) for c in coef[:4]])
    assert type(rows.norm) is float
    assert Bounds(np.int64(2), intercept=np.int64(0)) == Bounds(2.0, 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_moved_rows_are_inside_the_bound_exactly(dtype):
    """They are kept in single precision, which may make one longer; what is summed is not."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(300, 7)).astype(dtype)
    home = DenseRows(X, np.ones(300), Bounds(1.0, intercept=0.5))
    centre, radius = generator.normal(size=7) / 5, 0.4
    moved = home.moved(centre, radius, 0.5)
    for kept, factor, row, own in zip(moved._X, moved._factors, X, home._factors, strict=True):
        exact = [Fraction(float(factor)) * Fraction(float(v)) for v in kept]
        assert sum(v * v for v in exact) <= 1
        wanted = (row.astype(np.float64) * own - centre) / radius
        wanted /= max(1.0, np.linalg.norm(wanted))
        np.testing.assert_allclose([float(v) for v in exact], wanted, atol=3e-7)
