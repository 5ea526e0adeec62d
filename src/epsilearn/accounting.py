"""Privacy curves: what one release can reveal, at every (epsilon, delta) at once.

A curve is immutable data. Each knows an upper bound on its epsilon for a delta and the other way round, its
zero-concentrated rho, its Renyi divergences and, through dp-accounting, its privacy-loss distribution.
How curves add up is in `epsilearn.composition`. Proofs: ``docs/theory/composition.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

from flint import arb
from scipy.optimize import minimize_scalar

from epsilearn.balls import ball, exact, precision, round_up
from epsilearn.calibration.additive import gaussian_delta
from epsilearn.checks import check_positive
from epsilearn.errors import InvalidInput

__all__ = [
    "ORDERS",
    "Approximate",
    "BoundedRange",
    "Curve",
    "GaussianShift",
    "LaplaceShift",
    "Pure",
    "Renyi",
    "ZeroConcentrated",
    "curve_from_dict",
]

ORDERS: tuple[float, ...] = (
    *(1 + 0.1 * k for k in range(1, 10)),
    *(float(k) for k in range(2, 33)),
    *(40.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0),
    *(2.0**k for k in range(9, 41)),
)
# Large budgets, and deltas close to 1, are best proven by orders close to 1.
_NEAR_ONE = tuple(1 + 2.0**-k for k in range(3, 41))
_PRECISION = 128
_HUGE = 1e4  # beyond this an epsilon is infinite for every purpose, and its exponential too long to compute


@dataclass(frozen=True)
class Curve:
    """Base of all curves. Bounds that a curve does not have are infinite: never wrong, just useless."""

    kind: ClassVar[str] = ""

    @property
    def pure(self) -> float:
        """The epsilon at delta = 0."""
        return math.inf

    @property
    def failure(self) -> float:
        """Probability set aside before `rho`, `renyi` and `pure` apply: the delta of an (epsilon, delta) bound."""
        return 0.0

    @property
    def rho(self) -> float:
        """The zero-concentrated parameter."""
        return math.inf

    def renyi(self, order: float) -> float:
        """The Renyi divergence of the given order, above 1."""
        return _scaled(order, self.rho)

    def epsilon(self, delta: float) -> float:
        """An epsilon such that (epsilon, delta) is promised; infinite where nothing is."""
        candidates = [self.pure if delta >= self.failure else math.inf]
        if delta > self.failure:
            candidates.append(renyi_epsilon(self.renyi, delta - self.failure))
        return min(candidates)

    def delta(self, epsilon: float) -> float:
        """A delta such that (epsilon, delta) is promised; 1 where nothing is."""
        return _least_delta(self.epsilon, epsilon)

    def supports(self, epsilon: float, delta: float) -> bool:
        """Whether the curve proves (epsilon, delta), up to the last digits."""
        return self.epsilon(delta) <= epsilon * (1 + 1e-9)

    def loss_distribution(self, interval: float) -> Any | None:  # noqa: ARG002 - some curves have none
        """dp-accounting's pessimistic privacy-loss distribution, if it has one."""
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}


@dataclass(frozen=True)
class Pure(Curve):
    """epsilon-differential privacy and nothing more; the worst case is randomised response.

    Examples
    --------
    >>> Pure(1.0).epsilon(0.0)
    1.0
    >>> round(Pure(1.0).delta(0.0), 4)  # the total variation of randomised response: tanh(1/2)
    0.4621
    """

    bound: float
    kind: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)

    @property
    def pure(self) -> float:
        return self.bound

    @property
    def rho(self) -> float:
        with precision(_PRECISION):
            return round_up(ball(exact(self.bound)) ** 2 / 2)

    def renyi(self, order: float) -> float:
        if self.bound > _HUGE:
            return self.bound
        with precision(_PRECISION + 64):
            eps, a = ball(exact(self.bound)), ball(order)
            likely, rare = 1 / (1 + (-eps).exp()), 1 / (1 + eps.exp())
            moment = likely**a * rare ** (1 - a) + rare**a * likely ** (1 - a)
            return min(self.bound, round_up(moment.log() / (a - 1)))

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.bound:
            return 0.0
        if self.bound > _HUGE:
            return 1.0
        with precision(_PRECISION):
            eps = ball(exact(self.bound))
            return min(1.0, round_up((eps.exp() - ball(epsilon).exp()) / (1 + eps.exp())))

    def epsilon(self, delta: float) -> float:
        # delta = (e**bound - e**epsilon) / (1 + e**bound), solved for epsilon.
        if delta == 0 or self.bound > _HUGE:
            return self.bound
        with precision(_PRECISION):
            eps = ball(exact(self.bound))
            inside = eps.exp() - ball(delta) * (1 + eps.exp())
            if inside <= 1:
                return 0.0
            return min(self.bound, round_up(inside.log())) if inside > 1 else self.bound

    def loss_distribution(self, interval: float) -> Any:
        return _from_parameters(self.bound, 0.0, interval)


@dataclass(frozen=True)
class BoundedRange(Pure):
    """The exponential mechanism: epsilon-private, and epsilon**2 / 8 zero-concentrated."""

    kind: ClassVar[str] = "bounded-range"

    @property
    def rho(self) -> float:
        with precision(_PRECISION):
            return round_up(ball(exact(self.bound)) ** 2 / 8)

    def renyi(self, order: float) -> float:
        return min(super().renyi(order), _scaled(order, self.rho))


@dataclass(frozen=True)
class LaplaceShift(Pure):
    """One number plus Laplace noise whose scale is 1 / bound times its sensitivity."""

    kind: ClassVar[str] = "laplace"

    def renyi(self, order: float) -> float:
        if self.bound > _HUGE:
            return self.bound
        with precision(_PRECISION + 64):
            eps, a = ball(exact(self.bound)), ball(order)
            moment = (a * ((a - 1) * eps).exp() + (a - 1) * (-a * eps).exp()) / (2 * a - 1)
            return min(self.bound, round_up(moment.log() / (a - 1)))

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.bound:
            return 0.0
        if self.bound > _HUGE:
            return 1.0
        with precision(_PRECISION):
            return round_up(1 - ((ball(epsilon) - ball(exact(self.bound))) / 2).exp())

    def epsilon(self, delta: float) -> float:
        if delta == 0:
            return self.bound
        with precision(_PRECISION):
            return max(0.0, round_up(ball(exact(self.bound)) + 2 * (1 - ball(delta)).log()))

    def loss_distribution(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_laplace_mechanism(1 / self.bound, value_discretization_interval=interval)


@dataclass(frozen=True)
class Approximate(Curve):
    """(epsilon, delta)-differential privacy and nothing more."""

    bound: float
    share: float
    kind: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)
        if check_positive("share", self.share) >= 1:
            raise InvalidInput(f"share must lie strictly between 0 and 1, got {self.share}")

    @property
    def failure(self) -> float:
        return self.share

    @property
    def pure(self) -> float:
        return self.bound

    @property
    def rho(self) -> float:
        return Pure(self.bound).rho

    def renyi(self, order: float) -> float:
        return Pure(self.bound).renyi(order)

    def delta(self, epsilon: float) -> float:
        # A failure of probability `share`, or else randomised response.
        return min(1.0, math.nextafter(self.share + Pure(self.bound).delta(epsilon), 2.0))

    def epsilon(self, delta: float) -> float:
        return self.bound if delta >= self.share else math.inf

    def loss_distribution(self, interval: float) -> Any:
        return _from_parameters(self.bound, self.share, interval)


@dataclass(frozen=True)
class GaussianShift(Curve):
    """Gaussian noise whose deviation is 1 / shift times the sensitivity; composes exactly with its like."""

    shift: float
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        check_positive("shift", self.shift)

    @property
    def rho(self) -> float:
        with precision(_PRECISION):
            return round_up(ball(self.shift) ** 2 / 2)

    def delta(self, epsilon: float) -> float:
        return min(1.0, round_up(gaussian_delta(self.shift, epsilon)))

    def epsilon(self, delta: float) -> float:
        return _least_epsilon(self.delta, delta) if delta > 0 else math.inf

    def supports(self, epsilon: float, delta: float) -> bool:
        return self.delta(epsilon) <= delta * (1 + 1e-9)

    def loss_distribution(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_gaussian_mechanism(1 / self.shift, value_discretization_interval=interval)


@dataclass(frozen=True)
class ZeroConcentrated(Curve):
    """rho-zero-concentrated differential privacy.

    Examples
    --------
    >>> round(ZeroConcentrated(0.01).epsilon(1e-6), 3)
    0.622
    """

    bound: float
    kind: ClassVar[str] = "zero-concentrated"

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)

    @property
    def rho(self) -> float:
        return self.bound


@dataclass(frozen=True)
class Renyi(Curve):
    """Bounds on Renyi divergences at a few orders."""

    orders: tuple[float, ...]
    divergences: tuple[float, ...]
    kind: ClassVar[str] = "renyi"

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", tuple(map(float, self.orders)))
        object.__setattr__(self, "divergences", tuple(map(float, self.divergences)))
        if not self.orders or len(self.orders) != len(self.divergences):
            raise InvalidInput("a Renyi curve needs as many divergences as orders, and at least one")
        if list(self.orders) != sorted(set(self.orders)) or self.orders[0] <= 1:
            raise InvalidInput("Renyi orders must be above 1 and increasing")
        if not all(math.isfinite(d) and d >= 0 for d in self.divergences):
            raise InvalidInput("Renyi divergences must be finite and not negative")

    def renyi(self, order: float) -> float:
        # The divergence grows with the order, so the next known order bounds it.
        known = (d for o, d in zip(self.orders, self.divergences, strict=True) if o >= order)
        return next(known, math.inf)


def renyi_epsilon(divergence: Callable[[float], float], delta: float) -> float:
    """The epsilon at delta of a mechanism with these Renyi divergences.

    Theorem (Canonne, Kamath and Steinke 2020). For every order a > 1,
    epsilon = D(a) + log(1 - 1/a) + (log(1/delta) - log a) / (a - 1).
    """
    if delta <= 0:
        return math.inf

    def at(order: float) -> float:
        loss = divergence(order)
        if not math.isfinite(loss):
            return math.inf
        return loss + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    best = min((*_NEAR_ONE, *ORDERS), key=at)
    polished = minimize_scalar(
        lambda log_excess: min(at(1 + math.exp(log_excess)), 1e100),
        bounds=(math.log(best - 1) - 0.7, math.log(best - 1) + 0.7),
        method="bounded",
        options={"xatol": 1e-10},
    )
    order = min((best, 1 + math.exp(polished.x)), key=at)
    loss = divergence(order)
    if not math.isfinite(loss):
        return math.inf
    with precision(_PRECISION):
        a = ball(order)
        bound = ball(loss) + (1 - 1 / a).log() - (ball(delta).log() + a.log()) / (a - 1)
        return max(0.0, round_up(bound))


def _least_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """The least epsilon, to 13 digits and rounded up, whose delta is at most ``delta``."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def _least_delta(epsilon_at: Callable[[float], float], epsilon: float) -> float:
    """The least delta, to 3 digits of its logarithm and rounded up, whose epsilon is at most ``epsilon``."""
    if epsilon_at(0.0) <= epsilon:
        return 0.0
    low, high = -700.0, 0.0
    if epsilon_at(math.exp(low)) <= epsilon:
        return math.exp(low)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_at(math.exp(middle)) <= epsilon else (middle, high)
    return min(1.0, math.exp(high))


@lru_cache(maxsize=256)
def _from_parameters(epsilon: float, delta: float, interval: float) -> Any:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=interval)


def _scaled(factor: float, bound: float) -> float:
    return round_up(Fraction(factor) * Fraction(bound)) if math.isfinite(bound) else math.inf


def gaussian_sum(shifts: list[float]) -> arb:
    return sum((ball(shift) ** 2 for shift in shifts), arb(0)).sqrt()


def curve_from_dict(data: dict[str, Any]) -> Curve:
    """The curve that ``to_dict`` described; refuses anything else."""
    from epsilearn.composition import Composite

    kinds: dict[str, type[Curve]] = {
        c.kind: c
        for c in (Pure, BoundedRange, LaplaceShift, Approximate, GaussianShift, ZeroConcentrated, Renyi, Composite)
    }
    if not isinstance(data, dict) or data.get("kind") not in kinds:
        raise InvalidInput(f"unknown privacy curve; expected one of {', '.join(sorted(kinds))}")
    curve = kinds[data["kind"]]
    content = {name: value for name, value in data.items() if name != "kind"}
    if set(content) != {field.name for field in fields(curve)}:
        raise InvalidInput(f"a {curve.kind} curve needs exactly the fields {[f.name for f in fields(curve)]}")
    try:
        if curve is Composite:
            return Composite.from_parts(content["parts"])
        return curve(**{name: tuple(v) if isinstance(v, list) else v for name, v in content.items()})
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise error if isinstance(error, InvalidInput) else InvalidInput(f"a damaged {curve.kind} curve") from None
