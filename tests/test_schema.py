from __future__ import annotations

import copy
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epsilearn.errors import InvalidInput
from epsilearn.schema import Schema

SPARSE = {
    "version": 1,
    "file": {"format": "libsvm"},
    "columns": {"target": {"categories": [-1, 1]}},
    "others": {"bounds": [0, 1], "count": 50},
}


def attempt(action, *arguments):
    """What an action returns, or the text with which it is refused; nothing else may be raised."""
    try:
        return action(*arguments), None
    except InvalidInput as error:
        return None, str(error)


def with_column(**column):
    return {"version": 1, "columns": {"x": column, "y": {"bounds": [0, 1]}}}


def test_a_schema_survives_dicts_and_toml(clinic, as_toml):
    data = clinic.schema(rows=10, rows_per_person=3, norm=2.5, file={"missing": ["", "?"], "strip": True})
    schema = Schema.from_dict(data)
    assert Schema.from_dict(schema.to_dict()) == schema
    text = "\n".join(f"{name} = {as_toml(value)}" for name, value in schema.to_dict().items())
    assert Schema.from_toml(text) == schema
    sparse = Schema.from_dict(SPARSE)
    assert Schema.from_dict(sparse.to_dict()) == sparse


def test_what_a_schema_does_not_share_with_its_source(clinic):
    data = copy.deepcopy(clinic.schema())
    schema = Schema.from_dict(data)
    before = schema.to_dict()
    data["columns"]["ward"]["aliases"]["x"] = "medicine"
    data["columns"]["ward"]["categories"].append("x")
    assert schema.to_dict() == before


def test_sizes(clinic):
    schema = Schema.from_dict(clinic.schema())
    assert schema.features("died") == ["age", "weight", "ward", "smokes", "grade", "stage", "days"]
    assert schema.width("died") == 1 + 1 + 3 + 2 + 3 + 4 + 1
    assert schema.length("died") == 7**0.5
    assert Schema.from_dict(clinic.schema(norm=2)).length("died") == 2.0
    assert Schema.from_dict(SPARSE).width("target") == 50


REFUSED = [
    ([], "table of settings"),
    ({}, "version = 1"),
    ({"version": 2, "columns": {"x": {"bounds": [0, 1]}}}, "version = 1"),
    ({"version": 1}, "names no column"),
    ({"version": 1, "columns": []}, r"\[columns.NAME\]"),
    ({"version": 1, "columns": {"x": []}}, "must be a table"),
    ({"version": 1, "columns": {"x": {}}}, "none of them"),
    ({**with_column(bounds=[0, 1]), "row": 3}, "'row', which means nothing"),
    ({**with_column(bounds=[0, 1]), "rows": 0}, "rows must be at least 1"),
    ({**with_column(bounds=[0, 1]), "rows": 1.5}, "rows must be a whole number"),
    ({**with_column(bounds=[0, 1]), "rows_per_person": True}, "rows_per_person"),
    ({**with_column(bounds=[0, 1]), "norm": 0}, "norm must be"),
    ({**with_column(bounds=[0, 1]), "norm": float("nan")}, "norm must be"),
    ({**with_column(bounds=[0, 1]), "norm": 10**400}, "norm is beyond"),
    ({**with_column(bounds=[0, 1]), "file": {"format": "xlsx"}}, "format"),
    ({**with_column(bounds=[0, 1]), "file": {"header": 1}}, "header must be true or false"),
    ({**with_column(bounds=[0, 1]), "file": {"delimiter": "ab"}}, "delimiter"),
    ({**with_column(bounds=[0, 1]), "file": {"delimiter": "é"}}, "delimiter"),
    ({**with_column(bounds=[0, 1]), "file": {"delimiter": '"'}}, "delimiter"),
    ({**with_column(bounds=[0, 1]), "file": {"missing": "?"}}, "missing must be a list"),
    ({**with_column(bounds=[0, 1]), "others": {}}, "needs bounds"),
    ({**with_column(bounds=[0, 1]), "others": {"bounds": [0, 1], "count": 5}}, "libsvm"),
    ({**with_column(bounds=[0, 1]), "file": {"format": "libsvm"}}, "libsvm"),
    ({**with_column(bounds=[0, 1]), "others": {"bounds": [0, 1]}, "file": {"header": False}}, "header"),
    ({**SPARSE, "columns": {"age": {"bounds": [0, 1]}}}, "only the target"),
    ({**SPARSE, "others": {"bounds": [1, 2], "count": 5}}, "must hold 0"),
    ({**SPARSE, "others": {"bounds": [0, 1], "count": 10**9}}, "at most 10,000,000"),
    ({**SPARSE, "others": {"bounds": [0, 1], "count": 5, "first": 2}}, "0 or 1"),
    (with_column(bounds=[1, 0]), "below the upper"),
    (with_column(bounds=[0, float("inf")]), "finite"),
    (with_column(bounds=[0, float("nan")]), "finite"),
    (with_column(bounds=[-1.7e308, 1.7e308]), "too far apart"),
    (with_column(bounds=[0]), "pair"),
    (with_column(bounds={"a": 1, "b": 2}), "must be a number"),
    (with_column(bounds=[0, 1], categories=["a"]), "exactly one of"),
    (with_column(bounds=[0, 1], ignore=True), "exactly one of"),
    (with_column(bounds=[0, 1], missing=2), "between the bounds"),
    (with_column(bounds=[0, 1], missing=True), "between the bounds"),
    (with_column(bounds=[0, 1], missing=float("nan")), "between the bounds"),
    (with_column(bounds=[0, 1], other=1), "other is for categories"),
    (with_column(ignore=False), "can only be true"),
    (with_column(ignore=True, missing=1), "has no meaning"),
    (with_column(categories=[]), "at least one"),
    (with_column(categories="ab"), "must be a list"),
    (with_column(categories=["a", "a"]), "different"),
    (with_column(categories=["a", 1]), "all texts"),
    (with_column(categories=[True, 1]), "all texts"),
    (with_column(categories=[0, -0.0]), "different"),
    (with_column(categories=[float("nan")]), "finite numbers"),
    (with_column(categories=[float("inf"), 1]), "finite numbers"),
    (with_column(categories=[[1], [2]]), "all texts"),
    (with_column(categories=["a"], other="b"), "other must be one of"),
    (with_column(categories=[0, 1], other=True), "other must be one of"),
    (with_column(categories=["a"], missing=["a"]), "missing must be one of"),
    (with_column(categories=[0, 1], aliases={"zero": 0}), "aliases"),
    (with_column(categories=["a"], aliases={"a": "a"}), "alias must lead"),
    (with_column(categories=["a"], aliases={"b": "c"}), "alias must lead"),
    (with_column(categories=["a"], aliases={"b": {}}), "alias must lead"),
    (with_column(categories=["a"], aliases=["b"]), "aliases"),
]


@pytest.mark.parametrize(("data", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_schema_refuses(data, text):
    with pytest.raises(InvalidInput, match=text) as caught:
        Schema.from_dict(data)
    assert "\n" not in str(caught.value)


def test_whole_numbers_that_doubles_confuse_are_no_categories():
    """2**53 and 2**53 + 1 are one double, so a record of the one would count as the other."""
    with pytest.raises(InvalidInput):
        Schema.from_dict(with_column(categories=[2**53, 5]))
    Schema.from_dict(with_column(categories=[2**53 - 1, -(2**53) + 1]))


@pytest.mark.parametrize("rows", [10**30, 10**400])
def test_more_rows_than_anybody_has(rows):
    with pytest.raises(InvalidInput):
        Schema.from_dict({**with_column(bounds=[0, 1]), "rows": rows})


@pytest.mark.parametrize(
    "text",
    ["", "version = ", "[columns.x", "version = 1\n[columns.x]\nbounds = [0, 1]\n[columns.x]\n", "a = " + "[" * 5000],
    ids=range(5),
)
def test_what_is_not_a_schema_in_toml(text):
    with pytest.raises(InvalidInput) as caught:
        Schema.from_toml(text)
    assert "\n" not in str(caught.value)


def test_schema_files(tmp_path):
    for path in (tmp_path, tmp_path / "none.toml"):
        with pytest.raises(InvalidInput, match="cannot read the schema"):
            Schema.read(path)
    (tmp_path / "latin.toml").write_bytes(b"version = 1 # caf\xe9\n")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        Schema.read(tmp_path / "latin.toml")


def test_columns_must_fit_and_names_of_the_file_are_not_quoted(all_texts):
    schema = Schema.from_dict(with_column(bounds=[0, 1]))
    assert schema.matched(["y", "x"]) == schema
    for names, text in (
        (["x"], "no column 'y'"),
        (["x", "y", "CANARY"], "1 of the file's 3 columns"),
        (["x", "y", "x", "CANARY", "CANARY"], "same name"),
    ):
        with pytest.raises(InvalidInput, match=text) as caught:
            schema.matched(names)
        assert "CANARY" not in all_texts(caught.value)


def test_others_get_their_bounds_in_the_order_of_the_file():
    schema = Schema.from_dict({**with_column(bounds=[0, 1]), "others": {"bounds": [-3, 3]}})
    found = schema.matched(["a", "x", "b", "y"])
    assert list(found.columns) == ["a", "x", "b", "y"]
    assert found.columns["b"].bounds == (-3.0, 3.0)
    assert found.columns["x"].bounds == (0.0, 1.0)
    assert found.others is None


@pytest.mark.parametrize(
    ("target", "text"), [("none", "no column 'none'"), ("note", "ignored"), ("one", "one category"), ("x" * 999, "x…'")]
)
def test_targets(clinic, target, text):
    columns = {**clinic.public, "one": {"categories": ["a"]}}
    with pytest.raises(InvalidInput, match=text):
        Schema.from_dict({"version": 1, "columns": columns}).check_target(target)
    with pytest.raises(InvalidInput, match="leaves no column"):
        Schema.from_dict({"version": 1, "columns": {"x": {"bounds": [0, 1]}}}).check_target("x")


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from([2**53, 10**400])
)
ANYTHING = st.recursive(
    SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=4), part, max_size=3)
)
WORDS = ["bounds", "categories", "ignore", "missing", "other", "aliases", "count", "first", "format", "header", "strip"]


def places(data, here=()):
    yield here
    for key, value in data.items() if isinstance(data, dict) else ():
        yield from places(value, (*here, key))


@st.composite
def mutated_schemas(draw):
    columns = {
        "a": {"bounds": [0, 1], "missing": 0.5},
        "b": {"categories": ["u", "v"], "other": "v", "aliases": {"U": "u"}},
        "c": {"categories": [0, 1.5]},
        "d": {"ignore": True},
    }
    base = {"version": 1, "columns": columns, "rows": 5, "norm": 2.0, "file": {"strip": True, "missing": ["?"]}}
    data = draw(st.sampled_from([base, SPARSE]))
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from([place for place in places(data) if place]))
        parent = data
        for key in where[:-1]:
            parent = parent[key]
        if draw(st.booleans()):
            parent[where[-1]] = draw(ANYTHING)
        else:
            parent[draw(st.sampled_from(WORDS))] = draw(ANYTHING)
    return data


def check_schema(data):
    schema, refusal = attempt(Schema.from_dict, data)
    if schema is None:
        assert len(refusal.splitlines()) == 1
        return
    again = Schema.from_dict(schema.to_dict())
    assert again == schema
    for name in schema.columns:
        if attempt(schema.check_target, name)[0] is not None:
            assert schema.width(name) >= 1
            assert schema.length(name) > 0


@settings(max_examples=150, derandomize=True, deadline=None)
@given(mutated_schemas() | ANYTHING)
def test_random_schemas(data):
    check_schema(data)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "version", "1", "=", "[", "]", "columns", ".", '"', "\n", "{", "é", "0x"])))
def test_random_toml(words):
    schema, refusal = attempt(Schema.from_toml, "".join(words))
    assert schema is not None or len(refusal.splitlines()) == 1


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(mutated_schemas() | ANYTHING)
def test_thousands_of_random_schemas(data):
    check_schema(data)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(mutated_schemas())
def test_thousands_of_random_schemas_through_toml(as_toml, data):
    text = "\n".join(f"{as_toml(str(name))} = {as_toml(value)}" for name, value in data.items() if value is not None)
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        with pytest.raises(InvalidInput):
            Schema.from_toml(text)
        return
    check_schema(parsed)
