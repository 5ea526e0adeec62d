"""Memory that sessions take: counted before it is taken, from public numbers; and drawn while nobody waits."""

from __future__ import annotations

import sqlite3
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
from tests.service.conftest import Deployment, points, prepare, registered

from epsilearn import Client, Guarantee
from epsilearn.client import ServerError
from epsilearn.errors import InvalidInput, StateError
from epsilearn.mechanisms.session import MemoryJournal, Process, ProcessLaw, factor_bytes
from epsilearn.noise.bits import OperatingSystemBits
from epsilearn.noise.correlated import Normals
from epsilearn.service.kept import DatabaseSession
from epsilearn.service.lanes import Busy
from epsilearn.service.room import Room
from epsilearn.service.store import opened_store

LAW = ProcessLaw.planned(Fraction(1, 20), 1.0, 1e-6, cap=5000, bound=1.0, kernel_error=1e-14, value_error=1e-13)


def across(known, new):
    asked = np.frombuffer(b"".join(new))
    before = np.frombuffer(b"".join(known))
    return np.exp(-((before[:, None] - asked[None, :]) ** 2)), np.exp(-((asked[:, None] - asked[None, :]) ** 2))


def ask(process: Process, where) -> np.ndarray:
    where = np.asarray(where, float)
    return process.answers([np.float64(z).tobytes() for z in where], lambda new: np.sin(where[new]))


@pytest.fixture
def session(empty_database):
    made = DatabaseSession(opened_store(empty_database, make=True), "a-session")
    with made.opening():
        made.begin("a plan", [b"records"], Guarantee(1.0, 1e-6))
        made.commit()
    return made


# ---------------------------------------------------------------------------------------------------------- drawing


def can_write(database) -> bool:
    """Whether anybody can write at this very moment, without waiting."""
    if database.is_postgresql:
        return True
    connection = sqlite3.connect(database.url, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def test_everybody_else_can_write_while_noise_is_drawn(session, monkeypatch):
    process, seen = Process(LAW, across, OperatingSystemBits(), session), []
    release = Normals.release

    def spied(self, *words):
        seen.append(can_write(session._database))
        return release(self, *words)

    monkeypatch.setattr(Normals, "release", spied)
    first = ask(process, np.arange(40) / 4)
    assert seen == [True] * 40
    assert session.count() == 40
    np.testing.assert_array_equal(ask(Process(LAW, across, OperatingSystemBits(), session), np.arange(40) / 4), first)


def test_what_was_drawn_is_written_down_in_small_parts(session, monkeypatch):
    process, sizes = Process(LAW, across, OperatingSystemBits(), session), []
    add = DatabaseSession.add

    def spied(self, entries, digits):
        sizes.append(len(entries))
        assert self.count() == sum(sizes[:-1]), "what was drawn before is on disk"
        add(self, entries, digits)

    monkeypatch.setattr(DatabaseSession, "add", spied)
    ask(process, np.arange(300) / 4)
    assert sizes == [128, 128, 44]


@contextmanager
def no_lock(self, name):
    yield


def test_what_was_drawn_after_the_lock_was_lost_is_never_used(session, empty_database, monkeypatch):
    """Another process answers a point in the middle of ours: ours is refused, and both go on with one noise."""
    first = Process(LAW, across, OperatingSystemBits(), session)
    theirs = DatabaseSession(opened_store(empty_database), "a-session")
    second = Process(LAW, across, OperatingSystemBits(), theirs)
    ask(first, [0.0, 1.0])
    release, answered = Normals.release, []

    def intruded(self, *words):
        if not answered:
            answered.append(0.0)
            with monkeypatch.context() as patch:
                patch.setattr(type(session._database), "lock", no_lock)
                answered[0] = ask(second, [2.0])[0]
        return release(self, *words)

    monkeypatch.setattr(Normals, "release", intruded)
    with pytest.raises(StateError, match="nothing was"):
        ask(first, [2.0, 3.0])
    monkeypatch.undo()
    found = ask(first, [2.0, 3.0])
    assert found[0] == answered[0]
    np.testing.assert_array_equal(ask(second, [2.0, 3.0]), found)
    assert first._normals.digits() == second._normals.digits() == session.digits()
    np.testing.assert_array_equal(first._factor.matrix, second._factor.matrix)


def test_writers_of_one_session_draw_one_after_the_other(session, empty_database):
    """Nothing that was drawn is thrown away for how long it took: whoever comes second waits before it draws."""
    handles = [DatabaseSession(opened_store(empty_database), "a-session") for _ in range(4)]
    workers = [Process(LAW, across, OperatingSystemBits(), handle) for handle in handles]
    barrier = threading.Barrier(4)

    def work(number: int) -> np.ndarray:
        barrier.wait(timeout=600)
        order = np.random.default_rng(number).permutation(40)
        found = np.empty(40)
        for part in np.split(order, 8):
            found[part] = ask(workers[number], part / 4)
        return found

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    for found in answers:
        np.testing.assert_array_equal(found, answers[0])
    assert session.count() == 40


# ----------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("size", [100, 1100])
def test_no_more_memory_is_taken_than_was_counted(size):
    told = []
    journal = MemoryJournal()
    journal.reserve = told.append
    process = Process(LAW, across, OperatingSystemBits(), journal)
    ask(process, [0.0])
    tracemalloc.start()
    try:
        ask(process, np.arange(1, size))
        # The journal of this test is in memory, too; a server's is on disk.
        kept = sum(len(entry.detail) + 200 for entry in journal.entries(0))
        peak = tracemalloc.get_traced_memory()[1] - kept
    finally:
        tracemalloc.stop()
    assert told[-1] == factor_bytes(size)
    assert peak < factor_bytes(size)
    assert 8 * size**2 / 2 < factor_bytes(size)


def test_points_that_would_take_too_much_are_refused_and_nothing_is_lost():
    journal = MemoryJournal()
    process = Process(LAW, across, OperatingSystemBits(), journal)
    first = ask(process, np.arange(30))
    factor = process._factor

    def refuse(size):
        assert size == factor_bytes(35)
        raise Busy("full")

    journal.reserve = refuse
    with pytest.raises(Busy):
        ask(process, np.arange(35))
    assert journal.count() == 30
    assert process._factor is factor, "a refusal must not make the session read everything again"
    np.testing.assert_array_equal(ask(process, np.arange(30)), first)


def test_a_session_that_rests_tells_what_it_knows_and_goes_on():
    journal = MemoryJournal()
    process = Process(LAW, across, OperatingSystemBits(), journal)
    first = ask(process, np.arange(30))
    assert process.rest()
    assert process._factor.count == 0

    def refuse(size):
        raise Busy("full")

    journal.reserve = refuse
    np.testing.assert_array_equal(ask(process, np.arange(30)), first)
    for _ in range(2):
        with pytest.raises(Busy):
            ask(process, [30.0])
        np.testing.assert_array_equal(ask(process, np.arange(30)), first)
    del journal.reserve
    ask(process, [30.0])
    assert process._factor.count == 31
    np.testing.assert_array_equal(ask(process, np.arange(30)), first)
    with process._lock:
        assert not process.rest(), "it is being asked"
    assert process._factor.count == 31


def test_who_was_asked_longest_ago_lets_go_first():
    room, resting = Room(100), []
    for name in "abc":
        room.enter(name, lambda name=name: resting.append(name) or name != "a")
    for name in "abc":
        room.reserve(name, 30)
    room.reserve("b", 31)
    assert (room.taken, resting) == (91, [])
    room.reserve("a", 40)  # "c" was asked before "b"
    assert (room.taken, resting) == (71, ["c"])
    room.reserve("c", 60)  # "b" was asked before "a", and is enough
    assert (room.taken, resting) == (100, ["c", "b"])
    with pytest.raises(Busy, match="again later"):
        room.reserve("b", 61)  # "a" does not rest: it is in use
    assert room.taken == 40
    with pytest.raises(StateError, match="new ones cannot"):
        room.reserve("a", 101)
    room.leave("b")
    with pytest.raises(StateError, match="no questions any more"):
        room.reserve("b", 1)
    with pytest.raises(InvalidInput, match="smaller max_points"):
        room.check(101, 7)
    room.check(100, 7)


def test_a_server_takes_no_more_memory_for_sessions_than_it_was_told(clinic, tmp_path):
    """Two sessions of which only one fits: they take turns; a third that could never fit is not opened."""
    made = Deployment(tmp_path, str(tmp_path / "state.db"), sessions_gib=1.5 * factor_bytes(60) / 2**30)
    prepare(made, clinic)
    made.start()
    try:
        holder = Client(made.url, made.key("holder", "ruth"))
        dataset = registered(made, holder, "memory")
        settings = {"target": "died", "delta": 1e-6, "epsilon": 1.0, "kernel": "rbf"}
        with pytest.raises(InvalidInput, match="smaller max_points"):
            holder.open(dataset, "process", max_points=20_000, **settings)
        assert (holder.releases(dataset), holder.budget(dataset).debits) == ([], 0)
        releases = [holder.open(dataset, "process", max_points=60, **settings).id for _ in range(2)]
        first = [holder.predict(release, points(20)) for release in releases]
        for release, known in zip(releases, first, strict=True):
            assert holder.predict(release, points(60))[:20] == known
        with pytest.raises(ServerError, match="would pass the cap"):
            holder.predict(releases[0], points(1, start=200))
        assert [holder.predict(release, points(20)) for release in releases] == first
    finally:
        made.stop()


def test_a_release_whose_kernel_values_do_not_fit_is_refused_before_the_debit(clinic, tmp_path):
    rows = 20_000
    made = Deployment(tmp_path, str(tmp_path / "state.db"), memory_gib=(8 * rows**2 - 1) / 2**30)
    prepare(made, clinic)
    made.start()
    try:
        holder = Client(made.url, made.key("holder", "ruth"))
        dataset = registered(made, holder, "square", "sphere")
        settings = {"target": "label", "delta": 1e-6, "epsilon": 1.0}
        for kind in ("process", "interactive"):
            with pytest.raises(InvalidInput, match=r"memory_gib"):
                holder.open(dataset, kind, kernel="rbf", **settings)
        assert (holder.releases(dataset), holder.budget(dataset).debits) == ([], 0)
        assert holder.open(dataset, "process", kernel="linear", **settings).status == "open"
    finally:
        made.stop()
