"""Privacy filters: when may one more release, chosen after seeing all earlier ones, be admitted?

A filter keeps running totals, exact fractions that only grow, and a few *clauses*, each a set of limits on
them. A request is admitted while at least one clause holds. Each clause alone is a valid filter for
(epsilon, its share of delta); a run that ends inside a clause was inside it all along, because totals only
grow; so the union is a filter for (epsilon, the sum of the shares). Proof: ``docs/theory/composition.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from epsilearn.accounting import Curve, ZeroConcentrated
from epsilearn.balls import ball, decimal_down, decimal_up, exact, precision, round_down
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee

__all__ = ["RENYI_ORDERS", "Filter", "Totals"]

Totals = dict[str, Fraction]
RENYI_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_NEVER = Fraction(10) ** 30  # a cost that no limit admits, where a curve has no such bound


@dataclass(frozen=True)
class Filter:
    """A rule fixed at creation: named totals and the clauses that admit them."""

    name: str
    clauses: tuple[dict[str, Fraction], ...]

    @staticmethod
    def of(rule: str, epsilon: float, delta: float) -> Filter:
        """The filter of a rule for a total budget.

        Half of delta pays for converting a concentrated or Renyi total; a quarter covers debits with a delta of
        their own under that conversion, and a quarter under plain sums.
        """
        budget, share = exact(epsilon), exact(delta)
        if rule == "pure":
            return Filter(rule, ({"epsilon": budget, "delta": share},))
        if rule not in ("zcdp", "renyi"):
            raise InvalidInput(f"rule must be 'pure', 'zcdp' or 'renyi', got {rule!r}")
        if delta == 0:
            raise InvalidInput(f"the {rule} rule needs a budget with delta > 0; use the pure rule, or set delta")
        plain = {"epsilon": budget, "delta": share / 4}
        if rule == "zcdp":
            return Filter(rule, (plain, {"rho": _most_rho(epsilon, delta / 2), "failure": share / 4}))
        each = delta / 2 / len(RENYI_ORDERS)
        clauses = [
            {f"renyi {order:g}": limit, "failure": share / 4}
            for order in RENYI_ORDERS
            if (limit := _most_divergence(order, epsilon, each)) > 0
        ]
        return Filter(rule, (plain, *clauses))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "clauses": [{k: str(v) for k, v in c.items()} for c in self.clauses]}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Filter:
        return Filter(data["name"], tuple({k: Fraction(v) for k, v in c.items()} for c in data["clauses"]))

    def zero(self) -> Totals:
        return {name: Fraction(0) for clause in self.clauses for name in clause}

    def add(self, totals: Totals, guarantee: Guarantee) -> Totals:
        """The totals after one more release."""
        curve = _charged(guarantee, [name for name in totals if name == "rho" or name.startswith("renyi")])
        plain = {"epsilon": exact(guarantee.epsilon), "delta": exact(guarantee.delta)}
        return {
            name: total + (plain[name] if name in plain else _moment(name, curve)) for name, total in totals.items()
        }

    def admits(self, totals: Totals) -> bool:
        return any(all(totals[name] <= limit for name, limit in clause.items()) for clause in self.clauses)

    def sums(self, totals: Totals) -> tuple[float, float]:
        """The plain sums of epsilon and delta, rounded up."""
        return decimal_up(totals["epsilon"]), decimal_up(totals["delta"])

    def used(self, totals: Totals) -> float:
        """How much of the budget is gone, from 0 to 1, under the clause that leaves most."""
        return float(min(max(_ratio(totals[name], limit) for name, limit in c.items()) for c in self.clauses))

    def remaining(self, totals: Totals) -> float:
        """The largest pure epsilon that would still be admitted; under a concentrated rule, to nine digits."""
        budget = decimal_down(self.clauses[0]["epsilon"])
        summed = decimal_down(max(Fraction(0), self.clauses[0]["epsilon"] - totals["epsilon"]))
        low = summed if summed and self._admits_pure(totals, summed) else 0.0
        if len(self.clauses) == 1:
            return low
        high = budget
        while high - low > 1e-9 * budget:
            middle = (low + high) / 2
            low, high = (middle, high) if self._admits_pure(totals, middle) else (low, middle)
        return low

    def _admits_pure(self, totals: Totals, epsilon: float) -> bool:
        return self.admits(self.add(totals, Guarantee.pure(epsilon)))


def _ratio(total: Fraction, limit: Fraction) -> Fraction:
    return total / limit if limit else Fraction(int(total > 0))


def _charged(guarantee: Guarantee, moments: list[str]) -> Curve:
    """The finer curve where it bounds any of these moments, else the plain (epsilon, delta)."""
    if any(_moment(name, guarantee.curve) < _NEVER for name in moments):
        return guarantee.curve
    return Guarantee.from_budget(guarantee.epsilon, guarantee.delta).curve


def _moment(name: str, curve: Curve) -> Fraction:
    """What a curve adds to a total of this name."""
    if name == "failure":
        return Fraction(curve.failure)
    cost = curve.rho if name == "rho" else curve.renyi(float(name.split()[1]))
    return Fraction(cost) if math.isfinite(cost) else _NEVER


def _most_rho(epsilon: float, delta: float) -> Fraction:
    """The largest rho that converts to (epsilon, delta), by bisection of its logarithm; 0 where there is none."""
    least, most = -80.0, math.log(2 * max(epsilon, 1.0))
    low, high = least, most
    for _ in range(60):
        middle = (low + high) / 2
        fits = ZeroConcentrated(math.exp(middle)).epsilon(delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return Fraction(math.exp(low)) if low > least else Fraction(0)


def _most_divergence(order: float, epsilon: float, delta: float) -> Fraction:
    """The largest divergence at one order that converts to (epsilon, delta): the formula is affine in it."""
    with precision(128):
        a = ball(order)
        at_zero = (1 - 1 / a).log() - (ball(delta).log() + a.log()) / (a - 1)
        return max(Fraction(0), Fraction(round_down(ball(exact(epsilon)) - at_zero)))
