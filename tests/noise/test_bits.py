"""Random bits: no copy, fork or thread may ever repeat them, and no bits means no release."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import epsilearn
from epsilearn.errors import EntropyError, InvalidInput
from epsilearn.noise import bits as bits_module
from epsilearn.noise.bits import OperatingSystemBits, SeededBits, source_of


def draw(count: int) -> list[int]:
    source = OperatingSystemBits()
    values = [source.integer(64) for _ in range(count)]
    return values + [int(w) for w in source.words(count)]


def release_some(count: int) -> list[tuple[float, ...]]:
    """Four numbers each: single ones meet by chance on a grid of a few million points."""
    zeros = [0.0] * 4
    return [tuple(epsilearn.gaussian(zeros, sensitivity=1, epsilon=1.0, delta=1e-6).value) for _ in range(count)]


def _child(queue) -> None:
    queue.put((draw(5000), release_some(200)))


def test_forked_processes_share_no_values():
    draw(3)  # leave a half-used buffer behind for the children to inherit
    release_some(3)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_child, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    results = [queue.get(timeout=600) for _ in children] + [(draw(5000), release_some(200))]
    for child in children:
        child.join(timeout=600)
    for values in zip(*results, strict=True):
        together = [v for part in values for v in part]
        assert len(set(together)) == len(together)


FORK = """
import ctypes, os
from epsilearn.noise.bits import OperatingSystemBits

bits = OperatingSystemBits()
bits.integer(64)  # leaves a half-used buffer behind
read_end, write_end = os.pipe()
child = ctypes.CDLL(None).fork()
if child == 0:
    os.write(write_end, b"%d" % bits.integer(64))
    os._exit(0)
mine = bits.integer(64)
os.close(write_end)
theirs = int(os.read(read_end, 100))
os.waitpid(child, 0)
print(mine, theirs)
"""


def test_a_fork_that_bypasses_python_is_noticed():
    """A C extension may call fork() itself: Python's hooks do not run, the process number tells.

    In a process of its own, which has one thread: forked like that beside other threads, the interpreter's lock can
    wait for one of them for ever.
    """
    found = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=600, check=True)
    mine, theirs = map(int, found.stdout.split())
    assert mine != theirs


FORK_IN_A_HANDLER = """
import os, signal, sys
from epsilearn.noise import bits

child = []

def fork_once(frame, event, function):
    # Words have been fetched, and are about to go into the buffer.
    if event == "c_call" and function.__name__ == "extend" and frame.f_code.co_name == "_word":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGUSR1)

signal.signal(signal.SIGUSR1, lambda *_: child.append(os.fork()))
source, (read_end, write_end) = bits.OperatingSystemBits(), os.pipe()
sys.setprofile(fork_once)
source.integer(64)
drawn = b"".join(source.integer(64).to_bytes(8, "big") for _ in range(400))
if child[0] == 0:
    os.write(write_end, drawn)
    os._exit(0)
os.close(write_end)
with os.fdopen(read_end, "rb") as pipe:
    theirs = pipe.read()
os.waitpid(child[0], 0)
mine = {drawn[i : i + 8] for i in range(0, 3200, 8)}
print(len(theirs), sum(theirs[i : i + 8] in mine for i in range(0, 3200, 8)))
"""


def test_a_fork_in_a_signal_handler_shares_no_words():
    """Even where it comes between the two halves of a refill."""
    found = subprocess.run(
        [sys.executable, "-c", FORK_IN_A_HANDLER], capture_output=True, text=True, timeout=600, check=True
    )
    assert found.stdout.split() == ["3200", "0"]


def test_eight_threads_share_no_values():
    results: list[list[int]] = []
    noise: list[list[tuple[float, ...]]] = []

    def work() -> None:
        results.append(draw(5000))
        noise.append(release_some(100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lists in (results, noise):
        together = [v for part in lists for v in part]
        assert len(lists) == 8
        assert len(set(together)) == len(together)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copied_source_does_not_repeat_the_original(copier):
    source = OperatingSystemBits()
    source.integer(8)
    twin = copier(source)
    assert [source.integer(64) for _ in range(8)] != [twin.integer(64) for _ in range(8)]


@pytest.mark.parametrize("error", [OSError, NotImplementedError])
def test_no_entropy_means_no_release(monkeypatch, error):
    def refuse(_count: int) -> bytes:
        raise error

    bits_module._forget_buffer()
    monkeypatch.setattr(os, "urandom", refuse)
    with pytest.raises(EntropyError, match="nothing was released"):
        epsilearn.laplace(1.0, sensitivity=1, epsilon=1)


@pytest.mark.parametrize("source", [OperatingSystemBits(), SeededBits(5)])
def test_integers_have_the_asked_number_of_bits(source):
    for bits in (1, 7, 8, 9, 63, 64, 65, 1000):
        draws = [source.integer(bits) for _ in range(200)]
        assert all(0 <= d < 1 << bits for d in draws)
        # Each bit position must take both values (probability of a miss: 2 * 2**-200).
        if bits <= 65:
            assert all(0 < sum(d >> k & 1 for d in draws) < 200 for k in range(bits))


def test_a_large_request_outlasts_the_buffer():
    assert OperatingSystemBits().integer(10**6).bit_length() > 10**6 - 200


def test_seeds_repeat_and_say_so():
    assert SeededBits(3).words(4).tolist() == SeededBits(3).words(4).tolist()
    assert SeededBits(3).seeded
    assert not OperatingSystemBits().seeded


def test_random_state_is_understood():
    assert isinstance(source_of(None), OperatingSystemBits)
    assert source_of(np.int64(4)).seeded
    assert source_of(np.random.RandomState(0)).seeded

    class Fake(OperatingSystemBits):
        def integer(self, bits: int) -> int:
            return 0

    for bad in (-1, "seed", 1.5, True, Fake()):
        with pytest.raises(InvalidInput, match="random_state"):
            source_of(bad)
