"""Constraint sets against norms, members and widths that are computed here, by other routes."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import warnings
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, clone

from epsilearn.constraints import (
    ConstraintSet,
    CoordinateCorners,
    GroupBall,
    L1Ball,
    L2Ball,
    LqBall,
    PointCorners,
    Polytope,
    Simplex,
    named_set,
    probe,
)
from epsilearn.errors import InvalidInput

P = 6
GROUPS = (4, 4, -1, 4, 7, -1)
POINTS = np.random.default_rng(3).normal(size=(9, P)) + 0.5
SIGNS = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=P)))
SETS = [
    L1Ball(2.0),
    Simplex(3.0),
    L2Ball(0.5),
    LqBall(1.5, 2.0),
    LqBall(1.05, 0.1),
    GroupBall(GROUPS, 4.0),
    Polytope(POINTS),
    Polytope(POINTS[:1]),
    Polytope(POINTS[:3] * 1e-5),
]
each_set = pytest.mark.parametrize("constraint", SETS, ids=lambda s: repr(s)[:24])


def group_lengths(rows: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.norm(rows[..., np.array(GROUPS) == label], axis=-1) for label in set(GROUPS)], axis=-1)


def least(constraint: ConstraintSet, directions: np.ndarray) -> np.ndarray:
    """The least <s, d>, by the dual norm."""
    match constraint:
        case L1Ball(radius):
            return -radius * np.abs(directions).max(axis=-1)
        case Simplex(radius):
            return radius * directions.min(axis=-1)
        case L2Ball(radius):
            return -radius * np.linalg.norm(directions, axis=-1)
        case LqBall(q, radius):
            return -radius * np.linalg.norm(directions, ord=q / (q - 1), axis=-1)
        case GroupBall(_, radius):
            return -radius * group_lengths(directions).max(axis=-1)
        case Polytope(vertices):
            return (directions @ vertices.T).min(axis=-1)
    raise AssertionError(constraint)


def members(constraint: ConstraintSet, count: int, generator: np.random.Generator) -> np.ndarray:
    """Points of the set, most of them on its boundary, many with entries at 0."""
    match constraint:
        case Simplex(radius):
            return radius * generator.dirichlet(np.full(P, 0.3), size=count)
        case Polytope(vertices):
            return generator.dirichlet(np.full(len(vertices), 0.3), size=count) @ vertices
    rows = generator.normal(size=(count, P)) * (generator.random((count, P)) < 0.6)
    match constraint:
        case L1Ball():
            norms = np.abs(rows).sum(axis=1)
        case L2Ball():
            norms = np.linalg.norm(rows, axis=1)
        case LqBall(q):
            norms = np.linalg.norm(rows, ord=q, axis=1)
        case GroupBall():
            norms = group_lengths(rows).sum(axis=1)
    return constraint.radius * rows / np.maximum(norms, 1e-12)[:, np.newaxis]


def size(constraint: ConstraintSet) -> float:
    return constraint.l1_norm(P)


@pytest.fixture(name="generator")
def fixed_generator() -> np.random.Generator:
    return np.random.default_rng(11)


# ------------------------------------------------------------------------------------------------ the minimiser


@each_set
def test_the_minimiser_is_in_the_set_and_beats_its_points(constraint, generator):
    points = members(constraint, 300, generator)
    for direction in [*generator.normal(size=(30, P)), *np.eye(P), *-np.eye(P), np.ones(P), -np.ones(P)]:
        found = constraint.minimiser(direction)
        assert found.shape == (P,)
        assert found.dtype == np.float64
        assert constraint.contains(found)
        assert found @ direction <= (points @ direction).min() + 1e-12 * size(constraint)
        assert found @ direction == pytest.approx(least(constraint, direction), rel=1e-9, abs=1e-12 * size(constraint))


@each_set
def test_the_zero_direction(constraint):
    assert constraint.contains(constraint.minimiser(np.zeros(P)))


entries = st.sampled_from([0.0, 1.0, -1.0, 2.5, 1e300, -1e300, -1.7e308, 1e-300, -1e-300, 5e-324, -5e-324, 1e-160])


@each_set
@settings(max_examples=60, deadline=None)
@given(direction=st.lists(entries, min_size=P, max_size=P))
def test_huge_and_tiny_directions(constraint, direction):
    direction = np.array(direction)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = constraint.minimiser(direction)
        assert np.isfinite(found).all()
        assert constraint.contains(found)
    scaled = direction / (np.abs(direction).max() or 1.0)
    assert found @ scaled <= least(constraint, scaled) + 1e-9 * size(constraint)


@pytest.mark.parametrize("scale", [1e300, 1e-300])
@each_set
def test_the_scale_of_the_direction_does_not_matter(constraint, scale, generator):
    direction = generator.normal(size=P)
    plain, scaled = constraint.minimiser(direction), constraint.minimiser(scale * direction)
    np.testing.assert_allclose(scaled, plain, rtol=1e-9, atol=1e-15 * size(constraint))


@each_set
@pytest.mark.parametrize("direction", [np.full(P, np.nan), np.full(P, np.inf), np.ones((2, P)), np.ones(0)], ids=str)
def test_directions_that_are_none(constraint, direction):
    with pytest.raises(InvalidInput, match="finite numbers"):
        constraint.minimiser(direction)


# --------------------------------------------------------------------------------------------------- membership


@each_set
def test_points_of_the_set_are_in_it(constraint, generator):
    for point in members(constraint, 30, generator):
        assert constraint.contains(point)
    first, second = members(constraint, 2, generator)
    assert constraint.contains(0.3 * first + 0.7 * second)


@each_set
def test_points_beyond_a_face_are_not(constraint, generator):
    scale = np.abs(constraint.minimiser(np.ones(P))).max()
    for direction in generator.normal(size=(20, P)):
        step = -scale * direction / np.linalg.norm(direction)
        found = constraint.minimiser(direction)
        assert not constraint.contains(found + 1e-6 * step)
        assert constraint.contains(found + 1e-6 * step, tolerance=1e-3)
        assert constraint.contains(found + 1e-12 * step)


@each_set
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_no_point_at_infinity_is_in_a_set(constraint, value):
    point = np.zeros(P)
    point[1] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not constraint.contains(point)
        assert not constraint.contains(np.full(P, value))


def test_the_simplex_has_no_negative_entries_and_no_inside():
    simplex = Simplex(2.0)
    assert simplex.contains([2.0, 0.0, 0.0])
    assert not simplex.contains([2.5, -0.5, 0.0])
    assert not simplex.contains([0.5, 0.5, 0.0])
    assert not simplex.contains([-2.0, 0.0, 0.0])


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1.0, 1e20, 1e290])
def test_a_polytope_of_any_size(scale, generator):
    hull = Polytope(scale * POINTS)
    inside = members(Polytope(POINTS), 5, generator)
    for point in inside:
        assert hull.contains(scale * point)
        assert not hull.contains(scale * (point + 10))
    corner = hull.minimiser(np.ones(P))
    assert not hull.contains(corner - 1e-6 * scale * np.ones(P))
    probe(hull, P)


# ------------------------------------------------------------------------------------------------------ corners


@pytest.mark.parametrize("constraint", [L1Ball(2.0), Simplex(3.0), Polytope(POINTS)], ids=lambda s: type(s).__name__)
def test_the_best_corner_is_the_minimiser(constraint, generator):
    corners = constraint.corners(P)
    points = np.array([corners.point(i, P) for i in range(corners.count(P))])
    assert all(constraint.contains(point) for point in points)
    assert len(np.unique(points, axis=0)) == corners.count(P)
    for direction in generator.normal(size=(20, P)):
        np.testing.assert_array_equal(points[(points @ direction).argmin()], constraint.minimiser(direction))


def test_the_order_of_corners():
    signed, plain = CoordinateCorners(2.0, signed=True), CoordinateCorners(2.0, signed=False)
    np.testing.assert_array_equal([signed.point(i, 2) for i in range(4)], [[2, 0], [-2, 0], [0, 2], [0, -2]])
    np.testing.assert_array_equal([plain.point(i, 2) for i in range(2)], [[2, 0], [0, 2]])
    assert (signed.count(7), plain.count(7)) == (14, 7)
    assert L1Ball(2.0).corners(2) == signed
    assert Simplex(2.0).corners(2) == plain
    assert signed != plain


def test_a_corner_can_be_changed_but_not_the_corners():
    corners = PointCorners(POINTS)
    corners.point(0, P)[:] = 0
    np.testing.assert_array_equal(corners.point(0, P), POINTS[0])
    with pytest.raises(ValueError, match="read-only"):
        corners.points[0, 0] = 1
    with pytest.raises(IndexError):
        corners.point(len(POINTS), P)
    with pytest.raises(IndexError):
        CoordinateCorners(1.0, signed=True).point(4, 2)


@pytest.mark.parametrize("constraint", [L2Ball(), LqBall(1.5), GroupBall(GROUPS)])
def test_round_sets_have_no_corners(constraint):
    assert constraint.corners(P) is None


# -------------------------------------------------------------------------------------------------------- sizes


@each_set
def test_norm_and_diameter_hold_for_all_points(constraint, generator):
    points = np.vstack([members(constraint, 200, generator), [constraint.minimiser(d) for d in np.eye(P)]])
    assert np.abs(points).sum(axis=1).max() <= constraint.l1_norm(P) * (1 + 1e-14)
    assert pdist(points).max() <= constraint.diameter(P) + 1e-15 * size(constraint)


@each_set
def test_norm_and_diameter_are_attained(constraint):
    points = np.array([constraint.minimiser(d) for d in SIGNS])
    assert np.abs(points).sum(axis=1).max() == pytest.approx(constraint.l1_norm(P), rel=1e-9)
    farthest = pdist(np.unique(points.round(12), axis=0)).max() if len(np.unique(points, axis=0)) > 1 else 0.0
    assert farthest == pytest.approx(constraint.diameter(P), rel=1e-6, abs=1e-300)


def test_sizes_in_one_dimension():
    assert Simplex(2.0).diameter(1) == 0
    assert Simplex(2.0).diameter(2) == pytest.approx(2 * math.sqrt(2))
    assert L2Ball(2.0).l1_norm(1) == pytest.approx(2.0)


def test_the_diameter_of_many_points_is_no_less(generator):
    points = generator.normal(size=(400, 1000)) + 5
    exact = pdist(points).max()
    assert exact <= Polytope(points).diameter(1000) <= 1.5 * exact


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_norms_of_a_polytope_neither_overflow_nor_vanish(scale):
    corners = Polytope([[0.0, 0.0], [0.6 * scale, -0.8 * scale]])
    assert corners.l1_norm(2) == pytest.approx(1.4 * scale)
    assert corners.diameter(2) == pytest.approx(scale)
    assert corners.reach(math.inf, 0.5, 2) == pytest.approx(0.5 * scale)


BOUNDS = [(1.0, math.inf), (1.0, 1.0), (1.0, 1.5), (0.3, 2.0), (math.inf, 0.7), (1e-200, 1e200), (3e9, 4e9), (0.0, 1.0)]


def rows_within(largest: float, length: float, generator: np.random.Generator) -> np.ndarray:
    """Rows at the edge of both bounds: signs, few entries, and normal ones."""
    signs = generator.choice([-1.0, 1.0], size=(300, P))
    few = signs * (np.argsort(generator.random((300, P)), axis=1) < generator.integers(1, P + 1, size=(300, 1)))
    rows = np.vstack([few, generator.normal(size=(300, P)), np.eye(P), -np.eye(P)])
    rows *= min(largest, length) / np.abs(rows).max(axis=1, keepdims=True)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(1, norms / length)


@pytest.mark.parametrize(("largest", "length"), BOUNDS)
@each_set
def test_nothing_reaches_further(constraint, largest, length, generator):
    rows = rows_within(largest, length, generator)
    attained = np.maximum(-least(constraint, rows), -least(constraint, -rows)).max()
    reach = constraint.reach(largest, length, P)
    assert isinstance(reach, float)
    assert np.abs(rows @ members(constraint, 300, generator).T).max() <= reach * (1 + 1e-14)
    assert attained <= reach * (1 + 1e-14)


@pytest.mark.parametrize("constraint", SETS[:6], ids=lambda s: repr(s)[:24])
@pytest.mark.parametrize("entries", [1, 2, 3, P])
def test_the_reach_is_attained_by_rows_of_signs(constraint, entries):
    """Where the length allows just so many entries of the largest size; with more features, no more."""
    largest, length = 2.0, 2.0 * math.sqrt(entries) if entries < P else math.inf
    rows = largest * SIGNS[np.abs(SIGNS).sum(axis=1) <= entries]
    attained = np.maximum(-least(constraint, rows), -least(constraint, -rows)).max()
    assert constraint.reach(largest, length, P) == pytest.approx(attained, rel=1e-6)


@pytest.mark.parametrize("constraint", SETS[6:], ids=lambda s: repr(s)[:24])
def test_the_reach_of_a_polytope_is_attained(constraint):
    """By signs where the entries are bounded, along a vertex where the length is."""
    signs = np.abs(2.0 * SIGNS @ constraint.vertices.T).max()
    assert constraint.reach(2.0, math.inf, P) == pytest.approx(signs, rel=1e-6)
    along = 0.7 * constraint.vertices / np.linalg.norm(constraint.vertices, axis=1)[:, np.newaxis]
    assert constraint.reach(math.inf, 0.7, P) == pytest.approx(np.abs(along @ constraint.vertices.T).max(), rel=1e-6)
    both = constraint.reach(2.0, 3.0, P)
    assert both <= min(constraint.reach(2.0, math.inf, P), constraint.reach(math.inf, 3.0, P))
    assert both > 0.9 * min(signs, 3.0 / 0.7 * np.abs(along @ constraint.vertices.T).max())


@settings(max_examples=200, deadline=None)
@given(
    largest=st.floats(1e-6, 1e6),
    ratio=st.floats(1.0, 10.0),
    q=st.floats(1.0001, 1.9999),
    row=st.lists(st.floats(-1, 1), min_size=1, max_size=12).filter(any),
)
def test_the_reach_of_an_lq_ball(largest, ratio, q, row):
    row = np.array(row) / max(map(abs, row))
    row *= largest * min(1, ratio / np.linalg.norm(row))
    reach = LqBall(q).reach(largest, largest * ratio, row.size)
    conjugate = q / (q - 1)
    peak = np.abs(row).max()
    assert peak * ((np.abs(row) / peak) ** conjugate).sum() ** (1 / conjugate) <= reach * (1 + 1e-13)
    assert reach <= L2Ball().reach(largest, largest * ratio, row.size) * (1 + 1e-11)
    assert reach >= L1Ball().reach(largest, largest * ratio, row.size) * (1 - 1e-11)


def test_the_reach_does_not_vanish_with_tiny_numbers():
    assert L1Ball(1e-200).reach(1e-200, math.inf, 3) > 0
    assert Polytope([[1e-200, 0]]).reach(1e-200, math.inf, 2) > 0


@pytest.mark.parametrize("bounds", [(math.inf, math.inf), (-1.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.nan)])
@each_set
def test_bounds_that_are_none(constraint, bounds):
    with pytest.raises(InvalidInput, match="largest and length"):
        constraint.reach(*bounds, P)


# -------------------------------------------------------------------------------------------------------- width


@each_set
def test_the_width_by_sampling(constraint):
    draws = np.random.default_rng(5).standard_normal((40_000, P))
    extents = np.maximum(-least(constraint, draws), -least(constraint, -draws))
    sampled = isinstance(constraint, LqBall | Polytope)
    error = extents.std() * math.sqrt(1 / 40_000 + (1 / 2000 if sampled else 0))
    assert constraint.width(P) == pytest.approx(extents.mean(), abs=4 * error)


@pytest.mark.parametrize("features", [1, 2, 10, 1000, 10**6, 10**8])
def test_the_width_of_the_l1_ball_by_quantiles(features):
    """E max |b_j| as the mean of the quantile function, rather than of the tail."""

    def quantile(exponential: float) -> float:
        return math.exp(-exponential) * stats.norm.isf(-math.expm1(-exponential / features) / 2)

    pieces = [0, 1e-12, 1e-6, 1e-3, 0.1, 1, 10, 100]
    expected = sum(integrate.quad(quantile, a, b)[0] for a, b in itertools.pairwise(pieces))
    assert L1Ball(2.0).width(features) == pytest.approx(2 * expected, rel=1e-7)
    assert Simplex(2.0).width(features) == L1Ball(2.0).width(features)


def test_widths_in_closed_form():
    assert L1Ball().width(2) == pytest.approx(2 / math.sqrt(math.pi))
    for features in (1, 2, 30, 10**4, 10**8):
        assert L2Ball(3.0).width(features) == pytest.approx(3 * stats.chi.mean(features), rel=1e-6)
    assert Polytope([[3.0, 4.0, 0.0]]).width(3) == pytest.approx(5 * math.sqrt(2 / math.pi))
    assert LqBall(1.3, 2.0).width(1) == pytest.approx(2 * math.sqrt(2 / math.pi))


@pytest.mark.parametrize("features", [1, 7, 400])
def test_group_balls_between_the_l1_and_the_l2_ball(features):
    assert GroupBall(range(features)).width(features) == pytest.approx(L1Ball().width(features), rel=1e-9)
    assert GroupBall([5] * features).width(features) == pytest.approx(L2Ball().width(features), rel=1e-9)


def test_the_width_of_many_groups():
    """A hundred thousand features in groups of 1 to 40, against the sampled maximum of chi variables."""
    sizes = np.random.default_rng(2).integers(1, 41, size=5000)
    found = GroupBall(np.repeat(np.arange(5000), sizes)).width(int(sizes.sum()))
    longest = np.sqrt(np.random.default_rng(6).chisquare(sizes, size=(1000, 5000)).max(axis=1))
    assert found == pytest.approx(longest.mean(), abs=4 * longest.std() / math.sqrt(1000))


def test_a_long_lq_ball_takes_few_draws():
    assert LqBall(1.5).width(10**5) == pytest.approx((10**5 * 2 * math.sqrt(2 / math.pi)) ** (1 / 3), rel=2e-3)


def test_few_vertices_in_a_large_space(generator):
    points = generator.normal(size=(5, 1000)) * np.array([[1, 2, 3, 4, 5]]).T
    products = np.random.default_rng(4).standard_normal((20_000, 1000)) @ points.T
    extents = np.abs(products).max(axis=1)
    error = extents.std() * math.sqrt(1 / 20_000 + 1 / 2000)
    assert Polytope(points).width(1000) == pytest.approx(extents.mean(), abs=4 * error)


class Box(ConstraintSet):
    """Every weight between 0 and 1: only what a user must write."""

    def __init__(self):
        self.calls = 0

    def minimiser(self, direction):
        self.calls += 1
        return (np.asarray(direction) < 0).astype(float)

    def contains(self, point, tolerance=1e-9):
        return bool(np.all((point >= -tolerance) & (point <= 1 + tolerance)))

    def l1_norm(self, features):
        return float(features)

    def diameter(self, features):
        return 1.0000001 * math.sqrt(features)

    def reach(self, largest, length, features):
        return 1.0000001 * min(largest * features, length * math.sqrt(features))


def test_a_users_set_has_the_rest():
    box = Box()
    box.check(4)
    assert box.corners(4) is None
    draws = np.random.default_rng(5).standard_normal((40_000, 4))
    extents = np.maximum(np.maximum(draws, 0).sum(axis=1), np.maximum(-draws, 0).sum(axis=1))
    assert box.width(4) == pytest.approx(extents.mean(), abs=4 * extents.std() * math.sqrt(1 / 2000 + 1 / 40_000))
    probe(box, 4)


def test_widths_are_remembered_and_repeatable():
    box = Box()
    first = box.width(3)
    calls = box.calls
    assert box.width(3) == first
    assert box.calls == calls
    assert box.width(2) < first
    assert box.calls > calls
    assert Box().width(3) == first


def test_a_set_without_a_hash_has_a_width():
    @dataclass
    class Unhashable(Box):
        calls: int = 0

    with pytest.raises(TypeError):
        hash(Unhashable())
    assert Unhashable().width(3) == Box().width(3)


def test_an_error_in_a_users_minimiser_is_not_hidden():
    class Raising(Box):
        def minimiser(self, direction):
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        Raising().width(3)


# ----------------------------------------------------------------------------------------- arguments and copies


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "1", None, True])
@pytest.mark.parametrize("make", [L1Ball, Simplex, L2Ball, lambda r: LqBall(1.5, r), lambda r: GroupBall([0], r)])
def test_radii_that_are_none(make, radius):
    with pytest.raises(InvalidInput, match="radius"):
        make(radius)


@pytest.mark.parametrize("q", [1, 2, 0.5, 3.0, math.nan, "1.5"])
def test_exponents_that_are_none(q):
    with pytest.raises(InvalidInput, match="q must"):
        LqBall(q)


@pytest.mark.parametrize("groups", [[], 3, [[0, 1]], ["a", "b"], [0.5, 1.0], [True, False], (i for i in range(3))])
def test_groups_that_are_none(groups):
    with pytest.raises(InvalidInput, match="groups must be a sequence of whole numbers"):
        GroupBall(groups)


@pytest.mark.parametrize(
    "vertices",
    [[], [1.0, 2.0], [[]], [[1.0], [1.0, 2.0]], [["a"]], [[math.nan]], [[math.inf]], [[1e301]], np.ones((1, 1, 1)), 3],
)
def test_vertices_that_are_none(vertices):
    with pytest.raises(InvalidInput, match="vertices must be"):
        Polytope(vertices)


@each_set
@pytest.mark.parametrize("features", [0, -1, 2.0, "3", True])
def test_features_that_are_none(constraint, features):
    with pytest.raises(InvalidInput, match="features must be"):
        constraint.check(features)


@pytest.mark.parametrize("constraint", [GroupBall(GROUPS), Polytope(POINTS)], ids=lambda s: type(s).__name__)
def test_a_set_of_another_space(constraint):
    constraint.check(P)
    for use in (
        constraint.check,
        lambda p: constraint.minimiser(np.ones(p)),
        lambda p: constraint.contains(np.ones(p)),
    ):
        with pytest.raises(InvalidInput, match=f"the data {P + 1} features"):
            use(P + 1)


@pytest.mark.parametrize("constraint", [L1Ball(), Simplex(), L2Ball(), LqBall(1.5)])
def test_most_sets_live_anywhere(constraint):
    for features in (1, 2, 10**6):
        constraint.check(features)


def test_named_sets():
    assert named_set("l1", 2) == L1Ball(2.0)
    assert named_set("l2", 2) == L2Ball(2.0)
    assert named_set("simplex", 2) == Simplex(2.0)
    with pytest.raises(InvalidInput, match="radius"):
        named_set("l1", -1)
    for name in ("linf", "L1", None, ["l1"]):
        with pytest.raises(InvalidInput, match=r"GroupBall.*Polytope"):
            named_set(name, 1.0)


@each_set
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)), lambda s: clone(s, safe=False), copy.copy]
)
def test_copies(constraint, duplicate):
    constraint.minimiser(np.ones(P))  # whatever it remembers must not be in the way
    same = duplicate(constraint)
    assert type(same) is type(constraint)
    assert same == constraint
    assert hash(same) == hash(constraint)
    assert same.width(P) == constraint.width(P)
    np.testing.assert_array_equal(same.minimiser(np.arange(P)), constraint.minimiser(np.arange(P)))


@each_set
def test_an_estimator_with_a_set_is_cloned(constraint):
    class Estimator(BaseEstimator):
        def __init__(self, constraint=None):
            self.constraint = constraint

    assert clone(Estimator(constraint)).constraint == constraint


def test_equal_sets_and_others():
    assert len(set(SETS)) == len(SETS)
    assert L1Ball(1.0) != Simplex(1.0)
    assert GroupBall([1, 1, 2]) == GroupBall(np.array([1, 1, 2], dtype=np.uint8))
    assert Polytope([[0, 1]]) == Polytope([[-0.0, 1.0]])
    assert hash(Polytope([[0, 1]])) == hash(Polytope([[-0.0, 1.0]]))
    assert Polytope([[0, 1]]) != Polytope([[0], [1]])
    assert Polytope([[0, 1]]) != "a polytope"


@pytest.mark.parametrize("duplicate", [lambda s: s, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_polytope_does_not_change(duplicate):
    points = POINTS.copy()
    hull = duplicate(Polytope(points))
    points[:] = 0
    np.testing.assert_array_equal(hull.vertices, POINTS)
    with pytest.raises(ValueError, match="read-only"):
        hull.vertices[0, 0] = 1
    hull.minimiser(np.ones(P))[:] = 7
    np.testing.assert_array_equal(hull.vertices, POINTS)


@each_set
def test_sets_are_frozen(constraint):
    with pytest.raises(FrozenInstanceError):
        constraint.radius = 2.0


# ------------------------------------------------------------------------------------------------------ probing


@each_set
def test_a_probe_lets_every_set_here_pass(constraint):
    probe(constraint, P)


@pytest.mark.parametrize("constraint", [L1Ball(), Simplex(), L2Ball(), LqBall(1.5), GroupBall([0]), Polytope([[0]])])
def test_a_probe_in_one_dimension(constraint):
    probe(constraint, 1)


def mended(**methods) -> ConstraintSet:
    """A box of which some methods are somebody's mistake."""
    return type("Mistaken", (Box,), methods)()


def answering(answer) -> ConstraintSet:
    return mended(minimiser=lambda self, direction: answer(direction))


def right(direction):
    return (direction < 0).astype(float)


MISTAKES = {
    "outside": (answering(lambda d: 3 * right(d)), r"contains\(\) refuses"),
    "longer": (answering(lambda d: np.append(right(d), 0.0)), "direction's shape"),
    "column": (answering(lambda d: right(d)[:, np.newaxis]), "direction's shape"),
    "whole numbers": (answering(lambda d: right(d).astype(int)), "array of floats"),
    "a list": (answering(lambda d: right(d).tolist()), "array of floats"),
    "nothing": (answering(lambda d: None), "array of floats"),
    "not a number": (answering(lambda d: right(d) * math.nan), "NaN"),
    "infinite": (answering(lambda d: right(d) - math.inf), "NaN or infinity"),
    "the maximiser": (answering(lambda d: 1 - right(d)), "argmin"),
    "too short": (answering(lambda d: 0.8 * right(d)), "argmin"),
    "raising": (answering(lambda d: 1 // 0), "minimiser raised ZeroDivisionError"),
    "refuses": (mended(contains=lambda self, point, tolerance=0: False), r"contains\(\) refuses"),
    "contains raises": (mended(contains=lambda self, point: {}["x"]), "contains raised KeyError"),
    "small l1 norm": (mended(l1_norm=lambda self, features: features - 1.0), "l1_norm is less"),
    "no l1 norm": (mended(l1_norm=lambda self, features: math.nan), "l1_norm is less"),
    "small diameter": (mended(diameter=lambda self, features: 0.9 * math.sqrt(features)), "diameter is less"),
    "small reach": (mended(reach=lambda self, largest, length, features: largest), "reach is less"),
    "reach raises": (mended(reach=lambda self, largest, length, features: int(length)), "reach raised OverflowError"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_probe_refuses(mistake):
    constraint, text = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=text):
        probe(constraint, P)


def test_a_constant_answer_in_a_symmetric_set_is_refused():
    class Stuck(L2Ball):
        def minimiser(self, direction):
            return super().minimiser(np.ones(direction.size))

    with pytest.raises(InvalidInput, match="argmin"):
        probe(Stuck(), P)


def test_a_corner_worse_than_another_answer_is_refused():
    class Reversed(Simplex):
        def minimiser(self, direction):
            return super().minimiser(-direction)

    with pytest.raises(InvalidInput, match="argmin"):
        probe(Reversed(), P)


def test_a_probe_asks_about_copies():
    """A minimiser that spoils its argument afterwards must not change what its answer is measured by."""

    def spoiling(direction):
        answer = 1 - right(direction)
        direction[:] = 0
        return answer

    with pytest.raises(InvalidInput, match="argmin"):
        probe(answering(spoiling), P)


def test_a_probe_keeps_the_cause():
    with pytest.raises(InvalidInput) as caught:
        probe(MISTAKES["raising"][0], P)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_probe_refuses_another_space_and_what_is_no_set():
    with pytest.raises(InvalidInput, match="features"):
        probe(GroupBall(GROUPS), P + 1)
    with pytest.raises(InvalidInput, match="whole number"):
        probe(L1Ball(), 2.5)
    for other in (None, "l1", L1Ball):
        with pytest.raises(InvalidInput, match="must be a ConstraintSet"):
            probe(other, P)


@pytest.mark.parametrize("method", ["minimiser", "contains", "l1_norm", "diameter", "reach"])
def test_what_a_user_must_write(method):
    own = {name: getattr(Box, name) for name in ("minimiser", "contains", "l1_norm", "diameter", "reach")}
    type("Complete", (ConstraintSet,), dict(own))()
    del own[method]
    with pytest.raises(TypeError, match=method):
        type("Partial", (ConstraintSet,), own)()
