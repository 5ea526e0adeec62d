"""What was spent on a data set, a page at a time: however many debits there are, a call reads no more than it shows."""

from __future__ import annotations

from epsilearn.ledger import Ledger
from epsilearn.service.messages import Spending

__all__ = ["PAGE", "spent"]

PAGE = 1000


def spent(ledger: Ledger, before: int | None = None, count: int = PAGE) -> list[Spending]:
    """The newest debits of a data set, or those before an entry, in their order.

    Parameters
    ----------
    ledger : Ledger
        The data set's.
    before : int, optional
        The number of an entry.
    count : int
        How many debits.
    """
    return [
        Spending(
            **{name: debit[name] for name in ("entry", "time", "who", "purpose", "status")},
            epsilon=debit["guarantee"]["epsilon"], delta=debit["guarantee"]["delta"], used=min(1.0, debit["used"]),
        )
        for debit in ledger.history(count=count, before=before)
    ]  # fmt: skip
