from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from epsilearn import Ledger, statistics
from epsilearn.errors import InvalidInput

AGES = [31, 45, 62, 70, 18, 90]
HOMES = {
    "list": list,
    "tuple": tuple,
    "numpy int": np.array,
    "numpy float32": lambda v: np.array(v, np.float32),
    "pandas": pd.Series,
    "pandas nullable": lambda v: pd.Series(v, dtype="Int64"),
    "pandas arrow": lambda v: pd.Series(v, dtype="int64[pyarrow]"),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow chunked": lambda v: pa.chunked_array([v[:2], v[2:]]),
    "decimal": lambda v: pa.array(v).cast(pa.decimal128(25, 2)),
}
# So much budget that the noise disappears: what is left is the statistic itself.
LOUD = {"epsilon": 1e9}


@pytest.mark.parametrize("home", HOMES)
def test_every_home_gives_the_same_numbers(home):
    column = HOMES[home](AGES)
    assert statistics.sum(column, bounds=(0, 120), **LOUD).value == pytest.approx(316, abs=1e-3)
    assert statistics.mean(column, bounds=(0, 120), **LOUD).value == pytest.approx(np.mean(AGES), abs=1e-3)
    assert statistics.variance(column, bounds=(0, 120), **LOUD).value == pytest.approx(np.var(AGES), abs=1e-2)
    assert statistics.quantile(column, 0.5, bounds=(0, 120), candidates=121, **LOUD).value in range(45, 63)
    assert statistics.histogram(column, edges=[0, 40, 60, 120], **LOUD).value.tolist() == [2, 1, 3]


@pytest.mark.parametrize("home", [list, np.array, pd.Series, pl.Series, pa.array])
def test_labels_and_flags_from_every_home(home):
    labels = home(["a", "b", "a", "c"])
    assert statistics.histogram(labels, categories=["c", "a", "b", "d"], **LOUD).value.tolist() == [1, 2, 1, 0]
    assert statistics.count(home([True, False, True, True]), **LOUD).value == 3
    assert statistics.count(home([1, 0, 1, 1]), **LOUD).value == 3


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["a", "b", "a"], dtype="category"),
        pl.Series(["a", "b", "a"], dtype=pl.Categorical),
        pl.Series(["a", "b", "a"], dtype=pl.Enum(["a", "b"])),
        pa.array(["a", "b", "a"]).dictionary_encode(),
    ],
    ids=["pandas", "polars categorical", "polars enum", "arrow dictionary"],
)
def test_categorical_columns(column):
    assert statistics.histogram(column, categories=["a", "b"], **LOUD).value.tolist() == [2, 1]


def test_one_value_does_not_retype_the_others():
    """numpy turns [1, 1, "1"] into text: one record would move all the others."""
    first = statistics.histogram([1] * 1000, categories=[1, "1"], **LOUD).value
    second = statistics.histogram([1] * 999 + ["1"], categories=[1, "1"], **LOUD).value
    assert first.tolist() == [1000, 0]
    assert second.tolist() == [999, 1]


def test_masked_values_are_missing():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    with pytest.raises(InvalidInput, match="masked"):
        statistics.sum(masked, bounds=(0, 5))
    whole = np.ma.array([1.0, 2.0, 3.0])
    assert statistics.sum(whole, bounds=(0, 5), **LOUD).value == pytest.approx(6, abs=1e-3)


@pytest.mark.parametrize("name", ["sum", "mean", "variance"])
def test_results_beyond_doubles_are_refused_before_the_debit(name, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    with pytest.raises(InvalidInput, match="noise scale"):
        getattr(statistics, name)([1.0, 2.0], bounds=(0, 1e130), epsilon=1e-200, ledger=ledger)
    assert ledger.history() == []


def test_guarantees_speak_of_the_columns_own_bounds():
    promise = statistics.sum([1.0], bounds=(0, 120)).guarantee
    assert "values are clipped to [0, 120], which is public" in promise.assumptions


def test_the_package_shows_what_it_has():
    import epsilearn

    assert epsilearn.statistics is statistics
    assert "laplace" in dir(epsilearn)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = epsilearn.nonsense


def test_values_are_clipped_silently(recwarn):
    assert statistics.sum([-1e9, 50.0, 1e300], bounds=(0, 100), **LOUD).value == pytest.approx(150, abs=1e-3)
    assert not recwarn


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.0, 5.0), (10.0, 11.0), (-7.5, -2.5)])
def test_sensitivities_by_brute_force(bounds):
    """Replace one record by any other: the exact statistic moves by at most the declared sensitivity, and can."""
    generator = np.random.default_rng(0)
    epsilon, n = 1.0, 5
    extremes = [bounds[0], bounds[1], sum(bounds) / 2]
    moved = {"sum": 0.0, "mean": 0.0, "variance": 0.0}
    for rest in [generator.uniform(*bounds, n - 1), np.full(n - 1, bounds[0]), np.full(n - 1, bounds[1])]:
        for one, other in itertools.product(extremes, repeat=2):
            first, second = np.append(rest, one), np.append(rest, other)
            for name, function in (("sum", np.sum), ("mean", np.mean), ("variance", np.var)):
                moved[name] = max(moved[name], abs(function(first) - function(second)))
    for name, worst in moved.items():
        scale = getattr(statistics, name)(np.full(n, bounds[0]), bounds=bounds, epsilon=epsilon).noise.scale
        assert worst <= scale * (1 + 1e-9)
        assert worst > 0.95 * scale  # 5 % less noise would break the promise


@pytest.mark.parametrize(("bounds", "sensitivity"), [((0, 10), 10), ((5, 10), 10), ((-3, 4), 7), ((-9, -2), 9)])
def test_null_records_widen_the_bounds_to_zero(bounds, sensitivity):
    """A record that leaves the part goes to 0, not to the lower bound."""
    release = statistics.sum([bounds[0]] * 4, bounds=bounds, where=[True, False, True, False], epsilon=1.0)
    assert release.noise.scale == pytest.approx(sensitivity)
    assert release.guarantee.null_records
    assert statistics.sum([5.0] * 4, bounds=(0, 9), where=[1, 0, 0, 1], **LOUD).value == pytest.approx(10, abs=1e-3)


def test_numbers_beyond_doubles_are_clipped_like_others():
    column = [1, 2, 2**70, -(10**400)]
    assert statistics.sum(column, bounds=(0, 10), **LOUD).value == pytest.approx(13, abs=1e-3)


def test_noise_beyond_integers_saturates():
    counts = statistics.histogram(["a", "b"], categories=["a", "b"], epsilon=1e-25).value
    assert (np.abs(counts) <= 2**62).all()
    assert counts[0] != counts[1] or abs(counts[0]) == 2**62


def test_sums_are_exact_integers_on_the_grid():
    """A float sum of these depends on the order of the rows; the released one must not."""
    column = np.array([1e-3, 1e12, -1e12, 1e-3] * 1000)
    released = [
        statistics.sum(np.random.default_rng(s).permutation(column), bounds=(-1e12, 1e12), random_state=7).value
        for s in range(5)
    ]
    assert len(set(released)) == 1


def test_squares_do_not_overflow():
    column = np.full(3_000_000, 2.0**40 - 1)
    column[0] = -(2.0**40) + 1
    n = len(column)
    exact = 4 * (2.0**40 - 1) ** 2 * (n - 1) / n**2
    assert statistics.variance(column, bounds=(-(2.0**40), 2.0**40), **LOUD).value == pytest.approx(exact, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "law"),
    [
        ("sum", {"bounds": (0, 2)}, stats.laplace(0, 4)),
        ("sum", {"bounds": (0, 2), "delta": 1e-6}, stats.norm(0, 2 * 8.058)),
    ],
)
def test_noise_is_what_is_promised(name, options, law):
    noise = [getattr(statistics, name)([0.0], epsilon=0.5, random_state=s, **options).value for s in range(10_000)]
    assert stats.kstest(noise, law.cdf).pvalue > 1e-3
    assert stats.kstest(0.9 * np.array(noise), law.cdf).pvalue < 1e-3


def test_the_lectures_noisy_sum():
    """Sum of bits at epsilon = 0.1: deviation 14.1, 95 % within 30.0; Chebyshev's bound is 63.2."""
    noise = statistics.sum([0, 1, 1], bounds=(0, 1), epsilon=0.1).noise
    assert noise.deviation == pytest.approx(14.14, abs=0.01)
    assert noise.half_width(0.95) == pytest.approx(29.96, abs=0.01)
    assert math.sqrt(2 / 0.1**2 / 0.05) == pytest.approx(63.2, abs=0.1)


def test_counts_and_histograms_are_whole_numbers():
    assert isinstance(statistics.count([True, False]).value, int)
    assert statistics.histogram([1.0, 2.0], edges=[0, 1, 2]).value.dtype == np.int64
    assert statistics.histogram([1.0], edges=[0, 1, 2], delta=1e-6).noise.kind == "gaussian"


def test_a_histogram_with_a_part():
    release = statistics.histogram(["a", "b", "a"], categories=["a", "b"], where=[True, True, False], **LOUD)
    assert release.value.tolist() == [1, 1]
    assert release.guarantee.null_records


def test_histogram_bins_take_what_lies_outside():
    assert statistics.histogram([-5.0, 0.0, 1.0, 2.0, 99.0], edges=[0, 1, 2], **LOUD).value.tolist() == [2, 3]


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantiles_land_close(q):
    column = np.random.default_rng(0).normal(50, 10, 20_000)
    found = statistics.quantile(column, q, bounds=(0, 100), epsilon=1.0).value
    assert abs(stats.norm(50, 10).cdf(found) - q) < 0.01


def test_quantile_scores_have_sensitivity_one():
    generator = np.random.default_rng(1)
    candidates = np.linspace(0, 1, 11)

    def scores(values: np.ndarray, q: float) -> np.ndarray:
        below, upto = (values[:, None] < candidates).sum(0), (values[:, None] <= candidates).sum(0)
        target = round(2 * q * len(values)) / 2
        return -np.maximum(np.maximum(below - target, target - upto), 0)

    for _ in range(500):
        values = generator.choice(candidates, 7)
        other = values.copy()
        other[0] = generator.choice(candidates)
        assert np.abs(scores(values, 0.3) - scores(other, 0.3)).max() <= 1


def test_own_candidates():
    assert statistics.quantile([1, 2, 3], 0.5, bounds=(0, 5), candidates=[2.0, 4.0], **LOUD).value == 2.0


CALLS = {
    "sum": lambda column, **o: statistics.sum(column, bounds=(0, 1), **o),
    "mean": lambda column, **o: statistics.mean(column, bounds=(0, 1), **o),
    "variance": lambda column, **o: statistics.variance(column, bounds=(0, 1), **o),
    "histogram": lambda column, **o: statistics.histogram(column, edges=[0, 1], **o),
    "quantile": lambda column, **o: statistics.quantile(column, bounds=(0, 1), **o),
}
SECRET = 123456.789


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "column",
    [
        [0.5, math.nan],
        [0.5, math.inf],
        [0.5, None],
        [],
        ["x", "y"],
        [[1.0, 2.0]],
        "text",
        None,
        3.0,
        pa.array([1, None]),
        pl.Series([1.0, None]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"])),
        [SECRET, math.nan],
    ],
    ids=range(14),
)
def test_bad_columns_cost_nothing_and_quote_nothing(name, column, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    with pytest.raises(InvalidInput) as caught:
        CALLS[name](column, ledger=ledger, epsilon=0.5)
    assert ledger.history() == []
    assert "123456" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "bounds", [(1, 0), (1, 1), (0, math.inf), (math.nan, 1), (0,), 5, None, ("0", "1"), (0, 1e300), (-1.7e308, 1.7e308)]
)
@pytest.mark.parametrize("name", ["sum", "mean", "variance"])
def test_bad_bounds(name, bounds):
    with pytest.raises(InvalidInput, match="bound"):
        getattr(statistics, name)([0.5, 0.6], bounds=bounds)


def test_bounds_are_never_inferred():
    for name in ("sum", "mean", "variance", "quantile"):
        with pytest.raises(TypeError, match="bounds"):
            getattr(statistics, name)([0.5])


def test_other_bad_arguments():
    with pytest.raises(InvalidInput, match="closer than"):
        statistics.sum([1.0], bounds=(1e9, 1e9 + 1e-6))
    with pytest.raises(InvalidInput, match="one row"):
        statistics.variance([1.0], bounds=(0, 2))
    with pytest.raises(InvalidInput, match="edges"):
        statistics.histogram([1.0], edges=[2, 1])
    with pytest.raises(InvalidInput, match="either edges"):
        statistics.histogram([1.0])
    with pytest.raises(InvalidInput, match="categories"):
        statistics.histogram(["a"], categories=["b"])
    with pytest.raises(InvalidInput, match="categories"):
        statistics.histogram(["a"], categories=["a", "a"])
    with pytest.raises(InvalidInput, match="true/false"):
        statistics.count(["yes", "no"])
    with pytest.raises(InvalidInput, match="rows"):
        statistics.sum([1.0], bounds=(0, 1), where=[True, False])
    with pytest.raises(InvalidInput, match="q must"):
        statistics.quantile([1.0], 1.5, bounds=(0, 1))
    with pytest.raises(InvalidInput, match="candidates"):
        statistics.quantile([1.0], bounds=(0, 1), candidates=1)
    with pytest.raises(InvalidInput, match="private"):
        statistics.variance([1.0, 2.0], bounds=(0, 1), where=[True, False])
