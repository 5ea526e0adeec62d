"""Sessions on disk: what was answered stays answered, whoever is interrupted, killed or working beside."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from epsilearn import Guarantee, Ledger, session_file
from epsilearn.accounting import GaussianShift
from epsilearn.errors import StateError
from epsilearn.kernel import RBF, GaussianProcessRelease
from epsilearn.mechanisms.session import Journal, JournalEntry, MemoryJournal, Process, ProcessLaw
from epsilearn.noise.bits import OperatingSystemBits
from epsilearn.noise.correlated import Normals
from epsilearn.session_file import SessionFile

LAW = ProcessLaw.planned(Fraction(1, 20), 1.0, 1e-6, cap=200, bound=1.0, kernel_error=1e-14, value_error=1e-13)
PROMISE = Guarantee(1.0, 1e-6, mechanism="a session", curve=GaussianShift(LAW.shift))
RECORDS = [b"secret-4711", b"secret-4712"]


class FineLaw(ProcessLaw):
    """The same noise, rounded to a grid so fine that 64 random digits of a normal do not decide it."""

    @property
    def grid(self) -> int:
        return -200


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.db"


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, path: Path) -> Journal:
    return MemoryJournal() if request.param == "memory" else SessionFile(path)


def entry(name: str, answer: float = 0.5) -> JournalEntry:
    return JournalEntry(name.encode(), answer, b"detail of " + name.encode())


def contents(journal: Journal) -> tuple[list[JournalEntry], list[tuple[int, int]], int]:
    with journal.writing():
        return list(journal.entries(0)), list(journal.digits()), journal.changes


# --- What a journal does ---


def test_a_new_journal_is_empty(journal):
    assert contents(journal)[:2] == ([], [])


def test_what_is_added_comes_back_in_order(journal):
    answers = [0.1, -1e-300, 3.0, float(np.nextafter(1.0, 2.0))]
    entries = [entry(name, answer) for name, answer in zip("dbca", answers, strict=True)]
    # Leading zeros are digits too; and there may be more than any integer of a database holds.
    digits = [(0, 64), (2**64 - 1, 64), (1, 64), (2**200 + 1, 256)]
    with journal.writing():
        journal.add(entries[:1], {0: digits[0]})
    with journal.writing():
        journal.add(entries[1:3], {1: digits[1], 2: digits[2]})
        journal.add(entries[3:], {3: digits[3]})
    assert contents(journal)[:2] == (entries, digits)
    with journal.writing():
        assert list(journal.entries(2)) == entries[2:]
        assert list(journal.entries(4)) == []


def test_finer_digits_take_the_place_of_coarser_ones(journal):
    with journal.writing():
        journal.add([entry("a"), entry("b")], {0: (5, 64), 1: (6, 64)})
    with journal.writing():
        journal.add([entry("c")], {0: (5 << 64 | 9, 128), 2: (7, 64)})
    assert contents(journal)[1] == [(5 << 64 | 9, 128), (6, 64), (7, 64)]


def test_whoever_looks_again_can_tell_that_something_was_added(journal):
    seen = [contents(journal)[2]]
    for name in "abc":
        with journal.writing():
            journal.add([entry(name)], {})
        seen.append(contents(journal)[2])
    with journal.writing():
        journal.add([], {0: (5, 64)})
    seen.append(contents(journal)[2])
    assert len(set(seen)) == 5
    assert contents(journal)[2] == seen[-1]


def test_another_handle_sees_the_same_file(path):
    first, second = SessionFile(path), SessionFile(path)
    with first.writing():
        first.add([entry("a")], {0: (5, 64)})
    assert contents(second) == contents(first)
    with second.writing():
        second.add([entry("b")], {1: (6, 64)})
    assert contents(first) == contents(second) == contents(SessionFile(path))
    assert [e.code for e in contents(first)[0]] == [b"a", b"b"]


@pytest.mark.parametrize("trouble", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_stands_of_a_block_that_ends_badly(path, trouble):
    file = SessionFile(path)
    with file.writing():
        file.add([entry("a")], {0: (5, 64)})
    before = contents(file)

    def fail() -> None:
        with file.writing():
            file.begin("a plan", RECORDS, PROMISE)
            file.write("weights", b"1")
            file.add([entry("b")], {0: (5 << 64, 128), 1: (6, 64)})
            assert len(file.entries(0)) == 2
            raise trouble

    with pytest.raises(trouble):
        fail()
    for handle in (file, SessionFile(path)):
        assert contents(handle) == before
        with handle.writing():
            assert handle.read("weights") is None
            assert handle.resume("a plan", RECORDS) is None


class InterruptedAfterLocking(sqlite3.Connection):
    """Ctrl-C while SQLite waits for another process: Python only sees it once the lock has been given."""

    def execute(self, statement, *arguments):
        done = super().execute(statement, *arguments)
        if statement.startswith("BEGIN"):
            raise KeyboardInterrupt
        return done


def test_an_interruption_while_waiting_for_the_lock_gives_it_back(path):
    file, other = SessionFile(path), SessionFile(path)
    usual = file._file
    file._file = InterruptedAfterLocking(path, isolation_level=None)
    with pytest.raises(KeyboardInterrupt), file.writing():
        pass
    other._file.execute("PRAGMA busy_timeout = 50")
    with other.writing():
        other.add([entry("a")], {0: (5, 64)})
    usual.close()


def test_one_writes_at_a_time(path, monkeypatch):
    """Whoever does not get the lock in time is told so, and a lock is no longer than its block."""
    monkeypatch.setattr(session_file, "_PATIENCE", 0.05)
    first, second = SessionFile(path), SessionFile(path)
    assert contents(first) == contents(second)  # from now on both know that the tables are there
    with first.writing():
        # Nothing has been read or written yet: whoever reads first must already be alone.
        with pytest.raises(StateError, match="locked"), second.writing():
            pass
        first.add([entry("a")], {})
    with second.writing():
        second.add([entry("b")], {})
    assert [e.code for e in contents(first)[0]] == [b"a", b"b"]


# --- The file itself ---


def test_only_its_owner_can_read_the_file(path):
    before = os.umask(0)
    try:
        file = SessionFile(path)
        with file.writing():
            file.add([entry("a")], {0: (5, 64)})
        with file.writing():
            file.add([entry("b")], {1: (6, 64)})
            # SQLite's own journal, beside the file, holds what is private too.
            found = {place.name: stat.S_IMODE(place.stat().st_mode) for place in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert len(found) == 2
    assert set(found.values()) == {0o600}


def refusal(action: Callable[[], object]) -> str:
    """The text of the StateError, which quotes nothing private, nor carries along what does."""
    with pytest.raises(StateError) as caught:
        action()
    text = str(caught.value)
    assert "4711" not in text
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return text


def open_and_write(path: Path) -> None:
    with SessionFile(path).writing():
        pass


def test_a_file_that_is_no_database(path):
    path.write_bytes(b"name,diagnosis\nsecret-4711,flu\n" * 100)
    before = path.read_bytes()
    assert "session.db cannot be used as a session" in refusal(lambda: open_and_write(path))
    assert path.read_bytes() == before


def test_a_database_of_something_else(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE session (patient TEXT)")
        other.execute("INSERT INTO session VALUES ('secret-4711')")
    other.close()

    def resume() -> None:
        file = SessionFile(path)
        with file.writing():
            file.resume("a plan", RECORDS)

    assert "no session file" in refusal(resume)


def test_a_missing_folder_or_a_folder(tmp_path):
    assert "missing its folder" in refusal(lambda: SessionFile(tmp_path / "nowhere" / "session.db"))
    assert not (tmp_path / "nowhere").exists()
    refusal(lambda: SessionFile(tmp_path))


def as_nobody(action: Callable[[], object]) -> str:
    """What the action's error says, in a child without privileges."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            action()
            os.write(write_end, b"done")
        except BaseException as error:
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as said:
        return said.read().decode()


def test_a_read_only_file():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.db"
        begun(path).close()
        path.parent.chmod(0o777)
        path.chmod(0o444)
        before = path.read_bytes()
        said = as_nobody(lambda: open_and_write(path))
        assert said.startswith("StateError: session.db cannot be used as a session")
        assert "read-only" in said
        path.chmod(0o666)
        assert as_nobody(lambda: open_and_write(path)) == "done"
        assert path.read_bytes() == before


def test_a_full_disk_answers_nothing(path):
    """A limit on the file's pages stands in for a full disk: SQLite gives the same error."""
    file = SessionFile(path)
    process = Process(LAW, across, OperatingSystemBits(), file)
    ask(process, [0.0])
    before = contents(file)
    pages = file._file.execute("PRAGMA page_count").fetchone()[0]
    file._file.execute(f"PRAGMA max_page_count = {pages}")
    assert "full" in refusal(lambda: ask(process, np.linspace(1, 9, 150)))
    assert contents(file) == contents(SessionFile(path)) == before
    file._file.execute(f"PRAGMA max_page_count = {1000 * pages}")
    ask(process, np.linspace(1, 9, 150))
    check_noise(process, file)


# --- Whose session it is ---


def begun(path: Path, plan: str = "a plan", records: list[bytes] = RECORDS) -> SessionFile:
    file = SessionFile(path)
    with file.writing():
        file.begin(plan, records, PROMISE)
    return file


def resumed(path: Path, plan: str = "a plan", records: list[bytes] = RECORDS) -> Guarantee | None:
    file = SessionFile(path)
    try:
        with file.writing():
            return file.resume(plan, records)
    finally:
        file.close()


def test_a_new_file_has_no_session(path):
    assert resumed(path) is None
    assert resumed(path) is None  # and looking does not begin one


def test_a_session_goes_on_with_its_promise(path):
    begun(path).close()
    assert resumed(path).to_json() == PROMISE.to_json()
    assert resumed(path, records=iter(RECORDS)) == PROMISE


def test_a_session_with_other_settings_is_refused(path):
    begun(path)
    assert "other settings" in refusal(lambda: resumed(path, plan="a plan, cap = 4711"))


@pytest.mark.parametrize(
    "records",
    [
        [b"secret-4711", b"secret-4713"],  # one byte
        [b"secret-4711s", b"ecret-4712"],  # the same bytes, split elsewhere
        [b"secret-4711secret-4712"],
        [b"secret-4711", b"secret-4712", b""],
        [b"secret-4712", b"secret-4711"],
        [b"secret-4711"],
        [],
    ],
)
def test_a_session_about_other_records_is_refused(path, records):
    begun(path)
    assert "other records" in refusal(lambda: resumed(path, records=records))
    assert resumed(path) == PROMISE


def test_a_session_of_another_version_is_refused(path, monkeypatch):
    monkeypatch.setattr(session_file, "_VERSION", "0")
    begun(path).close()
    monkeypatch.undo()
    assert "another version" in refusal(lambda: resumed(path))


def test_the_file_does_not_say_what_the_records_are(path, tmp_path):
    """Not even to whoever can guess them, without the salt; and two sessions do not show that they share theirs."""
    first, second = begun(path), begun(tmp_path / "second.db")
    digests = []
    for file in (first, second):
        with file.writing():
            digests.append(file.read("records"))
    assert digests[0] != digests[1]
    assert b"secret" not in path.read_bytes()


# --- Answers over a journal ---


def rbf(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.exp(-((first[:, None] - second[None, :]) ** 2))


def across(known: Sequence[bytes], new: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    asked = np.frombuffer(b"".join(new))
    return rbf(np.frombuffer(b"".join(known)), asked), rbf(asked, asked)


def exactly(points: np.ndarray) -> np.ndarray:
    return np.sin(3 * points)


def codes_of(points: np.ndarray) -> list[bytes]:
    return [np.float64(point).tobytes() for point in points]


def ask(process: Process, points: np.ndarray) -> np.ndarray:
    points = np.asarray(points, float)
    return process.answers(codes_of(points), lambda new: exactly(points[new]))


def check_noise(process: Process, journal: Journal, exact: np.ndarray | None = None) -> None:
    """Every answer written down is the exact value plus the factor's row times the normals written down."""
    entries, digits, _ = contents(journal)
    codes = [e.code for e in entries]
    assert len(digits) == len(codes) == len(set(codes))
    # A known point is asked, so that the process knows all that others have written.
    if codes:
        process.answers(codes, lambda new: pytest.fail("a known point was computed again"))
    assert process._codes == codes
    assert process._normals.digits() == digits
    normals = Normals(OperatingSystemBits())
    normals.restore(digits)
    exact = exactly(np.frombuffer(b"".join(codes))) if exact is None else exact
    factor, law = process._factor.matrix, process.law
    for number, (value, found) in enumerate(zip(exact, entries, strict=True)):
        assert found.answer == normals.release(float(value), factor[number, : number + 1], law.tau, law.grid)


def test_every_answer_is_the_value_plus_noise_that_is_written_down(journal):
    process = Process(LAW, across, OperatingSystemBits(), journal)
    first = ask(process, [0.0, 0.5, 0.0])
    assert first[0] == first[2]
    second = ask(process, [3.0, 0.5, -1.0])
    assert second[1] == first[1]
    assert len(process) == 4
    check_noise(process, journal)
    assert [e.answer for e in contents(journal)[0]] == [*first[:2], second[0], second[2]]


def test_two_workers_on_one_file_agree(path):
    points = np.random.default_rng(0).uniform(-2, 2, 40)
    files = [SessionFile(path), SessionFile(path)]
    workers = [Process(LAW, across, OperatingSystemBits(), file) for file in files]
    answered: dict[float, float] = {}
    chance = random.Random(1)
    for _ in range(60):
        batch = chance.sample(list(points), chance.randint(1, 4))
        worker = chance.choice(workers)
        for point, answer in zip(batch, ask(worker, batch), strict=True):
            assert answered.setdefault(point, answer) == answer
        # It left only after it had been written where others see it.
        assert {e.code for e in contents(SessionFile(path))[0]} == set(codes_of(answered))
    assert len(answered) > 35
    ends = [ask(worker, points) for worker in workers]
    np.testing.assert_array_equal(*ends)
    np.testing.assert_array_equal(*(worker._factor.matrix for worker in workers))
    for worker, file in zip(workers, files, strict=True):
        assert len(worker) == 40
        check_noise(worker, file)
        order = np.frombuffer(b"".join(worker._codes))
        gap = worker._factor.matrix @ worker._factor.matrix.T - rbf(order, order)
        assert np.linalg.eigvalsh(gap).min() > 0.4 * LAW.jitter


def test_the_cap_holds_for_all_workers_together(path):
    law = ProcessLaw(**{**vars(LAW), "cap": 5})
    first, second = (Process(law, across, OperatingSystemBits(), SessionFile(path)) for _ in range(2))
    ask(first, [0.0, 1.0, 2.0])
    with pytest.raises(StateError, match="cap of 5"):
        ask(second, [3.0, 4.0, 5.0])
    ask(second, [3.0, 4.0])
    with pytest.raises(StateError, match="cap of 5"):
        ask(first, [5.0])
    np.testing.assert_array_equal(ask(first, np.arange(5)), ask(second, np.arange(5)))


def test_threads_share_one_session(path):
    points = np.linspace(-1, 1, 24)
    file = SessionFile(path)
    process = Process(LAW, across, OperatingSystemBits(), file)
    found: list[np.ndarray] = []

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(24)
        answers = np.empty(24)
        for batch in np.split(order, 8):
            answers[batch] = ask(process, points[batch])
        found.append(answers)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for answers in found:
        np.testing.assert_array_equal(answers, found[0])
    check_noise(process, file)


@contextmanager
def stopped(journal: Journal, where: str, trouble: BaseException, monkeypatch) -> Iterator[Callable]:
    """What asks two new points and is stopped halfway, as if by a signal or a failing disk."""

    def stop(*_):
        raise trouble

    def values(points: np.ndarray):
        return stop if where == "values" else lambda new: exactly(points[new])

    def added(*arguments):
        if where == "after adding":
            adding(*arguments)
        raise trouble

    adding = journal.add
    drawn = []

    def grow(normals: Normals, count: int) -> None:
        growing(normals, count)
        drawn.append(count)
        if len(drawn) == 2:
            raise trouble

    growing = Normals.grow
    with monkeypatch.context() as patch:
        if "adding" in where:
            patch.setattr(journal, "add", added)
        if where == "drawing":
            patch.setattr(Normals, "grow", grow)
        yield values


@pytest.mark.parametrize("trouble", [RuntimeError("no"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("where", ["values", "drawing", "before adding", "after adding"])
def test_what_was_drawn_but_not_written_down_is_never_used(journal, where, trouble, monkeypatch):
    process = Process(LAW, across, OperatingSystemBits(), journal)
    earlier = ask(process, [0.0, 0.5])
    before = contents(journal)
    new = np.array([1.0, 0.2])
    with (
        stopped(journal, where, trouble, monkeypatch) as values,
        pytest.raises(type(trouble)),
    ):
        process.answers(codes_of(new), values(new))
    if isinstance(journal, SessionFile) or where != "after adding":
        assert contents(journal) == before
    np.testing.assert_array_equal(ask(process, [0.0, 0.5]), earlier)
    after = ask(process, [*new, 2.0])
    known = {e.code: e.answer for e in contents(journal)[0]}
    assert [known[code] for code in codes_of([*new, 2.0])] == list(after)
    check_noise(process, journal)


def test_an_answer_whose_writing_failed_does_not_leave(path):
    """The disk gives way at the very end, when everything has been drawn and computed."""

    class FailingCommit(sqlite3.Connection):
        def execute(self, statement, *arguments):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error at secret-4711")
            return super().execute(statement, *arguments)

    file = SessionFile(path)
    process = Process(LAW, across, OperatingSystemBits(), file)
    ask(process, [0.0])
    before = contents(file)
    usual, file._file = file._file, FailingCommit(path, isolation_level=None)
    assert "Nothing was answered" in refusal(lambda: ask(process, [1.0, 2.0]))
    file._file.close()
    file._file = usual
    assert contents(file) == before
    ask(process, [2.0, 1.0])
    check_noise(process, file)


def test_an_interruption_right_after_the_writing_loses_nothing(path):
    class InterruptedAfterCommit(sqlite3.Connection):
        def execute(self, statement, *arguments):
            done = super().execute(statement, *arguments)
            if statement == "COMMIT":
                raise KeyboardInterrupt
            return done

    file = SessionFile(path)
    process = Process(LAW, across, OperatingSystemBits(), file)
    usual, file._file = file._file, InterruptedAfterCommit(path, isolation_level=None)
    with pytest.raises(KeyboardInterrupt):
        ask(process, [1.0, 2.0])
    file._file.close()
    file._file = usual
    written = [e.answer for e in contents(file)[0]]
    assert list(ask(process, [1.0, 2.0])) == written
    check_noise(process, file)


@pytest.mark.parametrize("change", [1 + 1e-12, 1.1])
def test_a_session_refuses_another_kernel(path, change):
    """The noise hides one function; values of another kernel would be another, by however little."""
    first = Process(LAW, across, OperatingSystemBits(), SessionFile(path))
    answers = ask(first, [0.0, 0.5, 1.0])
    before = contents(SessionFile(path))

    def other(known: Sequence[bytes], new: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        values, own = across(known, new)
        return values**change, own**change

    second = Process(LAW, other, OperatingSystemBits(), SessionFile(path))
    for points in ([0.0], [7.0]):
        assert "the same kernel" in refusal(lambda points=points: ask(second, points))
    assert contents(SessionFile(path)) == before
    again = Process(LAW, across, OperatingSystemBits(), SessionFile(path))
    np.testing.assert_array_equal(ask(again, [0.0, 0.5, 1.0]), answers)


def test_digits_drawn_later_are_written_down_and_used_again(journal):
    """A finer question needs more digits of normals that are there already; they are part of the noise from then on."""
    coarse = Process(LAW, across, OperatingSystemBits(), journal)
    first = ask(coarse, [0.0, 0.5, 1.0])
    before = contents(journal)[1]
    assert [known for _, known in before] == [64] * 3
    fine = Process(FineLaw(**vars(LAW)), across, OperatingSystemBits(), journal)
    ask(fine, [0.25])
    after = contents(journal)[1]
    assert all(known > 64 for _, known in after)
    assert fine._normals.digits() == after
    # Finer, not different.
    assert [prefix >> (known - 64) for prefix, known in after[:3]] == [prefix for prefix, _ in before]
    # Others go on with the same digits, those after a restart too.
    np.testing.assert_array_equal(ask(coarse, [0.0, 0.5, 1.0]), first)
    assert coarse._normals.digits() == after
    again = Process(FineLaw(**vars(LAW)), across, OperatingSystemBits(), journal)
    ask(again, [0.75])
    longest = contents(journal)[1]
    assert [a[0] >> (a[1] - b[1]) for a, b in zip(longest, after, strict=False)] == [prefix for prefix, _ in after]
    ask(coarse, [2.0])
    assert coarse._normals.digits()[:-1] == longest
    assert contents(journal)[1] == coarse._normals.digits()


def test_fine_answers_rest_on_what_is_written_down(path):
    """All answers on a fine grid, by two processes in turn: each is the sum of the digits in the file."""
    law = FineLaw(**vars(LAW))
    files = [SessionFile(path), SessionFile(path)]
    workers = [Process(law, across, OperatingSystemBits(), file) for file in files]
    for number in range(8):
        ask(workers[number % 2], [number / 4])
    for worker, file in zip(workers, files, strict=True):
        check_noise(worker, file)


# --- Real processes, killed ---

POINTS = 120
CHILD = f"""
import sys
import numpy as np
from epsilearn import Ledger
from epsilearn.kernel import RBF, GaussianProcessRelease

state, ledger, first, last, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
generator = np.random.default_rng(0)
X = generator.normal(size=(60, 2))
Z = generator.normal(size=({POINTS}, 2))
print("ready", flush=True)
if not sys.stdin.readline():
    sys.exit("nobody is there any more")
model = GaussianProcessRelease(
    kernel=RBF(0.5), classes=[False, True], max_points={POINTS}, state=state, ledger=Ledger(ledger)
).fit(X, X[:, 0] > 0)
print("open", flush=True)
order = first + np.random.default_rng(seed).permutation(last - first)
while len(order):
    batch, order = order[:1 + len(order) % 3], order[1 + len(order) % 3:]
    answers = model.decision_function(Z[batch])
    print("".join(f"{{point}} {{answer!r}}\\n" for point, answer in zip(batch, answers.tolist())), end="", flush=True)
print("done", flush=True)
sys.stdin.read()  # until it is dismissed, or killed
"""


class Worker:
    """A child that opens the session and asks its points in an order of its own, from when it is told to go."""

    def __init__(self, state: Path, ledger: Path, first: int = 0, last: int = POINTS, seed: int = 0) -> None:
        command = [sys.executable, "-c", CHILD, str(state), str(ledger), str(first), str(last), str(seed)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.child = subprocess.Popen(command, **pipes)
        self.lines: list[str] = []
        # A child that hangs would hang the test.
        self._guard = threading.Timer(900, self.child.kill)
        self._guard.daemon = True
        self._guard.start()

    def listen(self, count: int = 1) -> str:
        """Wait until it has said so many lines more; the last of them."""
        for _ in range(count):
            self.lines.append(self.child.stdout.readline())
            if not self.lines[-1]:
                pytest.fail("the child ended by itself: " + self.child.stderr.read())
        return self.lines[-1].strip()

    def go(self) -> None:
        self.child.stdin.write("go\n")
        self.child.stdin.flush()

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.finish(-signal.SIGKILL)

    def finish(self, code: int = 0) -> None:
        """Dismiss it, once it has said all it had to say."""
        self.child.stdin.close()
        self.lines += self.child.stdout.readlines()
        errors = self.child.stderr.read()
        assert self.child.wait() == code, errors
        self._guard.cancel()
        self.child.stdout.close()
        self.child.stderr.close()

    @property
    def answers(self) -> list[tuple[int, float]]:
        parts = [line.split() for line in self.lines if line.endswith("\n") and " " in line]
        return [(int(point), float(answer)) for point, answer in parts]


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the children learn from, and what they ask."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 2))
    return X, X[:, 0] > 0, generator.normal(size=(POINTS, 2))


def has_session(state: Path) -> bool:
    if not state.exists():
        return False
    file = SessionFile(state)
    try:
        with file.writing():
            return file.read("version") is not None
    finally:
        file.close()


def check_answers(answers: list[tuple[int, float]], state: Path, ledger: Ledger) -> None:
    """One answer a point, each in the file, all by one function with one noise; and asking again costs nothing."""
    X, y, Z = data()
    file = SessionFile(state)
    written = {e.code: e.answer for e in contents(file)[0]}
    codes = RBF(0.5).encode(Z)
    found: dict[int, float] = {}
    for point, answer in answers:
        assert found.setdefault(point, answer) == answer
        assert written[codes[point]] == answer
    assert set(found) == set(range(POINTS))
    assert set(written) == set(codes)
    debits = ledger.balance().debits
    model = GaussianProcessRelease(
        kernel=RBF(0.5), classes=[False, True], max_points=POINTS, state=state, ledger=ledger
    ).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(Z), [found[point] for point in range(POINTS)])
    assert ledger.balance().debits == debits
    order = np.array([codes.index(e.code) for e in contents(file)[0]])
    check_noise(model._session_, file, model._minimum_.values(Z)[order])
    debited = {debit["entry"]: debit["head"] for debit in ledger.history()}
    assert debited[model.guarantee_.ledger.entry] == model.guarantee_.ledger.head
    ledger.verify()


@pytest.mark.slow
def test_a_session_survives_any_number_of_kills(tmp_path):
    state, book = tmp_path / "session.db", tmp_path / "budget.db"
    ledger = Ledger.create(book, dataset="patients", epsilon=20.0, delta=1e-4)
    chance = random.Random(4)
    answers: list[tuple[int, float]] = []
    moments = ["loading", "fitting", "fitting", "fitting", "answering", "loading", *["answering"] * 4]
    killed_open = 0
    following = Worker(state, book, seed=0)
    for number, moment in enumerate(moments):
        # The next child loads its libraries while this one is at work.
        worker, following = following, Worker(state, book, seed=number + 1)
        before, debits = has_session(state), ledger.balance().debits
        if moment == "loading":
            time.sleep(chance.uniform(0, 0.5))
        else:
            assert worker.listen() == "ready"
            worker.go()
        if moment == "answering":
            assert worker.listen() == "open"
            worker.listen(chance.randint(1, 12))
            time.sleep(chance.uniform(0, 0.02))
        elif moment == "fitting":
            time.sleep(chance.uniform(0, 0.4))
        worker.kill()
        killed_open += "open\n" in worker.lines
        answers += worker.answers
        assert not (before and ledger.balance().debits > debits)
    assert killed_open >= 5
    assert len(answers) >= 6
    before, debits = has_session(state), ledger.balance().debits
    assert before
    assert following.listen() == "ready"
    following.go()
    following.finish()
    assert following.lines[-1] == "done\n"
    assert 1 <= debits == ledger.balance().debits
    check_answers(answers + following.answers, state, ledger)


def test_two_processes_at_once_give_one_answer(tmp_path):
    """They open the session at the same moment, too: one of them pays, the other goes on with it."""
    state, book = tmp_path / "session.db", tmp_path / "budget.db"
    ledger = Ledger.create(book, dataset="patients", epsilon=20.0, delta=1e-4)
    third = POINTS // 3
    workers = [Worker(state, book, 0, 2 * third, seed=1), Worker(state, book, third, POINTS, seed=2)]
    assert [worker.listen() for worker in workers] == ["ready", "ready"]
    for worker in workers:
        worker.go()
    for worker in workers:
        worker.finish()
        assert len(worker.answers) == 2 * third
    assert ledger.balance().debits == 1
    check_answers([*workers[0].answers, *workers[1].answers], state, ledger)
