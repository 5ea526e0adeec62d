"""What a release promises, as data that can be stored, sent, composed and explained."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from epsilearn.accounting import Approximate, Curve, Pure, curve_from_dict
from epsilearn.checks import check_budget, check_integer
from epsilearn.errors import InvalidInput
from epsilearn.plain_json import parse_json

if TYPE_CHECKING:
    from epsilearn.explanation import Explanation

__all__ = ["REPLACE_ONE", "Guarantee", "LedgerStamp"]

REPLACE_ONE = "replace-one"
_VERSION = 1
_STAMP = {"dataset": str, "entry": int, "head": str}


@dataclass(frozen=True)
class LedgerStamp:
    """Where a promise was debited: the data set, the entry's number and the ledger's head at that moment."""

    dataset: str
    entry: int
    head: str


@dataclass(frozen=True)
class Guarantee:
    """The promise of one release.

    Parameters
    ----------
    epsilon, delta : float
        What is proven. ``epsilon`` is infinite where nothing is, and then `void_reason` says why.
    mechanism, theorem : str
        What was run, and which theorem proves the promise.
    assumptions : tuple of str
        What the proof takes for granted.
    relation : str
        Which tables count as neighbours. ``"replace-one"``: one record replaced by another, n public.
    rows_per_person : int
        How many records one person may have; the promise is per person.
    curve : Curve, optional
        The finer privacy curve, for composing. The plain (epsilon, delta) if left out.
    claimed_epsilon : float, optional
        What a paper's constants claim, where they prove less.
    null_records : bool
        Whether the release saw all n rows with null records for those outside its part, so that it does not
        depend on the part's size.
    ledger : LedgerStamp, optional
        Where it was debited.

    Examples
    --------
    >>> from epsilearn import Guarantee
    >>> promise = Guarantee.pure(0.5)
    >>> print(promise)
    epsilon = 0.5, per record, replace-one
    >>> Guarantee.from_json(promise.to_json()) == promise
    True
    """

    epsilon: float
    delta: float = 0.0
    mechanism: str = "unnamed"
    theorem: str = "given"
    assumptions: tuple[str, ...] = ("n is public",)
    relation: str = REPLACE_ONE
    rows_per_person: int = 1
    curve: Curve = field(default=None)  # type: ignore[assignment]
    claimed_epsilon: float | None = None
    null_records: bool = False
    void_reason: str | None = None
    ledger: LedgerStamp | None = None

    def __post_init__(self) -> None:
        if self.void_reason is None:
            check_budget(self.epsilon, self.delta)
        elif self.epsilon != math.inf:
            raise InvalidInput("a void guarantee promises nothing: its epsilon must be infinite")
        check_integer("rows_per_person", self.rows_per_person)
        if self.void_reason is not None:
            object.__setattr__(self, "curve", None)
        elif self.curve is None:
            object.__setattr__(self, "curve", _plain_curve(self.epsilon, self.delta))
        elif not isinstance(self.curve, Curve):
            raise InvalidInput("curve must be a privacy curve")
        elif not self.curve.supports(self.epsilon, self.delta):
            raise InvalidInput(f"the curve does not prove epsilon = {self.epsilon:g}, delta = {self.delta:g}")

    @classmethod
    def pure(cls, epsilon: float, **details: Any) -> Guarantee:
        """epsilon at delta = 0."""
        return cls(epsilon=epsilon, **details)

    @classmethod
    def from_budget(cls, epsilon: float, delta: float = 0.0, **details: Any) -> Guarantee:
        """(epsilon, delta), and nothing finer."""
        return cls(epsilon=epsilon, delta=delta, **details)

    def void(self, reason: str) -> Guarantee:
        """The same release with its promise withdrawn."""
        return replace(self, epsilon=math.inf, void_reason=reason)

    @property
    def unit(self) -> str:
        """Whom the promise protects."""
        return "record" if self.rows_per_person == 1 else f"person with up to {self.rows_per_person} records"

    def __str__(self) -> str:
        if self.void_reason:
            return f"no promise ({self.void_reason})"
        delta = f", delta = {self.delta:g}" if self.delta else ""
        claimed = f" (claimed: {self.claimed_epsilon:g})" if self.claimed_epsilon is not None else ""
        return f"epsilon = {self.epsilon:.6g}{claimed}{delta}, per {self.unit}, {self.relation}"

    def explain(self) -> Explanation:
        """What this promise means for an adversary, in words and numbers."""
        from epsilearn.explanation import explain

        if self.void_reason:
            raise InvalidInput(f"nothing is promised ({self.void_reason}), so there is nothing to explain")
        return explain(self.epsilon, self.delta)

    def to_dict(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["version"] = _VERSION
        data["epsilon"] = "infinity" if math.isinf(self.epsilon) else self.epsilon
        data["assumptions"] = list(self.assumptions)
        data["curve"] = self.curve.to_dict() if self.curve is not None else None
        data["ledger"] = None if self.ledger is None else vars(self.ledger)
        return data

    def to_json(self) -> str:
        """Plain JSON; `from_json` reads it back to an equal object."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Guarantee:
        expected = {f.name for f in fields(cls)} | {"version"}
        if not isinstance(data, dict) or set(data) != expected:
            raise InvalidInput("not a guarantee: its fields are not the ones this version writes")
        if data["version"] != _VERSION:
            raise InvalidInput(f"guarantee of version {data['version']!r:.40}; this epsilearn reads version {_VERSION}")
        content = {name: value for name, value in data.items() if name != "version"}
        _check_types(content)
        content["epsilon"] = math.inf if content["epsilon"] == "infinity" else float(content["epsilon"])
        content["assumptions"] = tuple(content["assumptions"])
        if content["curve"] is not None:
            content["curve"] = curve_from_dict(content["curve"])
        if content["ledger"] is not None:
            content["ledger"] = LedgerStamp(**content["ledger"])
        return cls(**content)

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        return cls.from_dict(parse_json(text, "a guarantee"))


def _plain_curve(epsilon: float, delta: float) -> Curve:
    return Approximate(epsilon, delta) if delta else Pure(epsilon)


def _check_types(content: dict[str, Any]) -> None:
    number = (int, float)
    wanted: dict[str, tuple[type, ...]] = {
        "epsilon": (*number, str),
        "delta": number,
        "mechanism": (str,),
        "theorem": (str,),
        "assumptions": (list,),
        "relation": (str,),
        "rows_per_person": (int,),
        "curve": (dict, type(None)),
        "claimed_epsilon": (*number, type(None)),
        "null_records": (bool,),
        "void_reason": (str, type(None)),
        "ledger": (dict, type(None)),
    }
    for name, kinds in wanted.items():
        if not isinstance(content[name], kinds):
            raise InvalidInput(f"not a guarantee: field {name} has the wrong type")
    if isinstance(content["epsilon"], str) and content["epsilon"] != "infinity":
        raise InvalidInput("not a guarantee: epsilon is neither a number nor 'infinity'")
    if not all(isinstance(a, str) for a in content["assumptions"]):
        raise InvalidInput("not a guarantee: assumptions must be texts")
    stamp = content["ledger"]
    if stamp is not None and {name: type(value) for name, value in stamp.items()} != _STAMP:
        raise InvalidInput("not a guarantee: the ledger's stamp is incomplete, or has a field of the wrong type")
