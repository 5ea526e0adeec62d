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
        _check_private(private_part(candidate)[1])
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


def _check_private(final: Any) -> None:
    known = final.get_params(deep=False) if hasattr(final, "get_params") else {}
    for name in BUDGET:
        if name not in known:
            raise InvalidInput(f"estimator must be private: it has no parameter {name!r}")


def _check(estimator: Any) -> list[str]:
    prefix, final = private_part(estimator)
    _check_private(final)
    if hasattr(type(final), "_possible_estimators"):
        # Its classes, and its parts, would be those of the rows that it is fitted to.
        raise InvalidInput("a selection cannot choose among selections; give one grid with all the settings")
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


def _label_key(classes: Any) -> Any:
    try:
        # True, 1 and 1.0 are equal, and are not the same labels.
        key = None if classes is None else tuple((type(label), label) for label in classes)
        hash(key)
    except TypeError:
        return object()  # no label set at all, as will be said
    return key


def with_public_labels(candidates: list[Candidate], y: NDArray[Any]) -> tuple[str, ...]:
    """Tell every classifier the whole table's label set; what the promise assumes if nobody gave one.

    A part of the rows that happens to lack a class must not fail, nor show that it does.
    """
    assumptions: tuple[str, ...] = ()
    found: dict[Any, list[Any]] = {}  # a long column is looked through once for each label set, not for each candidate
    for candidate in candidates:
        prefix, final = private_part(candidate.estimator)
        given = final.get_params(deep=False)
        if not is_classifier(candidate.estimator) or "classes" not in given:
            continue
        classes = given["classes"]
        key = _label_key(classes)
        if key not in found:
            labels, _, assumed = public_labels(y, classes)
            found[key] = list(labels)
            assumptions += assumed
        candidate.estimator.set_params(**{f"{prefix}classes": found[key]})
    return tuple(dict.fromkeys(assumptions))
