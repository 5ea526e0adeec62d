"""Who may call: keys, roles, data sets, how often; and what the log says of it."""

from __future__ import annotations

import hashlib
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.service.conftest import Deployment, prepare, registered

from epsilearn import Client
from epsilearn.client import ServerError
from epsilearn.database import Database
from epsilearn.errors import InvalidInput
from epsilearn.service import store
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys, UnknownKey
from epsilearn.service.limits import Buckets
from epsilearn.service.store import opened_store

NOBODYS = "epsk_" + "0" * 16 + "_" + "0" * 64


def wrong_keys(deployment):
    good = deployment.key("analyst", "anna")
    name, secret = good.split("_")[1:]
    return {
        "none": None,
        "empty": "",
        "nobody's": NOBODYS,
        "wrong secret": f"epsk_{name}_{'0' * 64}",
        "wrong end": good[:-1] + ("0" if good[-1] != "0" else "1"),
        "upper case": good.upper(),
        "longer": good + "0",
        "only the secret": secret,
        "injection": "epsk_' OR '1'='1_" + secret,
        "expired": deployment.key("analyst", "anna", days=1e-9),
    }


def test_wrong_keys_are_told_alike(deployment, holder, stays):
    for kind, key in wrong_keys(deployment).items():
        for method, path in (("GET", "/api/me"), ("GET", f"/api/datasets/{stays}"), ("POST", "/api/keys")):
            status, headers, body = deployment.raw(method, path, b"{}" if method == "POST" else None, key)
            assert status == 401, kind
            assert b"wrong, expired or revoked" in body
            assert headers["www-authenticate"] == "Bearer"


def test_a_revoked_key_ends_at_once(deployment, holder):
    text = holder.create_key("anna")
    anna = Client(deployment.url, text)
    anna.datasets()
    made = text.split("_")[1]
    assert deployment.raw("DELETE", f"/api/keys/{made}", key=holder._key)[0] == 204
    with pytest.raises(ServerError) as caught:
        anna.datasets()
    assert caught.value.status == 401
    assert deployment.raw("DELETE", "/api/keys/0000", key=holder._key)[0] == 404


def test_only_digests_are_stored(deployment, holder):
    text = holder.create_key("carl")
    _, made, secret = text.split("_")
    assert len(bytes.fromhex(secret)) == 32
    with Database.at(deployment.database).transaction(write=False) as connection:
        row = connection.execute(store.keys.select().where(store.keys.c.id == made)).one()
        everything = connection.execute(store.keys.select()).all()
    assert row.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in str(everything)
    assert secret not in deployment.raw("GET", "/api/keys", key=holder._key)[2].decode()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/files"), ("POST", "/api/datasets"), ("POST", "/api/datasets/{name}/bill"),
        ("POST", "/api/datasets/{name}/releases"), ("POST", "/api/releases/{release}/close"), ("GET", "/api/keys"),
        ("POST", "/api/keys"), ("DELETE", "/api/keys/x"), ("GET", "/api/log"),
    ],
)  # fmt: skip
def test_what_holders_do_is_not_for_analysts(deployment, holder, stays, method, path):
    release = holder.open(stays, "statistics", epsilon=1.0).id
    anna = deployment.key("analyst", "anna")
    bodies = {
        "/api/datasets": b'{"name": "a", "file": "table.csv", "schema_toml": "", "epsilon": 1}',
        "/api/keys": b'{"role": "holder", "name": "anna"}',
    }
    body = bodies.get(path, b'{"kind": "statistics", "epsilon": 1}') if method == "POST" else None
    where = path.format(name=stays, release=release)
    status, _, answer = deployment.raw(method, where, body, anna, **{"Content-Type": "application/json"})
    assert status == 403
    assert b"for data holders" in answer


def test_other_peoples_data_sets_do_not_exist(deployment, holder, stays, point):
    """A data set that a key is not for is told of exactly like one that there is not."""
    release = holder.open(stays, "process", target="died", epsilon=1.0, delta=1e-6, kernel="linear").id
    other = deployment.key("analyst", "otto", "something-else")
    for path in (
        f"/api/datasets/{stays}",
        f"/api/releases/{release}",
        f"/api/releases/{release}/documents/report.html",
    ):
        mine = deployment.raw("GET", path, key=other)
        none = deployment.raw("GET", path.replace(stays, "z" * len(stays)).replace(release, "z" * 16), key=other)
        assert mine[0] == none[0] == 404
        assert mine[2].decode().replace(stays, "").replace(release, "") == none[2].decode().replace(
            "z" * len(stays), ""
        ).replace("z" * 16, "")
    assert deployment.post(f"/api/releases/{release}/predict", {"rows": [point]}, other)[0] == 404
    assert deployment.raw("GET", "/api/datasets", key=other)[2] == b"[]"


def test_a_holder_of_some_data_sets_gives_away_no_more(deployment, holder, stays):
    some = deployment.client("holder", "sam", stays)
    Client(deployment.url, some.create_key("anna", datasets=[stays])).budget(stays)
    for datasets in (None, ["something-else"], [stays, "something-else"]):
        with pytest.raises(InvalidInput, match="some data sets only"):
            some.create_key("anna", datasets=datasets)
    with pytest.raises(ServerError, match="for every data set"):
        some.register("another", "table.csv", "version = 1", epsilon=1.0)
    for path in ("/api/log", "/api/files"):
        assert deployment.raw("GET", path, key=some._key)[0] == 403
    ours = holder._key.split("_")[1]
    assert deployment.raw("DELETE", f"/api/keys/{ours}", key=some._key)[0] == 404
    listed = deployment.raw("GET", "/api/keys", key=some._key)[2].decode()
    assert ours not in listed


def test_every_call_is_in_the_log_before_it_is_answered(deployment, holder, stays, point):
    anna = deployment.key("analyst", "anna", stays)
    calls = [
        ("GET", f"/api/datasets/{stays}", None, anna, 200),
        ("POST", "/api/releases/nothing/predict", b"{", anna, 400), ("GET", "/api/keys", None, anna, 403),
        ("GET", "/api/%0Awhat", None, anna, 404), ("PATCH", "/api/me", None, anna, 405),
    ]  # fmt: skip
    for method, path, body, key, status in calls:
        assert deployment.raw(method, path, body, key, **{"Content-Type": "application/json"})[0] == status
        with store.log_store(Database.at(deployment.database)).transaction(write=False) as connection:
            last = connection.execute(store.calls.select().order_by(store.calls.c.number.desc()).limit(1)).one()
        assert (last.method, last.status, last.address) == (method, status, "127.0.0.1")
        assert last.path == path.replace("%0A", "?")
        assert (last.key, last.who) == (anna.split("_")[1], "anna")
        assert abs(time.time() - sa_time(last.time)) < 60


def sa_time(text):
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_the_log_can_be_read_by_pages(deployment, holder):
    first = deployment.raw("GET", "/api/log?count=2", key=holder._key)
    import json

    newest = json.loads(first[2])["calls"]
    assert len(newest) == 2
    older = json.loads(deployment.raw("GET", f"/api/log?count=2&before={newest[-1]['number']}", key=holder._key)[2])
    assert [call["number"] < newest[-1]["number"] for call in older["calls"]] == [True, True]


def test_a_key_may_call_so_often_and_wrong_keys_less(clinic, tmp_path):
    made = Deployment(tmp_path, str(tmp_path / "state.db"), requests_per_minute=30)
    prepare(made, clinic)
    key = made.key("analyst", "anna")
    made.start()
    try:
        found = [made.raw("GET", "/api/me", key=key) for _ in range(30)]
        assert [status for status, _, _ in found] == [200] * 30
        # Tokens come back meanwhile, two seconds each; whoever goes on is refused, on however slow a machine.
        refused = next(one for _ in range(300) if (one := made.raw("GET", "/api/me", key=key))[0] != 200)
        assert refused[0] == 429
        assert int(refused[1]["retry-after"]) >= 1
        wrong = [made.raw("GET", "/api/me", key=NOBODYS)[0] for _ in range(6)]
        assert wrong[:3] == [401] * 3
        assert wrong[-1] == 429
    finally:
        made.stop()


def test_an_address_may_ask_so_often_for_what_needs_no_key(tmp_path):
    """Too many looks at the page or the counters keep nobody from /healthz, nor any key from calling."""
    made = Deployment(tmp_path, str(tmp_path / "state.db"), requests_per_minute=6)
    key = made.key("analyst", "anna")
    made.start()
    try:
        paths = ("/", "/openapi.json", "/metrics", "/nowhere")
        found = [made.raw("GET", paths[i % 4])[:2] for i in range(300)]
        assert {status for status, _ in found[:4]} == {200, 404}
        refused = [headers for status, headers in found if status == 429]
        assert refused
        assert int(refused[0]["retry-after"]) >= 1
        assert made.raw("GET", "/healthz")[0] == 200
        assert made.raw("GET", "/api/me", key=key)[0] == 200
        assert 429 in {made.raw("GET", "/healthz")[0] for _ in range(1000)}
    finally:
        made.stop()


def test_buckets_fill_up_again(monkeypatch):
    moment = [0.0]
    monkeypatch.setattr("epsilearn.service.limits.time.monotonic", lambda: moment[0])
    buckets = Buckets(60)
    assert [buckets.take("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0.0
    moment[0] = 1.0
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0


def test_names_and_times_of_keys_are_checked(tmp_path):
    keys = Keys(opened_store(str(tmp_path / "state.db"), make=True))
    for bad in ("", "a b", "../x", "x" * 65, "-a", "a\nb", None):
        with pytest.raises(InvalidInput, match="letters, digits"):
            keys.create("analyst", bad, None, "tests")
    with pytest.raises(InvalidInput, match="role"):
        keys.create("king", "a", None, "tests")
    for days in (0, -1, 1e9, float("nan")):
        with pytest.raises(InvalidInput, match="days"):
            keys.create("analyst", "a", None, "tests", days)
    with pytest.raises(UnknownKey):
        keys.check("nonsense")


def test_a_key_expires(tmp_path, monkeypatch):
    keys = Keys(opened_store(str(tmp_path / "state.db"), make=True))
    text, _ = keys.create("analyst", "a", None, "tests", days=1.0)
    assert keys.check(text).name == "a"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="microseconds")
    monkeypatch.setattr(store, "now", lambda: tomorrow)
    with pytest.raises(UnknownKey):
        keys.check(text)


def test_keys_by_the_command_line(command, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "config.toml").write_text('database = "state.db"\ntables = "tables"\n')
    code, out, _ = command("key", "create", "config.toml", "--name", "anna", "--dataset", "stays", "--days", 30)
    assert code == 0
    key = re.search(r"epsk_[0-9a-f]{16}_[0-9a-f]{64}", out).group()
    code, out, _ = command("key", "list", "config.toml")
    assert (code, "anna" in out, "stays" in out) == (0, True, True)
    assert key.split("_")[2] not in out
    keys = Keys(opened_store(Configuration.read(tmp_path / "config.toml").database))
    assert keys.check(key).datasets == ("stays",)
    assert command("key", "revoke", "config.toml", key.split("_")[1])[0] == 0
    with pytest.raises(UnknownKey):
        keys.check(key)
    assert command("key", "revoke", "config.toml", "nothing")[0] == 2
    assert command("key", "create", "nowhere.toml", "--name", "a")[0] == 2


def test_two_analysts_share_one_budget(deployment, holder):
    dataset = registered(deployment, holder, "colluding", epsilon=1.0, delta=0.0)
    release = holder.open(dataset, "statistics", epsilon=1.0).id
    anna, bert = (deployment.client("analyst", name, dataset) for name in ("anna", "bert"))
    anna.statistic(release, "mean", "age", epsilon=0.6)
    with pytest.raises(ServerError, match="nothing was debited"):
        bert.statistic(release, "mean", "age", epsilon=0.5)
    assert anna.budget(dataset) == bert.budget(dataset)


def test_a_key_gives_away_no_more_time_than_it_has(deployment):
    short = Client(deployment.url, deployment.key("holder", "sam", days=1 / 24))
    for days in (None, 0.01, 30):
        made = short.create_key("tom", "holder", days=days).split("_")[1]
        with Database.at(deployment.database).transaction(write=False) as connection:
            rows = {row.id: row for row in connection.execute(store.keys.select())}
        assert rows[made].expires <= rows[short._key.split("_")[1]].expires
        assert rows[made].who.startswith("sam (")


def test_a_schema_file_is_no_table(deployment, holder):
    asked = {"name": "x", "file": "table.csv", "schema_file": "table.csv", "epsilon": 1.0}
    status, answer = deployment.post("/api/datasets", asked, holder._key)
    assert (status, answer["error"]) == (422, "schema_file must name a .toml file")
