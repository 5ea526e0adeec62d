"""Functions and sessions: which released objects may be asked about private rows.

A *function* is numbers that are already released: it may be asked about anything, and asking leaves no trace. A
*session* remembers what it is asked, and whoever asks next sees that: it may only be asked about public points.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from epsilearn.errors import InvalidInput
from epsilearn.quiet import setting
from epsilearn.reach import reachable

__all__ = ["AskedPrivately", "Session", "asking_privately", "check_asked_publicly", "check_function", "is_session"]

_privately: ContextVar[bool] = ContextVar("privately", default=False)


class AskedPrivately(InvalidInput):
    """A session was asked about private rows."""


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
        raise _refusal(found)


def _refusal(session: Session) -> AskedPrivately:
    return AskedPrivately(
        f"{type(session).__name__} may only be asked about public points, and these rows are private: a session "
        "remembers what it is asked, and its next answers would tell. Use a model that is a function, such as "
        "SemiInteractiveLearner, NonInteractiveLearner or LandmarkClassifier; or let the session predict public "
        "labelled points, and count its mistakes there"
    )


def asking_privately() -> AbstractContextManager[None]:
    """Around questions about private rows: every session that is reached refuses, however it is wrapped."""
    return setting(_privately, True)


def check_asked_publicly(session: Session) -> None:
    """Refuse a question about private rows; each session calls this before it answers."""
    if _privately.get():
        raise _refusal(session)
