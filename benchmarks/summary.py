"""Means, standard errors, and who is ahead of whom."""

from __future__ import annotations

import math
import statistics
from typing import Any

__all__ = ["Comparison", "compared", "corrected_error", "standard_error", "summarised"]

Comparison = dict[str, Any]
# Test rows for each training row, as `datasets.split` draws them.
TEST_SHARE = 0.25


def standard_error(values: list[float]) -> float:
    """Of the mean; a single value has none that could be known."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def corrected_error(values: list[float]) -> float:
    """Of the mean over random splits of one table: they share rows, so their mean varies more than it seems.

    Nadeau and Bengio (2003), "Inference for the generalization error": the variance of one value times 1/k + the ratio
    of test rows to training rows.
    """
    return standard_error(values) * math.sqrt(1 + len(values) * TEST_SHARE)


def summarised(values: list[float]) -> dict[str, float]:
    """Mean and standard error."""
    return {"mean": statistics.mean(values), "error": standard_error(values)}


def compared(ours: list[float], theirs: list[float]) -> Comparison:
    """Who is ahead beyond the standard error, on the same splits in the same order.

    ``paired`` judges the mean of the differences by their own standard error, ``corrected`` by one that allows for
    splits that overlap; ``unpaired`` judges it by the two means' errors as if the splits had been drawn separately.
    """
    if len(ours) != len(theirs):
        raise ValueError("both must have run on the same splits")
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    mean, paired, corrected = statistics.mean(differences), standard_error(differences), corrected_error(differences)
    unpaired = math.hypot(standard_error(ours), standard_error(theirs))
    return {
        "difference": mean, "error": paired, "corrected_error": corrected, "unpaired_error": unpaired,
        "paired": _verdict(mean, paired), "corrected": _verdict(mean, corrected), "unpaired": _verdict(mean, unpaired),
    }  # fmt: skip


def _verdict(difference: float, error: float) -> str:
    if difference > error:
        return "ahead"
    return "behind" if difference < -error else "level"
