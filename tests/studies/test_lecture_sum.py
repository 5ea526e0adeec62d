"""The lecture's noisy sum: real releases follow the noise's law, and the bounds are what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from epsilearn.errors import InvalidInput
from epsilearn.studies import lecture_sum
from epsilearn.studies.study import unwatched


@pytest.fixture(scope="module")
def result():
    return lecture_sum.run(lecture_sum.Settings(epsilons=(0.1, 1.0), draws=4000), unwatched)


def test_releases_err_as_their_noise_does(result):
    """Four deviations of a quantile estimated from 4,000 releases; twice the noise would be 40 away."""
    for errors in result.measured["errors"]:
        scale = 1 / errors["epsilon"]
        assert errors["within"] == pytest.approx(errors["exact"], abs=4 * scale * math.sqrt(0.95 / 0.05 / 4000))
        assert errors["deviation"] == pytest.approx(math.sqrt(2) * scale, rel=0.1)
        assert errors["low"] <= errors["within"] <= errors["high"]


def test_the_lectures_numbers(result):
    first = result.measured["errors"][0]
    assert first["exact"] == pytest.approx(29.96, abs=0.01)
    assert first["chebyshev"] == pytest.approx(63.25, abs=0.01)
    assert first["exact_deviation"] == pytest.approx(14.14, abs=0.01)
    assert "14.5" in result.seen[1]


def test_no_tail_is_above_chebyshevs_bound(result):
    tail = result.measured["tail"]
    assert all(t["exact"] <= t["chebyshev"] for t in tail)
    for t in tail:
        # Few are so far out that their number is not nearly normal.
        low, high = stats.binom.ppf([1e-9, 1 - 1e-9], 4000, t["exact"]) / 4000
        assert low <= t["measured"] <= high
    assert np.all(np.diff([t["measured"] for t in tail]) <= 0)


def test_every_draw_is_made(monkeypatch):
    """The last batch may be smaller than the others."""
    made = []
    monkeypatch.setattr(lecture_sum, "_release", lambda batch: made.append(batch) or np.ones(batch.draws))
    lecture_sum.run(lecture_sum.Settings(epsilons=(0.1, 1.0), draws=2500), unwatched)
    assert [(b.epsilon, b.draws) for b in made] == [(e, d) for e in (0.1, 1.0) for d in (1000, 1000, 500)]


@pytest.mark.parametrize("wrong", [{"epsilons": (0.1, -1.0)}, {"draws": 99}, {"rows": 0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        lecture_sum.Settings(**wrong)
