"""Exact divergences against other routes, and each printed claim refuted by as much as the errata say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from epsilearn.audit.exact import hockey_stick, real_epsilon
from epsilearn.calibration.frank_wolfe import choice_scale
from epsilearn.calibration.kernel import printed_rounds
from epsilearn.calibration.objective import pure_loss, pure_perturbation
from epsilearn.losses import HuberisedHinge, Logistic
from epsilearn.studies import claims, errata
from epsilearn.studies.divergences import noisy_choices, objective_loss, search_outputs
from epsilearn.studies.study import unwatched

REAL = {
    "2008, Theorem 2": 3.233,
    "2008, Theorem 2, at 0.7": 3.092,
    "2008, Theorem 3": 4.715,
    "2008, Definition 2": math.sqrt(2),
    "Lecture, Theorem 6": 5.0,
    "Lecture, Theorem 8": 2.0,
    "LASSO, Algorithm 2": 29.509,
    "Kernels, Algorithm 3": 6.284,
}


@pytest.fixture(scope="module")
def result():
    return errata.run(errata.Settings(trials=500, points=9), unwatched)


def test_every_claim_fails_by_what_the_errata_say(result):
    found = {claim["name"]: claim for claim in result.measured["claims"]}
    assert {name: claim["real"] for name, claim in found.items()} == pytest.approx(REAL, abs=2e-3)
    assert all(claim["real"] > claim["claimed"] for claim in found.values())
    assert f"{len(REAL)} of {len(REAL)} claims fail" in result.seen[0]


def test_audits_stay_below_what_is_real(result):
    """An audit's bound is wrong one time in a thousand at most; it must never exceed the exact value."""
    audits = result.measured["audits"]
    assert len(audits) == 3
    for name, finding in audits.items():
        assert finding["lower_bound"] <= REAL[name]
    # The clearest of them needs few runs.
    assert audits["Lecture, Theorem 6"]["refuted"]


def test_numbers_are_computed_not_copied(result):
    computed = {number["name"].split(":")[0]: number for number in result.measured["numbers"]}
    assert computed["Lecture, noisy sum"]["computed"].startswith("30.0; Chebyshev's inequality 63.2")
    assert computed["LASSO, Theorem 2.5"] == {
        "name": "LASSO, Theorem 2.5: steps at n = 10^4, epsilon = 1", "printed": "737", "computed": "10",
    }  # fmt: skip
    curvature = computed["LASSO, Remark 1"]
    assert float(curvature["computed"]) == pytest.approx(2 * float(curvature["printed"]), rel=1e-3)
    assert computed["2008, Lemma 4 is below Lemma 3 for lambda below"]["computed"] == "0.3333"
    assert computed["Kernels, Algorithm 1"]["computed"] in ("48.7, after 0.036 updates", "0.33")


def test_theorem_2_is_kept_from_two_on(result):
    for point in result.measured["theorem_2"]:
        assert point["real"] <= point["proven"] * (1 + 1e-9)
        assert (point["proven"] <= 0.1 * (1 + 1e-9)) == (point["size"] >= 2)
    assert result.measured["theorem_2"][0]["real"] > 5


def test_the_hockey_stick_of_a_coin():
    coin, other = np.log([0.7, 0.3]), np.log([0.4, 0.6])
    for epsilon in (0.0, 0.2, 0.5):
        one = max(0.7 - math.exp(epsilon) * 0.4, 0) + max(0.3 - math.exp(epsilon) * 0.6, 0)
        two = max(0.4 - math.exp(epsilon) * 0.7, 0) + max(0.6 - math.exp(epsilon) * 0.3, 0)
        assert hockey_stick(coin, other, epsilon) == pytest.approx(max(one, two))
    found = real_epsilon(coin, other, 0.1)
    assert hockey_stick(coin, other, found) <= 0.1 < hockey_stick(coin, other, found - 1e-6)
    # No epsilon is needed where delta covers the whole difference, and huge ones do not overflow.
    assert real_epsilon(coin, other, 0.5) <= 1e-8
    assert hockey_stick(coin, other, 5000.0) == 0.0


def test_the_density_ratio_stays_below_theorem_j():
    """With enough noise the exact loss obeys the theorem; with the printed noise it need not."""
    for size in (0.05, 1.0):
        tight = pure_perturbation(Logistic(), 1, 1.0, size, 0.5)
        loss = objective_loss(Logistic(), [(1.0, 1.0)], [(0.0, 1.0)], tight.strength, 1 / tight.scale)
        assert 0.5 * 0.3 < loss <= 0.5
    assert objective_loss(Logistic(), [(1.0, 1.0)], [(1.0, 1.0)], 0.1, 1.0) == 0.0


def test_a_sharper_hinge_leaks_without_bound():
    losses = [
        objective_loss(HuberisedHinge(width), [(1.0, 1.0)], [(1.0, -1.0)], 1.0, 0.05) for width in (0.5, 0.05, 0.005)
    ]
    # Ten times the curvature, nearly log 10 more; what is proven, with the determinant, is never less.
    assert np.diff(losses) == pytest.approx(math.log(10), abs=0.6)
    for width, loss in zip((0.5, 0.05, 0.005), losses, strict=True):
        assert loss <= pure_loss(HuberisedHinge(width), 1, 1.0, 1.0, 0.05)


def test_one_noisy_choice_by_integration():
    """The chance that the lower of two noisy scores stays lower, by integrating over one of the noises."""
    gap, scale = 0.7, 0.4

    def below(noise: float) -> float:
        reach = (gap + noise) / scale
        other = 0.5 * math.exp(reach) if reach < 0 else 1 - 0.5 * math.exp(-reach)
        return other * math.exp(-abs(noise) / scale) / (2 * scale)

    chance = integrate.quad(below, -20, 20, points=[-gap, 0.0], limit=200)[0]
    first, second = noisy_choices(gap, scale, 1)
    assert np.exp(first) == pytest.approx([1 - chance, chance])
    assert np.exp(second) == pytest.approx([chance, 1 - chance])


def test_the_tight_scale_is_private_on_the_pair_that_catches_the_printed_one():
    delta = 1e-3
    tight = choice_scale(1000, 1.0, 1.0, 20.0, delta, 300, 1)
    assert real_epsilon(*noisy_choices(2 / 1000, tight, 299), delta) <= 20.0


def test_the_lasso_is_caught_at_a_large_epsilon_only():
    assert claims.lasso_pair(1.0).real == pytest.approx(0.644, abs=1e-3)
    assert [claims.lasso_pair(epsilon).real > epsilon for epsilon in (1.0, 5.0, 10.0, 20.0)] == [
        False,
        False,
        True,
        True,
    ]


def test_a_search_is_carried_forward_as_it_is_drawn():
    """Against simulation of the algorithm itself, round by round."""
    constants = replace(printed_rounds(10**6, 0.1, 1.0, 1.0, 1.0, 1e-6, 0.05), count=6, exponent=0.4, rate=0.6)
    minimiser, angle = (0.5, 9.0), 0.4
    law = np.exp(search_outputs(constants, minimiser, angle)).reshape(75, 75)
    assert law.sum() == pytest.approx(1)
    generator, runs = np.random.default_rng(0), 20_000
    points = np.array([[math.cos(angle), math.sin(angle)], [-math.cos(angle), math.sin(angle)]])
    counts = np.zeros((runs, 2), dtype=int)
    for _ in range(constants.count):
        distances = (np.array(minimiser) - constants.step * counts @ points) @ points.T
        weights = np.exp(constants.exponent * np.abs(distances))
        chosen = (generator.random(runs) > weights[:, 0] / weights.sum(axis=1)).astype(int)
        noisy = distances[np.arange(runs), chosen] + generator.laplace(scale=1 / (2 * constants.rate), size=runs)
        moves = np.where(np.abs(noisy) > constants.tolerance, np.sign(noisy), 0).astype(int)
        counts[np.arange(runs), chosen] += moves
    drawn = np.zeros_like(law)
    np.add.at(drawn, (counts[:, 0] + 15, counts[:, 1] + 15), 1 / runs)
    assert np.abs(drawn - law).max() < 5 * math.sqrt(0.25 / runs)
    assert (law > 0.02).sum() > 5


def test_with_the_factor_once_the_search_keeps_its_promise():
    rows, strength = 10**6, 0.1
    printed = printed_rounds(rows, strength, 1.0, 1.0, 1.0, 1e-6, 0.05)
    meant = replace(printed, exponent=printed.rate / 8)
    moved, rest = 1 / (rows * strength), (rows - 1) / (rows * strength)
    right, left = (search_outputs(meant, (side, rest), 0.2) for side in (moved, -moved))
    assert real_epsilon(right, left, 1e-6) < 1.0


def test_a_hypothesis_that_leaves_the_grid_is_an_error():
    constants = replace(printed_rounds(10**6, 0.1, 1.0, 1.0, 1.0, 1e-6, 0.05), step=1e-3)
    with pytest.raises(ValueError, match="widen"):
        search_outputs(constants, (0.0, 10.0), 0.2, width=8)


def test_the_lectures_counter_example():
    first, second = claims._lecture_tables()
    assert [claims._least_squares(table) for table in (first, second)] == pytest.approx([1.0, -1.0])
    assert sum(a != b for a, b in zip(first[1], second[1], strict=True)) == 1
