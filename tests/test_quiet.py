"""Silence: in every thread, for every kind of warning, and for nobody else."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import scipy.special

from epsilearn.quiet import aloud, quietly, tell
from epsilearn.rows.parts import Preparation, Targets, Work
from epsilearn.threads import alone, in_order, in_threads

LARGE = np.array([1e200])


def noisy(_part: object = None) -> float:
    """Work that overflows, underflows and warns by itself."""
    warnings.warn("a record is odd", UserWarning, stacklevel=1)
    return float((LARGE * LARGE)[0] + (1 / LARGE / LARGE)[0])


@pytest.fixture(autouse=True)
def strict():
    """Whatever can be heard is an error."""
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@quietly()
def decorated() -> float:
    return noisy()


def test_nothing_is_heard_inside_and_everything_outside():
    assert decorated() == np.inf
    with quietly():
        assert noisy() == np.inf
        with quietly():
            noisy()
        noisy()
    with pytest.raises(UserWarning):
        noisy()
    with pytest.raises(FloatingPointError):
        LARGE * LARGE


def test_an_error_ends_the_silence():
    with pytest.raises(KeyError), quietly():
        raise KeyError
    with pytest.raises(UserWarning):
        noisy()


def test_filters_that_come_later_do_not_end_it():
    with quietly():
        warnings.simplefilter("error")
    for _ in range(3):
        warnings.simplefilter("error")
        assert decorated() == np.inf
    mine = [entry for entry in warnings.filters if "WhileQuiet" in repr(entry[1])]
    assert len(mine) == 1


def test_what_is_public_may_be_said():
    with quietly(), aloud(), pytest.raises(UserWarning):
        warnings.warn("public", UserWarning, stacklevel=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quietly():
            tell("public", UserWarning)
            warnings.warn("private", UserWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == ["public"]
    assert caught[0].filename == __file__


def test_silence_is_one_threads_own():
    """Two that overlap must not leave all warnings switched off, as two of Python's own contexts would."""
    inside, leave, heard = threading.Event(), threading.Event(), []

    def quiet() -> None:
        with quietly():
            inside.set()
            assert leave.wait(600)

    other = threading.Thread(target=quiet)
    other.start()
    assert inside.wait(600)
    with quietly():
        pass
    try:
        noisy()
    except UserWarning:
        heard.append("while the other is quiet")
    leave.set()
    other.join()
    with pytest.raises(UserWarning):
        noisy()
    assert heard == ["while the other is quiet"]


def test_work_in_threads_is_silent():
    """A pool's threads know nothing of what the thread that asks has told numpy."""
    assert list(in_order(noisy, range(50))) == [np.inf] * 50
    assert in_threads(noisy, 50, worth=1) == [np.inf] * len(in_threads(noisy, 50, worth=1))
    assert in_threads(noisy, 50, worth=100) == [np.inf]
    with alone():
        assert list(in_order(noisy, range(3))) == [np.inf] * 3
    states: set[str] = set()
    for state in in_order(lambda _: np.geterr(), range(50)):
        states |= set(state.values())
    assert states == {"ignore"}


def test_work_on_a_part_is_silent_wherever_it_runs():
    """A worker of a cluster is another process, with numpy's defaults and its own warning filters."""
    found = []

    def task(rows):
        noisy()
        found.append(rows)
        return []

    prepare = Preparation(lambda block: block, (), Targets(), 2)
    work = Work(prepare, lambda X, target: (X, target), task)
    gathered = work.part(0, [(np.ones((3, 2)), np.ones(3))])
    assert gathered.fault is None
    assert gathered.seen[0].rows == 3
    assert len(found) == 1


def test_filters_can_be_sent_to_another_process():
    """scikit-learn sends them to joblib's workers, and copies them."""
    program = """
import copy, pickle, warnings
import numpy as np
from epsilearn.quiet import quietly
with quietly():
    pass
warnings.filters[:] = pickle.loads(pickle.dumps(copy.deepcopy(warnings.filters)))
warnings.simplefilter("error")
with quietly():
    warnings.warn("unheard")
try:
    warnings.warn("heard")
except UserWarning:
    print("heard")
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert found.stdout.split() == ["heard"]


def test_the_error_state_of_special_functions_is_silent_too():
    with scipy.special.errstate(all="raise"):
        with pytest.raises(scipy.special.SpecialFunctionError):
            scipy.special.gamma(-1.0)
        with quietly():
            assert np.isinf(scipy.special.gamma(0.0))
            scipy.special.gamma(-1.0)


def test_silence_survives_a_block_that_saved_the_filters_before():
    code = """
import warnings
from epsilearn.quiet import quietly
block = warnings.catch_warnings()  # of another thread
block.__enter__()
with quietly():
    block.__exit__(None, None, None)
    warnings.warn("a record is odd")
warnings.warn("all is well")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "all is well" in found.stderr
    assert "odd" not in found.stderr
