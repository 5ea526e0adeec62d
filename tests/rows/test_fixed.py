"""Rows of whole numbers: the same for every layout and number of threads, within their bounds, each for itself."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from epsilearn import threads
from epsilearn.errors import InvalidInput
from epsilearn.rows import fixed
from epsilearn.rows.fixed import FixedRows, Levels, RunningSum, fixed_rows

KINDS = [np.float64, np.float32, np.int8, np.uint8, np.bool_]
SMALL, FINE = Levels(2.0, 100), Levels(3.0, 1 << 20)
EXTREMES = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 0.999, -1.0, 2.0, 2.5, -7.0, 1e308, -1.7e308, 3.0, 1e-7]


def table(kind, n: int = 60, d: int = 25, seed: int = 0) -> np.ndarray:
    """Mostly zeros, with an empty row and two empty columns, and whatever the kind has to offer."""
    generator = np.random.default_rng(seed)
    if np.issubdtype(kind, np.floating):
        X = np.where(generator.random((n, d)) < 0.5, generator.normal(size=(n, d)), generator.choice(EXTREMES, (n, d)))
        X = np.clip(X, np.finfo(kind).min, np.finfo(kind).max)
    elif kind is np.bool_:
        X = generator.random((n, d)) < 0.5
    else:
        X = generator.integers(np.iinfo(kind).min, np.iinfo(kind).max, (n, d), endpoint=True)
    X = np.where(generator.random((n, d)) < 0.4, X, 0).astype(kind)
    X[4], X[:, 7], X[:, -1] = 0, 0, 0
    return X


def untidy(X: np.ndarray) -> sparse.csr_array:
    """The same table by rows, unsorted, with entries in two parts and with zeros that are written out."""
    generator = np.random.default_rng(1)
    indptr, indices, data = [0], [], []
    for row in X:
        entries = [(j, v) for j, v in enumerate(row) if v or generator.random() < 0.1]
        halves = []
        for j, v in entries:
            half = v if X.dtype == np.bool_ else X.dtype.type(v / 2 if abs(float(v)) > 1e-30 else 0)
            halves += [(j, half), (j, v if X.dtype == np.bool_ else X.dtype.type(v - half))]
        shuffled = [halves[k] for k in generator.permutation(len(halves))]
        indices += [j for j, _ in shuffled]
        data += [v for _, v in shuffled]
        indptr.append(len(indices))
    made = sparse.csr_array(
        (np.array(data, X.dtype), np.array(indices, np.int32), np.array(indptr, np.int32)), shape=X.shape
    )
    assert not made.has_canonical_format
    np.testing.assert_array_equal(made.toarray(), X)
    return made


LAYOUTS = {
    "dense": np.array,
    "by columns": np.asfortranarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "coo matrix": sparse.coo_matrix,
    "untidy": untidy,
}


def cut(X: np.ndarray, levels: Levels) -> np.ndarray:
    """Towards zero, within the bound: one number at a time."""
    factor, most = levels.count / levels.bound, levels.count
    return np.array([[int(min(max(float(x) * factor, -most), most)) for x in row] for row in X])


def matrix(rows: FixedRows) -> np.ndarray:
    """All whole numbers, column by column."""
    Z = np.zeros((rows.n, rows.d), np.int64)
    for j in range(rows.d):
        where, values = rows.column(j)
        Z[where, j] = values
    return Z


def whole(Z: np.ndarray) -> np.ndarray:
    """As numbers of any size."""
    return Z.astype(object)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [SMALL, FINE], ids=["small", "fine"])
def test_every_layout_and_kind_gives_the_same_numbers(layout, kind, levels):
    X = table(kind)
    rows = fixed_rows(LAYOUTS[layout](X), levels)
    Z = matrix(rows)
    np.testing.assert_array_equal(Z, cut(X, levels))
    largest = int(levels.count / levels.bound) if kind is np.bool_ else levels.count
    assert np.abs(Z).max() == largest
    check_sums(rows, Z)


def check_sums(rows: FixedRows, Z: np.ndarray) -> None:
    generator = np.random.default_rng(2)
    n, d = Z.shape
    assert (rows.n, rows.d) == (n, d)
    assert (np.diff(rows.present) > 0).all()
    assert set(np.flatnonzero(Z.any(axis=0))) <= set(rows.present.tolist())
    for size in (1, 1000, 2**31 - 1, 2**31, 2**35):  # on either side of what 32 bits hold
        weights, vector = generator.integers(-size, size, n, endpoint=True), generator.integers(-size, size, d)
        weights[::2] = np.where(weights[::2] > 0, size, -size)
        np.testing.assert_array_equal(rows.spread(rows.combine(weights)), whole(Z).T @ whole(weights))
        np.testing.assert_array_equal(rows.product(vector), whole(Z) @ whole(vector))
    check_running_sum(rows, Z)


def check_running_sum(rows: FixedRows, Z: np.ndarray) -> None:
    generator = np.random.default_rng(3)
    total, expected = RunningSum(len(rows.present)), np.zeros(rows.d, np.int64)
    for count in (0, 1, 3, 10):
        before, generation = total.columns.copy(), total.generation
        some = generator.choice(rows.n, min(count, rows.n), replace=False)
        weights = generator.integers(-5, 6, len(some))
        rows.add(some, weights, total)
        expected += Z[some].T @ weights
        values = np.zeros(len(rows.present), np.int64)
        values[total.columns] = total.values
        np.testing.assert_array_equal(rows.spread(values), expected)
        assert len(set(total.columns.tolist())) == len(total.columns)
        # What was touched stays where it was, unless the generation says otherwise.
        assert total.generation != generation or np.array_equal(total.columns[: len(before)], before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("levels", [SMALL, Levels(1.0, 127), FINE], ids=str)
def test_an_intercept_is_a_last_column_of_full_height(layout, levels):
    X = table(np.float64)
    rows = fixed_rows(LAYOUTS[layout](X), levels, intercept=True)
    Z = matrix(rows)
    np.testing.assert_array_equal(Z[:, :-1], cut(X, levels))
    np.testing.assert_array_equal(Z[:, -1], levels.count)
    check_sums(rows, Z)


@pytest.mark.parametrize("count", [1, 127, 128, 32767, 32768, 2**20])
def test_levels_fit_the_integers_they_are_kept_in(count):
    levels = Levels(1.0, count)
    narrower = {np.int16: np.int8, np.int32: np.int16}.get(levels.kind)
    assert count <= np.iinfo(levels.kind).max
    assert narrower is None or count > np.iinfo(narrower).max
    X = np.array([[1.0, -1.0, 5.0, -1e308, 0.5 / count, 1.0 - 1e-9]])
    expected = [count, -count, count, -count, 0, count - 1]
    np.testing.assert_array_equal(matrix(fixed_rows(X, levels))[0], expected)
    np.testing.assert_array_equal(matrix(fixed_rows(sparse.csr_array(X), levels))[0], expected)
    assert levels.unit * count == 1


def test_cutting_goes_towards_zero_and_never_beyond_the_bound():
    values = np.concatenate([np.random.default_rng(4).normal(size=1000) * 3, EXTREMES])
    for levels in (SMALL, FINE, Levels(1e-3, 7), Levels(1e300, 9)):
        found = levels.cut(values)
        assert np.abs(found).max() <= levels.count
        for z, x in zip(found.tolist(), values.tolist(), strict=True):
            # One rounding of the factor and one of the product may cost or give a level at its very edge.
            size = min(abs(Fraction(x)), Fraction(levels.bound))
            assert abs(z) * levels.unit <= size * (1 + Fraction(1, 2**51))
            assert (abs(z) + 1) * levels.unit >= size * (1 - Fraction(1, 2**51))
            assert z == 0 or (z > 0) == (x > 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("levels", [SMALL, FINE, Levels(1.0, 1)], ids=str)
@pytest.mark.parametrize("length", [0.001, 0.7, 1.0, 3.1, 1e9])
def test_rows_are_cut_to_their_length_exactly(layout, levels, length):
    X = table(np.float64)
    X[10] = 1e308  # as long as can be
    before = cut(X, levels)
    rows = fixed_rows(LAYOUTS[layout](X), levels, length=length, intercept=True)
    after = matrix(rows)[:, :-1]
    np.testing.assert_array_equal(after, matrix(fixed_rows(X, levels, length=length)))
    for old, new in zip(before.tolist(), after.tolist(), strict=True):
        squared = sum(z * z for z in new) * levels.unit**2
        assert squared <= Fraction(length) ** 2
        assert all(z * o >= 0 and abs(z) <= abs(o) for z, o in zip(new, old, strict=True))
        norm = math.sqrt(sum(z * z for z in old)) * float(levels.unit)
        if norm < length * (1 - 1e-6):
            assert new == old
        else:  # every number loses its share and less than a level
            share = length / norm
            assert all(abs(o) * share * (1 - 1e-7) - 1 <= abs(z) for z, o in zip(new, old, strict=True))


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array])
def test_rows_that_are_just_as_long_as_the_bound(layout):
    """Their exact norm is the length or a hair more or less: whatever floats say, none is longer."""
    generator = np.random.default_rng(5)
    Z = generator.integers(-1000, 1001, (300, 12))
    squares = (Z**2).sum(axis=1)
    for n, square in enumerate(squares[:100]):
        length = math.sqrt(square) * (1 + generator.integers(-3, 4) * 2.0**-52)
        found = matrix(fixed_rows(layout(Z[n : n + 1].astype(float)), Levels(1024.0, 1024), length=length))
        assert sum(int(z) ** 2 for z in found[0]) <= Fraction(length) ** 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("length", [0.8, math.inf])
def test_a_record_does_not_move_the_others(layout, length):
    X = table(np.float64)
    others = np.arange(len(X)) != 20
    for replaced in (np.zeros(25), np.full(25, 1e308), np.full(25, -1e-320), np.eye(25)[7], np.ones(25)):
        Y = X.copy()
        Y[20] = replaced
        found = [matrix(fixed_rows(LAYOUTS[layout](T), FINE, length=length, intercept=True)) for T in (X, Y)]
        np.testing.assert_array_equal(found[0][others], found[1][others])
    assert (found[0][20] != found[1][20]).any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_in_many_stretches_are_the_same(monkeypatch, layout):
    X = table(np.float64)
    whole_table = matrix(fixed_rows(LAYOUTS[layout](X), FINE, length=1.0))
    monkeypatch.setattr(fixed, "_STRETCH", 7)
    np.testing.assert_array_equal(matrix(fixed_rows(LAYOUTS[layout](X), FINE, length=1.0)), whole_table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_number_of_threads_does_not_matter(monkeypatch, layout):
    stretches = []

    def counted(work, count, worth):
        results = threads.in_threads(work, count, worth)
        stretches.append(len(results))
        return results

    X = table(np.float64)
    rows = fixed_rows(LAYOUTS[layout](X), SMALL, intercept=True)
    weights, vector = np.arange(-30, 30) ** 5, np.arange(26) ** 4
    expected = rows.combine(weights), rows.product(vector)
    monkeypatch.setattr(fixed, "in_threads", counted)
    monkeypatch.setattr(fixed, "_WORTH", 1)
    for processors in (1, 2, 3, 7, 64):
        monkeypatch.setattr(threads.os, "cpu_count", lambda processors=processors: processors)
        np.testing.assert_array_equal(rows.combine(weights), expected[0])
        np.testing.assert_array_equal(rows.product(vector), expected[1])
        assert stretches[-1] in (processors, min(processors, len(X)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [np.float64, np.int8])
def test_the_callers_table_is_left_alone(layout, kind):
    X = LAYOUTS[layout](table(kind))
    parts = (
        [X] if isinstance(X, np.ndarray) else [getattr(X, p) for p in vars(X) if isinstance(getattr(X, p), np.ndarray)]
    )
    before = [part.copy() for part in parts]
    rows = fixed_rows(X, FINE, length=0.5, intercept=True)
    rows.combine(np.ones(60, np.int64))
    for part, same in zip(parts, before, strict=True):
        assert part.tobytes() == same.tobytes()


def test_long_columns_and_binary_tables():
    """More entries than are summed in one go, in one column and over many; one number that stands for all."""
    generator = np.random.default_rng(6)
    for shape in ((3000, 4), (50, 2000), (1, 5000)):
        for X in (generator.random(shape) < 0.7, generator.integers(-3, 4, shape)):
            rows = fixed_rows(sparse.csr_array(X), Levels(3.0, 3))
            np.testing.assert_array_equal(matrix(rows), X)
            for size in (10, 2**40):
                weights = generator.integers(-size, size, shape[0])
                np.testing.assert_array_equal(rows.spread(rows.combine(weights)), X.T.astype(np.int64) @ weights)
            check_running_sum(rows, X.astype(np.int64))


@pytest.mark.parametrize("X", [np.ones((1, 60)), np.arange(1, 61).reshape(1, -1) % 3 + 1], ids=["alike", "different"])
def test_sums_that_fit_are_exact_even_if_all_together_do_not(X):
    """One sum runs through all columns; where it leaves the integers, no column's own does."""
    rows = fixed_rows(sparse.csr_array(X), Levels(3.0, 3))
    weight = 2**60 + 12345
    assert int(X.sum()) * weight > 2**63
    assert rows.combine(np.array([weight])).tolist() == [int(x) * weight for x in X[0]]


@pytest.mark.parametrize("X", [sparse.csr_array((5, 9)), sparse.csr_array(np.zeros((5, 9)))])
def test_tables_without_entries(X):
    rows = fixed_rows(X, SMALL, length=1.0)
    assert len(rows.present) == 0
    np.testing.assert_array_equal(rows.spread(rows.combine(np.arange(5))), np.zeros(9))
    np.testing.assert_array_equal(rows.product(np.arange(9)), np.zeros(5))
    assert matrix(rows).shape == (5, 9)
    with_constant = fixed_rows(X, SMALL, intercept=True)
    np.testing.assert_array_equal(with_constant.present, [9])
    np.testing.assert_array_equal(with_constant.combine(np.arange(5)), [10 * SMALL.count])


def test_no_record_of_booleans_decides_how_entries_are_kept():
    """One number stands for all, also where a record stores a False; among floats one 0.5 is enough to undo it."""
    table = np.array([[True, False, True], [False, True, False]])
    stored = sparse.csr_array(table)
    stored.data[0] = False
    for X in (sparse.csr_array(table), stored):
        kept = X.copy()
        rows = fixed_rows(X, Levels(1.0, 1024), intercept=True)
        assert len(rows._rows[0]) == len(rows._columns[0]) == 1
        np.testing.assert_array_equal(rows.product(np.array([1, 10, 100, 0])), 1024 * (X.toarray() @ [1, 10, 100]))
        assert X.nnz == kept.nnz
    other = sparse.csr_array(table.astype(float))
    other.data[0] = 0.5
    assert len(fixed_rows(other, Levels(1.0, 1024))._rows[0]) == other.nnz


def test_columns_without_entries_take_no_room():
    X = sparse.csr_array((np.ones(3), ([0, 1, 1], [5, 10**6, 7])), shape=(2, 2 * 10**6))
    rows = fixed_rows(X, SMALL)
    np.testing.assert_array_equal(rows.present, [5, 7, 10**6])
    where, values = rows.column(10**6)
    assert (where.tolist(), values.tolist()) == ([1], [50])
    assert [len(part) for part in rows.column(6)] == [0, 0]
    assert [len(part) for part in rows.column(2 * 10**6 - 1)] == [0, 0]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_few_rows_are_those_that_are_quick_to_add(layout):
    rows = fixed_rows(layout(np.ones((100, 3))), SMALL)
    assert rows.few(np.arange(24))
    assert not rows.few(np.arange(25))


def test_a_touched_column_keeps_its_sum_when_all_are_touched():
    rows = fixed_rows(sparse.csr_array(np.eye(6)), Levels(1.0, 1))
    total = RunningSum(6)
    rows.add(np.array([4, 1]), np.array([7, -3]), total)
    assert (total.columns.tolist(), total.values.tolist(), total.generation) == ([4, 1], [7, -3], 0)
    assert total.touch_all().tolist() == [0, -3, 0, 0, 7, 0]
    assert (total.columns.tolist(), total.generation) == (list(range(6)), 1)
    total.touch_all()[0] += 1
    rows.add(np.array([4]), np.array([10]), total)
    assert total.values.tolist() == [1, -3, 0, 0, 17, 0]
    assert total.generation == 1


@pytest.mark.parametrize("X", [np.ones((0, 3)), np.ones((3, 0)), np.ones(3), np.ones((2, 2, 2))])
def test_tables_that_are_none_are_refused(X):
    with pytest.raises(InvalidInput, match="at least one row and one column"):
        fixed_rows(X, SMALL)
    if X.ndim == 2:
        with pytest.raises(InvalidInput, match="at least one row and one column"):
            fixed_rows(sparse.csr_array(X), SMALL)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_bounds_that_are_none_are_refused(bound):
    with pytest.raises(InvalidInput, match="bound"):
        Levels(bound, 10)
