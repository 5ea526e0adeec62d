"""The ledger: one suite for SQLite and a real PostgreSQL."""

from __future__ import annotations

import copy
import os
import pickle
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

import epsilearn
from epsilearn import Guarantee, Ledger
from epsilearn.errors import BudgetExceeded, InvalidInput, LedgerError, TamperedLedger
from epsilearn.ledger import LEAST_EPSILON

SPEND = Guarantee.pure(0.1)


@pytest.fixture
def ledger(ledger_url: str) -> Ledger:
    return Ledger.create(ledger_url, dataset="patients", epsilon=1.0)


def test_a_balance_can_be_foretold(ledger_url):
    """What a debit would leave, or its refusal, without debiting."""
    ledger = Ledger.create(ledger_url, dataset="a", epsilon=1.0)
    foretold = ledger.balance(after=Guarantee.pure(0.4))
    assert ledger.balance().debits == 0
    ledger.debit(Guarantee.pure(0.4))
    found = ledger.balance()
    assert (found.spent_epsilon, found.remaining_epsilon, found.used, found.debits) == (
        foretold.spent_epsilon, foretold.remaining_epsilon, foretold.used, foretold.debits,
    )  # fmt: skip
    with pytest.raises(BudgetExceeded):
        ledger.balance(after=Guarantee.pure(0.7))
    assert [entry["used"] for entry in ledger.history()] == [0.4]


def edit(ledger: Ledger, *statements: str) -> None:
    """What somebody with access to the database could do, triggers taken out of the way first."""
    with ledger._store._database.transaction(write=True) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS epsilearn_no_UPDATE")
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS epsilearn_no_DELETE")
        else:
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS epsilearn_append_only ON epsilearn_entry")
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_ten_tenths_fit_and_the_eleventh_is_refused(ledger):
    for _ in range(10):
        ledger.debit(SPEND)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.debit(SPEND)
    text = str(caught.value)
    assert "'patients'" in text
    assert "requested epsilon 0.1" in text
    assert "spent epsilon 1 of epsilon 1" in text
    assert "remaining epsilon 0" in text
    assert ledger.balance().spent_epsilon == 1.0


def test_a_refusal_for_delta_alone_says_which_delta_would_do(ledger_url):
    ledger = Ledger.create(ledger_url, dataset="patients", epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded, match=r"leaves delta = 2\.5e-07 .* rule='pure'"):
        ledger.debit(Guarantee.from_budget(1.0, 1e-6))
    ledger.debit(Guarantee.from_budget(1.0, 2.5e-7))
    with pytest.raises(BudgetExceeded) as caught:
        ledger.debit(Guarantee.from_budget(1.0, 1e-6))
    assert str(caught.value).endswith("nothing was spent")


def test_every_entry_says_what_when_why_and_who(ledger_url):
    ledger = Ledger.create(ledger_url, dataset="patients", epsilon=1.0, who="ada")
    with ledger.spend(SPEND, "a first look"):
        pass
    (entry,) = ledger.history()
    assert entry["who"] == "ada"
    assert entry["purpose"] == "a first look"
    assert Guarantee.from_dict(entry["guarantee"]) == SPEND
    assert entry["time"].endswith("+00:00")
    assert entry["status"] == "delivered"


def test_a_failed_release_is_spent_not_delivered(ledger):
    with pytest.raises(ZeroDivisionError), ledger.spend(SPEND):
        raise ZeroDivisionError
    (entry,) = ledger.history()
    assert entry["status"] == "spent, not delivered"
    assert ledger.balance().remaining_epsilon == 0.9


def test_stamps_are_heads_that_stay_in_the_chain(ledger):
    stamps = [ledger.debit(SPEND).ledger for _ in range(3)]
    for stamp in stamps:
        assert ledger.verify(stamp.head) == stamps[-1].head
    assert stamps[0].dataset == "patients"
    with pytest.raises(TamperedLedger, match="rolled back or edited"):
        ledger.verify("0" * 64)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE epsilearn_entry SET purpose = 'other' WHERE number = 2", "entry 2 of 'patients' was edited"),
        ("UPDATE epsilearn_entry SET who = 'other' WHERE number = 1", "entry 1"),
        ("UPDATE epsilearn_entry SET time = '2020-01-01' WHERE number = 3", "entry 3"),
        ("UPDATE epsilearn_entry SET content = '{}' WHERE number = 2", "entry 2"),
        ("UPDATE epsilearn_entry SET content = 'x' WHERE number = 2", "entry 2 of 'patients' is damaged"),
        ("UPDATE epsilearn_entry SET totals = '{}' WHERE number = 2", "entry 2"),
        ('UPDATE epsilearn_entry SET totals = \'{"epsilon": "1/0"}\' WHERE number = 2', "damaged"),
        ("DELETE FROM epsilearn_entry WHERE number = 1", "entry 1 of 'patients' is missing"),
        ("DELETE FROM epsilearn_entry WHERE number = 2", "entry 2 of 'patients' is missing"),
        ("DELETE FROM epsilearn_entry WHERE number = 4", "last entries of 'patients' are missing"),
        ("DELETE FROM epsilearn_entry", "last entries"),
        ("UPDATE epsilearn_entry SET content = '{\"x\": 1e999}' WHERE number = 2", "entry 2 of 'patients' is damaged"),
        ("UPDATE epsilearn_entry SET content = '[1]' WHERE number = 2", "entry 2 of 'patients' is damaged"),
        ("UPDATE epsilearn_ledger SET length = 0", "last entries"),
        ("UPDATE epsilearn_ledger SET length = 3", "last entries"),
        ("UPDATE epsilearn_entry SET content = '{\"x\": NaN}' WHERE number = 2", "entry 2 of 'patients' is damaged"),
        ("UPDATE epsilearn_ledger SET content = replace(content, '1.0', '9.0')", "header of 'patients' was edited"),
    ],
)
def test_edits_are_found(ledger, statement, text):
    for _ in range(4):
        ledger.debit(SPEND)
    edit(ledger, statement)
    with pytest.raises(TamperedLedger, match=text):
        Ledger(ledger.url).verify()


def test_a_rollback_is_found_by_a_published_head(ledger):
    ledger.debit(SPEND)
    early = ledger.balance().head
    late = ledger.debit(SPEND).ledger.head
    edit(
        ledger,
        "DELETE FROM epsilearn_entry WHERE number = 2",
        f"UPDATE epsilearn_ledger SET head = '{early}', length = 1",
        "DELETE FROM epsilearn_count",
    )
    other = Ledger(ledger.url)
    assert other.verify() == early  # consistent in itself
    with pytest.raises(TamperedLedger, match="rolled back"):
        other.verify(late)


def test_a_damaged_last_entry_stops_all_spending(ledger):
    ledger.debit(Guarantee.pure(0.9))
    edit(ledger, 'UPDATE epsilearn_entry SET totals = \'{"epsilon": "0", "delta": "0"}\'')
    with pytest.raises(TamperedLedger, match="nothing was spent"):
        ledger.debit(Guarantee.pure(0.5))


@pytest.mark.parametrize("length", [0, 1])
def test_a_wrong_length_stops_all_spending(ledger, length):
    ledger.debit(Guarantee.pure(0.4))
    ledger.debit(Guarantee.pure(0.5))
    edit(ledger, f"UPDATE epsilearn_ledger SET length = {length}")
    with pytest.raises(TamperedLedger, match="nothing was spent"):
        Ledger(ledger.url).debit(Guarantee.pure(0.5))
    edit(ledger, "DELETE FROM epsilearn_entry")
    with pytest.raises(TamperedLedger, match="nothing was spent"):
        Ledger(ledger.url).debit(Guarantee.pure(0.5))


def test_the_database_itself_refuses_to_forget(ledger):
    ledger.debit(SPEND)
    statements = ["DELETE FROM epsilearn_entry", "UPDATE epsilearn_entry SET purpose = 'x'"]
    if ledger._store._database.engine.dialect.name == "postgresql":
        statements.append("TRUNCATE epsilearn_entry")
    for statement in statements:
        with (
            pytest.raises(sa.exc.DBAPIError, match="append-only"),
            ledger._store._database.engine.connect() as connection,
            connection.begin(),
        ):
            connection.exec_driver_sql(statement)
    assert ledger.verify()


def test_what_a_ledger_refuses(ledger):
    for promise in (
        Guarantee.pure(0.1).void("seeded"),
        Guarantee.pure(0.1, rows_per_person=2),
        Guarantee.pure(0.1, relation="add-remove"),
    ):
        with pytest.raises(BudgetExceeded, match="nothing was spent"):
            ledger.debit(promise)
    with pytest.raises(BudgetExceeded):
        ledger.debit(Guarantee.from_budget(0.1, 1e-9))  # a pure budget has no delta to give
    with pytest.raises(InvalidInput, match="Guarantee"):
        ledger.debit(0.1)
    for purpose in ("two\nlines", "x" * 2000, 3):
        with pytest.raises(InvalidInput, match="printable line"):
            ledger.debit(SPEND, purpose)
    assert ledger.history() == []


def test_proven_is_debited_not_claimed(ledger):
    ledger.debit(Guarantee.pure(0.8, claimed_epsilon=0.1))
    assert ledger.balance().spent_epsilon == 0.8


@pytest.mark.parametrize("rule", ["zcdp", "renyi"])
def test_concentrated_rules_admit_more_and_verify(ledger_url, rule):
    ledger = Ledger.create(ledger_url, dataset="clicks", epsilon=1.0, delta=1e-6, rule=rule)
    count = 0
    try:
        while count < 1000:
            epsilearn.gaussian(0.0, sensitivity=1, epsilon=0.2, delta=1e-8, ledger=ledger)
            count += 1
    except BudgetExceeded:
        pass
    assert 10 < count < 1000
    balance = ledger.balance()
    assert balance.spent_epsilon > 1.0
    assert 0.9 < balance.used <= 1
    assert ledger.verify() == balance.head


def test_several_data_sets_in_one_database(ledger_url):
    first = Ledger.create(ledger_url, dataset="first", epsilon=1.0)
    assert Ledger(ledger_url).dataset == "first"
    second = Ledger.create(ledger_url, dataset="second", epsilon=2.0, delta=1e-6)
    first.debit(SPEND)
    assert second.balance().spent_epsilon == 0
    with pytest.raises(LedgerError, match="name the data set"):
        Ledger(ledger_url)
    with pytest.raises(LedgerError, match="no ledger for 'third'"):
        Ledger(ledger_url, dataset="third")
    with pytest.raises(LedgerError, match="never reset"):
        Ledger.create(ledger_url, dataset="first", epsilon=100.0)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_handles_to_the_same_budget(ledger, copier):
    copier(ledger).debit(Guarantee.pure(0.7))
    assert ledger.balance().remaining_epsilon == 0.3


def test_threads_cannot_overspend_together(ledger):
    def work(_: int) -> int:
        try:
            ledger.debit(SPEND)
        except BudgetExceeded:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(30))) == 10
    assert ledger.verify()


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0},
        {"epsilon": float("nan")},
        {"epsilon": 9e-7},  # no debit could be so small
        {"epsilon": 1, "delta": 1.0},
        {"epsilon": 1, "rule": "zcdp"},
        {"epsilon": 1, "rule": "other"},
        {"epsilon": 1, "rows_per_person": 0},
        {"epsilon": 1, "dataset": ""},
        {"epsilon": 1, "dataset": "a\nb"},
    ],
)
def test_bad_ledgers_are_not_created(tmp_path, options):
    with pytest.raises(InvalidInput):
        Ledger.create(tmp_path / "b.db", **{"dataset": "d", **options})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_ledger_is_not_made_up(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none.db")
    with pytest.raises(LedgerError, match="no such folder"):
        Ledger.create(tmp_path / "no" / "b.db", dataset="d", epsilon=1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_ledger(tmp_path):
    (tmp_path / "text.db").write_text("hello " * 1000)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    for name in ("text.db", "other.db"):
        with pytest.raises(LedgerError, match=r"not a ledger|holds no ledger"):
            Ledger(tmp_path / name)


def test_a_ledger_of_another_version(ledger):
    edit(ledger, "UPDATE epsilearn_version SET version = 99")
    with pytest.raises(LedgerError, match="version 99"):
        ledger.debit(SPEND)
    with pytest.raises(LedgerError, match="version 99"):
        Ledger(ledger.url)


def run_as_nobody(action) -> str:
    """Root may write anything, so file permissions are only felt by somebody else: fork and step down."""
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
    return os.read(read_end, 10_000).decode()


def test_a_read_only_ledger_can_be_read_but_not_spent(tmp_path):
    path = tmp_path / "b.db"
    ledger = Ledger.create(path, dataset="d", epsilon=1.0)
    for place in [tmp_path, *tmp_path.parents]:
        if place.owner() == path.owner() and place != Path("/tmp") and place != Path("/"):
            place.chmod(place.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    path.chmod(0o444)
    assert "read-only" in run_as_nobody(lambda: ledger.debit(SPEND))
    assert run_as_nobody(ledger.verify) == "done"
    assert ledger.history() == []


def test_a_full_disk_is_no_debit(tmp_path):
    """A limit on file size stands in for a full disk: SQLite sees the same failed write."""
    path = tmp_path / "b.db"
    ledger = Ledger.create(path, dataset="d", epsilon=1e6)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, path.stat().st_size))
        for _ in range(1000):
            epsilearn.laplace(1, sensitivity=1, epsilon=0.1, ledger=ledger, purpose="x" * 900)

    path.chmod(0o666)
    tmp_path.chmod(0o777)
    child = os.fork()
    if child == 0:
        try:
            fill()
        except LedgerError as error:
            os._exit(7 if "disk" in str(error) else 8)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert ledger.verify()


def test_passwords_are_never_shown():
    with pytest.raises(LedgerError) as caught:
        Ledger("postgresql://ada:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql+nothing://x", "::::", "http://x", ":memory:", "sqlite://", ""])
def test_urls_that_are_none(url):
    with pytest.raises(LedgerError):
        Ledger(url)


def test_odd_file_names(tmp_path):
    path = tmp_path / "a b?c#d%e.db"
    Ledger.create(path, dataset="d", epsilon=1.0)
    assert path.exists()
    assert Ledger(f"sqlite:///{path}").dataset == "d"


def test_whoever_comes_second_does_not_remove_the_first_ones_ledger(tmp_path):
    """Several processes create the same file at once: exactly one wins, and its budget survives."""
    import multiprocessing

    context = multiprocessing.get_context("fork")

    def create(path: Path, barrier, wins) -> None:
        barrier.wait()
        try:
            ledger = Ledger.create(path, dataset="d", epsilon=1.0)
        except LedgerError:
            os._exit(0)
        ledger.debit(Guarantee.pure(0.9))
        wins.put(1)
        wins.close()
        wins.join_thread()
        os._exit(0)

    for attempt in range(8):
        path, barrier, wins = tmp_path / f"{attempt}.db", context.Barrier(4), context.Queue()
        workers = [context.Process(target=create, args=(path, barrier, wins)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert wins.get(timeout=600) == 1
        assert wins.empty()
        assert Ledger(path).balance().spent_epsilon == 0.9
    assert len(list(tmp_path.iterdir())) == 8  # nothing left lying about


def test_a_ledger_put_in_anothers_place_is_noticed(tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    ledger.debit(Guarantee.pure(0.9))
    (tmp_path / "b.db").unlink()
    Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    for handle in (ledger, pickle.loads(pickle.dumps(ledger))):
        with pytest.raises(TamperedLedger, match="replaced"):
            handle.debit(Guarantee.pure(0.9))


def test_a_handle_keeps_its_file_when_the_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.create("b.db", dataset="d", epsilon=1.0)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Ledger.create("b.db", dataset="d", epsilon=50.0)
    pickle.loads(pickle.dumps(ledger)).debit(Guarantee.pure(0.7))
    assert ledger.balance().remaining_epsilon == 0.3


def test_reading_while_others_write_raises_no_false_alarm(ledger_url):
    """Header and entries are of one moment, in both databases."""
    ledger = Ledger.create(ledger_url, dataset="busy", epsilon=100.0)
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(lambda: [ledger.debit(SPEND) for _ in range(60)]) for _ in range(2)]
        while not all(writer.done() for writer in writers):
            ledger.verify()
            ledger.balance()
    assert ledger.balance().debits == 120


def test_every_sqlite_url_is_a_file(tmp_path):
    Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    assert Ledger(f"sqlite+pysqlite:///{tmp_path / 'b.db'}").url == str(tmp_path / "b.db")


def test_a_debit_is_on_disk_whatever_the_server_is_set_to(postgres_url):
    """A role may have asynchronous commits, or another isolation, as its default."""
    import psycopg

    ledger = Ledger.create(postgres_url, dataset="d", epsilon=1.0)
    name = postgres_url.rsplit("/", 1)[1]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with ledger._store._database.transaction(write=True) as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ledger.debit(SPEND), range(10)))
    assert ledger.balance().spent_epsilon == 1.0


def creating_beside(path: Path, dataset: str, slow: bool, paid) -> None:
    """Create a ledger and pay, where hard links fail and, for the slow one, every renaming comes late."""

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    def late(call):
        def later(*words, **options):
            paid.wait(30)
            return call(*words, **options)

        return later

    os.link = refuse
    for name in ("rename", "replace") if slow else ():
        setattr(os, name, late(getattr(os, name)))
    while not slow and not path.exists():  # the slow one has the name first
        time.sleep(0.01)
    ledger = Ledger.create(path, dataset=dataset, epsilon=1.0)
    ledger.debit(Guarantee.pure(0.9))
    paid.set()
    os._exit(0)


def test_no_paid_ledger_is_lost_where_hard_links_fail(tmp_path):
    """Two create ledgers in one new file; whoever renames late must not do so over what the other has paid."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    paid, path = context.Event(), tmp_path / "b.db"
    workers = [
        context.Process(target=creating_beside, args=(path, dataset, dataset == "slow", paid))
        for dataset in ("slow", "fast")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    for dataset in ("slow", "fast"):
        ledger = Ledger(path, dataset=dataset)
        assert ledger.balance().spent_epsilon == 0.9
        assert ledger.verify()
    assert [p.name for p in tmp_path.iterdir()] == ["b.db"]


def test_an_empty_file_is_no_ledger_yet(tmp_path):
    """What a creator leaves that was killed before it wrote anything."""
    path = tmp_path / "b.db"
    path.touch()
    with pytest.raises(LedgerError, match="holds no ledger"):
        Ledger(path)
    Ledger.create(path, dataset="d", epsilon=1.0).debit(SPEND)
    with pytest.raises(LedgerError, match="never reset"):
        Ledger.create(path, dataset="d", epsilon=1.0)


def test_ledgers_created_at_once_in_an_empty_database(ledger_url):
    """All of them make the same tables."""
    names = [f"set {i}" for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda name: Ledger.create(ledger_url, dataset=name, epsilon=1.0), names))
    assert [ledger.debit(SPEND).ledger.entry for ledger in made] == [1] * 6


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_no_debit_is_nearly_free(ledger_url, delta):
    """Otherwise entries without end could be written; a delta does not pay for them either."""
    ledger = Ledger.create(ledger_url, dataset="d", epsilon=1.0, delta=1e-6)
    for way in (ledger.debit, ledger.check, lambda promise: ledger.balance(after=promise)):
        with pytest.raises(InvalidInput, match=r"at least epsilon 1e-06, .* Nothing was spent"):
            way(Guarantee.from_budget(9.9e-7, delta))
    assert ledger.history() == []
    ledger.debit(Guarantee.from_budget(LEAST_EPSILON, delta))


def test_what_is_too_little_for_a_debit_does_not_remain(tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", dataset="d", epsilon=1.0)
    ledger.debit(Guarantee.pure(0.9999985))
    assert ledger.balance().remaining_epsilon == 1.5e-6
    ledger.debit(Guarantee.pure(1e-6))
    assert ledger.balance().remaining_epsilon == 0.0
    assert ledger.balance().used < 1


def test_a_session_of_many_positives_is_one_short_entry(ledger):
    epsilearn.AboveThreshold(threshold=0, sensitivity=1, epsilon=0.5, positives=5000, ledger=ledger)
    assert len(str(ledger.history()[0]["guarantee"])) < 2000
    assert ledger.verify()


def test_a_ledger_works_where_files_have_no_locks(tmp_path):
    """As on Windows: they are the service's alone."""
    program = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from epsilearn import Guarantee, Ledger\n"
        f"ledger = Ledger.create({str(tmp_path / 'budget.db')!r}, dataset='d', epsilon=1.0)\n"
        "ledger.debit(Guarantee.pure(0.25))\n"
        "print(ledger.balance().remaining_epsilon)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0.75"
