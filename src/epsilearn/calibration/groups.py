"""From a promise per person to a promise per record, for mechanisms whose sensitivity does not simply scale."""

from __future__ import annotations

from epsilearn.balls import ball, exact, precision, round_down
from epsilearn.checks import check_budget, check_integer
from epsilearn.errors import InvalidInput

__all__ = ["per_record"]

_HUGE = 1e5  # the power of e is far beyond the doubles by then


def per_record(epsilon: float, delta: float, rows_per_person: int) -> tuple[float, float]:
    """The budget per record that gives (epsilon, delta) to a person with up to k records.

    Theorem (group privacy). k replacements of an (e, d)-private mechanism are (k e, d (e**(k e) - 1) / (e**e - 1))-
    private: chain the inequality k times and sum the geometric series.

    Examples
    --------
    >>> per_record(1.0, 0.0, 4)
    (0.25, 0.0)
    >>> round(per_record(1.0, 1e-6, 2)[1] * 1e6, 4)
    0.3775
    """
    epsilon, delta = check_budget(epsilon, delta)
    rows = check_integer("rows_per_person", rows_per_person)
    if rows == 1:
        return epsilon, delta
    share = round_down(exact(epsilon) / rows)
    if delta == 0:
        return share, 0.0
    with precision(128):
        ratio = ball(exact(share)).expm1() / ball(exact(min(epsilon, _HUGE))).expm1()
        left = round_down(ball(exact(delta)) * ratio) if epsilon < _HUGE else 0.0
    if left <= 0:
        raise InvalidInput(
            f"with epsilon = {epsilon:g} and {rows} rows per person no double is small enough for the delta that is "
            "left to one row; ask for a smaller epsilon, or for delta = 0"
        )
    return share, left
