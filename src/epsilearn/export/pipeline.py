"""A released model as a scikit-learn pipeline of scikit-learn's own parts, which loads without epsilearn.

joblib files are pickles: load one only if you trust where it comes from. ``model.json`` has no such risk.
"""

from __future__ import annotations

import io
import math
from typing import Any

import joblib
import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder
from sklearn.svm import LinearSVC

from epsilearn.errors import InvalidInput
from epsilearn.released import LinearWeights, ReleasedModel
from epsilearn.schema_columns import one_line

__all__ = ["to_joblib", "to_pipeline"]


def to_joblib(model: ReleasedModel) -> bytes:
    """The pipeline, as `joblib.dump` writes it."""
    buffer = io.BytesIO()
    joblib.dump(to_pipeline(model), buffer)
    return buffer.getvalue()


def to_pipeline(model: ReleasedModel) -> Pipeline:
    """The model as a fitted pipeline for data frames with the schema's columns.

    Raises
    ------
    InvalidInput
        Where scikit-learn's own parts cannot do what the schema says: rows that are scaled down to a norm, numbered
        columns, landmark models, aliases, and categories that stand for missing or other values. ONNX can.
    """
    _check(model)
    columns, order = _columns(model)
    return Pipeline([("columns", columns), ("model", _estimator(model, order))])


def _check(model: ReleasedModel) -> None:
    if not isinstance(model.weights, LinearWeights):
        raise InvalidInput("a landmark model is not made of scikit-learn's own parts; use --format onnx")
    if model.schema.sparse:
        raise InvalidInput("numbered columns are cut to their bounds, which no part of scikit-learn does; use onnx")
    names = model.schema.features(model.target)
    # Without a norm in the schema, rows are scaled down to the length that none can exceed.
    if model.weights.norm is not None and model.weights.norm < math.sqrt(len(names)) * (1 - 1e-9):
        raise InvalidInput("rows are scaled down to a norm, which no part of scikit-learn does; use --format onnx")
    for name in names:
        column = model.schema.columns[name]
        if column.missing is not None or column.other is not None or column.aliases:
            raise InvalidInput(
                f"column {one_line(name)} has values that stand for others, which no part of scikit-learn does; use "
                "--format onnx"
            )


def _columns(model: ReleasedModel) -> tuple[ColumnTransformer, list[int]]:
    """One part for each column, fitted to the schema's own bounds and categories; and which weight is whose."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise InvalidInput("the pipeline takes data frames, so pandas is needed: pip install pandas") from None
    parts: list[Any] = []
    ends: dict[str, list[Any]] = {}
    order: list[int] = []
    for position, name in enumerate(model.schema.features(model.target)):
        column = model.schema.columns[name]
        start = len(order)
        if column.bounds is not None:
            part: Any = MinMaxScaler((-1, 1), clip=True)
            ends[name], places = list(column.bounds), [0]
        else:
            assert column.categories is not None
            # The encoder wants numbers in order; texts it takes as they come.
            texts = isinstance(column.categories[0], str)
            places = list(range(column.width)) if texts else np.argsort(column.categories).tolist()
            sorted_categories = [column.categories[i] for i in places]
            part = OneHotEncoder(categories=[sorted_categories], sparse_output=False)
            ends[name] = [sorted_categories[0], sorted_categories[-1]]
        parts.append((f"column {position}", part, [name]))
        order += [start + place for place in places]
    return ColumnTransformer(parts, verbose_feature_names_out=False).fit(pd.DataFrame(ends)), order


def _estimator(model: ReleasedModel, order: list[int]) -> Any:
    coefficients, intercept = model.weights.coefficients[:, order], model.weights.intercept
    if model.classes is None:
        return _regressor(model, coefficients[0], float(intercept[0]))
    estimator = LinearSVC() if model.model == "svm" else LogisticRegression()
    estimator.classes_ = np.asarray(model.classes)
    estimator.coef_, estimator.intercept_ = coefficients, intercept
    estimator.n_features_in_ = coefficients.shape[1]
    return estimator


def _regressor(model: ReleasedModel, coefficients: Any, intercept: float) -> TransformedTargetRegressor:
    """A linear function, cut to the target's bounds."""
    bounds = model.schema.columns[model.target].bounds
    assert bounds is not None
    line = LinearRegression()
    line.coef_, line.intercept_, line.n_features_in_ = coefficients, intercept, len(coefficients)
    cut = FunctionTransformer(
        inverse_func=np.clip, inv_kw_args={"a_min": bounds[0], "a_max": bounds[1]}, check_inverse=False
    )
    found = TransformedTargetRegressor(FrozenEstimator(line), transformer=cut)
    return found.fit(np.zeros((2, len(coefficients))), np.zeros(2))
