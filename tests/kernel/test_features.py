"""Public feature maps: lengths, inner products, and tables of any size a few rows at a time."""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

from epsilearn.errors import InvalidInput
from epsilearn.kernel import (
    RBF,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    UserKernel,
    features,
    kernels,
)
from epsilearn.kernel.features import Fourier, Identity, Landmarks, Monomials, exact_map

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.dirichlet(np.ones(3), 400)
GRAM = ROWS @ ROWS.T


def common(a: frozenset[int], b: frozenset[int]) -> float:
    """How much two sets share."""
    return float(len(a & b))


SETS = [frozenset(GENERATOR.choice(9, 3, replace=False).tolist()) for _ in range(60)]
KERNELS = {
    "linear": (Linear(1.0), ROWS),
    "polynomial": (Polynomial(3, 1.0, 1.0), ROWS),
    "rbf": (RBF(2.0), 3 * ROWS - 1),
    "rbf, flat": (RBF(0.01), 3 * ROWS - 1),
    "laplacian": (Laplacian(0.5), 3 * ROWS - 1),
    "histograms": (HistogramIntersection(1.0), ROWS),
    "sets": (UserKernel(common, 2.0), SETS),
    "precomputed": (Precomputed(GRAM, 1.0), np.arange(400)),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def a_kernel(name: str):
    kernel, points = KERNELS[name]
    return kernel, kernel.points(points)


# ---------------------------------------------------------------- landmarks


@every_kernel
@pytest.mark.parametrize("rank", [None, 1, 2, 7])
@pytest.mark.parametrize("count", [1, 4, 40])
def test_a_projection_is_no_longer_than_what_it_projects(name, rank, count):
    kernel, points = a_kernel(name)
    found = Landmarks(kernel, kernel.part(points, slice(0, count)), rank)
    psi = found.features(points)
    assert psi.shape == (kernel.count(points), found.columns)
    assert found.columns <= min(count, rank or count)
    squares = kernel.squares(points)
    assert (np.square(psi).sum(axis=1) <= squares * (1 + 1e-11)).all()
    # And it is not nothing: somewhere most of the length is kept.
    assert (np.square(psi).sum(axis=1) > 0.3 * squares).any()


def test_landmarks_that_hardly_differ_make_no_feature_longer_than_the_bound():
    """A value's sensitivity is the minimiser's times this bound: it must hold for the features that are computed.

    The landmarks' second direction is 1e-10 as large as the first, and eigenvalues come with an error of 1e-16 of the
    largest. The point asked for lies in that direction.
    """
    generator = np.random.default_rng(0)
    for _ in range(300):
        angle, apart = generator.uniform(0, 2 * np.pi), 10 ** generator.uniform(-5, -4)
        one = np.array([np.cos(angle), np.sin(angle)])
        across = np.array([-one[1], one[0]])
        found = Landmarks(Linear(1.0), 0.99 * np.array([one, one + apart * across, one - apart / 2 * across]))
        asked = np.array([0.999999999 * across])
        Linear(1.0).check_public(asked)
        assert np.linalg.norm(found.features(asked)) <= found.bound


@every_kernel
def test_all_directions_reproduce_the_kernel_at_the_landmarks(name):
    kernel, points = a_kernel(name)
    landmarks = kernel.part(points, slice(0, 25))
    psi = Landmarks(kernel, landmarks).features(landmarks)
    np.testing.assert_allclose(psi @ psi.T, kernel.matrix(landmarks, landmarks), atol=1e-8)


@every_kernel
def test_a_rank_keeps_the_directions_in_which_landmarks_differ_most(name):
    kernel, points = a_kernel(name)
    landmarks = kernel.part(points, slice(0, 25))
    sizes = np.linalg.eigvalsh(kernel.matrix(landmarks, landmarks))[::-1]
    full = Landmarks(kernel, landmarks)
    np.testing.assert_allclose(full.spectrum, sizes[: full.columns] / 25, rtol=1e-5)
    for rank in (1, 2, 3):
        found = Landmarks(kernel, landmarks, rank)
        assert found.columns == rank
        np.testing.assert_allclose(found.features(landmarks), full.features(landmarks)[:, :rank], atol=1e-12)
        # The most that any projection onto so many directions can keep.
        assert np.square(found.features(landmarks)).sum() == pytest.approx(sizes[:rank].sum(), rel=1e-9)
    assert Landmarks(kernel, landmarks, 1000).columns == full.columns


def test_directions_that_floats_cannot_tell_apart_are_left_out():
    Z = np.repeat(ROWS[:4], 5, axis=0)
    for landmarks in (Z, Z + 1e-9 * GENERATOR.normal(size=Z.shape)):
        found = Landmarks(RBF(2.0), landmarks)
        assert found.columns == 4
        psi = found.features(Z)
        np.testing.assert_allclose(psi @ psi.T, RBF(2.0).matrix(Z, Z), atol=1e-6)


def test_a_rule_may_choose_the_rank_from_the_spectrum():
    seen = []
    found = Landmarks(RBF(2.0), ROWS[:20], lambda spectrum: seen.append(spectrum) or 3)
    assert found.columns == 3
    np.testing.assert_array_equal(seen[0], found.spectrum)
    assert (np.diff(seen[0]) <= 0).all()


@pytest.mark.parametrize("whitening", [0.5, 0.8, 1.0])
@every_kernel
def test_whitened_features_are_no_longer_than_one_and_half_the_landmarks_are_as_long(name, whitening):
    kernel, points = a_kernel(name)
    landmarks = kernel.part(points, slice(0, 25))
    found = Landmarks(kernel, landmarks, whitening=whitening)
    lengths = np.linalg.norm(found.features(points), axis=1)
    assert lengths.max() <= found.bound
    own = np.linalg.norm(found.features(landmarks), axis=1)
    assert (own > 1 - 1e-9).sum() >= 13


def test_whitening_divides_each_direction_by_a_power_of_its_size():
    Z = 3 * ROWS[:30] - 1
    plain, half, whole = (Landmarks(RBF(2.0), Z, 5, whitening) for whitening in (0.0, 0.5, 1.0))
    for found, power in ((half, 0.25), (whole, 0.5)):
        expected = plain.features(Z) / plain.spectrum[:5] ** power
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        given = found.features(Z)
        np.testing.assert_allclose(given / np.linalg.norm(given, axis=1, keepdims=True), expected, atol=1e-9)
    # All the same on average, once the few rows that were shortened are left as long as they are.
    spread = np.square(plain.features(Z) / np.sqrt(plain.spectrum[:5])).mean(axis=0)
    np.testing.assert_allclose(spread, 1.0, rtol=1e-9)
    with pytest.raises(InvalidInput, match="whitening"):
        Landmarks(RBF(2.0), Z, whitening=1.5)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Landmarks(Linear(1.0), np.zeros((3, 2))), "length 0"),
        (lambda: Landmarks(Linear(1.0), np.array([[2.0, 0.0]])), "above the declared bound"),
        (lambda: Landmarks(Precomputed(4 * GRAM, 1.0), [0, 1]), "above the declared bound"),
        (lambda: Landmarks(RBF(), ROWS[:3], rank=0), "rank"),
        (lambda: Landmarks(RBF(), ROWS[:3], rank=1.5), "rank"),
        (lambda: Landmarks(RBF(), np.full((2, 2), np.nan)), "NaN"),
        (lambda: Fourier(Linear(1.0), 2, 10), "RBF or Laplacian"),
        (lambda: Fourier(RBF(), 2, 1), "n_features"),
        (lambda: Fourier(RBF(), 2, 10.0), "n_features"),
    ],
)
def test_what_spans_nothing_or_is_too_long_is_refused(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        wrong()


# ---------------------------------------------------------------- random features


@pytest.mark.parametrize("kernel", [RBF(0.7), Laplacian(0.7)], ids=repr)
def test_every_random_feature_vector_has_length_one(kernel):
    found = Fourier(kernel, 3, 51, seed=1)
    assert found.columns == 50
    lengths = np.linalg.norm(found.features(10 * ROWS), axis=1)
    assert np.abs(lengths - 1).max() <= 1e-13
    assert (lengths <= found.bound).all()


@pytest.mark.parametrize("kernel", [RBF(0.7), RBF(5.0), Laplacian(0.7), Laplacian(2.0)], ids=repr)
def test_inner_products_of_random_features_approach_the_kernel(kernel):
    """Unbiased, and with the variance of a mean of cosines: (1 + K(2 t) - 2 K(t)**2) / 2 each."""
    X = 3 * ROWS[:40]
    exact, doubled = kernel.matrix(X, X), kernel.matrix(2 * X, 2 * X)
    for count in (100, 2500):
        variance = ((1 + doubled - 2 * exact**2) / count)[np.triu_indices(40, 1)].mean()
        errors = []
        for seed in range(12):
            psi = Fourier(kernel, 3, count, seed).features(X)
            errors.append((psi @ psi.T - exact)[np.triu_indices(40, 1)])
        assert np.mean(np.square(errors)) == pytest.approx(variance, rel=0.35)
        assert abs(np.mean(errors)) < 4 * math.sqrt(variance / 12)


def test_a_seed_is_the_map():
    one, two, other = (Fourier(RBF(), 3, 20, seed).features(ROWS) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


@pytest.mark.parametrize("kernel", [RBF(0.7), Laplacian(0.7)], ids=repr)
def test_random_features_of_giants_have_length_one_too(kernel):
    """Private rows are never too long for these kernels, so none may be an error, or make a warning."""
    giants = np.array([[1e308, 1e308, -1e308], [1e200, 0.0, 1.0], [5e-324, 0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        psi = Fourier(kernel, 3, 20).features(giants)
    np.testing.assert_allclose(np.linalg.norm(psi, axis=1), 1.0, rtol=1e-12)


# ---------------------------------------------------------------- exact maps


def test_the_exact_map_is_the_kernels_own():
    assert isinstance(exact_map(Linear(2.0), 5), Identity)
    assert isinstance(exact_map(Polynomial(3, 1.0, 1.0), 5), Monomials)
    assert exact_map(Linear(2.0), 5).bound == 2.0
    assert exact_map(Polynomial(3, 1.0, 1.0), 5).bound == Polynomial(3, 1.0, 1.0).bound
    for kernel in (RBF(), Laplacian(), HistogramIntersection(), UserKernel(common, 1.0), Precomputed(np.eye(2))):
        assert exact_map(kernel, 1) is None


def test_monomials_are_written_out_up_to_two_hundred_thousand():
    kernel = Polynomial(2, 1.0, 1.0)
    assert exact_map(kernel, 630).columns == math.comb(632, 2) <= 200_000
    assert math.comb(633, 2) > 200_000
    assert exact_map(kernel, 631) is None


@pytest.mark.parametrize("kernel", [Linear(1.0), Polynomial(2, 1.0, 1.0), Polynomial(3, 0.0, 1.0)], ids=repr)
def test_inner_products_of_an_exact_map_are_the_kernel(kernel):
    found = exact_map(kernel, 3)
    table = sparse.csr_array(found.features(ROWS)).toarray()
    assert table.shape == (400, found.columns)
    np.testing.assert_allclose(table @ table.T, kernel.matrix(ROWS, ROWS), rtol=1e-12, atol=1e-14)
    assert (np.linalg.norm(table, axis=1) <= found.bound * (1 + 1e-14)).all()


@pytest.mark.parametrize("kernel", [Linear(1.0), Polynomial(2, 1.0, 1.0)], ids=repr)
def test_sparse_rows_have_sparse_features(kernel):
    rows = sparse.random_array((300, 40), density=0.05, format="csr", rng=1)
    found = exact_map(kernel, 40)
    points = kernel.points(rows)
    for table in (found.features(points), found.table(points)):
        assert sparse.issparse(table)
        assert table.shape == (300, found.columns)
        assert table.nnz <= 0.05 * 300 * found.columns
        product = (table @ table.T).toarray()
        np.testing.assert_allclose(product, kernel.matrix(points, points), atol=1e-12)
    dense = found.features(kernel.points(rows.toarray()))
    difference = found.features(points) - dense
    assert np.abs(difference.toarray() if sparse.issparse(difference) else difference).max() < 1e-15


# ---------------------------------------------------------------- a few rows at a time


def every_map(name: str):
    kernel, points = {
        "identity": (Linear(1.0), ROWS),
        "identity, sparse": (Linear(1.0), sparse.csr_array(ROWS)),
        "monomials": (Polynomial(2, 1.0, 1.0), ROWS),
        "landmarks": (RBF(2.0), ROWS),
        "landmarks of sets": (UserKernel(common, 2.0), SETS),
        "whitened": (RBF(2.0), ROWS),
        "fourier": (Laplacian(2.0), ROWS),
        "fourier, sparse": (RBF(2.0), sparse.csr_array(ROWS)),
    }[name]
    points = kernel.points(points)
    if name.startswith("fourier"):
        return Fourier(kernel, 3, 10, seed=2), points
    if name.startswith(("landmarks", "whitened")):
        landmarks = kernel.part(points, slice(0, 12))
        return Landmarks(kernel, landmarks, 5, 0.8 if name == "whitened" else 0.0), points
    return exact_map(kernel, 3), points


MAPS = [
    "identity", "identity, sparse", "monomials", "landmarks", "landmarks of sets", "whitened", "fourier",
    "fourier, sparse",
]  # fmt: skip


def in_blocks(found, rows: int, monkeypatch) -> None:
    """So many rows at a time: what is held is counted in features, for landmarks in kernel values."""
    landmarks = isinstance(found, Landmarks)
    each = found.kernel.count(found.landmarks) if landmarks else found.columns
    monkeypatch.setattr(kernels if landmarks else features, "_BLOCK", rows * each + each - 1)


def as_dense(table) -> np.ndarray:
    return table.toarray() if sparse.issparse(table) else np.asarray(table)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("rows", [1, 7, 64, 399, 1000])
def test_blocks_of_any_size_give_the_same(name, rows, monkeypatch):
    found, points = every_map(name)
    count = found.kernel.count(points)
    whole = as_dense(found.features(points))
    weights = np.random.default_rng(3).normal(size=(found.columns, 2))
    in_blocks(found, rows, monkeypatch)
    parts = list(found.blocks(points))
    assert [here.start for here, _ in parts] == list(range(0, count, rows))
    assert parts[-1][0].stop == count
    np.testing.assert_allclose(np.vstack([as_dense(part) for _, part in parts]), whole, atol=1e-12)
    np.testing.assert_allclose(found.scores(points, weights), whole @ weights, atol=1e-12)
    np.testing.assert_allclose(found.scores(points, weights[:, 0]), whole @ weights[:, 0], atol=1e-12)
    table = found.table(points)
    single = not sparse.issparse(table) and not isinstance(found, Identity)
    assert table.dtype == (np.float32 if single else np.float64)
    np.testing.assert_allclose(as_dense(table), whole, atol=1e-7 if single else 1e-12)


@pytest.mark.parametrize("name", ["identity", "monomials", "fourier"])
def test_scores_of_many_points_hold_few_features_at_a_time(name, monkeypatch):
    found, _ = every_map(name)
    many = np.tile(ROWS, (10, 1))
    asked = []
    own = type(found).features
    monkeypatch.setattr(
        type(found), "features", lambda self, points: asked.append(len(points)) or own(self, points)
    )  # fmt: skip
    in_blocks(found, 30, monkeypatch)
    assert found.scores(many, np.ones(found.columns)).shape == (4000,)
    assert max(asked) == 30
    assert len(asked) == 134
    assert sum(asked) == 4000


@pytest.mark.parametrize("name", ["landmarks", "whitened"])
def test_scores_of_many_points_hold_few_kernel_values_at_a_time(name, monkeypatch):
    found, _ = every_map(name)
    many = np.tile(ROWS, (10, 1))
    asked = []
    own = RBF.matrix
    monkeypatch.setattr(
        RBF, "matrix", lambda self, first, second: asked.append((len(first), len(second))) or own(self, first, second)
    )
    in_blocks(found, 30, monkeypatch)
    for work in (lambda: found.scores(many, np.ones(5)), lambda: found.table(many)):
        asked.clear()
        work()
        assert {width for _, width in asked} == {12}
        assert max(rows for rows, _ in asked) == 30
        assert len(asked) == 134


def test_the_blocks_that_are_used_take_tens_of_megabytes():
    assert features._BLOCK * 8 <= 64 * 2**20
    assert kernels._BLOCK * 8 <= 64 * 2**20


@pytest.mark.parametrize("name", MAPS)
def test_maps_are_values(name):
    found, points = every_map(name)
    whole = as_dense(found.features(points))
    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(as_dense(again.features(points)), whole)
