"""Audits by replay of what can be audited by name: its worst pairs, and a table with hostile neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from epsilearn.audit.hostile import hostile_neighbours
from epsilearn.audit.neighbours import Case
from epsilearn.audit.replay import Replay, replay

__all__ = ["replay_cases"]

_ROWS = 40


def replay_cases(
    cases: Sequence[Case], count: int = 100, progress: Callable[[float], None] = lambda _share: None
) -> Replay:
    """Replay each case on its own pair, and each mechanism on ``count`` hostile neighbours of a larger table."""
    found: list[Replay] = []
    seen: set[int] = set()
    for number, case in enumerate(cases):
        found.append(replay(_function(case), _table(case, case.first), [_table(case, case.second)]))
        if case.labels is not None and id(case.mechanism) not in seen:
            seen.add(id(case.mechanism))
            found.append(_hostile(case, count))
        progress((number + 1) / len(cases))
    return _together(found)


def _hostile(case: Case, count: int) -> Replay:
    table = _larger(case)
    return replay(_function(case), table, hostile_neighbours(table, count, labels=case.labels))


def _larger(case: Case) -> tuple[Any, ...]:
    """Records between the two data sets', which are rows of one table."""
    generator = np.random.default_rng(0)
    columns = []
    for first, second in zip(_table(case, case.first), _table(case, case.second), strict=True):
        both = np.concatenate([np.atleast_1d(first), np.atleast_1d(second)])
        chosen = both[generator.integers(len(both), size=_ROWS)]
        columns.append(chosen if both.ndim == 1 else chosen * generator.uniform(-1, 1, size=(_ROWS, 1)))
    return tuple(columns)


def _table(case: Case, data: Any) -> tuple[Any, ...]:
    return tuple(data) if hasattr(case.mechanism, "fit") else (data,)


def _function(case: Case) -> Callable[..., Any]:
    """A run of the case's mechanism, from a table to all that it releases."""
    mechanism, statistic = case.mechanism, case.statistic
    if not hasattr(mechanism, "fit"):
        run: Callable[..., Any] = mechanism
        return run

    def fit(*table: Any) -> Any:
        model = clone(mechanism).fit(*table)
        return model if statistic is None else _Shown(model, statistic(model))

    return fit


class _Shown:
    """A model, and what it said when it was asked."""

    def __init__(self, model: Any, said: Any) -> None:
        self.model, self.said, self.guarantee = model, said, model.guarantee_


def _together(found: Sequence[Replay]) -> Replay:
    differences = {(one.kind, one.name, one.where): one for part in reversed(found) for one in part.differences}
    return Replay(
        tuple(differences.values()),
        sum(part.neighbours for part in found),
        max(part.charges for part in found),
        max(part.answers for part in found),
        next((part.ended for part in found if part.ended), ""),
        tuple(dict.fromkeys(name for part in found for name in part.unsettled)),
        sum(part.seconds for part in found),
    )
