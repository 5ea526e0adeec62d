"""Private steps of a path: which corner next, or a noisy gradient; the debit comes before the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import ball
from epsilearn.guarantee import Guarantee
from epsilearn.linear_scores import LinearScores
from epsilearn.mechanisms.additive import noisy_numbers
from epsilearn.mechanisms.release import NoiseLaw, Spender, spending
from epsilearn.mechanisms.tape import answered
from epsilearn.noise.bits import BitSource, SeededBits
from epsilearn.noise.choice import noisy_argmax, prepare
from epsilearn.noise.door import check_scale, grid_of
from epsilearn.noise.door import prepare as prepare_door
from epsilearn.noise.lottery import ColumnLottery, Columns, draw_ticket
from epsilearn.noise.quantiles import LAPLACE, NORMAL

__all__ = ["PrivateSteps", "private_steps"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_UNIT = 2.0**-53


@dataclass(frozen=True)
class PrivateSteps:
    """The private part of each step. It holds live noise: it is made for one path and never leaves it."""

    scale: float
    source: BitSource
    lottery: ColumnLottery

    def column(self, scores: LinearScores, size: Fraction, signed: bool) -> int:
        """A column with probability proportional to exp(-size * score / scale), or that of its negative, exactly.

        Where ``signed``, twice the column, plus 1 for the negative.
        """
        factor = -size / Fraction(self.scale)
        columns = Columns(
            scores.count, scores.present, scores.still, scores.touched, scores.moved, factor * scores.first,
            factor * scores.second, scores.generation, signed,
        )  # fmt: skip
        public = (self.scale, size, signed, scores.count)
        return answered(self.source, "choice", public, lambda: _logits(columns), lambda: self.lottery.draw(columns))

    def corner(self, points: Array, sums: Integers, unit: Fraction) -> int:
        """A row of ``points`` with probability proportional to exp(-unit * <point, sums> / scale), exactly.

        ``sums`` are below 2**53.
        """
        factor = -unit / Fraction(self.scale)
        values = sums.astype(np.float64)
        logits = float(factor) * (points @ values)
        size = float(np.max(np.abs(points) @ np.abs(values), initial=0.0)) * abs(float(factor))
        error = (points.shape[1] + 8) * _UNIT * size * (1 + 1e-6)

        def exactly() -> list[arb]:
            whole = [ball(int(s)) for s in sums]
            return [
                ball(factor) * sum((ball(float(p)) * w for p, w in zip(point, whole, strict=True) if p), arb(0))
                for point in points
            ]

        return answered(
            self.source, "choice", (self.scale, unit), lambda: logits,
            lambda: draw_ticket(logits, error, exactly, self.source),
        )  # fmt: skip

    def laplace_corner(self, scores: Array) -> int:
        """The index of the least score + Laplace noise, exactly."""
        return answered(
            self.source, "noisy max", (self.scale,), lambda: -scores,
            lambda: noisy_argmax(-scores, self.scale, self.source, LAPLACE),
        )  # fmt: skip

    def gradient(self, sums: Integers, unit: float) -> Array:
        """Whole sums plus Gaussian noise of deviation ``scale / unit``, through the door, times ``unit``."""
        deviation = check_scale(self.scale / unit * (1 + 2.0**-50))
        law = NoiseLaw("gaussian", deviation)
        return noisy_numbers(sums.astype(np.float64), law, self.source, grid_of(deviation)) * unit


def _logits(columns: Columns) -> Array:
    """Every ticket's logit, in the order of the tickets."""
    logits = np.zeros(columns.count)
    logits[columns.present] = float(columns.second) * columns.still
    logits[columns.present[columns.touched]] += float(columns.first) * columns.moved
    return np.stack([logits, -logits], axis=1).ravel() if columns.signed else logits


@contextmanager
def private_steps(
    law: NoiseLaw,
    promise: Guarantee,
    ledger: Spender | None,
    purpose: str,
    random_state: Any,
) -> Iterator[tuple[PrivateSteps, Guarantee]]:
    """Debit, then hand out the steps of one path and the stamped promise."""
    check_scale(law.scale)
    _PREPARE[law.kind](law.dimension)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        yield PrivateSteps(law.scale, source, ColumnLottery(source)), stamped


def _prepare_lottery(dimension: int) -> None:  # noqa: ARG001 - the same for any number of columns
    one = np.zeros(1, np.int64)
    ColumnLottery(SeededBits(0)).draw(Columns(1, one, one, one, one, Fraction(1), Fraction(1), 0, True))


_PREPARE: dict[str, Callable[[int], None]] = {
    "gumbel": _prepare_lottery,
    "laplace": lambda dimension: prepare(dimension, LAPLACE),
    "gaussian": lambda dimension: prepare_door(dimension, NORMAL),
}
