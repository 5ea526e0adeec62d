"""Objects within objects: what can be got at from an estimator through settings, containers, closures and wrappers."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import numpy as np

__all__ = ["reachable"]

# Not worth a look, and many of them are one object wherever they occur.
_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, type, type(Ellipsis), slice, range, types.ModuleType,
     types.BuiltinFunctionType, types.CodeType}
)  # fmt: skip
# Their objects are looked at from outside only: tables, arrays, engines, locks.
_CLOSED = frozenset(
    {"builtins", "numpy", "pandas", "polars", "pyarrow", "scipy", "dask", "distributed", "pyspark", "sqlalchemy",
     "sqlite3", "threading", "_thread", "logging", "pathlib", "weakref", "numba", "flint", "decimal", "datetime"}
)  # fmt: skip


def reachable(root: Any, *, fitted: bool) -> Iterator[Any]:
    """Every object that can be got at from this one, itself included, each once; numbers and texts are left out.

    Parameters
    ----------
    root : object
        An estimator, a container of some, or anything else.
    fitted : bool
        Whether an estimator is looked at whole, with what it has learned, or by its settings alone.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> any(isinstance(found, Ridge) for found in reachable(make_pipeline(Ridge()), fitted=False))
    True
    """
    seen: dict[int, Any] = {}  # the objects too: while they are held, nothing else gets their number
    waiting = deque([root])
    while waiting:
        item = waiting.popleft()
        if type(item) in _PLAIN or id(item) in seen or isinstance(item, (np.generic, Enum, type)):
            continue
        seen[id(item)] = item
        yield item
        waiting.extend(_within(item, fitted))


def _within(item: Any, fitted: bool) -> Iterable[Any]:  # noqa: PLR0911 - a case for each kind
    """The objects that this one holds directly."""
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return list(item)
    if isinstance(item, np.ndarray):
        return list(item.flat) if item.dtype == object else ()
    if isinstance(item, functools.partial):
        return (item.func, *item.args, *item.keywords.values())
    if isinstance(item, types.MethodType):
        return (item.__self__, item.__func__)
    if isinstance(item, types.FunctionType):
        return _enclosed(item)
    # A ledger is no model, and what it is connected to leads everywhere.
    if type(item).__module__.partition(".")[0] in _CLOSED or hasattr(type(item), "spend"):
        return ()
    return _settings(item) if not fitted and hasattr(type(item), "get_params") else _attributes(item)


def _enclosed(function: types.FunctionType) -> list[Any]:
    """What a function carries along."""
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return held


def _settings(estimator: Any) -> Iterable[Any]:
    try:
        return list(estimator.get_params(deep=False).values())
    except Exception:  # somebody else's, and broken: then all of it
        return _attributes(estimator)


def _attributes(item: Any) -> list[Any]:
    held = list(getattr(item, "__dict__", {}).values())
    for kind in type(item).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__"):
                held.append(getattr(item, name, None))
    return held
