"""A handle that remembers: an older ledger, or another branch of it, put in place of the one it has seen."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from tests.test_ledger import edit

import epsilearn
from epsilearn import Guarantee, Ledger
from epsilearn.errors import TamperedLedger

SPEND = Guarantee.pure(0.1)
TABLES = ("epsilearn_ledger", "epsilearn_entry", "epsilearn_count")


class Backup:
    """All that a database holds, to be put back later."""

    def __init__(self, ledger: Ledger, folder) -> None:
        self._ledger, self._file = ledger, folder / "backup.db"
        if not self._is_server:
            shutil.copy(ledger.url, self._file)
            return
        with ledger._store._database.transaction(write=False) as connection:
            self._rows = {name: connection.exec_driver_sql(f"SELECT * FROM {name}").mappings().all() for name in TABLES}

    @property
    def _is_server(self) -> bool:
        return self._ledger._store._database.is_postgresql

    def restore(self) -> None:
        if not self._is_server:
            shutil.copy(self._file, self._ledger.url)
            return
        edit(self._ledger, *(f"DELETE FROM {name}" for name in reversed(TABLES)))
        with self._ledger._store._database.transaction(write=True) as connection:
            for name, rows in self._rows.items():
                table = sa.Table(name, sa.MetaData(), autoload_with=connection)
                if rows:
                    connection.execute(table.insert(), [dict(row) for row in rows])


@pytest.fixture
def ledger(ledger_url) -> Ledger:
    return Ledger.create(ledger_url, dataset="patients", epsilon=1.0)


WAYS = {
    "itself": lambda ledger: ledger,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda ledger: pickle.loads(pickle.dumps(ledger)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entries", [0, 2])
def test_an_earlier_copy_is_refused(ledger, tmp_path, way, entries):
    """The whole budget was spent, and the copy knows nothing of it."""
    if entries:
        epsilearn.laplace(1, sensitivity=1, epsilon=0.1, ledger=ledger)
    backup = Backup(ledger, tmp_path)
    ledger.debit(Guarantee.pure(0.9))
    travelled = pickle.dumps(ledger)  # opened only after the copy is there
    backup.restore()
    handle = pickle.loads(travelled) if way == "pickle" else WAYS[way](ledger)
    for action in (
        lambda: epsilearn.laplace(1, sensitivity=1, epsilon=0.9, ledger=handle),
        handle.balance,
        handle.history,
        handle.verify,
        lambda: handle.check(SPEND),
    ):
        with pytest.raises(TamperedLedger, match=rf"has {entries} entries and had {entries + 1}.*put the newest copy"):
            action()
    assert Ledger(ledger.url).balance().debits == entries // 2  # nothing was debited there


def test_another_branch_of_the_same_ledger_is_refused(ledger, tmp_path):
    """Restored, and gone on from there through another handle: as long, or longer, and not the same."""
    ledger.debit(SPEND)
    backup = Backup(ledger, tmp_path)
    ledger.debit(SPEND, "seen")
    backup.restore()
    other = Ledger(ledger.url)
    for _ in range(2):
        other.debit(SPEND, "not seen")
        with pytest.raises(TamperedLedger, match="another entry 2 than it had"):
            ledger.debit(SPEND)
    assert other.verify()


def test_reading_is_seeing(ledger, tmp_path):
    """A handle that never debits remembers what it read."""
    backup = Backup(ledger, tmp_path)
    reader = Ledger(ledger.url)
    ledger.debit(SPEND)
    assert reader.balance().debits == 1
    backup.restore()
    with pytest.raises(TamperedLedger, match="saw it last"):
        reader.balance()


def test_a_refused_or_failed_debit_is_not_remembered(ledger):
    ledger.debit(SPEND)
    before = ledger._seen[0]
    with pytest.raises(RuntimeError):
        _debit_and_fail(ledger)
    assert ledger._seen == [before]
    ledger.debit(SPEND)


def _debit_and_fail(ledger: Ledger) -> None:
    with ledger._writing() as book:
        book.append("debit", "ada", "", SPEND.to_dict(), book.header.rule.add(book.totals, SPEND))
        raise RuntimeError


def test_threads_remember_the_latest_and_raise_no_false_alarm(ledger, tmp_path):
    backup = Backup(ledger, tmp_path)

    def work(number: int) -> int:
        if number % 3:
            return int(ledger.balance().head != "")
        return ledger.debit(Guarantee.pure(0.01)).ledger.entry

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(60)))
    assert ledger._seen[0].length == 20
    backup.restore()
    with ThreadPoolExecutor(6) as pool:
        for refused in [pool.submit(ledger.debit, SPEND) for _ in range(6)]:
            with pytest.raises(TamperedLedger, match="had 20"):
                refused.result()


def test_other_processes_may_be_ahead(ledger):
    """What others have added since is no reason to refuse, neither here nor in a handle that travelled."""
    context = multiprocessing.get_context("spawn")
    ledger.debit(SPEND)
    with context.Pool(1) as pool:
        assert pool.apply(ledger.debit, (SPEND,)).ledger.entry == 2
    assert ledger.debit(SPEND).ledger.entry == 3


def test_handles_that_earlier_versions_pickled_still_open(ledger):
    rebuild, (url, dataset, who, start, _) = ledger.__reduce__()
    assert rebuild(url, dataset, who, start).balance() == ledger.balance()
