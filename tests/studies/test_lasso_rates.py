"""The hard instance is as described and its least risk is right; slopes are measured right; the report is complete."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize, stats

from epsilearn.errors import ConvergenceError, InvalidInput
from epsilearn.studies import lasso_rates
from epsilearn.studies.hard_instance import (
    HardInstance,
    Quadratic,
    hard_instance,
    instance_sizes,
    least_over_l1_ball,
)
from epsilearn.studies.lasso_rates import (
    CAVEAT,
    PAPER_SLOPE,
    Study,
    fit_private_lasso,
    fit_rate,
    gaussian_problem,
    hard_problem,
    measure,
    problems,
    rates_figure,
    run,
    write,
)

TINY = Study(repetitions=2, largest=3, decades=(2.0, 2.5, 3.0))
GENERATOR = np.random.default_rng(0)


@pytest.fixture(scope="module", params=[1, 2, 3, 4, 5], ids="size {}".format)
def instance(request) -> HardInstance:
    return hard_instance(instance_sizes()[request.param - 1][1], random_state=request.param)


@pytest.fixture(scope="module")
def found():
    return run(TINY, fit_shrinking)


def fit_shrinking(X, y, epsilon, delta):
    """Stands for an estimator: at first far from zero, nearer with more rows, and random."""
    theta = np.zeros(X.shape[1])
    theta[GENERATOR.integers(X.shape[1])] = len(y) ** -0.25
    return theta


def mean_squared_loss(X, y, theta) -> float:
    return float(np.mean((X.astype(float) @ theta - y) ** 2))


def random_points(features: int, radius: float, count: int, seed: int = 0):
    """Points of the l1 ball: sparse and dense ones, inside and on the surface."""
    generator = np.random.default_rng(seed)
    for i in range(count):
        point = np.zeros(features)
        chosen = generator.choice(features, size=generator.integers(1, features + 1), replace=False)
        point[chosen] = generator.normal(size=len(chosen))
        yield point * radius / np.abs(point).sum() * (1 if i % 2 else generator.random())


def least_by_slsqp(X, y, radius: float) -> float:
    """With twice as many variables, the positive and the negative parts, the ball has flat sides."""
    both = np.hstack([X, -X]).astype(float)
    features = both.shape[1]
    done = optimize.minimize(
        lambda parts: np.mean((both @ parts - y) ** 2),
        np.full(features, radius / (2 * features)),
        jac=lambda parts: 2 * both.T @ (both @ parts - y) / len(y),
        bounds=[(0, None)] * features,
        constraints={"type": "ineq", "fun": lambda p: radius - p.sum(), "jac": lambda p: -np.ones(features)},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert done.success
    return float(done.fun)


def random_regression(seed: int, rows: int = 40, features: int = 8):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, size=(rows, features))
    y = X @ generator.normal(size=features) + generator.normal(size=rows)
    moments = X.T @ X / rows
    risk = Quadratic(lambda theta: moments @ theta, X.T @ y / rows, float(y @ y) / rows, np.linalg.norm(moments, 2))
    return X, y, risk


def test_sizes_follow_from_one_number():
    for size, rows, features in instance_sizes():
        orthogonal = rows - 10 * size
        assert features == 100 * size**2
        # A power of two, the next one from a tenth of code rows times features on; columns need as many rows.
        assert orthogonal & (orthogonal - 1) == 0
        assert 100 * size**3 <= orthogonal < 200 * size**3
        assert orthogonal >= features
    assert [size for size, _, _ in instance_sizes()] == list(range(1, 11))


@pytest.mark.parametrize(("n", "size"), [(138, 1), (1043, 1), (1044, 2), (4125, 2), (4126, 3), (8_231, 3)])
def test_the_largest_size_that_fits_is_made(n, size):
    made = hard_instance(n, random_state=0)
    assert (made.size, made.rows, made.features) == instance_sizes()[size - 1]
    assert made.rows <= n


def test_data_are_signs_and_targets_are_bits(instance):
    assert instance.X.dtype == np.int8
    assert instance.X.shape == (instance.rows, instance.features)
    assert set(np.unique(instance.X)) == {-1, 1}
    assert instance.y.dtype == np.float64
    assert np.array_equal(instance.y, np.arange(instance.rows) < 10 * instance.size)
    assert np.array_equal(instance.code, instance.X[instance.y == 1])


def test_columns_of_the_other_records_are_orthogonal(instance):
    other = instance.X[instance.y == 0].astype(np.float32)
    # Sums of at most 2^14 signs are exact in single precision.
    assert np.array_equal(other.T @ other, len(other) * np.eye(instance.features, dtype=np.float32))


def test_other_records_are_rows_of_sylvesters_matrix():
    other = hard_instance(1044, random_state=0).X[20:]
    for i, j in np.random.default_rng(0).integers((1024, 400), size=(200, 2)):
        assert other[i, j] == (-1) ** int(i & j).bit_count()


def test_nearly_all_columns_are_constant(instance):
    consensus, code = instance.consensus, instance.code
    assert consensus.dtype == np.int8
    constant = consensus != 0
    assert (code[:, constant] == consensus[constant]).all()
    assert (np.abs(code[:, ~constant].sum(axis=0)) < len(code)).all()
    # The code has one column at least, which is more than a thousandth of fewer than 1,000 features.
    assert (~constant).sum() <= max(1, instance.features / 1000)
    assert abs(int(consensus.sum())) <= 2 + (~constant).sum()


def test_the_padding_is_in_random_order():
    consensus = hard_instance(8232, random_state=0).consensus
    # In the order of construction there would be two runs.
    assert np.count_nonzero(np.diff(consensus)) == pytest.approx(800, abs=5 * np.sqrt(400))


def test_code_columns_have_arcsine_bias():
    """Over many codes: half of the entries are +1, and a column's bias is far from a half more often than not."""
    rows, shares = 10, []
    for seed in range(400):
        made = hard_instance(138, random_state=seed)
        odd = np.flatnonzero(made.consensus == 0)
        # A column may be constant by chance; then nothing tells it from the padding.
        shares += list((made.code[:, odd] == 1).mean(axis=0))
    shares = np.array(shares)
    assert shares.mean() == pytest.approx(0.5, abs=5 * 0.3 / np.sqrt(len(shares)))
    # Beta(1/2, 1/2), cut off at 1/3000, mixed with ten throws, given that they are not all alike.
    chances = stats.betabinom(rows, 0.5, 0.5).pmf(np.arange(1, rows))
    counts = np.bincount(np.round(shares * rows).astype(int), minlength=rows + 1)[1:rows]
    assert stats.chisquare(counts, chances / chances.sum() * counts.sum()).pvalue > 1e-4
    # The chance of no constant column is a little larger than without the cut-off.
    assert len(shares) / 400 == pytest.approx(chances.sum(), abs=5 * 0.5 / 20 + 0.01)


def test_instances_follow_from_their_seed():
    same, again, other = (hard_instance(1044, random_state=seed) for seed in (1, 1, 2))
    assert np.array_equal(same.X, again.X)
    assert np.array_equal(same.consensus, again.consensus)
    assert not np.array_equal(same.X, other.X)
    # What has no randomness stays.
    assert np.array_equal(same.X[20:], other.X[20:])


def test_risk_is_the_mean_squared_loss(instance):
    for theta in random_points(instance.features, 1.0, 6, seed=instance.size):
        assert instance.risk(theta) == pytest.approx(mean_squared_loss(instance.X, instance.y, theta), rel=1e-10)
    assert instance.risk([0.0] * instance.features) == 10 * instance.size / instance.rows


@pytest.mark.parametrize("radius", [0.05, 0.5, 1.0, 3.0])
def test_no_point_of_the_ball_has_less_risk(instance, radius):
    least = instance.least_risk(radius)
    near = radius * instance.consensus / np.abs(instance.consensus).sum()
    points = [near, 0.9 * near, *random_points(instance.features, radius, 20)]
    assert all(least * (1 - 1e-9) <= instance.risk(theta) for theta in points)
    assert least < instance.risk(np.zeros(instance.features))


def test_least_risk_has_a_closed_form_without_code_columns():
    """If all columns are constant, the best weight is the same for all but for its sign."""
    made = hard_instance(4126, random_state=0)
    X = made.X.copy()
    X[:30, made.consensus == 0] = 1
    padded = HardInstance(X, made.y, X[0], made.size)
    share = 4096 / (30 * 900)
    assert padded.least_risk() == pytest.approx(30 / 4126 * share / (1 + share), rel=1e-9)
    # A smaller ball binds: all of it goes to the columns in equal parts.
    assert padded.least_risk(0.5) == pytest.approx((30 * 0.5**2 + 4096 * 0.5**2 / 900) / 4126, rel=1e-9)


@pytest.mark.parametrize("radius", [0.3, 1.0])
def test_least_risk_agrees_with_another_solver(radius):
    made = hard_instance(138, random_state=3)
    assert made.least_risk(radius) == pytest.approx(least_by_slsqp(made.X, made.y, radius), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("radius", [0.1, 1.0, 100.0])
def test_the_least_over_the_ball_agrees_with_another_solver(seed, radius):
    X, y, risk = random_regression(seed)
    minimum = least_over_l1_ball(risk, radius)
    assert np.abs(minimum.theta).sum() <= radius * (1 + 1e-12)
    assert minimum.value == pytest.approx(mean_squared_loss(X, y, minimum.theta), rel=1e-12)
    assert minimum.value == pytest.approx(least_by_slsqp(X, y, radius), rel=1e-7)


def test_the_gap_bounds_the_error():
    _, _, risk = random_regression(0)
    least = least_over_l1_ball(risk, 1.0, tolerance=1e-13).value
    for tolerance in (0.3, 0.1, 1e-2, 1e-4):
        rough = least_over_l1_ball(risk, 1.0, tolerance=tolerance)
        assert rough.gap <= tolerance * rough.value
        assert least <= rough.value * (1 + 1e-12)
        assert rough.value - rough.gap <= least * (1 + 1e-12)


def test_what_cannot_be_certified_is_an_error(monkeypatch):
    monkeypatch.setattr("epsilearn.studies.hard_instance.MOST_STEPS", 2)
    with pytest.raises(ConvergenceError, match="no point within 1e-09 of the least risk after 2 steps"):
        least_over_l1_ball(random_regression(0)[2])


@pytest.mark.parametrize(
    ("n", "words"),
    [(137, "n must be at least 138, the smallest hard data set, got 137"), (0, "at least 1"), (1e3, "whole number")],
)
def test_wrong_numbers_of_rows_are_refused(n, words):
    with pytest.raises(InvalidInput, match=words):
        hard_instance(n, random_state=0)


def test_wrong_coefficients_are_refused():
    made = hard_instance(138, random_state=0)
    with pytest.raises(InvalidInput, match=r"theta must have shape \(100,\), got \(99,\)"):
        made.risk(np.zeros(99))
    with pytest.raises(InvalidInput, match="radius"):
        made.least_risk(0.0)


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
    problem, seen, done = hard_problem(138), [], []

    def fit(X, y, epsilon, delta):
        seen.append((X, y, epsilon, delta))
        return np.full(100, len(seen) / 1000)

    measured = measure(problem, fit, epsilon=0.7, repetitions=3, advance=lambda: done.append(1))
    assert len(done) == len(seen) == 3
    assert all(X is problem.X and y is problem.y for X, y, _, _ in seen)
    assert {(epsilon, delta) for *_, epsilon, delta in seen} == {(0.7, 138**-1.1)}
    expected = [mean_squared_loss(problem.X, problem.y, np.full(100, i / 1000)) - problem.least for i in (1, 2, 3)]
    assert measured.excess == pytest.approx(expected, rel=1e-10)
    assert measured.mean == pytest.approx(np.mean(expected))
    assert measured.zero == pytest.approx(10 / 138 - problem.least)


def test_data_sets_come_in_order():
    assert [(p.family, len(p.y)) for p in problems(TINY)] == [
        *(("hard", rows) for rows in (138, 1044, 4126)),
        *(("gaussian", rows) for rows in (100, 316, 1000)),
    ]


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


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"repetitions": 1}, {"largest": 2}, {"largest": 11}])
def test_wrong_studies_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Study(**wrong)


def test_the_default_sizes():
    study = Study()
    assert study.sizes("gaussian") == [1000, 3162, 10_000, 31_623, 100_000, 316_228]
    assert study.sizes("hard") == [138, 1044, 4126, 8232, 16_434, 32_828, 65_606]


def test_the_figure_says_what_it_shows(found):
    figure = rates_figure(TINY, found)
    hard, gaussian = figure.axes
    assert CAVEAT in [text.get_text() for text in hard.texts]
    assert CAVEAT not in [text.get_text() for text in gaussian.texts]
    for panel in figure.axes:
        assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
        assert panel.get_xlabel() == "number of records"
        assert panel.get_ylabel() == "excess empirical risk"
        assert any(text.get_text().startswith("slope") for text in panel.texts)
        (reference,) = (line for line in panel.lines if line.get_linestyle() == "--")
        x, y = np.log(reference.get_xdata()), np.log(reference.get_ydata())
        assert np.diff(y) / np.diff(x) == pytest.approx(-2 / 3)


def test_texts_of_the_figure_do_not_overlap(found):
    figure = rates_figure(TINY, found)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for panel in figure.axes for text in [*panel.texts, panel._left_title]]
    boxes += [panel.bbox for panel in figure.axes] + [figure.legends[0].get_window_extent()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(figure.bbox.containsx(x) for box in boxes for x in (box.x0, box.x1))


def test_reports_hold_every_number(found, tmp_path):
    write(TINY, found, tmp_path / "new" / "folder")
    report = json.loads((tmp_path / "new" / "folder" / "lasso_rates.json").read_text())
    assert report["study"]["repetitions"] == 2
    assert "constants do not apply" in report["study"]["caveat"]
    assert len(report["measured"]) == 6
    for family, rate in report["rates"].items():
        own = [m for m in report["measured"] if m["family"] == family]
        expected = fit_rate([m["rows"] for m in own], [m["excess"] for m in own])
        assert rate["slope"] == expected.slope
        assert rate["noise_lower"] == expected.noise_lower


def test_figures_are_the_same_each_time(found, tmp_path):
    for name in ("one", "two"):
        write(TINY, found, tmp_path / name)
    for file in ("lasso_rates.svg", "lasso_rates.png", "lasso_rates.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_private_lasso_learns():
    """With a budget so large that the noise is small, most of what can be gained is gained."""
    measured = measure(gaussian_problem(3000), fit_private_lasso, epsilon=100.0, repetitions=2)
    assert max(measured.excess) < 0.3 * measured.zero


def test_the_program_writes_its_report(tmp_path):
    words = ["--fast", "--repetitions", "30", "--epsilon", "2", "--out", "report"]
    done = subprocess.run(
        [sys.executable, "-m", "epsilearn.studies.lasso_rates", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Written to report" in done.stdout
    names = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert names == ["lasso_rates.json", "lasso_rates.png", "lasso_rates.svg"]
    report = json.loads((tmp_path / "report" / "lasso_rates.json").read_text())
    assert (report["study"]["epsilon"], report["study"]["repetitions"]) == (2.0, 3)
    assert [m["rows"] for m in report["measured"]] == [138, 1044, 4126, 1000, 3162, 10_000]
    assert all(excess > 0 for m in report["measured"] for excess in m["excess"])


def test_the_program_refuses_wrong_numbers(monkeypatch):
    monkeypatch.setattr(lasso_rates, "run", lambda study: pytest.fail("ran"))
    with pytest.raises(lasso_rates.typer.BadParameter, match="largest must be at most 10, got 11"):
        lasso_rates.main(largest=11)
