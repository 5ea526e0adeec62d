"""What was spent on a data set, a page at a time: however many debits there are, a call reads no more than it shows."""

from __future__ import annotations

import json

import sqlalchemy as sa

from epsilearn import ledger_store
from epsilearn.database import Database
from epsilearn.ledger_store import Book, Entry
from epsilearn.service.messages import Spending

__all__ = ["PAGE", "spent"]

PAGE = 1000
_ledgers, _entries = (ledger_store.metadata.tables[f"epsilearn_{name}"] for name in ("ledger", "entry"))


def spent(database: Database, dataset: str, before: int | None = None, count: int = PAGE) -> list[Spending]:
    """The newest debits of a data set, or those before an entry, in their order.

    Parameters
    ----------
    database : Database
        The server's.
    dataset : str
    before : int, optional
        The number of an entry.
    count : int
        How many debits.
    """
    number, kind = _entries.c.number, _entries.c.kind
    mine = _entries.select().where(_entries.c.dataset == dataset)
    with database.transaction(write=False) as connection:
        rule = Book(
            connection, connection.execute(_ledgers.select().where(_ledgers.c.dataset == dataset)).one()
        ).header.rule
        query = mine.where(kind == "debit").order_by(number.desc()).limit(count)
        rows = connection.execute(query if before is None else query.where(number < before)).all()
        debits = [Entry.from_row(row) for row in reversed(rows)]
        delivered = _delivered(connection, dataset, debits)
    return [
        Spending(
            entry=entry.number, time=entry.time, who=entry.who, purpose=entry.purpose,
            epsilon=entry.content["epsilon"], delta=entry.content["delta"],
            status="delivered" if entry.number in delivered else "spent, not delivered",
            used=min(1.0, rule.used(entry.totals)),
        )
        for entry in debits
    ]  # fmt: skip


def _delivered(connection: sa.Connection, dataset: str, debits: list[Entry]) -> set[int]:
    """Which of some debits were delivered: the notes of that say so word for word."""
    notes = [json.dumps({"debit": entry.number}, separators=(",", ":")) for entry in debits]
    later = sa.and_(_entries.c.dataset == dataset, _entries.c.number > (debits[0].number if debits else 0))
    query = sa.select(_entries.c.content).where(later, _entries.c.kind == "delivered", _entries.c.content.in_(notes))
    return {json.loads(row.content)["debit"] for row in connection.execute(query)}
