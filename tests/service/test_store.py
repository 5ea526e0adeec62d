"""The server's database: its versions, its one server, its sessions; and what a configuration may say."""

from __future__ import annotations

import stat
import struct
import threading
from fractions import Fraction

import numpy as np
import pytest
import sqlalchemy as sa
from tests.service.conftest import Deployment, prepare

from epsilearn import Guarantee
from epsilearn.balls import exact
from epsilearn.errors import InvalidInput, LedgerError, StateError
from epsilearn.mechanisms.session import JournalEntry
from epsilearn.service import store
from epsilearn.service.configuration import Configuration
from epsilearn.service.fencing import only_server
from epsilearn.service.kept import DatabaseSession
from epsilearn.service.store import UPGRADES, opened_store


@pytest.fixture
def url(empty_database):
    return empty_database


def add_a_column(connection):
    connection.execute(sa.text("ALTER TABLE epsilearn_key ADD COLUMN colour TEXT"))


def version(database):
    with database.transaction(write=False) as connection:
        return connection.execute(sa.text("SELECT version FROM epsilearn_service_version")).scalars().all()


def test_a_newer_server_upgrades_and_an_older_one_refuses(url):
    from epsilearn.service.keys import Keys

    opened_store(url, make=True)
    text, _ = Keys(opened_store(url)).create("analyst", "anna", None, "tests")
    newer = (*UPGRADES, add_a_column)
    database = opened_store(url, upgrades=newer)
    assert version(database) == [1 + len(newer)]
    with database.transaction(write=False) as connection:
        assert connection.execute(sa.text("SELECT colour FROM epsilearn_key")).all() == [(None,)]
    assert Keys(database).check(text).name == "anna"
    opened_store(url, upgrades=newer)  # once only
    with pytest.raises(LedgerError, match="used by a newer one"):
        opened_store(url)
    assert version(database) == [1 + len(newer)]


def test_an_upgrade_that_fails_changes_nothing(url):
    opened_store(url, make=True)

    def fail(connection):
        add_a_column(connection)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        opened_store(url, upgrades=(*UPGRADES, fail))
    database = opened_store(url)
    assert version(database) == [1 + len(UPGRADES)]
    with database.transaction(write=False) as connection:
        assert "colour" not in [c["name"] for c in sa.inspect(connection).get_columns("epsilearn_key")]


def test_totals_that_version_2_did_not_keep_are_worked_out_once(url):
    database = opened_store(url, make=True)
    release = {"settings": "{}", "status": "open", "message": "", "facts": "{}", "created": "", "who": ""}
    with database.transaction(write=True) as connection:
        connection.execute(sa.text("ALTER TABLE epsilearn_release DROP COLUMN asked"))
        connection.execute(sa.text("ALTER TABLE epsilearn_session DROP COLUMN private"))
        connection.execute(sa.text("UPDATE epsilearn_service_version SET version = 2"))
        row = {"name": "d", "file": "f", "digest": "", "public": "{}", "rows": 1, "created": "", "who": ""}
        connection.execute(store.datasets.insert().values(**row))
        for name, kind in (("leave", "statistics"), ("none", "statistics"), ("talk", "interactive"), ("p", "process")):
            columns = {"id": name, "dataset": "d", "kind": kind, **release}
            places = ", ".join(f":{column}" for column in columns)
            connection.execute(
                sa.text(f"INSERT INTO epsilearn_release ({', '.join(columns)}) VALUES ({places})"), columns
            )
        for number, epsilon in enumerate((0.1, 0.2, 0.7000000000000001)):
            content = {"release": "leave", "question": str(number), "lost": number, "epsilon": epsilon, "answer": None}
            connection.execute(store.statistics.insert().values(**content, created="", who=""))
        for name in ("talk", "p"):
            connection.execute(sa.text("INSERT INTO epsilearn_session (session) VALUES (:name)"), {"name": name})
            for number, private in enumerate((True, False, True, True, False)):
                detail, point = struct.pack("<?d", private, 0.5), bytes([number])
                content = {"session": name, "number": number, "known": point, "point": point, "answer": 0.0}
                connection.execute(store.answers.insert().values(**content, detail=detail))
    again = opened_store(url)
    assert version(again) == [3]
    with again.transaction(write=False) as connection:
        asked = dict(connection.execute(sa.select(store.releases.c.id, store.releases.c.asked)).all())
    # Exactly what the doubles are that were asked for: more than one.
    assert Fraction(asked.pop("leave")) == exact(0.1) + exact(0.2) + exact(0.7000000000000001)
    assert asked == {"none": "0", "talk": "0", "p": "0"}
    assert [DatabaseSession(again, name).private_count() for name in ("talk", "p")] == [3, 0]
    assert DatabaseSession(again, "talk").count() == 5


def test_servers_that_start_at_once_make_the_tables_once(url):
    failures, barrier = [], threading.Barrier(6)

    def start():
        barrier.wait()
        try:
            store.log_store(opened_store(url, make=True))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert version(opened_store(url)) == [1 + len(UPGRADES)]


def test_nothing_is_made_unasked(url, tmp_path):
    with pytest.raises(LedgerError, match="key create"):
        opened_store(url)
    assert not (tmp_path / "state.db").exists()


def test_only_its_owner_reads_the_file(tmp_path):
    opened_store(str(tmp_path / "state.db"), make=True)
    assert stat.S_IMODE((tmp_path / "state.db").stat().st_mode) == 0o600


def test_locks_that_cannot_be_made_are_a_clear_error(tmp_path):
    database = opened_store(str(tmp_path / "state.db"), make=True)
    (tmp_path / "state.db.locks").write_text("not a folder")
    with pytest.raises(LedgerError, match=r"cannot lock a file in .*state\.db\.locks"), database.lock("a session"):
        pass


def test_one_server_at_a_time(url):
    database = opened_store(url, make=True)
    with only_server(database), pytest.raises(StateError, match="another server is running"), only_server(database):
        pass
    with only_server(database):
        pass


def test_a_second_server_does_not_start(deployment, clinic, tmp_path):
    other = Deployment(tmp_path, deployment.database)
    prepare(other, clinic)
    found = other.refused()
    assert found.returncode == 1
    assert "another server is running" in found.stderr
    assert "Traceback" not in found.stderr


# ------------------------------------------------------------------------------------------------------- sessions


@pytest.fixture
def session(url):
    made = DatabaseSession(opened_store(url, make=True), "a-session")
    with made.opening():
        made.begin("a plan", [b"records"], Guarantee(1.0, 1e-6))
        made.write("numbers", np.arange(3.0).tobytes())
        assert made.read("numbers") == np.arange(3.0).tobytes()
        made.commit()
    return made


def entries(count, start=0):
    return [JournalEntry(b"x" * 5000 + bytes([i]), i / 3, bytes(8 * i)) for i in range(start, start + count)]


def test_a_session_is_kept(session, url):
    with session.writing():
        session.add(entries(3), {0: (0, 64), 1: (2**64 - 1, 64), 2: (2**200 + 1, 256)})
    other = DatabaseSession(opened_store(url), "a-session")
    with other.writing():
        assert other.entries(1) == entries(3)[1:]
        assert other.digits() == [(0, 64), (2**64 - 1, 64), (2**200 + 1, 256)]
        assert (other.count(), other.changes) == (3, 1)
        other.add(entries(2, start=3), {1: (2**65 - 2, 65)})
    with session.writing():
        assert session.entries(0) == entries(5)
        assert session.digits()[1] == (2**65 - 2, 65)
        assert session.changes == 2
    with other.opening():
        assert other.resume("a plan", [b"records"]) == Guarantee(1.0, 1e-6)
        with pytest.raises(StateError, match="other records"):
            other.resume("a plan", [b"others"])


def test_one_point_has_one_answer_whatever_happens(session):
    with session.writing():
        session.add(entries(1), {})
    with pytest.raises(LedgerError), session.writing():
        session.add(entries(1), {})


def test_what_a_writer_adds_stands_at_once_and_whole(session):
    def interrupted():
        with session.writing():
            session.add(entries(3), {0: (1, 64)})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (session.count(), session.digits(), session.changes) == (3, [(1, 64)], 1)
    # Half of it collides: nothing of it stands.
    with pytest.raises(LedgerError), session.writing():
        session.add([*entries(1, start=3), *entries(1)], {1: (1, 64)})
    assert (session.count(), session.digits(), session.changes) == (3, [(1, 64)], 1)


def test_whoever_lost_the_lock_is_refused(session, url):
    """Two writers of one session, which only a lost lock allows: the second one's words do not stand."""
    other = DatabaseSession(opened_store(url), "a-session")
    with session.writing():
        # As if the lock had been taken away: the other one does not ask for it.
        other._version = session.changes
        other.add(entries(2), {0: (1, 64)})
        assert session.changes == 0, "a writer goes by what it has read"
        with pytest.raises(StateError, match="nothing was"):
            session.add(entries(3), {0: (2, 64)})
    assert (session.entries(0), session.digits(), session.changes) == (entries(2), [(1, 64)], 1)


def test_a_session_begins_once(session, url):
    other = DatabaseSession(opened_store(url), "a-session")
    with other.opening():
        other.begin("another", [], Guarantee(1.0))
        with pytest.raises(StateError, match="opened already"):
            other.commit()
    assert session.read("plan") == b"a plan"
    with pytest.raises(StateError, match="no session"), DatabaseSession(opened_store(url), "none").writing():
        pass


def test_writers_wait_for_each_other(session, url):
    order = []

    def work(name):
        mine = DatabaseSession(opened_store(url), "a-session")
        for _ in range(10):
            with mine.writing():
                start = mine.count()
                order.append(start)
                mine.add(entries(1, start=start), {})

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == list(range(40))
    assert order == sorted(order)


# ------------------------------------------------------------------------------------------------- configurations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tables": "nowhere"}, "no folder"),
        ({"colour": "red"}, "knows no 'colour'"),
        ({"port": "80"}, "whole number"),
        ({"port": 99999}, "port"),
        ({"workers": 0}, "workers"),
        ({"workers": True}, "whole number"),
        ({"host": "0.0.0.0"}, "unencrypted"),
        ({"host": "hospital.example"}, "unencrypted"),
        ({"certificate": "a.pem"}, "both certificate"),
        ({"limits": {"rows_per_request": 0}}, "rows_per_request"),
        ({"limits": {"colour": 0}}, "knows no 'colour'"),
        ({"limits": 3}, "must be a table"),
        ({"database": 3}, "a text"),
        ({"database": ":memory:"}, "outlive"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(tmp_path, change, message):
    (tmp_path / "tables").mkdir()
    with pytest.raises((InvalidInput, LedgerError), match=message):
        Configuration.from_dict({"database": "state.db", "tables": "tables", **change}, tmp_path)


def test_a_configuration_says_where_things_are(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "c.toml").write_text('database = "state.db"\ntables = "tables"\nhost = "0.0.0.0"\nplain_http = true\n')
    found = Configuration.read(tmp_path / "c.toml")
    assert (found.database, found.tables) == (str(tmp_path / "state.db"), tmp_path / "tables")
    with pytest.raises(InvalidInput, match="must say tables"):
        Configuration.from_dict({"database": "x"}, tmp_path)
    (tmp_path / "d.toml").write_text("[")
    with pytest.raises(InvalidInput, match="not TOML"):
        Configuration.read(tmp_path / "d.toml")
    with pytest.raises(InvalidInput, match="cannot read"):
        Configuration.read(tmp_path / "none.toml")
    url = Configuration.from_dict({"database": "postgresql://u@h/d", "tables": "tables"}, tmp_path)
    assert url.database == "postgresql://u@h/d"
    assert store.now() > "2026"
