"""What the routes work with, and who may call them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from epsilearn.service import store
from epsilearn.service.callers import Callers, Forbidden
from epsilearn.service.configuration import Configuration
from epsilearn.service.faults import complain
from epsilearn.service.fencing import fenced
from epsilearn.service.keys import HOLDER, Caller, Keys
from epsilearn.service.lanes import Lanes
from epsilearn.service.metrics import Metrics
from epsilearn.service.record import CallLog
from epsilearn.service.releases import Releases
from epsilearn.service.room import Room
from epsilearn.service.tables import Tables

__all__ = ["Analyst", "Here", "Holder", "Parts"]

_bearer = HTTPBearer(auto_error=False, description="A key made by `epsilearn key create` or by a holder.")


class Parts:
    """What the routes work with.

    Parameters
    ----------
    configuration : Configuration
    term : int, optional
        Which server this is: it writes as long as no other has begun.
    """

    def __init__(self, configuration: Configuration, term: int | None = None) -> None:
        limits = configuration.limits
        self.configuration, self.limits = configuration, limits
        database = store.opened_store(configuration.database, make=True)
        self.database = database if term is None else fenced(database, term)
        self.keys = Keys(self.database)
        self.tables = Tables(self.database, configuration.tables, limits.memory_gib * 2**30)
        room = Room(limits.sessions_gib * 2**30)
        self.releases = Releases(self.database, self.tables, room, limits.pad_seconds, complain)
        self.log = CallLog(store.log_store(self.database), limits.log_calls, limits.log_days)
        self.metrics, self.lanes = Metrics(), Lanes()
        self.callers = Callers(self.keys, limits.requests_per_minute / configuration.workers, limits.calls_at_once)


# These are coroutines: a function would wait for one of the threads that long answers may hold.
async def _parts(request: Request) -> Parts:
    """The parts of the application that a request came to."""
    found: Parts = request.app.state.parts
    return found


async def _caller(request: Request, _given: Annotated[object, Depends(_bearer)]) -> Caller:
    """Whoever was let in before anything of the request was read."""
    found: Caller = request.scope["epsilearn"]
    return found


async def _holder(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role != HOLDER:
        raise Forbidden("this is for data holders; the key is an analyst's")
    return caller


Here = Annotated[Parts, Depends(_parts)]
Analyst = Annotated[Caller, Depends(_caller)]  # a holder may ask, too
Holder = Annotated[Caller, Depends(_holder)]
