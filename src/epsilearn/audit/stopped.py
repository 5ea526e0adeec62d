"""Fits that are stopped before anything is drawn, to see what they would have done."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sklearn.base import clone

__all__ = ["stopped_after_planning"]


class _Stopped(Exception):
    """What a fit would have done is known."""


def stopped_after_planning(estimator: Any, step: str, data: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """The model, what it takes this step with, and what it then plans."""
    model = clone(estimator)
    seen: list[Any] = []
    made: list[Any] = []
    take, plan = getattr(model, step), model._planned

    def noting(*arguments: Any) -> Any:
        seen.extend(arguments)
        return take(*arguments)

    def stop(*arguments: Any) -> None:
        made.append(plan(*arguments))
        raise _Stopped

    setattr(model, step, noting)
    model._planned = stop
    with suppress(_Stopped):
        model.fit(*data)
    return model, tuple(seen), made[0]
