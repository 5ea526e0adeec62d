from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest

from epsilearn import Guarantee
from epsilearn.errors import InvalidInput
from epsilearn.export.onnx import to_onnx
from epsilearn.job import Job
from epsilearn.schema import Schema


def feeds(model, table):
    """Raw columns as the graph takes them: a missing number is NaN, a missing text empty."""
    if model.schema.sparse:
        return {"X": table.toarray()}
    found = {}
    for name in model.schema.features(model.target):
        column, values = model.schema.columns[name], table[name].to_pylist()
        if column.categories is None or type(column.categories[0]) in (int, float):
            array = np.array([np.nan if v is None else float(v) for v in values])
        elif isinstance(column.categories[0], bool):
            array = np.array(values, dtype=bool)
        else:
            array = np.array(["" if v is None else v for v in values], dtype=object)
        found[name] = array[:, None]
    return found


def run(model, inputs):
    session = onnxruntime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, inputs), strict=True))


def assert_same(model, table):
    found, expected = run(model, feeds(model, table)), model.predict(table)
    if model.classes is None:
        np.testing.assert_allclose(found["prediction"][:, 0], expected, rtol=1e-9, atol=1e-9)
        return
    assert found["prediction"].tolist() == expected.tolist()
    if model.has_probabilities:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(table), rtol=0, atol=1e-9)
    else:
        np.testing.assert_allclose(found["scores"], model.scores(table), rtol=1e-9, atol=1e-9)


def test_onnxruntime_predicts_the_same(release, releases):
    assert_same(releases[release], releases.rows(release))


def test_numbers_beyond_their_bounds(releases):
    rows = 2 * releases.rows("numbered") - releases.rows("numbered")[::-1] * 5
    assert_same(releases["numbered"], rows)
    table = releases.clinic.arrow()
    far = pa.array([-1e300, 1e300, 90.0, -0.0] * (releases.clinic.rows // 4))
    assert_same(releases["logistic"], table.set_column(0, "age", far))


def released(columns, target="y", model="logistic", **changes):
    """A model of a made-up table; its weights are noise, which is all the better here."""
    schema = Schema.from_dict({"version": 1, "columns": columns, **changes})
    job = Job(schema, target, model, 1.0)
    chance = np.random.default_rng(0)
    return job.fit(chance.uniform(-0.5, 0.5, (40, schema.width(target))), chance.integers(0, 2, 40))


Y = {"y": {"categories": ["no", "yes"]}}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ({"bounds": [-5, 5]}, [-9.0, 0.0, 4.9]),
        ({"bounds": [1e-3, 1e9], "missing": 7.0}, [None, 1e-4, 123456.789]),
        ({"categories": ["a", "b"], "aliases": {"A": "a", "": "b"}}, ["a", "A", "b"]),
        ({"categories": ["a", "b", "c"], "other": "c"}, ["b", "zzz", "é"]),
        ({"categories": ["a", "?", "c"], "missing": "c", "aliases": {"n/a": "a"}}, ["?", None, "n/a"]),
        ({"categories": ["a", "b"], "other": "b", "missing": "a"}, [None, "?", "q"]),
        ({"categories": ["ä", "ß", "日本"]}, ["ß", "日本", "ä"]),
        ({"categories": [0, 1, 5]}, [5, 0, 1]),
        ({"categories": [0.1, -0.0, 7.25], "other": 7.25, "missing": 0.1}, [None, 0.0, 99.0]),
        ({"categories": [2**53 - 1, -3]}, [-3, 2**53 - 1, -3]),
        ({"categories": [False, True]}, [True, False, True]),
        ({"categories": [True, False]}, [True, False, True]),
        ({"categories": [True], "other": True}, [True, False, True]),
    ],
    ids=range(13),
)
def test_every_kind_of_column(column, values):
    model = released({"x": column, "z": {"bounds": [0, 1]}, **Y}, file={"missing": ["", "?"]})
    assert_same(model, pa.table({"x": values, "z": [0.1, 0.5, 0.9]}))


@pytest.mark.parametrize(
    "classes", [["b", "a"], [3, 1], [2.5, -0.5], [True, False], ["c", "a", "b"], [9, 1, 5], [0.5, 2, 1]], ids=str
)
def test_every_kind_of_class(classes):
    model = released({"x": {"bounds": [0, 1]}, "y": {"categories": classes}})
    assert_same(model, pa.table({"x": [0.0, 0.3, 1.0]}))


def test_ties_go_to_the_same_class(releases):
    from dataclasses import replace

    for name in ("logistic", "four"):
        model = releases[name]
        flat = replace(
            model.weights, coefficients=0 * model.weights.coefficients, intercept=0 * model.weights.intercept
        )
        assert_same(replace(model, weights=flat), releases.rows(name))


@pytest.mark.parametrize("names", [["v0", "v1"], ["c0", "c1"], ["X", "score"], ["a b", "ä"], ["a/b", "a:0"]], ids=str)
def test_columns_called_like_parts_of_the_graph(names):
    model = released({name: {"bounds": [0, 1]} for name in names} | Y)
    assert_same(model, pa.table({name: [0.1, 0.9, 0.5] for name in names}))


@pytest.mark.parametrize("name", ["prediction", "probabilities", ""])
def test_names_that_an_input_cannot_have(name):
    model = released({name: {"bounds": [0, 1]}, "z": {"bounds": [0, 1]}, **Y})
    table = pa.table({name: [0.1, 0.9, 0.5], "z": [0.1, 0.9, 0.5]})
    with pytest.raises(InvalidInput, match="column"):
        assert_same(model, table)


def test_the_promise_travels_along(releases):
    model = releases["logistic"]
    made = onnx.load_from_string(to_onnx(model))
    onnx.checker.check_model(made, full_check=True)
    found = {entry.key: entry.value for entry in made.metadata_props}
    assert Guarantee.from_json(found["guarantee"]) == model.guarantee
    assert found["target"] == "died"


def test_the_same_model_gives_the_same_bytes(releases):
    assert to_onnx(releases["four"]) == to_onnx(releases["four"])


def test_without_the_package(releases, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidInput, match="pip install"):
        to_onnx(releases["logistic"])
