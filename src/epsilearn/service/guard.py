"""What every request passes: its size is bounded, its call is written down before its answer leaves, and an error that
nobody foresaw says nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from epsilearn.errors import EpsilearnError
from epsilearn.service.metrics import Metrics
from epsilearn.service.record import CallLog

__all__ = ["Guard", "complain"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = logging.getLogger("epsilearn.service")
_LONGEST_PATH = 300
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


def complain(error: BaseException) -> None:
    """Log what kind of error it was and where; its text may quote somebody's values."""
    places = traceback.extract_tb(error.__traceback__)
    where = f"{places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}" if places else "nowhere"
    _log.error("unexpected %s at %s", type(error).__name__, where)


class _TooLong(Exception):
    pass


class Guard:
    """An ASGI application around another.

    Parameters
    ----------
    app : callable
        The other.
    log : CallLog
        Where calls of the API are written down.
    metrics : Metrics
        What is counted.
    longest : int
        The most bytes a body may have.
    """

    def __init__(self, app: Any, log: CallLog, metrics: Metrics, longest: int) -> None:
        self._app, self._log, self._metrics, self._longest = app, log, metrics, longest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, exchange = time.monotonic(), _Exchange(self, scope, receive, send)
        scope["epsilearn"] = exchange.known
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except _TooLong:
            await exchange.refuse(413, f"the body is longer than {self._longest:,} bytes; ask for less at a time")
        except Exception as error:
            complain(error)
            await exchange.refuse(500, f"unexpected {type(error).__name__}; a debit, if there was one, stands")
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count(route, scope["method"], exchange.status, time.monotonic() - start)


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._read, self._started = 0, False
        self.status = 0
        #: Filled in by whoever finds out whose key it is.
        self.known: dict[str, Any] = {"key": None, "who": ""}

    async def receive(self) -> Message:
        for name, value in self._scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._guard._longest:
                raise _TooLong
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._guard._longest:
            raise _TooLong
        return message

    async def send(self, message: Message) -> None:
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
        """Whether the call is in the log; if it cannot be, nothing but that is told."""
        if not self._scope["path"].startswith("/api"):
            return True
        client = self._scope.get("client")
        call = {
            "key": self.known["key"], "who": self.known["who"], "address": client[0] if client else "",
            "method": self._scope["method"], "path": _printable(self._scope["path"]), "status": self.status,
        }  # fmt: skip
        try:
            await asyncio.wrap_future(self._guard._log.write(call))
        except EpsilearnError as error:
            complain(error)
            await self._tell(503, "this call cannot be written into the log, so it is not answered")
            return False
        return True

    async def refuse(self, status: int, text: str) -> None:
        if self._started:
            return
        self.status = status
        if await self._written_down():
            await self._tell(status, text)

    async def _tell(self, status: int, text: str) -> None:
        self.status, self._started = status, False
        body = json.dumps({"error": text}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_HEADERS]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _printable(path: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in path)
    return shown[:_LONGEST_PATH]
