"""Pipelines judged before they see a row: which of their steps would learn from rows without any privacy.

What is not known here to be public is taken to learn. A fitted pipeline is released whole, so a step that learned
releases what it learned; and a step that fails or warns on some records tells of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import scipy.special
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
)
from sklearn.utils import get_tags

from epsilearn.linear.model import PrivateModel
from epsilearn.preprocessing import BoundedScaler
from epsilearn.quiet import quietly
from epsilearn.reach import reachable

__all__ = ["BUDGET", "Judgement", "LearningStep", "check_pipeline", "judged"]

BUDGET = ("epsilon", "delta", "rows_per_person", "ledger", "random_state")  # every private estimator's settings
_ABSENT = (None, "passthrough", "drop")

_LEARNS = "learns from the rows without any privacy; use a BoundedScaler, or a step that learns nothing"
# What becomes of a private estimator inside scikit-learn's meta-estimators, by their names.
_SEARCHES = "fits once for each setting and fold, each a release of its own, and chooses by scores that are not private; use PrivateSelection"  # noqa: E501
_SEVERAL = "fits several clones, each of which is a release of its own and spends the whole budget again"
_ON_TOP = "learns from private rows on top of private predictions, without any privacy, and fits several clones"
_AROUND = {
    **dict.fromkeys(
        ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV", "RFECV"), _SEARCHES
    ),
    **dict.fromkeys(
        ("OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier", "VotingClassifier", "VotingRegressor",
         "BaggingClassifier", "BaggingRegressor", "MultiOutputClassifier", "MultiOutputRegressor"), _SEVERAL
    ),
    **dict.fromkeys(
        ("CalibratedClassifierCV", "StackingClassifier", "StackingRegressor", "TunedThresholdClassifierCV",
         "SelfTrainingClassifier", "ClassifierChain", "RegressorChain", "AdaBoostClassifier", "AdaBoostRegressor"),
        _ON_TOP,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class LearningStep:
    """A step that learns from rows without privacy, or that some record can make fail or warn.

    Attributes
    ----------
    path : str
        Where it is, as in scikit-learn's settings: ``"columns__scale"``; empty for the estimator itself.
    reason : str
        What it does, and what to use instead.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"step {self.path!r}: {self.reason}" if self.path else self.reason


@dataclass
class Judgement:
    """What was found out about an estimator.

    Attributes
    ----------
    learning : list of LearningStep
        Empty where nothing learns but the private estimators.
    private : list of (path, estimator)
        Those.
    assumptions : list of str
        What a guarantee then rests on: words of others that cannot be checked.
    """

    learning: list[LearningStep] = field(default_factory=list)
    private: list[tuple[str, Any]] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)


def check_pipeline(estimator: Any) -> tuple[LearningStep, ...]:
    """The steps of a scikit-learn estimator or pipeline that learn from rows without any privacy.

    Parameters
    ----------
    estimator : estimator
        Fitted or not; no row is needed.

    Returns
    -------
    tuple of LearningStep
        Empty if nothing learns but the private estimators. A step of unknown type counts as learning, unless it is not
        scikit-learn's and declares ``requires_fit=False`` in its tags.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from epsilearn import BoundedScaler, LogisticRegression, check_pipeline
    >>> check_pipeline(make_pipeline(BoundedScaler(bounds=(0, 1)), LogisticRegression()))
    ()
    >>> print(*check_pipeline(make_pipeline(StandardScaler(), LogisticRegression())))
    step 'standardscaler': StandardScaler learns from the rows without any privacy; use a BoundedScaler, or a step that
    learns nothing
    """
    return tuple(dict.fromkeys(judged(estimator).learning))


def judged(estimator: Any) -> Judgement:
    """Everything there is to say about an estimator before it sees a row."""
    found = Judgement()
    _judge(estimator, "", found)
    return found


def _judge(step: Any, path: str, found: Judgement) -> None:
    if step is None or (isinstance(step, str) and step in _ABSENT):
        return
    kind = type(step)

    def learns(reason: str, name: str = kind.__name__) -> None:
        found.learning.append(LearningStep(path, f"{name} {reason}"))

    if getattr(step, "_skl_callbacks", None):
        learns("has callbacks, which are told of the rows while it is fitted; remove them")
    if kind in _PARTS:
        try:
            _PARTS[kind](step, path, found)
        except (TypeError, ValueError):
            learns("is not made of steps as scikit-learn wants them; give (name, step) pairs")
    elif kind in _RULES:
        fault, assumed = _RULES[kind](step)
        found.assumptions.extend(assumed)
        if fault:
            learns(fault)
    elif hasattr(kind, "_possible_estimators"):  # PrivateSelection: whatever its grid can make of its estimator
        found.private.append((path, step))
        inner = Judgement()
        for candidate in step._possible_estimators():
            _judge(candidate, _join(path, "estimator"), inner)
        found.learning.extend(inner.learning)
        found.assumptions.extend(inner.assumptions)
    elif _is_private(step):
        found.private.append((path, step))
        if not (isinstance(step, PrivateModel) and kind.__module__.startswith("epsilearn.")):
            found.assumptions.append(f"{kind.__name__} is as private as it says")
    else:
        _judge_unknown(step, path, found, learns)


def _judge_unknown(step: Any, path: str, found: Judgement, learns: Callable[[str], None]) -> None:
    """A step that is not known here: suspected, unless its author declares otherwise."""
    kind = type(step)
    if _declares_nothing_learned(step):
        found.assumptions.append(f"{kind.__name__} learns nothing, and treats each row by itself, whatever it holds")
        return
    inside = list(_inner_estimators(step))
    around = any(_is_private(item) for item in reachable([part for _, part in inside], fitted=False))
    known = _AROUND.get(kind.__name__) if around else None
    learns(known or (f"{_LEARNS} (it is wrapped around a private estimator)" if around else _LEARNS))
    for name, part in inside:
        _judge(part, _join(path, name), found)


def _is_private(step: Any) -> bool:
    """One of ours, or one that takes a budget as they do."""
    if isinstance(step, PrivateModel):
        return True
    return not isinstance(step, type) and set(BUDGET) <= set(_settings(step))


def _settings(step: Any) -> dict[str, Any]:
    try:
        return dict(step.get_params(deep=False))
    except Exception:  # no estimator, or a broken one
        return {}


def _declares_nothing_learned(step: Any) -> bool:
    # scikit-learn's own tags are about calling predict unfitted, which its Gaussian process can, and an heir of its
    # FunctionTransformer has not declared anything. What of scikit-learn's learns nothing is known here.
    owner = next((kind for kind in type(step).__mro__ if "__sklearn_tags__" in vars(kind)), None)
    if isinstance(step, type) or owner is None or owner.__module__.partition(".")[0] == "sklearn":
        return False
    try:
        return not get_tags(step).requires_fit
    except Exception:
        return False


def _inner_estimators(step: Any) -> Iterable[tuple[str, Any]]:
    for name, setting in _settings(step).items():
        if hasattr(setting, "fit"):
            yield name, setting
        elif isinstance(setting, (list, tuple)):
            for part in setting:
                if isinstance(part, tuple) and len(part) >= 2 and hasattr(part[1], "fit"):
                    yield str(part[0]), part[1]


def _join(path: str, name: str) -> str:
    return f"{path}__{name}" if path else name


# ---------------------------------------------------------------- what is made of parts


def _judge_pipeline(step: Any, path: str, found: Judgement) -> None:
    if step.memory is not None:
        found.learning.append(
            LearningStep(path, "Pipeline with memory= keeps transformed private rows on disk; leave memory out")
        )
    for name, part in step.steps:
        _judge(part, _join(path, name), found)


def _judge_union(step: Any, path: str, found: Judgement) -> None:
    for name, part in step.transformer_list:
        _judge(part, _join(path, name), found)


def _judge_columns(step: Any, path: str, found: Judgement) -> None:
    def learns(where: str, reason: str) -> None:
        found.learning.append(LearningStep(where, f"ColumnTransformer {reason}"))

    if step.sparse_threshold != 0:
        learns(path, "is sparse or dense by how many values are zero; set sparse_threshold=0")
    for name, part, columns in step.transformers:
        if callable(columns):
            learns(_join(path, name), "chooses columns by a function that looks at the rows; name the columns")
        _judge(part, _join(path, name), found)
    _judge(step.remainder, _join(path, "remainder"), found)


_PARTS: dict[type, Callable[[Any, str, Judgement], None]] = {
    Pipeline: _judge_pipeline,
    FeatureUnion: _judge_union,
    ColumnTransformer: _judge_columns,
}


# ---------------------------------------------------------------- single steps: what is wrong, and what is assumed

Verdict = tuple[str, tuple[str, ...]]
_FINE: Verdict = ("", ())
# Categories are turned into a column's type, and functions of whole numbers may differ from those of others.
_COLUMN_TYPES = "the types of the table's columns are public"


def _public(step: Any) -> Verdict:  # noqa: ARG001 - nothing it can be set to learns
    return _FINE


def _frozen(step: Any) -> Verdict:  # noqa: ARG001
    return "was fitted beforehand, and to which rows cannot be told; use a step that learns nothing", ()


def _encoder(step: Any) -> str:
    if isinstance(step.categories, str):
        return "takes its categories from the rows; declare categories=, one list for each column"
    if step.min_frequency is not None or step.max_categories is not None:
        return "counts how frequent categories are; leave min_frequency and max_categories out"
    return ""


def _one_hot(step: Any) -> Verdict:
    if step.handle_unknown not in ("ignore", "infrequent_if_exist"):
        return "fails or warns where a record has another category; set handle_unknown='ignore'", ()
    if step.drop is not None:
        return "warns where a record has another category and drop= is given; leave drop out", ()
    return _encoder(step), (_COLUMN_TYPES,)


def _ordinal(step: Any) -> Verdict:
    if step.handle_unknown != "use_encoded_value" or not _is_finite(step.unknown_value):
        return (
            "fails where a record has another category, or makes NaN of it; set handle_unknown='use_encoded_value' "
            "and a finite unknown_value",
            (),
        )
    fault = _encoder(step)
    if not fault and not _is_finite(step.encoded_missing_value):
        missing = any(_is_missing(value) for values in step.categories for value in values)
        fault = "makes NaN of a missing value; set a finite encoded_missing_value" if missing else ""
    return fault, (_COLUMN_TYPES,)


def _is_finite(number: Any) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


def _is_missing(value: Any) -> bool:
    """None, NaN, or what pandas has in their places."""
    nan = isinstance(value, Real) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def _spline(step: Any) -> Verdict:
    if isinstance(step.knots, str):
        return "takes its knots from the rows; declare knots=", ()
    if step.extrapolation == "error":
        return "fails where a record lies beyond the knots; set extrapolation='constant'", ()
    return "", () if step.extrapolation in ("constant", "periodic") else (_finite_for_every_row(step),)


def _polynomial(step: Any) -> Verdict:
    return "", (_finite_for_every_row(step),)


def _function(step: Any) -> Verdict:
    function = step.func
    if step.kw_args:
        return "passes further arguments to its function, which may hold or keep rows; leave kw_args out", ()
    if step.inverse_func is not None and step.check_inverse:
        return "warns where some records do not survive its inverse; set check_inverse=False", ()
    if function is None:
        return _FINE
    elementwise = isinstance(function, np.ufunc) and (function.nin, function.nout) == (1, 1) and not function.signature
    homes = (np, scipy.special)
    if not elementwise or not any(getattr(home, function.__name__, None) is function for home in homes):
        return (
            "calls a function that may look at several rows at once; use a function of numpy's that takes each number "
            "by itself, or write a transformer class that declares requires_fit=False in its tags",
            (),
        )
    if not _same_for_whole_numbers(function):
        return (
            "calls a function that takes whole numbers for something else than the same numbers as doubles; write a "
            "transformer class that makes doubles of them first, and declares requires_fit=False in its tags",
            (),
        )
    return "", (f"numpy's {function.__name__} is finite for every row", _COLUMN_TYPES)


def _same_for_whole_numbers(function: Any) -> bool:
    whole = np.array([-3, 0, 1, 2, 3])
    with quietly():
        try:
            return bool(np.array_equal(function(whole), function(whole.astype(float)), equal_nan=True))
        except TypeError:
            return False


def _finite_for_every_row(step: Any) -> str:
    return f"{type(step).__name__} is finite for every row"


_RULES: dict[type, Callable[[Any], Verdict]] = {
    BoundedScaler: _public,
    FrozenEstimator: _frozen,
    Binarizer: _public,
    Normalizer: _public,
    PolynomialFeatures: _polynomial,
    OneHotEncoder: _one_hot,
    OrdinalEncoder: _ordinal,
    SplineTransformer: _spline,
    FunctionTransformer: _function,
}
