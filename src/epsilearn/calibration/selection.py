"""How much noise a private choice needs: the exponential mechanism and the sparse vector technique.

Proofs: ``docs/theory/selection.md``.
"""

from __future__ import annotations

from epsilearn.balls import round_up
from epsilearn.calibration.additive import least_epsilon, most_sensitivity
from epsilearn.checks import check_budget, check_integer, check_positive

__all__ = ["above_threshold_scales", "gumbel_scale"]


def gumbel_scale(sensitivity: float, epsilon: float, rows_per_person: int = 1) -> float:
    """The scale of the Gumbel noise that makes the index of the greatest noisy score private.

    Theorem. If every score changes by at most S between neighbours, the index of the greatest
    score + Gumbel(2 S / epsilon) has probabilities proportional to exp(epsilon score / (2 S)). It is
    epsilon-private, and its privacy loss lies in an interval of length epsilon, so it is
    epsilon**2 / 8 zero-concentrated.

    Examples
    --------
    >>> gumbel_scale(1, 1)
    2.0
    """
    check_positive("sensitivity", sensitivity)
    check_budget(epsilon)
    return round_up(2 * most_sensitivity(sensitivity, rows_per_person) / least_epsilon(epsilon))


def above_threshold_scales(
    sensitivity: float, epsilon: float, positives: int, rows_per_person: int = 1
) -> tuple[float, float]:
    """The Laplace scales of the threshold and of each question, for ``positives`` positive answers in all.

    Theorem (Dwork and Roth 2014, Theorem 3.23). With threshold noise Laplace(2 S / e) and fresh question noise
    Laplace(4 S / e), everything up to and including the first positive answer is e-private, however many
    questions there are. Redrawing the threshold after each positive answer, c of them cost c e = epsilon.

    Examples
    --------
    >>> above_threshold_scales(1, 1, 2)
    (4.0, 8.0)
    """
    check_positive("sensitivity", sensitivity)
    check_budget(epsilon)
    check_integer("positives", positives)
    each = most_sensitivity(sensitivity, rows_per_person) * positives / least_epsilon(epsilon)
    return round_up(2 * each), round_up(4 * each)
