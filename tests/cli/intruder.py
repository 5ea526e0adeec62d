"""Another account of this machine, which tries every socket and every file with the protocols that are spoken there.

``python intruder.py`` takes ``{"sockets": [[kind, address, port], ...], "folders": [...], "scheduler": ...}`` on its
standard input, becomes nobody, and prints what it got: one line of JSON for each try that had an answer.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - nobody may be unable to read Python's own files: all of them are loaded before
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NOBODY = 65534
_PATIENCE = 5.0  # seconds for an answer
_DASK_PATIENCE = 120.0  # which only a scheduler that lets nobody in makes use of
_PAGES = ("/", "/api/v1/applications", "/environment/", "/jobs/", "/metrics", "/health", "/info/main/workers.html")

Send = Callable[[bytes], bytes]


def main() -> None:
    task = json.load(sys.stdin)
    scheduler = task["scheduler"]
    if scheduler:
        _dask(scheduler)  # once as ourselves: everything that it needs is loaded then
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    assert os.getuid() == os.geteuid() == NOBODY
    tries = [(tuple(place), name, words) for place in task["sockets"] for name, words in _words(place[0])]
    with ThreadPoolExecutor(len(tries) or 1) as pool:
        for (place, name, _), answer in zip(tries, pool.map(_tried, tries), strict=True):
            _tell(f"{place[0]} {place[1]}:{place[2]}", name, answer)
    if scheduler:
        _tell(scheduler, "dask", _dask(scheduler))
    for folder in task["folders"]:
        for path in _readable(Path(folder)):
            _tell(str(path), "read", "open")
    print("done", flush=True)


def _tell(where: str, name: str, answer: str) -> None:
    if answer:
        print(json.dumps([where, name, answer]), flush=True)


def _tried(attempt: tuple[tuple[str, str, int], str, Callable[[Send], bytes]]) -> str:
    (kind, address, port), _, words = attempt
    try:
        if kind == "unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.connect("\0" + address[1:] if address.startswith("@") else address)
        else:
            connection = socket.create_connection((address, port), _PATIENCE)
    except OSError:  # not let in, or nobody there any more
        return ""
    with connection:
        connection.settimeout(_PATIENCE)

        def send(message: bytes) -> bytes:
            try:
                connection.sendall(message)
                return connection.recv(1 << 16)
            except OSError:
                return b""

        return words(send).decode("latin-1") or ("let in" if kind == "unix" else "")


def _words(kind: str) -> Iterator[tuple[str, Callable[[Send], bytes]]]:
    """What is said at a socket, by name, in every language that engines speak."""
    yield "silence", lambda send: send(b"")
    if kind == "unix":
        return  # to be let in is already too much
    yield "noise", lambda send: send(b"\x00\xff" * 512)
    for page in _PAGES:
        yield f"GET {page}", lambda send, page=page: send(f"GET {page} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    yield "py4j", lambda send: send(_PY4J)
    yield "py4j, wrong token", lambda send: send(b"A\nletmein\n") + send(_PY4J)
    yield "python worker", _python_worker
    yield "spark stream", lambda send: send(_spark(6, _text("/files/x")))
    yield "spark chunk", lambda send: send(_spark(0, struct.pack(">qi", 1000, 0)))
    for number in range(8):
        yield f"spark block {number}", lambda send, number=number: _spark_block(send, number)


# Of the gateway between Python and Java: who runs you?
_PY4J = b"c\nz:java.lang.System\ngetProperty\nsuser.name\ne\n"


def _python_worker(send: Send) -> bytes:
    """Spark's daemon forks a worker for whoever comes, which then wants a secret."""
    return send(b"") + send(_text("letmein"))


def _spark_block(send: Send, number: int) -> bytes:
    """A piece of what Spark keeps: opened first, then fetched."""
    blocks = struct.pack(">i", 1) + _text(f"broadcast_{number}_piece0")
    message = b"\0" + _text("epsilearn") + _text("driver") + blocks
    answer = send(_spark(3, struct.pack(">qi", 7, len(message)) + message))
    if len(answer) < 12 or answer[8] != 4:  # no such thing, or not for us
        return answer
    stream = struct.unpack(">q", answer[-12:-4])[0]
    return b"opened " + send(_spark(0, struct.pack(">qi", stream, 0)))


def _spark(kind: int, message: bytes) -> bytes:
    return struct.pack(">qb", 9 + len(message), kind) + message


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def _readable(folder: Path) -> Iterator[Path]:
    """Every file and folder below that can be read."""
    for home, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(home) / name
            if not path.is_symlink() and os.access(path, os.R_OK):
                yield path


def _dask(scheduler: str) -> str:
    """Who runs what anybody asks Dask's scheduler to run."""
    import distributed

    with distributed.Client(scheduler, timeout=_DASK_PATIENCE, set_as_default=False) as client:
        return f"ran as {client.run_on_scheduler(os.getuid)}"


if __name__ == "__main__":
    main()
