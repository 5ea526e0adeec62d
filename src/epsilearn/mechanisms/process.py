"""The Gaussian process mechanism: a whole function released for one (epsilon, delta).

After Hall, Rinaldo and Wasserman (2013). Proof, including adaptively chosen points and floats:
``docs/theory/process.md``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

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
from epsilearn.noise.bits import BitSource, source_of
from epsilearn.noise.correlated import Normals
from epsilearn.noise.door import check_scale, check_values, grid_of

__all__ = ["GaussianProcess", "Journal", "JournalEntry", "MemoryJournal", "Process", "ProcessLaw"]

Array = NDArray[np.float64]
Kernel = Callable[[NDArray[Any], NDArray[Any]], Array]
# The kernel's values between some known points and a new one, and the new one's own.
Across = Callable[[list[bytes], bytes], tuple[Array, float]]

# The diagonal gets at least this share of the kernel's bound: 0.003 % more noise, and errors of values cost little.
_LEAST_JITTER = 2.0**-14


@dataclass(frozen=True)
class ProcessLaw:
    """The noise of a whole session. All of it is public.

    Attributes
    ----------
    cap : int
        The most distinct points.
    bound : float
        The largest value the kernel has at a point with itself.
    kernel_error : float
        The rounding of one kernel value.
    jitter : float
        What is added to the covariance's diagonal.
    tau : float
        What the process is multiplied by.
    shift : float
        The Gaussian shift that all answers together amount to.
    """

    cap: int
    bound: float
    kernel_error: float
    jitter: float
    tau: float
    shift: float

    @classmethod
    def planned(
        cls,
        sensitivity: Fraction,
        epsilon: float,
        delta: float,
        *,
        cap: int,
        bound: float,
        kernel_error: float,
        value_error: float,
    ) -> ProcessLaw:
        """The law for a function that moves by at most ``sensitivity`` in the kernel's norm.

        Theorem. tau = (sensitivity + 2 sqrt(cap) value_error / sqrt(jitter / 2)) / shift, where ``shift`` is the
        largest Gaussian shift that is (epsilon, delta)-private, makes any answers to at most ``cap`` points private.
        """
        if delta == 0:
            raise InvalidInput("a Gaussian process release needs delta > 0")
        factor_error = 2.0**-52 * (cap + 4) ** 2 * bound
        # Four times what the kernel's rounding and the factor's residual can take, so that half is left over.
        jitter = max(4 * (cap * kernel_error + factor_error), _LEAST_JITTER * bound)
        shift = gaussian_shift(epsilon, delta)
        with precision(128):
            spread = 2 * ball(cap).sqrt() * ball(value_error) / (ball(jitter) / 2).sqrt()
            tau = round_up((ball(sensitivity) + spread) / ball(shift))
        return cls(cap, bound, kernel_error, jitter, check_scale(tau), shift)

    @property
    def noise(self) -> NoiseLaw:
        """The noise in one answer, at most."""
        return NoiseLaw("gaussian", self.tau * math.sqrt(self.bound + self.jitter))

    @property
    def grid(self) -> int:
        return grid_of(self.noise.deviation)


@dataclass(frozen=True)
class JournalEntry:
    """A point that was answered: its code, its answer, and a digest of the factor's row behind it."""

    code: bytes
    answer: float
    digest: bytes


class Journal(Protocol):
    """Where a session's points and noise are written down before an answer leaves."""

    def writing(self) -> AbstractContextManager[None]:
        """One writer at a time; what is added inside stands only if the block ends well."""

    def count(self) -> int:
        """How many points there are."""

    def entries(self, start: int) -> list[JournalEntry]:
        """All points from the given number on, in order."""

    def digits(self) -> list[tuple[int, int]]:
        """The random digits of each normal, and how many they are."""

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        """Write down new points, and the normals that are new or known more finely."""

    @property
    def changes(self) -> int:
        """A number that differs whenever anyone has added anything."""


class MemoryJournal:
    """A journal that lasts as long as its session."""

    def __init__(self) -> None:
        self._entries: list[JournalEntry] = []
        self._digits: dict[int, tuple[int, int]] = {}
        self.changes = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def count(self) -> int:
        return len(self._entries)

    def entries(self, start: int) -> list[JournalEntry]:
        return self._entries[start:]

    def digits(self) -> list[tuple[int, int]]:
        return [self._digits[number] for number in range(len(self._digits))]

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        # One assignment each, of values made before: an interruption leaves nothing half written.
        self._entries, self._digits = [*self._entries, *entries], {**self._digits, **digits}
        self.changes += 1


class _Factor:
    """A triangular factor of the covariance, grown row by row, with a rigorous bound on its residual."""

    def __init__(self, law: ProcessLaw) -> None:
        self._law = law
        self._rows = np.zeros((16, 16))
        self.count, self._residual = 0, 0.0

    @property
    def matrix(self) -> Array:
        return self._rows[: self.count, : self.count]

    def append(self, across: Array, diagonal: float) -> Array:
        """The next row, from the new point's kernel values; nothing changes if it cannot be certified."""
        row = self._next(across, diagonal)
        residual = self._residual_with(row, across, diagonal)
        if not residual + self._law.cap * self._law.kernel_error <= self._law.jitter / 2:
            raise InvalidInput(
                "the kernel matrix at these points is too far from positive semi-definite for a certified factor; "
                "check the kernel, or declare its kernel_error"
            )
        if self.count == len(self._rows):
            larger = np.zeros((2 * self.count, 2 * self.count))
            larger[: self.count, : self.count] = self._rows
            self._rows = larger
        self._rows[self.count, : self.count + 1] = row
        self.count, self._residual = self.count + 1, residual
        return row

    def _next(self, across: Array, diagonal: float) -> Array:
        from scipy.linalg import solve_triangular

        if not 0 <= diagonal <= self._law.bound:
            raise InvalidInput(f"kernel(z, z) = {diagonal:g} at a point, outside [0, {self._law.bound:g}]")
        if not np.isfinite(across).all():
            raise InvalidInput("the kernel gave a value that is not finite")
        row = solve_triangular(self.matrix, across, lower=True) if self.count else np.empty(0)
        pivot = diagonal + self._law.jitter - float(row @ row)
        # Any positive pivot is certified below; a floor keeps the factor from blowing up.
        return np.append(row, math.sqrt(max(pivot, self._law.jitter / 2)))

    def _residual_with(self, row: Array, across: Array, diagonal: float) -> float:
        """A bound on ||L L' - (K + jitter)||_F with this row at the end."""
        products = np.append(self.matrix @ row[:-1], row @ row)
        sizes = np.append(np.abs(self.matrix) @ np.abs(row[:-1]), row @ row)
        wanted = np.append(across, diagonal + self._law.jitter)
        rounding = 2.0**-52 * (len(row) + 2) * sizes + 2.0**-52 * np.abs(wanted)
        errors = np.abs(products - wanted) + rounding
        # The new row stands in the symmetric residual twice, its last entry once.
        added = 2 * float(errors[:-1] @ errors[:-1]) + float(errors[-1] ** 2)
        return 1.0001 * math.sqrt(self._residual**2 + added)


class Process(LiveMechanism):
    """Answers about a function, each written down before it leaves; the budget has been debited already.

    Points are known by their codes. What is held in memory can always be had again from the journal, and is, whenever
    something goes wrong halfway or another process has answered in the meantime.

    Parameters
    ----------
    law : ProcessLaw
        The noise.
    across : callable
        ``across(codes, code)``: the kernel's values between known points and a new one, and the new one's own.
    random_state : BitSource, int or None
        Where new noise comes from: the operating system, unless the promise is void.
    journal : Journal
        Where points and noise are written down.
    """

    _factor: _Factor
    _normals: Normals

    def __init__(self, law: ProcessLaw, across: Across, random_state: int | BitSource | None, journal: Journal) -> None:
        super().__init__()
        self.law = law
        self._across, self._source, self._journal = across, source_of(random_state), journal
        self._forget()

    def __len__(self) -> int:
        return len(self._codes)

    def points_left(self) -> int:
        """How many more different points anyone may ask."""
        self._check_alive()
        with self._lock, self._journal.writing():
            return self.law.cap - self._journal.count()

    def answers(self, codes: Sequence[bytes], values: Callable[[list[int]], Array]) -> Array:
        """The noisy values at these points; ``values`` computes the exact ones at those positions that are new."""
        self._check_alive()
        with self._lock:
            try:
                with self._journal.writing():
                    self._catch_up()
                    self._answer_new(codes, values)
            except BaseException:
                # What was drawn but not written down must never be used.
                self._forget()
                raise
            return np.array([self._known[code] for code in codes])

    def _answer_new(self, codes: Sequence[bytes], values: Callable[[list[int]], Array]) -> None:
        fresh = {code: position for position, code in reversed(list(enumerate(codes))) if code not in self._known}
        positions = sorted(fresh.values())
        if len(self) + len(positions) > self.law.cap:
            raise StateError(
                f"{len(positions)} new points would pass the cap of {self.law.cap} ({len(self)} are used); "
                "open a new session, which costs its budget again"
            )
        if not positions:
            return
        before = self._normals.digits()
        exact = values(positions)
        entries = [self._append(codes[p], float(value)) for p, value in zip(positions, exact, strict=True)]
        after = self._normals.digits()
        changed = {i: digits for i, digits in enumerate(after) if i >= len(before) or digits != before[i]}
        self._journal.add(entries, changed)
        self._changes = self._journal.changes

    def _append(self, code: bytes, value: float) -> JournalEntry:
        row = self._factor.append(*self._across(self._codes, code))
        self._normals.grow(len(row))
        answer = self._normals.release(value, row, self.law.tau, self.law.grid)
        entry = JournalEntry(code, answer, hashlib.sha256(row.tobytes()).digest())
        self._remember(entry)
        return entry

    def _remember(self, entry: JournalEntry) -> None:
        self._codes.append(entry.code)
        self._known[entry.code] = entry.answer

    def _forget(self) -> None:
        # First of all: an interruption in here must not pass for being up to date.
        self._changes = -1
        self._codes: list[bytes] = []
        self._known: dict[bytes, float] = {}
        self._factor, self._normals = _Factor(self.law), Normals(self._source)

    def _catch_up(self) -> None:
        """Take over what others have written, or all of it after a restart."""
        if self._journal.changes == self._changes:
            return
        for entry in self._journal.entries(len(self)):
            row = self._factor.append(*self._across(self._codes, entry.code))
            # Noise is defined by the floats of this row: others would be other noise.
            if hashlib.sha256(row.tobytes()).digest() != entry.digest:
                raise StateError(
                    "the kernel's values at an answered point are not the ones this session was answered with; go on "
                    "with the same kernel and the same libraries, or open a new session, which costs its budget again"
                )
            self._remember(entry)
        self._normals.restore(self._journal.digits())
        self._changes = self._journal.changes


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

    def release(self, points: Any, values: Any) -> Release:
        """Noisy function values at ``points``; ``values`` are the exact ones. A known point costs nothing new."""
        points, values = self._check(points, values)
        self._check_alive()
        answers = self._process_noise.answers([p.tobytes() for p in points], lambda new: values[new])
        self._width = points.shape[1]
        return Release(answers, self.guarantee, self.noise)

    def _values_across(self, codes: list[bytes], code: bytes) -> tuple[Array, float]:
        point = np.frombuffer(code)[None]
        diagonal = float(self._kernel(point, point)[0, 0])
        if not codes:
            return np.empty(0), diagonal
        known = np.frombuffer(b"".join(codes)).reshape(len(codes), -1)
        return np.asarray(self._kernel(known, point), float)[:, 0], diagonal

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
