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
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from epsilearn.database import Database
from epsilearn.guarantee import Guarantee
from epsilearn.ledger import Held
from epsilearn.service import store
from epsilearn.service.asked import question_of, request_of, shown
from epsilearn.service.messages import AskStatistic
from epsilearn.service.tables import DataSet, Tables, Taken

__all__ = ["Leave", "Statistic", "statistics_promise"]

_PATIENCE = 30.0  # seconds to wait for another process that is answering the same question


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
        question = question_of(asked)
        with self._locks[release]:
            found = self._claimed(release, question, allowed, asked.epsilon, who)
            if found is not None:
                return Statistic(json.loads(found), True, self.left(release, allowed))
            held = Held(self._tables.ledger(dataset.name, who), f"{asked.statistic} of {asked.column}")
            try:
                released = request(
                    self._tables.column(dataset, asked.column),
                    epsilon=asked.epsilon, rows_per_person=dataset.schema.rows_per_person, ledger=held,
                )  # fmt: skip
            except BaseException:
                self._abandon(release, question, debited=held.debited)
                raise
            content = shown(released, bins)
            mine = self._mine(release, question)
            with self._database.transaction(write=True) as connection:
                connection.execute(store.statistics.update().where(mine).values(answer=json.dumps(content)))
            held.arrived()
            return Statistic(content, False, self.left(release, allowed))

    def left(self, release: str, allowed: float) -> float:
        """How much epsilon may still be asked for."""
        with self._database.transaction(write=False) as connection:
            return self._left(connection, release, allowed)

    def sweep(self) -> None:
        """Questions that a server which is no more was answering: whatever they cost, they may be asked again."""
        table = store.statistics
        with self._database.transaction(write=True) as connection:
            connection.execute(
                table.update().where(table.c.answer.is_(None), table.c.lost == 0).values(lost=table.c.number)
            )

    @staticmethod
    def _mine(release: str, question: str) -> sa.ColumnElement[bool]:
        table = store.statistics
        return (table.c.release == release) & (table.c.question == question) & (table.c.lost == 0)

    @staticmethod
    def _left(connection: sa.Connection, release: str, allowed: float) -> float:
        spent = connection.execute(sa.select(store.statistics.c.epsilon).where(store.statistics.c.release == release))
        return float(Fraction(str(allowed)) - sum((Fraction(str(row.epsilon)) for row in spent), Fraction(0)))

    def _claimed(self, release: str, question: str, allowed: float, epsilon: float, who: str) -> str | None:
        """The answer, if there is one; otherwise the question is this process's to answer."""
        end = time.monotonic() + _PATIENCE
        while True:
            with self._database.transaction(write=True) as connection:
                # Questions of one release wait for each other here, in any process.
                connection.execute(
                    sa.select(store.releases.c.id).where(store.releases.c.id == release).with_for_update()
                )
                row = connection.execute(store.statistics.select().where(self._mine(release, question))).first()
                if row is None:
                    left = self._left(connection, release, allowed)
                    if Fraction(str(epsilon)) > Fraction(str(left)):
                        raise Taken(
                            f"this release allows epsilon = {left:g} more for statistics, and this one asks for "
                            f"{epsilon:g}; nothing was debited"
                        )
                    content = {"release": release, "question": question, "lost": 0, "epsilon": epsilon}
                    connection.execute(
                        store.statistics.insert().values(**content, answer=None, created=store.now(), who=who)
                    )
                    return None
                if row.answer is not None:
                    return str(row.answer)
            if time.monotonic() > end:
                raise Taken("somebody else has asked this and is being answered; ask again in a moment")
            time.sleep(0.1)

    def _abandon(self, release: str, question: str, *, debited: bool) -> None:
        """Let the question be asked again; if it was paid for, what it cost stays counted."""
        table, mine = store.statistics, self._mine(release, question)
        with self._database.transaction(write=True) as connection:
            connection.execute(
                table.update().where(mine).values(lost=table.c.number) if debited else table.delete().where(mine)
            )
