"""What a fit would promise and could be expected to cost, before anybody opens the table."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from epsilearn.calibration.expectation import EASY, HARD, Signal, accuracy_lost, error_added
from epsilearn.calibration.fit import FitNoise
from epsilearn.calibration.learning import excess_quantile
from epsilearn.erm import Plan
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.path_plan import PathPlan

__all__ = ["Outlook", "outlook", "rows_for"]

_MOST_ROWS = 10**12
_FAILURE = 0.05  # with which the proven bound may fail, over the noise
_REFITTED = "the bound on a path's end says nothing of weights that are fitted again"
_DESCENT = "no bound is known here for the end of a descent along noisy gradients"


@dataclass(frozen=True)
class Outlook:
    """A fit, foreseen from public numbers.

    Attributes
    ----------
    rows, features : int
        The size of the table, as numbers.
    guarantee : Guarantee
        What would be promised.
    noise : NoiseLaw
        The law of the noise.
    method : str
        Where it goes: "objective", "output", "gradient", or "path" for models found step by step.
    alpha : float or None
        The regularisation that would be used.
    steps : int or None
        The points of the path.
    weight_deviation : float or None
        A coefficient's deviation by the noise: exact for noise on the result, otherwise the bound sd(b)/(n alpha),
        since the exact one would pass through the private Hessian. None where rows are moved and scaled first, by
        lengths that only the fit finds.
    excess : float or None
        How far above its least value the mean loss can end: with probability 0.95 over the noise; for a path, in the
        mean. None where no theorem says so.
    unproven : str
        Why there is no such theorem; empty where there is one.
    lost : (float, float) or None
        What privacy may cost, on an easy table and on a hard one: in accuracy, or in root mean squared error.
    """

    rows: int
    features: int
    guarantee: Guarantee
    noise: NoiseLaw
    method: str
    alpha: float | None = None
    steps: int | None = None
    weight_deviation: float | None = None
    excess: float | None = None
    unproven: str = ""
    lost: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "features": self.features,
            "guarantee": self.guarantee.to_dict(),
            "noise": {"kind": self.noise.kind, "scale": self.noise.scale, "deviation": self.noise.deviation},
            "method": self.method,
            "alpha": self.alpha,
            "steps": self.steps,
            "weight_deviation": self.weight_deviation,
            "excess": self.excess,
            "unproven": self.unproven,
            "lost": None if self.lost is None else list(self.lost),
        }


def outlook(estimator: Any, rows: int, features: int) -> Outlook:
    """What fitting this estimator to a table of this size would promise and cost.

    Parameters
    ----------
    estimator : LogisticRegression, LinearSVC, LinearRegression, Lasso, SparseLogisticRegression or a landmark model
        With its public bounds, and classes where it is a classifier.
    rows, features : int
        The size of the table.

    Returns
    -------
    Outlook

    Examples
    --------
    >>> from epsilearn import LogisticRegression
    >>> found = outlook(LogisticRegression(data_norm=1.0, classes=[0, 1], epsilon=1.0), 30_000, 20)
    >>> found.method, found.noise.kind, 0 < found.lost[0] < found.lost[1] < 0.5
    ('objective', 'k-norm', True)
    """
    if not hasattr(estimator, "plan"):
        raise InvalidInput(
            f"what a fit of {type(estimator).__name__} would promise cannot be told beforehand; give a linear, sparse "
            "or landmark model"
        )
    plan = estimator.plan(rows=rows, features=features)
    if isinstance(plan, PathPlan):
        found = Outlook(rows, features, plan.promise, plan.law, "path", steps=plan.steps, excess=plan.excess_bound)
        return replace(found, unproven=_REFITTED) if found.excess is None else found
    noise = _noise(plan)
    deviation = noise.deviation if plan.method == "output" else noise.deviation / (rows * plan.strength)
    proven = plan.method != "gradient"
    return Outlook(
        rows,
        features,
        plan.promise,
        plan.law,
        plan.method,
        alpha=plan.strength,
        weight_deviation=deviation if proven and plan.centring is None else None,
        excess=excess_quantile(noise, plan.loss, rows, plan.table.norm, _FAILURE) if proven else None,
        unproven="" if proven else _DESCENT,
        lost=_range(plan),
    )


def _range(plan: Plan) -> tuple[float, float]:
    """What privacy may cost on two models of a table, the cheaper one first: which it is depends on the noise."""
    easy, hard = _lost(plan, EASY), _lost(plan, HARD)
    return min(easy, hard), max(easy, hard)


def _noise(plan: Plan) -> FitNoise:
    polish = 0.0 if plan.polish is None else plan.polish.scale
    gaussian = plan.law.kind == "gaussian"
    return FitNoise(plan.method, gaussian, plan.law.dimension, plan.strength, plan.law.scale, plan.certificate, polish)


def _lost(plan: Plan, signal: Signal) -> float:
    noise, table, loss = _noise(plan), plan.table, plan.loss
    if loss.classifies:
        # With a margin all records pull harder: as if noise and regularisation were that much less.
        margin = getattr(loss, "margin", 0.0)
        pull = 2 / (1 + math.exp(-margin))
        noise = replace(noise, scale=noise.scale / pull, strength=noise.strength / pull)
        return accuracy_lost(noise, table.rows, table.columns, table.norm, signal)
    half = float(loss.target_bound)  # type: ignore[attr-defined]
    return error_added(noise, table.rows, table.columns, table.norm, half, signal)


def rows_for(estimator: Any, features: int, cost: float, signal: Signal) -> int | None:
    """The least number of rows, to three digits, for which what privacy may cost such a table is at most ``cost``.

    None if a million million are not enough.
    """

    def enough(rows: int) -> bool:
        return _lost(estimator.plan(rows=rows, features=features), signal) <= cost

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST_ROWS:
            return None
    while high > 1.002 * low + 1:
        middle = max(low + 1, math.isqrt(low * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
