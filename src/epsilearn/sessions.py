"""Functions and sessions: which released objects may be asked about private rows.

A *function* is numbers that are already released: it may be asked about anything, and asking leaves no trace. A
*session* remembers what it is asked, and whoever asks next sees that: it may only be asked about public points.
"""

from __future__ import annotations

from typing import Any

from epsilearn.errors import InvalidInput
from epsilearn.reach import reachable

__all__ = ["Session", "check_function", "is_session"]


class Session:
    """A mark of types whose objects may only be asked about public points."""

    __slots__ = ()


def is_session(model: Any) -> bool:
    """Whether a model is a session or answers by one, however deep: in a pipeline, a search, an ensemble, a wrapper.

    Parameters
    ----------
    model : object
        Fitted or not.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from epsilearn import BoundedScaler, InteractiveLearner, LogisticRegression
    >>> is_session(make_pipeline(BoundedScaler(), InteractiveLearner())), is_session(LogisticRegression())
    (True, False)
    """
    return _outermost(model) is not None


def _outermost(model: Any) -> Session | None:
    return next((found for found in reachable(model, fitted=True) if isinstance(found, Session)), None)


def check_function(model: Any) -> None:
    """Refuse a model that must not be asked about private rows."""
    found = _outermost(model)
    if found is not None:
        raise InvalidInput(
            f"{type(found).__name__} may only be asked about public points, and these rows are private: a session "
            "remembers what it is asked, and its next answers would tell. Use a model that is a function, such as "
            "SemiInteractiveLearner, NonInteractiveLearner or LandmarkClassifier; or let the session predict public "
            "labelled points, and count its mistakes there"
        )
