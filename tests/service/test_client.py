"""The client: what it sends, what it makes of answers, and of none."""

from __future__ import annotations

import http.server
import shutil
import ssl
import subprocess
import threading

import numpy as np
import pytest
from tests.service.conftest import Deployment, free_port, points, prepare, registered

from epsilearn import Client
from epsilearn.client import ServerError
from epsilearn.errors import BudgetExceeded, InvalidInput


def test_addresses_and_keys_that_cannot_be_meant_are_refused():
    for url in ("localhost:8750", "ftp://x", "", "file:///etc/passwd", "http://"):
        with pytest.raises(InvalidInput, match="no server's address"):
            Client(url, "epsk_x")
    for key in ("a\nb", "schlüssel"):
        with pytest.raises(InvalidInput, match="no key"):
            Client("http://127.0.0.1:1", key)
    assert "epsk" not in repr(Client("http://127.0.0.1:1/", "epsk_x"))
    assert Client("http://127.0.0.1:1/", "epsk_x").url == "http://127.0.0.1:1"


def test_no_server_is_an_error_of_its_own():
    with pytest.raises(ServerError, match="no answer from") as caught:
        Client(f"http://127.0.0.1:{free_port()}", "epsk_x").datasets()
    assert caught.value.status == 0


def test_numbers_of_numpy_are_numbers(deployment, holder, stays):
    release = holder.open(stays, "process", target="died", epsilon=np.float64(1.0), delta=1e-6, kernel="linear").id
    row = points(1)[0]
    plain = holder.predict(release, [row])
    assert holder.predict(release, [{**row, "age": np.int64(row["age"]), "smokes": np.bool_(row["smokes"])}]) == plain
    for bad in (float("nan"), object(), {1, 2}):
        with pytest.raises(InvalidInput, match="finite numbers"):
            holder.predict(release, [{**row, "age": bad}])


def test_errors_are_those_of_the_library(deployment, holder):
    dataset = registered(deployment, holder, "errors", epsilon=1.0, delta=0.0)
    with pytest.raises(BudgetExceeded):
        holder.open(dataset, "model", target="died", epsilon=2.0)
    with pytest.raises(InvalidInput):
        holder.open(dataset, "model", target="nothing", epsilon=0.1)
    with pytest.raises(ServerError) as caught:
        holder.budget("nothing")
    assert caught.value.status == 404
    with pytest.raises(ServerError) as caught:
        Client(deployment.url, "epsk_nobody").budget(dataset)
    assert caught.value.status == 401


def test_a_key_is_not_sent_on_to_another_server():
    seen = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{server.server_address[1]}/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(ServerError) as caught:
            Client(f"http://127.0.0.1:{server.server_address[1]}", "epsk_x").datasets()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert caught.value.status == 302
    assert seen == ["Bearer epsk_x"]


def test_names_cannot_leave_their_place_in_the_path(deployment, holder):
    for name in ("../keys", "a/b", "x?y=1", "%2e%2e", "\u00e4"):
        with pytest.raises(ServerError) as caught:
            holder.budget(name)
        assert caught.value.status == 404


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_a_server_with_a_certificate(clinic, tmp_path):
    made = Deployment(tmp_path, str(tmp_path / "state.db"))
    prepare(made, clinic)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "server.key", "-out", tmp_path / "server.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    made.config.write_text('certificate = "server.pem"\nprivate_key = "server.key"\n' + made.config.read_text())
    key = made.key("analyst", "anna")
    context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    url = f"https://127.0.0.1:{made.port}"
    made.healthy = lambda: _answers(Client(url, key, context=context))
    made.start()
    try:
        assert Client(url, key, context=context).datasets() == []
        with pytest.raises(ServerError, match="certificate"):
            Client(url, key).datasets()
    finally:
        made.stop()


def _answers(client):
    try:
        client.datasets()
    except ServerError:
        return False
    return True


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        (None, 2, "cannot read the configuration"),
        ("database = 3", 2, "must be a text"),
        ('database = "s.db"\ntables = "nowhere"', 2, "no folder"),
        ('database = "s.db"\ntables = "."\nhost = "0.0.0.0"', 2, "unencrypted"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(command, tmp_path, content, code, text):
    if content is not None:
        (tmp_path / "config.toml").write_text(content)
    found, _, complaint = command("serve", "config.toml")
    assert (found, text in complaint, len(complaint.splitlines())) == (code, True, 1)
