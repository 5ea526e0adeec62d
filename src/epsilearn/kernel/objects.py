"""Kernels of points that only the kernel knows: texts, sets, graphs, or the rows of a Gram matrix."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

from epsilearn.checks import check_positive, check_size
from epsilearn.errors import InvalidInput, StateError
from epsilearn.kernel.kernels import CARE, PUBLIC_SLACK, Array, Kernel
from epsilearn.losses.interface import UNIT
from epsilearn.quiet import quietly

__all__ = ["Precomputed", "UserKernel", "is_positive"]

_INDEFINITE = (
    "the kernel's matrix has negative eigenvalues, so it is no kernel's; mend the function, or declare its accuracy"
)


@dataclass(frozen=True)
class UserKernel(Kernel):
    """Any positive semidefinite function of two points, which may be anything: texts, sets, graphs.

    Parameters
    ----------
    function : callable
        K of two points.
    declared : float
        A public bound on sqrt(K(x, x)); private points beyond it are scaled down.
    accuracy : float
        A public bound on the rounding of one value, as a share of ``declared**2``.

    Notes
    -----
    No record may decide whether there is an answer. Where the function fails on a pair with a private point (it
    raises, or what it returns is not one finite number), the value is 0, and a private point that it fails on by itself
    has features of length 0. On public points a failure is an error; `check` tries it on some beforehand.

    Examples
    --------
    >>> common = UserKernel(lambda a, b: float(len(a & b)), declared=2.0)
    >>> common.matrix([{1, 2}, {3}], [{2, 3}])
    array([[1.],
           [1.]])
    """

    function: Callable[[Any, Any], float]
    declared: float
    accuracy: float = 1e-14
    takes_rows: ClassVar[bool] = False
    assumptions: ClassVar[tuple[str, ...]] = (
        "the kernel is positive semi-definite, with 0 wherever its function fails, and as exact as declared",
        "the kernel's function keeps no memory across records",
    )

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidInput(f"function must be a function of two points, got {type(self.function).__name__}")
        object.__setattr__(self, "declared", check_size("declared", self.declared))
        object.__setattr__(self, "accuracy", check_positive("accuracy", self.accuracy))

    @property
    def bound(self) -> float:
        return self.declared

    @property
    def description(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"UserKernel({name}, declared={self.declared!r}, accuracy={self.accuracy!r})"

    def rounding(self, width: int) -> float:  # noqa: ARG002 - the author's word
        return self.accuracy * self.declared**2

    def points(self, X: Any, width: int | None = None) -> Sequence[Any]:  # noqa: ARG002 - points can be anything
        points = list(X) if not isinstance(X, str) else []
        if not points:
            raise InvalidInput("points must be a list of at least one")
        return points

    def width(self, points: Any) -> int:  # noqa: ARG002
        return 1

    def count(self, points: Any) -> int:
        return len(points)

    def join(self, collections: Sequence[Any]) -> Any:
        return [point for points in collections for point in points]

    def encode(self, points: Any) -> list[bytes]:
        codes = [_code(point) for point in points]
        if None in codes:
            raise InvalidInput(
                "these points cannot be written down, so the same question could not be told from another; let the "
                "kernel take texts, numbers, lists, sets or dictionaries of them"
            )
        return cast("list[bytes]", codes)

    def decode(self, codes: Sequence[bytes]) -> Any:
        return [_from_plain(json.loads(code)) for code in codes]

    def check(self, points: Any) -> None:
        """Refuse a function that fails on these points, which must be public, or is no kernel's there.

        Examples
        --------
        >>> UserKernel(lambda a, b: float(len(a & b)), declared=2.0).check([{1, 2}, {3}, {2, 3}])
        >>> UserKernel(lambda a, b: float(a != b), declared=1.0).check(["some", "texts"])
        Traceback (most recent call last):
        ...
        epsilearn.errors.InvalidInput: the kernel's matrix has negative eigenvalues, so it is no kernel's; ...
        """
        points = self.points(points)
        self.check_public(points)
        values = self.matrix(points, points)
        if not is_positive(values, 4 * len(values) * (self.rounding(1) + len(values) * UNIT * self.declared**2)):
            raise InvalidInput(_INDEFINITE)

    @property
    def total(self) -> Kernel:
        return _TotalKernel(self.function, self.declared, self.accuracy)

    def inside(self, points: Any) -> tuple[Any, Array]:
        squares = self.total.squares(points)
        with quietly():
            factors = np.minimum(1.0, self.bound * (1 - CARE) / np.sqrt(squares))
        # A point of length 0 has no features, whatever the function says of it and others.
        return points, np.where(squares > 0, factors, 0.0)

    @quietly()
    def matrix(self, first: Any, second: Any) -> Array:
        values = np.array([[self._value(a, b) for b in second] for a in first], np.float64)
        return values.reshape(len(first), len(second))

    @quietly()
    def squares(self, points: Any) -> Array:
        return np.maximum(np.array([self._value(a, a) for a in points], np.float64), 0.0)

    def _value(self, first: Any, second: Any) -> float:
        try:
            value = _number(self.function(first, second))
        except Exception as error:
            kind = type(error).__name__
        else:
            if math.isfinite(value):
                return value
            raise InvalidInput(_NOT_FINITE)
        # Raised out here, without the error itself, which may quote a point.
        raise InvalidInput(f"the kernel's function raised {kind} for two points; it must give a number for any two")


class _TotalKernel(UserKernel):
    """A function of two points, one of them private: it has a value whatever they are."""

    def within(self, values: Array) -> Array:
        # By Cauchy and Schwarz no kernel has others.
        most = (self.declared * PUBLIC_SLACK) ** 2
        return np.clip(values, -most, most)

    def encode(self, points: Any) -> list[bytes]:
        return [_code(point) or b"" for point in points]

    def _value(self, first: Any, second: Any) -> float:
        try:
            value = _number(self.function(first, second))
        except Exception:
            return 0.0
        return value if math.isfinite(value) else 0.0


@dataclass(frozen=True)
class Precomputed(Kernel):
    """A matrix of all kernel values there will ever be; a point is the number of its row.

    Parameters
    ----------
    values : array of shape (objects, objects)
        Symmetric and positive semidefinite. Private and public objects both have a row.
    declared : float
        A public bound on sqrt(K(x, x)); private points beyond it are scaled down.
    private : frozenset of int
        The rows a model was fitted to, which are no public points; models fill it in.

    Examples
    --------
    >>> Precomputed(np.eye(3), declared=1.0).matrix(np.array([0, 1]), np.array([1]))
    array([[0.],
           [1.]])
    """

    values: Array = field(compare=False, repr=False)
    declared: float = 1.0
    private: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    takes_rows: ClassVar[bool] = False
    assumptions: ClassVar[tuple[str, ...]] = ("the kernel is positive semi-definite, and as exact as declared",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", check_size("declared", self.declared))
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
            raise InvalidInput(f"a Gram matrix must be square, got shape {values.shape}")
        _finite(values)
        # What is judged is what will be used: points beyond the bound brought inside.
        inside = np.minimum(1.0, self.declared / np.sqrt(np.maximum(np.diag(values), self.declared**2)))
        judged, tolerance = values * inside * inside[:, None], self._tolerance(len(values))
        if not np.allclose(judged, judged.T, rtol=0, atol=tolerance):
            raise InvalidInput("a Gram matrix must be symmetric; the matrix given is not")
        if float(np.linalg.eigvalsh(judged)[0]) < -tolerance:
            raise InvalidInput("the Gram matrix has negative eigenvalues, so it is no kernel's; clip them, or mend it")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def bound(self) -> float:
        return self.declared

    @property
    def description(self) -> str:
        return f"Precomputed({len(self.values)} objects, declared={self.declared!r})"

    def rounding(self, width: int) -> float:  # noqa: ARG002
        # A matrix that is all but positive is that close to one that is.
        return 2 * self._tolerance(len(self.values))

    def _tolerance(self, objects: int) -> float:
        """How far from symmetric, and from positive, so many objects' matrix may be: what floats can tell."""
        return (2.0**-40 + 8 * objects * UNIT) * self.declared**2

    def keeping(self, points: Any) -> Precomputed:
        # Not made anew: the matrix has been judged.
        kept = object.__new__(Precomputed)
        for name, content in {**vars(self), "private": frozenset(int(number) for number in points)}.items():
            object.__setattr__(kept, name, content)
        return kept

    def check_public(self, points: Any) -> None:
        if self.private and not self.private.isdisjoint(int(number) for number in points):
            raise InvalidInput(
                "a row number of a private record was given as a public point; whatever is asked, and every landmark, "
                "must be an object of its own"
            )
        super().check_public(points)

    def width(self, points: Any) -> int:  # noqa: ARG002
        return 1

    def encode(self, points: Any) -> list[bytes]:
        return [b"%d" % number for number in points]

    def decode(self, codes: Sequence[bytes]) -> Any:
        return np.array([int(code) for code in codes])

    def points(self, X: Any, width: int | None = None) -> NDArray[np.int64]:  # noqa: ARG002
        numbers = np.asarray(X)
        numbers = numbers[:, 0] if numbers.ndim == 2 and numbers.shape[1] == 1 else numbers
        if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iuf" or not _whole(numbers):
            raise InvalidInput("points of a precomputed kernel are whole numbers: rows of its matrix")
        if numbers.min() < 0 or numbers.max() >= len(self.values):
            raise InvalidInput(f"points of this kernel lie between 0 and {len(self.values) - 1}")
        return numbers.astype(np.int64)

    def matrix(self, first: Any, second: Any) -> Array:
        values: Array = self.values[np.ix_(first, second)]
        return values

    def squares(self, points: Any) -> Array:
        values: Array = np.maximum(np.diag(self.values)[points], 0.0)
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> Precomputed:
        return self  # it never changes

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "a Gram matrix holds the private records' values and is not pickled, nor is a model that holds one; what "
            "may leave are the model's points_ and dual_coef_, or its coef_"
        )


def _whole(numbers: NDArray[Any]) -> bool:
    return bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())


_NOT_FINITE = "the kernel has NaN or infinite values; it must be finite for every pair of points"


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise InvalidInput(_NOT_FINITE)
    return values


def _number(value: Any) -> float:
    """What a function returned, if it is a number; a text that reads like one is none, nor is half of a complex one."""
    if isinstance(value, (str, bytes, bytearray, np.complexfloating)):
        raise TypeError
    return float(value)


def is_positive(values: Array, tolerance: float) -> bool:
    """Whether a matrix has no eigenvalue below minus the tolerance: what is added to its diagonal lets it factor."""
    try:
        cholesky(values + tolerance * np.eye(len(values)), lower=True, check_finite=False)
    except LinAlgError:
        return False
    return True


def _code(point: Any) -> bytes | None:
    """A point as a text; None where it cannot be one."""
    try:
        return json.dumps(_plain(point), sort_keys=True, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(point: Any) -> Any:
    """A point as JSON has it; sets, whose order means nothing, are sorted."""
    if isinstance(point, (set, frozenset)):
        return {"set": sorted((_plain(item) for item in point), key=lambda item: json.dumps(item, sort_keys=True))}
    if isinstance(point, dict):
        return {"map": sorted([_plain(k), _plain(v)] for k, v in point.items())}
    if isinstance(point, (list, tuple)):
        return [_plain(item) for item in point]
    return point.item() if isinstance(point, np.generic) else point


def _from_plain(point: Any) -> Any:
    if isinstance(point, list):
        return tuple(_from_plain(item) for item in point)
    if isinstance(point, dict) and "set" in point:
        return frozenset(_from_plain(item) for item in point["set"])
    if isinstance(point, dict):
        return {_from_plain(k): _from_plain(v) for k, v in point["map"]}
    return point
