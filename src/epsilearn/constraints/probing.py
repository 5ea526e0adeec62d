"""Somebody else's set, tried on public directions before anything is spent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.constraints.geometry import lengths
from epsilearn.constraints.interface import ConstraintSet
from epsilearn.errors import InvalidInput

__all__ = ["probe"]

Array = NDArray[np.float64]


def probe(constraint: ConstraintSet, features: int) -> None:
    """Refuse a set whose answers to a handful of public questions contradict each other.

    What passes may still be wrong elsewhere; the sets of this package need no probe.

    Examples
    --------
    >>> from epsilearn.constraints import L2Ball
    >>> probe(L2Ball(2.0), features=10)
    """
    if not isinstance(constraint, ConstraintSet):
        raise InvalidInput(f"a constraint must be a ConstraintSet, got {type(constraint).__name__}; derive from it")
    constraint.check(features)
    axes = np.vstack([np.eye(1, features, place) for place in sorted({0, features // 2, features - 1})])
    fixed = np.vstack([axes, np.ones(features)])
    directions = np.vstack([fixed, -fixed, np.random.default_rng(8).standard_normal((8, features))])
    answers = np.array([_answer(constraint, direction) for direction in directions])
    _check_least(constraint, directions, answers)
    _check_sizes(constraint, directions, answers)


def _asked(constraint: ConstraintSet, method: str, *arguments: Any) -> Any:
    try:
        return getattr(constraint, method)(*arguments)
    except Exception as error:
        raise InvalidInput(f"{type(constraint).__name__}.{method} raised {type(error).__name__}; mend it") from error


def _answer(constraint: ConstraintSet, direction: Array) -> Array:
    name = f"{type(constraint).__name__}.minimiser"
    answer = _asked(constraint, "minimiser", direction.copy())
    if not isinstance(answer, np.ndarray) or answer.shape != direction.shape or answer.dtype.kind != "f":
        raise InvalidInput(f"{name} must return an array of floats of the direction's shape, {direction.shape}")
    if not np.isfinite(answer).all():
        raise InvalidInput(f"{name} returned NaN or infinity; scale the direction before taking powers of it")
    if not _asked(constraint, "contains", answer):
        raise InvalidInput(f"{name} returned a point that contains() refuses; mend one of the two")
    return answer.astype(np.float64)


def _check_least(constraint: ConstraintSet, directions: Array, answers: Array) -> None:
    """No answer may be beaten by another point of the set: any answer, its opposite, or one further out."""
    values = (directions * answers).sum(axis=1)
    allowed = 1e-6 * lengths(directions) * lengths(answers).max()
    others = [other for answer in answers for other in (-answer, 1.1 * answer) if _asked(constraint, "contains", other)]
    if any((values > directions @ point + allowed).any() for point in [*answers, *others]):
        raise InvalidInput(
            f"{type(constraint).__name__}.minimiser returned a point that is not the least: another one in the set has "
            "a smaller product with the direction; return the argmin over s of <s, direction>"
        )


def _check_sizes(constraint: ConstraintSet, directions: Array, answers: Array) -> None:
    """The public bounds must hold at least for the answers."""
    features = directions.shape[1]
    distance = max(float(lengths(answers - answer).max()) for answer in answers)
    attained: list[tuple[str, tuple[Any, ...], float]] = [
        ("l1_norm", (features,), float(np.abs(answers).sum(axis=1).max())),
        ("diameter", (features,), distance),
    ]
    products, largest = np.abs(directions @ answers.T).max(axis=1), np.abs(directions).max(axis=1)
    for size, length, product in zip(largest.tolist(), lengths(directions).tolist(), products.tolist(), strict=True):
        attained += [("reach", (size, bound * (1 + 1e-12), features), product) for bound in (length, math.inf)]
    for method, arguments, least in attained:
        if not least <= _asked(constraint, method, *arguments) * (1 + 1e-9):
            raise InvalidInput(
                f"{type(constraint).__name__}.{method} is less than what points returned by minimiser attain; "
                "return an upper bound over the whole set"
            )
