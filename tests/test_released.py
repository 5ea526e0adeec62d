from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import epsilearn
from epsilearn.errors import InvalidInput
from epsilearn.model_file import model_to_json


def test_predictions_of_every_model(release, releases):
    model, rows = releases[release], releases.rows(release)
    predicted = model.predict(rows)
    assert len(predicted) == releases.clinic.rows
    if model.classes is None:
        assert predicted.min() >= 0
        assert predicted.max() <= 30
        return
    assert set(predicted.tolist()) <= set(model.classes.tolist())
    if model.model == "svm":
        with pytest.raises(InvalidInput, match="no probabilities"):
            model.predict_proba(rows)
        return
    shares = model.predict_proba(rows)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (model.classes[shares.argmax(axis=1)] == predicted).all()


def test_models_learn_something(releases):
    clinic = releases.clinic
    found = {}
    for name in ("logistic", "landmark", "linear"):
        job = releases.job(name, epsilon=1e4)
        y = job.encoding.targets(clinic.arrow())
        found[name] = job.fit(job.encoding.matrix(clinic.arrow()), y).predict(clinic.arrow())
    for name in ("logistic", "landmark"):
        assert (found[name] == np.array(clinic.columns["died"])).mean() > 0.75, name
    assert np.abs(found["linear"] - np.array(clinic.columns["days"])).mean() < 5


def test_one_row_or_many_in_any_order(release, releases):
    model, rows = releases[release], releases.rows(release)
    scores = model.scores(rows)
    order = np.random.default_rng(1).permutation(rows.shape[0])
    mixed = rows[order] if sparse.issparse(rows) else rows.take(order)
    np.testing.assert_allclose(model.scores(mixed), scores[order], rtol=1e-9, atol=1e-12)
    first = rows[[0]] if sparse.issparse(rows) else rows.slice(0, 1)
    np.testing.assert_allclose(model.scores(first), scores[:1], rtol=1e-9, atol=1e-12)


def test_rows_from_anywhere(releases):
    model, table = releases["four"], releases.clinic.arrow()
    expected = model.predict(table)
    assert (model.predict(table.to_pandas()) == expected).all()
    assert (model.predict(pl.DataFrame(table)) == expected).all()
    assert (model.predict(dict(releases.clinic.columns)) == expected).all()
    assert (model.predict(pd.DataFrame(releases.clinic.columns)) == expected).all()
    needed = table.select(model.schema.features("stage")[::-1])
    assert (model.predict(needed) == expected).all()


@pytest.mark.parametrize("data", [{}, {"age": []}, {"age": [1]}, 5, None, np.zeros((3, 15)), "x"], ids=str)
def test_what_cannot_be_predicted(releases, data):
    with pytest.raises(InvalidInput):
        releases["logistic"].predict(data)


@pytest.mark.parametrize(
    "data",
    [
        {"age": [1]},
        None,
        "x",
        5,
        pd.DataFrame({"a": ["b"]}),
        np.array([["a"] * 120]),
        sparse.csr_array((3, 7)),
        sparse.csr_array((0, 120)),
        np.zeros(120),
        np.full((1, 120), np.nan),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_cannot_be_predicted_from_numbered_columns(releases, data):
    with pytest.raises(InvalidInput):
        releases["numbered"].predict(data)


def test_dense_rows_for_numbered_columns(releases):
    model, rows = releases["numbered"], releases.rows("numbered")
    assert (model.predict(rows.toarray()) == model.predict(rows)).all()


def test_long_rows_are_scaled_down(releases):
    model, clinic = releases["short"], releases.clinic
    X = model.encoding.matrix(clinic.arrow())
    X = X.toarray() if sparse.issparse(X) else X
    assert (np.linalg.norm(X, axis=1) > 1.2).all()
    by_hand = 1.2 * X / np.linalg.norm(X, axis=1)[:, None] @ model.weights.coefficients.T + model.weights.intercept
    np.testing.assert_allclose(model.scores(clinic.arrow()), by_hand)


def test_a_released_model_is_found_by_its_folder_and_its_file(releases, tmp_path):
    (tmp_path / "model.json").write_text(model_to_json(releases["logistic"]), encoding="utf-8")
    for path in (tmp_path, tmp_path / "model.json", str(tmp_path)):
        assert "ReleasedModel('logistic', target='died', epsilon = 5" in repr(epsilearn.load(path))
