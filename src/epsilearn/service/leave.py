"""Leave to ask for statistics: each question is claimed, paid for and answered once, up to an epsilon in all.

A question is written down before its debit and its answer after, each in a transaction of its own, because the ledger
debits in one too. Whatever ends in between, a debit that was made stands and nothing is released twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from epsilearn.balls import decimal_down, exact
from epsilearn.checks import as_line
from epsilearn.database import Database
from epsilearn.errors import StateError
from epsilearn.guarantee import Guarantee
from epsilearn.ledger import Held
from epsilearn.service import store
from epsilearn.service.asked import question_of, request_of, shown
from epsilearn.service.messages import AskStatistic
from epsilearn.service.tables import DataSet, Tables, Taken

__all__ = ["Leave", "Statistic", "give_up_claims", "statistics_promise"]

_PATIENCE = 30.0  # seconds to wait for another process that is answering the same question
_LONGEST = 600.0  # seconds after which a question that was claimed and not answered is nobody's any more


def statistics_promise(epsilon: float, rows_per_person: int) -> Guarantee:
    """What all statistics of a release promise together: each adds to the others, and they stop at this."""
    return Guarantee.pure(
        epsilon, mechanism="statistics, each asked for by itself",
        theorem="pure epsilons add up, also when chosen adaptively", rows_per_person=rows_per_person,
    )  # fmt: skip


@dataclass(frozen=True)
class Statistic:
    """A statistic as it is told."""

    content: dict[str, Any]
    asked_before: bool
    left: float


class Leave:
    """The statistics of a server's releases.

    Parameters
    ----------
    database : Database
        The server's.
    tables : Tables
        Where the columns are.
    """

    def __init__(self, database: Database, tables: Tables) -> None:
        self._database, self._tables = database, tables
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def ask(self, release: str, dataset: DataSet, allowed: float, asked: AskStatistic, who: str) -> Statistic:
        """The answer: from the store if somebody has asked before, else released now."""
        request, bins = request_of(asked, dataset.schema)
        question = question_of(asked, dataset.schema)
        with self._locks[release]:
            claim = self._claimed(release, question, allowed, asked.epsilon, who)
            if isinstance(claim, str):
                return Statistic(json.loads(claim), True, self.left(release, allowed))
            held = Held(self._tables.ledger(dataset.name, who), as_line(f"{asked.statistic} of {asked.column}"))
            try:
                released = request(
                    self._tables.column(dataset, asked.column),
                    epsilon=asked.epsilon, rows_per_person=dataset.schema.rows_per_person, ledger=held,
                )  # fmt: skip
                content = shown(released, bins)
                self._store(claim, json.dumps(content))
            except BaseException:
                self._abandon(release, claim, debited=held.debited)
                raise
            held.arrived()
            return Statistic(content, False, self.left(release, allowed))

    def left(self, release: str, allowed: float) -> float:
        """How much epsilon may still be asked for."""
        with self._database.transaction(write=False) as connection:
            found = connection.execute(sa.select(store.releases.c.asked).where(store.releases.c.id == release))
            # Rounded down: nobody is told of more than there is.
            return decimal_down(max(exact(allowed) - Fraction(found.scalar_one()), Fraction(0)))

    def _claimed(self, release: str, question: str, allowed: float, epsilon: float, who: str) -> str | int:
        """The answer, if there is one; otherwise the number of a claim: the question is this process's to answer."""
        end = time.monotonic() + _PATIENCE
        while True:
            with self._database.transaction(write=True) as connection:
                locked = self._locked(connection, release)
                if locked.status != "open":
                    raise Taken(f"this release is {locked.status}: it takes no questions")
                asked = Fraction(locked.asked)
                found = self._look(connection, release, question)
                if found is None:
                    left = exact(allowed) - asked
                    if exact(epsilon) > left:
                        raise Taken(
                            f"this release allows epsilon = {decimal_down(max(left, Fraction(0))):g} more for "
                            f"statistics, and this one asks for {epsilon:g}; nothing was debited"
                        )
                    self._count(connection, release, asked + exact(epsilon))
                    content = {"release": release, "question": question, "lost": 0, "epsilon": epsilon}
                    made = connection.execute(
                        store.statistics.insert().values(**content, answer=None, created=store.now(), who=who)
                    )
                    return int(made.inserted_primary_key[0])  # type: ignore[index]
                if found.answer is not None:
                    return str(found.answer)
            if time.monotonic() > end:
                raise Taken("somebody else has asked this and is being answered; ask again in a moment")
            time.sleep(0.1)

    @staticmethod
    def _locked(connection: sa.Connection, release: str) -> Any:
        """Status, and what was asked for so far; questions of one release wait for each other here, in any process."""
        table = store.releases
        query = sa.select(table.c.status, table.c.asked).where(table.c.id == release).with_for_update()
        return connection.execute(query).one()

    @staticmethod
    def _count(connection: sa.Connection, release: str, asked: Fraction) -> None:
        change = store.releases.update().where(store.releases.c.id == release)
        connection.execute(change.values(asked=str(asked)))

    @staticmethod
    def _look(connection: sa.Connection, release: str, question: str) -> Any:
        """The question as it was asked before; a claim of a process that must have died is given up."""
        table = store.statistics
        mine = (table.c.release == release) & (table.c.question == question) & (table.c.lost == 0)
        found = connection.execute(table.select().where(mine)).first()
        if found is None or found.answer is not None:
            return found
        if datetime.now(UTC) - datetime.fromisoformat(found.created) < timedelta(seconds=_LONGEST):
            return found
        connection.execute(table.update().where(table.c.number == found.number).values(lost=found.number))
        return None

    def _store(self, claim: int, answer: str) -> None:
        """Write an answer into its own claim; if that was given up in the meantime, the answer must not leave."""
        table = store.statistics
        mine = (table.c.number == claim) & (table.c.lost == 0) & table.c.answer.is_(None)
        with self._database.transaction(write=True) as connection:
            if connection.execute(table.update().where(mine).values(answer=answer)).rowcount != 1:
                raise StateError("this question took too long, and was given up; what it cost stands. Ask again")

    def _abandon(self, release: str, claim: int, *, debited: bool) -> None:
        """Let the question be asked again; if it was paid for, what it cost stays counted."""
        table = store.statistics
        mine = (table.c.number == claim) & (table.c.lost == 0) & table.c.answer.is_(None)
        with self._database.transaction(write=True) as connection:
            if debited:
                connection.execute(table.update().where(mine).values(lost=claim))
                return
            asked = Fraction(self._locked(connection, release).asked)
            epsilon = connection.execute(sa.select(table.c.epsilon).where(mine)).scalar()
            if epsilon is not None:
                connection.execute(table.delete().where(mine))
                self._count(connection, release, asked - exact(epsilon))


def give_up_claims(database: Database) -> None:
    """Questions that a server which is no more was answering: whatever they cost, they may be asked again."""
    table = store.statistics
    with database.transaction(write=True) as connection:
        connection.execute(
            table.update().where(table.c.answer.is_(None), table.c.lost == 0).values(lost=table.c.number)
        )
