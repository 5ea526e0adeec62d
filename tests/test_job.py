from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from epsilearn import (
    Lasso,
    Ledger,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    SparseLogisticRegression,
)
from epsilearn.encoding import Encoding
from epsilearn.errors import BudgetExceeded, InvalidInput
from epsilearn.files import TableFile
from epsilearn.job import SCHEMA_IS_PUBLIC, Job, public_landmarks
from epsilearn.kernel import RBF, LandmarkClassifier
from epsilearn.preprocessing import BoundedScaler
from epsilearn.schema import Schema


def test_a_plan_is_what_the_fit_does(release, releases):
    job, model = releases.job(release), releases[release]
    rows, features = releases.clinic.rows, job.schema.width(job.target)
    plan = job.estimator().plan(rows=rows, features=features)
    others, bits = plan.promise.assumptions[:-1], plan.promise.assumptions[-1]
    assert (*others, SCHEMA_IS_PUBLIC, bits) == model.guarantee.assumptions
    assert plan.promise.to_dict() | {"assumptions": []} == model.guarantee.to_dict() | {"assumptions": []}
    assert (plan.law.kind, plan.law.dimension) == (model.noise.kind, model.noise.dimension)
    assert plan.law.scale == pytest.approx(model.noise.scale, rel=1e-9)
    if "alpha" in model.settings:
        assert plan.strength == pytest.approx(model.settings["alpha"], rel=1e-9)
    else:
        assert plan.steps == model.settings["steps"]
    foreseen = job.outlook(rows)
    assert foreseen.guarantee == model.guarantee
    assert foreseen.noise.scale == pytest.approx(model.noise.scale, rel=1e-9)
    assert foreseen.method == model.method


def test_what_was_asked_for_is_what_is_promised(release, releases):
    job, model = releases.job(release), releases[release]
    assert model.guarantee.epsilon <= job.epsilon
    assert model.guarantee.epsilon == pytest.approx(5.0)
    assert model.guarantee.delta <= job.delta
    assert model.guarantee.rows_per_person == job.schema.rows_per_person
    assert model.settings["rows"] == releases.clinic.rows


HAND = {
    "logistic": lambda **o: LogisticRegression(data_norm=7**0.5, classes=[0, 1], **o),
    "four": lambda **o: LogisticRegression(data_norm=7**0.5, classes=range(4), **o),
    "svm": lambda **o: LinearSVC(data_norm=7**0.5, classes=[0, 1], **o),
    "linear": lambda **o: LinearRegression(data_norm=7**0.5, target_bound=(0, 30), **o),
    "lasso": lambda **o: Lasso(feature_bound=1.0, radius=15.0, target_bound=(0, 30), fit_intercept=True, **o),
    "sparse-logistic": lambda **o: SparseLogisticRegression(
        feature_bound=1.0, radius=10.0, classes=[0, 1], fit_intercept=True, **o
    ),
}


def by_hand(clinic, target):
    """The table as somebody would prepare it without a schema."""
    frame = pd.DataFrame(clinic.columns).drop(columns=["note"])
    frame["weight"] = frame["weight"].fillna(70.0)
    frame["ward"] = frame["ward"].replace({"Surg.": "surgery", "eye": "elsewhere"})
    y = frame.pop(target).to_numpy()
    names = {"no": 0, "yes": 1, "I": 0, "II": 1, "III": 2, "IV": 3}
    if target != "days":
        y = np.array([names[value] for value in y])
    public = {name: clinic.public[name] for name in frame}
    scaler = BoundedScaler(
        bounds={name: c["bounds"] for name, c in public.items() if "bounds" in c},
        categories={name: c["categories"] for name, c in public.items() if "categories" in c},
        norm=7**0.5,
    )
    return scaler.fit_transform(frame), y


@pytest.mark.parametrize("name", HAND)
def test_with_next_to_no_noise_it_is_what_one_does_by_hand(name, releases, tmp_path):
    own = {} if name in ("lasso", "sparse-logistic") else {"alpha": 0.01}
    job = replace(releases.job(name, epsilon=1e6), **own)
    model = job.fit(*job.read(TableFile.at(releases.clinic.write(tmp_path, "csv"))))
    X, y = by_hand(releases.clinic, job.target)
    hand = HAND[name](epsilon=1e6, **own).fit(X, y)
    far = (1e-3 if own else 2e-2) * np.abs(hand.coef_).max()  # a path's last steps are between near ties
    np.testing.assert_allclose(model.weights.coefficients, np.atleast_2d(hand.coef_), atol=far)
    np.testing.assert_allclose(model.weights.intercept, np.atleast_1d(hand.intercept_), atol=far)
    predicted, expected = model.predict(releases.clinic.arrow()), hand.predict(X)
    if model.classes is not None:
        assert (predicted == model.classes[expected.astype(int)]).mean() > 0.98
    else:
        np.testing.assert_allclose(predicted, np.clip(expected, 0, 30), atol=0.2)


def test_a_landmark_model_by_hand(releases):
    job = releases.job("landmark", epsilon=1e6)
    X, y = by_hand(releases.clinic, "died")
    model = job.fit(X, y)
    kind = LandmarkClassifier(kernel=RBF(1 / 7), landmarks=job.landmarks, classes=[0, 1], epsilon=1e6)
    expected = kind.fit(X, y).predict(X)
    assert (model.predict(releases.clinic.arrow()) == np.array(["no", "yes"])[expected]).mean() > 0.98


@pytest.mark.parametrize("name", ["logistic", "lasso", "landmark"])
def test_a_table_gives_the_same_promise_whatever_file_it_is_in(name, releases, tmp_path):
    job = releases.job(name)
    made = [job.fit(*job.read(TableFile.at(releases.clinic.write(tmp_path, kind)))) for kind in ("csv", "parquet")]
    assert made[0].guarantee == made[1].guarantee
    assert made[0].noise == made[1].noise
    assert made[0].settings == made[1].settings
    assert made[0].weights.coefficients.shape == made[1].weights.coefficients.shape


def test_the_ledger_is_debited_once_and_a_refusal_costs_nothing(releases, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=6.0)
    job = releases.job("logistic")
    X = job.encoding.matrix(releases.rows("logistic"))
    y = job.encoding.targets(releases.clinic.arrow())
    model = job.fit(X, y, ledger)
    assert model.guarantee.ledger.entry == 1
    with pytest.raises(BudgetExceeded):
        job.fit(X, y, ledger)
    (entry,) = ledger.history()
    assert entry["status"] == "delivered"


def test_bounds_of_noise_per_weight(releases):
    output, objective = releases.job("output").outlook(200), releases.job("linear").outlook(200)
    assert output.weight_deviation == output.noise.deviation
    assert objective.weight_deviation == pytest.approx(objective.noise.deviation / (200 * objective.alpha))
    assert releases.job("lasso").outlook(200).weight_deviation is None
    # Rows that are moved by lengths which only the fit finds.
    assert releases.job("logistic").outlook(200_000).weight_deviation is None


def test_more_rows_or_more_budget_cost_less(releases):
    for name in ("logistic", "linear"):
        job = releases.job(name)
        costs = [job.outlook(rows).lost for rows in (100, 1000, 10_000, 100_000)]
        assert all(a > b for (_, a), (_, b) in pairwise(costs))
        budgets = [replace(job, epsilon=e).outlook(5000).lost[1] for e in (0.1, 1.0, 10.0)]
        assert budgets == sorted(budgets, reverse=True)
        assert all(easy < hard for easy, hard in costs[:3])


def test_an_outlook_is_plain_json(release, releases):
    import json

    found = releases.job(release).outlook(200).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False))["guarantee"]["epsilon"] <= 5.0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": "tree"}, "model must be one of"),
        ({"model": "linear"}, "predicts numbers"),
        ({"target": "days"}, "tells classes apart"),
        ({"target": "stage", "model": "svm"}, "two classes"),
        ({"target": "stage", "model": "sparse-logistic"}, "two classes"),
        ({"target": "note"}, "ignored"),
        ({"target": "nobody"}, "no column"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"delta": 1.0}, "delta must lie"),
        ({"method": "magic"}, "method must be"),
        ({"kernel": "linear"}, "kernel must be"),
        ({"alpha": -1.0}, "alpha must be"),
        ({"model": "sparse-logistic", "radius": 0.0}, "radius must be"),
    ],
    ids=str,
)
def test_bad_jobs(clinic, changes, text):
    options = {"target": "died", "model": "logistic", "epsilon": 1.0, **changes}
    with pytest.raises(InvalidInput, match=text):
        Job(Schema.from_dict(clinic.schema()), **options).outlook(100)


def test_numbered_columns_need_given_landmarks(releases):
    schema = releases.job("numbered").schema
    with pytest.raises(InvalidInput, match="public landmarks"):
        Job(schema, "target", "landmark", 1.0)


def test_drawn_landmarks_are_the_same_each_time_and_allowed_by_the_schema(clinic):
    encoding = Encoding(Schema.from_dict(clinic.schema()), "died")
    points = public_landmarks(encoding)
    np.testing.assert_array_equal(points, public_landmarks(encoding))
    assert points.shape == (500, 15)
    assert (np.abs(points) <= 1).all()
    assert (np.count_nonzero(points[:, 2:5], axis=1) == 1).all()


@pytest.mark.slow
def test_a_model_on_drawn_landmarks(clinic):
    for target in ("died", "days"):
        job = Job(Schema.from_dict(clinic.schema()), target, "landmark", 5.0)
        model = job.fit(job.encoding.matrix(clinic.arrow()), job.encoding.targets(clinic.arrow()))
        assert len(model.weights.features.landmarks) == 500
        assert len(model.predict(clinic.arrow())) == clinic.rows


@pytest.mark.parametrize("epsilon", [1e-3, 1e5])
@pytest.mark.parametrize("name", ["logistic", "four", "linear", "lasso", "output"])
@pytest.mark.parametrize("rows", [1, 10**9])
def test_outlooks_at_the_ends(releases, name, epsilon, rows):
    found = replace(releases.job(name), epsilon=epsilon).outlook(rows)
    assert found.guarantee.epsilon <= epsilon
    assert found.lost is None or (np.isfinite(found.lost).all() and min(found.lost) >= -1e-9)
