"""Pipelines judged before they see a row: what learns, what a record could make fail, and what is only assumed."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
import scipy.special
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

import epsilearn
from epsilearn import (
    BoundedScaler,
    GaussianProcessRelease,
    InteractiveLearner,
    Lasso,
    LogisticRegression,
    PrivateSelection,
    check_pipeline,
)
from epsilearn.pipelines import LearningStep, judged

MODEL = LogisticRegression(data_norm=1.0, classes=[0, 1])
COLOURS = [["blue", "red"]]


class Public(TransformerMixin, BaseEstimator):
    """Somebody's own, which says that it learns nothing."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class Undeclared(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


class Heir(FunctionTransformer):
    """Inherits a tag, and declares nothing."""


class WiderScaler(BoundedScaler):
    """May learn what it likes."""


def columns(*parts, **options):
    return ColumnTransformer(list(parts), **{"sparse_threshold": 0, **options})


def knots(**options):
    return SplineTransformer(knots=np.array([[0.0], [0.5], [1.0]]), **{"extrapolation": "constant", **options})


def colours(**options):
    return OneHotEncoder(**{"categories": COLOURS, "handle_unknown": "ignore", **options})


def places(**options):
    return OrdinalEncoder(
        **{"categories": COLOURS, "handle_unknown": "use_encoded_value", "unknown_value": -1, **options}
    )


PUBLIC = [
    None,
    "passthrough",
    "drop",
    BoundedScaler(bounds=(0, 1)),
    Normalizer(),
    Binarizer(threshold=3.0),
    PolynomialFeatures(2),
    knots(),
    knots(extrapolation="linear"),
    colours(),
    colours(handle_unknown="infrequent_if_exist", sparse_output=False),
    places(),
    places(categories=[[1.0, np.nan]], encoded_missing_value=-2),
    FunctionTransformer(),
    FunctionTransformer(np.log1p),
    FunctionTransformer(scipy.special.expit, inverse_func=scipy.special.logit, check_inverse=False),
    Public(),
    make_pipeline(BoundedScaler(), Normalizer()),
    FeatureUnion([("a", Normalizer()), ("b", "passthrough"), ("c", "drop")]),
    columns(("scale", BoundedScaler(), ["a"]), ("code", colours(), [2]), remainder="drop"),
    columns(("all", make_pipeline(Normalizer()), slice(0, 3)), remainder=BoundedScaler()),
    columns(("mask", "passthrough", [True, False])),
]


def kind_of(value):
    """A name that is the same in every process: a repr may hold an address."""
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize("step", PUBLIC, ids=kind_of)
def test_public_steps(step):
    assert check_pipeline(Pipeline([("step", step), ("model", MODEL)])) == ()
    assert [path for path, _ in judged(Pipeline([("step", step), ("model", MODEL)])).private] == ["model"]


LEARNING = [
    (StandardScaler(), "step"),
    (MaxAbsScaler(), "step"),
    (SimpleImputer(), "step"),
    (PCA(), "step"),
    (KBinsDiscretizer(), "step"),
    (WiderScaler(bounds=(0, 1)), "step"),
    (Undeclared(), "step"),
    (Heir(np.mean), "step"),
    (BoundedScaler, "step"),
    ("standardise", "step"),
    (OneHotEncoder(), "step"),
    (OneHotEncoder(categories=COLOURS), "step"),
    (OneHotEncoder(handle_unknown="ignore"), "step"),
    (colours(handle_unknown="warn"), "step"),
    (colours(min_frequency=2), "step"),
    (colours(max_categories=2), "step"),
    (colours(drop="first"), "step"),
    (OrdinalEncoder(categories=COLOURS), "step"),
    (places(unknown_value=np.nan), "step"),
    (places(categories="auto"), "step"),
    (places(categories=[[1.0, np.nan]]), "step"),
    (places(categories=[["a", None]]), "step"),
    (places(categories=[["a", pd.NA]]), "step"),
    (SplineTransformer(), "step"),
    (knots(extrapolation="error"), "step"),
    (FunctionTransformer(np.mean), "step"),
    (FunctionTransformer(lambda X: X - X.mean(axis=0)), "step"),
    (FunctionTransformer(np.frompyfunc(abs, 1, 1)), "step"),
    (FunctionTransformer(np.add.reduce), "step"),
    (FunctionTransformer(functools.partial(np.sqrt)), "step"),
    (FunctionTransformer(np.sqrt, kw_args={"out": np.zeros(3)}), "step"),
    (FunctionTransformer(np.sqrt, inverse_func=np.square), "step"),
    (FrozenEstimator(StandardScaler().fit([[0.0], [1.0]])), "step"),
    (GaussianProcessRegressor(), "step"),
    (make_pipeline(BoundedScaler(), StandardScaler()), "step__standardscaler"),
    (Pipeline([("a", BoundedScaler())], memory="cache"), "step"),
    (FeatureUnion([("a", Normalizer()), ("b", MaxAbsScaler())]), "step__b"),
    (columns(("scale", StandardScaler(), ["a"])), "step__scale"),
    (columns(("scale", BoundedScaler(), make_column_selector(dtype_include=float))), "step__scale"),
    (columns(("scale", BoundedScaler(), lambda table: [0])), "step__scale"),
    (columns(("scale", BoundedScaler(), [0]), remainder=StandardScaler()), "step__remainder"),
    (columns(("scale", BoundedScaler(), [0]), sparse_threshold=0.3), "step"),
    (Pipeline(None), "step"),
    (columns(("scale", BoundedScaler())), "step"),
]


@pytest.mark.parametrize(("step", "path"), LEARNING, ids=kind_of)
def test_steps_that_learn_or_that_a_record_makes_fail(step, path):
    (found,) = check_pipeline(Pipeline([("step", step), ("model", MODEL)]))
    assert found.path == path
    assert len(found.reason) > 20
    assert path in str(found)


def test_each_fault_is_named_once_with_its_place():
    columns_ = ColumnTransformer([("scale", StandardScaler(), ["a"]), ("code", OneHotEncoder(), ["b"])])
    found = check_pipeline(Pipeline([("columns", columns_), ("model", Plain())], memory="cache"))
    assert [step.path for step in found] == ["", "columns", "columns__scale", "columns__code", "model"]
    assert len(set(found)) == 5
    with pytest.raises(AttributeError):
        found[0].path = "other"
    assert isinstance(found, tuple)
    assert found[2] == LearningStep("columns__scale", found[2].reason)


AROUND = [
    (GridSearchCV(MODEL, {"alpha": [0.1]}), "PrivateSelection"),
    (OneVsRestClassifier(MODEL), "several clones"),
    (BaggingClassifier(MODEL), "several clones"),
    (VotingClassifier([("a", MODEL), ("b", MODEL)]), "several clones"),
    (CalibratedClassifierCV(MODEL), "on top of private predictions"),
    (StackingClassifier([("a", MODEL)], final_estimator=MODEL), "on top of private predictions"),
    (TransformedTargetRegressor(Lasso()), "wrapped around a private estimator"),
]


@pytest.mark.parametrize(("estimator", "words"), AROUND, ids=lambda value: type(value).__name__)
def test_meta_estimators_around_private_ones(estimator, words):
    (found,) = check_pipeline(estimator)
    assert found.path == ""
    assert words in found.reason
    (found,) = check_pipeline(make_pipeline(BoundedScaler(), estimator))
    assert words in found.reason


def test_what_is_inside_a_meta_estimator_is_judged_too():
    found = check_pipeline(GridSearchCV(make_pipeline(StandardScaler(), MODEL), {}))
    assert [step.path for step in found] == ["", "estimator__standardscaler"]
    found = check_pipeline(VotingClassifier([("a", MODEL), ("b", make_pipeline(PCA(), MODEL))]))
    assert [step.path for step in found] == ["", "b__pca"]
    (found,) = check_pipeline(Plain())
    assert "wrapped" not in found.reason


@pytest.mark.parametrize("estimator", [MODEL, Lasso(), InteractiveLearner(), GaussianProcessRelease()], ids=kind_of)
def test_private_estimators_learn_privately(estimator):
    assert check_pipeline(estimator) == ()
    assert judged(estimator).assumptions == []


def test_a_selection_is_judged_by_all_its_candidates():
    pipeline = make_pipeline(BoundedScaler(), MODEL)
    assert check_pipeline(PrivateSelection(pipeline, {"logisticregression__alpha": [0.1, 1.0]})) == ()
    (found,) = check_pipeline(PrivateSelection(pipeline, {"boundedscaler": ["passthrough", PCA()]}))
    assert found.path == "estimator__boundedscaler"


def test_callbacks_see_rows():
    callback = pytest.importorskip("sklearn.callback")  # since scikit-learn 1.9
    model = Plain()
    model.set_callbacks(callback.ProgressBar())
    found = check_pipeline(make_pipeline(BoundedScaler(), model))
    assert any("callbacks" in step.reason for step in found)
    model.set_callbacks()
    assert not any("callbacks" in step.reason for step in check_pipeline(make_pipeline(BoundedScaler(), model)))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Public(), "Public learns nothing, and treats each row by itself"),
        (PolynomialFeatures(), "PolynomialFeatures is finite for every row"),
        (FunctionTransformer(np.log), "numpy's log is finite for every row"),
        (knots(extrapolation="continue"), "SplineTransformer is finite for every row"),
    ],
    ids=kind_of,
)
def test_what_cannot_be_checked_is_an_assumption_of_the_guarantee(step, words):
    assert any(words in text for text in judged(make_pipeline(step, MODEL)).assumptions)
    X = np.random.default_rng(0).uniform(0.1, 0.9, size=(60, 1))
    search = PrivateSelection(make_pipeline(step, MODEL), {"logisticregression__alpha": [0.1]}, epsilon=1.0)
    search.fit(X, (X[:, 0] > 0.5).astype(int))
    assert any(words in text for text in search.guarantee_.assumptions)


@pytest.mark.parametrize("odd", [None, 3, "model", object(), [MODEL], type("Broken", (), {"get_params": 5})()])
def test_odd_things_are_judged_without_an_error(odd):
    assert isinstance(check_pipeline(odd), tuple)


def test_it_is_public():
    assert "check_pipeline" in epsilearn.__all__
    assert epsilearn.check_pipeline is check_pipeline


# ---------------------------------------------------------------- end to end


def people(n: int = 3000) -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(0)
    colour = generator.choice(["blue", "red", "green"], n)
    frame = pd.DataFrame({"age": generator.uniform(0, 100, n), "colour": colour, "note": ["x"] * n})
    return frame, ((frame["age"] > 50) | (frame["colour"] == "red")).to_numpy().astype(int)


@pytest.mark.parametrize("strategy", ["parts", "stopping"])
def test_public_columns_before_a_private_model_on_a_frame(strategy):
    """Also with a category that nobody declared, in some rows of every part."""
    frame, y = people()
    pipeline = Pipeline(
        [
            ("columns", columns(("age", BoundedScaler(bounds=(0, 100)), ["age"]), ("colour", colours(), ["colour"]))),
            ("model", LogisticRegression(data_norm=1.5, classes=[0, 1])),
        ]
    )
    search = PrivateSelection(
        pipeline, {"model__alpha": [1e-3, 1.0]}, epsilon=5.0, strategy=strategy, stop=0.3, random_state=0
    ).fit(frame, y)
    assert search.best_estimator_[-1].coef_.shape == (1, 3)
    assert search.feature_names_in_.tolist() == ["age", "colour", "note"]
    assert search.predict(frame).shape == y.shape
    assert search.score(frame, y) > 0.75
    assert search.best_estimator_[0].sparse_output_ is False
    assert search.best_estimator_[-1].guarantee_ == search.guarantee_


def test_a_nested_pipeline_ends_in_the_private_model():
    frame, y = people(300)
    inner = make_pipeline(Normalizer(), MODEL)
    pipeline = Pipeline([("columns", columns(("age", BoundedScaler(bounds=(0, 100)), ["age"]))), ("end", inner)])
    search = PrivateSelection(pipeline, {"end__logisticregression__alpha": [0.1, 1.0]}, epsilon=0.5).fit(frame, y)
    assert search.best_estimator_[-1][-1].guarantee_.epsilon == search.best_estimator_[-1][-1].epsilon == 0.5
