"""Means, standard errors, and who is ahead of whom."""

from __future__ import annotations

import math
import statistics
from typing import Any

__all__ = ["Comparison", "compared", "standard_error", "summarised"]

Comparison = dict[str, Any]


def standard_error(values: list[float]) -> float:
    """Of the mean; a single value has none that could be known."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def summarised(values: list[float]) -> dict[str, float]:
    """Mean and standard error."""
    return {"mean": statistics.mean(values), "error": standard_error(values)}


def compared(ours: list[float], theirs: list[float]) -> Comparison:
    """Who is ahead beyond the standard error, on the same splits in the same order.

    ``paired`` judges the mean of the differences by their own standard error; ``unpaired`` judges it by the two means'
    errors as if the splits had been drawn separately.
    """
    if len(ours) != len(theirs):
        raise ValueError("both must have run on the same splits")
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    mean, paired = statistics.mean(differences), standard_error(differences)
    unpaired = math.hypot(standard_error(ours), standard_error(theirs))
    return {
        "difference": mean, "error": paired, "unpaired_error": unpaired,
        "paired": _verdict(mean, paired), "unpaired": _verdict(mean, unpaired),
    }  # fmt: skip


def _verdict(difference: float, error: float) -> str:
    if difference > error:
        return "ahead"
    return "behind" if difference < -error else "level"
