"""Connections: how many there may be, how long each may take, and what of HTTP is understood.

The server's own protocol has no deadline for headers or bodies and keeps any number of connections. Here each one has a
deadline for whatever it is waiting for, and when there are too many the one that has waited longest gives way.
Encryption is begun here too, so that a handshake has the same deadline and counts as a connection from the start.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import ssl
from collections import OrderedDict
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from epsilearn.errors import InvalidInput
from epsilearn.service.configuration import Configuration, Limits
from epsilearn.service.guard import TAKEN
from epsilearn.service.metrics import Metrics

__all__ = ["Connection", "Connections", "backlog", "tls_context"]

_LONGEST_HEADER = 16 * 1024
_LEAST_RATE = 10_000  # bytes of an answer that must be taken in a second
_LAST_WORDS_SECONDS = 5.0  # for taking a refusal before the connection is gone
# Who gives way first: whoever never had a request answered, then the idle, then those who do not take their answer.
_STRANGER, _IDLE, _TAKING = range(3)
_BLANK_LINE = re.compile(rb"\n\r?\n")


_MOST_FILES = 2**16


def _allowed_files() -> int:
    """Ask for as many files, connections among them, as this process is allowed to; how many it may open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(soft, wanted)


def backlog(connections: int) -> int:
    """How many connections may wait to be taken up: they are taken up all at once, before any of them is read.

    Fewer than may be kept, or new ones would take the place of others whose request has come and was not read yet.
    """
    return max(8, min(connections // 2, _allowed_files() // 8))


def tls_context(configuration: Configuration) -> ssl.SSLContext | None:
    """What connections are encrypted with, if they are."""
    if configuration.certificate is None or configuration.private_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(configuration.certificate, configuration.private_key)
    except OSError as error:
        why = error.strerror or "not a certificate and its private key, as PEM"
        raise InvalidInput(
            f"cannot use the certificate {configuration.certificate} with the key {configuration.private_key}: {why}"
        ) from None
    return context


class Connections:
    """The open connections of a process, and what all of them share.

    Parameters
    ----------
    limits : Limits
        How many there may be, and how long each may take.
    tls : ssl.SSLContext or None
        What they are encrypted with.
    metrics : Metrics
        Where it is counted why connections were cut.
    """

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None, metrics: Metrics) -> None:
        self.limits, self.tls, self.metrics = limits, tls, metrics
        self.most = min(limits.connections, _allowed_files() // 2)
        self._ranks: dict[Connection, int | None] = {}
        self._waiting: tuple[OrderedDict[Connection, None], ...] = (OrderedDict(), OrderedDict(), OrderedDict())

    def place(self, connection: Connection, rank: int | None) -> None:
        """Who gives way how soon; None for one whose request is being answered."""
        self.remove(connection)
        self._ranks[connection] = rank
        if rank is not None:
            self._waiting[rank][connection] = None

    def remove(self, connection: Connection) -> None:
        """One that is gone."""
        rank = self._ranks.pop(connection, None)
        if rank is not None:
            del self._waiting[rank][connection]

    def make_room(self) -> bool:
        """Whether one more fits in, after another has given way if need be."""
        if len(self._ranks) < self.most:
            return True
        oldest = next((next(iter(waiting)) for waiting in self._waiting if waiting), None)
        if oldest is not None:
            oldest.cut("evicted")
        return oldest is not None


class _Strict(h11.Connection):
    """HTTP/1.1 without what two servers may read in two ways, one of them being a proxy in front."""

    def next_event(self) -> Any:
        received = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            lines = _BLANK_LINE.split(received, 1)[0].split(b"\n")[1:]
            names = [line.partition(b":")[0].lower() for line in lines]
            framing = [name for name in names if name in (b"content-length", b"transfer-encoding")]
            several = any(name == b"content-length" and b"," in line for name, line in zip(names, lines, strict=True))
            folded = any(line[:1] in (b" ", b"\t") for line in lines)
            old = b"transfer-encoding" in framing and event.http_version < b"1.1"
            if len(framing) > 1 or several or folded or old:
                raise h11.RemoteProtocolError("a header that can be read in two ways")
        return event


class Connection(H11Protocol):
    """One connection, with a deadline for whatever it is waiting for."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Strict(h11.SERVER, _LONGEST_HEADER)
        self._all: Connections = config.loaded_app.state.connections
        self._limits = self._all.limits
        self._raw: asyncio.Transport | None = None  # beneath the encryption
        self._securing: asyncio.Task[None] | None = None
        self._early = b""
        self._answered, self._gone = False, False
        self._state: tuple[Any, ...] = ()
        self._deadline: asyncio.TimerHandle | None = None
        self._untaken, self._unasked = 0, 0

    # ---------------------------------------------------------------------------------------------------- begin, end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        if not self._all.make_room():
            self._all.metrics.cut("full")
            transport.abort()
            return
        self.connections.add(self)
        self._look()
        if self._all.tls is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()
            self._securing = self.loop.create_task(self._secure(transport, self._all.tls))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            # Its own deadline is later than ours, which counts from the start.
            secured = await self.loop.start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=self._limits.header_seconds + 60,
                ssl_shutdown_timeout=_LAST_WORDS_SECONDS,
            )  # fmt: skip
        except (OSError, asyncio.CancelledError):
            secured = None
        if secured is None or transport.is_closing():
            transport.abort()
            self._forget()
            return
        super().connection_made(secured)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self.transport is not None:
            super().connection_lost(exc)

    def _forget(self) -> None:
        self._gone = True
        self._all.remove(self)
        self.connections.discard(self)
        self._expect(None)

    def shutdown(self) -> None:
        if self.transport is None:
            self._abort()
        else:
            super().shutdown()
            self._look()

    def cut(self, why: str) -> None:
        """End it at once."""
        self._all.metrics.cut(why)
        self._abort()

    def _abort(self) -> None:
        self._forget()
        if self._raw is not None:
            self._raw.abort()

    # ------------------------------------------------------------------------------------------------------ deadlines

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data  # the handshake is over, and who waits for it has not been told yet
            return
        if self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            # Refused already: the rest is read, so that the refusal is, but not without end.
            self._unasked += len(data)
            if self._unasked > 2 * self._limits.body_bytes:
                self.cut("body")
                return
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:
            # Whoever answers can wait until the answer was taken, but for a few kilobytes.
            cast(Any, self.scope)[TAKEN] = self.flow.drain
        self._look()

    def on_response_complete(self) -> None:
        self._answered = True
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def _look(self) -> None:
        """What it is waiting for now; each such wait has one deadline, however much comes in meanwhile."""
        if self._raw is None or self._gone:
            return
        closing = self._raw.is_closing() or (self.transport is not None and self.transport.is_closing())
        untaken = self.flow is not None and self.flow.write_paused
        state = (self.cycle, self.conn.their_state, closing, untaken)
        if state == self._state:
            return
        self._state, self._unasked = state, 0
        limits, rank = self._limits, _IDLE if self._answered else _STRANGER
        if untaken:
            self._untaken = self.transport.get_write_buffer_size()
            self._wait(_TAKING, limits.body_seconds)
        elif closing:
            self._wait(_TAKING, _LAST_WORDS_SECONDS)
        elif self.conn.their_state is h11.IDLE:
            self._wait(rank, limits.header_seconds + (limits.keep_alive_seconds if self.cycle is not None else 0))
        elif self.conn.their_state is h11.SEND_BODY:
            self._wait(rank, limits.body_seconds)
        else:
            self._wait(None, None)

    def _wait(self, rank: int | None, seconds: float | None) -> None:
        self._all.place(self, rank)
        self._expect(seconds)

    def _expect(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        _, theirs, closing, untaken = self._state
        taken = self._untaken - self.transport.get_write_buffer_size() if untaken else 0
        if untaken and taken >= _LEAST_RATE * self._limits.body_seconds:
            self._untaken -= taken
            self._expect(self._limits.body_seconds)
        elif self.transport is None:
            self.cut("handshake")
        elif closing or untaken:
            self.cut("answer")
        elif theirs is h11.SEND_BODY:
            self._all.metrics.cut("body")
            self._refuse(408, f"the body was not complete within {self._limits.body_seconds:g} seconds")
        elif self.conn.trailing_data[0]:
            self._all.metrics.cut("header")
            self._refuse(408, f"the header was not complete within {self._limits.header_seconds:g} seconds")
        else:
            self.cut("idle")

    # ------------------------------------------------------------------------------------------------------- refusals

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self._all.metrics.cut("malformed")
        self._refuse(400, "this is not HTTP/1.1, or could be read in two ways")

    def _refuse(self, status: int, text: str) -> None:
        """Say why, if nothing has been said yet, and end it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever was going to answer need not
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": text}).encode()
            headers = [
                (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"), (b"cache-control", b"no-store"),
            ]  # fmt: skip
            start = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._look()
