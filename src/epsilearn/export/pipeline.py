"""A released model as a scikit-learn pipeline of scikit-learn's own parts, which loads without epsilearn.

joblib files are pickles: load one only if you trust where it comes from. ``model.json`` has no such risk.
"""

from __future__ import annotations

import io
import math
from typing import Any

import joblib
import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.svm import LinearSVC

from epsilearn.errors import InvalidInput
from epsilearn.released import LinearWeights, ReleasedModel
from epsilearn.schema import one_line

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
        Where scikit-learn's own parts cannot do what the schema says: rows that are scaled down to a norm, landmark
        models, aliases, and categories that stand for missing or other values. ONNX can.
    """
    _check(model)
    estimator = _estimator(model)
    if model.schema.sparse:
        return Pipeline([("model", estimator)])
    return Pipeline([("columns", _columns(model)), ("model", estimator)])


def _check(model: ReleasedModel) -> None:
    if not isinstance(model.weights, LinearWeights):
        raise InvalidInput("a landmark model is not made of scikit-learn's own parts; use --format onnx")
    names = model.schema.features(model.target)
    # Without a norm in the schema, rows are scaled down to the length that none can exceed.
    longest = model.schema.width(model.target) if model.schema.sparse else len(names)
    if model.weights.norm is not None and model.weights.norm < math.sqrt(longest) * (1 - 1e-9):
        raise InvalidInput("rows are scaled down to a norm, which no part of scikit-learn does; use --format onnx")
    if model.schema.others is not None and tuple(model.schema.others.bounds) not in ((0.0, 1.0), (-1.0, 1.0)):
        raise InvalidInput("numbered columns are divided by their bound, which no part does; use --format onnx")
    for name in names:
        column = model.schema.columns[name]
        if column.missing is not None or column.other is not None or column.aliases:
            raise InvalidInput(
                f"column {one_line(name)} has values that stand for others, which no part of scikit-learn does; use "
                "--format onnx"
            )


def _columns(model: ReleasedModel) -> ColumnTransformer:
    """One part for each column, in the schema's order, fitted to the schema's own bounds and categories."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise InvalidInput("the pipeline takes data frames, so pandas is needed: pip install pandas") from None
    parts: list[Any] = []
    ends: dict[str, list[Any]] = {}
    for name in model.schema.features(model.target):
        column = model.schema.columns[name]
        if column.bounds is not None:
            parts.append((name, MinMaxScaler((-1, 1), clip=True), [name]))
            ends[name] = list(column.bounds)
        else:
            assert column.categories is not None
            parts.append((name, OneHotEncoder(categories=[list(column.categories)], sparse_output=False), [name]))
            ends[name] = [column.categories[0], column.categories[-1]]
    return ColumnTransformer(parts, verbose_feature_names_out=False).fit(pd.DataFrame(ends))


def _estimator(model: ReleasedModel) -> Any:
    coefficients, intercept = model.weights.coefficients, model.weights.intercept
    if model.classes is None:
        estimator: Any = LinearRegression()
        estimator.coef_, estimator.intercept_ = coefficients[0], float(intercept[0])
    else:
        estimator = LinearSVC() if model.model == "svm" else LogisticRegression()
        estimator.classes_ = np.asarray(model.classes)
        estimator.coef_, estimator.intercept_ = coefficients, intercept
    estimator.n_features_in_ = coefficients.shape[1]
    return estimator
