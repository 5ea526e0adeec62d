"""Silence around private values: no record may decide whether there is an error or a warning.

numpy's error state and this module's own belong to one context: a thread of a pool, or a process elsewhere, starts with
the defaults. So the silence is entered inside the very work that they run, and around every look at private values.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

__all__ = ["aloud", "quietly", "setting", "tell", "undivided"]

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


class _WhileQuiet:
    """A pattern for Python's warning filters that matches any text in a quiet context, and none elsewhere.

    `warnings.catch_warnings` would change what all threads see, and two of them that overlap can leave all warnings of
    the process switched off for good.
    """

    flags = 0

    @property
    def pattern(self) -> str:
        """For those who make filters anew of what they read, as scikit-learn does around each piece of its work."""
        return "" if _quiet.get() else r"(?!)"

    def match(self, text: str, *_: Any) -> bool:  # noqa: ARG002 - whatever it says
        return _quiet.get()


_FILTER = ("ignore", _WhileQuiet(), Warning, None, 0)


def _filter_first() -> None:
    """Put the filter before all others: one that was put there since may turn warnings into errors."""
    filters = cast("list[Any]", warnings.filters)
    if filters and filters[0] is _FILTER:
        return
    filters.insert(0, _FILTER)
    for position in range(len(filters) - 1, 0, -1):
        if filters[position] is _FILTER:
            del filters[position]


# A block of somebody's that saved the filters before the first silence would take this one away when it ends.
_filter_first()


@contextmanager
def setting(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    """A mark of this context, such as the silence's own, set until the block ends."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


@contextmanager
def quietly() -> Iterator[None]:
    """Around a look at private values: no arithmetic raises or warns, and no warning leaves.

    Whatever the caller told numpy or Python, and in this thread alone. Also a decorator.

    Examples
    --------
    >>> with np.errstate(all="raise"), quietly():
    ...     print(np.array([1e200]) * 1e200)
    [inf]
    """
    _filter_first()
    with setting(_quiet, True), np.errstate(all="ignore"), _special_silence():
        yield


def _special_silence() -> AbstractContextManager[Any]:
    """scipy's special functions have an error state of their own; who has not loaded them has not set it."""
    special = sys.modules.get("scipy.special")
    return nullcontext() if special is None else special.errstate(all="ignore")


@contextmanager
def undivided() -> Iterator[None]:
    """Around work of others on private values: joblib's is done in this thread, where the silence holds."""
    from joblib import parallel_config

    with parallel_config(backend="sequential"):
        yield


def aloud() -> AbstractContextManager[None]:
    """Within a silence, around what depends on public things alone: warnings leave again, arithmetic stays silent."""
    return setting(_quiet, False)


def tell(message: str, category: type[Warning]) -> None:
    """Warn of something public, on behalf of the first caller outside this package and its helpers."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    with aloud():
        warnings.warn(message, category, stacklevel=level)


# Decorators such as the one above, and scikit-learn's searches, stand between a method and whoever calls it.
_OURS = ("epsilearn", "contextlib", "sklearn", "joblib")
