"""What a server answers: each kind of release from registering to asking, the same on both databases."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from tests.service.conftest import TALKATIVE, directions, points, registered

from epsilearn import Guarantee, Ledger
from epsilearn.client import ServerError
from epsilearn.database import Database
from epsilearn.errors import BudgetExceeded, InvalidInput
from epsilearn.service import store


def opened(holder, dataset, kind="process", **settings):
    settings = {"target": "died", "epsilon": 1.0, **settings}
    if kind in ("process", "interactive") and "delta" not in settings:
        settings = {"delta": 1e-6, **settings}
    return holder.open(dataset, kind, **settings).id


# ------------------------------------------------------------------------------------------------------ data sets


def test_a_data_set_has_one_budget_for_good(deployment, holder, stays):
    found = holder.budget(stays)
    assert (found.epsilon, found.delta, found.spent_epsilon, found.used) == (10.0, 1e-4, 0.0, 0.0)
    schema = (deployment.folder / "tables" / "table.toml").read_text()
    for name, file in ((stays, "table.csv"), ("another-name", f"{stays}.csv")):
        with pytest.raises(ServerError, match="budget") as caught:
            holder.register(name, file, schema, epsilon=99.0)
        assert caught.value.status == 409
    # Not by a copy of it either.
    copy = deployment.folder / "tables" / "copy.csv"
    copy.write_bytes((deployment.folder / "tables" / f"{stays}.csv").read_bytes())
    with pytest.raises(ServerError, match="one table has one budget"):
        holder.register("another-name", "copy.csv", schema, epsilon=99.0)
    copy.unlink()
    assert [d.rows for d in holder.datasets() if d.name == stays] == [200]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("nowhere.csv", lambda s: s, "no such file"),
        ("../config.toml", lambda s: s, "no such file"),
        ("/etc/passwd", lambda s: s, "no such file"),
        ("table.csv\x00", lambda s: s, "no such file"),
        ("table.csv", lambda s: s.replace("rows", "lines").replace("version = 1", "version = 2"), "version = 1"),
        ("table.csv", lambda s: "not [toml", "not TOML"),
        ("table.csv", lambda s: s.replace("version = 1", "version = 1\nrows = 7"), "has 200 rows"),
        ("table.csv", lambda s: s.replace(', "missing" = 70.0', ""), "missing values"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_and_leaves_no_ledger(deployment, holder, file, change, message):
    schema = change((deployment.folder / "tables" / "table.toml").read_text())
    with pytest.raises(InvalidInput, match=message):
        holder.register("not-made", file, schema, epsilon=1.0)
    assert "not-made" not in [d.name for d in holder.datasets()]


def test_a_link_out_of_the_folder_is_not_followed(deployment, holder):
    link = deployment.folder / "tables" / "link.csv"
    if not link.exists():
        link.symlink_to("/etc/hostname")
    with pytest.raises(InvalidInput, match="no such file"):
        holder.register("linked", "link.csv", "version = 1\n[columns.a]\nbounds = [0, 1]", epsilon=1.0)
    link.unlink()


# ------------------------------------------------------------------------------------------------------- processes


@pytest.mark.parametrize(("kernel", "target"), [("rbf", "died"), ("linear", "died"), ("polynomial", "days")])
def test_the_same_question_has_one_answer_for_everybody_and_after_a_restart(deployment, holder, stays, kernel, target):
    release = opened(holder, stays, kernel=kernel, target=target, max_points=60)
    asked = [{k: v for k, v in row.items() if k != target} for row in points(20)]
    if target == "days":
        asked = [{**row, "died": "no"} for row in asked]
    first = holder.predict(release, asked)
    anna, bert = (deployment.client("analyst", name, stays) for name in ("anna", "bert"))
    # In another order, alone and twice in one request.
    assert anna.predict(release, asked[::-1]) == first[::-1]
    assert bert.predict(release, asked[3:4] * 2) == [first[3]] * 2
    deployment.restart()
    assert anna.predict(release, asked) == first
    assert holder.budget(stays).debits == 1
    assert holder.budget(stays).spent_epsilon == 1.0


def test_answers_are_those_of_the_release_itself(deployment, holder, stays):
    """Predictions come from scores, numbers stay in their bounds."""
    numbers = opened(holder, stays, target="days", kernel="linear")
    found = holder.predict(numbers, [{**row, "died": "yes"} for row in _without(points(10), "days")])
    assert all(0 <= answer.prediction <= 30 for answer in found)
    assert [answer.prediction for answer in found] == [min(30.0, max(0.0, answer.score)) for answer in found]
    classes = opened(holder, stays, kernel="linear")
    found = holder.predict(classes, points(10))
    assert [answer.prediction for answer in found] == ["yes" if answer.score > 0 else "no" for answer in found]


def test_a_process_ends_at_its_cap_for_all_together(deployment, holder, stays):
    release = opened(holder, stays, max_points=10)
    anna = deployment.client("analyst", "anna", stays)
    first = anna.predict(release, points(7))
    with pytest.raises(ServerError, match="would pass the cap of 10") as caught:
        holder.predict(release, points(5, start=50))
    assert caught.value.status == 409
    holder.predict(release, points(3, start=50))
    assert anna.predict(release, points(7)) == first


def test_concurrent_questions_get_one_answer_each(deployment, holder, stays):
    """Two analysts, sixteen threads, the same fifty points in every order."""
    release = opened(holder, stays, max_points=100)
    clients = [deployment.client("analyst", name, stays) for name in ("anna", "bert")]
    asked = points(50)

    def ask(seed):
        order = np.random.default_rng(seed).permutation(50)
        found = {}
        for start in range(0, 50, 5):
            here = order[start : start + 5]
            answers = clients[seed % 2].predict(release, [asked[i] for i in here])
            found |= dict(zip(here.tolist(), answers, strict=True))
        return found

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(ask, range(16)))
    assert all(result == results[0] for result in results)
    assert deployment.post(f"/api/releases/{release}/predict", {"rows": asked}, holder._key)[1]["left"] == {
        "points": 50
    }


# -------------------------------------------------------------------------------------------------- interactive


def test_interactive_answers_say_whether_they_were_private(deployment, holder):
    dataset = registered(deployment, holder, "sphere", "sphere")
    release = opened(holder, dataset, "interactive", **{**TALKATIVE, "questions": 50})
    asked = directions(40)
    first = holder.predict(release, asked)
    # The first answers teach the hypothesis the others.
    assert {answer.private for answer in first} == {True, False}
    anna = deployment.client("analyst", "anna", dataset)
    assert anna.predict(release, asked) == first
    deployment.restart()
    left = deployment.post(f"/api/releases/{release}/predict", {"rows": asked}, anna._key)[1]["left"]
    assert anna.predict(release, asked) == first
    told = deployment.raw("GET", f"/api/releases/{release}", key=anna._key)[2]
    assert json.loads(told)["left"] == left
    assert left["questions"] == 10
    with pytest.raises(ServerError, match="would pass the 10 that are left"):
        anna.predict(release, directions(60)[40:])


def test_last_bits_do_not_depend_on_the_company(deployment, holder, stays):
    """However questions are put together, by one or by many at once, an answer is the same to the last bit."""
    asked = points(120)
    for kind, settings in (("process", {"kernel": "linear"}), ("model", {}), ("model", {"model": "landmark"})):
        release = opened(holder, stays, kind, **settings)
        together = holder.predict(release, asked)
        singly = [answer for row in asked for answer in holder.predict(release, [row])]
        with ThreadPoolExecutor(8) as pool:
            sevens = list(pool.map(lambda s: holder.predict(release, asked[s : s + 7]), range(0, 120, 7)))  # noqa: B023
        assert singly == together
        assert [answer for part in sevens for answer in part] == together


def test_a_session_that_is_not_in_the_database_any_more_is_not_begun_again(deployment, holder, stays):
    release = opened(holder, stays)
    first = holder.predict(release, points(3))
    tables = [store.digits, store.answers, store.values, store.sessions]
    database = Database.at(deployment.database)
    kept = {}
    with database.transaction(write=True) as connection:
        for table in tables:
            kept[table.name] = connection.execute(table.select().where(table.c.session == release)).mappings().all()
            connection.execute(table.delete().where(table.c.session == release))
    deployment.restart()
    with pytest.raises(ServerError, match="not in the database any more"):
        holder.predict(release, points(3))
    with database.transaction(write=True) as connection:
        for table in tables[::-1]:
            connection.execute(table.insert(), [dict(row) for row in kept[table.name]])
    assert holder.predict(release, points(3)) == first


# -------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("target", "model"),
    [("died", "logistic"), ("stage", "logistic"), ("died", "svm"), ("days", "linear"), ("days", "lasso"),
     ("died", "sparse-logistic"), ("died", "landmark")],
)  # fmt: skip
def test_a_model_is_downloaded_and_is_what_the_server_predicts_with(holder, stays, target, model):
    release = opened(holder, stays, "model", target=target, model=model)
    downloaded = holder.model(release)
    asked = [{**row, "died": "no"} for row in points(15)] if target != "died" else points(15)
    asked = _without(asked, target)
    predictions = [answer.prediction for answer in holder.predict(release, asked)]
    table = pa.table({name: [row[name] for row in asked] for name in asked[0]})
    np.testing.assert_array_equal(downloaded.predict(table), predictions)
    assert holder.guarantee(release) == downloaded.guarantee
    assert downloaded.guarantee.epsilon == 1.0
    assert downloaded.guarantee.ledger.dataset == stays
    report = holder.report(release)
    assert "A private model of" in report
    assert "The ledger after this release" in report


def _without(rows, name):
    return [{key: value for key, value in row.items() if key != name} for row in rows]


def test_sessions_have_a_report_and_a_guarantee_too(holder, stays):
    release = opened(holder, stays)
    assert "Private answers about died" in holder.report(release)
    assert holder.guarantee(release).epsilon == 1.0
    with pytest.raises(ServerError, match=r"no model\.json"):
        holder.model(release)


# -------------------------------------------------------------------------------------------------------- budgets


def test_a_bill_debits_nothing_and_foretells_the_debit(holder, stays):
    for kind in ("process", "interactive", "model"):
        settings = {"target": "died", "epsilon": 1.0, "delta": 1e-6}
        before, after = holder.bill(stays, kind, **settings)
        assert holder.budget(stays) == before
        holder.open(stays, kind, **settings)
        assert holder.budget(stays) == after


def test_a_bill_foretells_the_debit_under_a_concentrated_rule_too(deployment, holder):
    dataset = registered(deployment, holder, "concentrated", epsilon=5.0, delta=1e-5, rule="zcdp")
    for kind in ("process", "interactive"):
        settings = {"target": "died", "epsilon": 1.0, "delta": 1e-6}
        _, after = holder.bill(dataset, kind, **settings)
        holder.open(dataset, kind, **settings)
        assert holder.budget(dataset).used == pytest.approx(after.used, rel=1e-6)


def test_nobody_overspends_together(deployment, holder):
    dataset = registered(deployment, holder, "shared", epsilon=1.0, delta=0.0)
    release = holder.open(dataset, "statistics", epsilon=1.0)
    barrier = threading.Barrier(10)

    def ask(number):
        client = deployment.client("analyst", f"analyst{number}", dataset)
        barrier.wait()
        try:
            return client.statistic(release.id, "quantile", "age", q=(number + 1) / 11, epsilon=0.3)
        except (ServerError, BudgetExceeded):
            return None

    with ThreadPoolExecutor(10) as pool:
        answered = [found for found in pool.map(ask, range(10)) if found is not None]
    assert len(answered) == 3
    balance = holder.budget(dataset)
    assert (balance.spent_epsilon, balance.debits) == (0.9, 3)
    Ledger(deployment.database, dataset=dataset).verify()


def test_a_release_beyond_the_budget_is_refused_before_anything(holder, stays):
    with pytest.raises(BudgetExceeded, match="nothing was spent"):
        holder.open(stays, "model", target="died", epsilon=11.0)
    assert holder.releases(stays) == []
    assert holder.budget(stays).debits == 0


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("process", {"target": "stage"}, "two classes"),
        ("process", {"target": "note"}, "ignored"),
        ("process", {"target": "nothing"}, "no column"),
        ("process", {"target": "died", "delta": 0.0}, "delta"),
        ("model", {"target": "died", "model": "linear"}, "predicts numbers"),
        ("model", {"target": "died", "kernel": "polynomial"}, "kernel is for landmark"),
        ("interactive", {"target": "died", "questions": 0}, "questions"),
        ("nonsense", {"target": "died"}, "kind"),
        ("process", {"target": "died", "colour": "red"}, "colour"),
    ],
)
def test_what_can_never_be_opened_is_refused(holder, stays, kind, settings, message):
    with pytest.raises(InvalidInput, match=message):
        holder.open(stays, kind, epsilon=1.0, **settings)
    assert holder.releases(stays) == []


def test_a_closed_release_answers_no_more(holder, stays, point):
    release = opened(holder, stays, kernel="linear")
    holder.predict(release, [point])
    leave = holder.open(stays, "statistics", epsilon=1.0).id
    holder.close(release)
    holder.close(leave)
    with pytest.raises(ServerError, match="closed"):
        holder.predict(release, [point])
    with pytest.raises(ServerError, match="closed"):
        holder.statistic(leave, "mean", "age", epsilon=0.5)
    assert holder.budget(stays).spent_epsilon == 1.0
    assert holder.release(release).status == "closed"


def test_a_file_that_changed_is_not_read_any_more(deployment, holder, clinic):
    tables = deployment.folder / "tables"
    changing = tables / "changing.csv"
    changing.write_bytes((tables / "table.csv").read_bytes())
    schema = (tables / "table.toml").read_text()
    changing.write_text(changing.read_text().replace("note 8,", "note changing,"))
    dataset = registered(deployment, holder, "changing")
    holder.register(dataset + "x", "changing.csv", schema, epsilon=5.0)
    with changing.open("a") as file:
        file.write("44,70.0,surgery,true,0.0,x,yes,II,3.0\n")
    release = holder.open(dataset + "x", "statistics", epsilon=1.0).id
    with pytest.raises(ServerError, match="not the one that was registered"):
        holder.statistic(release, "mean", "age", epsilon=0.5)
    with pytest.raises(ServerError, match="not the one that was registered"):
        holder.open(dataset + "x", "model", target="died", epsilon=1.0)
    assert holder.budget(dataset + "x").debits == 0


def test_what_is_told_of_a_release_is_a_guarantee(holder, stays):
    release = opened(holder, stays)
    found = holder.guarantee(release)
    assert isinstance(found, Guarantee)
    assert found.ledger.dataset == stays
    assert "the schema was written without looking at the rows, and every row fits it" in found.assumptions
