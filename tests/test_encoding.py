from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from epsilearn.encoding import Encoding, as_table, read_rows
from epsilearn.errors import InvalidInput
from epsilearn.files import TableFile
from epsilearn.preprocessing import BoundedScaler
from epsilearn.schema import Schema

CANARY = "Zaphod424242"


def encoding(column, **others):
    return Encoding(Schema.from_dict({"version": 1, "columns": {"x": column, "y": {"bounds": [0, 1]}}, **others}), "y")


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


def encoded(values, column, **others):
    return dense(encoding(column, **others).matrix(pa.table({"x": values}))).round(9).tolist()


def hot(positions, width):
    return np.eye(width)[positions].tolist()


def test_every_kind_of_column_as_the_scaler_has_it(clinic):
    found = Encoding(Schema.from_dict(clinic.schema()), "died")
    columns = dict(clinic.columns)
    frame = pd.DataFrame({
        "age": columns["age"],
        "weight": [70.0 if v is None else v for v in columns["weight"]],
        "ward": [{"Surg.": "surgery", "eye": "elsewhere"}.get(v, v) for v in columns["ward"]],
        "smokes": columns["smokes"],
        "grade": columns["grade"],
        "stage": columns["stage"],
        "days": columns["days"],
    })  # fmt: skip
    scaler = BoundedScaler(
        bounds={name: clinic.public[name]["bounds"] for name in ("age", "weight", "days")},
        categories={name: clinic.public[name]["categories"] for name in ("ward", "smokes", "grade", "stage")},
        norm=7**0.5,
    )
    np.testing.assert_array_equal(dense(found.matrix(clinic.arrow())), scaler.fit_transform(frame))
    assert found.names[1:6] == ["weight", "ward = surgery", "ward = medicine", "ward = elsewhere", "smokes = false"]
    assert found.names[7:10] == ["grade = 0", "grade = 1", "grade = 2.5"]
    assert found.targets(clinic.arrow()).tolist() == [int(v == "yes") for v in columns["died"]]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "arrow"])
def test_every_kind_of_file_gives_the_same_rows(clinic, tmp_path, kind):
    found = Encoding(Schema.from_dict(clinic.schema()), "stage")
    X, y = read_rows(TableFile.at(clinic.write(tmp_path, kind)), found, 1e9)
    np.testing.assert_array_equal(dense(X), dense(found.matrix(clinic.arrow())))
    assert np.array(["I", "II", "III", "IV"])[y].tolist() == clinic.columns["stage"]


NUMBERS = [
    pa.array(["0", "1e0", "0.5"]),
    pa.array(["0", "1", ".5"], pa.large_string()),
    pa.array(["0", "1", "0.5"]).dictionary_encode(),
    pa.array([0.0, 1.0, 0.5]).dictionary_encode(),
    pa.array([Decimal("0.00"), Decimal("1.00"), Decimal("0.50")]),
    pa.array([0, 1, 0.5], pa.float32()),
    pa.array([0, 1, 0.5], pa.float16()),
    pa.chunked_array([[0.0], [], [1.0, 0.5]]),
]


@pytest.mark.parametrize("values", NUMBERS, ids=range(len(NUMBERS)))
def test_numbers_in_every_arrow_type(values):
    assert encoded(values, {"bounds": [0, 1]}) == [[-1], [1], [0]]


def test_numbers_beyond_everything_are_clipped():
    column = {"bounds": [0, 2.0**53]}
    assert encoded([2**53 + 1, 2**62, -(2**63), 0], column) == [[1], [1], [-1], [-1]]
    assert encoded(pa.array([2**64 - 1], pa.uint64()), column) == [[1]]
    assert encoded(["9007199254740993", "-1e300", "1" * 300], column) == [[1], [-1], [1]]
    assert encoded([Decimal(10**37)], column) == [[1]]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", "a"]),
        pa.array(["a", "b", "a"], pa.large_string()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array(["a", "b", "a"], pa.string_view()),
        pa.array(["A", "b", "a"]),
    ],
    ids=range(5),
)
def test_texts_in_every_arrow_type(values):
    assert encoded(values, {"categories": ["a", "b"], "aliases": {"A": "a"}}) == hot([0, 1, 0], 2)


def test_texts_that_other_tools_wrote_as_numbers_or_booleans():
    assert encoded([1, 20], {"categories": ["1", "20"]}) == hot([0, 1], 2)
    assert encoded([True, False], {"categories": ["true", "false"]}) == hot([0, 1], 2)


def test_numeric_categories():
    column = {"categories": [0, 1, 2.5]}
    assert encoded([0.0, -0.0, 1, 2.5], column) == hot([0, 0, 1, 2], 3)
    assert encoded(["0", "-0.0", "1.0", "25e-1"], column) == hot([0, 0, 1, 2], 3)
    assert encoded([-0.0, 0.0], {"categories": [-0.0, 1]}) == hot([0, 0], 2)
    assert encoded([Decimal("2.5"), Decimal("1.0")], column) == hot([2, 1], 3)
    assert encoded([float("inf"), 7.0, float("nan")], {**column, "other": 1, "missing": 0}) == hot([1, 1, 0], 3)


def test_booleans():
    column = {"categories": [False, True], "missing": True}
    assert encoded([True, None, False], column) == hot([1, 1, 0], 2)
    assert encoded(["TRUE", "", "false"], column) == hot([1, 1, 0], 2)
    assert encoded([None, None], column) == hot([1, 1], 2)
    with pytest.raises(InvalidInput, match="other than true and false"):
        encoded(["1", "true"], column)
    with pytest.raises(InvalidInput, match="other than true and false"):
        encoded([1, 0], column)


def test_blanks_and_question_marks_as_in_the_raw_adult_file(tmp_path):
    lines = [" 39, State-gov, <=50K", "50 , ?, >50K", " ?,Private , <=50K."]
    (tmp_path / "adult.data").write_text("\n".join(lines) + "\n\n")
    schema = Schema.from_dict({
        "version": 1,
        "file": {"format": "csv", "header": False, "strip": True, "missing": ["?"]},
        "columns": {
            "age": {"bounds": [0, 100], "missing": 50},
            "work": {"categories": ["Private", "none", "State-gov"], "missing": "none"},
            "income": {"categories": ["<=50K", ">50K"], "aliases": {"<=50K.": "<=50K", ">50K.": ">50K"}},
        },
    })  # fmt: skip
    file = TableFile.at(tmp_path / "adult.data", schema.file, tuple(schema.columns))
    X, y = read_rows(file, Encoding(schema, "income"), 1e9)
    assert X.round(9).tolist() == [[-0.22, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert y.tolist() == [0, 1, 0]


def test_what_means_not_known_comes_before_aliases_and_categories():
    column = {"categories": ["a", "b", "?"], "missing": "b", "aliases": {"n/a": "a"}}
    assert encoded(["?", "n/a", "a"], column, file={"missing": ["?", "n/a"]}) == hot([1, 1, 0], 3)


X = pa.array(["a", CANARY])
REFUSED = {
    "unlisted": (X, {"categories": ["a", "b"]}, "not among its categories"),
    "alias": (X, {"categories": ["b"], "aliases": {"a": "b"}}, "not among its categories"),
    "no number": (X, {"bounds": [0, 1]}, "not a number"),
    "no numeric category": (X, {"categories": [0, 1]}, "not a number"),
    "no boolean": (X, {"categories": [False, True]}, "other than true and false"),
    "dictionary": (X.dictionary_encode(), {"bounds": [0, 1]}, "not a number"),
    "missing": (pa.array([CANARY, None]), {"categories": [CANARY[:3], "b"]}, "missing values"),
    "empty text": (pa.array(["1", ""]), {"bounds": [0, 1]}, "missing values"),
    "nan": (pa.array([1.0, float("nan")]), {"bounds": [0, 1]}, "missing values"),
    "nan in text": (pa.array(["1", "nan"]), {"bounds": [0, 1]}, "missing values"),
    "infinite": (pa.array([1.0, float("inf")]), {"bounds": [0, 1]}, "infinite"),
    "infinite text": (pa.array(["1", "-inf"]), {"bounds": [0, 1]}, "infinite"),
    "too large for doubles": (pa.array(["1", "1e999"]), {"bounds": [0, 1]}, "infinite"),
    "floats for texts": (pa.array([1.0]), {"categories": ["1.0"]}, "convert it first"),
    "dates": (pa.array([0], pa.timestamp("s")), {"bounds": [0, 1]}, "convert it first"),
    "lists": (pa.array([[CANARY]]), {"categories": ["a"]}, "convert it first"),
    "bytes": (pa.array([CANARY.encode()]), {"categories": ["a"]}, "convert it first"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_schema_does_not_allow(all_texts, case):
    values, column, text = REFUSED[case]
    with pytest.raises(InvalidInput, match=text) as caught:
        encoding(column).matrix(pa.table({"x": values}))
    assert "column 'x'" in str(caught.value)
    assert CANARY not in all_texts(caught.value)


@pytest.mark.parametrize("column", [{"categories": ["a"]}, {"categories": [False, True]}, {"bounds": [0, 1]}], ids=str)
@pytest.mark.parametrize("strip", [False, True])
def test_bytes_that_are_no_text_inside_a_parquet_file(tmp_path, all_texts, column, strip):
    """Parquet readers do not look whether texts are UTF-8."""
    raw = pa.array([CANARY.encode() + b"\xff\xfe", b"a"])
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    pa.parquet.write_table(pa.table({"x": texts, "y": [0.0, 1.0]}), tmp_path / "t.parquet")
    found = encoding(column, file={"strip": strip})
    with pytest.raises(InvalidInput) as caught:
        read_rows(TableFile.at(tmp_path / "t.parquet"), found, 1e9)
    assert CANARY not in all_texts(caught.value)


def test_an_error_does_not_depend_on_the_other_rows():
    texts = set()
    for rest in (["a"] * 5, ["b", "a", ""], ["c"]):
        with pytest.raises(InvalidInput) as caught:
            encoded([*rest, CANARY], {"categories": ["a", "b", "c"], "missing": "a"})
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_rows_that_were_declared(tmp_path, clinic):
    file = TableFile.at(clinic.write(tmp_path, "csv"))
    for rows in (clinic.rows - 1, clinic.rows + 1):
        found = Encoding(Schema.from_dict(clinic.schema(rows=rows)), "died")
        with pytest.raises(InvalidInput, match=f"has {clinic.rows} rows, and the schema says {rows}"):
            read_rows(file, found, 1e9)
    found = Encoding(Schema.from_dict(clinic.schema(rows=clinic.rows)), "died")
    assert read_rows(file, found, 1e9)[0].shape == (clinic.rows, 15)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_memory(tmp_path, clinic, kind):
    found = Encoding(Schema.from_dict(clinic.schema()), "died")
    file = TableFile.at(clinic.write(tmp_path, kind))
    read_rows(file, found, found.bytes_per_row * clinic.rows)
    with pytest.raises(InvalidInput, match="too large"):
        read_rows(file, found, found.bytes_per_row * (clinic.rows - 1))


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "libsvm"])
def test_no_rows(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    columns = {"x": {"bounds": [0, 1]}, "y": {"bounds": [0, 1]}}
    schema = {"version": 1, "columns": columns}
    if kind == "csv":
        path.write_text("x,y\n")
    elif kind == "libsvm":
        path.write_text("")
        schema = {"version": 1, "file": {"format": "libsvm"}, "others": {"bounds": [0, 1], "count": 4}}
        schema["columns"] = {"target": {"bounds": [0, 1]}}
    else:
        empty = pa.table({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())})
        (pa.parquet.write_table if kind == "parquet" else pa.feather.write_feather)(empty, path)
    target = "target" if kind == "libsvm" else "y"
    with pytest.raises(InvalidInput, match="no rows"):
        read_rows(TableFile.at(path), Encoding(Schema.from_dict(schema), target), 1e9)


def test_numbered_columns():
    schema = Schema.from_dict({
        "version": 1, "file": {"format": "libsvm"}, "columns": {"target": {"categories": [-1, 1]}},
        "others": {"bounds": [-2, 4], "count": 3, "first": 0},
    })  # fmt: skip
    found = Encoding(schema, "target")
    assert list(found.names) == ["0", "1", "2"]
    assert list(found.names[1:]) == ["1", "2"]
    X = found.matrix(sparse.csr_matrix([[8.0, -8.0, 0.0], [1.0, 0.0, -1.0]]))
    assert X.toarray().tolist() == [[1, -0.5, 0], [0.25, 0, -0.25]]
    with pytest.raises(InvalidInput, match="2 columns, and the schema says 3"):
        found.matrix(sparse.csr_matrix((4, 2)))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="missing, NaN or infinite"):
            found.matrix(sparse.csr_matrix([[bad, 0, 0]]))
    twice = sparse.coo_array(([1.0, 5.0], ([0, 0], [1, 1])), shape=(1, 3))
    assert found.matrix(twice).toarray().tolist() == [[0, 1, 0]]


def test_wide_categories_make_a_sparse_matrix():
    found = encoding({"categories": [f"c{i}" for i in range(50)]})
    X = found.matrix(pa.table({"x": ["c3", "c49"]}))
    assert sparse.issparse(X)
    assert X.toarray().round(9).tolist() == hot([3, 49], 50)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict], ids=range(4))
def test_tables_from_anywhere(make):
    found = encoding({"categories": ["a", "b"], "missing": "b"})
    assert found.matrix(as_table(make({"x": ["a", None]}))).round(9).tolist() == hot([0, 1], 2)


def test_pandas_categories():
    found = encoding({"categories": ["a", "b"]})
    frame = pd.DataFrame({"x": pd.Categorical(["b", "a"])}, index=[7, 8])
    assert found.matrix(as_table(frame)).round(9).tolist() == hot([1, 0], 2)


NO_TABLES = [
    "text", b"bytes", 5, None, [1, 2], np.zeros((2, 2)), {"x": 5}, {"x": [1], "z": [1, 2]}, {"x": [CANARY, 5]},
    {"x": [object()]}, {"x": [2**70]}, {"x": [2**64, -1]}, pd.DataFrame({"x": [CANARY, 5]}),
    pd.DataFrame({"x": [2**70, "a"]}), {5: [CANARY]},
]  # fmt: skip


@pytest.mark.parametrize("data", NO_TABLES, ids=range(len(NO_TABLES)))
def test_what_is_no_table(all_texts, data):
    with pytest.raises(InvalidInput) as caught:
        encoding({"bounds": [0, 1]}).matrix(as_table(data))
    assert CANARY not in all_texts(caught.value)


def test_absent_and_repeated_columns():
    found = encoding({"bounds": [0, 1]})
    with pytest.raises(InvalidInput, match="no column 'x'"):
        found.matrix(pa.table({"z": [1]}))
    with pytest.raises(InvalidInput, match="several columns called 'x'"):
        found.matrix(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]))


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=2)
COLUMNS = st.sampled_from([
    {"bounds": [0, 1]},
    {"bounds": [-1e300, 1e300], "missing": 0},
    {"categories": ["", "a", "0"], "other": "a"},
    {"categories": ["0", "true"], "missing": "0", "aliases": {"": "0"}},
    {"categories": [0, 1], "other": 1, "missing": 0},
    {"categories": [False, True], "missing": False},
])  # fmt: skip


def attempt(action, *arguments):
    """What an action returns, or the text with which it is refused; nothing else may be raised."""
    try:
        return action(*arguments), None
    except InvalidInput as error:
        return None, str(error)


def check_values(column, values, strip):
    found = encoding(column, file={"strip": strip, "missing": ["?"]})
    X, refusal = attempt(lambda: dense(found.matrix(as_table({"x": values}))))
    if X is None:
        assert len(refusal.splitlines()) == 1
        return
    assert X.shape == (len(values), found.schema.width("y"))
    assert (np.abs(X) <= 1).all()
    if "categories" in column:
        assert (np.count_nonzero(X, axis=1) == 1).all()


HOMOGENEOUS = st.one_of(
    *(st.lists(st.none() | kind, min_size=1, max_size=5) for kind in (
        st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=3), st.binary(max_size=2)
    ))
)  # fmt: skip


@settings(max_examples=200, derandomize=True, deadline=None)
@given(COLUMNS, HOMOGENEOUS | st.lists(VALUES, min_size=1, max_size=4), st.booleans())
def test_random_values(column, values, strip):
    check_values(column, values, strip)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(COLUMNS, HOMOGENEOUS | st.lists(VALUES, min_size=1, max_size=4), st.booleans())
def test_thousands_of_random_values(column, values, strip):
    check_values(column, values, strip)
