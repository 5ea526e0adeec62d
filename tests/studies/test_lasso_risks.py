"""Excess risks and their slopes are measured right, and the reports of both families are complete."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from epsilearn.errors import InvalidInput
from epsilearn.studies import lasso_hard_instance, lasso_rate, lasso_risks
from epsilearn.studies.lasso_hard_instance import CAVEAT, hard_problem
from epsilearn.studies.lasso_rate import gaussian_problem
from epsilearn.studies.lasso_risks import PAPER_SLOPE, Measured, fit_private_lasso, fit_rate, measure
from epsilearn.studies.study import unwatched

GENERATOR = np.random.default_rng(0)
TINY = {
    lasso_hard_instance: lasso_hard_instance.Settings(epsilons=(2.0, 9.0), repetitions=2, largest=3),
    lasso_rate: lasso_rate.Settings(epsilons=(2.0, 9.0), repetitions=2, decades=(2.0, 2.5, 3.0)),
}


def fit_shrinking(X, y, epsilon, delta):
    """Stands for an estimator: at first far from zero, nearer with more rows, and random."""
    theta = np.zeros(X.shape[1])
    theta[GENERATOR.integers(X.shape[1])] = len(y) ** -0.25
    return theta


@pytest.fixture(scope="module", params=[lasso_hard_instance, lasso_rate], ids=["hard", "gaussian"])
def result(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lasso_risks, "fit_private_lasso", fit_shrinking)
        return request.param.run(TINY[request.param], unwatched)


def mean_squared_loss(X, y, theta) -> float:
    return float(np.mean((X.astype(float) @ theta - y) ** 2))


def test_gaussian_records_are_as_described():
    problem = gaussian_problem(4000)
    assert np.abs(problem.X).max() == 1
    assert np.abs(problem.y).max() <= 1
    # Clipped at two standard deviations, on either side.
    clipped = np.mean(np.abs(problem.X) == 1)
    assert clipped == pytest.approx(2 * stats.norm.sf(2), rel=0.02)
    truth = np.zeros(500)
    truth[:5] = 0.3, -0.3, 0.2, -0.1, 0.1
    residuals = problem.y - problem.X @ truth
    assert residuals.std() == pytest.approx(0.1, rel=0.06)
    assert problem.risk(truth) == pytest.approx(mean_squared_loss(problem.X, problem.y, truth), rel=1e-10)
    # The true coefficients are a point of the ball.
    assert problem.risk(truth) * 0.5 < problem.least < problem.risk(truth)


def test_gaussian_records_follow_from_their_seed():
    same, again, other = (gaussian_problem(100, seed) for seed in (1, 1, 2))
    assert np.array_equal(same.X, again.X)
    assert np.array_equal(same.y, again.y)
    assert not np.array_equal(same.X, other.X)


def test_the_same_data_serve_all_repetitions():
    problem, seen = hard_problem(138), []

    def fit(X, y, epsilon, delta):
        seen.append((X, y, epsilon, delta))
        return np.full(100, len(seen) / 1000)

    measured = measure(problem, fit, epsilon=0.7, repetitions=3)
    assert len(seen) == 3
    assert all(X is problem.X and y is problem.y for X, y, _, _ in seen)
    assert {(epsilon, delta) for *_, epsilon, delta in seen} == {(0.7, 138**-1.1)}
    expected = [mean_squared_loss(problem.X, problem.y, np.full(100, i / 1000)) - problem.least for i in (1, 2, 3)]
    assert measured.excess == pytest.approx(expected, rel=1e-10)
    assert measured.mean == pytest.approx(np.mean(expected))
    assert measured.zero == pytest.approx(10 / 138 - problem.least)


@pytest.mark.parametrize("exponent", [PAPER_SLOPE, -1.0, -0.25])
def test_an_exact_power_law_is_recovered(exponent):
    rows = [100, 300, 1000, 5000]
    rate = fit_rate(rows, [[3 * n**exponent] * 4 for n in rows])
    assert rate.slope == pytest.approx(exponent)
    assert rate.level == pytest.approx(3)
    assert (rate.lower, rate.upper) == pytest.approx((exponent, exponent), abs=1e-6)
    assert (rate.noise_lower, rate.noise_upper) == pytest.approx((exponent, exponent))


def test_intervals_cover_the_exponent():
    """A gamma law's mean is known: both intervals have to cover in about 95 of 100 studies."""
    generator, rows = np.random.default_rng(0), np.array([1000, 3162, 10_000, 31_623, 100_000, 316_228])
    studies, covered, covered_by_bootstrap = 200, 0, 0
    for study in range(studies):
        excess = (rows**PAPER_SLOPE)[:, None] * generator.gamma(4, 0.25, size=(len(rows), 20))
        rate = fit_rate(list(rows), list(excess), seed=study)
        covered += rate.lower <= PAPER_SLOPE <= rate.upper
        covered_by_bootstrap += rate.noise_lower <= PAPER_SLOPE <= rate.noise_upper
    assert covered / studies > 0.9
    # A bootstrap of 20 repetitions is known to be a little too narrow.
    assert covered_by_bootstrap / studies > 0.85


def test_a_bend_widens_the_interval_but_not_the_bootstrap():
    rows = [100, 1000, 10_000, 100_000]
    bent = fit_rate(rows, [[n**-0.5 * (1 + 1000 / n)] * 5 for n in rows])
    assert bent.upper - bent.lower > 0.1
    assert bent.noise_upper == pytest.approx(bent.noise_lower)


@pytest.mark.parametrize(
    ("rows", "excess", "words"),
    [([1, 2], [[1.0], [1.0]], "at least 3 sizes, got 2"), ([1, 2, 3], [[1.0], [0.0], [1.0]], "positive mean excess")],
)
def test_what_has_no_slope_is_refused(rows, excess, words):
    with pytest.raises(InvalidInput, match=words):
        fit_rate(rows, excess)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (lasso_rate, {"epsilons": (1.0, 0.0)}), (lasso_rate, {"repetitions": 1}), (lasso_rate, {"decades": (3.0, 4.0)}),
        (lasso_hard_instance, {"largest": 2}), (lasso_hard_instance, {"largest": 11}),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(kind, wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        kind.Settings(**wrong)


def test_the_default_sizes():
    assert lasso_rate.Settings().sizes == [1000, 3162, 10_000, 31_623, 100_000]
    assert lasso_hard_instance.Settings().sizes == [138, 1044, 4126, 8232, 16_434, 32_828, 65_606]


def test_short_paths_are_left_out_of_the_slope():
    def measured(rows: int, steps: int) -> Measured:
        return Measured(rows, 5, 1.0, 1e-3, 0.0, 1.0, [1 / rows, 1 / rows], steps)

    found = [measured(10, 2), *(measured(rows, 10) for rows in (100, 1000, 10_000))]
    assert [m.rows for m in lasso_risks._fitted(found)] == [100, 1000, 10_000]
    # Too few of them, and all are used.
    assert lasso_risks._fitted(found[:3]) == found[:3]


def test_the_interval_of_a_mean_is_students():
    found = Measured(10, 5, 1.0, 1e-3, 0.0, 1.0, [1.0, 2.0, 6.0], 10)
    low, high = stats.t.interval(0.95, 2, loc=3.0, scale=stats.sem([1.0, 2.0, 6.0]))
    assert (found.mean - found.reach, found.mean + found.reach) == pytest.approx((low, high))


def test_the_figure_says_what_it_shows(result):
    (drawing,) = result.figures.values()
    assert len(drawing.figure.axes) == 2
    for panel, epsilon in zip(drawing.figure.axes, (2, 9), strict=True):
        assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
        assert panel.get_title(loc="left").endswith(f"epsilon = {epsilon}")
        assert any(text.get_text().startswith("slope") for text in panel.texts)
        (reference,) = (line for line in panel.lines if line.get_linestyle() == "--")
        x, y = np.log(reference.get_xdata()), np.log(reference.get_ydata())
        assert np.diff(y) / np.diff(x) == pytest.approx(-2 / 3)


def test_texts_of_the_figure_do_not_overlap(result):
    (drawing,) = result.figures.values()
    figure = drawing.figure
    figure.canvas.draw()
    boxes = [text.get_window_extent() for panel in figure.axes for text in [*panel.texts, panel._left_title]]
    boxes += [panel.bbox for panel in figure.axes] + [figure.legends[0].get_window_extent()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(figure.bbox.containsx(x) for box in boxes for x in (box.x0, box.x1))


def test_reports_hold_every_number(result):
    fits, rates = result.measured["fits"], result.measured["rates"]
    assert [(m["epsilon"], len(m["excess"])) for m in fits] == [(2.0, 2)] * 3 + [(9.0, 2)] * 3
    assert [m["rows"] for m in fits] == 2 * result.settings.sizes
    for epsilon, rate in rates.items():
        own = [m for m in fits if m["epsilon"] == float(epsilon)]
        assert rate["slope"] == fit_rate([m["rows"] for m in own], [m["excess"] for m in own]).slope
    assert [row[0] for row in result.sheets[0].rows] == ["2", "9"]
    assert [row[1] for row in result.sheets[0].rows] == [f"{rate['slope']:.2f}" for rate in rates.values()]


def test_the_hard_instance_says_what_it_is_not(result):
    hard = isinstance(result.settings, lasso_hard_instance.Settings)
    assert (CAVEAT in result.seen) == (result.measured.get("caveat") == CAVEAT) == hard


def test_the_private_lasso_learns():
    """With a budget so large that the noise is small, most of what can be gained is gained."""
    measured = measure(gaussian_problem(3000), fit_private_lasso, epsilon=100.0, repetitions=2)
    assert max(measured.excess) < 0.3 * measured.zero
