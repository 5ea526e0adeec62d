"""JSON from files that anybody may have written: plain data that means one thing, or a clear refusal."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from epsilearn.errors import InvalidInput

__all__ = ["parse_json"]

_MOST_DIGITS = 400  # of a whole number; the largest double has 309


def parse_json(text: str, what: str) -> Any:
    """The data in a text.

    Refuses what other readers would take for something else, and what the next step could not work with: names that a
    table has twice, NaN and infinities, numbers beyond the doubles, nesting without end, half characters.

    Parameters
    ----------
    text : str
        What is to be read.
    what : str
        What it should be, for the refusal: "a model file".

    Examples
    --------
    >>> parse_json('{"epsilon": 1}', "a guarantee")
    {'epsilon': 1}
    >>> parse_json('{"epsilon": 1, "epsilon": 9}', "a guarantee")
    Traceback (most recent call last):
    ...
    epsilearn.errors.InvalidInput: not a guarantee: it holds 'epsilon' twice
    """
    try:
        found = json.loads(
            text, parse_constant=_refuse, parse_float=_double, parse_int=_whole, object_pairs_hook=_each_once
        )
        json.dumps(found, ensure_ascii=False).encode()  # half a character is no text
    except _Refused as refused:
        raise InvalidInput(f"not {what}: it holds {refused}") from None
    except UnicodeEncodeError:
        raise InvalidInput(f"not {what}: it holds half a character") from None
    except RecursionError:
        raise InvalidInput(f"not {what}: it is nested too deeply") from None
    except ValueError:
        raise InvalidInput(f"not {what}: the text is not JSON") from None
    return found


class _Refused(Exception):
    """Says what was found."""


def _refuse(name: str) -> NoReturn:
    raise _Refused(f"{name}, which is no number")


def _double(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Refused("a number beyond the doubles")
    return number


def _whole(digits: str) -> int:
    # By their count first: reading very many digits takes very long.
    if len(digits) > _MOST_DIGITS:
        raise _Refused("a number beyond the doubles")
    try:
        float(number := int(digits))
    except OverflowError:
        raise _Refused("a number beyond the doubles") from None
    return number


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise _Refused(f"{twice[:40]!r} twice")
    return found
