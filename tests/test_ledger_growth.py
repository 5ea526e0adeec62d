"""Long ledgers and old ones: a balance reads no more of them, and the chain is believed before any count."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.test_ledger import edit

import epsilearn
from epsilearn import Guarantee, Ledger
from epsilearn.errors import TamperedLedger
from epsilearn.ledger_store import metadata

SPEND = Guarantee.pure(0.001)
OLD = Path(__file__).parent / "data" / "ledger-1.sql"


def grow(ledger: Ledger, debits: int) -> None:
    """Very many debits, each delivered, in one transaction of the ledger's own."""
    with ledger._writing() as book:
        for _ in range(debits):
            entry = book.append("debit", "ada", "", SPEND.to_dict(), book.header.rule.add(book.totals, SPEND))
            book.append("delivered", "ada", "", {"debit": entry.number}, book.totals)


def work_of(ledger: Ledger, action) -> int:
    """How much the database does for an action: SQLite's own instructions, or the entries that PostgreSQL looks at."""
    engine = ledger._store._database.engine
    found = [0]

    def one_more() -> int:
        found[0] += 1
        return 0

    def watch(connection) -> None:
        connection.connection.dbapi_connection.set_progress_handler(one_more, 1)

    def ask(connection) -> None:
        query = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
        found[0] += int(connection.exec_driver_sql(query + "WHERE relname = 'epsilearn_entry'").scalar() or 0)

    moment, listener = ("commit", ask) if engine.dialect.name == "postgresql" else ("begin", watch)
    sa.event.listen(engine, moment, listener)
    try:
        action()
    finally:
        sa.event.remove(engine, moment, listener)
    return found[0]


def test_a_balance_and_a_debit_read_no_more_of_a_long_ledger(ledger_url):
    ledger = Ledger.create(ledger_url, dataset="d", epsilon=100.0)
    if ledger_url.startswith("postgresql"):  # it would rather read all of a table that is this small
        edit(ledger, f"ALTER DATABASE {ledger_url.rsplit('/', 1)[1]} SET enable_seqscan = off")
    actions = {
        "balance": lambda ledger: ledger.balance(),
        "balance after": lambda ledger: ledger.balance(after=SPEND),
        "check": lambda ledger: ledger.check(SPEND),
        "debit": lambda ledger: ledger.debit(SPEND),
        "newest": lambda ledger: ledger.history(count=5),
        "oldest": lambda ledger: ledger.history(count=5, before=11),
    }

    def measured() -> dict[str, int]:
        return {
            f"{name}, {handle}": work_of(use, lambda use=use, action=action: action(use))
            for name, action in actions.items()
            for handle, use in (("open", ledger), ("new", Ledger(ledger_url)))
        }

    grow(ledger, 30)
    few = measured()
    grow(ledger, 570)
    if ledger_url.startswith("postgresql"):  # it does so by itself, a minute later
        edit(ledger, "ANALYZE epsilearn_entry")
    many = measured()
    reads = work_of(ledger, ledger.history)
    assert reads > 1000  # the measure does see entries that are read
    assert all(few.values())
    for name, work in many.items():
        assert work < few[name] + 60, name  # a tree's depth more
    assert ledger.balance().debits == 604
    assert ledger.verify()


def test_a_page_of_the_history_is_a_part_of_it(ledger_url):
    ledger = Ledger.create(ledger_url, dataset="d", epsilon=100.0)
    grow(ledger, 3)
    ledger.debit(SPEND, "not delivered")
    grow(ledger, 3)
    whole = ledger.history()
    assert [entry["status"] == "delivered" for entry in whole] == [True] * 3 + [False] + [True] * 3
    assert ledger.history(count=100) == whole
    assert ledger.history(count=4) == whole[-4:]
    assert ledger.history(count=2, before=whole[4]["entry"]) == whole[2:4]
    assert ledger.history(count=2, before=1) == []


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request, tmp_path) -> str:
    """A database that an earlier version left, with three ledgers in it."""
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as file:
        file.executescript(OLD.read_text())
    if request.param == "sqlite":
        return str(path)
    url = str(request.getfixturevalue("postgres_url"))
    Ledger.create(url, dataset="another", epsilon=1.0)
    tables = {name: table for name, table in metadata.tables.items() if name in ("epsilearn_ledger", "epsilearn_entry")}
    rows = {name: sqlite3.connect(path).execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    with Ledger(url)._store._database.transaction(write=True) as connection:
        connection.exec_driver_sql("DROP TABLE epsilearn_count")
        for name, table in tables.items():
            columns = [column.name for column in table.columns]
            connection.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in rows[name]])
    return url


DEBITS = {"patients": 4, "clicks": 3, "visits": 1}
SPENT = {"patients": 0.650000000001, "clicks": 0.3, "visits": 0.01}


@pytest.mark.parametrize("dataset", list(DEBITS))
def test_a_ledger_of_an_earlier_version_is_read_verified_and_continued(old, dataset):
    ledger = Ledger(old, dataset=dataset)
    before = ledger.balance()
    assert (before.debits, before.spent_epsilon) == (DEBITS[dataset], SPENT[dataset])
    assert ledger.verify() == before.head
    assert len(ledger.history()) == DEBITS[dataset]
    assert ledger._seen[0].length == 2 * DEBITS[dataset] - {"patients": 2, "clicks": 0, "visits": 1}[dataset]
    release = epsilearn.laplace(
        5, sensitivity=1, epsilon=0.01, ledger=ledger, rows_per_person=before.rows_per_person, purpose="one more"
    )
    for handle in (ledger, Ledger(old, dataset=dataset)):
        assert handle.balance().debits == DEBITS[dataset] + 1
        assert handle.verify(before.head) == handle.balance().head
        assert handle.verify(release.guarantee.ledger.head)
    entries = Ledger(old, dataset=dataset)._store
    with entries.reading(dataset, ledger._start, ledger._seen[0]) as book:
        assert book.count.number == book.length  # written down from now on


def test_what_an_earlier_version_adds_is_counted_too(ledger_url):
    """It leaves the count behind, at an entry that is still in the chain."""
    ledger = Ledger.create(ledger_url, dataset="d", epsilon=1.0)
    ledger.debit(SPEND)
    with ledger._reading() as book:
        number, digest, debits = book.count
    assert (number, debits) == (1, 1)
    grow(ledger, 2)
    edit(ledger, f"UPDATE epsilearn_count SET number = {number}, hash = '{digest}', debits = {debits}")
    assert ledger.balance().debits == 3
    assert ledger.verify()
    edit(ledger, "DELETE FROM epsilearn_count")
    assert ledger.balance().debits == 3
    edit(ledger, "DROP TABLE epsilearn_count")
    assert ledger.balance().debits == 3
    ledger.debit(SPEND)
    assert ledger.balance().debits == 4
    assert ledger.verify()


@pytest.mark.parametrize("change", ["debits = debits - 1", "debits = 0", "debits = debits + 1"])
@pytest.mark.parametrize("since", [0, 2])
def test_an_edited_count_is_found_and_buys_nothing(ledger_url, change, since):
    ledger = Ledger.create(ledger_url, dataset="d", epsilon=1.0)
    grow(ledger, 3)
    with ledger._reading() as book:
        counted = book.count
    grow(ledger, since)
    edit(
        ledger,
        f"UPDATE epsilearn_count SET number = {counted.number}, hash = '{counted.hash}', debits = {counted.debits}",
        f"UPDATE epsilearn_count SET {change}",
    )
    assert ledger.balance().spent_epsilon == pytest.approx(0.001 * (3 + since), rel=1e-12)
    with pytest.raises(TamperedLedger, match="counted wrongly"):
        ledger.verify()


@pytest.mark.parametrize("change", ["number = 99", "number = -1", "number = 2", "hash = 'x'"])
def test_a_count_that_is_not_of_this_chain_stops_all_spending(ledger_url, change):
    ledger = Ledger.create(ledger_url, dataset="d", epsilon=1.0)
    grow(ledger, 2)
    edit(ledger, f"UPDATE epsilearn_count SET {change}")
    for action in (ledger.verify, ledger.balance, lambda: ledger.debit(SPEND)):
        with pytest.raises(TamperedLedger, match="not in the chain"):
            action()


def test_roles_that_may_only_append(postgres_url):
    """Whoever was given the three old tables alone still debits; others count from where they stopped."""
    ledger = Ledger.create(postgres_url, dataset="d", epsilon=1.0)
    ledger.debit(SPEND)
    name = "appender_" + postgres_url.rsplit("_", 1)[1]
    edit(
        ledger,
        f"CREATE ROLE {name} LOGIN",
        f"GRANT SELECT, UPDATE ON epsilearn_ledger TO {name}",
        f"GRANT SELECT, INSERT ON epsilearn_entry TO {name}",
        f"GRANT SELECT ON epsilearn_version TO {name}",
    )
    limited = Ledger(postgres_url.replace("tester@", f"{name}@"))
    limited.debit(SPEND)
    assert limited.balance().debits == 2
    assert ledger.balance().debits == 2
    ledger.debit(SPEND)
    assert limited.balance().debits == ledger.balance().debits == 3
    edit(ledger, "DROP TABLE epsilearn_count")
    limited.debit(SPEND)  # may make no table, and needs none
    assert limited.balance().debits == ledger.balance().debits == 4
    assert limited.verify() == ledger.verify()
