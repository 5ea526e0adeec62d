from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from epsilearn.errors import InvalidInput
from epsilearn.export.pipeline import to_joblib, to_pipeline
from epsilearn.job import Job
from epsilearn.schema import Schema

Y = {"y": {"categories": ["no", "yes"]}}


def released(columns, model="logistic", epsilon=1.0, **changes):
    schema = Schema.from_dict({"version": 1, "columns": columns, **changes})
    target = "y" if "y" in columns else "target"
    job = Job(schema, target, model, epsilon)
    chance = np.random.default_rng(0)
    return job.fit(chance.uniform(-0.5, 0.5, (40, schema.width(target))), chance.integers(0, 2, 40))


def assert_same(model, table):
    pipeline = to_pipeline(model)
    if model.classes is None:
        np.testing.assert_allclose(pipeline.predict(table), model.predict(table), rtol=1e-9, atol=1e-9)
        return
    assert pipeline.predict(table).tolist() == model.predict(table).tolist()
    if model.has_probabilities:
        np.testing.assert_allclose(pipeline.predict_proba(table), model.predict_proba(table), atol=1e-9)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ({"bounds": [-5, 5]}, [-9.0, 0.0, 4.9]),
        ({"categories": ["b", "a", "c"]}, ["a", "c", "b"]),
        ({"categories": ["only"]}, ["only"] * 3),
        ({"categories": [0, 1, 5]}, [5, 0, 1]),
        ({"categories": [5, 0, 1]}, [5, 0, 1]),
        ({"categories": [0.5, -1]}, [-1.0, 0.5, 0.5]),
        ({"categories": [False, True]}, [True, False, True]),
        ({"categories": [True, False]}, [True, False, True]),
    ],
    ids=range(8),
)
def test_every_kind_of_column(column, values):
    table = pd.DataFrame({"z": [0.1, 0.5, 0.9], "x": values, "unused": [1, 2, 3]})
    assert_same(released({"x": column, "z": {"bounds": [0, 1]}, **Y}), table)


@pytest.mark.parametrize(
    ("classes", "kind"),
    [(["b", "a"], "logistic"), ([3, 1], "svm"), ([True, False], "sparse-logistic"), (["c", "a", "b"], "logistic"),
     ([9, 1, 5], "logistic")],
    ids=str,
)  # fmt: skip
def test_every_kind_of_class(classes, kind):
    model = released({"x": {"bounds": [0, 1]}, "y": {"categories": classes}}, kind)
    assert_same(model, pd.DataFrame({"x": [0.0, 0.3, 1.0]}))


@pytest.mark.parametrize("kind", ["linear", "lasso"])
def test_numbers_stay_inside_the_bounds_of_the_target(kind):
    model = released({"x": {"bounds": [0, 1]}, "y": {"bounds": [0, 1]}}, kind)
    steep = replace(model.weights, coefficients=np.array([[50.0]]), intercept=np.array([0.5]))
    assert_same(replace(model, weights=steep), pd.DataFrame({"x": [0.0, 0.5, 1.0]}))


@pytest.mark.parametrize("name", ["a__b", "remainder", "transformers", "verbose", "ä b", "n_jobs", ""])
def test_columns_called_like_parts_of_scikit_learn(name):
    model = released({name: {"bounds": [0, 1]}, "z": {"categories": ["u", "v"]}, **Y})
    assert_same(model, pd.DataFrame({name: [0.1, 0.9], "z": ["u", "v"]}))


def test_numbered_columns_are_refused_as_entries_would_have_to_be_clipped():
    model = released(
        {"target": {"categories": [-1, 1]}}, file={"format": "libsvm"}, others={"bounds": [-1, 1], "count": 8}
    )
    with pytest.raises(InvalidInput, match="onnx"):
        to_pipeline(model)


LONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "epsilearn":
            raise ImportError("epsilearn is not here")
sys.meta_path.insert(0, Refuse())
import joblib, json, pandas
pipeline = joblib.load("model.joblib")
table = pandas.read_json("rows.json")
print(json.dumps([pipeline.predict(table).tolist(), pipeline.predict_proba(table).tolist()]))
assert not any(name.startswith("epsilearn") for name in sys.modules)
"""


def test_it_loads_where_epsilearn_is_not(tmp_path):
    model = released({"x": {"bounds": [0, 10]}, "w": {"categories": ["u", "v"]}, "y": {"categories": ["c", "a", "b"]}})
    table = pd.DataFrame({"x": [0.5, 5.0, 99.0], "w": ["u", "v", "u"]})
    (tmp_path / "model.joblib").write_bytes(to_joblib(model))
    table.to_json(tmp_path / "rows.json")
    done = subprocess.run([sys.executable, "-c", LONE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    labels, shares = json.loads(done.stdout)
    assert labels == model.predict(table).tolist()
    np.testing.assert_allclose(shares, model.predict_proba(table), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("logistic", "stand for others"),
        ("landmark", "landmark model"),
        ("short", "scaled down to a norm"),
        ("short-lasso", "scaled down to a norm"),
        ("numbered", "numbered columns"),
    ],
)
def test_what_scikit_learn_cannot_do_is_refused(releases, name, text):
    with pytest.raises(InvalidInput, match=text) as caught:
        to_joblib(releases[name])
    assert "onnx" in str(caught.value)
