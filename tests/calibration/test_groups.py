"""Group privacy, on the mechanism that is worst for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from epsilearn.accounting import Approximate
from epsilearn.calibration.groups import per_record
from epsilearn.errors import InvalidInput


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 1e-3), (3.0, 1e-2)])
def test_chaining_the_inequality_gives_the_promise(rows, epsilon, delta):
    each, share = per_record(epsilon, delta, rows)
    total = share * sum(math.exp(i * each) for i in range(rows))
    assert rows * each <= epsilon
    assert total <= delta * (1 + 1e-12)
    assert rows * each >= epsilon * (1 - 1e-12)
    assert total >= 0.999 * delta


def test_five_percent_more_per_record_breaks_it():
    """A chain of k + 1 databases along which a probability grows as fast as it may."""
    epsilon, delta, rows = 1.0, 1e-2, 4
    each, share = per_record(epsilon, delta, rows)
    for factor, breaks in ((1.0, False), (1.05, True)):
        probability = 1e-3
        for _ in range(rows):
            probability = math.exp(factor * each) * probability + share
        assert (probability > math.exp(epsilon) * 1e-3 + delta * (1 + 1e-9)) == breaks


def test_extremes():
    # The delta that is left would be below the doubles; rounding it up would break the promise.
    for epsilon, rows in ((1600.0, 2), (800.0, 100), (1e4, 2), (1e300, 3)):
        with pytest.raises(InvalidInput, match="no double is small enough"):
            per_record(epsilon, 1e-6, rows)
    assert per_record(1400.0, 1e-6, 2)[1] > 0
    assert Approximate(*per_record(1.0, 1e-6, 10)).bound == pytest.approx(0.1)
    with pytest.raises(InvalidInput):
        per_record(1.0, 0.0, 0)
    assert np.isfinite(per_record(1e-9, 1e-300, 1000)).all()
