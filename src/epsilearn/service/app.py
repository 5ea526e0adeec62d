"""The application: what is called over HTTP, put together from its parts."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from epsilearn import __version__
from epsilearn.errors import EpsilearnError
from epsilearn.service import analyst_routes, bodies, holder_routes, store
from epsilearn.service.bodies import first_fault
from epsilearn.service.configuration import Configuration
from epsilearn.service.connections import Connections, tls_context
from epsilearn.service.faults import FAULTS, told
from epsilearn.service.guard import Guard
from epsilearn.service.lanes import Shared
from epsilearn.service.parts import Parts

__all__ = ["create"]

_DESCRIPTION = """
A trusted learner: it holds the rows, you ask, and one budget for each data set pays for all answers, whoever asks.

Send your key as `Authorization: Bearer epsk_...`. A holder registers data sets, opens releases and makes keys; an
analyst asks. Every error is `{"error": "..."}` and never depends on private rows.
"""
_METRICS_SECONDS = 1.0  # for which what was counted is told again
_PAGE_FILES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


def _told(error: Exception) -> JSONResponse:
    status, text, headers = told(error)
    return JSONResponse({"error": text}, status, headers)


def _invalid(error: RequestValidationError) -> JSONResponse:
    """What is wrong with a path, a query, or a body that is none; others have been checked by then."""
    status, text = first_fault(list(error.errors()))
    return JSONResponse({"error": text}, status)


def create(configuration: Configuration, term: int | None = None) -> FastAPI:
    """The application for a configuration.

    Parameters
    ----------
    configuration : Configuration
        Where its state and tables are, and what it allows.
    term : int, optional
        Which server this is, where several could be started: see `epsilearn.service.fencing`.
    """
    here = Parts(configuration, term)
    bodies.prepare()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        here.lanes.close()
        here.releases.shut()
        here.log.close()

    app = FastAPI(
        title="epsilearn", version=__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None,
        lifespan=lifespan, openapi_url=None, separate_input_output_schemas=False,
        # A redirect would name whatever host the caller says this is.
        redirect_slashes=False,
    )  # fmt: skip
    app.state.parts = here
    app.state.connections = Connections(configuration.limits, tls_context(configuration), here.metrics)
    app.add_exception_handler(EpsilearnError, cast(Any, _as_handler(_told)))
    app.add_exception_handler(RequestValidationError, cast(Any, _as_handler(_invalid)))
    app.add_exception_handler(HTTPException, cast(Any, _plain))
    longest = configuration.limits.body_bytes
    app.add_middleware(Guard, callers=here.callers, log=here.log, metrics=here.metrics, longest=longest)
    app.include_router(holder_routes.router)
    app.include_router(analyst_routes.router)
    _add_page(app)
    _add_health(app, here)
    _add_description(app, here)
    return app


# Handlers are coroutines: a function would wait for one of the threads that long answers may hold.
def _as_handler(tell: Callable[[Any], JSONResponse]) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def handler(_request: Request, error: Exception) -> JSONResponse:
        return tell(error)

    return handler


async def _plain(request: Request, error: HTTPException) -> JSONResponse:
    known = {400: "the body is not JSON", 404: "there is nothing here", 405: "this cannot be done; see /openapi.json"}
    headers = {"Allow": ", ".join(sorted(_methods(request)))} if error.status_code == 405 else error.headers
    return JSONResponse({"error": known.get(error.status_code, str(error.detail))}, error.status_code, headers)


def _methods(request: Request) -> set[str]:
    """What can be done at this path, by all routes that lead to it."""

    def leads(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] == Match.FULL for route in request.app.routes)

    return {method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if leads(method)}


def _add_page(app: FastAPI) -> None:
    for file in files("epsilearn.service").joinpath("page").iterdir():
        path, kind = "/" if file.name == "index.html" else f"/{file.name}", _PAGE_FILES[file.name.rpartition(".")[2]]
        app.add_api_route(path, _file(file.read_bytes(), kind), include_in_schema=False)


def _file(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def file() -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8")

    return file


def _add_health(app: FastAPI, here: Parts) -> None:
    def look() -> None:
        with here.database.transaction(write=False) as connection:
            connection.execute(store.keys.select().limit(1))

    health = Shared(here.lanes.watching, look)
    counters = Shared(here.lanes.counting, here.metrics.text, _METRICS_SECONDS)

    @app.get("/healthz", tags=["watching"], responses={503: FAULTS[503]})
    async def healthz() -> dict[str, str]:
        """Whether the server can answer: its database is there, and of its version."""
        await health.get()
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", tags=["watching"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters for Prometheus, at most a second old: calls and answers, without names."""
        return Response(await counters.get(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_description(app: FastAPI, here: Parts) -> None:
    def write() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=False).encode()

    # Written once, for the first who asks: the framework would write it anew for everybody.
    text = Shared(here.lanes.counting, write, math.inf)

    async def description(_request: Request) -> Response:
        return Response(await text.get(), media_type="application/json")

    app.add_route("/openapi.json", description, include_in_schema=False)
