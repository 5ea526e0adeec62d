"""The one entrance: where records live. Everything else sees them only through sums over all of them."""

from typing import Any

from epsilearn.rows.bounds import Bounds
from epsilearn.rows.interface import Rows, Sums
from epsilearn.rows.memory import DenseRows, SparseRows, memory_rows
from epsilearn.rows.parted import PartedRows
from epsilearn.rows.parts import Parts

__all__ = ["Bounds", "DenseRows", "PartedRows", "Parts", "Rows", "SparseRows", "Sums", "as_rows"]


def as_rows(X: Any, targets: Any, bounds: Bounds) -> Rows:
    """Rows from an array, a data frame, a sparse matrix or a table in parts, clipped to the bounds.

    The rows of a table in parts are all read and checked here.
    """
    return PartedRows(X, targets, bounds) if isinstance(X, Parts) else memory_rows(X, targets, bounds)
