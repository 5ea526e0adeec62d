"""One server at a time, also when the lock is lost: by whom the database is written, and who ends."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack

import pytest
import sqlalchemy as sa
from tests.service.conftest import LONGEST, Deployment, prepare, registered, wait_until

from epsilearn import Client, Guarantee, Ledger
from epsilearn.errors import LedgerError, StateError
from epsilearn.service import store
from epsilearn.service.configuration import Configuration
from epsilearn.service.fencing import _taken_lock, _Watch, fenced, only_server
from epsilearn.service.keys import Keys
from epsilearn.service.parts import Parts
from epsilearn.service.releases import OPENING, sweep
from epsilearn.service.store import opened_store

HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 7341027"


def holders(database) -> list[int]:
    """The connections that hold the lock, of all databases of the tests' PostgreSQL: those of this one."""
    here = f"{HOLDERS} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    with database.transaction(write=False) as connection:
        return list(connection.execute(sa.text(here)).scalars())


def cut(database) -> None:
    """End the connection that holds the lock, as an administrator or a network would."""
    with database.transaction(write=False) as connection:
        for pid in holders(database):
            connection.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


def write(database) -> None:
    Keys(database).create("analyst", "anna", None, "tests")


def test_a_server_writes_until_another_has_begun(empty_database):
    """However the other one came to begin: here the first one's lock is not even asked for."""
    database = opened_store(empty_database, make=True)
    with only_server(database) as term:
        mine = fenced(database, term)
        write(mine)
        with database.transaction(write=True) as connection:
            connection.execute(store.servers.update().values(term=term + 1))
        with pytest.raises(LedgerError, match="another server has begun"):
            write(mine)
        with mine.transaction(write=False) as connection:
            assert len(connection.execute(store.keys.select()).all()) == 1


def test_a_server_that_was_replaced_neither_debits_nor_logs(empty_database, tmp_path):
    database = opened_store(empty_database, make=True)
    with database.transaction(write=True) as connection:
        Ledger.create_in(database, connection, dataset="d", epsilon=1.0, who="tests")
    (tmp_path / "tables").mkdir()
    configuration = Configuration.from_dict({"database": empty_database, "tables": "tables"}, tmp_path)
    call = {"key": "k", "who": "w", "address": "", "method": "GET", "path": "/", "status": 200}
    with only_server(database) as term:
        here = Parts(configuration, term)
        here.tables.ledger("d", "anna").debit(Guarantee.pure(0.1), "before")
        here.log.write(call).result(LONGEST)
        with database.transaction(write=True) as connection:
            connection.execute(store.servers.update().values(term=term + 1))
        with pytest.raises(LedgerError, match="another server has begun"):
            here.tables.ledger("d", "anna").debit(Guarantee.pure(0.1), "after")
        with pytest.raises(LedgerError, match="another server has begun"):
            here.log.write(call).result(LONGEST)
        assert here.tables.ledger("d", "").balance().debits == 1
        assert len(here.log.listed(None, 10)) == 1
        here.log.close()


def test_terms_go_up_and_whoever_ends_says_so(empty_database):
    database = opened_store(empty_database, make=True)
    seen = []
    for _ in range(3):
        with only_server(database) as term:
            seen.append(term)
        with database.transaction(write=False) as connection:
            assert connection.execute(sa.select(store.servers.c.ended)).scalar()
    assert seen == [1, 2, 3]


def test_a_lock_whose_connection_is_cut_is_taken_again_before_another_server_begins(postgres_url, monkeypatch):
    monkeypatch.setattr("epsilearn.service.fencing._COME_BACK", LONGEST)
    database = opened_store(postgres_url, make=True)
    replaced = threading.Event()
    with only_server(database, replaced.set) as term:
        mine = fenced(database, term)
        for _ in range(2):
            before = holders(database)
            assert len(before) == 1
            cut(database)
            # At once, before the first one can have noticed: it is given the time to.
            with pytest.raises(StateError, match="another server is running"), only_server(database):
                pass
            wait_until(lambda before=before: holders(database) not in ([], before), "the lock is held again")
            write(mine)
        # What the first one is opening is still being opened: nobody has swept it up.
        assert not replaced.is_set()


def test_a_connection_is_watched_whatever_its_number(postgres_url, monkeypatch):
    database = opened_store(postgres_url, make=True)
    monkeypatch.setattr("epsilearn.service.fencing._ASK", 1)
    with ExitStack() as stack:
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        watch = _Watch(database, _taken_lock(database), print)
        assert watch._holds()
        watch.close()


def test_a_server_that_cannot_take_its_lock_again_ends_and_writes_no_more(postgres_url):
    """Another one was quicker, or the first one was away for longer than it is waited for."""
    database = opened_store(postgres_url, make=True)
    replaced = threading.Event()
    with only_server(database, replaced.set) as term:
        with database.transaction(write=True) as connection:
            connection.execute(store.servers.update().values(term=term + 1))
        cut(database)
        assert replaced.wait(600)
        assert holders(database) == []
        with pytest.raises(LedgerError, match="another server has begun"):
            write(fenced(database, term))
        with pytest.raises(LedgerError, match="another server has begun"):
            sweep(fenced(database, term))


@pytest.mark.slow
def test_no_second_server_runs_beside_one_whose_connection_was_cut(postgres_url, clinic, tmp_path):
    first, second = (Deployment(tmp_path / name, postgres_url) for name in ("first", "second") if not
                     (tmp_path / name).mkdir())  # fmt: skip
    for made in (first, second):
        prepare(made, clinic)
    first.start()
    try:
        holder = Client(first.url, first.key("holder", "ruth"))
        dataset = registered(first, holder, "cut")
        release = holder.open(dataset, "process", wait=0, target="died", epsilon=1.0, delta=1e-6, kernel="rbf").id
        database = opened_store(postgres_url)
        before = holders(database)
        cut(database)
        wait_until(lambda: holders(database) not in ([], before), "the lock is held again")
        found = second.refused()
        assert (found.returncode, "another server is running" in found.stderr) == (1, True)
        wait_until(lambda: holder.release(release).status != OPENING, "the release is open")
        assert holder.release(release).status == "open"
        assert holder.spending(dataset)[0]["status"] == "delivered"
        # Another one begins all the same, by force: the first notices, and ends.
        with database.transaction(write=True) as connection:
            connection.execute(store.servers.update().values(term=store.servers.c.term + 1))
        cut(database)
        wait_until(lambda: first.process.poll() is not None, "the first server has ended")
        assert "this one ends" in first.output.read_text()
        second.start()
        assert Client(second.url, second.key("holder", "ruth")).release(release).status == "open"
    finally:
        for made in (first, second):
            if made.process is not None and made.process.poll() is None:
                made.stop(signal.SIGTERM)
