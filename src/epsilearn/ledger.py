"""The budget of a data set, on disk: debit first, then release.

A ledger is a privacy filter. Requests may be chosen after seeing earlier answers, so its rule is fixed when it
is created (see `epsilearn.filters`). Entries are only ever appended, each carries the hash of the one before,
and one transaction, serialised by the database, both decides and debits.
"""

from __future__ import annotations

import getpass
import heapq
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from epsilearn.balls import decimal_down, exact
from epsilearn.checks import check_budget, check_integer, is_line
from epsilearn.database import Database
from epsilearn.errors import BudgetExceeded, InvalidInput, TamperedLedger
from epsilearn.filters import Filter, Totals
from epsilearn.guarantee import REPLACE_ONE, Guarantee, LedgerStamp
from epsilearn.ledger_store import Book, Header, Mark, Store

__all__ = ["LEAST_EPSILON", "Balance", "Held", "Ledger"]

LEAST_EPSILON = 1e-6  # of one debit: whoever could write entries for nothing could write them without end


@dataclass(frozen=True)
class Balance:
    """Where a ledger stands.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    spent_epsilon, spent_delta : float
        The plain sums of all debits.
    remaining_epsilon : float
        The largest pure epsilon that would still be admitted; 0 where that is less than `LEAST_EPSILON`.
    used : float
        The share of the budget that is gone under the ledger's rule, from 0 to 1.
    debits : int
        How many debits there are.
    head : str
        The hash of the last entry.
    """

    dataset: str
    rule: str
    rows_per_person: int
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float
    remaining_epsilon: float
    used: float
    debits: int
    head: str


class Ledger:
    """A handle to the budget of one data set.

    Handles are cheap: copying or pickling one yields another handle to the same ledger, so `clone` and worker
    processes all debit the same budget. A handle, and every copy made of it, remembers the last entry it has seen, and
    refuses a ledger that does not go on from there.

    Parameters
    ----------
    url : str or path
        A file (SQLite), or a database URL such as ``postgresql+psycopg://user@host/name``.
    dataset : str, optional
        Which data set, where the database holds several.
    who : str, optional
        Recorded with every debit; the login name if left out.

    Examples
    --------
    >>> import tempfile, pathlib, epsilearn
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "budget.db"
    >>> ledger = epsilearn.Ledger.create(path, dataset="patients", epsilon=1.0)
    >>> release = epsilearn.laplace(10, sensitivity=1, epsilon=0.4, ledger=ledger, purpose="count")
    >>> ledger.balance().remaining_epsilon
    0.6
    """

    def __init__(self, url: str | os.PathLike[str], *, dataset: str | None = None, who: str | None = None) -> None:
        self._open(Store.at(os.fspath(url)), dataset, who)

    def _open(self, found: Store, dataset: str | None, who: str | None) -> None:
        self._store = found
        self.url = self._store.url
        self.who = who if who is not None else _login_name()
        # The start of the chain is remembered: another ledger put in its place is noticed. So is the latest entry seen,
        # which an earlier copy of this ledger does not have.
        self.dataset, self._start, seen = self._store.find(dataset)
        self._seen = [seen]

    @classmethod
    def within(cls, database: Database, *, dataset: str, who: str) -> Ledger:
        """A handle to a ledger in a database that somebody has opened, and writes as that one may write.

        Parameters
        ----------
        database : Database
        dataset, who : str
            As for the handle itself.
        """
        made = cls.__new__(cls)
        made._open(Store(database), dataset, who)
        return made

    def by(self, who: str) -> Ledger:
        """This handle for somebody else's debits: what either of them sees, both remember."""
        made = Ledger.__new__(Ledger)
        made.__dict__.update(self.__dict__, who=who)
        return made

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        *,
        dataset: str,
        epsilon: float,
        delta: float = 0.0,
        rule: str | None = None,
        rows_per_person: int = 1,
        who: str | None = None,
    ) -> Ledger:
        """Start a ledger with a total budget. Refuses if the data set already has one there.

        Parameters
        ----------
        url : str or path
            A file that may hold other data sets' ledgers already, or a database URL.
        dataset : str
            The data set's name.
        epsilon, delta : float
            The total budget; epsilon at least `LEAST_EPSILON`, the least that a debit can take.
        rule : {"pure", "zcdp", "renyi"}, optional
            How debits add up; "pure" for ``delta = 0``, otherwise "zcdp".
        rows_per_person : int
            The unit the budget is stated in; releases must be made for the same one.
        who : str, optional
            Recorded with every debit made through this handle; the login name if left out.
        """
        header = _header(dataset, epsilon, delta, rule, rows_per_person)
        Store.create(os.fspath(url), header, who if who is not None else _login_name())
        return cls(url, dataset=dataset, who=who)

    @staticmethod
    def create_in(
        database: Database, connection: sa.Connection, *, dataset: str, epsilon: float, delta: float = 0.0,
        rule: str | None = None, rows_per_person: int = 1, who: str,
    ) -> None:  # fmt: skip
        """Start a ledger as part of somebody's transaction: there is one if that ends well, and none otherwise.

        Parameters
        ----------
        database : Database
            Where the ledger will be.
        connection : Connection
            The transaction, on that database.
        dataset, epsilon, delta, rule, rows_per_person, who
            As for `create`.
        """
        Store(database).create_in(connection, _header(dataset, epsilon, delta, rule, rows_per_person), who)

    def debit(self, guarantee: Guarantee, purpose: str = "") -> Guarantee:
        """Debit a promise, or refuse; nothing may be released before this returns.

        Returns the same guarantee stamped with its entry. Prefer `spend`, which also records the delivery. Less than
        `LEAST_EPSILON` is refused, whatever its delta.
        """
        with self._writing() as book:
            totals = self._admitted(guarantee, book)
            entry = book.append("debit", self.who, purpose, guarantee.to_dict(), totals)
        return replace(guarantee, ledger=LedgerStamp(self.dataset, entry.number, entry.hash))

    def check(self, guarantee: Guarantee) -> None:
        """Raise what `debit` would raise at this moment; nothing is debited."""
        with self._reading() as book:
            self._admitted(guarantee, book)

    @contextmanager
    def _reading(self) -> Iterator[Book]:
        # What was seen is taken first: another thread may see more while this one waits.
        with self._store.reading(self.dataset, self._start, self._seen[0]) as book:
            yield book
        self._remember(book)

    @contextmanager
    def _writing(self) -> Iterator[Book]:
        with self._store.writing(self.dataset, self._start, self._seen[0]) as book:
            yield book
        self._remember(book)  # committed by now

    def _remember(self, book: Book) -> None:
        # The later of the two stays: a single step of the interpreter, so neither threads nor forks come between.
        heapq.heappushpop(self._seen, book.mark)

    def _admitted(self, guarantee: Guarantee, book: Book) -> Totals:
        """The totals after this debit, if the rule admits it."""
        self._check_promise(guarantee)
        self._check_unit(guarantee, book.header)
        rule = book.header.rule
        totals = rule.add(book.totals, guarantee)
        if not rule.admits(totals):
            raise BudgetExceeded(self._refusal(guarantee, rule, book.totals, book.header))
        return totals

    @contextmanager
    def spend(self, guarantee: Guarantee, purpose: str = "") -> Iterator[Guarantee]:
        """Debit on entering; on leaving without an error, record that the release was delivered.

        Whatever happens in between, the debit stands; without the second record it reads "spent, not delivered".
        """
        stamped = self.debit(guarantee, purpose)
        yield stamped
        self.deliver(stamped, purpose)

    def deliver(self, stamped: Guarantee, purpose: str = "") -> None:
        """Record that what a debit of this ledger paid for has been delivered."""
        if stamped.ledger is None or stamped.ledger.dataset != self.dataset:
            raise InvalidInput("only a promise that this ledger has stamped can be delivered")
        with self._writing() as book:
            book.append("delivered", self.who, purpose, {"debit": stamped.ledger.entry}, book.totals)

    def balance(self, after: Guarantee | None = None) -> Balance:
        """Budget, spent and remaining.

        Parameters
        ----------
        after : Guarantee, optional
            Tell what they would be after this debit, or raise what it would raise; nothing is debited.
        """
        with self._reading() as book:
            header, totals = book.header, book.totals if after is None else self._admitted(after, book)
            debits = book.debits + (after is not None)
        remaining = header.rule.remaining(totals)
        epsilon, delta = header.rule.sums(totals)
        return Balance(
            dataset=self.dataset,
            rule=header.rule.name,
            rows_per_person=header.rows_per_person,
            epsilon=header.epsilon,
            delta=header.delta,
            spent_epsilon=epsilon,
            spent_delta=delta,
            remaining_epsilon=remaining if remaining >= LEAST_EPSILON else 0.0,
            used=header.rule.used(totals),
            debits=debits,
            head=book.head,
        )

    def history(self, *, count: int | None = None, before: int | None = None) -> list[dict[str, Any]]:
        """Debits: time, who, purpose, guarantee, whether it was delivered, and the share used after it.

        Parameters
        ----------
        count : int, optional
            Only the newest so many; all of them if left out.
        before : int, optional
            The number of an entry: only debits before it, where ``count`` is given.
        """
        with self._reading() as book:
            rule = book.header.rule
            if count is None:
                debits = [entry for entry in book.entries if entry.kind == "debit"]
                delivered = {str(entry.content.get("debit")) for entry in book.entries if entry.kind == "delivered"}
            else:
                debits = book.newest_debits(count, before)
                delivered = {str(number) for number in book.delivered(debits)}
        return [
            {
                "entry": entry.number,
                "time": entry.time,
                "who": entry.who,
                "purpose": entry.purpose,
                "guarantee": entry.content,
                "status": "delivered" if str(entry.number) in delivered else "spent, not delivered",
                "head": entry.hash,
                "used": rule.used(entry.totals),
            }
            for entry in debits
        ]

    def verify(self, head: str | None = None) -> str:
        """Recompute the hash chain, every total and the count of debits; return the head, or raise `TamperedLedger`.

        Parameters
        ----------
        head : str, optional
            A head published earlier (every stamped guarantee has one). If it is not in the chain, the ledger was
            edited or rolled back since.
        """
        with self._reading() as book:
            seen = [book.start, *(entry.hash for entry in book.entries)]
            _check_chain(book)
        if head is not None and head not in seen:
            raise TamperedLedger(
                f"the head {head[:12]}… is not in the chain of {self.dataset!r}: the ledger was rolled back or edited"
            )
        return book.head

    def _check_promise(self, guarantee: Guarantee) -> None:
        if not isinstance(guarantee, Guarantee):
            raise InvalidInput("only a Guarantee can be debited")
        if guarantee.void_reason or math.isinf(guarantee.epsilon):
            raise BudgetExceeded(
                f"ledger of {self.dataset!r} refused: the release promises nothing "
                f"({guarantee.void_reason or 'epsilon is infinite'}), and a budget cannot pay for that; "
                "nothing was spent"
            )
        if guarantee.epsilon < LEAST_EPSILON:
            raise InvalidInput(
                f"ledger of {self.dataset!r} refused: requested epsilon {guarantee.epsilon:.6g}, and a debit takes at "
                f"least epsilon {LEAST_EPSILON:g}, whatever its delta; ask for more, or make several releases into "
                "one. Nothing was spent"
            )

    def _check_unit(self, guarantee: Guarantee, header: Header) -> None:
        if (guarantee.relation, guarantee.rows_per_person) != (header.relation, header.rows_per_person):
            raise BudgetExceeded(
                f"ledger of {self.dataset!r} refused: it counts {header.relation} with rows_per_person="
                f"{header.rows_per_person}, the request is {guarantee.relation} with rows_per_person="
                f"{guarantee.rows_per_person}; make the release for the ledger's unit; nothing was spent"
            )

    def _refusal(self, guarantee: Guarantee, rule: Filter, totals: Totals, header: Header) -> str:
        epsilon, delta = rule.sums(totals)
        requested, spent = _budget_text(guarantee.epsilon, guarantee.delta), _budget_text(epsilon, delta)
        return (
            f"ledger of {self.dataset!r} refused: requested {requested}, spent {spent} of "
            f"{_budget_text(header.epsilon, header.delta)} ({rule.name} rule), remaining epsilon "
            f"{rule.remaining(totals):.6g}; nothing was spent{self._hint(guarantee, rule, totals)}"
        )

    @staticmethod
    def _hint(guarantee: Guarantee, rule: Filter, totals: Totals) -> str:
        """What to do where only delta stands in the way, of which a concentrated rule keeps most for itself."""
        limits = rule.clauses[0]
        left = limits["delta"] - totals["delta"]
        if rule.name == "pure" or totals["epsilon"] + exact(guarantee.epsilon) > limits["epsilon"] or left <= 0:
            return ""
        return (
            f". The {rule.name} rule leaves delta = {decimal_down(left)} to a release as large as this: ask for no "
            "more, or create the ledger with rule='pure', which suits a few large releases"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.url, self.dataset, self.who, self._start, self._seen[0])

    def __repr__(self) -> str:
        return f"Ledger({self._store.shown!r}, dataset={self.dataset!r})"


class Held:
    """A ledger that debits at once, and records the delivery only when told that the release has arrived.

    For a release that is not there before it has been written to disk: whatever ends the process in between, the ledger
    reads "spent, not delivered".

    Parameters
    ----------
    ledger : Ledger or None
        None debits nothing.
    purpose : str, optional
        Written into the ledger instead of what the release says of itself.
    """

    def __init__(self, ledger: Ledger | None, purpose: str | None = None) -> None:
        self._ledger, self._purpose = ledger, purpose
        self._debits: list[tuple[Guarantee, str]] = []

    @contextmanager
    def spend(self, guarantee: Guarantee, purpose: str = "") -> Iterator[Guarantee]:
        """Debit on entering."""
        if self._ledger is None:
            yield guarantee
            return
        purpose = self._purpose or purpose
        stamped = self._ledger.debit(guarantee, purpose)
        self._debits.append((stamped, purpose))
        yield stamped

    @property
    def debited(self) -> bool:
        """Whether anything was debited that has not arrived yet."""
        return bool(self._debits)

    def arrived(self) -> None:
        """Record the delivery of everything debited so far."""
        while self._debits and self._ledger is not None:
            self._ledger.deliver(*self._debits[0])
            self._debits.pop(0)


def _header(dataset: str, epsilon: float, delta: float, rule: str | None, rows_per_person: int) -> Header:
    """What is fixed when a ledger is created, checked."""
    epsilon, delta = check_budget(epsilon, delta)
    if epsilon < LEAST_EPSILON:
        raise InvalidInput(
            f"a budget must be at least epsilon {LEAST_EPSILON:g}, the least that a debit can take; got {epsilon:g}"
        )
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    if not isinstance(dataset, str) or not dataset.strip() or not is_line(dataset):
        raise InvalidInput("dataset must be a printable name")
    rule_fixed = Filter.of(rule or ("zcdp" if delta else "pure"), epsilon, delta)
    return Header(dataset, float(epsilon), float(delta), rule_fixed, REPLACE_ONE, rows_per_person)


def _check_chain(book: Book) -> None:
    """Walk the entries: numbers, hashes, totals, the head, and what was counted of them."""
    rule, totals, previous = book.header.rule, book.header.rule.zero(), book.start
    debits: set[int] = set()
    for number, entry in enumerate(book.entries, start=1):
        where = f"entry {number} of {book.dataset!r}"
        if entry.number != number:
            raise TamperedLedger(f"{where} is missing: the ledger was edited")
        if entry.previous != previous or entry.hash != entry.digest():
            raise TamperedLedger(f"{where} was edited: its hash does not fit")
        if entry.kind == "debit":
            debits.add(number)
            totals = rule.add(totals, _promise_in(entry.content, where))
        elif entry.kind != "delivered" or entry.content.get("debit") not in debits:
            raise TamperedLedger(f"{where} delivers a debit that does not exist")
        if totals != entry.totals or not rule.admits(totals):
            raise TamperedLedger(f"{where} carries a wrong total: the ledger was edited")
        previous = entry.hash
    if book.head != previous or book.length != len(book.entries):
        raise TamperedLedger(f"the last entries of {book.dataset!r} are missing: the ledger was edited")
    counted = book.count
    if counted is not None and counted.debits != sum(number <= counted.number for number in debits):
        raise TamperedLedger(f"the debits of {book.dataset!r} were counted wrongly: the ledger was edited")


def _promise_in(content: dict[str, Any], where: str) -> Guarantee:
    try:
        return Guarantee.from_dict(content)
    except (InvalidInput, TypeError, ValueError, KeyError, ArithmeticError):
        raise TamperedLedger(f"{where} holds no promise: the ledger was edited") from None


def _reopen(url: str, dataset: str, who: str, start: str, seen: Mark | None = None) -> Ledger:
    """The handle that was pickled, with what it had seen; earlier versions pickled none of that."""
    ledger = Ledger(url, dataset=dataset, who=who)
    ledger._start = start
    if seen is not None:
        ledger._seen = [seen]
    return ledger


def _budget_text(epsilon: float, delta: float) -> str:
    return f"epsilon {epsilon:.6g}" + (f", delta {delta:.3g}" if delta else "")


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
