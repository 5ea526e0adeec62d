"""Checks of public arguments: a clear error before anything is spent."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from epsilearn.errors import InvalidInput

__all__ = [
    "as_line",
    "check_bounds",
    "check_budget",
    "check_choice",
    "check_failure",
    "check_fit_budget",
    "check_integer",
    "check_margin",
    "check_positive",
    "check_probability",
    "check_share",
    "check_size",
    "check_unmasked",
    "check_within_doubles",
    "is_line",
    "within_doubles",
]

LEAST_SIZE, LARGEST_SIZE = 1e-100, 1e100
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-30, 1e30
_LEAST_PLANNED, _LARGEST_PLANNED = 1e-140, 1e140
_BEYOND = (
    "these settings together lead to numbers beyond the doubles; choose epsilon, alpha and bounds closer to 1, "
    "rescaling the data where needed"
)


# Control and format characters (those that turn the direction of text around among them), halves of pairs, private use,
# unassigned, and ends of lines and paragraphs. Spaces of any width are harmless.
_NO_TEXT = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"  # Persian and family emojis are written with them; they move and hide nothing


def is_line(text: str) -> bool:
    """Whether a text can stand in a ledger, a log or a terminal as one line: letters, marks, digits, signs and spaces.

    Of format characters only the two joiners can, which some scripts cannot be written without.

    Examples
    --------
    >>> is_line("年次 報告"), is_line("two" + chr(10) + "lines"), is_line(chr(0x202E) + "turned around")
    (True, False, False)
    """
    return text.isprintable() or all(
        letter in _JOINERS or unicodedata.category(letter) not in _NO_TEXT for letter in text
    )


def as_line(text: str) -> str:
    """A text made fit for one line: what cannot stand there is shown as a question mark."""
    return "".join(letter if is_line(letter) else "?" for letter in text)


def _real(name: str, number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, Real):
        raise InvalidInput(f"{name} must be a number, got {type(number).__name__}")
    try:
        return float(number)
    except OverflowError:
        raise InvalidInput(f"{name} is beyond the doubles; it must be a finite number") from None


def check_positive(name: str, number: object) -> float:
    """A finite number above zero."""
    value = _real(name, number)
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be a finite number above 0, got {value}")
    return value


def check_size(name: str, number: object) -> float:
    """A number between 1e-100 and 1e100: a few of those can be multiplied without leaving the doubles."""
    value = check_positive(name, number)
    if not LEAST_SIZE <= value <= LARGEST_SIZE:
        raise InvalidInput(
            f"{name} must lie between {LEAST_SIZE:g} and {LARGEST_SIZE:g}, got {value:g}; choose another, or rescale "
            "the data"
        )
    return value


def check_unmasked(*parts: object) -> None:
    """Refuse masked arrays, of which numpy's functions read what is hidden."""
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise InvalidInput("masked arrays are not supported: what they hide would be read; drop or fill those values")


def check_within_doubles(*numbers: float) -> None:
    """Refuse settings whose consequences, all of them public numbers, could not be squared in doubles."""
    if not all(_LEAST_PLANNED <= number <= _LARGEST_PLANNED for number in numbers):
        raise InvalidInput(_BEYOND)


@contextmanager
def within_doubles() -> Iterator[None]:
    """Around arithmetic on public numbers: one that leaves the doubles is an error in the settings."""
    try:
        with np.errstate(all="ignore"):
            yield
    except ArithmeticError:
        raise InvalidInput(_BEYOND) from None


def check_fit_budget(epsilon: object, delta: object, rows_per_person: object) -> tuple[float, float, int]:
    """The budget of a fit, and how many rows it is for: epsilon between 1e-30 and 1e30, for each of the rows too."""
    eps, share = check_budget(epsilon, delta)
    rows = check_integer("rows_per_person", rows_per_person)
    if not _LEAST_EPSILON <= eps <= _LARGEST_EPSILON or Fraction(eps) < Fraction(_LEAST_EPSILON) * rows:
        raise InvalidInput(
            f"epsilon must lie between {_LEAST_EPSILON:g} and {_LARGEST_EPSILON:g} for a fit, also where it is divided "
            f"by rows_per_person; got epsilon = {eps:g} for {_count(rows)}. Choose another epsilon, or fewer rows"
        )
    return eps, share, rows


def _count(rows: int) -> str:
    return f"{rows} rows" if rows < 10**9 else "more than a billion rows"


def check_margin(number: object) -> float:
    """A number from 0 to 100: a margin beyond that is of no use, and its exponential no longer a number."""
    value = _real("margin", number)
    if not 0 <= value <= 100:
        raise InvalidInput(f"margin must lie between 0 and 100, got {value}; 0 is the usual logistic loss")
    return value


def check_probability(name: str, number: object) -> float:
    """A number strictly between 0 and 1."""
    value = _real(name, number)
    if not 0 < value < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value}")
    return value


def check_failure(number: object) -> float:
    """The probability that a stated error is exceeded; not so small that its quantile would leave the doubles."""
    value = check_probability("failure", number)
    if value < LEAST_SIZE:
        raise InvalidInput(f"failure must be at least {LEAST_SIZE:g}, got {value:g}; nothing is lost by a larger one")
    return value


def check_share(name: str, number: object) -> float:
    """A number from 0 to 1, both included."""
    value = _real(name, number)
    if not 0 <= value <= 1:
        raise InvalidInput(f"{name} must lie between 0 and 1, got {value}")
    return value


def check_choice(name: str, word: object, allowed: tuple[str, ...]) -> None:
    """One of a few words."""
    if not isinstance(word, str) or word not in allowed:
        words = [repr(one) for one in allowed]
        listed = " or ".join(words) if len(words) == 2 else "one of " + ", ".join(words)
        raise InvalidInput(f"{name} must be {listed}, got {word!r}")


def check_integer(name: str, number: object, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise InvalidInput(f"{name} must be a whole number, got {type(number).__name__}")
    if number < least:
        raise InvalidInput(f"{name} must be at least {least}, got {number}")
    return int(number)


def check_budget(epsilon: object, delta: object = 0.0) -> tuple[float, float]:
    """epsilon above zero and finite, delta in [0, 1)."""
    eps = _real("epsilon", epsilon)
    if not (math.isfinite(eps) and eps > 0):
        raise InvalidInput(f"epsilon must be a finite number above 0, got {eps}")
    share = _real("delta", delta)
    if not 0 <= share < 1:
        raise InvalidInput(f"delta must lie in [0, 1), got {share}; 0 asks for a pure guarantee")
    return eps, share


def check_bounds(bounds: Any) -> tuple[float, float]:
    """A pair of finite numbers, the lower one first."""
    try:
        first, second = bounds
    except (TypeError, ValueError):
        raise InvalidInput(f"bounds must be a pair (lower, upper), got {bounds!r}") from None
    low, high = _real("the lower bound", first), _real("the upper bound", second)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidInput(f"bounds must be finite, got ({low}, {high})")
    if not math.isfinite(high - low):
        raise InvalidInput(f"bounds ({low}, {high}) are too far apart for doubles; rescale the column")
    if not low < high:
        raise InvalidInput(f"the lower bound must be below the upper one, got ({low}, {high})")
    return low, high
