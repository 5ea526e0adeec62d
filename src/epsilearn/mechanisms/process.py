"""The Gaussian process mechanism: a whole function released for one (epsilon, delta).

After Hall, Rinaldo and Wasserman (2013). Proof, including adaptively chosen points and floats:
``docs/theory/process.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import GaussianShift
from epsilearn.calibration.additive import most_sensitivity
from epsilearn.checks import check_budget, check_integer, check_positive
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import FAIR_BITS, Release, Spender, spending
from epsilearn.mechanisms.selection import LiveMechanism
from epsilearn.mechanisms.session import MemoryJournal, Process, ProcessLaw
from epsilearn.noise.bits import BitSource
from epsilearn.noise.door import check_values
from epsilearn.quiet import quietly

__all__ = ["GaussianProcess"]

Array = NDArray[np.float64]
Kernel = Callable[[NDArray[Any], NDArray[Any]], Array]


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
        bound = check_positive("kernel_bound", kernel_bound)
        kernel_error = check_positive("kernel_error", 1e-14 * bound if kernel_error is None else kernel_error)
        rows_per_person = check_integer("rows_per_person", rows_per_person)
        check_positive("sensitivity", sensitivity)
        value_error = check_positive("value_error", value_error)
        epsilon, delta = check_budget(epsilon, delta)
        law = ProcessLaw.planned(
            most_sensitivity(sensitivity, rows_per_person),
            epsilon,
            delta,
            cap=check_integer("max_points", max_points),
            bound=bound,
            kernel_error=kernel_error,
            value_error=value_error,
        )
        self.noise = law.noise
        self._width: int | None = None
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
            curve=GaussianShift(law.shift),
        )
        with spending(promise, ledger, purpose, random_state) as (source, self.guarantee):
            self._process_noise = Process(law, self._values_across, source, MemoryJournal())

    def __len__(self) -> int:
        return len(self._process_noise)

    @quietly()
    def release(self, points: Any, values: Any) -> Release:
        """Noisy function values at ``points``; ``values`` are the exact ones. A known point costs nothing new."""
        points, values = self._check(points, values)
        self._check_alive()
        answers = self._process_noise.answers([p.tobytes() for p in points], lambda new: values[new])
        self._width = points.shape[1]
        return Release(answers, self.guarantee, self.noise)

    def _values_across(self, known: Sequence[bytes], new: Sequence[bytes]) -> tuple[Array, Array]:
        asked = _points_of(new)
        own = np.array(self._kernel(asked, asked), float)
        if not known:
            return np.empty((0, len(asked))), own
        return np.asarray(self._kernel(_points_of(known), asked), float), own

    def _check(self, points: Any, values: Any) -> tuple[Array, Array]:
        try:
            points = np.ascontiguousarray(points, np.float64)
            values = np.ascontiguousarray(values, np.float64)
        except (TypeError, ValueError):
            raise InvalidInput("points and values must be arrays of numbers") from None
        if points.ndim != 2 or values.shape != points.shape[:1] or not len(points):
            raise InvalidInput(
                f"expected points of shape (m, d) and values of shape (m,), got {points.shape} and {values.shape}"
            )
        if self._width is not None and points.shape[1] != self._width:
            raise InvalidInput(f"points have {points.shape[1]} columns; earlier ones had {self._width}")
        if not np.isfinite(points).all():
            raise InvalidInput("a point is NaN or infinite")
        check_values(values)
        return points + 0.0, values  # + 0.0 makes -0 and 0 one point


def _points_of(codes: Sequence[bytes]) -> Array:
    return np.frombuffer(b"".join(codes)).reshape(len(codes), -1)
