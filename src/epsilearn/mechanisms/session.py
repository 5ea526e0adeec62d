"""A session of answers about one function: noise that grows with the points asked, written down before they leave.

The noise is tau * G, G a Gaussian process with covariance at least a kernel's. Proof, including adaptively chosen
points, floats and restarts: ``docs/theory/process.md`` and ``docs/theory/kernels.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from epsilearn.balls import ball, precision, round_up
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.errors import EpsilearnError, InvalidInput, StateError
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.mechanisms.selection import LiveMechanism
from epsilearn.mechanisms.tape import answered, bits_of
from epsilearn.noise.bits import BitSource
from epsilearn.noise.correlated import Normals
from epsilearn.noise.door import check_scale, grid_of
from epsilearn.quiet import quietly

__all__ = ["Journal", "JournalEntry", "MemoryJournal", "Process", "ProcessLaw", "factor_bytes"]

Array = NDArray[np.float64]
# The kernel's values between known points and new ones, and among the new ones.
Across = Callable[[Sequence[bytes], Sequence[bytes]], tuple[Array, Array]]

# The diagonal gets at least this share of the kernel's bound: 0.003 % more noise, and errors of values cost little.
_LEAST_JITTER = 2.0**-14
_MOST_POINTS = 10**9
_BLOCK = 128  # points whose rows are computed together, and written down together,
_BLOCK_NUMBERS = 2**20  # as long as they are not more numbers than these
_CHUNK = 512  # rows of a factor in one array
_WORKING = 20  # arrays as large as a block's rows that there may be at once, those of the kernel included


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
        if cap > _MOST_POINTS:
            raise InvalidInput(f"at most {_MOST_POINTS:g} points can be asked about; declare fewer")
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
    """A point that was answered: its code, its answer, and what else the session must know of it to go on.

    A process writes down the factor's row, as doubles: noise is defined by these very floats.
    """

    code: bytes
    answer: float
    detail: bytes


class Journal(Protocol):
    """Where a session's points and noise are written down before an answer leaves."""

    def writing(self) -> AbstractContextManager[None]:
        """One writer of this session at a time, from before it reads until what it drew stands or is forgotten."""

    def count(self) -> int:
        """How many points there are."""

    def entries(self, start: int, count: int | None = None) -> list[JournalEntry]:
        """Points from the given number on, in order: all, or so many."""

    def digits(self) -> list[tuple[int, int]]:
        """The random digits of each normal, and how many they are."""

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        """Write down new points, and the normals that are new or known more finely: all of it, or nothing."""

    def reserve(self, size: int) -> None:
        """Told how many bytes the session will hold in memory, before anything is drawn; raises if that is too much."""

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

    def entries(self, start: int, count: int | None = None) -> list[JournalEntry]:
        return self._entries[start : None if count is None else start + count]

    def reserve(self, size: int) -> None:
        pass

    def digits(self) -> list[tuple[int, int]]:
        return [self._digits[number] for number in range(len(self._digits))]

    def add(self, entries: Sequence[JournalEntry], digits: dict[int, tuple[int, int]]) -> None:
        # One assignment each, of values made before: an interruption leaves nothing half written.
        self._entries, self._digits = [*self._entries, *entries], {**self._digits, **digits}
        self.changes += 1


def _block(points: int) -> int:
    """How many points are computed and written down together after so many."""
    return max(1, min(_BLOCK, _BLOCK_NUMBERS // (points + 1)))


def factor_bytes(points: int) -> int:
    """Memory that a session at so many points takes for its factor, the work of getting there included. Public.

    Examples
    --------
    >>> [round(factor_bytes(points) / 2**20) for points in (1000, 10_000, 20_000)]
    [28, 581, 1800]
    """
    chunks = -(-points // _CHUNK)
    return 8 * _CHUNK**2 * chunks * (chunks + 1) // 2 + 8 * _WORKING * _block(points) * (points + _BLOCK)


class _Factor:
    """A triangular factor of the covariance, grown block by block, with a rigorous bound on its residual.

    Its rows are kept in arrays of equally many, each as wide as its last row is long: nothing is copied when it grows.
    """

    def __init__(self, law: ProcessLaw) -> None:
        self._law = law
        self._chunks: list[Array] = []
        self.count, self._residual = 0, 0.0

    @property
    def matrix(self) -> Array:
        found = np.zeros((self.count, self.count))
        for start, chunk in self._rows():
            found[start : start + len(chunk), : chunk.shape[1]] = chunk
        return found

    def _rows(self) -> Iterator[tuple[int, Array]]:
        """The rows there are, array by array, each with the number of its first."""
        for number, chunk in enumerate(self._chunks):
            start = number * _CHUNK
            end = min(start + _CHUNK, self.count)
            yield start, chunk[: end - start, :end]

    def append(self, across: Array, own: Array) -> Array:
        """The next rows, from new points' kernel values with known ones and each other.

        Nothing changes if they cannot be certified.
        """
        self._check(across, own)
        rows = self._next(across, own)
        self._certify(rows, self._errors(rows, across, own)[0])
        return rows

    def take_over(self, rows: Array, across: Array, own: Array) -> bool:
        """Append rows that were certified when they were made, if these kernel values are the ones they stand for.

        Two computations of a kernel value differ by twice its rounding, and a product by its own; where a pivot was
        raised, only its own square may be larger than the kernel says.
        """
        self._check(across, own)
        errors, rounding = self._errors(rows, across, own)
        allowed = 2 * self._law.kernel_error + 4 * rounding
        excess = errors - allowed
        raised = np.arange(len(rows)), self.count + np.arange(len(rows))
        excess[raised] = -(self._squares(rows) - own.diagonal() - self._law.jitter) - allowed[raised]
        if (excess > 0).any():
            return False
        self._certify(rows, errors)
        return True

    @staticmethod
    def _squares(rows: Array) -> Array:
        squares: Array = np.einsum("ij,ij->i", rows, rows)
        return squares

    def _check(self, across: Array, own: Array) -> None:
        for diagonal in own.diagonal():
            if not 0 <= diagonal <= self._law.bound:
                raise InvalidInput(f"kernel(z, z) = {diagonal:g} at a point, outside [0, {self._law.bound:g}]")
        if not (np.isfinite(across).all() and np.isfinite(own).all()):
            raise InvalidInput("the kernel gave a value that is not finite")

    @staticmethod
    def _refusal() -> InvalidInput:
        return InvalidInput(
            "the kernel matrix at these points is too far from positive semi-definite for a certified factor; "
            "check the kernel, or declare its kernel_error"
        )

    def _next(self, across: Array, own: Array) -> Array:
        left = self._solved(across).T
        rest = own + self._law.jitter * np.eye(len(own)) - left @ left.T
        corner = np.zeros_like(rest)
        for i in range(len(rest)):
            if not np.isfinite(corner[:i]).all() or not np.isfinite(rest[: i + 1, i]).all():
                raise self._refusal()
            row = solve_triangular(corner[:i, :i], rest[:i, i], lower=True) if i else np.empty(0)
            pivot = rest[i, i] - row @ row
            # Any positive pivot is certified below; a floor keeps the factor from blowing up.
            corner[i, : i + 1] = np.append(row, math.sqrt(max(pivot, self._law.jitter / 2)))
        return np.hstack([left, corner])

    def _solved(self, across: Array) -> Array:
        """What the factor's product with is ``across``."""
        solved = np.empty_like(across)
        for start, chunk in self._rows():
            here = slice(start, start + len(chunk))
            rest = across[here] - chunk[:, :start] @ solved[:start]
            solved[here] = solve_triangular(chunk[:, start:], rest, lower=True, overwrite_b=True, check_finite=False)
        return solved

    def _errors(self, rows: Array, across: Array, own: Array) -> tuple[Array, Array]:
        """How far the products of new rows with all rows are from the kernel's values, and how they were rounded."""
        wanted = np.hstack([across.T, own + self._law.jitter * np.eye(len(own))])
        products, sizes = self._products(rows), self._products(np.abs(rows), np.abs)
        rounding = 2.0**-52 * (rows.shape[1] + 2) * sizes + 2.0**-52 * np.abs(wanted)
        return np.abs(products - wanted) + rounding, rounding

    def _products(self, rows: Array, each: Callable[[Array], Array] = lambda known: known) -> Array:
        found = np.empty((len(rows), self.count + len(rows)))
        for start, chunk in self._rows():
            found[:, start : start + len(chunk)] = rows[:, : chunk.shape[1]] @ each(chunk).T
        found[:, self.count :] = rows @ rows.T
        return found

    def _certify(self, rows: Array, errors: Array) -> None:
        """Keep the rows if ||L L' - (K + jitter)||_F is small enough with them."""
        before, among = errors[:, : self.count], errors[:, self.count :]
        # The products with earlier rows stand in the symmetric residual twice.
        added = 2 * float(np.sum(before**2)) + float(np.sum(among**2))
        residual = 1.0001 * math.sqrt(self._residual**2 + added)
        if not residual + self._law.cap * self._law.kernel_error <= self._law.jitter / 2:
            raise self._refusal()
        count = rows.shape[1]
        while len(self._chunks) * _CHUNK < count:
            self._chunks.append(np.zeros((_CHUNK, (len(self._chunks) + 1) * _CHUNK)))
        for number, row in enumerate(rows, start=self.count):
            chunk = self._chunks[number // _CHUNK]
            chunk[number % _CHUNK, : number + 1] = row[: number + 1]
        self.count, self._residual = count, residual


class Process(LiveMechanism):
    """Answers about a function, each written down before it leaves; the budget has been debited already.

    Points are known by their codes. What is held in memory can always be had again from the journal, and is, whenever
    something goes wrong halfway or another process has answered in the meantime.

    Parameters
    ----------
    law : ProcessLaw
        The noise.
    across : callable
        ``across(known, new)``: the kernel's values between known points and new ones, and among the new ones.
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
        self._across, self._source, self._journal = across, bits_of(random_state), journal
        self._forget()

    def __len__(self) -> int:
        return len(self._codes)

    def points_left(self) -> int:
        """How many more different points anyone may ask."""
        self._check_alive()
        with self._lock, self._journal.writing():
            return self.law.cap - self._journal.count()

    @quietly()
    def answers(self, codes: Sequence[bytes], values: Callable[[list[int]], Array]) -> Array:
        """The noisy values at these points; ``values`` computes the exact ones at those positions that are new."""
        self._check_alive()
        with self._lock:
            if not self._resting or any(code not in self._known for code in codes):
                self._answer(codes, values)
            return np.array([self._known[code] for code in codes])

    def rest(self) -> bool:
        """Let go of what takes memory until a new point is asked, unless it is in use; whether it did."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._changes, self._resting = -1, True
            self._factor, self._normals = _Factor(self.law), Normals(self._source)
        finally:
            self._lock.release()
        return True

    def _answer(self, codes: Sequence[bytes], values: Callable[[list[int]], Array]) -> None:
        if self._resting:
            self._journal.reserve(factor_bytes(self._journal.count()))
        refusal: EpsilearnError | None = None
        try:
            with self._journal.writing():
                self._catch_up()
                try:
                    positions = self._positions_of_new(codes)
                except EpsilearnError as error:
                    refusal = error  # nothing has been drawn: what is in memory is still true
                else:
                    self._answer_new(codes, positions, values)
        except BaseException:
            # What was drawn but not written down must never be used.
            self._forget()
            raise
        if refusal is not None:
            raise refusal

    def _positions_of_new(self, codes: Sequence[bytes]) -> list[int]:
        """Where new points stand; refuses if they are too many."""
        fresh = {code: position for position, code in reversed(list(enumerate(codes))) if code not in self._known}
        if len(self) + len(fresh) > self.law.cap:
            raise StateError(
                f"{len(fresh)} new points would pass the cap of {self.law.cap} ({len(self)} are used); "
                "open a new session, which costs its budget again"
            )
        if fresh:
            self._journal.reserve(factor_bytes(len(self) + len(fresh)))
        return sorted(fresh.values())

    def _answer_new(self, codes: Sequence[bytes], positions: list[int], values: Callable[[list[int]], Array]) -> None:
        exact = values(positions) if positions else np.empty(0)
        start = 0
        while start < len(positions):
            here = slice(start, start + _block(len(self)))
            before = self._normals.digits()
            entries = self._append([codes[position] for position in positions[here]], exact[here])
            changed = {
                number: digits
                for number, digits in enumerate(self._normals.digits())
                if number >= len(before) or digits != before[number]
            }
            self._journal.add(entries, changed)
            self._changes = self._journal.changes
            start += len(entries)

    def _append(self, codes: list[bytes], values: Array) -> list[JournalEntry]:
        rows, entries = self._factor.append(*self._kernel_values(codes)), []
        for number, (code, value) in enumerate(zip(codes, values, strict=True)):
            row = rows[number, : len(self) + 1]
            self._normals.grow(len(row))
            answer = self._noisy(float(value), row)
            entries.append(JournalEntry(code, answer, row.tobytes()))
            self._remember(entries[-1])
        return entries

    def _noisy(self, value: float, row: Array) -> float:
        return answered(
            self._source, "process", (self.law.tau, self.law.grid, tuple(row.tolist())), lambda: value,
            lambda: self._normals.release(value, row, self.law.tau, self.law.grid),
        )  # fmt: skip

    def _kernel_values(self, codes: list[bytes]) -> tuple[Array, Array]:
        across, own = self._across(self._codes, codes)
        # One matrix, whichever way a kernel's rounding falls.
        return across, np.tril(own) + np.tril(own, -1).T

    def _remember(self, entry: JournalEntry) -> None:
        self._codes.append(entry.code)
        self._known[entry.code] = entry.answer

    def _forget(self) -> None:
        # First of all: an interruption in here must not pass for being up to date.
        self._changes, self._resting = -1, False
        self._codes: list[bytes] = []
        self._known: dict[bytes, float] = {}
        self._factor, self._normals = _Factor(self.law), Normals(self._source)

    def _catch_up(self) -> None:
        """Take over what others have written, or all of it after a restart."""
        if self._journal.changes == self._changes:
            return
        if self._resting:
            self._forget()
        self._journal.reserve(factor_bytes(self._journal.count()))
        while block := self._journal.entries(len(self), _block(len(self))):
            known, rows = len(self), np.zeros((len(block), len(self) + len(block)))
            for number, entry in enumerate(block):
                rows[number, : known + number + 1] = np.frombuffer(entry.detail)
            if not self._factor.take_over(rows, *self._kernel_values([entry.code for entry in block])):
                raise StateError(
                    "the kernel's values at an answered point are not the ones this session was answered with; go on "
                    "with the same kernel, or open a new session, which costs its budget again"
                )
            for entry in block:
                self._remember(entry)
        self._normals.restore(self._journal.digits())
        self._changes = self._journal.changes
