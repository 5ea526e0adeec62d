"""How strong to regularise when nobody says: a rule from public numbers alone.

Every choice is private at the same price; the rule only decides how well the model does. It balances two errors. Noise
costs less the stronger the regularisation, and a good predictor w0 loses strength ||w0||**2 / 2. How long w0 is cannot
be known without looking, so a typical length stands in: one that gives a typical score on a row at the bound.
`docs/theory/strength.md` has the derivation, and the experiments on generated data behind its constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from epsilearn.calibration.additive import gaussian_scale, gaussian_shift, laplace_scale
from epsilearn.calibration.fit import least_strength
from epsilearn.calibration.objective import gaussian_perturbation, pure_perturbation
from epsilearn.calibration.output import LossBounds, minimiser_sensitivity
from epsilearn.errors import InvalidInput

__all__ = ["automatic_rank", "automatic_strength", "typical_score"]

Array = NDArray[np.float64]

_SIGNAL = 20.0
_MOST_DIRECTIONS = 800
# For two classes: how far scores grow at least; the noise, in lengths of a row, below which they grow faster; along how
# many directions rows of very many columns vary.
_LEAST_GROWTH, _LITTLE_NOISE, _DIRECTIONS = 5.0, 0.006, 1500
# How far descent goes at most, in squared lengths of a row: the few steps it has overshoot beyond that.
_LONGEST_DESCENT = 1e4


def typical_score(method: str, classes: int = 2, target_bound: float | None = None) -> float:
    """The size of a score to expect on a row at the bound: the rule's only constants.

    Noise on the result hurts in the directions in which the data say little, so there it pays to keep weights shorter.

    Examples
    --------
    >>> typical_score("objective"), typical_score("objective", classes=10), typical_score("output")
    (12.0, 18.0, 5.0)
    """
    if target_bound is not None:
        return {"objective": 2.0, "gradient": 2.0, "output": 0.75}[method] * target_bound
    return {"objective": 12.0, "gradient": 12.0, "output": 5.0}[method] * (1.5 if classes > 2 else 1.0)


def automatic_strength(
    loss: LossBounds,
    rows: int,
    columns: int,
    row_norm: float,
    epsilon: float,
    delta: float,
    method: str,
    score: float,
    growing: bool = False,
) -> float:
    """The regularisation for a loss and a budget.

    Objective perturbation: the bound ||b||**2 / (2 strength n**2) + strength ||w0||**2 / 2 is least at
    strength = ||b|| / (n ||w0||). Output perturbation: noise of length c / (n strength) costs about
    beta R**2 c**2 / (2 d n**2 strength**2), since noise has no direction and rows of norm R have a mean square of
    R**2 / d along each; the sum is least at strength**3 = 2 beta R**2 c**2 / (d n**2 ||w0||**2).

    Parameters
    ----------
    score : float
        The size of a score to expect on a row at the bound: see `typical_score`.
    growing : bool
        Whether less noise lets scores grow: ``score`` is then divided by the root of t, the noise's length in the mean
        gradient in lengths of a row, or multiplied by 5 if that is more; columns beyond 1,500 do not count. With noise
        in the objective it is also multiplied by 0.006 / t if that is above 1, and the strength is at least 2 beta
        R**2 / (n epsilon); with noise in gradients at least R**2 / 10,000.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> round(automatic_strength(Logistic(), 30_000, 100, 1.0, 1.0, 1e-9, "objective", 12.0), 5)
    0.00031
    """
    if method != "output" and math.isinf(loss.lipschitz):
        raise InvalidInput(
            f"{method} perturbation needs a loss of bounded slope; use the Huber loss, or method='output'"
        )
    typical = score * math.sqrt(loss.rank) / row_norm
    weights = (min(columns, _DIRECTIONS) if growing else columns) * loss.rank

    def by_objective(strength: float) -> float:
        if delta:
            length = math.sqrt(weights) * gaussian_perturbation(loss, rows, row_norm, strength, epsilon, delta).scale
        else:
            length = weights * pure_perturbation(loss, rows, row_norm, strength, epsilon).scale
        if not growing:
            return by_length(length)
        # Below this the change of the Hessian takes half of epsilon, and noise grows faster than freedom.
        least = 2 * loss.mean_curvature * row_norm**2 / (rows * epsilon)
        return max(by_length(length) * min(1.0, length / (_LITTLE_NOISE * rows * row_norm)), least)

    def by_gradient(_strength: float) -> float:
        length = math.sqrt(weights) * 2 * loss.lipschitz * row_norm / gaussian_shift(epsilon, delta)
        return max(by_length(length), row_norm**2 / _LONGEST_DESCENT)

    def by_length(length: float) -> float:
        grown = max(_LEAST_GROWTH, math.sqrt(rows * row_norm / length)) if growing else 1.0
        return length / (rows * typical * grown)

    def by_output(strength: float) -> float:
        change = minimiser_sensitivity(loss, rows, row_norm, strength) * strength * rows
        if delta:
            length = math.sqrt(weights) * gaussian_scale(change, epsilon, delta)
        else:
            length = weights * laplace_scale(change, epsilon)
        return math.cbrt(2 * loss.smoothness * (row_norm * length / (rows * typical)) ** 2 / columns)

    rule = {"objective": by_objective, "output": by_output, "gradient": by_gradient}[method]
    return max(_fixed_point(rule, row_norm**2), least_strength(loss, rows, row_norm))


def automatic_rank(loss: LossBounds, rows: int, spectrum: Array, epsilon: float, delta: float) -> int:
    """How many directions of public landmarks a budget can afford.

    With noise of deviation t in each coordinate of the mean gradient (rows of norm 1, slopes of at most 1), r
    directions cost about r t, and leaving out the others about r**(-1/2): the two meet at r = t**(-2/3). Directions
    along which the landmarks vary by less than 20 t**2 are left out as well, since there is more noise than signal
    along them. At most 800 are kept: time grows with their square.

    Parameters
    ----------
    spectrum : array
        The landmarks' variance along each direction, largest first. Public.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> import numpy as np
    >>> slow = 1 / np.arange(1.0, 2000.0)
    >>> [automatic_rank(Logistic(), n, slow, 1.0, 1e-6) for n in (1000, 10_000, 100_000)]
    [21, 110, 518]
    """
    counts = np.arange(1, min(len(spectrum), _MOST_DIRECTIONS) + 1)
    if delta:
        deviations = np.full(len(counts), gaussian_perturbation(loss, rows, 1.0, 1e-3, epsilon, delta).scale)
    else:
        deviations = pure_perturbation(loss, rows, 1.0, 1e-3, epsilon).scale * np.sqrt(counts * loss.rank + 1.0)
    noise = deviations / (min(loss.lipschitz, loss.steepest(math.inf)) * rows)
    enough = (spectrum[: len(counts)] >= _SIGNAL * noise**2) & (counts <= noise ** (-2 / 3))
    return max(1, int(enough.sum()))


def _fixed_point(update: Callable[[float], float], start: float) -> float:
    """The noise depends on the strength, so the rule is applied to its own result a few times."""
    for step in range(5):
        found = update(start)
        # Less strength is more noise, which asks for more strength: the middle is nearer than either.
        start = found if step < 2 else math.sqrt(start * found)
    return start
