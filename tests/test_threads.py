"""Work in threads: every result once, in order, few at a time, and no work after an error."""

from __future__ import annotations

import os
import threading
import time

import pytest

from epsilearn.threads import alone, in_order, in_threads


def test_results_come_in_order_however_long_each_takes():
    def work(part):
        time.sleep(0.01 * (part % 3 == 0))
        return part

    assert list(in_order(work, range(50))) == list(range(50))


def test_only_a_few_parts_are_taken_ahead_of_what_is_read():
    taken = []

    def parts():
        for part in range(1000):
            taken.append(part)
            yield part

    results = in_order(lambda part: part, parts())
    for expected in range(5):
        assert next(results) == expected
    assert len(taken) <= 5 + 3 * (os.cpu_count() or 1) + 1


def test_an_error_reaches_the_reader_and_ends_the_work():
    done = []

    def work(part):
        if part == 3:
            raise ValueError("bad part")
        time.sleep(0.01)
        done.append(part)

    with pytest.raises(ValueError, match="bad part"):
        list(in_order(work, range(1000)))
    time.sleep(0.05)
    assert len(done) <= 3 + 3 * (os.cpu_count() or 1) + 1


def test_several_threads_may_do_so_at_once():
    found = []
    users = [threading.Thread(target=lambda: found.append(sum(in_order(abs, range(500))))) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert found == [sum(range(500))] * 4


def test_a_forked_child_makes_threads_of_its_own():
    assert in_threads(lambda part: part.stop - part.start, 10, worth=1)
    child = os.fork()
    if child == 0:
        os._exit(0 if list(in_order(abs, range(20))) == list(range(20)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_work_may_ask_for_threads_itself():
    """The pool's threads must not wait for each other."""

    def outer(part):
        return sum(in_order(abs, range(part))) + sum(in_threads(lambda inner: inner.stop - inner.start, 100, worth=1))

    assert list(in_order(outer, range(60))) == [sum(range(part)) + 100 for part in range(60)]


def test_whoever_is_alone_starts_no_thread():
    with alone():
        assert set(in_order(lambda _: threading.get_ident(), range(20))) == {threading.get_ident()}
        assert in_threads(lambda part: (part.start, part.stop), 100, worth=1) == [(0, 100)]
