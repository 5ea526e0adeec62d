"""Candidates of a selection: built from an estimator and a grid, and judged, before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline

from epsilearn.errors import InvalidInput
from epsilearn.linear.classification import public_labels
from epsilearn.pipelines import BUDGET, judged
from epsilearn.sessions import check_function

__all__ = ["Candidate", "built", "check_candidates", "private_part", "with_public_labels"]


@dataclass(frozen=True)
class Candidate:
    """One setting to try.

    Attributes
    ----------
    settings : dict
        What the grid says.
    estimator : estimator
        What becomes of the estimator then, unfitted.
    """

    settings: dict[str, Any]
    estimator: Any


def private_part(estimator: Any) -> tuple[str, Any]:
    """How to reach the settings of the step that a pipeline ends in, and that step."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix, estimator


def built(estimator: Any, grid: Any) -> list[Candidate]:
    """A candidate for each setting of the grid."""
    settings = list(ParameterGrid(grid))
    if not settings:
        raise InvalidInput("grid is empty; give at least one setting to try")
    return [Candidate(chosen, _with(estimator, chosen)) for chosen in settings]


def _with(estimator: Any, chosen: dict[str, Any]) -> Any:
    prefix, _ = private_part(estimator)
    for name in BUDGET:
        if f"{prefix}{name}" in chosen:
            raise InvalidInput(f"grid must not vary {name!r}: the budget is the selection's own")
    candidate = clone(estimator)
    try:
        return candidate.set_params(**{name: clone(value, safe=False) for name, value in chosen.items()})
    except ValueError:
        known = candidate.get_params()
    unknown = sorted(name for name in chosen if name not in known) or sorted(chosen)
    raise InvalidInput(
        f"grid varies {', '.join(map(repr, unknown))}, which the estimator does not have; a pipeline's step comes "
        "first, as in logisticregression__alpha"
    )


def check_candidates(candidates: list[Candidate]) -> tuple[str, ...]:
    """Refuse candidates that are not private throughout, or are sessions; what their promise then assumes."""
    assumptions: list[str] = []
    for candidate in candidates:
        assumptions += _check(candidate.estimator)
    if len({is_classifier(candidate.estimator) for candidate in candidates}) > 1:
        raise InvalidInput("the grid mixes classifiers and regressors, whose scores cannot be compared; select apart")
    return tuple(dict.fromkeys(assumptions))


def _check(estimator: Any) -> list[str]:
    prefix, final = private_part(estimator)
    known = final.get_params(deep=False) if hasattr(final, "get_params") else {}
    for name in BUDGET:
        if name not in known:
            raise InvalidInput(f"estimator must be private: it has no parameter {name!r}")
    found = judged(estimator)
    if found.learning:
        step = found.learning[0]
        where = f"step {step.path!r} of the pipeline" if step.path else "the estimator"
        raise InvalidInput(f"{where} is refused: {step.reason}")
    others = [path for path, _ in found.private if f"{path}__" != prefix and path]
    if others:
        raise InvalidInput(f"step {others[0]!r} has a budget of its own; only the last step may be private here")
    check_function(estimator)
    return found.assumptions


def with_public_labels(candidates: list[Candidate], y: NDArray[Any]) -> tuple[str, ...]:
    """Tell every classifier the whole table's label set; what the promise assumes if nobody gave one.

    A part of the rows that happens to lack a class must not fail, nor show that it does.
    """
    assumptions: tuple[str, ...] = ()
    for candidate in candidates:
        prefix, final = private_part(candidate.estimator)
        given = final.get_params(deep=False)
        if is_classifier(candidate.estimator) and "classes" in given:
            labels, _, assumed = public_labels(y, given["classes"])
            candidate.estimator.set_params(**{f"{prefix}classes": list(labels)})
            assumptions += assumed
    return tuple(dict.fromkeys(assumptions))
