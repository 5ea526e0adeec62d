"""Eight processes hammer one ledger and are killed at random moments: nothing is overspent, nothing lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

import epsilearn
from epsilearn import Ledger
from epsilearn.errors import BudgetExceeded

WORKERS = 8
EACH = 0.001
WHOLE = re.compile(r"^released (\d+) ([0-9a-f]{64})$", re.MULTILINE)


def hammer(url: str, released: Path) -> None:
    """Release until refused; write down what left the machine, right after it did."""
    ledger = Ledger(url)
    with released.open("ab", buffering=0) as record:
        while True:
            try:
                release = epsilearn.laplace(1, sensitivity=1, epsilon=EACH, ledger=ledger)
            except BudgetExceeded:
                os._exit(0)
            stamp = release.guarantee.ledger
            record.write(f"released {stamp.entry} {stamp.head}\n".encode())


def hammer_and_kill(url: str, released: Path, kills: int, budget: float, seed: int) -> None:
    Ledger.create(url, dataset="patients", epsilon=budget)
    context, chance = multiprocessing.get_context("fork"), random.Random(seed)

    def start() -> multiprocessing.process.BaseProcess:
        worker = context.Process(target=hammer, args=(url, released))
        worker.start()
        return worker

    workers = [start() for _ in range(WORKERS)]
    killed = 0
    while killed < kills:
        time.sleep(chance.uniform(0, 0.04))
        victim = chance.randrange(WORKERS)
        if workers[victim].is_alive():
            os.kill(workers[victim].pid, signal.SIGKILL)
            workers[victim].join()
            killed += workers[victim].exitcode == -signal.SIGKILL
            workers[victim] = start()
        elif not any(w.is_alive() for w in workers):
            pytest.fail(f"the budget was used up after {killed} kills; raise it")
    deadline = time.monotonic() + 1000
    for worker in workers:
        worker.join(timeout=max(1.0, deadline - time.monotonic()))
        assert worker.exitcode == 0, "it still works, or died by itself"


def check(url: str, released: Path, budget: float) -> None:
    ledger = Ledger(url)
    ledger.verify()
    balance, history = ledger.balance(), ledger.history()
    assert balance.spent_epsilon <= budget
    assert balance.remaining_epsilon < EACH  # the survivors used it up
    assert len(history) == round(budget / EACH)
    debits = {entry["entry"]: entry["head"] for entry in history}
    lines = WHOLE.findall(released.read_text())
    assert lines
    # No release without its debit, and no debit used twice.
    assert all(debits[int(number)] == head for number, head in lines)
    assert len({number for number, _ in lines}) == len(lines)
    delivered = {entry["entry"] for entry in history if entry["status"] == "delivered"}
    assert {int(number) for number, _ in lines} <= delivered


@pytest.mark.slow
def test_a_few_kills(ledger_url, tmp_path):
    hammer_and_kill(ledger_url, tmp_path / "released", kills=12, budget=0.4, seed=1)
    check(ledger_url, tmp_path / "released", 0.4)


@pytest.mark.slow
def test_two_hundred_kills(ledger_url, tmp_path):
    hammer_and_kill(ledger_url, tmp_path / "released", kills=200, budget=4.0, seed=2)
    check(ledger_url, tmp_path / "released", 4.0)
