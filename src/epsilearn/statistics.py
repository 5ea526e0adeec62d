"""Private counts, sums, means, variances, histograms and quantiles of one column.

Bounds are public and values are clipped to them. Each clipped value is rounded to a public grid of 2**40 steps and
summed as an integer, so the sum is exact and its sensitivity is exactly what the bounds say: no rounding error
can carry information past the noise. ``delta = 0`` adds Laplace noise, ``delta > 0`` Gaussian.
"""

from __future__ import annotations

import math
from builtins import sum as builtin_sum
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.checks import check_bounds, check_budget, check_integer, check_probability
from epsilearn.columns import as_booleans, as_labels, as_numbers
from epsilearn.errors import InvalidInput
from epsilearn.mechanisms import Release, exponential, gaussian, laplace
from epsilearn.mechanisms.release import Spender
from epsilearn.quiet import quietly

__all__ = ["count", "histogram", "mean", "quantile", "sum", "variance"]

_GRID_BITS = 40
_CHUNK = 1 << 20
_DEFAULT_CANDIDATES = 1024
_MOST_CANDIDATES = 10_000_000


@dataclass(frozen=True)
class _Budget:
    """Everything a statistic passes on to its mechanism."""

    epsilon: float
    delta: float
    rows_per_person: int
    ledger: Spender | None
    purpose: str
    random_state: int | None

    def add(
        self, value: Any, l1: float, l2: float, stated: str, *, grid: int | None = None, unit: Fraction = Fraction(1)
    ) -> Release:
        """``value`` plus Laplace or Gaussian noise for these sensitivities; ``unit`` is what the value counts in."""
        epsilon, delta = check_budget(self.epsilon, self.delta)
        rows_per_person = check_integer("rows_per_person", self.rows_per_person)
        _check_range(Fraction(l1) * unit * rows_per_person / Fraction(epsilon))
        common: dict[str, Any] = {
            "epsilon": epsilon,
            "rows_per_person": rows_per_person,
            "ledger": self.ledger,
            "purpose": self.purpose,
            "random_state": self.random_state,
            "grid": grid,
            "assumptions": (stated,),
        }
        if delta == 0:
            return laplace(value, sensitivity=l1, **common)
        return gaussian(value, sensitivity=l2, delta=delta, **common)


def _check_range(scale: Fraction) -> None:
    """Refuse, before anything is spent, what doubles could not carry once it is back in the column's unit."""
    if not Fraction(10) ** -230 <= scale <= Fraction(10) ** 230:
        raise InvalidInput(
            "the noise scale would be outside 1e-230 … 1e230: choose another budget, or rescale the column"
        )


def count(
    condition: Any,
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "count",
    random_state: int | None = None,
) -> Release:
    """How many rows satisfy a condition.

    Parameters
    ----------
    condition : column of true/false
        One for each row.
    epsilon : float
        The budget.
    delta : float
        0 is pure and adds Laplace noise; more adds Gaussian.
    rows_per_person : int
        How many records one person may have.
    ledger : Ledger, optional
        Debited before any noise is drawn.
    purpose : str
        Written into the ledger.
    random_state : int, optional
        For tests and studies; voids the promise.

    Returns
    -------
    Release
        ``value`` is a whole number. It can be negative: clip it if that bothers you.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import statistics
    >>> ages = np.array([31, 45, 62, 70])
    >>> release = statistics.count(ages > 60, epsilon=0.5)
    >>> release.guarantee.epsilon, release.noise.scale
    (0.5, 2.0)
    """
    flags = as_booleans(condition, "condition")
    budget = _Budget(epsilon, delta, rows_per_person, ledger, purpose, random_state)
    released = budget.add(int(flags.sum()), 1, 1, "each record is counted or not", grid=0)
    # A row that does not count is a null record: n rows go in, whatever part of them is asked about.
    guarantee = replace(released.guarantee, null_records=True)
    return replace(released, value=int(released.value), guarantee=guarantee)


def sum(
    column: Any,
    *,
    bounds: tuple[float, float],
    where: Any = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "sum",
    random_state: int | None = None,
) -> Release:
    """The sum of a column whose values are clipped to public bounds.

    Parameters
    ----------
    column : column of numbers
    bounds : (lower, upper)
        Public. Values outside are clipped, silently: how many is private.
    where : column of true/false, optional
        Sum only these rows. The others stay as null records worth 0, so that the size of the part stays private;
        the sensitivity is then that of a value in the bounds or 0.

    See Also
    --------
    count : explains the other parameters.

    Examples
    --------
    >>> from epsilearn import statistics
    >>> release = statistics.sum([20.0, 30.0, 250.0], bounds=(0, 120), epsilon=1.0)
    >>> release.noise.scale
    120.0
    """
    units, unit, low, high = _on_grid(column, bounds)
    if where is not None:
        units = np.where(_same_length(as_booleans(where, "where"), units), units, 0)
        low, high = min(low, 0), max(high, 0)
    budget = _Budget(epsilon, delta, rows_per_person, ledger, purpose, random_state)
    released = budget.add(_exact_sum(units), high - low, high - low, _clipped(bounds), unit=unit)
    return _rescaled(released, unit, null_records=where is not None)


def mean(
    column: Any,
    *,
    bounds: tuple[float, float],
    where: Any = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "mean",
    random_state: int | None = None,
) -> Release:
    """The mean of a column whose values are clipped to public bounds; n is public.

    Parameters
    ----------
    column : column of numbers
    bounds : (lower, upper)
        Public. Values outside are clipped, silently.
    where : None
        Refused: the mean of a part divides by its size, which is private.

    Returns
    -------
    Release

    See Also
    --------
    count : explains the other parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import statistics
    >>> release = statistics.mean(np.full(1000, 40.0), bounds=(0, 120), epsilon=1.0)
    >>> round(release.noise.scale, 6)
    0.12
    """
    _refuse_parts(where, "mean")
    units, unit, low, high = _on_grid(column, bounds)
    budget = _Budget(epsilon, delta, rows_per_person, ledger, purpose, random_state)
    released = budget.add(_exact_sum(units), high - low, high - low, _clipped(bounds), unit=unit / len(units))
    return _rescaled(released, unit / len(units))


def variance(
    column: Any,
    *,
    bounds: tuple[float, float],
    where: Any = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "variance",
    random_state: int | None = None,
) -> Release:
    """The population variance (divisor n) of a column clipped to public bounds; never below 0.

    Replacing one record moves it by at most (n - 1) / n**2 * (upper - lower)**2: as a function of one value it is a
    parabola around the mean of the others.

    Parameters
    ----------
    column : column of numbers
    bounds : (lower, upper)
        Public. Values outside are clipped, silently.
    where : None
        Refused, as for the mean.

    Returns
    -------
    Release

    See Also
    --------
    count : explains the other parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import statistics
    >>> release = statistics.variance(np.arange(1000.0), bounds=(0, 999), epsilon=1.0)
    >>> bool(release.value >= 0)
    True
    """
    _refuse_parts(where, "variance")
    units, unit, low, high = _on_grid(column, bounds)
    n = len(units)
    if n == 1:
        raise InvalidInput("the variance of one row is 0 by definition; there is nothing to release")
    total, squares = _exact_sum(units), _exact_sum_of_squares(units)
    sensitivity = (n - 1) * (high - low) ** 2
    budget = _Budget(epsilon, delta, rows_per_person, ledger, purpose, random_state)
    # Group privacy for k records: k replacements, each within the one-record bound.
    unit = unit**2 / n**2
    released = budget.add(n * squares - total**2, sensitivity, sensitivity, _clipped(bounds), unit=unit)
    scaled = _rescaled(released, unit)
    return replace(scaled, value=max(0.0, scaled.value))


def histogram(
    column: Any,
    *,
    edges: Any = None,
    categories: list[Any] | None = None,
    where: Any = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "histogram",
    random_state: int | None = None,
) -> Release:
    """Counts for public bins or public categories.

    Parameters
    ----------
    column : column of numbers (with ``edges``) or of any values (with ``categories``)
    edges : increasing numbers, optional
        Bin i holds edges[i] <= value < edges[i+1]; the last bin includes its upper edge. Values outside fall into
        the nearest bin.
    categories : list, optional
        Every value that may occur; another one is an error.
    where : column of true/false, optional
        Count only these rows.

    See Also
    --------
    count : explains the other parameters.

    Notes
    -----
    A replaced record leaves one bin and enters another: l1 sensitivity 2, l2 sensitivity sqrt(2).

    Examples
    --------
    >>> from epsilearn import statistics
    >>> statistics.histogram(["a", "b", "a"], categories=["a", "b", "c"], epsilon=1.0).value.shape
    (3,)
    """
    if (edges is None) == (categories is None):
        raise InvalidInput("give either edges (for numbers) or categories (for labels)")
    labels, bins = _binned(column, edges) if categories is None else _labelled(column, categories)
    if where is not None:
        labels = labels[_same_length(as_booleans(where, "where"), labels)]
    counts = [int(c) for c in np.bincount(labels, minlength=bins)]
    budget = _Budget(epsilon, delta, rows_per_person, ledger, purpose, random_state)
    released = budget.add(counts, 2, math.nextafter(math.sqrt(2), 2), "each record is in one bin", grid=0)
    guarantee = replace(released.guarantee, null_records=where is not None)
    limit = 2.0**62  # beyond this, noise says nothing about a count anyway
    return replace(released, value=np.clip(released.value, -limit, limit).astype(np.int64), guarantee=guarantee)


def quantile(
    column: Any,
    q: float = 0.5,
    *,
    bounds: tuple[float, float],
    candidates: Any = _DEFAULT_CANDIDATES,
    epsilon: float = 1.0,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    purpose: str = "quantile",
    random_state: int | None = None,
) -> Release:
    """A quantile, chosen by the exponential mechanism from a public grid.

    Parameters
    ----------
    column : column of numbers
    q : float
        Between 0 and 1; 0.5 is the median.
    bounds : (lower, upper)
        Public; values are clipped.
    candidates : int or array of float
        How many evenly spaced candidates, or the candidates themselves. Public.

    See Also
    --------
    count : explains the other parameters.

    Notes
    -----
    A candidate's score is minus its distance in rank from the quantile; one replaced record moves it by at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import statistics
    >>> release = statistics.quantile(np.arange(10_000.0), 0.5, bounds=(0, 10_000), epsilon=1.0)
    >>> bool(4000 < release.value < 6000)
    True
    """
    check_probability("q", q)
    low, high = check_bounds(bounds)
    grid = _candidates(candidates, low, high)
    chosen = exponential(
        _rank_scores(np.clip(as_numbers(column), low, high), q, grid),
        sensitivity=1.0,
        epsilon=epsilon,
        rows_per_person=rows_per_person,
        ledger=ledger,
        purpose=purpose,
        random_state=random_state,
    )
    return replace(chosen, value=float(grid[chosen.value]))


@quietly()
def _rank_scores(values: NDArray[np.float64], q: float, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minus each candidate's distance in rank from the quantile."""
    values = np.sort(values)
    # A rank in halves is exact in doubles, so the scores' sensitivity is exactly 1.
    target = round(2 * q * len(values)) / 2
    below, upto = np.searchsorted(values, grid, "left"), np.searchsorted(values, grid, "right")
    scores: NDArray[np.float64] = -np.maximum(np.maximum(below - target, target - upto), 0.0)
    return scores


@quietly()
def _on_grid(column: Any, bounds: tuple[float, float]) -> tuple[NDArray[np.int64], Fraction, int, int]:
    """Clipped values as integers, the unit they count, and the bounds in that unit."""
    low, high = check_bounds(bounds)
    largest = max(abs(low), abs(high))
    exponent = math.frexp(largest)[1] - _GRID_BITS
    if not -450 < exponent < 450:
        raise InvalidInput(f"bounds ({low}, {high}) are too large or too small for doubles; rescale the column")
    unit = 2.0**exponent
    units = np.rint(np.clip(as_numbers(column), low, high) / unit).astype(np.int64)
    lowest, highest = int(np.rint(low / unit)), int(np.rint(high / unit))
    if lowest == highest:
        raise InvalidInput(f"bounds ({low}, {high}) are closer than one part in 2**40 of their size; shift the column")
    return units, Fraction(unit), lowest, highest


def _clipped(bounds: tuple[float, float]) -> str:
    return f"values are clipped to [{bounds[0]:g}, {bounds[1]:g}], which is public"


def _exact_sum(units: NDArray[np.int64]) -> int:
    """The sum as a Python integer: 2**20 values of 2**41 cannot overflow 64 bits."""
    return builtin_sum(int(units[i : i + _CHUNK].sum()) for i in range(0, len(units), _CHUNK))


def _exact_sum_of_squares(units: NDArray[np.int64]) -> int:
    """As above, with each value cut into halves so that no product overflows."""
    high, low = units >> 20, units & ((1 << 20) - 1)
    parts = ((high * high, 40), (2 * high * low, 20), (low * low, 0))
    return builtin_sum(_exact_sum(part) << shift for part, shift in parts)


def _rescaled(released: Release, unit: Fraction, null_records: bool = False) -> Release:
    """From integer units back to the column's own."""
    assert released.noise is not None
    return Release(
        float(Fraction(released.value) * unit),
        replace(released.guarantee, null_records=null_records),
        released.noise.times(float(unit)),
    )


@quietly()
def _binned(column: Any, edges: Any) -> tuple[NDArray[np.int64], int]:
    limits = as_numbers(edges, "edges")
    if len(limits) < 2 or not (limits[1:] > limits[:-1]).all():
        raise InvalidInput("edges must be at least two increasing numbers")
    labels = np.searchsorted(limits, as_numbers(column), "right") - 1
    return np.clip(labels, 0, len(limits) - 2), len(limits) - 1


def _labelled(column: Any, categories: list[Any]) -> tuple[NDArray[np.int64], int]:
    return as_labels(column, list(categories)), len(categories)


def _candidates(candidates: Any, low: float, high: float) -> NDArray[np.float64]:
    if np.ndim(candidates) == 0:
        number = check_integer("candidates", candidates, least=2)
        if number > _MOST_CANDIDATES:
            raise InvalidInput(f"candidates must be at most {_MOST_CANDIDATES}, so that all of them can be scored")
        # The last one may be rounded beyond the doubles, and is the upper bound all the same.
        with np.errstate(over="ignore"):
            return np.linspace(low, high, number)
    return np.unique(as_numbers(candidates, "candidates"))


def _same_length(flags: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.bool_]:
    if len(flags) != len(values):
        raise InvalidInput(f"where has {len(flags)} rows and the column {len(values)}; they must be the same")
    return flags


def _refuse_parts(where: Any, name: str) -> None:
    if where is not None:
        raise InvalidInput(
            f"the {name} of a part divides by the part's size, which is private; release sum(where=...) and "
            "count(...) and divide them, or pass the part as a column of its own if its size is public"
        )
