"""Servers that are killed, several processes at once, and the threads that answer."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.service.conftest import LONGEST, TALKATIVE, Deployment, directions, points, prepare, registered, wait_until

from epsilearn import Client, Guarantee, Ledger
from epsilearn.client import ServerError
from epsilearn.errors import EpsilearnError, StateError
from epsilearn.mechanisms.session import JournalEntry
from epsilearn.service import store
from epsilearn.service.asker import Asker
from epsilearn.service.kept import DatabaseSession
from epsilearn.service.kinds import Live
from epsilearn.service.lanes import Busy
from epsilearn.service.pace import Pace
from epsilearn.service.store import opened_store


@pytest.fixture
def made(empty_database, clinic, tmp_path):
    deployment = Deployment(tmp_path, empty_database, pad_seconds=0.02)
    prepare(deployment, clinic)
    yield deployment
    deployment.stop(signal.SIGKILL)


POOL, ROUND = points(300), directions(300)


class Load:
    """Analysts who ask all the time and remember every answer that they got."""

    def __init__(self, clients: list[Client], process: str, interactive: str, statistics: str) -> None:
        self.clients, self.process, self.interactive, self.statistics = clients, process, interactive, statistics
        self.predictions: dict[tuple[str, int], tuple] = {}
        self.asked: dict[float, tuple] = {}
        self.faults: list[str] = []
        self.given = 0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, seed: int) -> None:
        self._stop.clear()
        self._threads = [threading.Thread(target=self._work, args=(seed + k,)) for k in range(4)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=LONGEST)
            assert not thread.is_alive()

    def told(self) -> int:
        """How many answers were given so far."""
        with self._lock:
            return self.given

    def _work(self, seed: int) -> None:
        chance = random.Random(seed)
        client = self.clients[seed % len(self.clients)]
        while not self._stop.is_set():
            try:
                if chance.random() < 0.3:
                    self.statistic(client, chance.randrange(1, 100) / 100)
                else:
                    release = chance.choice([self.process, self.process, self.interactive])
                    self.predict(client, release, [chance.randrange(len(POOL)) for _ in range(5)])
            except EpsilearnError as error:
                # No connection, or a fault of the moment; never an answer of another kind.
                if getattr(error, "status", None) not in (0, 409, 503):
                    self.faults.append(f"{getattr(error, 'status', None)} {error}")

    def predict(self, client: Client, release: str, chosen: list[int]) -> None:
        pool = ROUND if release == self.interactive else POOL
        found = client.predict(release, [pool[i] for i in chosen])
        with self._lock:
            for i, answer in zip(chosen, found, strict=True):
                told = (answer.prediction, answer.score, answer.private)
                self.given += 1
                if self.predictions.setdefault((release, i), told) != told:
                    self.faults.append(f"two answers to question {i} of {release}")

    def statistic(self, client: Client, q: float) -> None:
        found = client.statistic(self.statistics, "quantile", "age", q=q, epsilon=0.01)
        told = found.value, found.guarantee
        with self._lock:
            if self.asked.setdefault(q, told) != told:
                self.faults.append(f"two answers to quantile {q}")

    def again(self) -> None:
        """Every answer that was given is given again."""
        for release in (self.process, self.interactive):
            known = [i for r, i in self.predictions if r == release]
            for start in range(0, len(known), 100):
                self.predict(self.clients[0], release, known[start : start + 100])
        for q, told in list(self.asked.items()):
            found = self.clients[1].statistic(self.statistics, "quantile", "age", q=q, epsilon=0.01)
            assert found.asked_before
            assert (found.value, found.guarantee) == told


def check_ledger(made: Deployment, dataset: str, load: Load) -> int:
    """The chain is whole, nothing is overspent, and every answer that was given was paid for."""
    ledger = Ledger(made.database, dataset=dataset)
    ledger.verify()
    entries = {entry["entry"]: entry for entry in ledger.history()}
    for _, guarantee in load.asked.values():
        assert entries[guarantee.ledger.entry]["head"] == guarantee.ledger.head
    balance = ledger.balance()
    assert balance.spent_epsilon <= balance.epsilon
    return balance.debits


def under_fire(made: Deployment, kills: int) -> None:
    holder = Client(made.url, made.key("holder", "ruth"))
    made.start()
    dataset = registered(made, holder, "fire", epsilon=10.0, delta=1e-4)
    settings = {"target": "died", "delta": 1e-6, "epsilon": 2.0}
    process = holder.open(dataset, "process", kernel="rbf", max_points=400, **settings).id
    round_one = registered(made, holder, "round", "sphere")
    interactive = holder.open(round_one, "interactive", **TALKATIVE).id
    statistics = holder.open(dataset, "statistics", epsilon=5.0).id
    clients = [Client(made.url, made.key("analyst", name), timeout=LONGEST) for name in ("anna", "bert")]
    load, chance, debits = Load(clients, process, interactive, statistics), random.Random(0), 0
    load.statistic(clients[0], 0.5)
    # The first answers of a session are private ones: those go through all kills, however few a busy machine adds.
    load.predict(clients[0], interactive, list(range(20)))
    for number in range(kills):
        before = load.told()
        load.start(10 * number)
        # In the middle of answering, however long it takes until answers come.
        wait_until(lambda before=before: load.told() > before or load.faults, "an answer is given")
        time.sleep(chance.uniform(0.0, 0.9))
        made.stop(signal.SIGKILL)
        load.stop()
        made.start()
        load.again()
        assert load.faults == []
        found = check_ledger(made, dataset, load)
        assert found >= debits
        debits = found
    assert load.told() >= 5 * kills
    assert True in {told[2] for (release, _), told in load.predictions.items() if release == interactive}
    assert len(load.asked) > 1 or kills < 10


@pytest.mark.slow
def test_a_server_that_is_killed_under_load_forgets_nothing(made):
    under_fire(made, 2)


@pytest.mark.slow
def test_fifty_kills_under_load(made):
    # Starting a server takes most of the time, whatever its database.
    under_fire(made, 20 if "://" in made.database else 50)


@pytest.mark.slow
def test_a_kill_while_a_release_is_opened_costs_the_debit_and_no_more(made):
    holder = Client(made.url, made.key("holder", "ruth"))
    made.start()
    dataset = registered(made, holder, "opening", epsilon=30.0, delta=1e-3)
    for wait in (0.0, 0.05, 0.1, 0.2):
        release = holder.open(dataset, "process", wait=0, target="died", epsilon=1.0, delta=1e-6, kernel="polynomial")
        time.sleep(wait)
        made.stop(signal.SIGKILL)
        made.start()
        found = holder.release(release.id)
        assert found.status in ("failed", "open")
        paid = {entry["entry"]: entry["status"] for entry in holder.spending(dataset)}
        if found.status == "open":
            holder.predict(release.id, POOL[:3])
        else:
            assert "the server stopped" in found.message
            with pytest.raises(ServerError, match="failed"):
                holder.predict(release.id, POOL[:3])
        assert set(paid.values()) <= {"delivered", "spent, not delivered"}
    Ledger(made.database, dataset=dataset).verify()


@pytest.mark.slow
def test_several_processes_answer_as_one(made):
    made.workers = 2
    made.write_config()
    holder = Client(made.url, made.key("holder", "ruth"))
    made.start()
    dataset = registered(made, holder, "workers")
    settings = {"target": "died", "delta": 1e-6, "epsilon": 2.0}
    process = holder.open(dataset, "process", kernel="rbf", max_points=400, **settings).id
    interactive = holder.open(registered(made, holder, "round", "sphere"), "interactive", **TALKATIVE).id
    statistics = holder.open(dataset, "statistics", epsilon=5.0).id
    clients = [Client(made.url, made.key("analyst", name), timeout=LONGEST) for name in ("anna", "bert")]
    load = Load(clients, process, interactive, statistics)
    load.start(0)
    wait_until(lambda: len(load.predictions) > 100 or load.faults, "a hundred questions are answered")
    load.stop()
    load.again()
    assert load.faults == []
    check_ledger(made, dataset, load)
    # What they count is added up.
    text = made.raw("GET", "/metrics")[2].decode()
    assert 'epsilearn_answers_total{kind="process"}' in text


@pytest.mark.slow
def test_a_release_whose_process_died_while_opening_it_can_be_closed(made):
    made.workers = 2
    made.write_config()
    holder = Client(made.url, made.key("holder", "ruth"))
    made.start()
    dataset = registered(made, holder, "orphan", epsilon=30.0, delta=1e-3)
    release = holder.open(dataset, "process", wait=0, target="died", epsilon=1.0, delta=1e-6, kernel="polynomial").id
    parent = f"/proc/{made.process.pid}/task/{made.process.pid}/children"
    for child in Path(parent).read_text().split():
        os.kill(int(child), signal.SIGKILL)
    wait_until(made.healthy, "the processes are there again")
    if holder.release(release).status == "opening":
        holder.close(release)
        assert holder.release(release).status == "closed"
    Ledger(made.database, dataset=dataset).verify()


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(made):
    made.workers = 2
    made.write_config()
    made.start()
    os.kill(made.process.pid, signal.SIGKILL)
    made.process.wait()
    made.process = None
    wait_until(lambda: made.raw("GET", "/healthz")[0] == 0, "all processes have ended")
    made.start()  # the address is free, and so is the database


@pytest.mark.slow
def test_a_server_told_to_stop_finishes_what_it_is_opening(made):
    holder = Client(made.url, made.key("holder", "ruth"))
    made.start()
    dataset = registered(made, holder, "stopping")
    release = holder.open(dataset, "process", wait=0, target="died", epsilon=1.0, delta=1e-6, kernel="rbf").id
    made.restart(signal.SIGTERM)
    assert holder.release(release).status == "open"
    assert [entry["status"] for entry in holder.spending(dataset)] == ["delivered"]


# -------------------------------------------------------------------------------------------------------- threads


class Counting(Live):
    """Answers with the sum of a row when it is let go; notes how many were asked at once, and takes its time."""

    def __init__(self, pause: float = 0.0, *, held: bool = False) -> None:
        self.sizes: list[int] = []
        self.pause = pause
        self.go = threading.Event()
        if not held:
            self.go.set()

    def answers(self, X):
        self.sizes.append(len(X))
        assert self.go.wait(LONGEST)
        time.sleep(self.pause)
        if (X < 0).any():
            raise StateError("negative")
        if (X > 1e9).any():
            raise ZeroDivisionError
        return [{"score": float(row.sum())} for row in X]


def test_questions_that_wait_together_are_answered_together():
    live = Counting(held=True)
    asker = Asker(live, Pace(0.0))
    futures = [asker.ask(np.full((k, 2), float(k))) for k in range(1, 9)]
    live.go.set()
    for k, future in enumerate(futures, start=1):
        assert [a["score"] for a in future.result(timeout=LONGEST).answers] == [2.0 * k] * k
    assert len(live.sizes) <= 2
    asker.close()


def test_one_question_that_cannot_be_answered_takes_no_other_with_it():
    live = Counting(held=True)
    asker = Asker(live, Pace(0.0))
    first, bad, good = asker.ask(np.ones((1, 1))), asker.ask(-np.ones((1, 1))), asker.ask(np.ones((1, 1)))
    live.go.set()
    assert first.result(timeout=LONGEST)
    assert good.result(timeout=LONGEST).answers == [{"score": 1.0}]
    with pytest.raises(StateError):
        bad.result(timeout=LONGEST)
    with pytest.raises(ZeroDivisionError):
        asker.ask(np.full((1, 1), 1e10)).result(timeout=LONGEST)
    assert asker.ask(np.ones((1, 1))).result(timeout=LONGEST)
    asker.close()


def test_a_question_that_nobody_waits_for_any_more_is_not_asked():
    live = Counting(held=True)
    asker = Asker(live, Pace(0.0))
    first = asker.ask(np.ones((1, 1)))
    wait_until(lambda: live.sizes == [1], "the first question is taken up")
    assert asker.ask(np.ones((2, 1))).cancel()
    live.go.set()
    assert first.result(timeout=LONGEST)
    assert asker.ask(np.ones((4, 1))).result(timeout=LONGEST)
    assert 2 not in live.sizes
    assert sum(live.sizes) == 5
    asker.close()


def test_a_question_after_the_end_is_refused_and_those_before_are_answered():
    live = Counting(held=True)
    asker = Asker(live, Pace(0.0))
    waiting = asker.ask(np.ones((1, 1)))
    asker.close()
    live.go.set()
    assert waiting.result(timeout=LONGEST).answers == [{"score": 1.0}]
    with pytest.raises(StateError, match="no questions any more"):
        asker.ask(np.ones((1, 1)))


def test_only_so_many_questions_may_wait(monkeypatch):
    monkeypatch.setattr("epsilearn.service.asker._MOST_WAITING", 3)
    live = Counting(held=True)
    asker = Asker(live, Pace(0.0))
    first = asker.ask(np.ones((1, 1)))
    wait_until(lambda: live.sizes == [1], "the first question is taken up")
    waiting = [asker.ask(np.ones((1, 1))) for _ in range(3)]
    with pytest.raises(Busy, match="ask again"):
        asker.ask(np.ones((1, 1)))
    live.go.set()
    assert all(one.result(timeout=LONGEST).answers == [{"score": 1.0}] for one in [first, *waiting])
    asker.close()


def test_nobody_waits_for_the_session_of_somebody_else(made, monkeypatch):
    """While a session is being written, others are told of it, and ask and open others, without waiting."""
    holder = Client(made.url, made.key("holder", "ruth"), timeout=LONGEST)
    made.start()
    release = holder.open(registered(made, holder, "round", "sphere"), "interactive", **TALKATIVE).id
    holder.predict(release, ROUND[:3])
    session = DatabaseSession(opened_store(made.database), release)
    with session.writing():
        assert holder.release(release).status == "open"
        assert made.raw("GET", "/api/me", key=holder._key)[0] == 200
        # Who writes does not wait either, with SQLite too.
        other = holder.open(registered(made, holder, "others"), "process", target="died", epsilon=1.0, delta=1e-6).id
        assert len(holder.predict(other, POOL[:3])) == 3
        holder.create_key("anna")


def test_padded_answers_leave_at_multiples_of_the_pad():
    """Whatever path was taken, the time is a whole number of steps; the next question waits for the step's end too."""
    for pause, steps in ((0.0, 1), (0.12, 2)):
        asker = Asker(Counting(pause), Pace(0.1))
        start = time.monotonic()
        asker.ask(np.ones((1, 1))).result(timeout=LONGEST)
        assert time.monotonic() - start >= 0.1 * steps - 1e-3
        asker.ask(np.ones((1, 1))).result(timeout=LONGEST)
        assert time.monotonic() - start >= 0.2 * steps - 1e-3
        asker.close()


def test_others_see_an_interactive_answer_no_sooner_than_it_leaves(made):
    """What may still be asked changes at a step of the pad, not when the answer was found."""
    made.limits["pad_seconds"] = 2.0
    made.write_config()
    holder = Client(made.url, made.key("holder", "ruth"), timeout=LONGEST)
    made.start()
    release = holder.open(registered(made, holder, "seen", "sphere"), "interactive", **TALKATIVE).id
    holder.predict(release, ROUND[:1])

    def left():
        return json.loads(made.raw("GET", f"/api/releases/{release}", key=holder._key)[2])["left"]

    for point in ROUND[1:4]:
        before, start = left(), time.monotonic()
        asking = threading.Thread(target=holder.predict, args=(release, [point]))
        asking.start()
        wait_until(lambda before=before: left() != before, "the answer is seen")
        assert time.monotonic() - start >= 2.0
        asking.join(timeout=LONGEST)


def test_answers_are_neither_seen_nor_in_anybodys_way_while_they_wait_for_their_moment(empty_database):
    database = opened_store(empty_database, make=True)
    seen = []

    def wait():
        other = DatabaseSession(database, "one")
        with database.transaction(write=True) as connection:
            connection.execute(store.sessions.insert().values(session="two"))
        seen.append((other.count(), other.changes))

    session = DatabaseSession(database, "one", wait=wait)
    with session.opening():
        session.begin("a plan", [b"records"], Guarantee(1.0, 1e-6))
        session.commit()
    with session.writing():
        session.add([JournalEntry(b"a point", 0.5, b"")], {0: (1, 1)})
    assert seen == [(0, 0)]
    assert session.count() == 1


def test_answers_that_take_no_private_path_do_not_wait(made):
    made.limits["pad_seconds"] = 10 * LONGEST
    made.write_config()
    holder = Client(made.url, made.key("holder", "ruth"), timeout=LONGEST)
    made.start()
    release = holder.open(registered(made, holder, "quick"), "process", target="died", epsilon=1.0, delta=1e-6).id
    assert len(holder.predict(release, POOL[:2])) == 2
