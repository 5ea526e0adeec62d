"""How each kind of error is told: its status, its text, and what else a client should know."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from epsilearn.errors import BudgetExceeded, InvalidInput, LedgerError, StateError, TamperedLedger
from epsilearn.service.callers import Forbidden, TooOften
from epsilearn.service.keys import UnknownKey
from epsilearn.service.lanes import Busy
from epsilearn.service.messages import Fault
from epsilearn.service.tables import NotFound, Taken

__all__ = ["FAULTS", "complain", "told"]

_log = logging.getLogger("epsilearn.service")
# The first that fits.
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (UnknownKey, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Taken, 409),
    (BudgetExceeded, 409),
    (StateError, 409),
    (TooOften, 429),
    (Busy, 503),
    (InvalidInput, 422),
    (LedgerError, 503),
)
# For the API's description.
FAULTS: dict[int | str, dict[str, Any]] = {
    400: {"model": Fault, "description": "The body cannot be read"},
    401: {"model": Fault, "description": "No key, or one that is wrong, revoked or expired"},
    403: {"model": Fault, "description": "Not for this key's role"},
    404: {"model": Fault, "description": "There is no such thing, or none that this key is for"},
    409: {"model": Fault, "description": "Not as things stand: the budget, a name that is taken, an end"},
    413: {"model": Fault, "description": "The body is too long"},
    422: {"model": Fault, "description": "What was sent cannot be used"},
    429: {"model": Fault, "description": "Too many calls"},
    503: {"model": Fault, "description": "The server's database is out of reach, or too many are waiting for the same"},
}


def told(error: BaseException) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers. An error that nobody foresaw is told by its kind alone."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 401:
        return status, str(error), {"WWW-Authenticate": "Bearer"}
    if isinstance(error, (TooOften, Busy)):
        return status, str(error), {"Retry-After": str(max(1, round(error.wait)))}
    if status == 503:
        complain(error)
        if isinstance(error, TamperedLedger):
            return status, str(error), {}
        return status, "the server's database is out of reach", {}
    if status == 500:
        complain(error)
        return status, f"unexpected {type(error).__name__}; a debit, if there was one, stands", {}
    return status, str(error), {}


def complain(error: BaseException) -> None:
    """Log what kind of error it was and where; its text may quote somebody's values."""
    places = traceback.extract_tb(error.__traceback__)
    where = f"{places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}" if places else "nowhere"
    _log.error("unexpected %s at %s", type(error).__name__, where)
