"""What every request passes: its size is bounded, its call is written down before its answer leaves, and an error that
nobody foresaw says nothing. What is refused for its key, or for coming too often, is counted and not listed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from epsilearn.checks import as_line
from epsilearn.errors import EpsilearnError
from epsilearn.service.callers import Callers, TooOften
from epsilearn.service.faults import complain, told
from epsilearn.service.keys import Caller
from epsilearn.service.metrics import Metrics
from epsilearn.service.record import CallLog

__all__ = ["TAKEN", "Guard"]

TAKEN = "epsilearn.taken"  # where a connection says how to wait until its answer was taken

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LONGEST_PATH, _LONGEST_METHOD = 300, 20
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
]


class _TooLong(Exception):
    pass


class Guard:
    """An ASGI application around another.

    Parameters
    ----------
    app : callable
        The other.
    callers : Callers
        Who is let in to the API, before anything of a request is read.
    log : CallLog
        Where calls of the API are written down.
    metrics : Metrics
        What is counted.
    longest : int
        The most bytes a body may have.
    """

    def __init__(self, app: Any, callers: Callers, log: CallLog, metrics: Metrics, longest: int) -> None:
        self._app, self._callers, self._log, self._metrics, self._longest = app, callers, log, metrics, longest
        # Threads of its own: whoever waits for an answer must not keep others from being let in.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="epsilearn-door")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, exchange = time.monotonic(), _Exchange(self, scope, receive, send)
        try:
            if exchange.is_call:
                scope["epsilearn"] = exchange.caller = await self._admitted(scope)
            else:
                self._callers.check_address(scope["path"], _address(scope))
            await self._app(scope, exchange.receive, exchange.send)
        except TooOften as error:
            exchange.caller = error.caller
            await exchange.refuse(*told(error))
        except _TooLong:
            await exchange.refuse(413, f"the body is longer than {self._longest:,} bytes; ask for less at a time")
        except Exception as error:
            await exchange.refuse(*told(error))
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count(route, scope["method"], exchange.status, time.monotonic() - start)
            if "epsilearn" in scope:
                await self._leave(scope)

    async def _leave(self, scope: Scope) -> None:
        """Give the caller's place back when the answer has been taken: until then it is in our memory."""
        try:
            if TAKEN in scope:
                await scope[TAKEN]()
        finally:
            self._callers.leave(scope["epsilearn"])

    async def _admitted(self, scope: Scope) -> Caller:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        given, loop = header.decode("latin-1"), asyncio.get_running_loop()
        self._callers.check_form(given, _address(scope))
        return await loop.run_in_executor(self._threads, self._callers.admit, given, _address(scope))


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._read, self._too_long, self._started = 0, False, False
        self.status = 0
        self.caller: Caller | None = None
        self.is_call = scope["path"].startswith("/api")

    async def receive(self) -> Message:
        for name, value in self._scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._check_length(int(value))
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self._check_length(self._read)
        return message

    def _check_length(self, length: int) -> None:
        if length > self._guard._longest:
            self._too_long = True
            raise _TooLong

    async def send(self, message: Message) -> None:
        if self._too_long:
            # Whoever read the body took this for a fault of its own.
            raise _TooLong
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if not await self._written_down():
                return
            self._started = True
            names = {name for name, _ in message.get("headers", [])}
            message["headers"] = [*message.get("headers", []), *(pair for pair in _HEADERS if pair[0] not in names)]
        if self._started:
            await self._send(message)

    async def _written_down(self) -> bool:
        """Whether the call is in the log, or counted there; if it cannot be, nothing but that is told."""
        if not self.is_call:
            return True
        if self.caller is None or self.status == 429:
            self._guard._log.count(self.status, self.caller, _address(self._scope))
            return True
        call = {
            "key": self.caller.key,
            "who": self.caller.name,
            "address": _address(self._scope),
            "method": _printable(self._scope["method"], _LONGEST_METHOD),
            "path": _printable(self._scope["path"], _LONGEST_PATH),
            "status": self.status,
        }
        try:
            await asyncio.wrap_future(self._guard._log.write(call))
        except EpsilearnError as error:
            complain(error)
            await self._tell(503, "this call cannot be written into the log, so it is not answered")
            return False
        return True

    async def refuse(self, status: int, text: str, more: dict[str, str] | None = None) -> None:
        if self._started:
            return
        self.status = status
        if await self._written_down():
            await self._tell(status, text, more)

    async def _tell(self, status: int, text: str, more: dict[str, str] | None = None) -> None:
        self.status = status
        body = json.dumps({"error": text}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_HEADERS]
        headers += [(name.lower().encode(), value.encode()) for name, value in (more or {}).items()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _printable(text: str, longest: int) -> str:
    return as_line(text[:longest])
