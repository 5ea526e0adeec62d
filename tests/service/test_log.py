"""The log of calls: what is listed, what is counted, and what is left of it after a long time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from tests.service.conftest import LONGEST, Deployment, registered

from epsilearn import Ledger
from epsilearn.database import Database
from epsilearn.errors import LedgerError
from epsilearn.guarantee import Guarantee
from epsilearn.service import store
from epsilearn.service.keys import Caller
from epsilearn.service.record import CallLog

NOBODYS = "epsk_" + "0" * 16 + "_" + "0" * 64
ANNA, BERT = Caller("a" * 16, "analyst", "anna", None), Caller("b" * 16, "analyst", "bert", None)


def rows(database: Database, table: sa.Table) -> list[sa.Row]:
    with database.transaction(write=False) as connection:
        return list(connection.execute(table.select().order_by(*table.primary_key)))


def call(who: Caller, path: str, status: int) -> dict[str, object]:
    return {"key": who.key, "who": who.name, "address": "::1", "method": "GET", "path": path, "status": status}


@pytest.fixture
def place(empty_database):
    return store.log_store(store.opened_store(empty_database, make=True))


def test_whoever_has_no_key_writes_no_lines(tmp_path):
    """Neither wrong keys nor calls beyond what a key may make are listed; they are counted, with whose key it was."""
    made = Deployment(tmp_path, str(tmp_path / "state.db"), requests_per_minute=30)
    anna = made.key("analyst", "anna")
    made.start()
    try:
        seen = Counter(made.raw("GET", f"/api/{'x' * 3000}{i}", key=NOBODYS if i % 2 else None)[0] for i in range(100))
        mine = Counter(made.raw("GET", "/api/me", key=anna)[0] for _ in range(100))
        assert set(seen) == {401, 429}
        assert set(mine) == {200, 429}
        metrics = made.raw("GET", "/metrics")[2].decode()
        assert f'status="401"}} {seen[401]}.0' in metrics
        assert f'status="429"}} {seen[429] + mine[429]}.0' in metrics
    finally:
        made.stop()
    log = store.log_store(Database.at(made.database))
    assert [row.key for row in rows(log, store.calls)] == [anna.split("_")[1]] * mine[200]
    counted: Counter[tuple[str, int]] = Counter()
    for row in rows(log, store.counted):
        assert (row.address, row.path, len(row.time)) == ("127.0.0.1", "", 16)
        counted[row.who, row.status] += row.calls
    assert counted == {("", 401): seen[401], ("", 429): seen[429], ("anna", 429): mine[429]}


def test_refused_calls_are_counted_by_the_minute(place, monkeypatch):
    moment = ["2026-01-01T10:00:00.000000+00:00"]
    monkeypatch.setattr(store, "now", lambda: moment[0])
    log = CallLog(place)
    for address in ("1.1.1.1", "1.1.1.1", "2.2.2.2"):
        log.count(401, None, address)
    log.count(429, ANNA, "1.1.1.1")
    moment[0] = "2026-01-01T10:01:00.000000+00:00"
    log.count(401, None, "2.2.2.2")
    # The minute that is over is written with the next call that is.
    log.write(call(ANNA, "/api/me", 200)).result(timeout=60)
    log.write(call(ANNA, "/api/me", 200)).result(timeout=60)
    found = [(row.time[11:], row.who, row.address, row.status, row.calls) for row in rows(place, store.counted)]
    assert found == [("10:00", "", "several", 401, 3), ("10:00", "anna", "1.1.1.1", 429, 1)]
    log.close()
    found = [(row.time[11:], row.who, row.address, row.status, row.calls) for row in rows(place, store.counted)]
    assert found[-1] == ("10:01", "", "2.2.2.2", 401, 1)
    assert [one["time"][11:] for one in log.counted(0, 2)] == ["10:01", "10:00"]
    assert [one["who"] for one in log.counted(2, 5)] == ["anna"]


def test_counts_wait_for_a_database_that_is_away(place):
    log = CallLog(place)
    with place.transaction(write=True) as connection:
        connection.execute(sa.text("ALTER TABLE epsilearn_call_count RENAME TO elsewhere"))
    log.count(401, None, "1.1.1.1")
    with pytest.raises(LedgerError):
        log._write_counts(everything=True)
    with place.transaction(write=True) as connection:
        connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO epsilearn_call_count"))
    log.close()
    assert [(row.status, row.calls) for row in rows(place, store.counted)] == [(401, 1)]


def test_a_call_that_nobody_waits_for_any_more_stops_nothing(place):
    log = CallLog(place)
    with log._lock:  # what is done after the first call waits for this
        log.write(call(ANNA, "/first", 200)).result(LONGEST)
        assert log.write(call(ANNA, "/second", 200)).cancel()
    log.write(call(ANNA, "/third", 200)).result(LONGEST)
    assert [one["path"] for one in log.listed(None, 10)] == ["/third", "/second", "/first"]
    log.close()


def test_calls_are_written_down_whatever_goes_wrong_after_them(place, monkeypatch):
    monkeypatch.setattr(CallLog, "_fold", lambda *_: 1 / 0)
    log = CallLog(place)
    for path in ("/first", "/second", "/third"):
        log.write(call(ANNA, path, 200)).result(LONGEST)
    log.close()


def test_of_very_many_calls_the_oldest_are_counted_by_the_day(place):
    """Whoever was answered can be told for good; what was refused is forgotten."""
    written = [
        call((ANNA, BERT)[i % 2], f"/api/releases/{i % 3}/predict", 404 if i % 5 == 0 else 200) for i in range(2600)
    ]
    for start in range(0, 2600, 1300):
        # Two at once: no call is counted twice.
        logs = [CallLog(place, most=40) for _ in range(2)]
        done = [logs[i % 2].write(one) for i, one in enumerate(written[start : start + 1300])]
        for future in done:
            future.result(timeout=60)
        for log in logs:
            log.close()
    CallLog(place, most=40).close()
    listed = rows(place, store.calls)
    assert len(listed) == 40
    assert [row.number for row in listed] == list(range(listed[-1].number - 39, listed[-1].number + 1))
    told = Counter((one["who"], one["path"]) for one in written if one["status"] == 200)
    found = Counter((row.who, row.path) for row in listed if row.status == 200)
    for row in rows(place, store.counted):
        assert (len(row.time), row.status, row.method) == (10, 200, "GET")
        found[row.who, row.path] += row.calls
    assert found == told
    assert len(rows(place, store.counted)) <= 6 * 2  # a day may have ended meanwhile


def test_old_calls_are_counted_and_old_refusals_forgotten(place):
    log = CallLog(place, days=10)
    log.close()
    old, young = ((datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds") for days in (11, 9))
    with place.transaction(write=True) as connection:
        for time in (old, young):
            connection.execute(
                store.calls.insert(), [{**call(ANNA, "/api/me", status), "time": time} for status in (200, 404)]
            )
            refused = {"key": "", "who": "", "address": "", "method": "", "path": "", "status": 401, "calls": 7}
            connection.execute(store.counted.insert().values(**refused, time=time[:16]))
    CallLog(place, days=10).close()
    assert {row.time for row in rows(place, store.calls)} == {young}
    found = {(row.time, row.status, row.calls) for row in rows(place, store.counted)}
    assert found == {(old[:10], 200, 1), (young[:16], 401, 7)}


def test_holders_read_the_counts(deployment, holder):
    analyst, some = deployment.key("analyst", "anna"), deployment.key("holder", "sam", "something-else")
    for path in ("/api/log/counts", "/api/log/counts?start=5&count=3"):
        status, _, body = deployment.raw("GET", path, key=holder._key)
        assert (status, list(json.loads(body))) == (200, ["counts"])
        assert deployment.raw("GET", path, key=analyst)[0] == 403
        assert deployment.raw("GET", path, key=some)[0] == 403
    assert deployment.raw("GET", "/api/log/counts?count=1001", key=holder._key)[0] == 422


def test_spending_is_read_a_page_at_a_time(deployment, holder, monkeypatch):
    dataset = registered(deployment, holder, "pages", epsilon=1.0, delta=0.0)
    release = holder.open(dataset, "statistics", epsilon=1.0).id
    for k in range(1, 8):
        holder.statistic(release, "quantile", "age", q=k / 8, epsilon=0.01 * k)
    ledger = Ledger(deployment.database, dataset=dataset)
    with pytest.raises(ZeroDivisionError), ledger.spend(promise_of(ledger), "never delivered"):
        raise ZeroDivisionError
    whole = ledger.history()
    path = f"/api/datasets/{dataset}/spending"

    def page(query: str) -> list[int]:
        return [one["entry"] for one in json.loads(deployment.raw("GET", path + query, key=holder._key)[2])["spending"]]

    entries = [entry["entry"] for entry in whole]
    assert page("") == entries
    assert page("?count=3") == entries[-3:]
    assert page(f"?count=3&before={entries[-3]}") == entries[-6:-3]
    assert page(f"?before={entries[0]}") == []
    monkeypatch.setattr("epsilearn.client._PAGE", 3)
    told = holder.spending(dataset)
    assert [(one["entry"], one["status"], one["used"]) for one in told] == [
        (entry["entry"], entry["status"], min(1.0, entry["used"])) for entry in whole
    ]
    assert told[-1]["status"] == "spent, not delivered"
    other = deployment.key("analyst", "otto", "something-else")
    assert deployment.raw("GET", path, key=other)[0] == 404
    assert deployment.raw("GET", f"{path}?count=1001", key=holder._key)[0] == 422


def promise_of(ledger: Ledger) -> Guarantee:
    return Guarantee.pure(0.01, mechanism="test", theorem="test", rows_per_person=ledger.balance().rows_per_person)
