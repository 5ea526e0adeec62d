"""Whatever is sent: a clear refusal, nothing debited, nothing leaked."""

from __future__ import annotations

import json
import socket
import sqlite3

import pytest
from tests.service.conftest import CANARY, CANARY_NUMBER, Deployment, points, prepare, registered

from epsilearn.database import Database
from epsilearn.service import store

CANARIES = [CANARY, str(CANARY_NUMBER), repr(CANARY_NUMBER / 10)]


@pytest.fixture(scope="module")
def open_one(deployment):
    holder = deployment.client()
    dataset = registered(deployment, holder, "hostile")
    release = holder.open(dataset, "process", target="died", epsilon=1.0, delta=1e-6, kernel="linear").id
    statistics = holder.open(dataset, "statistics", epsilon=1.0).id
    return holder, dataset, release, statistics


ROW = points(1)[0]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 422, "body"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"null", 422, "body"),
        (b"[]", 422, ""),
        (b'{"rows": []}', 422, "rows"),
        (b'{"rows": 3}', 422, "rows"),
        (b'{"rows": [3]}', 422, "rows"),
        (b'{"rows": [{}]}', 422, "is missing"),
        (json.dumps({"rows": [{**ROW, "age": float("nan")}]}).encode(), 422, "rows.0.age: must be a text, a finite"),
        (json.dumps({"rows": [{**ROW, "age": float("inf")}]}).encode(), 422, "age"),
        (b'{"rows": [{"age": 1e999}]}', 422, "age"),
        (json.dumps({"rows": [{**ROW, "age": "old"}]}).encode(), 422, "must be a number"),
        (json.dumps({"rows": [{**ROW, "age": True}]}).encode(), 422, "must be a number"),
        (json.dumps({"rows": [{**ROW, "age": None}]}).encode(), 422, "is missing"),
        (json.dumps({"rows": [{**ROW, "smokes": "true"}]}).encode(), 422, "one of its categories"),
        (json.dumps({"rows": [{**ROW, "grade": 7}]}).encode(), 422, "one of its categories"),
        (json.dumps({"rows": [{**ROW, "died": "yes"}]}).encode(), 422, "not one of the columns"),
        (json.dumps({"rows": [{**ROW, "note": "x"}]}).encode(), 422, "not one of the columns"),
        (json.dumps({"rows": [{**ROW, "\u0000": 1}]}).encode(), 422, "not one of the columns"),
        (json.dumps({"rows": [ROW], "more": 1}).encode(), 422, "more"),
        (json.dumps({"rows": [ROW] * 1001}).encode(), 422, "at most 1,000"),
        (b"[" * 100_000, 422, "nested too deeply"),
        (b'{"rows": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422, "nested too deeply"),
        (b'{"rows": [{"age": []}]}', 422, "nested too deeply"),
        (b'{"rows": ["[[[[[[{"]}', 422, "rows.0"),
        (b'{"rows": [1' + b",1" * 1_300_000 + b"]}", 422, "at most 1,000"),
        (b'{"rows": [{}' + b",{}" * 1_300_000 + b"]}", 422, "at most 1,000"),
        (b'{"rows": [3, 4, 5]}', 422, "rows.0: Input should be an object"),
        (b'{"rows": [{"age": 1' + b',"age": 1' * 10_000 + b"}]}", 422, "too many members"),
        (b'{"rows": [{' + b",".join(b'"%d": ""' % i for i in range(9_000)) + b"}]}", 422, "not one of the columns"),
        (b'{"rows": [{' + b",".join(b'"%d": NaN' % i for i in range(9_000)) + b"}]}", 422, "more than 100 things"),
        (b'{"rows": []' + b',"more": 1' * 100 + b"}", 422, "too many members"),
        (b" " * 4_000_001, 413, "longer than"),
    ],
)
def test_malformed_questions(deployment, open_one, body, status, text):
    holder, dataset, release, _ = open_one
    before = holder.budget(dataset)
    found = deployment.raw(
        "POST", f"/api/releases/{release}/predict", body, holder._key, **{"Content-Type": "application/json"}
    )
    assert (found[0], text in json.loads(found[2])["error"]) == (status, True), found
    assert holder.budget(dataset) == before


def test_values_beyond_the_bounds_are_moved_to_them(open_one):
    holder, _, release, _ = open_one
    far, bound = holder.predict(release, [{**ROW, "age": 1e308}, {**ROW, "age": 90}])
    assert far == bound
    other, named = holder.predict(release, [{**ROW, "ward": "Mars"}, {**ROW, "ward": "elsewhere"}])
    assert other == named
    alias, plain = holder.predict(release, [{**ROW, "ward": "Surg."}, {**ROW, "ward": "surgery"}])
    assert alias == plain
    missing, stands = holder.predict(release, [{k: v for k, v in ROW.items() if k != "weight"}, {**ROW, "weight": 70}])
    assert missing == stands


@pytest.mark.parametrize(
    "path",
    [
        "/api/datasets/../../etc/passwd", "/api/datasets/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/api/datasets/..",
        "/../state.db",
        "/%2e%2e/state.db", "/page/../store.py", "/api/releases/..%2f..%2fx", "/api/releases/x/documents/..%2fstate.db",
        "/api/releases/x/documents/state.db", "/static/app.js", "/state.db", "/api/datasets/" + "a" * 5000,
        "/api/datasets/%00", "/api/datasets/'%20OR%201=1--",
    ],
)  # fmt: skip
def test_paths_lead_nowhere(deployment, open_one, path):
    status, _, body = deployment.raw("GET", path, key=open_one[0]._key)
    assert status in (404, 422), body
    assert set(json.loads(body)) == {"error"}


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a" * 65, "a\u0000", "..", ".hidden", "a b", "Ω"])
def test_names_of_data_sets_are_plain(deployment, open_one, name):
    asked = {"name": name, "file": "table.csv", "schema_toml": "version = 1", "epsilon": 1.0}
    status, answer = deployment.post("/api/datasets", asked, open_one[0]._key)
    assert (status, "name" in answer["error"]) == (422, True)


@pytest.mark.parametrize("route", ["datasets/{name}/spending", "log", "keys"])
def test_a_parameter_given_twice_is_refused(deployment, open_one, route):
    # The last one would be taken, and what stands in the others never looked at.
    key, name = deployment.key("holder", "ruth"), deployment.client().datasets()[0].name
    path = "/api/" + route.format(name=name)
    assert deployment.raw("GET", f"{path}?count=5", key=key)[0] == 200
    status, _, body = deployment.raw("GET", f"{path}?count=nonsense&count=5", key=key)
    assert (status, b"more than once" in body) == (422, True)


def test_a_body_that_never_ends_is_cut_off(deployment, open_one):
    holder, _, release, _ = open_one
    with socket.create_connection(("127.0.0.1", deployment.port), timeout=60) as connection:
        head = (
            f"POST /api/releases/{release}/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {holder._key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        sent, answer = 0, b""
        try:
            while sent < 20_000_000:
                connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
            answer = connection.recv(100)
            assert b"413" in answer
        except (BrokenPipeError, ConnectionResetError):
            pass  # cut off before all of it was sent
    assert sent < 20_000_000 or b"413" in answer
    with store.log_store(Database.at(deployment.database)).transaction(write=False) as connection:
        last = connection.execute(store.calls.select().order_by(store.calls.c.number.desc()).limit(1)).one()
    assert (last.path, last.status) == (f"/api/releases/{release}/predict", 413)


def test_headers_keep_browsers_careful(deployment):
    for path in ("/", "/app.js", "/style.css", "/api/me", "/healthz", "/nothing"):
        _, headers, _ = deployment.raw("GET", path)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_private_values_appear_nowhere(empty_database, clinic, tmp_path):
    """Values planted in the table are looked for in everything a server says, writes and shows."""
    made = Deployment(tmp_path, empty_database)
    prepare(made, clinic)
    holder_key = made.key("holder", "ruth")
    made.start()
    said: list[bytes] = []

    def call(method, path, content=None, key=holder_key):
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        answer = made.raw(method, path, body, key, **{"Content-Type": "application/json"})
        said.append(repr(answer).encode())
        return json.loads(answer[2]) if answer[2][:1] in (b"{", b"[") else answer[2]

    try:
        schema = (tmp_path / "tables" / "table.toml").read_text()
        name = "canary"
        asked = {"name": name, "file": "table.csv", "epsilon": 20.0, "delta": 1e-3, "rule": "pure"}
        # Schemas that the rows do not fit are refused without a word about them.
        for old, new in ((', "other" = "elsewhere"', ""), ('"bounds" = [30.0, 150.0]', '"categories" = [1, 2]')):
            assert old in schema
            assert "error" in call("POST", "/api/datasets", {**asked, "schema_toml": schema.replace(old, new)})
        call("POST", "/api/datasets", {**asked, "schema_toml": schema})
        opened = []
        for kind, more in (
            ("process", {"kernel": "rbf"}), ("process", {"kernel": "linear"}), ("interactive", {"kernel": "linear"}),
            ("model", {"model": "logistic"}), ("model", {"model": "landmark"}),
        ):  # fmt: skip
            opened.append(
                call("POST", f"/api/datasets/{name}/releases",
                     {"kind": kind, "target": "died", "epsilon": 1.0, "delta": 1e-6, **more})["id"]
            )  # fmt: skip
        leave = call("POST", f"/api/datasets/{name}/releases", {"kind": "statistics", "epsilon": 5.0})["id"]
        for release in opened:
            while call("GET", f"/api/releases/{release}")["status"] == "opening":
                pass
            assert "answers" in call("POST", f"/api/releases/{release}/predict", {"rows": points(5)})
            for document in call("GET", f"/api/releases/{release}")["documents"]:
                call("GET", f"/api/releases/{release}/documents/{document}")
        for statistic, column in (("mean", "weight"), ("histogram", "ward"), ("median", "weight")):
            call("POST", f"/api/releases/{leave}/statistic", {"statistic": statistic, "column": column, "epsilon": 0.1})
        # Faults of the file after registering are told without its content.
        (tmp_path / "tables" / "table.csv").write_text(f"age,weight\n{CANARY},{CANARY_NUMBER}\n")
        call("POST", f"/api/releases/{leave}/statistic", {"statistic": "mean", "column": "age", "epsilon": 0.1})
        for path in (f"/api/datasets/{name}", "/api/datasets", "/api/log", "/api/keys", "/metrics", "/", "/app.js",
                     "/openapi.json", "/api/files"):  # fmt: skip
            call("GET", path)
    finally:
        made.stop()
    said.append(made.output.read_bytes())
    with store.log_store(Database.at(made.database)).transaction(write=False) as connection:
        said.append(repr(connection.execute(store.calls.select()).all()).encode())
    with Database.at(made.database).transaction(write=False) as connection:
        for table in ("epsilearn_document", "epsilearn_release", "epsilearn_entry", "epsilearn_key",
                      "epsilearn_statistic", "epsilearn_dataset"):  # fmt: skip
            said.append(repr(connection.exec_driver_sql(f"SELECT * FROM {table}").all()).encode())
    everything = b"\n".join(said)
    assert len(everything) > 100_000
    for canary in CANARIES:
        assert canary.encode() not in everything
    assert b"Traceback" not in everything


def test_an_error_nobody_foresaw_says_nothing(deployment, open_one, clinic, tmp_path):
    """The database goes away under the server: a refusal without a text of the database's own."""
    made = Deployment(tmp_path, str(tmp_path / "state.db"))
    prepare(made, clinic)
    key = made.key("holder", "ruth")
    made.start()
    try:
        with sqlite3.connect(tmp_path / "state.db.calls") as connection:
            connection.execute("ALTER TABLE epsilearn_call RENAME TO somewhere")
        status, _, body = made.raw("GET", "/api/me", key=key)
        assert (status, json.loads(body)) == (
            503, {"error": "this call cannot be written into the log, so it is not answered"}
        )  # fmt: skip
        with sqlite3.connect(tmp_path / "state.db") as connection:
            connection.execute("ALTER TABLE epsilearn_key RENAME TO somewhere_else")
        status, _, body = made.raw("GET", "/api/me", key=key)
        assert (status, json.loads(body)) == (503, {"error": "the server's database is out of reach"})
        assert made.raw("GET", "/healthz")[0] == 503
    finally:
        made.stop()
    assert "Traceback" not in made.output.read_text()
