"""Linear regression: noisy moments with an adaptive ridge, and the lecture's printed sensitivity.

Proofs: ``docs/theory/regression.md``.
"""

from __future__ import annotations

import math

from epsilearn.calibration.output import LossBounds, norm_bound
from epsilearn.checks import check_positive

__all__ = ["lecture_sensitivity", "moments_sensitivity", "noise_norm"]

_SLACK = 1 + 1e-12


def moments_sensitivity(balance: float = 1.0) -> float:
    """How far (X'X / M**2, balance X'y / (M N)) moves in the l2 norm when one record is replaced.

    Rows have norm at most M, targets size at most N; X'X counts in the Frobenius norm.

    Theorem. With t the cosine between the two rows and B = balance**2, the square is at most the largest
    2 (1 - t**2) + 2 B (1 + t) over t in [0, 1]: 2 + 2 B + B**2 / 2 if B <= 2, and 4 B beyond. The two parts cannot
    both be at their worst, so this is less than the sum 2 + 4 B of their separate squares.

    Examples
    --------
    >>> round(moments_sensitivity() ** 2, 6)  # the separate bounds give 6
    4.5
    """
    weight = check_positive("balance", balance) ** 2
    square = 2 + 2 * weight + weight**2 / 2 if weight <= 2 else 4 * weight
    return math.sqrt(square) * _SLACK


def noise_norm(columns: int, deviation: float, failure: float) -> float:
    """How long the operator norm of the noise in X'X is, except with probability at most ``failure``.

    Theorem. A symmetric matrix with independent normal entries of deviation s on the diagonal and s / sqrt(2) off it
    is the Gaussian orthogonal ensemble: its largest eigenvalue has expectation at most s sqrt(2 d), and as a Lipschitz
    function of the entries exceeds it by s sqrt(2 log(2 / failure)) with probability at most failure / 2; likewise
    the smallest.

    Examples
    --------
    >>> round(noise_norm(10, 1.0, 0.05), 2)
    7.19
    """
    return deviation * (math.sqrt(2 * columns) + math.sqrt(2 * math.log(2 / failure)))


def lecture_sensitivity(loss: LossBounds, rows: int, columns: int, row_norm: float, strength: float) -> float:
    """The lecture's l1 sensitivity of least squares, 2 M sqrt(k) (N + P M) / n, as printed.

    It lacks the division by the strength of the ridge and is false without one: what is proven for noise of this
    scale is about 1 / strength times the claim.
    """
    weight_norm = norm_bound(loss, row_norm, strength)
    return 2 * row_norm * math.sqrt(columns) * loss.steepest(row_norm * weight_norm) / rows * _SLACK
