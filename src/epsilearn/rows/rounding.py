"""How exactly rows can be summed: bounds from public numbers, wherever the rows are.

Rows are summed in stretches, whose sums are added up in a `Total`; tables in parts also in blocks, one after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from epsilearn.losses import Loss
from epsilearn.losses.interface import UNIT
from epsilearn.rows.bounds import Bounds
from epsilearn.rows.totals import roundings

__all__ = [
    "LONG_STRETCH", "OUTER_STRETCH", "SHORT_STRETCH", "Rounding", "most_blocks", "public_moments_error",
    "public_rounding", "sparse_stretch",
]  # fmt: skip

SHORT_STRETCH = 1024  # rows whose gradients are added one by one; few enough to be read twice from the cache
OUTER_STRETCH = 4096  # rows whose outer products are added by one call of the linear algebra library
LONG_STRETCH = 1 << 15  # rows handed to the compiled dense pass, which has blocks of its own
_MOST_BLOCKS = 1 << 24


def sparse_stretch(columns: int) -> int:
    """Sparse rows whose gradients are added one by one."""
    # A stretch has a gradient of its own, as long as there are columns: few columns, short stretches.
    return max(SHORT_STRETCH, columns // 64)


@dataclass(frozen=True)
class Rounding:
    """A bound on the norm of the rounding error of a mean gradient, over every set of rows inside the bounds.

    A score is a sum of products, one more than ``terms`` with the intercept's, and errs by at most (terms + 3) u R
    ||w||; a slope by the loss's smoothness times that, plus its own evaluation; and each addend of the gradient passes
    through ``additions`` additions at most. With several scores to a record the same holds in the l2 norm over them.
    """

    terms: int
    additions: float
    norm: float

    def __call__(self, loss: Loss, weight_norm: float) -> float:
        """The bound at any point of at most this norm."""
        norm = self.norm
        steepest = min(loss.lipschitz, loss.steepest(norm * weight_norm))
        score_error = (self.terms + 4) * UNIT * norm * weight_norm
        slope_error = loss.smoothness * score_error + loss.slope_rounding(norm * weight_norm)
        return 1.01 * norm * (slope_error + (self.additions + 4) * UNIT * (steepest + slope_error))


def public_rounding(rows: int, features: int, bounds: Bounds) -> Rounding:
    """How exactly gradients over so many rows can be summed, wherever and however these are kept.

    The worst that any rows could need. How many entries the longest sparse row has is private, and so is whether a
    giant among the rows made for a copy, which may be read in another way. Where they live must not matter either, so
    that a fit is planned alike everywhere.
    """
    return Rounding(features, _additions_anywhere(sparse_stretch(features), rows), bounds.norm)


def public_moments_error(rows: int, features: int) -> float:
    """The same for second moments, relative to the largest they can be.

    The curvature is exactly one: each addend is a product of entries rounded once, before the additions, and is divided
    by n and multiplied again after them.
    """
    stretch = max(OUTER_STRETCH, sparse_stretch(features))
    return 1.01 * (_additions_anywhere(stretch, rows) + 12) * UNIT


def _additions_anywhere(stretch: int, rows: int) -> float:
    """Additions within a stretch, between those of a block, and between blocks, whose means are multiplied first."""
    return stretch + roundings(math.ceil(rows / SHORT_STRETCH)) + 3 + roundings(most_blocks(rows))


def most_blocks(rows: int) -> int:
    """How many blocks a table may be in; far more than anybody wants."""
    return max(_MOST_BLOCKS, rows // 512)
