"""Statistics over HTTP: each is claimed, paid for and answered once."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from tests.service.conftest import Deployment, prepare, registered

from epsilearn import Client
from epsilearn.client import ServerError
from epsilearn.database import Database
from epsilearn.errors import BudgetExceeded, InvalidInput, StateError
from epsilearn.service import store
from epsilearn.service.leave import Leave, give_up_claims
from epsilearn.service.messages import AskStatistic
from epsilearn.service.tables import Tables


def test_statistics_are_debited_when_they_are_asked_and_once(deployment, holder, stays):
    release = holder.open(stays, "statistics", epsilon=2.0).id
    assert holder.budget(stays).debits == 0
    anna, bert = (deployment.client("analyst", name, stays) for name in ("anna", "bert"))
    first = anna.statistic(release, "mean", "age", epsilon=0.5)
    assert not first.asked_before
    assert holder.budget(stays).spent_epsilon == 0.5
    again = bert.statistic(release, "mean", "age", epsilon=0.5)
    assert again.asked_before
    assert (again.value, again.guarantee) == (first.value, first.guarantee)
    assert holder.budget(stays).spent_epsilon == 0.5
    deployment.restart()
    assert bert.statistic(release, "mean", "age", epsilon=0.5).value == first.value
    with pytest.raises(ServerError, match=r"allows epsilon = 1\.5 more") as caught:
        anna.statistic(release, "mean", "weight", epsilon=1.6)
    assert caught.value.status == 409
    assert holder.budget(stays).debits == 1
    (entry,) = holder.spending(stays)
    assert entry["who"] == f"anna ({anna._key.split('_')[1][:6]})"
    assert holder.spending(stays)[0]["status"] == "delivered"


def test_an_allowance_is_exact(holder, stays):
    release = holder.open(stays, "statistics", epsilon=1.0).id
    holder.statistic(release, "mean", "age", epsilon=0.10000000000000002)
    with pytest.raises(ServerError, match="nothing was debited"):
        holder.statistic(release, "mean", "days", epsilon=0.9)
    holder.statistic(release, "mean", "days", epsilon=0.8)


def test_a_question_that_the_ledger_refuses_takes_nothing_of_the_allowance(deployment, holder):
    dataset = registered(deployment, holder, "refused", epsilon=1.0, delta=0.0)
    release = holder.open(dataset, "statistics", epsilon=1.0).id
    holder.open(dataset, "model", target="died", epsilon=0.5)
    with pytest.raises(BudgetExceeded):
        holder.statistic(release, "mean", "age", epsilon=0.7)
    left = json.loads(deployment.raw("GET", f"/api/releases/{release}", key=holder._key)[2])["left"]
    assert left == {"epsilon": 1.0}
    holder.statistic(release, "mean", "age", epsilon=0.5)


def test_how_much_was_asked_is_read_without_reading_the_questions(deployment, holder, stays):
    release = holder.open(stays, "statistics", epsilon=1.0).id
    for share in (0.1, 0.2, 0.3):
        holder.statistic(release, "mean", "age", epsilon=share)
    database = Database.at(deployment.database)
    statements = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *words: statements.append(words[2]))
    left = Leave(database, Tables(database, deployment.folder / "tables", 1e9)).left(release, 1.0)
    assert left == 0.4
    assert statements
    assert not any("epsilearn_statistic" in statement for statement in statements)


def test_an_older_copy_under_a_running_server_is_noticed(clinic, tmp_path):
    """The whole budget is spent, and the copy that is put back knows nothing of it."""
    made = Deployment(tmp_path, str(tmp_path / "state.db"))
    prepare(made, clinic)
    holder = Client(made.url, made.key("holder", "ruth"))
    made.start()
    try:
        dataset = registered(made, holder, "older", epsilon=1.0, delta=0.0)
        release = holder.open(dataset, "statistics", epsilon=1.0).id
        copy = tmp_path / "copy.db"
        with (
            contextlib.closing(sqlite3.connect(made.database)) as here,
            contextlib.closing(sqlite3.connect(copy)) as to,
        ):
            here.backup(to)
        holder.statistic(release, "mean", "age", epsilon=1.0)
        with (
            contextlib.closing(sqlite3.connect(copy)) as older,
            contextlib.closing(sqlite3.connect(made.database)) as to,
        ):
            older.backup(to)
        with pytest.raises(ServerError, match="An earlier copy was put in its place"):
            holder.statistic(release, "mean", "weight", epsilon=1.0)
        with pytest.raises(ServerError, match="An earlier copy was put in its place"):
            holder.budget(dataset)
    finally:
        made.stop()


def test_one_question_is_one_however_it_is_spelt(holder, stays):
    release = holder.open(stays, "statistics", epsilon=5.0).id
    first = holder.statistic(release, "count", "grade", epsilon=0.5, equals=1)
    assert holder.statistic(release, "count", "grade", epsilon=0.5, equals=1.0).value == first.value
    first = holder.statistic(release, "histogram", "age", epsilon=0.5, edges=[0.0, 50, 90])
    assert holder.statistic(release, "histogram", "age", epsilon=0.5, edges=[-0.0, 50.0, 90]).value == first.value
    assert holder.budget(stays).debits == 2


def test_an_answer_is_stored_into_its_own_claim_or_not_told(deployment, tmp_path, monkeypatch):
    """A claim that was given up while its answer was computed: the debit stands, the answer does not leave."""
    holder = deployment.client()
    dataset = registered(deployment, holder, "claims")
    release = holder.open(dataset, "statistics", epsilon=5.0).id
    database = Database.at(deployment.database)
    tables = Tables(database, deployment.folder / "tables", 1e9)
    leave, asked = Leave(database, tables), AskStatistic(statistic="mean", column="age", epsilon=0.5)
    column = Tables.column

    def swept(self, *words):
        give_up_claims(database)
        return column(self, *words)

    monkeypatch.setattr(Tables, "column", swept)
    with pytest.raises(StateError, match="was given up"):
        leave.ask(release, tables.get(dataset), 5.0, asked, "anna")
    monkeypatch.undo()
    assert [entry["status"] for entry in holder.spending(dataset)] == ["spent, not delivered"]
    found = holder.statistic(release, "mean", "age", epsilon=0.5)
    assert holder.statistic(release, "mean", "age", epsilon=0.5).value == found.value
    assert holder.budget(dataset).debits == 2
    # Whatever goes wrong after the debit, the question can be asked again, and what it cost stays counted.
    monkeypatch.setattr("epsilearn.service.leave.shown", lambda *_: 1 / 0)
    other = AskStatistic(statistic="mean", column="days", epsilon=0.5)
    with pytest.raises(ZeroDivisionError):
        leave.ask(release, tables.get(dataset), 5.0, other, "anna")
    monkeypatch.undo()
    assert not holder.statistic(release, "mean", "days", epsilon=0.5).asked_before
    assert leave.left(release, 5.0) == 3.0
    # A process that died with its claim keeps nobody waiting for ever.
    monkeypatch.setattr("epsilearn.service.leave._LONGEST", 0.0)
    with database.transaction(write=True) as connection:
        connection.execute(store.statistics.update().where(store.statistics.c.release == release).values(answer=None))
    assert leave.ask(release, tables.get(dataset), 5.0, asked, "anna").asked_before is False


def test_every_statistic(holder, stays):
    release = holder.open(stays, "statistics", epsilon=10.0).id

    def ask(*words, **options):
        return holder.statistic(release, *words, epsilon=1.0, **options)

    assert 20 < ask("mean", "age").value < 80
    assert 0 < ask("sum", "days").value < 6000
    assert ask("variance", "age").value > 0
    assert 0 <= ask("quantile", "age", q=0.9).value <= 90
    assert 0 <= ask("median", "age").value <= 90
    histogram = ask("histogram", "ward")
    assert histogram.bins == ["surgery", "medicine", "elsewhere"]
    assert abs(sum(histogram.value) - 200) < 100
    assert ask("histogram", "age", edges=[0, 30, 60, 90]).bins == ["0 to 30", "30 to 60", "60 to 90"]
    assert abs(ask("count", "ward", equals="surgery").value - 100) < 60
    # The median is a quantile: the same question by another name.
    assert ask("quantile", "age", q=0.5).asked_before


@pytest.mark.parametrize(
    ("statistic", "column", "options", "message"),
    [
        ("mean", "ward", {}, "needs a column of numbers"),
        ("mean", "note", {}, "not a column"),
        ("mean", "nothing", {}, "not a column"),
        ("count", "age", {"equals": 3}, "count needs a column with categories"),
        ("count", "ward", {"equals": "Mars"}, "count needs a column with categories"),
        ("count", "ward", {}, "count needs"),
        ("mean", "age", {"equals": "x"}, "equals is for count"),
        ("histogram", "age", {}, "needs edges"),
        ("histogram", "age", {"edges": [3, 2]}, "each larger"),
        ("histogram", "ward", {"edges": [1, 2]}, "no edges"),
        ("mode", "age", {}, "statistic"),
    ],
)
def test_a_statistic_that_cannot_be_computed_is_refused_and_costs_nothing(
    holder, stays, statistic, column, options, message
):
    release = holder.open(stays, "statistics", epsilon=1.0).id
    with pytest.raises(InvalidInput, match=message):
        holder.statistic(release, statistic, column, epsilon=0.1, **options)
    assert holder.budget(stays).debits == 0


NOTES = {
    "年次\u3000報告": True,
    "Größe, naïve, Ελληνικά, हिन्दी": True,
    "a\u00a0b\u2009c": True,
    "م\u200cی 👩\u200d🔬": True,
    "soft\u00adhyphen": False,
    "\u202eesrever": False,
    "\ue000": False,
    "two\nlines": False,
    "two\u2028lines": False,
    "\x1b[31mred": False,
    "\U000e0041": False,
}


@pytest.mark.parametrize("kind", ["statistics", "model"])
def test_a_note_that_is_taken_can_be_written_into_the_ledger(holder, stays, kind):
    """One rule for both: nothing is accepted that the ledger then refuses."""
    settings = {} if kind == "statistics" else {"target": "died"}
    for note, fine in NOTES.items():
        if not fine:
            with pytest.raises(InvalidInput, match="one line"):
                holder.open(stays, kind, note=note, epsilon=0.01, **settings)
            continue
        made = holder.open(stays, kind, note=note, epsilon=0.01, **settings)
        assert (made.status, made.note) == ("open", note)
        if kind == "model":
            assert holder.spending(stays)[-1]["purpose"].endswith(note)


def test_a_note_of_an_earlier_version_can_still_be_read(deployment, holder, stays):
    made = holder.open(stays, "statistics", note="plain", epsilon=0.5)
    table = store.releases
    with Database.at(deployment.database).transaction(write=True) as connection:
        mine = table.c.id == made.id
        found = connection.execute(table.select().where(mine)).one().settings
        connection.execute(table.update().where(mine).values(settings=found.replace("plain", "\u202eplain")))
    assert [r.note for r in holder.releases(stays)] == ["?plain"]
    assert holder.statistic(made.id, "mean", "age", epsilon=0.1).value


def test_one_question_by_many_at_once_is_debited_once(deployment, holder, stays):
    release = holder.open(stays, "statistics", epsilon=5.0).id
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda _: holder.statistic(release, "mean", "age", epsilon=0.5), range(12)))
    assert len({statistic.value for statistic in found}) == 1
    assert sum(not statistic.asked_before for statistic in found) == 1
    assert holder.budget(stays).debits == 1
