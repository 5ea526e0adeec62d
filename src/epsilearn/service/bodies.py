"""The bodies of requests, checked beside the event loop: their shape first, so that bad ones cost no more than a look.

What a parser makes of four megabytes can take a gigabyte, and a list of all that is wrong with it longer than anybody
waits. So a compiled pass over the bytes, which holds up no other thread, counts how deep and how long things are before
anything is made of them, and only the first fault is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_type_hints

import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from epsilearn.compiled import compiled

__all__ = ["CheckedRoute", "first_fault", "prepare", "shape_fault"]

_DEEPEST = 3  # an object, a list in it, an object in that
_OUTER_MEMBERS, _INNER_MEMBERS, _LIST_ITEMS = 64, 10_000, 1000
_VALUES_PER_ROW = 100  # on average: what a parser makes of them keeps all other threads waiting
_MOST_FAULTS = 100  # beyond which they are not looked at one by one
_LONG = 100_000  # bytes

# Long bodies wait for each other, and short ones do not wait for them.
_short = ThreadPoolExecutor(1, thread_name_prefix="epsilearn-short-bodies")
_long = ThreadPoolExecutor(1, thread_name_prefix="epsilearn-long-bodies")


@compiled
def _shape(body: Any, deepest: int, items: int, outer: int, inner: int, values: int) -> int:
    """0 if nothing is too long, else 1: too deep, 2: a list too long, 3: too many members, 4: too much altogether."""
    counts, lists = np.zeros(deepest + 1, np.int64), np.zeros(deepest + 1, np.bool_)
    depth, quoted, escaped, total = 0, False, False, 1
    for letter in body:
        if quoted:
            if escaped:
                escaped = False
            elif letter == 92:  # a backslash
                escaped = True
            elif letter == 34:
                quoted = False
        elif letter == 34:  # a quotation mark
            quoted = True
        elif letter in (91, 123):  # [ {
            depth += 1
            if depth > deepest:
                return 1
            counts[depth], lists[depth] = 1, letter == 91
        elif letter in (93, 125):  # ] }
            depth = max(0, depth - 1)
        elif letter == 44:  # a comma
            counts[depth] += 1
            if lists[depth] and counts[depth] > items:
                return 2
            if depth > 0 and not lists[depth] and counts[depth] > (outer if depth == 1 else inner):
                return 3
            total += 1
    return 4 if total > values else 0


def shape_fault(body: bytes, rows: int) -> str | None:
    """What is too deep or too long about JSON, whatever it says; None if nothing is.

    Parameters
    ----------
    body : bytes
        What was sent.
    rows : int
        How many items a list may have at most, and a hundredth of how many values there may be; at least 1,000.

    Examples
    --------
    >>> shape_fault(b'{"rows": [{"age": 63}]}', 1000) is None
    True
    >>> shape_fault(b"[1, 2, 3]" * 1000, 2000) is None
    True
    >>> shape_fault(b'{"rows": [1' + b", 1" * 2000 + b"]}", 1000)
    'a list has too many items: at most 1,000'
    """
    items = max(rows, _LIST_ITEMS)
    values = items * _VALUES_PER_ROW
    found = _shape(np.frombuffer(body, np.uint8), _DEEPEST, items, _OUTER_MEMBERS, _INNER_MEMBERS, values)
    faults = {
        1: "something is nested too deeply: a value is a text, a number, true, false or null",
        2: f"a list has too many items: at most {items:,}",
        3: f"an object has too many members: at most {_INNER_MEMBERS:,}, and {_OUTER_MEMBERS} the outermost",
        4: f"there are too many values: at most {values:,} in one request; ask about fewer rows at once",
    }
    return faults.get(found)


def prepare() -> None:
    """Have the pass compiled before the first request."""
    shape_fault(b"{}", 1)


def first_fault(faults: list[ErrorDetails] | list[Any]) -> tuple[int, str]:
    """Status and text of the first thing that is wrong, by its place; what was sent is not repeated."""
    first = faults[0]
    if first["type"] == "json_invalid":
        return 400, "the body is not JSON"
    places = [[str(part) for part in fault["loc"] if part != "body"] for fault in faults]
    values = [place for place in places if place[:1] == ["rows"] and len(place) > 3]
    if values:
        # A value may be of several kinds, and each would complain by itself.
        return 422, f"{'.'.join(values[0][:3])}: must be a text, a finite number, true, false or null"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return 422, f"{'.'.join(places[0]) or 'the body'}: {first['msg']}{more}"


def _checked(adapter: TypeAdapter[Any], body: bytes, rows: int) -> Any:
    """What a body says, or `HTTPException` with the first thing that is wrong."""
    if (fault := shape_fault(body, rows)) is not None:
        raise HTTPException(422, fault)
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        if error.error_count() > _MOST_FAULTS:
            raise HTTPException(422, f"more than {_MOST_FAULTS} things are wrong; see /openapi.json") from None
        raise HTTPException(*first_fault(error.errors(include_url=False, include_input=False))) from None


class _Checked(Request):
    """A request whose body is checked in a thread; the framework finds it checked."""

    def __init__(self, request: Request, adapter: TypeAdapter[Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._adapter = adapter

    async def json(self) -> Any:
        body, rows = await self.body(), self.app.state.parts.limits.rows_per_request
        threads = _long if len(body) > _LONG else _short
        return await asyncio.get_running_loop().run_in_executor(threads, _checked, self._adapter, body, rows)


def _check_query(request: Request) -> None:
    """Refuse a parameter that is given twice: the framework would take the last and never look at the others."""
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise HTTPException(422, "a parameter of the address is given more than once; give each once")


class CheckedRoute(APIRoute):
    """A route whose parameters are each given once, and that has the body of a request checked in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        adapter = (
            TypeAdapter(get_type_hints(self.endpoint, include_extras=True)[self.body_field.name])
            if self.body_field is not None
            else None
        )

        async def checked(request: Request) -> Response:
            _check_query(request)
            return await handler(request if adapter is None else _Checked(request, adapter))

        return checked
