"""The one entrance: where records live. Everything else sees them only through sums over all of them."""

from epsilearn.rows.bounds import Bounds
from epsilearn.rows.interface import Rows, Sums
from epsilearn.rows.memory import DenseRows, SparseRows, as_rows

__all__ = ["Bounds", "DenseRows", "Rows", "SparseRows", "Sums", "as_rows"]
