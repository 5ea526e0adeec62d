"""Mixed tables into a ball, without looking at them."""

from __future__ import annotations

import pickle
import traceback
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from epsilearn.errors import InvalidInput
from epsilearn.preprocessing import BoundedScaler

HALF = np.sqrt(0.5)
BOUNDS = {"age": (0, 120)}
CATEGORIES = {"smokes": ["no", "yes", "once"]}
COLUMNS = {"age": [0, 60, 250], "smokes": ["no", "yes", "no"]}
EXPECTED = HALF * np.array([[-1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
NAMES = ["age", "smokes_no", "smokes_yes", "smokes_once"]

TABLES: dict[str, Any] = {
    "pandas": pd.DataFrame(COLUMNS),
    "pandas category": pd.DataFrame(COLUMNS).astype({"smokes": "category"}),
    "pandas nullable": pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas objects": pd.DataFrame(COLUMNS, dtype=object),
    "polars": pl.DataFrame(COLUMNS),
    "polars categorical": pl.DataFrame(COLUMNS, schema_overrides={"smokes": pl.Categorical}),
    "arrow": pa.table(COLUMNS),
}
ROWS = list(zip(COLUMNS["age"], COLUMNS["smokes"], strict=True))


@pytest.mark.filterwarnings("ignore:bounds was left at its default:UserWarning")
@parametrize_with_checks(
    [
        BoundedScaler(),
        BoundedScaler(bounds=(0, 2), norm=3, center=False),
        BoundedScaler(bounds=(-1, 1), sparse_output=True),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def mixed(**changes: Any) -> BoundedScaler:
    return BoundedScaler(**{"bounds": BOUNDS, "categories": CATEGORIES, **changes})


@pytest.mark.parametrize("kind", TABLES)
def test_frames_of_mixed_columns(kind: str) -> None:
    scaler = mixed()
    np.testing.assert_allclose(scaler.fit_transform(TABLES[kind]), EXPECTED, rtol=1e-11)
    assert scaler.get_feature_names_out().tolist() == NAMES


@pytest.mark.parametrize("table", [ROWS, np.array(ROWS, dtype=object)], ids=["list", "array"])
def test_mixed_rows_without_names(table: Any) -> None:
    scaler = BoundedScaler(bounds={0: (0, 120)}, categories={np.int64(1): np.array(["no", "yes", "once"])})
    np.testing.assert_allclose(scaler.fit_transform(table), EXPECTED, rtol=1e-11)
    assert scaler.get_feature_names_out().tolist() == ["x0", "x1_no", "x1_yes", "x1_once"]
    assert scaler.get_feature_names_out(["age", "smokes"]).tolist() == NAMES
    with pytest.raises(InvalidInput, match="length equal to 2"):
        scaler.get_feature_names_out(["age"])


def test_categories_compare_by_equality() -> None:
    table = np.array([[1, 0.0], [np.float32(2), True], [3.0, np.int8(0)]], dtype=object)
    scaler = BoundedScaler(categories={0: [3, 2, 1], 1: [False, True]}).fit(table)
    expected = HALF * np.array([[0, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]])
    np.testing.assert_allclose(scaler.transform(table), expected, rtol=1e-11)


def test_names_are_those_of_the_one_hot_encoder() -> None:
    values = np.array([["a", 1, 2.5, True]], dtype=object)
    table = pd.DataFrame(values, columns=["p", "q", "r", "s"])
    categories = {"p": ["a", "b"], "q": [1, 2], "r": [0.5, 2.5], "s": [False, True]}
    peer = OneHotEncoder(categories=list(categories.values())).fit(table)
    ours = BoundedScaler(categories=categories).fit(table)
    assert ours.get_feature_names_out().tolist() == peer.get_feature_names_out().tolist()


def test_bounds_in_every_form_mean_the_same() -> None:
    table = pd.DataFrame({"a": [0.5, 9.0], "b": ["u", "v"], "c": [-3.0, 0.25]})
    forms = [(0, 1), np.array([0.0, 1.0]), {"a": (0, 1), 2: [0, 1]}, [(0, 1), None, (0, 1)]]
    scalers = [BoundedScaler(bounds=form, categories={"b": ["u", "v"]}) for form in forms]
    first, *others = [scaler.fit_transform(table) for scaler in scalers]
    assert all((first == other).all() for other in others)
    two = np.array([[0.5, 3.0]])
    pairs = np.array([[0, 1], [2, 4]])
    assert (BoundedScaler(bounds=pairs).fit_transform(two) == 0).all()


def test_numbers_are_clipped_without_a_word() -> None:
    scaler = BoundedScaler(bounds=(10, 20)).fit([[15]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = scaler.transform([[-1e300], [10], [12.5], [15], [20], [10**400]])
    np.testing.assert_allclose(out.ravel(), [-1, -1, -0.5, 0, 1, 1], rtol=1e-11)
    uncentred = BoundedScaler(bounds=(10, 20), center=False, norm=7.0).fit_transform([[0], [15], [99]])
    np.testing.assert_allclose(uncentred.ravel(), [0, 3.5, 7], rtol=1e-11)


finite = st.floats(allow_nan=False, allow_infinity=False)
pairs = st.tuples(finite, finite).map(sorted).filter(lambda p: p[0] < p[1] < p[0] + 1.79e308)


@given(pair=pairs, values=st.lists(finite, min_size=2, max_size=9))
@example((1e16 + 2, 1e16 + 4), [1e16, 1e17])
@example((0.0, 5e-324), [0.0, 1.0])
def test_order_is_kept_and_bounds_reach_the_ends(pair: Any, values: list[float]) -> None:
    table = np.array([*pair, *sorted(values)])[:, None]
    for center in (True, False):
        scaler = BoundedScaler(bounds=pair, center=center)
        low, high, *others = scaler.fit_transform(table)[:, 0]
        assert (low, high) == (-scaler.share_ if center else 0.0, scaler.share_)
        assert others == sorted(others)
        assert low <= others[0] <= others[-1] <= high


def norm_squared(row: Any) -> Fraction:
    return sum((Fraction(float(entry)) ** 2 for entry in row), Fraction(0))


@given(
    columns=st.lists(st.tuples(pairs, finite), min_size=1, max_size=7),
    encoded=st.integers(0, 3),
    norm=st.floats(1e-30, 1e30),
    center=st.booleans(),
    narrow=st.booleans(),
)
@example([((0.0, 5e-324), 1.0)] * 3, 1, 1.0, True, False)
@example([((1e16, 1e16 + 2), 1e17)] * 3, 3, 0.1, True, True)
@example([((-8e307, 8e307), 1e308)] * 7, 0, 1e30, True, True)
@example([((0.1, 0.3), 0.3)] * 3, 0, 1e-30, False, True)
def test_no_row_leaves_the_ball(columns: Any, encoded: int, norm: float, center: bool, narrow: bool) -> None:
    bounds = [pair for pair, _ in columns] + [None] * encoded
    low, high = np.array([pair for pair, _ in columns]).T
    numbers = np.array([low, high, low / 2 + high / 2, [value for _, value in columns]])
    table = np.hstack([numbers, np.ones((4, encoded))])
    if narrow:
        largest = float(np.finfo(np.float32).max)
        table = np.clip(table, -largest, largest).astype(np.float32)
    categories = {len(columns) + i: [0, 1] for i in range(encoded)}
    scaler = BoundedScaler(bounds=bounds, categories=categories, norm=norm, center=center)
    out = scaler.fit_transform(table)
    assert out.dtype == table.dtype
    assert np.isfinite(out).all()
    assert all(norm_squared(row) <= Fraction(norm) ** 2 for row in out)
    # And the ball is used: a row at the upper bounds is on its surface but for rounding.
    if not narrow:
        assert norm_squared(out[1]) >= Fraction(norm) ** 2 * (1 - Fraction(1, 2**38))
    as_sparse = clone(scaler).set_params(sparse_output=True).fit_transform(table)
    assert (as_sparse.toarray() == out).all()


def test_single_precision_is_rounded_towards_zero() -> None:
    for columns in range(1, 200):
        out = BoundedScaler(bounds=(0, 1)).fit_transform(np.ones((1, columns), np.float32))
        assert out.dtype == np.float32
        assert 1 - 1e-6 < norm_squared(out[0]) <= 1


def test_sparse_output_has_one_entry_for_each_input_column() -> None:
    out = mixed(sparse_output=True).fit_transform(TABLES["pandas"])
    assert isinstance(out, sparse.csr_array)
    assert out.nnz == 6
    assert out.indices.dtype == out.indptr.dtype == np.int32
    np.testing.assert_allclose(out.toarray(), EXPECTED, rtol=1e-11)
    assert out.has_canonical_format


def state(scaler: BoundedScaler) -> bytes:
    return pickle.dumps({name: repr(value) for name, value in vars(scaler).items()})


def test_fit_does_not_depend_on_values() -> None:
    first = pd.DataFrame({"age": [1.0, 2.0], "smokes": ["no", "yes"]})
    second = pd.DataFrame({"age": [-1e300, 77.0, 0.0], "smokes": ["once"] * 3})
    assert state(mixed().fit(first)) == state(mixed().fit(second))
    rng = np.random.default_rng(3)
    states = {state(BoundedScaler(bounds=(0, 1)).fit(rng.normal(scale=s, size=(5, 3)))) for s in (1e-9, 1, 1e9)}
    assert len(states) == 1


def test_the_default_bounds_are_public_and_warned_about_every_time() -> None:
    for values in ([[0.5], [1.0]], [[1e9], [-1e9]]):
        scaler = BoundedScaler()
        with pytest.warns(UserWarning, match=r"clipped to \[-1, 1\]; pass bounds="):
            scaler.fit(values)
        assert scaler.bounds_ == [(-1.0, 1.0)]
    with pytest.warns(UserWarning, match="left at its default"):
        BoundedScaler(categories=CATEGORIES).fit(TABLES["pandas"])


def test_no_warning_where_no_default_is_used() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BoundedScaler(categories={0: [1, 2]}).fit([[1], [2]])
        mixed().fit(TABLES["pandas"])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bounds": {}}, "column 'age' has neither bounds"),
        ({"bounds": {"smokes": (0, 1), "age": (0, 1)}}, "column 'smokes' has both"),
        ({"bounds": [(0, 1), (0, 1)]}, "column 'smokes' has both"),
        ({"bounds": [None, None]}, "column 'age' has neither bounds"),
        ({"bounds": [(0, 1)]}, "sequence of 2 pairs"),
        ({"bounds": 3.0}, "bounds must be one pair"),
        ({"bounds": "ab"}, "column 'age': bounds must be a pair"),
        ({"bounds": {"age": (1, 0)}}, "column 'age': the lower bound must be below"),
        ({"bounds": {"age": (0, float("inf"))}}, "column 'age': bounds must be finite"),
        ({"bounds": {"age": 5}}, "column 'age': bounds must be a pair"),
        ({"bounds": (True, 2)}, "column 'age': the lower bound must be a number"),
        ({"bounds": {"height": (0, 1)}}, "bounds speaks of column 'height'"),
        ({"bounds": {2: (0, 1)}}, "a position from 0 to 1"),
        ({"bounds": {-2: (0, 1)}}, "bounds speaks of column -2"),
        ({"bounds": {False: (0, 1)}}, "bounds speaks of column False"),
        ({"bounds": {"age": (0, 1), 0: (0, 1)}}, "bounds speaks of column 'age' twice"),
        ({"categories": [["no", "yes"]]}, "categories must be a dict"),
        ({"categories": {"smokes": "no"}}, "column 'smokes': categories must be a list"),
        ({"categories": {"smokes": []}}, "column 'smokes': categories must be different"),
        ({"categories": {"smokes": [1, True]}}, "1, 1.0 and True are equal"),
        ({"categories": {"smokes": [["no"]]}}, "column 'smokes': a category must be text"),
        ({"categories": {"smokes": [None, "no"]}}, "column 'smokes': a category must be text"),
        ({"categories": {"smokes": [float("nan")]}}, "a number other than NaN"),
        ({"norm": 0}, "norm must be a finite number above 0"),
        ({"norm": 1e31}, "norm must lie between"),
    ],
)
def test_bad_parameters_are_refused_by_fit(parameters: dict[str, Any], words: str) -> None:
    scaler = mixed(**parameters)
    with pytest.raises(InvalidInput, match=words):
        scaler.fit(TABLES["pandas"])


SECRET = 87654.25


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None, "87654.25", {"87654.25": 1}, pd.NA, 87654.25j])
@pytest.mark.parametrize("how", ["pandas", "array"])
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_what_is_not_a_finite_number_is_refused_and_not_quoted(bad: Any, how: str, method: str) -> None:
    table = pd.DataFrame({"age": [1.0, SECRET, bad], "smokes": ["no", "yes", "no"]}, dtype=object)
    scaler = mixed().fit(TABLES["pandas"])
    if how == "array":
        scaler = BoundedScaler(bounds=[(0, 120), None], categories={1: ["no", "yes"]}).fit(ROWS)
        table = table.to_numpy()
    with pytest.raises(InvalidInput, match=r"column ('age'|0) has a missing, NaN, inf") as caught:
        getattr(scaler, method)(table)
    assert "87654" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("bad", ["87654.25", None, SECRET, float("nan"), [SECRET], pd.NA])
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_an_undeclared_category_is_refused_and_not_quoted(bad: Any, method: str) -> None:
    table = pd.DataFrame({"age": [1.0, 2.0], "smokes": pd.Series(["no", bad], dtype=object)})
    with pytest.raises(InvalidInput, match="column 'smokes' has a value that is missing or not among") as caught:
        getattr(mixed().fit(TABLES["pandas"]), method)(table)
    assert "87654" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"age": [SECRET, None], "smokes": ["no", "no"]}),
        pl.DataFrame({"age": [1, 2], "smokes": ["no", None]}),
        pl.DataFrame({"age": [1, 2], "smokes": ["no", "87654.25"]}),
        pl.DataFrame({"age": ["87654.25", "2"], "smokes": ["no", "no"]}),
        pa.table({"age": [87654, None], "smokes": ["no", "no"]}),
    ],
)
def test_nulls_and_strangers_in_other_frames(frame: Any) -> None:
    with pytest.raises(InvalidInput, match=r"column '(age|smokes)' has a") as caught:
        mixed().fit(frame)
    assert "87654" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.full(3, SECRET), "Reshape your data"),
        ([SECRET, SECRET], "Reshape your data"),
        (pd.Series([SECRET]), "Reshape your data"),
        ([[SECRET, 1.0], [SECRET]], "Reshape your data"),
        (SECRET, "Reshape your data"),
        ({"age": [SECRET]}, "Reshape your data"),
        (np.full((2, 2), SECRET + 1j), "Complex data not supported"),
        (np.full((2, 2, 2), SECRET), "3 dimension"),
        (np.ma.masked_greater(np.array([[SECRET, 1.0]]), 2.0), "masked values"),
        (sparse.csr_array(np.full((2, 2), SECRET)), "X is sparse"),
        (np.full((2, 1), SECRET), "X has 1 features, but BoundedScaler is expecting 2"),
        (np.empty((0, 2)), r"0 sample\(s\)"),
        (np.empty((2, 0)), r"0 feature\(s\)"),
    ],
)
def test_bad_shapes_are_refused_and_not_quoted(table: Any, words: str) -> None:
    scaler = BoundedScaler(bounds=(0, 1)).fit([[0, 0]])
    with pytest.raises(ValueError, match=words) as caught:
        scaler.transform(table)
    assert "87654" not in "".join(traceback.format_exception(caught.value))


def test_columns_must_be_those_of_fit() -> None:
    scaler = mixed().fit(TABLES["pandas"])
    with pytest.raises(ValueError, match="feature names should match"):
        scaler.transform(TABLES["pandas"][["smokes", "age"]])


def test_a_refit_that_fails_leaves_nothing_to_transform_with() -> None:
    scaler = mixed().fit(TABLES["pandas"])
    with pytest.raises(InvalidInput, match="speaks of column 'smokes'"):
        scaler.fit([[1, 2]])
    with pytest.raises(ValueError, match="not fitted"):
        scaler.transform([[1, 2]])


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_set_output(library: Any, kind: str) -> None:
    scaler = mixed().set_output(transform=library.__name__)
    out = scaler.fit_transform(TABLES[kind])
    assert isinstance(out, library.DataFrame)
    assert list(out.columns) == NAMES
    np.testing.assert_allclose(out.to_numpy(), EXPECTED, rtol=1e-11)


def test_set_output_keeps_the_index() -> None:
    table = TABLES["pandas"].set_axis([7, 8, 9])
    assert list(mixed().set_output(transform="pandas").fit_transform(table).index) == [7, 8, 9]


def test_clone_and_pickle() -> None:
    scaler = mixed(norm=2.0)
    assert clone(scaler).get_params() == scaler.get_params()
    fitted = scaler.fit(TABLES["pandas"])
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.transform(TABLES["pandas"]) == fitted.transform(TABLES["pandas"])).all()
    with pytest.raises(TypeError):
        BoundedScaler((0, 1))  # type: ignore[misc]


def test_tags_say_whether_text_is_read() -> None:
    assert not get_tags(BoundedScaler()).input_tags.string
    assert get_tags(mixed()).input_tags.string
    assert get_tags(mixed()).input_tags.categorical
    assert not get_tags(mixed()).input_tags.sparse


@pytest.mark.parametrize("sparse_output", [False, True])
def test_in_a_pipeline(sparse_output: bool) -> None:
    table = pd.concat([TABLES["pandas"]] * 10, ignore_index=True)
    target = table["smokes"] == "yes"
    model = make_pipeline(mixed(sparse_output=sparse_output), LogisticRegression(C=100.0)).fit(table, target)
    assert model.score(table, target) == 1.0
    assert model[:-1].get_feature_names_out().tolist() == NAMES


def test_in_a_column_transformer() -> None:
    parts = [
        ("numbers", BoundedScaler(bounds=(0, 120), norm=HALF), ["age"]),
        ("labels", BoundedScaler(categories=CATEGORIES, norm=HALF), ["smokes"]),
    ]
    table = ColumnTransformer(parts, verbose_feature_names_out=False).set_output(transform="pandas")
    out = table.fit_transform(TABLES["pandas"])
    assert list(out.columns) == NAMES
    np.testing.assert_allclose(out.to_numpy(), EXPECTED, rtol=1e-11)
