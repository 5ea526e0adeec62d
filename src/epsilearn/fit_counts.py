"""Counted fits: clones of one estimator know each other, and every fit of theirs beyond the first is told.

scikit-learn's searches, cross-validation and ensembles fit clones of what they are given, and each fit is a release of
its own. Clones carry their original's lineage, a random text that also survives a pickle on its way to a worker.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from sklearn.base import BaseEstimator

from epsilearn.balls import round_up
from epsilearn.errors import PrivacyWarning, RepeatedFitWarning
from epsilearn.quiet import setting, tell

__all__ = ["CountedFits", "uncounted"]

_MOST_LINEAGES = 10_000  # remembered in one process, the latest ones
_SEEDED = (
    "this {name} is a clone that was given a random_state, as scikit-learn's ensembles do: its noise can be computed "
    "again from the seed, so nothing is promised. Fit the estimator itself, without a random_state"
)


@dataclass
class _Total:
    """What the fits of one lineage add up to."""

    fits: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)


# Beside the estimators, not in them: what a fitted model holds is its release and public numbers.
_lineages: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_unseeded: WeakSet[Any] = WeakSet()  # clones of estimators that draw real noise
_totals: OrderedDict[str, _Total] = OrderedDict()
_lock = threading.Lock()
_uncounted: ContextVar[bool] = ContextVar("uncounted", default=False)


def _renew_lock() -> None:
    """A fork in the middle of a count would leave the child waiting for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def uncounted() -> contextlib.AbstractContextManager[None]:
    """Around fits that another promise pays for, that are stopped before they spend, or whose data are made up."""
    return setting(_uncounted, True)


class CountedFits(BaseEstimator):  # type: ignore[misc]
    """An estimator whose fits are counted together with those of its clones."""

    ledger: Any
    random_state: Any

    def __sklearn_clone__(self) -> Any:
        twin = super().__sklearn_clone__()
        with _lock:
            _lineages[twin] = self._own_lineage()
            if self.random_state is None or self in _unseeded:
                _unseeded.add(twin)
        return twin

    def _own_lineage(self) -> str:
        """To be called under the lock."""
        return _lineages.setdefault(self, uuid.uuid4().hex)

    def __getstate__(self) -> Any:
        # Along on the way to a worker.
        return {**super().__getstate__(), **({"_lineage": _lineages[self]} if self in _lineages else {})}

    def __setstate__(self, state: Any) -> None:
        lineage = state.get("_lineage")
        super().__setstate__({name: value for name, value in state.items() if name != "_lineage"})
        if lineage is not None:
            with _lock:
                _lineages[self] = lineage

    @property
    def _account(self) -> _Account:
        """In the ledger's place: debits it, if there is one, and counts the fit."""
        with _lock:
            lineage = self._own_lineage()
        if self in _unseeded and self.random_state is not None and not _uncounted.get():
            tell(_SEEDED.format(name=type(self).__name__), PrivacyWarning)
        return _Account(lineage, type(self).__name__, self.ledger)


@dataclass(frozen=True)
class _Account:
    lineage: str
    name: str
    ledger: Any

    @contextmanager
    def spend(self, guarantee: Any, purpose: str) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            # Counted, and told, before anything is debited: a filter that turns the warning into an error saves budget.
            with self._counting(guarantee):
                stamped = guarantee
                if self.ledger is not None:
                    stamped = stack.enter_context(self.ledger.spend(guarantee, purpose))
            yield stamped

    @contextmanager
    def _counting(self, guarantee: Any) -> Iterator[None]:
        """Count a fit, unless what is done inside fails. A seeded one promises nothing that could add up."""
        if _uncounted.get() or not math.isfinite(guarantee.epsilon):
            yield
            return
        epsilon, delta = Fraction(guarantee.epsilon), Fraction(guarantee.delta)
        fits, total = self._add(1, epsilon, delta)
        try:
            # A ledger keeps count itself, and refuses.
            if fits > 1 and self.ledger is None:
                tell(_text(self.name, fits, *total), RepeatedFitWarning)
            yield
        except BaseException:
            self._add(-1, -epsilon, -delta)
            raise

    def _add(self, fits: int, epsilon: Fraction, delta: Fraction) -> tuple[int, tuple[Fraction, Fraction]]:
        with _lock:
            total = _totals.setdefault(self.lineage, _Total())
            _totals.move_to_end(self.lineage)
            while len(_totals) > _MOST_LINEAGES:
                _totals.popitem(last=False)
            total.fits += fits
            total.epsilon += epsilon
            total.delta += delta
            return total.fits, (total.epsilon, total.delta)


def _text(name: str, fits: int, epsilon: Fraction, delta: Fraction) -> str:
    also = f", delta = {round_up(delta):g}" if delta else ""
    return (
        f"this is fit {fits} of one {name} and its clones. Each fit is a release of its own: together they cost a "
        f"record that all of them see up to epsilon = {round_up(epsilon):g}{also}. scikit-learn's searches, "
        "cross-validation and ensembles fit clones like this. Choose settings with PrivateSelection, which has one "
        "budget for everything; pass a ledger, which counts every fit and refuses what exceeds the budget"
    )
