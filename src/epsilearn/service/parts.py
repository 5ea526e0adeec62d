"""What the routes work with, and who may call them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from epsilearn.errors import EpsilearnError
from epsilearn.service import store
from epsilearn.service.configuration import Configuration
from epsilearn.service.guard import complain
from epsilearn.service.keys import HOLDER, Caller, Keys, UnknownKey
from epsilearn.service.limits import Buckets
from epsilearn.service.messages import Fault
from epsilearn.service.metrics import Metrics
from epsilearn.service.record import CallLog
from epsilearn.service.releases import Releases
from epsilearn.service.tables import Tables

__all__ = ["FAULTS", "Analyst", "Forbidden", "Here", "Holder", "Parts", "TooOften"]

_bearer = HTTPBearer(auto_error=False, description="A key made by `epsilearn key create` or by a holder.")

FAULTS: dict[int | str, dict[str, Any]] = {
    400: {"model": Fault, "description": "The body cannot be read"},
    401: {"model": Fault, "description": "No key, or one that is wrong, revoked or expired"},
    403: {"model": Fault, "description": "Not for this key's role"},
    404: {"model": Fault, "description": "There is no such thing, or none that this key is for"},
    409: {
        "model": Fault,
        "description": "Not as things stand: the budget, a name that is taken, an end",
    },
    413: {"model": Fault, "description": "The body is too long"},
    422: {"model": Fault, "description": "What was sent cannot be used"},
    429: {"model": Fault, "description": "Too many calls"},
    503: {"model": Fault, "description": "The server's database or a file is out of reach"},
}


class Forbidden(EpsilearnError):
    """The key is good, and not for this."""


class TooOften(EpsilearnError):
    """More calls than a key may make."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"too many calls with this key or from this address; wait {wait:.0f} seconds")
        self.wait = wait


class Parts:
    """What the routes work with."""

    def __init__(self, configuration: Configuration) -> None:
        limits = configuration.limits
        self.configuration, self.limits = configuration, limits
        self.database = store.opened_store(configuration.database, make=True)
        self.keys = Keys(self.database)
        self.tables = Tables(self.database, configuration.tables, limits.memory_gib * 2**30)
        self.releases = Releases(self.database, self.tables, limits.pad_seconds, complain)
        self.log, self.metrics = CallLog(self.database), Metrics()
        # Each process has its own buckets: together no more than the whole.
        self.calls = Buckets(limits.requests_per_minute / configuration.workers)
        self.wrong_keys = Buckets(max(1.0, limits.requests_per_minute / 10 / configuration.workers))


def _parts(request: Request) -> Parts:
    """The parts of the application that a request came to."""
    found: Parts = request.app.state.parts
    return found


def _caller(
    request: Request, here: Annotated[Parts, Depends(_parts)],
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:  # fmt: skip
    address = request.client.host if request.client else ""
    try:
        caller = here.keys.check(given.credentials if given is not None else "")
    except UnknownKey:
        if (wait := here.wrong_keys.take(address)) > 0:
            raise TooOften(wait) from None
        raise
    request.scope["epsilearn"].update(key=caller.key, who=caller.name)
    if (wait := here.calls.take(caller.key)) > 0:
        raise TooOften(wait)
    return caller


def _holder(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role != HOLDER:
        raise Forbidden("this is for data holders; the key is an analyst's")
    return caller


Here = Annotated[Parts, Depends(_parts)]
Analyst = Annotated[Caller, Depends(_caller)]  # a holder may ask, too
Holder = Annotated[Caller, Depends(_holder)]
