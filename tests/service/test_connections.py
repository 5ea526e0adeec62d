"""Connections that are slow, many or malformed: each has a deadline, and none keeps others out."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import pytest
from tests.service.conftest import Deployment, wait_until

from epsilearn.database import Database
from epsilearn.service import store
from epsilearn.service.messages import Model

# What is waited for in these tests comes after a few seconds; sockets give up after this.
PATIENCE = 600.0
IMPATIENT = {"header_seconds": 3.0, "body_seconds": 4.0, "keep_alive_seconds": 2.0}
PATIENT = {"header_seconds": 600, "body_seconds": 600, "keep_alive_seconds": 600}
FILES = 120  # that the crowded server may open: half of them are connections, whatever its configuration says


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    folder = tmp_path_factory.mktemp("impatient")
    made = Deployment(folder, str(folder / "state.db"), **IMPATIENT)
    yield made.start()
    made.stop()
    # Whatever was sent, nothing of it is a fault of the server.
    assert made.output.read_text().count("\n") <= 1, made.output.read_text()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowded")
    made = Deployment(folder, str(folder / "state.db"), connections=100_000, calls_at_once=2, **PATIENT)
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
    made.program = ["-c", f"{few}; from epsilearn.cli import main; main()"]
    yield made.start()
    made.stop()
    assert "Too many open files" not in made.output.read_text()


def connected(made):
    return contextlib.closing(socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE))


def rest(connection) -> bytes:
    """Whatever the server still says, until it closes the connection."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            said += part
    return said


def answer(connection) -> bytes:
    """One answer, whole."""
    connection.settimeout(PATIENCE)
    said = b""
    while not (found := re.search(rb"content-length: (\d+)\r\n(?s:.*)\r\n\r\n", said)) or (
        len(said) < found.end() + int(found.group(1))
    ):
        part = connection.recv(65536)
        assert part, said
        said += part
    return said


def open_still(connection) -> bool:
    """Whether the server has not closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(65536) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def cuts(made) -> dict[str, float]:
    """Connections that were cut, by why."""
    lines = made.raw("GET", "/metrics")[2].decode().splitlines()
    found = [line for line in lines if line.startswith("epsilearn_connections_cut_total")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}


def head(made, path="/api/me", method="GET", key=None, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *([f"Authorization: Bearer {key}"] if key else []), *more]
    return "\r\n".join([*lines, "", ""]).encode()


# ---------------------------------------------------------------------------------------------------------- deadlines


def test_a_connection_that_says_nothing_is_closed(impatient):
    with connected(impatient) as connection:
        assert rest(connection) == b""


@pytest.mark.parametrize("sent", [b"G", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: b"])
def test_a_header_that_does_not_end_is_refused_and_the_connection_closed(impatient, sent):
    with connected(impatient) as connection:
        connection.sendall(sent)
        said = rest(connection)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"the header was not complete within 3 seconds" in said


def dribbled(made, start: bytes) -> bytes:
    """Send something and then a byte now and then, for as long as the server listens."""
    said, ended = [b""], threading.Event()

    def listen(connection) -> None:
        said[0] = rest(connection)
        ended.set()

    with connected(made) as connection:
        connection.sendall(start)
        thread = threading.Thread(target=listen, args=(connection,))
        thread.start()
        while not ended.wait(0.1):
            with contextlib.suppress(OSError):
                connection.sendall(b"x")
        thread.join()
    return said[0]


@pytest.mark.slow
def test_bytes_that_trickle_in_win_no_time(impatient):
    key = impatient.key("analyst", "anna")
    long = ("Content-Length: 3000000", "Content-Type: application/json")
    assert b" 408 " in dribbled(impatient, b"GET /healthz HTTP/1.1\r\nX: ")
    body = dribbled(impatient, head(impatient, "/api/releases/x/predict", "POST", key, *long))
    assert b" 408 " in body
    assert b"the body was not complete within 4 seconds" in body
    # Answered at once, and the body, which nobody wants, goes on.
    refused = dribbled(impatient, head(impatient, "/api/releases/x/predict", "POST", None, *long))
    assert refused.startswith(b"HTTP/1.1 401 ")
    assert b" 408 " not in refused


def test_connections_are_kept_for_the_next_request_and_no_longer(impatient):
    with connected(impatient) as connection:
        for _ in range(3):
            connection.sendall(head(impatient, "/healthz"))
            assert b"200 OK" in answer(connection)
        assert b"HTTP" not in rest(connection)


def test_an_answer_that_is_not_taken_is_taken_back(impatient):
    before = cuts(impatient).get("answer", 0)
    with contextlib.closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", impatient.port))
        asking = threading.Thread(target=lambda: sent_for_ever(connection, head(impatient, "/openapi.json")))
        asking.start()
        wait_until(lambda: cuts(impatient).get("answer", 0) > before, "it is cut")
        asking.join()


def sent_for_ever(connection, request: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(request)


def test_a_body_that_goes_on_after_its_refusal_is_cut_off(crowded):
    """Long before its deadline, which is ten minutes here: its bytes are counted."""
    before = cuts(crowded).get("body", 0)
    with connected(crowded) as connection:
        connection.sendall(head(crowded, "/api/me", "POST", None, "Transfer-Encoding: chunked"))
        sent, chunk = 0, b"10000\r\n" + b" " * 65536 + b"\r\n"
        with contextlib.suppress(ConnectionError):
            while sent < 200_000_000:
                connection.sendall(chunk)
                sent += len(chunk)
    assert sent < 200_000_000
    wait_until(lambda: cuts(crowded).get("body", 0) > before, "the cut is counted")


# --------------------------------------------------------------------------------------------------------------- many


def test_the_oldest_without_a_request_gives_way(crowded):
    key, most = crowded.key("analyst", "anna"), FILES // 2
    with contextlib.ExitStack() as stack:
        idle = stack.enter_context(connected(crowded))
        idle.sendall(head(crowded, "/healthz"))
        assert b"200 OK" in answer(idle)
        held = []
        for number in range(FILES + 20):
            if number % 10 == 0:  # so many wait to be taken up; more would be put off by a second
                assert crowded.raw("GET", "/healthz")[0] == 200
            held.append(stack.enter_context(connected(crowded)))
            held[-1].sendall(b"GET / HTTP/1.1\r\nX-Waiting: ")
        wait_until(lambda: sum(map(open_still, held)) < most, "the first give way")
        # The first of them went, the last are there, and so is whoever has been answered before.
        assert not any(map(open_still, held[: FILES + 20 - most]))
        assert all(map(open_still, held[10 - most :]))
        idle.sendall(head(crowded, "/healthz"))
        assert b"200 OK" in answer(idle)
        assert crowded.raw("GET", "/healthz")[0] == 200
        assert crowded.raw("GET", "/api/me", key=key)[0] == 200
        wait_until(lambda: cuts(crowded).get("evicted", 0) >= FILES + 20 - most, "they are counted")


def test_a_key_has_so_many_calls_in_hand(crowded):
    anna, bert = crowded.key("analyst", "anna"), crowded.key("analyst", "bert")
    more = ("Content-Length: 10", "Content-Type: application/json", "Expect: 100-continue")

    def begin(connection) -> None:
        connection.sendall(head(crowded, "/api/releases/x/predict", "POST", anna, *more))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")  # it was let in, and is being read

    def status(key) -> int:
        return crowded.raw("GET", "/api/me", key=key)[0]

    with connected(crowded) as first, connected(crowded) as second:
        begin(first)
        begin(second)
        assert (status(anna), status(bert)) == (429, 200)
        first.sendall(b"{ not JSON")
        assert b" 400 " in answer(first)
        wait_until(lambda: status(anna) == 200, "there is a place again")
        begin(first)
        assert status(anna) == 429
    # Whoever goes away gives the place back, too.
    wait_until(lambda: status(anna) == 200, "there is a place again")


LONG = 16_000_000  # bytes: more than sockets keep for somebody who does not read


@contextlib.contextmanager
def not_taking(made, key, path):
    """Somebody who asks for a long answer and takes only the beginning of it."""
    with contextlib.closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", made.port))
        connection.sendall(head(made, path, "GET", key))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        yield connection


def long_document(made) -> str:
    """The path of a document that nobody takes at once."""
    settings = Model(kind="model", target="a", epsilon=1.0).model_dump_json()
    name, schema = secrets.token_hex(4), '{"version": 1, "columns": {"a": {"bounds": [0, 1]}}, "rows": 1}'
    row = {"created": "", "who": ""}
    with Database.at(made.database).transaction(write=True) as connection:
        connection.execute(
            store.datasets.insert().values(name=name, file=name, digest=name, public=schema, rows=1, **row)
        )
        release = {"id": name, "dataset": name, "kind": "model", "settings": settings, "status": "open", "message": ""}
        connection.execute(store.releases.insert().values(**release, facts="{}", **row))
        connection.execute(store.documents.insert().values(release=name, name="model.json", content="x" * LONG))
    return f"/api/releases/{name}/documents/model.json"


def test_an_answer_that_is_not_taken_keeps_its_callers_place(crowded):
    anna, path = crowded.key("analyst", "anna"), long_document(crowded)

    def status() -> int:
        return crowded.raw("GET", "/api/me", key=anna)[0]

    with not_taking(crowded, anna, path), not_taking(crowded, anna, path) as second:
        assert status() == 429
        rest_of = LONG
        while rest_of > 0:
            rest_of -= len(second.recv(2**20))
        wait_until(lambda: status() == 200, "there is a place again")
    wait_until(lambda: status() == 200, "there is a place again")


# ---------------------------------------------------------------------------------------------------------- malformed

SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 3", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 3"],
        ["Content-Length: 0", "Content-Length: 0"],
        ["Content-Length: 0, 0"],
        ["Content-Length: 0", "Content-Length: 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", " , identity"],
        ["X-Folded: a", " b"],
        ["X-Folded: a", "\tb"],
        ["Content-Length : 0"],
        ["Content-Length: +0"],
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(impatient, lines):
    with connected(impatient) as connection:
        connection.sendall(head(impatient, "/api/me", "POST", None, *lines) + b"0\r\n\r\n" + SMUGGLED)
        said = rest(connection)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1
    assert json.loads(said.partition(b"\r\n\r\n")[2]) == {"error": "this is not HTTP/1.1, or could be read in two ways"}


def test_chunks_are_not_of_old_http(impatient):
    with connected(impatient) as connection:
        request = head(impatient, "/api/me", "POST", None, "Transfer-Encoding: chunked")
        connection.sendall(request.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n" + SMUGGLED)
        assert rest(connection).startswith(b"HTTP/1.1 400 ")


def test_nonsense_after_an_answer_ends_the_connection(impatient):
    with connected(impatient) as connection:
        connection.sendall(head(impatient, "/api/me", "POST", None, "Transfer-Encoding: chunked"))
        assert b" 401 " in answer(connection)
        connection.sendall(b"this is no chunk\r\n")
        assert rest(connection) == b""


def test_one_after_the_other_is_still_allowed(impatient):
    with connected(impatient) as connection:
        chunked = head(impatient, "/api/me", "POST", None, "Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n"
        connection.sendall(SMUGGLED + chunked + SMUGGLED)
        said = rest(connection)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", said) == [b"200", b"401", b"200"]


@pytest.mark.parametrize("path", ["/api/datasets/", "/api/log/", "/healthz/", "/app.js/"])
def test_nobody_is_sent_to_a_host_that_the_caller_names(impatient, path):
    key = impatient.key("holder", "ruth")
    status, headers, body = impatient.raw("GET", path, key=key, Host="evil.example")
    assert (status, "location" in headers) == (404, False)
    assert b"evil" not in repr(headers).encode() + body


# --------------------------------------------------------------------------------------------- encrypted, and several


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
@pytest.mark.slow
def test_handshakes_have_deadlines_and_give_way_too(tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         "server.key", "-out", "server.pem", "-days", "2", "-subj", "/CN=127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    made = Deployment(tmp_path, str(tmp_path / "state.db"), **{**IMPATIENT, "header_seconds": 5.0, "connections": 40})
    made.config.write_text('certificate = "server.pem"\nprivate_key = "server.key"\n' + made.config.read_text())
    context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    context.check_hostname = False
    made.tls = context
    made.start()
    try:
        with connected(made) as plain:
            plain.sendall(b"\x16\x03\x01")  # the beginning of a handshake
            assert rest(plain) == b""
        with connected(made) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            rest(plain)
        with connected(made) as plain, context.wrap_socket(plain) as secured:
            secured.sendall(b"GET /healthz HTTP/1.1\r\nX-A: ")
            assert b" 408 " in rest(secured)
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(connected(made)) for _ in range(160)]
            assert made.raw("GET", "/healthz")[0] == 200
            wait_until(lambda: not any(map(open_still, held)), "all are closed")
        wait_until(lambda: {"handshake", "evicted"} <= set(cuts(made)), "both are counted")
    finally:
        made.stop(signal.SIGTERM)
    assert made.output.read_text().count("\n") <= 1, made.output.read_text()


@pytest.mark.slow
def test_deadlines_hold_in_each_of_several_processes(tmp_path):
    made = Deployment(tmp_path, str(tmp_path / "state.db"), **{**IMPATIENT, "header_seconds": 10.0, "connections": 40})
    made.workers = 2
    made.write_config()
    made.start()
    try:
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(connected(made)) for _ in range(200)]
            for connection in held:
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET / HTTP/1.1\r\nX-Waiting: ")
            assert made.raw("GET", "/healthz")[0] == 200
            wait_until(lambda: not any(map(open_still, held)), "all are closed")
        wait_until(lambda: cuts(made).get("evicted", 0) >= 20, "they are counted")
    finally:
        made.stop()
