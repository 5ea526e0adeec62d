"""The Gaussian process mechanism: a whole function released for one (epsilon, delta).

After Hall, Rinaldo and Wasserman (2013). Proof, including adaptively chosen points and floats:
``docs/theory/process.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import GaussianShift
from epsilearn.balls import ball, precision, round_up
from epsilearn.calibration.additive import gaussian_shift, most_sensitivity
from epsilearn.checks import check_budget, check_integer, check_positive
from epsilearn.errors import InvalidInput, StateError
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import FAIR_BITS, NoiseLaw, Release, Spender, spending
from epsilearn.mechanisms.selection import LiveMechanism
from epsilearn.noise.bits import BitSource
from epsilearn.noise.correlated import Normals
from epsilearn.noise.door import check_scale, check_values, grid_of

__all__ = ["GaussianProcess"]

Kernel = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]


class GaussianProcess(LiveMechanism):
    """Release a function's values at any points, as many as the cap allows, for one budget.

    Parameters
    ----------
    kernel : callable
        ``kernel(A, B)`` gives the matrix of kernel values between the rows of A and of B. Public.
    sensitivity : float
        How far the function can move in the kernel's norm when one record is replaced.
    epsilon, delta : float
        The budget of the whole session.
    max_points : int
        A public cap on the number of distinct points.
    kernel_bound : float
        A public bound on ``kernel(z, z)``. Larger values are an error: points are public.
    kernel_error, value_error : float
        Public bounds on the rounding error of one kernel value (by default 1e-14 times the bound) and of one function
        value.

    Attributes
    ----------
    guarantee : Guarantee
        The promise of the whole session, debited when it is opened.

    Notes
    -----
    The noise is ``tau * G``, G Gaussian with covariance at least the kernel's. A float matrix is not the exact
    covariance, so ``jitter`` is added to its diagonal and the factor's residual is bounded row by row: what remains
    of the jitter pays for the error of the function's values.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import GaussianProcess
    >>> def rbf(a, b):
    ...     return np.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))
    >>> session = GaussianProcess(rbf, sensitivity=0.01, epsilon=1.0, delta=1e-6, max_points=100)
    >>> points = np.array([[0.0], [0.5]])
    >>> first = session.release(points, np.array([1.0, 2.0]))
    >>> bool((session.release(points, np.array([1.0, 2.0])).value == first.value).all())  # same question, same answer
    True
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        sensitivity: float,
        epsilon: float,
        delta: float,
        max_points: int,
        kernel_bound: float = 1.0,
        kernel_error: float | None = None,
        value_error: float = 1e-13,
        rows_per_person: int = 1,
        ledger: Spender | None = None,
        purpose: str = "gaussian-process",
        random_state: int | BitSource | None = None,
    ) -> None:
        super().__init__()
        self._kernel = kernel
        self._cap = check_integer("max_points", max_points)
        self._bound = check_positive("kernel_bound", kernel_bound)
        kernel_error = check_positive("kernel_error", 1e-14 * self._bound if kernel_error is None else kernel_error)
        self._kernel_error = kernel_error
        rows_per_person = check_integer("rows_per_person", rows_per_person)
        check_positive("sensitivity", sensitivity)
        value_error = check_positive("value_error", value_error)
        epsilon, delta = check_budget(epsilon, delta)
        if delta == 0:
            raise InvalidInput("a Gaussian process release needs delta > 0")
        self._jitter = self._choose_jitter()
        shift = gaussian_shift(epsilon, delta)
        self._tau = check_scale(self._scale(most_sensitivity(sensitivity, rows_per_person), float(value_error), shift))
        self.noise = NoiseLaw("gaussian", self._tau * math.sqrt(self._bound + self._jitter))
        self._grid = grid_of(self.noise.deviation)
        promise = Guarantee(
            epsilon,
            delta,
            mechanism="Gaussian process mechanism",
            theorem="Gaussian process release; adaptive points; analytic Gaussian",
            assumptions=(
                "n is public",
                f"the function's sensitivity in the kernel's norm is at most {float(sensitivity):g}",
                f"a kernel value errs by at most {kernel_error:g}, a function value by at most {value_error:g}",
                "the kernel is positive semi-definite",
                FAIR_BITS,
            ),
            rows_per_person=rows_per_person,
            curve=GaussianShift(shift),
        )
        with spending(promise, ledger, purpose, random_state) as (source, self.guarantee):
            self._normals = Normals(source)
        self._points: list[NDArray[np.float64]] = []
        self._factor = np.zeros((0, 0))
        self._answers: dict[bytes, float] = {}
        self._residual = 0.0

    def __len__(self) -> int:
        return len(self._points)

    def release(self, points: Any, values: Any) -> Release:
        """Noisy function values at ``points``; ``values`` are the exact ones. A known point costs nothing new."""
        points, values = self._check(points, values)
        self._check_alive()
        with self._lock:
            fresh = {p.tobytes() for p in points} - set(self._answers)
            if len(self) + len(fresh) > self._cap:
                raise StateError(
                    f"{len(fresh)} new points would pass the cap of {self._cap} ({len(self)} are used); "
                    "open a new session, which costs its budget again"
                )
            for point, value in zip(points, values, strict=True):
                if point.tobytes() not in self._answers:
                    self._answer(point, float(value))
            answers = np.array([self._answers[point.tobytes()] for point in points])
        return Release(answers, self.guarantee, self.noise)

    def _answer(self, point: NDArray[np.float64], value: float) -> None:
        row, residual = self._new_row(point)
        count = len(self) + 1
        self._normals.grow(count)
        answer = self._normals.release(value, row, self._tau, self._grid)
        factor = np.zeros((count, count))
        factor[:-1, :-1], factor[-1] = self._factor, row
        self._points.append(point)
        self._factor, self._residual = factor, residual
        self._answers[point.tobytes()] = answer

    def _new_row(self, point: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """The factor's next row, with a rigorous bound on the whole residual ||L L' - (K + jitter)||_F."""
        from scipy.linalg import solve_triangular

        known = np.array(self._points)
        diagonal = float(self._kernel(point[None], point[None])[0, 0])
        if not 0 <= diagonal <= self._bound:
            raise InvalidInput(f"kernel(z, z) = {diagonal:g} at a point, outside [0, {self._bound:g}]")
        across = np.asarray(self._kernel(known, point[None]), float)[:, 0] if len(known) else np.empty(0)
        if not np.isfinite(across).all():
            raise InvalidInput("the kernel gave a value that is not finite")
        row = solve_triangular(self._factor, across, lower=True) if len(known) else np.empty(0)
        pivot = diagonal + self._jitter - float(row @ row)
        # Any positive pivot is certified below; a floor keeps the factor from blowing up.
        row = np.append(row, math.sqrt(max(pivot, self._jitter / 2)))
        residual = self._residual_with(row, across, diagonal)
        if not residual + self._cap * self._kernel_error <= self._jitter / 2:
            raise InvalidInput(
                "the kernel matrix at these points is too far from positive semi-definite for a certified factor; "
                "check the kernel, or declare its kernel_error"
            )
        return row, residual

    def _residual_with(self, row: NDArray[np.float64], across: NDArray[np.float64], diagonal: float) -> float:
        count = len(row)
        products = np.append(self._factor @ row[:-1], row @ row)
        sizes = np.append(np.abs(self._factor) @ np.abs(row[:-1]), row @ row)
        wanted = np.append(across, diagonal + self._jitter)
        rounding = 2.0**-52 * (count + 2) * sizes + 2.0**-52 * np.abs(wanted)
        errors = np.abs(products - wanted) + rounding
        # The new row stands in the symmetric residual twice, its last entry once.
        added = 2 * float(errors[:-1] @ errors[:-1]) + float(errors[-1] ** 2)
        return 1.0001 * math.sqrt(self._residual**2 + added)

    def _choose_jitter(self) -> float:
        """Four times what the kernel's rounding and the factor's residual can take, so that half is left over."""
        factor_error = 2.0**-52 * (self._cap + 4) ** 2 * self._bound
        return max(4 * (self._cap * self._kernel_error + factor_error), 2.0**-30 * self._bound)

    def _scale(self, sensitivity: Fraction, value_error: float, shift: float) -> float:
        """tau with (sensitivity + 2 sqrt(cap) error / sqrt(jitter / 2)) / tau <= shift."""
        with precision(128):
            spread = 2 * ball(self._cap).sqrt() * ball(value_error) / (ball(self._jitter) / 2).sqrt()
            return round_up((ball(sensitivity) + spread) / ball(shift))

    def _check(self, points: Any, values: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        try:
            points = np.ascontiguousarray(points, np.float64)
            values = np.ascontiguousarray(values, np.float64)
        except (TypeError, ValueError):
            raise InvalidInput("points and values must be arrays of numbers") from None
        if points.ndim != 2 or values.shape != points.shape[:1] or not len(points):
            raise InvalidInput(
                f"expected points of shape (m, d) and values of shape (m,), got {points.shape} and {values.shape}"
            )
        if self._points and points.shape[1] != self._points[0].shape[0]:
            raise InvalidInput(f"points have {points.shape[1]} columns; earlier ones had {len(self._points[0])}")
        if not np.isfinite(points).all():
            raise InvalidInput("a point is NaN or infinite")
        check_values(values)
        return points + 0.0, values  # + 0.0 makes -0 and 0 one point
