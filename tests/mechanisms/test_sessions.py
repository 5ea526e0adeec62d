"""Mechanisms with memory: above-threshold and the Gaussian process."""

from __future__ import annotations

import math
import multiprocessing
import shutil
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import epsilearn
from epsilearn import AboveThreshold, GaussianProcess
from epsilearn.accounting import GaussianShift
from epsilearn.errors import InvalidInput, StateError
from epsilearn.mechanisms.session import ProcessLaw, _Factor


def rbf(a, b):
    return np.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))


def test_only_positives_are_paid_for():
    session = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0, positives=2)
    assert not any(session.ask(-1e6) for _ in range(1000))
    assert session.remaining == 2
    assert session.ask(1e6)
    assert session.ask(1e6)
    with pytest.raises(StateError, match="used up"):
        session.ask(-1e6)


@pytest.mark.slow
def test_the_answers_have_the_right_probability():
    """P(value + Laplace(4) >= threshold + Laplace(2)) by convolution, and not that of 5 % less noise."""
    value, count = 3.0, 40_000
    yes = sum(
        AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0, random_state=s).ask(value) for s in range(count)
    )

    def probability(factor: float) -> float:
        grid = np.linspace(-200, 200, 400_001)
        weights = stats.laplace.pdf(grid, scale=2 * factor) * (grid[1] - grid[0])
        return float(weights @ stats.laplace.sf(grid - value, scale=4 * factor))

    assert stats.binomtest(yes, count, probability(1.0)).pvalue > 1e-3
    # One yes-or-no answer says little about the scale: 5 % moves it by less than a percent, 15 % is caught.
    assert stats.binomtest(yes, count, probability(0.85)).pvalue < 1e-3


def test_threshold_noise_is_redrawn_after_each_positive():
    session = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0, positives=50, random_state=3)
    noises = []
    for _ in range(50):
        noises.append(session._state[1])
        session.ask(1e9)
    assert len({id(n) for n in noises}) == 50


def test_large_integers_are_compared_exactly():
    """2**60 + 128 and 2**60 + 129 are the same double; rounding would hide, or exaggerate, a record."""
    answers = {
        offset: sum(
            AboveThreshold(threshold=2**60 + 128, sensitivity=1, epsilon=1.0, random_state=s).ask(2**60 + 128 + offset)
            for s in range(400)
        )
        for offset in (0, 1, 129)
    }
    assert 150 < answers[0] < 260
    assert 0 <= answers[1] - answers[0] < 80
    assert answers[129] == 400


def test_an_interruption_leaves_no_half_answered_question(monkeypatch):
    """Whatever stops `ask`, the session either has not answered or has counted the answer and redrawn its noise."""
    session = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0, positives=3, random_state=1)
    drawn = []

    def interrupted(*_):
        if len(drawn) == 1:
            raise KeyboardInterrupt
        drawn.append(1)
        return original(*_)

    from epsilearn.mechanisms import selection

    original = selection.Variate
    before = session._state
    monkeypatch.setattr(selection, "Variate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.ask(1e9)
    assert session._state is before


@pytest.mark.parametrize("bad", [math.nan, math.inf, "x", None, True, 10**400])
def test_bad_questions(bad):
    session = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0)
    with pytest.raises(InvalidInput, match="value"):
        session.ask(bad)
    with pytest.raises(InvalidInput, match="threshold"):
        AboveThreshold(threshold=bad, sensitivity=1.0, epsilon=1.0)


def _use_in_child(session, queue) -> None:
    try:
        session()
        queue.put("answered")
    except StateError as error:
        queue.put(str(error))


@pytest.mark.parametrize("kind", ["above threshold", "process"])
def test_a_fork_cannot_reuse_a_session(kind):
    if kind == "process":
        live = GaussianProcess(rbf, sensitivity=1.0, epsilon=1.0, delta=1e-6, max_points=5)
        use = lambda: live.release(np.zeros((1, 1)), np.zeros(1))  # noqa: E731
    else:
        live = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0)
        use = lambda: live.ask(0.0)  # noqa: E731
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_use_in_child, args=(use, queue))
    child.start()
    assert "fork would reuse its noise" in queue.get(timeout=600)
    child.join()


IN_A_NAMESPACE = """
import ctypes, os
from epsilearn import AboveThreshold
from epsilearn.errors import StateError

assert os.getpid() == 1
session, (read_end, write_end) = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0), os.pipe()
if SIMULATED:
    os.getpid = lambda: 1
elif ctypes.CDLL(None).unshare(0x20000000):  # CLONE_NEWPID: the next child is number 1 as well
    raise SystemExit("unshare failed")
child = os.fork()
if child == 0:
    try:
        session.ask(0.0)
        told = f"{os.getpid()} answered"
    except StateError as error:
        told = f"{os.getpid()} {error}"
    os.write(write_end, told.encode())
    os._exit(0)
os.close(write_end)
with os.fdopen(read_end) as pipe:
    print(pipe.read())
os.waitpid(child, 0)
session.ask(0.0)  # the parent goes on
"""


def _as_number_one(simulated: bool) -> subprocess.CompletedProcess[str]:
    """The program above, whose process and whose child both have the number 1."""
    if simulated:
        program = f"import os; os.getpid = lambda: 1; SIMULATED = True\n{IN_A_NAMESPACE}"
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are not to be had here")
    program = f"SIMULATED = False\n{IN_A_NAMESPACE}"
    return subprocess.run(
        [*words, sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True
    )


@pytest.mark.parametrize("simulated", [True, False])
def test_a_child_with_its_parents_process_number_is_refused(simulated):
    """In a PID namespace of its own a child of process 1 is process 1 too: forks are counted."""
    told = _as_number_one(simulated).stdout
    assert told.startswith("1 this AboveThreshold belongs to the process that made it")


def test_threads_share_the_positives_fairly():
    session = AboveThreshold(threshold=0.0, sensitivity=1.0, epsilon=1.0, positives=20)
    answers: list[bool] = []

    def work() -> None:
        for _ in range(10):
            try:
                answers.append(session.ask(1e9))
            except StateError:
                return

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answers) == 20


def open_process(**options) -> GaussianProcess:
    settings = {"sensitivity": 0.05, "epsilon": 1.0, "delta": 1e-6, "max_points": 200, **options}
    return GaussianProcess(rbf, **settings)


@pytest.mark.slow
def test_the_noise_has_the_kernels_covariance_and_the_promised_scale():
    points = np.array([[0.0], [0.3], [2.0]])
    runs = np.array([open_process(random_state=s).release(points, np.zeros(3)).value for s in range(6000)])
    tau = 0.05 * 4.224679
    whitened = np.linalg.solve(np.linalg.cholesky(rbf(points, points)), runs.T / tau).ravel()
    assert stats.kstest(whitened, stats.norm.cdf).pvalue > 1e-3
    assert stats.kstest(0.95 * whitened, stats.norm.cdf).pvalue < 1e-5


def test_one_at_a_time_equals_all_at_once():
    points = np.random.default_rng(0).normal(size=(30, 2))
    values = np.sin(points[:, 0])
    together = open_process(random_state=1).release(points, values).value
    session = open_process(random_state=1)
    singly = [session.release(p[None], v[None]).value[0] for p, v in zip(points, values, strict=True)]
    np.testing.assert_array_equal(together, singly)


def test_same_question_same_answer_even_from_another_value():
    session = open_process()
    first = session.release([[1.0]], [5.0]).value
    assert session.release([[1.0]], [7.0]).value == first
    assert session.release([[0.0], [-0.0], [1.0]], [1.0, 1.0, 5.0]).value[2] == first
    assert len(session) == 2


def factor_of(session: GaussianProcess) -> np.ndarray:
    return session._process_noise._factor.matrix


def law_of(session: GaussianProcess) -> ProcessLaw:
    return session._process_noise.law


def mahalanobis(session: GaussianProcess, shift: np.ndarray) -> float:
    """The exact length of a shift under the noise actually used, from the session's own factor."""
    return float(np.linalg.norm(np.linalg.solve(factor_of(session), shift)) / law_of(session).tau)


def test_no_function_in_the_ball_shifts_further_than_promised():
    """The worst neighbour: the kernel section that is largest in the session's own metric, with worst-case errors."""
    points = np.random.default_rng(1).uniform(-1, 1, size=(150, 1))  # nearly singular: neighbours almost coincide
    session = open_process()
    session.release(points, np.zeros(150))
    promised = session.guarantee.curve.shift
    gram = rbf(points, points)
    generator = np.random.default_rng(2)
    worst = 0.0
    for _ in range(200):
        weights = generator.normal(size=150)
        norm = math.sqrt(max(weights @ gram @ weights, 1e-300))
        errors = 1e-13 * generator.choice([-1, 1], 150) * 2
        worst = max(worst, mahalanobis(session, 0.05 * gram @ weights / norm + errors))
    single = max(mahalanobis(session, 0.05 * gram[:, j]) for j in range(150))
    assert worst <= promised
    assert 0.95 * promised < single <= promised  # tight: 5 % less noise would break it
    assert GaussianShift(promised).delta(1.0) <= 1e-6


def test_the_factor_dominates_the_kernel():
    points = np.random.default_rng(3).normal(size=(120, 2)) * 0.2
    session = open_process()
    session.release(points, np.zeros(120))
    factor = factor_of(session)
    gap = factor @ factor.T - rbf(points, points)
    assert np.linalg.eigvalsh(gap).min() > 0.4 * law_of(session).jitter


def test_the_cap_is_kept():
    session = open_process(max_points=3)
    session.release(np.arange(3.0)[:, None], np.zeros(3))
    with pytest.raises(StateError, match="cap of 3"):
        session.release([[9.0]], [0.0])
    session.release(np.arange(3.0)[:, None], np.zeros(3))


def test_an_indefinite_kernel_is_noticed():
    session = GaussianProcess(
        lambda a, b: np.where(a == b.T, 1.0, -0.9), sensitivity=0.1, epsilon=1.0, delta=1e-6, max_points=10
    )
    with pytest.raises(InvalidInput, match="positive semi-definite"):
        session.release(np.arange(5.0)[:, None], np.zeros(5))


@pytest.mark.parametrize(
    ("points", "values", "text"),
    [
        ([[math.nan]], [0.0], "NaN"),
        ([[1.0]], [math.nan], "NaN"),
        ([1.0], [1.0], "shape"),
        ([[1.0]], [1.0, 2.0], "shape"),
        ([["a"]], [1.0], "numbers"),
        (np.zeros((0, 1)), [], "shape"),
    ],
)
def test_bad_points(points, values, text):
    with pytest.raises(InvalidInput, match=text):
        open_process().release(points, values)


def test_points_must_keep_their_number_of_columns_and_the_kernel_its_bound():
    session = open_process()
    session.release([[1.0]], [0.0])
    with pytest.raises(InvalidInput, match="columns"):
        session.release([[1.0, 2.0]], [0.0])
    with pytest.raises(InvalidInput, match="outside"):
        GaussianProcess(lambda a, b: 2.0 * rbf(a, b), sensitivity=1, epsilon=1, delta=1e-6, max_points=2).release(
            [[1.0]], [0.0]
        )
    with pytest.raises(InvalidInput, match="delta > 0"):
        open_process(delta=0.0)


def test_exponential_choices():
    with pytest.raises(InvalidInput, match="scores"):
        epsilearn.exponential([], sensitivity=1, epsilon=1)
    with pytest.raises(InvalidInput, match="scores"):
        epsilearn.exponential([[1.0]], sensitivity=1, epsilon=1)
    with pytest.raises(InvalidInput, match="NaN"):
        epsilearn.exponential([1.0, math.nan], sensitivity=1, epsilon=1)
    assert epsilearn.exponential([1.0], sensitivity=1, epsilon=1).value == 0
    for rounded in ([2**60 + 129, 2**60 + 127], np.array([2**60 + 129, 2**60 + 127]), [2**60, 0.5]):
        with pytest.raises(InvalidInput, match="rounded"):
            epsilearn.exponential(rounded, sensitivity=1, epsilon=1)


# --- The factor, in blocks ---


def kernel_values(points: np.ndarray, known: int, upto: int) -> tuple[np.ndarray, np.ndarray]:
    values = np.exp(-((points[:upto, None] - points[None, :upto]) ** 2))
    return values[:known, known:], values[known:, known:]


def grown(points: np.ndarray, sizes: list[int]) -> _Factor:
    factor = _Factor(BLOCK_LAW)
    for size in sizes:
        factor.append(*kernel_values(points, factor.count, factor.count + size))
    return factor


BLOCK_LAW = ProcessLaw.planned(Fraction(1, 20), 1.0, 1e-6, cap=300, bound=1.0, kernel_error=1e-14, value_error=1e-13)
# Points of which many nearly coincide: without the jitter their matrix has no factor.
CROWDED = np.concatenate([np.linspace(0, 3, 60), np.linspace(1, 1 + 1e-9, 60)])


@pytest.mark.parametrize("sizes", [[1] * 120, [120], [7, 50, 1, 62], [60, 60]])
def test_a_factor_is_certified_however_it_is_grown(sizes):
    """Its residual, in exact arithmetic, is below the bound it keeps; and L L' covers the kernel."""
    factor = grown(CROWDED, sizes)
    exact = [[Fraction(float(v)) for v in row] for row in factor.matrix]
    wanted = np.exp(-((CROWDED[:, None] - CROWDED[None, :]) ** 2)) + BLOCK_LAW.jitter * np.eye(120)
    total = Fraction(0)
    for i in range(0, 120, 5):  # a fifth of the rows, all of their entries
        for j in range(120):
            product = sum((a * b for a, b in zip(exact[i], exact[j], strict=True) if a and b), Fraction(0))
            total += (product - Fraction(float(wanted[i, j]))) ** 2
    assert math.sqrt(total) <= factor._residual
    covered = factor.matrix @ factor.matrix.T - (wanted - BLOCK_LAW.jitter * np.eye(120))
    assert np.linalg.eigvalsh(covered).min() >= BLOCK_LAW.jitter / 2 * (1 - 1e-6)


def test_rows_are_taken_over_in_other_blocks_than_they_were_made_in():
    made = grown(CROWDED, [7, 50, 1, 62])
    for sizes in ([120], [30, 90], [1] * 120):
        factor = _Factor(BLOCK_LAW)
        for size in sizes:
            start, end = factor.count, factor.count + size
            assert factor.take_over(made.matrix[start:end, :end], *kernel_values(CROWDED, start, end))
        np.testing.assert_array_equal(factor.matrix, made.matrix)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (50, 3), (119, 119), (119, 0)])
def test_rows_that_are_not_the_kernels_are_not_taken_over(row, column):
    made = grown(CROWDED, [120]).matrix.copy()
    made[row, column] -= 1e-9
    factor = _Factor(BLOCK_LAW)
    assert not factor.take_over(made, *kernel_values(CROWDED, 0, 120))
    assert factor.count == 0
