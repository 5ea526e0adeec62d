"""Noise added to numbers: Laplace, K-norm and Gaussian."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import GaussianShift, LaplaceShift, Pure
from epsilearn.balls import round_up
from epsilearn.calibration.additive import gaussian_scale, laplace_scale, most_sensitivity
from epsilearn.checks import check_budget, check_integer
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import FAIR_BITS, NoiseLaw, Release, Spender, spending
from epsilearn.mechanisms.tape import answered
from epsilearn.mechanisms.values import Values, as_values
from epsilearn.noise.bits import BitSource
from epsilearn.noise.door import check_scale, grid_of, prepare, release

__all__ = ["add_noise", "gaussian", "k_norm", "laplace", "noisy_numbers", "prepare_noise"]


def laplace(
    value: Any,
    *,
    sensitivity: float,
    epsilon: float,
    rows_per_person: int = 1,
    grid: int | None = None,
    assumptions: tuple[str, ...] = (),
    ledger: Spender | None = None,
    purpose: str = "laplace",
    random_state: int | BitSource | None = None,
) -> Release:
    """Add Laplace noise: a pure promise for a number, or for a vector of known l1 sensitivity.

    Parameters
    ----------
    value : number, or sequence of numbers
        The exact value. Integers and fractions of any size are taken exactly.
    sensitivity : float
        How far ``value`` can move (in the l1 norm) when one record is replaced. Declared, never estimated.
    epsilon : float
        The budget.
    rows_per_person : int
        How many records one person may have.
    grid : int, optional
        Release multiples of ``2**grid``, no finer than the default. 0 gives whole numbers.
    assumptions : tuple of str, optional
        What the declared sensitivity rests on, for the guarantee; by default it just states the sensitivity.
    ledger : Ledger, optional
        Debited before any noise is drawn.
    purpose : str
        Written into the ledger.
    random_state : int, optional
        For tests and studies; voids the promise.

    Returns
    -------
    Release

    Examples
    --------
    >>> import epsilearn
    >>> release = epsilearn.laplace(42, sensitivity=1, epsilon=0.5)
    >>> print(release.guarantee)
    epsilon = 0.5, per record, replace-one
    >>> release.noise.scale
    2.0
    """
    values, shape = as_values(value)
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    epsilon, _ = check_budget(epsilon)
    scale = check_scale(laplace_scale(sensitivity, epsilon, rows_per_person))
    curve = LaplaceShift(epsilon) if len(values) == 1 else Pure(epsilon)
    promise = Guarantee(
        epsilon,
        mechanism="Laplace mechanism",
        theorem="Laplace mechanism, l1 sensitivity",
        assumptions=_assumptions(sensitivity, "l1", assumptions),
        rows_per_person=rows_per_person,
        curve=curve,
    )
    law = NoiseLaw("laplace", scale)
    return _add(values, shape, law, promise, grid, ledger, purpose, random_state)


def k_norm(
    value: Any,
    *,
    sensitivity: float,
    epsilon: float,
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
    ledger: Spender | None = None,
    purpose: str = "k-norm",
    random_state: int | BitSource | None = None,
) -> Release:
    """Add noise of density proportional to exp(-||z||_2 / scale): a pure promise for a vector.

    The norm of the noise is Gamma(d, sensitivity / epsilon) distributed and its direction uniform. For more than
    one coordinate this is less noise than Laplace's on the l1 sensitivity.

    Parameters
    ----------
    value : sequence of numbers
        The exact value.
    sensitivity : float
        How far ``value`` can move in the l2 norm when one record is replaced. Declared, never estimated.

    Returns
    -------
    Release

    See Also
    --------
    laplace : explains the other parameters.

    Examples
    --------
    >>> import epsilearn
    >>> release = epsilearn.k_norm([0.1, 0.2, 0.3], sensitivity=0.01, epsilon=1.0)
    >>> release.value.shape, round(release.noise.deviation, 4)
    ((3,), 0.02)
    """
    values, shape = as_values(value)
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    epsilon, _ = check_budget(epsilon)
    scale = check_scale(laplace_scale(sensitivity, epsilon, rows_per_person))
    promise = Guarantee(
        epsilon,
        mechanism="K-norm mechanism",
        theorem="K-norm mechanism, l2 sensitivity",
        assumptions=_assumptions(sensitivity, "l2", assumptions),
        rows_per_person=rows_per_person,
    )
    law = NoiseLaw("k-norm", scale, len(values))
    return _add(values, shape, law, promise, None, ledger, purpose, random_state)


def gaussian(
    value: Any,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    rows_per_person: int = 1,
    grid: int | None = None,
    assumptions: tuple[str, ...] = (),
    ledger: Spender | None = None,
    purpose: str = "gaussian",
    random_state: int | BitSource | None = None,
) -> Release:
    """Add Gaussian noise by the exact calibration: an (epsilon, delta) promise for a number or vector.

    Parameters
    ----------
    value : number, or sequence of numbers
        The exact value.
    sensitivity : float
        How far ``value`` can move in the l2 norm when one record is replaced. Declared, never estimated.
    delta : float
        Above 0: Gaussian noise is never pure.

    Returns
    -------
    Release

    See Also
    --------
    laplace : explains the other parameters.

    Examples
    --------
    >>> import epsilearn
    >>> release = epsilearn.gaussian([1.0, 2.0], sensitivity=1.0, epsilon=1.0, delta=1e-6)
    >>> round(release.noise.scale, 3)
    4.225
    """
    values, shape = as_values(value)
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    epsilon, delta = check_budget(epsilon, delta)
    scale = check_scale(gaussian_scale(sensitivity, epsilon, delta, rows_per_person))
    shift = round_up(most_sensitivity(sensitivity, rows_per_person) / Fraction(scale))
    promise = Guarantee(
        epsilon,
        delta,
        mechanism="Gaussian mechanism",
        theorem="analytic Gaussian mechanism, l2 sensitivity",
        assumptions=_assumptions(sensitivity, "l2", assumptions),
        rows_per_person=rows_per_person,
        curve=GaussianShift(shift),
    )
    law = NoiseLaw("gaussian", scale)
    return _add(values, shape, law, promise, grid, ledger, purpose, random_state)


def add_noise(values: Any, law: NoiseLaw, source: BitSource) -> NDArray[np.float64]:
    """Numbers plus noise of a law, through the door; whoever calls has debited for it."""
    numbers, shape = as_values(values)
    return noisy_numbers(numbers, law, source, grid_of(law.deviation)).reshape(shape)


def noisy_numbers(values: Values | list[Fraction], law: NoiseLaw, source: BitSource, grid: int) -> NDArray[np.float64]:
    """Numbers plus noise of a law, rounded to a multiple of ``2**grid``; the one place where noise meets numbers."""
    return answered(
        source, "additive", (law, grid), lambda: values,
        lambda: release(values, law.radius(source), law.quantile, source, grid),
    )  # fmt: skip


def prepare_noise(count: int, law: NoiseLaw) -> None:
    """Load what `add_noise` of so many numbers will need, before anything is debited; refuse what cannot be carried."""
    check_scale(law.scale)
    prepare(count, law.quantile)


def _add(
    values: Values,
    shape: tuple[int, ...],
    law: NoiseLaw,
    promise: Guarantee,
    grid: int | None,
    ledger: Spender | None,
    purpose: str,
    random_state: int | BitSource | None,
) -> Release:
    grid = _grid(law, grid)
    law = replace(law, step=2.0**grid)
    prepare(len(values), law.quantile)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        noisy = noisy_numbers(values, law, source, grid)
        return Release(float(noisy[0]) if shape == () else noisy.reshape(shape), stamped, law)


def _grid(law: NoiseLaw, wanted: int | None) -> int:
    """The caller's grid, or the noise's own. Coarser is post-processing; finer would be pointless."""
    own = grid_of(law.deviation)
    if wanted is None:
        return own
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not -800 <= wanted <= 800:
        raise InvalidInput(f"grid must be a whole number between -800 and 800, got {wanted!r}")
    return max(wanted, own)


def _assumptions(sensitivity: float, norm: str, stated: tuple[str, ...] = ()) -> tuple[str, ...]:
    declared = (f"the value's {norm} sensitivity is at most {float(sensitivity):g}",)
    return ("n is public", *(stated or declared), FAIR_BITS)
