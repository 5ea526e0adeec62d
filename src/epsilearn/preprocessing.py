"""From a table of mixed columns to rows in a ball, by public knowledge alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from epsilearn.checks import check_bounds, check_positive
from epsilearn.columns import as_labels, as_numbers
from epsilearn.errors import InvalidInput, PrivacyWarning
from epsilearn.quiet import quietly

__all__ = ["BoundedScaler"]

_DEFAULT_BOUNDS = (-1.0, 1.0)


class _NotANumber(InvalidInput, TypeError):
    """Also a TypeError: scikit-learn promises one where a table of numbers holds something else."""


class BoundedScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scale columns by public bounds, one-hot encode public categories, and keep every row in a ball.

    Nothing is learned from the values: a number outside its bounds is clipped, silently, as how many is private.
    Each of the d input columns gets the same share, norm / sqrt(d), of the ball.

    Parameters
    ----------
    bounds : (low, high), dict, or sequence of pairs, optional
        Public bounds: one pair for all columns without categories, a dict from a column's name or position to its
        pair, or one pair for each column (None where it has categories). If omitted, (-1, 1), with a warning.
    categories : dict, optional
        From a column's name or position to all the values it may have: text, numbers, booleans, compared by equality.
        Such a column becomes one output column for each category, of which exactly one holds the column's share.
    norm : float
        No output row has a greater Euclidean norm, in exact arithmetic. Between 1e-30 and 1e30.
    center : bool
        Whether the middle of the bounds is mapped to 0 and a number uses the share on both sides. False maps the
        lower bound to 0: nothing is negative, and numbers vary half as much beside the same noise.
    sparse_output : bool
        Whether to return a ``scipy.sparse.csr_array``.

    Attributes
    ----------
    bounds_, categories_ : list
        For each input column its pair, or its categories; None in the other list.
    share_ : float
        The largest absolute value an entry of the output can have.

    Notes
    -----
    The output is float64, or float32, rounded towards 0, for an array of float32. A value that is missing, infinite or
    not among the categories is outside the data universe: ``fit`` and ``transform`` refuse it. So they do sparse input.

    Examples
    --------
    >>> import pandas as pd
    >>> from epsilearn.preprocessing import BoundedScaler
    >>> table = pd.DataFrame({"age": [0, 60, 250], "smokes": ["no", "yes", "no"]})
    >>> scaler = BoundedScaler(bounds={"age": (0, 120)}, categories={"smokes": ["no", "yes"]})
    >>> scaler.set_output(transform="pandas").fit_transform(table).round(3)
         age  smokes_no  smokes_yes
    0 -0.707      0.707       0.000
    1  0.000      0.000       0.707
    2  0.707      0.707       0.000
    """

    def __init__(
        self,
        *,
        bounds: Any = None,
        categories: Mapping[Any, Iterable[Any]] | None = None,
        norm: float = 1.0,
        center: bool = True,
        sparse_output: bool = False,
    ) -> None:
        self.bounds = bounds
        self.categories = categories
        self.norm = norm
        self.center = center
        self.sparse_output = sparse_output

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn how many columns there are and their names, and nothing else; ``y`` is ignored."""
        # A refit that fails must not leave a plan for other columns behind.
        self.__dict__.pop("share_", None)
        table = _as_table(X)
        validate_data(self, table, reset=True, skip_check_array=True)
        share = _share(self.norm, self.n_features_in_)
        self.categories_ = self._resolve_categories()
        self.bounds_ = self._resolve_bounds()
        if self.bounds is None and any(self.bounds_):
            warnings.warn(
                "bounds was left at its default: columns without categories are clipped to [-1, 1]; pass "
                "bounds=(low, high), or a dict from each column to its pair, chosen without looking at the data",
                PrivacyWarning,
                stacklevel=2,
            )
        for _ in self._read(table):
            pass  # Read for the error only: what is outside the data universe is refused before anything is fitted.
        self.share_ = share
        return self

    def transform(self, X: Any) -> Any:
        """Rows of norm at most ``norm``, from a table with the columns ``fit`` saw, in the same order."""
        check_is_fitted(self, "share_")
        table = _as_table(X)
        validate_data(self, table, reset=False, skip_check_array=True)
        entries, indices, width = self._entries(table)
        if width == entries.shape[1] and not self.sparse_output:
            return entries
        # One entry for each input column, zero or not: their number says nothing about the values.
        ends = np.arange(0, entries.size + 1, entries.shape[1], dtype=np.int32 if entries.size < 2**31 else np.int64)
        rows = sparse.csr_array((entries.ravel(), indices.ravel(), ends), shape=(len(entries), width))
        return rows if self.sparse_output else rows.toarray()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the output columns: name, or name_category; ``input_features`` stands in for missing names."""
        check_is_fitted(self, "share_")
        fitted = list(getattr(self, "feature_names_in_", ()))
        names = fitted or [f"x{i}" for i in range(self.n_features_in_)]
        if input_features is not None:
            names = list(input_features)
            if fitted and names != fitted:
                raise InvalidInput("input_features is not equal to feature_names_in_; leave it out")
            if len(names) != self.n_features_in_:
                raise InvalidInput(f"input_features should have length equal to {self.n_features_in_}")
        blocks = [[n] if c is None else [f"{n}_{v}" for v in c] for n, c in zip(names, self.categories_, strict=True)]
        return np.array([name for block in blocks for name in block], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.categorical = tags.input_tags.string = self.categories is not None
        return tags

    def _label(self, position: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"column {position if names is None else names[position]!r}"

    def _by_position(self, parameter: str, entries: Mapping[Any, Any]) -> dict[int, Any]:
        """Names replaced by positions."""
        names = list(getattr(self, "feature_names_in_", ()))
        found: dict[int, Any] = {}
        for key, entry in entries.items():
            position = names.index(key) if key in names else key
            if isinstance(position, bool) or position not in range(self.n_features_in_):
                raise InvalidInput(
                    f"{parameter} speaks of column {key!r}, which the table does not have; use a name of the table's, "
                    f"or a position from 0 to {self.n_features_in_ - 1}"
                )
            if position in found:
                raise InvalidInput(f"{parameter} speaks of {self._label(position)} twice, by name and by position")
            found[position] = entry
        return found

    def _resolve_categories(self) -> list[list[Any] | None]:
        if not isinstance(self.categories, Mapping | None):
            raise InvalidInput("categories must be a dict from a column's name or position to its categories")
        given = self._by_position("categories", self.categories or {})
        return [_check_categories(given[i], self._label(i)) if i in given else None for i in range(self.n_features_in_)]

    def _resolve_bounds(self) -> list[tuple[float, float] | None]:
        given = self._bounds_by_position()
        pairs: list[tuple[float, float] | None] = []
        for i, categories in enumerate(self.categories_):
            if (i in given) == (categories is not None):
                raise InvalidInput(
                    f"{self._label(i)} has {'both' if i in given else 'neither'} bounds and categories, of which it "
                    "needs one; choose it without looking at the data, or drop the column"
                )
            try:
                pairs.append(check_bounds(given[i]) if i in given else None)
            except InvalidInput as error:
                raise InvalidInput(f"{self._label(i)}: {error}") from None
        return pairs

    def _bounds_by_position(self) -> dict[int, Any]:
        bounds = _DEFAULT_BOUNDS if self.bounds is None else self.bounds
        if isinstance(bounds, Mapping):
            return self._by_position("bounds", bounds)
        entries = list(bounds) if isinstance(bounds, Iterable) else []
        if len(entries) == 2 and all(isinstance(entry, Real) for entry in entries):
            return {i: entries for i, categories in enumerate(self.categories_) if categories is None}
        if len(entries) != self.n_features_in_:
            raise InvalidInput(
                "bounds must be one pair (low, high), a dict from columns to pairs, or a sequence of "
                f"{self.n_features_in_} pairs, one for each column (None where it has categories)"
            )
        return {i: entry for i, entry in enumerate(entries) if entry is not None}

    def _read(self, table: Any) -> Iterator[NDArray[Any]]:
        """Each column in turn: numbers brought to [-1, 1] or [0, 1], or positions among the categories."""
        for i, (categories, pair) in enumerate(zip(self.categories_, self.bounds_, strict=True)):
            if categories is not None:
                yield as_labels(_column(table, i), categories, self._label(i))
            elif pair is not None:
                yield _to_unit(_finite(_column(table, i), self._label(i)), *pair, center=self.center)

    @quietly()
    def _entries(self, table: Any) -> tuple[NDArray[Any], NDArray[Any], int]:
        """The one entry each input column has in each row, the output column it belongs to, and how many there are."""
        # A frame's columns need not agree on a type, so only an array is asked for its own.
        dtype = np.dtype(np.float32 if isinstance(table, np.ndarray) and table.dtype == np.float32 else np.float64)
        widths = [1 if categories is None else len(categories) for categories in self.categories_]
        *starts, width = np.cumsum([0, *widths]).tolist()
        indices = np.tile(np.array(starts, np.int32), (table.shape[0], 1))
        entries = np.full(table.shape, _towards_zero(np.float64(self.share_), dtype), dtype)
        for i, column in enumerate(self._read(table)):
            if self.categories_[i] is None:
                entries[:, i] = _towards_zero(self.share_ * column, dtype)
            else:
                indices[:, i] += column.astype(np.int32)
        return entries, indices, width


def _share(norm: object, columns: int) -> float:
    """What each column may contribute. The margin outweighs the three roundings: columns * share**2 < norm**2."""
    value = check_positive("norm", norm)
    if not 1e-30 <= value <= 1e30:
        raise InvalidInput(f"norm must lie between 1e-30 and 1e30, or single precision could not hold it; got {value}")
    return value / math.sqrt(columns) * (1 - 2.0**-40)


def _check_categories(categories: Any, label: str) -> list[Any]:
    """The categories as Python's own values, since numpy's hash and print as they like."""
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise InvalidInput(f"{label}: categories must be a list of values, got {type(categories).__name__}")
    values = [value.item() if isinstance(value, np.generic) else value for value in categories]
    # NaN is not equal to itself, so nothing could ever be found to be it.
    if not all(isinstance(value, str | Real) and value == value for value in values):  # noqa: PLR0124
        raise InvalidInput(f"{label}: a category must be text, a number other than NaN, or a boolean")
    if not values or len(set(values)) != len(values):
        raise InvalidInput(f"{label}: categories must be different (1, 1.0 and True are equal), and at least one")
    return values


def _as_table(X: Any) -> Any:
    """A frame as it is, anything else as an array; scikit-learn's own check quotes values, so this one is ours."""
    if sparse.issparse(X):
        raise InvalidInput("X is sparse, which is not supported; pass a dense array or a data frame")
    if np.ma.is_masked(X):
        raise InvalidInput("X has masked values; drop or fill them by a rule that does not look at the data")
    table = X
    if not any(hasattr(X, attribute) for attribute in ("iloc", "to_series", "column_names")):
        # Lists become objects first: numpy would make text of numbers that stand beside text.
        table = np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
        if table.dtype.kind == "c":
            raise InvalidInput("Complex data not supported; pass the real and imaginary parts as two columns")
    if len(table.shape) != 2:
        raise InvalidInput(
            f"expected a table of rows and columns, got {len(table.shape)} dimension(s). Reshape your data: "
            "array.reshape(-1, 1) makes a table of one column, array.reshape(1, -1) of one row"
        )
    if 0 in table.shape:
        missing = "feature" if table.shape[1] == 0 else "sample"
        raise InvalidInput(f"found 0 {missing}(s) (shape={tuple(table.shape)}) while a minimum of 1 is required.")
    return table


def _column(table: Any, position: int) -> Any:
    """One column of a pandas frame, an Arrow table, a polars frame or an array."""
    if hasattr(table, "iloc"):
        return table.iloc[:, position].to_numpy()
    return table.column(position) if hasattr(table, "column_names") else table[:, position]


def _finite(column: Any, label: str) -> NDArray[np.float64]:
    try:
        return as_numbers(column, label)
    except InvalidInput:
        raise _NotANumber(
            f"{label} has a missing, NaN, infinite or non-numeric value (an argument must be declared in categories if "
            "it is a string, and be a number otherwise); drop or fill by a rule that does not look at the data"
        ) from None


@quietly()
def _to_unit(numbers: NDArray[np.float64], low: float, high: float, *, center: bool) -> NDArray[np.float64]:
    """Clipped and brought to [-1, 1] or [0, 1], bounds to the ends; rounding is monotone, so it cannot lead outside."""
    clipped = np.clip(numbers, low, high)
    distance = clipped - low
    if center:
        distance -= high - clipped
    return distance / (high - low)


@quietly()
def _towards_zero(entries: Any, dtype: np.dtype[Any]) -> Any:
    """In this precision, never larger than before."""
    if entries.dtype == dtype:
        return entries
    rounded = entries.astype(dtype)
    return np.where(np.abs(rounded) > np.abs(entries), np.nextafter(rounded, dtype.type(0)), rounded)
