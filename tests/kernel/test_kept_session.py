"""Interactive sessions that are kept: one answer to one question, whoever asks, whatever ends in between."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from epsilearn import InteractiveLearner, Ledger
from epsilearn.errors import InvalidInput, StateError
from epsilearn.kernel import RBF, Linear
from epsilearn.mechanisms.selection import AboveThreshold
from epsilearn.session_file import SessionFile


def table(rows: int = 20_000, seed: int = 0):
    X = np.random.default_rng(seed).normal(size=(rows, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return X, np.sign(X[:, 0])


X, Y = table()
POINTS = table(300, 1)[0]


def learner(state, **options):
    # The threshold is low beside what the hypothesis gets wrong at first: some answers are private, most are not.
    settings = {"kernel": Linear(1.0), "alpha": 0.1, "questions": 400, "failure": 1e-3, "epsilon": 5.0}
    return InteractiveLearner(classes=[-1, 1], state=state, **{**settings, **options})


@pytest.fixture
def state(tmp_path):
    return tmp_path / "session.db"


def shown(answers):
    return [(answer.value, answer.source) for answer in answers]


def test_the_same_question_has_one_answer_and_is_asked_once(state):
    session = learner(state).fit(X, Y)
    first = session.ask(POINTS[:50])
    assert {answer.source for answer in first} == {"private model", "public hypothesis"}
    again = session.ask(POINTS[np.r_[0:50, 3, 3]])
    assert shown(again[:50]) == shown(first)
    assert shown(again[50:]) == shown(first[3:4]) * 2
    assert first[-1].questions_left == again[-1].questions_left == 350
    assert first[-1].updates_left == session.session_.updates - sum(a.source == "private model" for a in first)


def test_a_session_goes_on_after_a_restart_with_the_same_noise(state, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", dataset="people", epsilon=6.0, delta=1e-5, rule="pure")
    first = learner(state, ledger=ledger).fit(X, Y)
    answers = first.ask(POINTS[:40])
    second = learner(state, ledger=ledger).fit(X, Y)
    assert ledger.balance().debits == 1
    assert second.guarantee_ == first.guarantee_
    assert shown(second.ask(POINTS[:40])) == shown(answers)
    assert second._session_._session.threshold_digits() == first._session_._session.threshold_digits()
    # What either asks next is known to the other, and nobody has more than the whole.
    later = shown(first.ask(POINTS[40:60]))
    assert shown(second.ask(POINTS[40:60])) == later
    assert second.ask(POINTS[:1])[0].questions_left == 340
    assert first.ask(POINTS[:1])[0].updates_left == second.ask(POINTS[:1])[0].updates_left


def _refusals(session, queue) -> None:
    told = []
    for _ in range(2):
        try:
            session.ask(POINTS[:1])
            told.append("answered")
        except StateError as error:
            told.append(str(error))
    queue.put(told)


def test_a_fork_cannot_go_on_with_a_kept_session_however_often_it_asks(state):
    """Its handle of the file is the parent's: what the child closes, the parent would lose its lock on."""
    session = learner(state).fit(X, Y)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_refusals, args=(session, queue))
    child.start()
    told = queue.get(timeout=600)
    child.join()
    assert all("belongs to the process that made it" in refusal for refusal in told)


def test_the_hypothesis_after_a_restart_is_the_one_before(state):
    first = learner(state).fit(X, Y)
    first.ask(POINTS[:30])
    second = learner(state).fit(X, Y)
    second.ask(POINTS[:1])
    ours, theirs = (session._session_._session._hypothesis for session in (first, second))
    assert len(ours.coef) > 0
    np.testing.assert_array_equal(ours.coef, theirs.coef)
    np.testing.assert_array_equal(ours.values(POINTS), theirs.values(POINTS))


def test_digits_that_a_comparison_needed_are_kept(state, monkeypatch):
    """A threshold that was cut finer for a negative answer must be as fine for the next, after a restart too."""
    session = learner(state).fit(X, Y)
    session.ask(POINTS[:2])
    original = AboveThreshold.ask

    def finer(self, value):
        found = original(self, value)
        self._state[1]._uniform.digits(200)
        return found

    monkeypatch.setattr(AboveThreshold, "ask", finer)
    session.ask(POINTS[2:3])
    monkeypatch.undo()
    digits = session._session_._session.threshold_digits()
    assert digits[1] >= 200
    again = learner(state).fit(X, Y)
    again.ask(POINTS[:1])
    assert again._session_._session.threshold_digits() == digits


def test_an_interruption_uses_up_nothing(state, monkeypatch):
    session = learner(state).fit(X, Y)
    session.ask(POINTS[:5])

    def interrupted(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SessionFile, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.ask(POINTS[5:10])
    monkeypatch.undo()
    before = learner(state).fit(X, Y).ask(POINTS[:5])
    assert before[-1].questions_left == 395
    assert shown(session.ask(POINTS[:5])) == shown(before)


def test_a_kept_session_refuses_what_is_not_its_own(state):
    learner(state).fit(X, Y).ask(POINTS[:3])
    with pytest.raises(StateError, match="other settings"):
        learner(state, questions=500).fit(X, Y)
    other = X.copy()
    other[0] = -other[0]
    with pytest.raises(StateError, match="other records"):
        learner(state).fit(other, Y)
    with pytest.raises(InvalidInput, match="as printed is not kept"):
        learner(state, calibration="paper").fit(X, Y)


def test_a_session_ends_after_its_questions(state):
    session = learner(state, questions=20).fit(X, Y)
    session.ask(POINTS[:15])
    with pytest.raises(StateError, match="would pass the 5 that are left"):
        session.ask(POINTS[15:25])
    session.ask(POINTS[15:20])
    assert len(session.ask(POINTS[:20])) == 20
    with pytest.raises(StateError, match="0 that are left"):
        session.ask(POINTS[20:21])


def test_an_estimated_norm_is_drawn_once(state):
    first = learner(state, estimate_norm=0.1).fit(X, Y)
    second = learner(state, estimate_norm=0.1).fit(X, Y)
    assert first.session_ == second.session_


def test_any_kernel_can_be_kept(state):
    made = {"kernel": RBF(0.5), "alpha": 0.5, "questions": 50}
    first = learner(state, **made).fit(X[:400], Y[:400])
    answers = shown(first.ask(POINTS[:20]))
    assert shown(learner(state, **made).fit(X[:400], Y[:400]).ask(POINTS[:20])) == answers


CHILD = """
import sys
import numpy as np
from tests.kernel.test_kept_session import POINTS, X, Y, learner

session = learner(sys.argv[1]).fit(X, Y)
order = np.random.default_rng(int(sys.argv[2])).permutation(150)
for i in order:
    answer = session.ask(POINTS[i:i + 1])[0]
    print(f"answer {i} {answer.value.hex()} by the {answer.source}.", flush=True)
sys.stdin.read()  # until it is killed
"""
WHOLE = re.compile(r"answer (\d+) (\S+) by the (private model|public hypothesis)\.\n")


class Child:
    """A process that asks all questions in an order of its own, until it is killed."""

    def __init__(self, state, seed: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(state), str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])},
        )  # fmt: skip
        self.lines: list[str] = []
        # One that hangs would hang the test.
        self._guard = threading.Timer(900, self._child.kill)
        self._guard.daemon = True
        self._guard.start()

    def listen(self, count: int) -> None:
        """Wait for so many answers."""
        for _ in range(count):
            self.lines.append(self._child.stdout.readline())
            assert WHOLE.fullmatch(self.lines[-1]), f"the child ended by itself; it said {self.lines}"

    def kill(self) -> dict[str, str]:
        """The answers that it gave, whole ones, by the same reader as before: a pipe has one."""
        self._child.send_signal(signal.SIGKILL)
        self.lines += self._child.stdout.readlines()
        assert self._child.wait() == -signal.SIGKILL
        self._guard.cancel()
        self._child.stdin.close()
        self._child.stdout.close()
        whole = [WHOLE.fullmatch(line) for line in self.lines]
        return {found[1]: f"{found[2]} {found[3]}" for found in whole if found}


@pytest.mark.slow
def test_processes_killed_at_any_moment_leave_one_answer_to_each_question(state):
    learner(state).fit(X, Y)
    chance = random.Random(0)
    given: dict[str, str] = {}
    for round_ in range(4):
        children = [Child(state, 2 * round_ + k) for k in range(2)]
        for child in children:
            child.listen(chance.randint(2, 5))
        time.sleep(chance.uniform(0.0, 0.6))
        for child in children:
            for number, answer in child.kill().items():
                assert given.setdefault(number, answer) == answer
    session = learner(state).fit(X, Y)
    answers = {str(i): f"{a.value.hex()} {a.source}" for i, a in enumerate(session.ask(POINTS[:150]))}
    assert given.items() <= answers.items()
    assert len(given) > 4
    assert session.ask(POINTS[:1])[0].questions_left == 250
