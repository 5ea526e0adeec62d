"""One table has one budget, however many register it at once; and what an earlier version let through."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from tests.service.conftest import Deployment, prepare

from epsilearn import Client, Ledger
from epsilearn.client import ServerError
from epsilearn.errors import LedgerError
from epsilearn.schema import Schema
from epsilearn.service import store
from epsilearn.service.store import opened_store
from epsilearn.service.tables import Tables, Taken


@pytest.fixture
def folder(tmp_path, clinic):
    (tmp_path / "tables").mkdir()
    clinic.write(tmp_path / "tables", "csv").rename(tmp_path / "tables" / "table.csv")
    clinic.write_schema(tmp_path).rename(tmp_path / "table.toml")
    return tmp_path


def tables_of(url: str, folder) -> Tables:
    return Tables(opened_store(url, make=True), folder / "tables", 1e9)


def ledgers(url: str) -> list[str]:
    with opened_store(url).transaction(write=False) as connection:
        return list(connection.execute(sa.text("SELECT dataset FROM epsilearn_ledger")).scalars())


def linked(folder, how: str, number: int) -> tuple[str, str]:
    """A name, and another way to the same table."""
    table, name = folder / "tables" / "table.csv", f"n{number}"
    other = table.with_name(f"{name}.csv")
    if how == "copies":
        shutil.copy(table, other)
    elif how == "hard links":
        os.link(table, other)
    elif how == "symlinks":
        other.symlink_to(table)
    elif how == "same names":
        return "stays", "table.csv"
    else:
        return name, "table.csv"
    return name, other.name


WAYS = ["different names", "same names", "copies", "hard links", "symlinks"]


@pytest.mark.parametrize("how", WAYS)
def test_of_registrations_that_have_all_looked_before_one_is_written_one_succeeds(
    empty_database, folder, how, monkeypatch
):
    """The worst order of events: nobody finds the table registered, then everybody writes. Each in a handle of its own,
    as processes have."""
    asked = [linked(folder, how, number) for number in range(6)]
    schema, barrier = Schema.read(folder / "table.toml"), threading.Barrier(len(asked))
    checked = Tables._checked

    def wait_for_all(self, path, given):
        barrier.wait(timeout=600)
        return checked(self, path, given)

    monkeypatch.setattr(Tables, "_checked", wait_for_all)
    handles = [tables_of(empty_database, folder) for _ in asked]

    def register(number: int):
        name, file = asked[number]
        try:
            return handles[number].register(name, file, schema, 1.0, 0.0, None, "ruth").name
        except Taken as error:
            refusals.append(str(error))
            return None

    refusals: list[str] = []
    with ThreadPoolExecutor(len(asked)) as pool:
        names = [name for name in pool.map(register, range(len(asked))) if name is not None]
    assert len(names) == 1
    assert all("budget" in text for text in refusals)
    assert [d.name for d in handles[0].all()] == names
    assert ledgers(empty_database) == names


@pytest.mark.parametrize("how", WAYS)
def test_of_fifty_registrations_by_eight_clients_one_succeeds(deployment, holder, folder, how):
    mark, tables = uuid.uuid4().hex[:8], deployment.folder / "tables"
    text = (tables / "table.csv").read_text().replace("note 7,", f"note {mark},")
    (folder / "tables" / "table.csv").write_text(text)
    here = tables / mark
    shutil.move(folder / "tables", here)
    (folder / "tables").symlink_to(here)
    asked = [linked(folder, how, number) for number in range(50)]
    schema = (tables / "table.toml").read_text()
    clients = [deployment.client("holder", f"holder{k}") for k in range(8)]

    def register(number: int) -> int:
        name, file = asked[number]
        try:
            clients[number % 8].register(f"{mark}-{name}", f"{mark}/{file}", schema, epsilon=1.0)
        except ServerError as error:
            refusals.append(str(error))
            return error.status
        return 201

    refusals: list[str] = []
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(register, range(50)))
    assert sorted(set(statuses)) == [201, 409]
    assert statuses.count(201) == 1
    assert all("budget" in text for text in refusals)
    assert len([d for d in holder.datasets() if d.name.startswith(mark)]) == 1
    assert len([name for name in ledgers(deployment.database) if name.startswith(mark)]) == 1


@pytest.mark.slow
def test_of_registrations_by_several_processes_one_succeeds(empty_database, clinic, tmp_path):
    made = Deployment(tmp_path, empty_database)
    prepare(made, clinic)
    made.workers = 3
    made.write_config()
    clients = [Client(made.url, made.key("holder", f"holder{k}")) for k in range(8)]
    schema = (tmp_path / "tables" / "table.toml").read_text()
    made.start()
    try:
        for turn in range(5):
            text = (tmp_path / "tables" / "table.csv").read_text().replace("note 7,", f"note turn {turn},")
            files = [f"t{turn}-{k}.csv" for k in range(24)]
            for file in files:
                (tmp_path / "tables" / file).write_text(text)

            def register(number: int, files=files) -> int:
                try:
                    clients[number % 8].register(files[number][:-4], files[number], schema, epsilon=1.0)
                except ServerError as error:
                    return error.status
                return 201

            with ThreadPoolExecutor(8) as pool:
                assert sorted(pool.map(register, range(24))) == [201] + [409] * 23
    finally:
        made.stop()


def test_first_registrations_of_different_tables_all_succeed(empty_database, folder):
    """Nobody has made the ledger's tables yet, and everybody does at once."""
    schema, table = Schema.read(folder / "table.toml"), folder / "tables" / "table.csv"
    for number in range(6):
        text = table.read_text().replace("note 7,", f"note other {number},")
        table.with_name(f"other{number}.csv").write_text(text)
    handles, barrier = [tables_of(empty_database, folder) for _ in range(6)], threading.Barrier(6)

    def register(number: int) -> str:
        barrier.wait(timeout=600)
        return handles[number].register(f"n{number}", f"other{number}.csv", schema, 1.0, 0.0, None, "ruth").name

    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(register, range(6)))
    assert sorted(ledgers(empty_database)) == sorted(names)


def test_first_ledgers_of_an_empty_postgresql_are_all_made(postgres_url):
    barrier = threading.Barrier(6)

    def create(number: int) -> str:
        barrier.wait(timeout=600)
        return Ledger.create(postgres_url, dataset=f"d{number}", epsilon=1.0).dataset

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(create, range(6))) == [f"d{number}" for number in range(6)]


def test_a_file_that_was_written_to_since_is_still_the_same_file(empty_database, folder):
    """By another name, too: whoever is in the table has a budget already."""
    tables, schema = tables_of(empty_database, folder), Schema.read(folder / "table.toml")
    tables.register("stays", "table.csv", schema, 1.0, 0.0, None, "ruth")
    name, file = linked(folder, "hard links", 0)
    path = folder / "tables" / file
    with path.open("a") as more:
        more.write(path.read_text().splitlines()[-1] + "\n")
    with pytest.raises(Taken, match="registered as 'stays'"):
        tables.register(name, file, schema, 1.0, 0.0, None, "ruth")


def test_a_data_set_and_its_ledger_are_there_both_or_neither(empty_database, folder, monkeypatch):
    tables, schema = tables_of(empty_database, folder), Schema.read(folder / "table.toml")
    Ledger.create(empty_database, dataset="taken", epsilon=5.0)
    with pytest.raises(Taken, match="never reset; choose another name"):
        tables.register("taken", "table.csv", schema, 1.0, 0.0, None, "ruth")
    create = Ledger.create_in

    def interrupted(*words, **options):
        create(*words, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "create_in", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tables.register("stays", "table.csv", schema, 1.0, 0.0, None, "ruth")
    assert (tables.all(), ledgers(empty_database)) == ([], ["taken"])
    monkeypatch.undo()
    tables.register("stays", "table.csv", schema, 1.0, 0.0, None, "ruth")
    assert Ledger(empty_database, dataset="stays").balance().epsilon == 1.0


def row(name: str, file: str, digest: str, created: str) -> dict[str, object]:
    return {"name": name, "file": file, "digest": digest, "public": "{}", "rows": 3, "created": created, "who": "ruth"}


@pytest.mark.parametrize("same", ["name", "file", "digest"])
def test_the_database_itself_takes_no_table_twice(empty_database, same):
    """Whatever is wrong with whoever writes."""
    database = opened_store(empty_database, make=True)
    first, second = row("a", "a.csv", "1", "2026"), row("b", "b.csv", "2", "2026")
    with database.transaction(write=True) as connection:
        connection.execute(store.datasets.insert().values(**first))
    with pytest.raises(LedgerError) as caught, database.transaction(write=True) as connection:
        connection.execute(store.datasets.insert().values(**{**second, same: first[same]}))
    assert isinstance(caught.value.__cause__, IntegrityError)


def test_a_table_that_an_earlier_version_gave_two_budgets_is_read_for_the_first(empty_database, folder):
    """Version 1 had no constraints; its race has left two data sets of one table, and of one file."""
    tables, schema = tables_of(empty_database, folder), Schema.read(folder / "table.toml")
    made = tables.register("first", "table.csv", schema, 1.0, 0.0, None, "ruth")
    shutil.copy(folder / "tables" / "table.csv", folder / "tables" / "copy.csv")
    database = opened_store(empty_database)
    with database.transaction(write=True) as connection:
        for statement in (
            "DROP INDEX epsilearn_one_file", "DROP INDEX epsilearn_one_digest", "DROP TABLE epsilearn_server",
            "ALTER TABLE epsilearn_dataset DROP COLUMN same_as", "ALTER TABLE epsilearn_release DROP COLUMN asked",
            "ALTER TABLE epsilearn_session DROP COLUMN private", "UPDATE epsilearn_service_version SET version = 1",
        ):  # fmt: skip
            connection.execute(sa.text(statement))
        kept = connection.execute(sa.text("SELECT * FROM epsilearn_dataset")).mappings().one()
        copy = "INSERT INTO epsilearn_dataset VALUES (:name, :file, :digest, :public, :rows, :created, :who)"
        connection.execute(sa.text(copy), {**kept, "name": "again", "file": "copy.csv", "created": "2999"})
        connection.execute(sa.text(copy), {**kept, "name": "older", "digest": "another", "created": "3000"})
    again = tables_of(empty_database, folder)
    assert {d.name: d.same_as for d in again.all()} == {"first": None, "again": "first", "older": "first"}
    assert len(again.column(again.get("first"), "age")) == made.rows
    for name in ("again", "older"):
        with pytest.raises(Taken, match="registered as 'first' before"):
            again.column(again.get(name), "age")
        with pytest.raises(Taken, match="registered as 'first' before"):
            again.encoded(again.get(name), "died")
    with pytest.raises(LedgerError), opened_store(empty_database).transaction(write=True) as connection:
        connection.execute(store.datasets.insert().values(**row("b", "b.csv", made.digest, "2026")))
