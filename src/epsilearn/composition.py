"""How promises add up: `compose` for several releases from one table, `parallel` for parts of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any, ClassVar

from flint import arb, fmpz

from epsilearn.accounting import (
    ORDERS,
    Curve,
    GaussianShift,
    Pure,
    ZeroConcentrated,
    curve_from_dict,
    gaussian_sum,
    renyi_epsilon,
)
from epsilearn.balls import ball, decimal_up, exact, precision, round_up
from epsilearn.checks import check_budget, check_integer
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee

__all__ = ["Composite", "compose", "parallel"]

_MOST_PARTS, _MOST_DEPTH = 1_000_000, 3


@dataclass(frozen=True)
class Composite(Curve):
    """Several releases from the same rows, each possibly chosen after seeing the ones before.

    The list itself is fixed beforehand; only then may the smallest of several valid totals be reported.
    """

    parts: tuple[Curve, ...]
    kind: ClassVar[str] = "composite"

    def __post_init__(self) -> None:
        if not self.parts or not all(isinstance(part, Curve) for part in self.parts):
            raise InvalidInput("a composite curve needs at least one part, each a curve")

    @property
    def pure(self) -> float:
        # Budgets are decimals: ten tenths make one.
        return self._total(lambda part: part.pure, exact, decimal_up)

    @property
    def failure(self) -> float:
        return self._total(lambda part: part.failure)

    @property
    def rho(self) -> float:
        return self._total(lambda part: part.rho)

    def renyi(self, order: float) -> float:
        return self._total(lambda part: part.renyi(order))

    def _total(
        self,
        cost: Callable[[Curve], float],
        reading: Callable[[float], Fraction] = Fraction,
        rounding: Callable[[Fraction], float] = round_up,
    ) -> float:
        """The sum of all parts' costs; equal parts are computed once."""
        known = [(cost(part), times) for part, times in Counter(self.parts).items()]
        if any(math.isinf(number) for number, _ in known):
            return math.inf
        return rounding(sum((times * reading(number) for number, times in known), Fraction(0)))

    def epsilon(self, delta: float) -> float:
        return self.best(delta)[0]

    def best(self, delta: float) -> tuple[float, str]:
        """The smallest valid total at delta, and the rule that gave it."""
        return _best(self, delta)

    def to_dict(self) -> dict[str, Any]:
        grouped = [(len(list(same)), part) for part, same in groupby(self.parts)]
        return {"kind": self.kind, "parts": [{"times": times, "curve": part.to_dict()} for times, part in grouped]}

    @classmethod
    def from_parts(cls, grouped: Any) -> Composite:
        """The curve whose parts `to_dict` described."""
        parts: list[Curve] = []
        most = _MOST_PARTS
        for group in grouped:
            times, part = check_integer("times", group["times"]), curve_from_dict(group["curve"])
            # Parts of parts count as well: all of them are looked at whenever a total is asked for.
            leaves, depth = _shape(part)
            most -= times * leaves
            if most < 0 or depth > _MOST_DEPTH:
                raise InvalidInput(f"a composite curve of more than {_MOST_PARTS} parts, or of parts of parts of parts")
            parts += [part] * times
        return cls(tuple(parts))


def _shape(curve: Curve) -> tuple[int, int]:
    """How many parts a curve has in the end, and how deep they lie."""
    if not isinstance(curve, Composite):
        return 1, 0
    shapes = [_shape(part) for part in curve.parts]
    return sum(leaves for leaves, _ in shapes), 1 + max(depth for _, depth in shapes)


@lru_cache(maxsize=64)
def _best(curve: Composite, delta: float) -> tuple[float, str]:
    return min(((rule(curve, delta), name) for name, rule in _RULES.items()), key=lambda found: found[0])


def _sum_budgets(numbers: Sequence[float]) -> float:
    return math.inf if math.inf in numbers else decimal_up(sum(map(exact, numbers), Fraction(0)))


def _basic(curve: Composite, delta: float) -> float:
    return curve.pure if delta >= curve.failure else math.inf


def _zero_concentrated(curve: Composite, delta: float) -> float:
    rho = curve.rho
    if delta <= curve.failure or not math.isfinite(rho):
        return math.inf
    return renyi_epsilon(ZeroConcentrated(rho).renyi, delta - curve.failure)


def _renyi(curve: Composite, delta: float) -> float:
    if delta <= curve.failure:
        return math.inf
    known = {order: curve.renyi(order) for order in ORDERS}

    def at(order: float) -> float:
        return next((loss for known_order, loss in known.items() if known_order >= order), math.inf)

    return renyi_epsilon(at, delta - curve.failure)


def _gaussian(curve: Composite, delta: float) -> float:
    """Gaussian shifts compose to one Gaussian shift, exactly: their squares add."""
    shifts = [part.shift for part in curve.parts if isinstance(part, GaussianShift)]
    if len(shifts) < len(curve.parts) or delta == 0:
        return math.inf
    with precision(128):
        return GaussianShift(round_up(gaussian_sum(shifts))).epsilon(delta)


def _equal_pure(curve: Composite, delta: float) -> float:
    """The optimal composition of k equal pure promises (Kairouz, Oh and Viswanath 2015), in ball arithmetic.

    delta(e) = sum over i of C(k, i) (e**((k - i) epsilon) - e**(e + i epsilon))+ / (1 + e**epsilon)**k.
    """
    bounds = {part.pure for part in curve.parts if isinstance(part, Pure)}
    if len(bounds) != 1 or not all(isinstance(part, Pure) for part in curve.parts) or len(curve.parts) > 10_000:
        return math.inf
    return _optimal(exact(bounds.pop()), len(curve.parts), delta)


def _optimal(epsilon: Fraction, count: int, delta: float) -> float:
    if delta == 0 or epsilon * count > 10_000:
        return math.inf
    with precision(192):
        step = ball(epsilon)
        weights, weight = [], (1 + step.exp()) ** -count
        for i in range(count + 1):
            weights.append(weight * ((count - i) * step).exp())
            weight = weight * fmpz(count - i) / fmpz(i + 1)

        def excess(total: arb) -> arb:
            # The i-th term is weights[i] * (1 - e**(total - (count - 2 i) epsilon)), where that is positive.
            sum_of_terms = arb(0)
            for i, w in enumerate(weights):
                loss = (count - 2 * i) * step
                if not loss > total:
                    break
                sum_of_terms += w * (1 - (total - loss).exp())
            return sum_of_terms

        low, high = 0.0, float(epsilon) * count * (1 + 1e-12)
        while high - low > 1e-12 * max(high, 1e-12):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(ball(middle)).upper() <= ball(delta) else (middle, high)
        return high


def _loss_distribution(curve: Composite, delta: float) -> float:
    """Privacy-loss distributions, discretised upward and convolved by dp-accounting."""
    if len(set(curve.parts)) > 64 or delta < 1e-12 or len(curve.parts) > 10_000:
        return math.inf
    if not all(min(part.pure, part.rho) < 100 for part in set(curve.parts)):
        return math.inf  # dp-accounting takes exponentials of these
    interval = _interval(curve)
    total, count = None, 0
    for part, times in Counter(curve.parts).items():
        distribution = part.loss_distribution(interval)
        if distribution is None:
            return math.inf
        distribution = distribution.self_compose(times) if times > 1 else distribution
        total = distribution if total is None else total.compose(distribution)
        count += times
    slack = fourier_slack(total._pmf_remove.size if total is not None else 1, count)
    if total is None or delta <= 2 * slack:
        return math.inf
    found = total.get_epsilon_for_delta(delta - slack)
    # dp-accounting divides by the interval in floats before rounding up: make that good.
    return round_up(found * (1 + 1e-9)) if math.isfinite(found) else math.inf


def fourier_slack(size: int, count: int) -> float:
    """What the rounding of Fourier transforms can do to a sum of ``size`` probabilities after ``count`` convolutions.

    An l2 error of a few unit roundoffs for each level of the transform, times the power taken; an l1 error of at most
    the root of the size times that.
    """
    return 4 * 2.0**-53 * (math.log2(size + 1) + 1) * count * math.sqrt(size)


def _interval(curve: Composite) -> float:
    """Fine enough to lose little, coarse enough that a convolution stays below a few million cells."""
    reach = sum(
        times * (part.pure if math.isfinite(part.pure) else 10 * math.sqrt(2 * part.rho))
        for part, times in Counter(curve.parts).items()
    )
    return float(max(1e-4, 2.0 ** math.ceil(math.log2(max(reach, 1e-9) / 1e6))))


def _pure_beside(curve: Composite, delta: float) -> float:
    """Pure promises add to whatever the others make together."""
    pure = [part for part in curve.parts if isinstance(part, Pure)]
    others = tuple(part for part in curve.parts if not isinstance(part, Pure))
    if not pure or not others:
        return math.inf
    rest = others[0] if len(others) == 1 else Composite(others)
    return _sum_budgets([Composite(tuple(pure)).pure, rest.epsilon(delta)])


_RULES: dict[str, Callable[[Composite, float], float]] = {
    "basic composition": _basic,
    "pure promises beside the rest": _pure_beside,
    "exact composition of Gaussian shifts": _gaussian,
    "optimal composition of equal pure promises": _equal_pure,
    "zero-concentrated composition": _zero_concentrated,
    "Renyi composition": _renyi,
    "privacy-loss distributions": _loss_distribution,
}


def compose(*guarantees: Guarantee, delta: float | None = None) -> Guarantee:
    """What several releases promise together.

    Parameters
    ----------
    *guarantees : Guarantee
        A list that was fixed before the first release; for requests chosen as one goes, use a `Ledger`.
    delta : float, optional
        The delta to report at. The sum of the parts' deltas if left out.

    Returns
    -------
    Guarantee
        The total; its ``theorem`` names the rule that gave it.

    Examples
    --------
    >>> from epsilearn import Guarantee, compose
    >>> hundred = [Guarantee.pure(0.1)] * 100
    >>> compose(*hundred).epsilon
    10.0
    >>> total = compose(*hundred, delta=1e-6)
    >>> round(total.epsilon, 4), total.theorem
    (4.7746, 'optimal composition of equal pure promises')
    """
    _check_alike(guarantees)
    summed = _sum_budgets([g.delta for g in guarantees])
    at = check_budget(1.0, summed if delta is None else delta)[1]
    voided = next((g.void_reason for g in guarantees if g.void_reason), None)
    if voided:
        return _combined(guarantees, "none", epsilon=math.inf, delta=at, void_reason=voided)
    curve = Composite(tuple(_flatten([g.curve for g in guarantees])))
    epsilon, rule = curve.best(at)
    # The parts' own (epsilon, delta) also add, and may be all there is (a Gaussian beside a tiny delta).
    added = _sum_budgets([g.epsilon for g in guarantees]) if at >= summed else math.inf
    if added < epsilon:
        return _combined(guarantees, "basic composition", epsilon=added, delta=at)
    if not math.isfinite(epsilon):
        raise InvalidInput(f"these releases promise nothing at delta = {at:g}; ask for a larger delta")
    # So large a delta can leave an epsilon of 0; a promise states a positive one.
    epsilon = max(epsilon, 2.0**-1000)
    return _combined(guarantees, rule, epsilon=epsilon, delta=at, curve=curve)


def _combined(guarantees: Sequence[Guarantee], rule: str, **numbers: Any) -> Guarantee:
    """A guarantee with these numbers and what all the releases have in common."""
    return Guarantee(
        **numbers,
        mechanism=f"{len(guarantees)} releases",
        theorem=rule,
        assumptions=_union(guarantees),
        relation=guarantees[0].relation,
        rows_per_person=guarantees[0].rows_per_person,
        null_records=all(g.null_records for g in guarantees),
    )


def parallel(*guarantees: Guarantee, partition: str) -> Guarantee:
    """What releases from disjoint parts of one table promise together.

    Parameters
    ----------
    *guarantees : Guarantee
        One for each part.
    partition : {"index", "attribute"}
        How rows were assigned to parts. ``"index"``: by their position alone; a replaced record stays in its
        part and the total is the maximum. ``"attribute"``: by something in the record; a replaced record can
        leave one part and enter another, so the total is the sum of the two largest, and every part must have
        been given all n rows, with null records where a row does not belong (``where=`` in `statistics`).

    Examples
    --------
    >>> from epsilearn import Guarantee, parallel
    >>> parts = [Guarantee.pure(0.5), Guarantee.pure(0.2), Guarantee.pure(0.4)]
    >>> parallel(*parts, partition="index").epsilon
    0.5
    """
    _check_alike(guarantees)
    if partition not in ("index", "attribute"):
        raise InvalidInput(f"partition must be 'index' or 'attribute', got {partition!r}")
    by_attribute = partition == "attribute"
    if by_attribute and not all(g.null_records for g in guarantees):
        raise InvalidInput(
            "a release from one of the parts depends on that part's size, which is private when rows are routed "
            "by an attribute; give every part all n rows with null records (where=...), or partition by index"
        )
    # Each of a person's records may lie in another part, and may leave it for yet another.
    moved = guarantees[0].rows_per_person * (2 if by_attribute else 1)
    largest = [sorted((getattr(g, f) for g in guarantees), reverse=True)[:moved] for f in ("epsilon", "delta")]
    epsilon, delta = _sum_budgets(largest[0]), _sum_budgets(largest[1])
    voided = next((g.void_reason for g in guarantees if g.void_reason), None)
    how = "the largest part" if moved == 1 else f"the sum of the {moved} largest parts"
    return replace(
        Guarantee.from_budget(math.inf if voided else epsilon, delta, void_reason=voided),
        mechanism=f"{len(guarantees)} disjoint parts",
        theorem=f"parallel composition by {partition}: {how}",
        assumptions=(*_union(guarantees), f"parts are disjoint and fixed by {partition}"),
        rows_per_person=guarantees[0].rows_per_person,
        relation=guarantees[0].relation,
        null_records=by_attribute,
    )


def _check_alike(guarantees: Sequence[Guarantee]) -> None:
    if not guarantees:
        raise InvalidInput("nothing to compose; give at least one guarantee")
    if not all(isinstance(g, Guarantee) for g in guarantees):
        raise InvalidInput("only Guarantee objects compose; pass release.guarantee, not the release")
    if len({(g.relation, g.rows_per_person) for g in guarantees}) > 1:
        raise InvalidInput(
            "guarantees under different relations or units do not compose; make all releases with the same "
            "rows_per_person"
        )


def _flatten(curves: Sequence[Curve]) -> list[Curve]:
    flat: list[Curve] = []
    for curve in curves:
        flat += curve.parts if isinstance(curve, Composite) else [curve]
    return flat


def _union(guarantees: Sequence[Guarantee]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(a for g in guarantees for a in g.assumptions))
