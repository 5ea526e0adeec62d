"""Releases: opened once, paid for once, asked by anybody who may, in any process."""

from __future__ import annotations

import json
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from epsilearn.checks import as_line, within_doubles
from epsilearn.database import Database
from epsilearn.errors import EpsilearnError
from epsilearn.guarantee import Guarantee
from epsilearn.ledger import Balance, Held
from epsilearn.mechanisms.session import factor_bytes
from epsilearn.service import store
from epsilearn.service.asker import Asker
from epsilearn.service.kept import DatabaseSession
from epsilearn.service.keys import is_name
from epsilearn.service.kinds import Kind, Stored, kind_of
from epsilearn.service.leave import Leave, give_up_claims, statistics_promise
from epsilearn.service.messages import OpenRelease
from epsilearn.service.pace import Pace
from epsilearn.service.room import Room
from epsilearn.service.tables import DataSet, NotFound, Tables, Taken

__all__ = ["Release", "Releases", "sweep"]

OPENING, OPEN, FAILED, CLOSED = "opening", "open", "failed", "closed"
_SETTINGS: TypeAdapter[Any] = TypeAdapter(OpenRelease)


@dataclass(frozen=True)
class Release:
    """A release as it stands in the database."""

    id: str
    dataset: str
    kind: str
    settings: Any
    status: str
    message: str
    facts: dict[str, Any]
    created: str
    who: str

    @property
    def guarantee(self) -> Guarantee | None:
        found = self.facts.get("guarantee")
        return None if found is None else Guarantee.from_dict(found)


class Releases:
    """The releases of a server.

    Parameters
    ----------
    database : Database
        The server's.
    tables : Tables
        Its data sets.
    room : Room
        The memory that live sessions may take.
    pad : float
        Answers of interactive sessions are written down and leave at multiples of so many seconds.
    complain : callable
        Told the kind and place of an unexpected error, never its text.
    """

    def __init__(
        self, database: Database, tables: Tables, room: Room, pad: float, complain: Callable[[BaseException], None]
    ) -> None:
        self._database, self._tables, self._room = database, tables, room
        self._pad, self._complain = pad, complain
        self.leave = Leave(database, tables)
        # One fit at a time: each takes all processors.
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="epsilearn-opener")
        self._askers: dict[str, Asker] = {}
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    # ---------------------------------------------------------------------------------------------------- opening

    def bill(self, dataset: DataSet, settings: Any, who: str) -> tuple[Guarantee, Balance, Balance]:
        """What opening would cost, where the budget is and where it would be; or the refusal. Nothing is debited."""
        promise, ledger = self._promise(dataset, settings), self._tables.ledger(dataset.name, who)
        return promise, ledger.balance(), ledger.balance(after=promise)

    def open(self, dataset: DataSet, settings: Any, who: str) -> str:
        """Write a release down and open it in the background; what can be refused at once is refused at once."""
        promise = self._promise(dataset, settings)
        self._tables.ledger(dataset.name, who).check(promise)
        release, direct = secrets.token_hex(8), settings.kind == "statistics"
        row = {
            "id": release, "dataset": dataset.name, "kind": settings.kind, "settings": settings.model_dump_json(),
            "status": OPEN if direct else OPENING, "message": "", "facts": "{}", "created": store.now(), "who": who,
        }  # fmt: skip
        with self._database.transaction(write=True) as connection:
            connection.execute(store.releases.insert().values(**row))
        if not direct:
            self._opener.submit(self._open, release, kind_of(dataset, settings), who)
        return release

    def _promise(self, dataset: DataSet, settings: Any) -> Guarantee:
        if settings.kind == "statistics":
            return statistics_promise(settings.epsilon, dataset.schema.rows_per_person)
        kind = kind_of(dataset, settings)
        self._room.check(factor_bytes(kind.points()), kind.points())
        self._tables.check_memory(kind.memory())
        with within_doubles():
            return kind.promise()

    def _open(self, release: str, kind: Kind, who: str) -> None:
        ledger = self._tables.ledger(kind.dataset.name, who)
        note = f": {kind.settings.note}" if kind.settings.note else ""
        # A column may be called anything; the ledger takes one line.
        held = Held(ledger, as_line(f"open {kind.settings.kind} of {kind.settings.target}{note}"))
        try:
            opened = kind.open(self._tables, held, DatabaseSession(self._database, release), ledger.balance)
            facts = json.dumps({**opened.facts, "guarantee": opened.guarantee.to_dict()})
            texts = [{"release": release, "name": n, "content": text} for n, text in opened.documents.items()]
            with self._database.transaction(write=True) as connection:
                if not self._end_opening(connection, release, status=OPEN, facts=facts):
                    return  # closed, or given up: what was debited stands
                connection.execute(store.documents.insert(), texts)
        except EpsilearnError as error:
            self._fail(release, str(error))
            return
        except BaseException as error:
            self._complain(error)
            self._fail(release, f"unexpected {type(error).__name__}; a debit, if there was one, stands")
            return
        try:
            held.arrived()
        except EpsilearnError as error:
            # It is open all the same; the ledger goes on reading "spent, not delivered".
            self._complain(error)

    def _fail(self, release: str, message: str) -> None:
        with self._database.transaction(write=True) as connection:
            self._end_opening(connection, release, status=FAILED, message=message)

    @staticmethod
    def _end_opening(connection: sa.Connection, release: str, **values: str) -> bool:
        """Whether the release was still being opened, and now is not."""
        table = store.releases
        mine = (table.c.id == release) & (table.c.status == OPENING)
        return connection.execute(table.update().where(mine).values(**values)).rowcount == 1

    def close(self, release: str) -> None:
        """No more questions, also before it is open; what was debited stays debited."""
        table = store.releases
        with self._database.transaction(write=True) as connection:
            self._row(connection, release, lock=True)
            mine = (table.c.id == release) & table.c.status.in_([OPENING, OPEN])
            connection.execute(table.update().where(mine).values(status=CLOSED))
        self._drop(release)

    def _drop(self, release: str) -> None:
        """Let go of the rows that a release held in this process."""
        found = self._askers.pop(release, None)
        if found is not None:
            self._room.leave(release)
            found.close()

    def shut(self) -> None:
        """Finish what is being opened, and stop answering."""
        self._opener.shutdown(wait=True, cancel_futures=True)
        for release in list(self._askers):
            self._drop(release)

    # ------------------------------------------------------------------------------------------------------ asking

    def of(self, dataset: str) -> list[Release]:
        """All releases of a data set, the newest first."""
        table = store.releases
        query = table.select().where(table.c.dataset == dataset).order_by(table.c.created.desc())
        with self._database.transaction(write=False) as connection:
            return [_release(row) for row in connection.execute(query)]

    def get(self, release: str) -> Release:
        with self._database.transaction(write=False) as connection:
            return _release(self._row(connection, release))

    def documents(self, release: str) -> dict[str, str]:
        """What may be downloaded, by name."""
        query = sa.select(store.documents).where(store.documents.c.release == release)
        with self._database.transaction(write=False) as connection:
            return {row.name: row.content for row in connection.execute(query)}

    def loaded(self, release: Release) -> Asker | None:
        """Who answers for a release in this process, if anybody does yet."""
        if release.status != OPEN:
            self._drop(release.id)
            raise Taken(f"this release is {release.status}: it takes no questions")
        return self._askers.get(release.id)

    def asker(self, release: Release) -> Asker:
        """Who answers for a release in this process; the first time its rows are read for that."""
        found = self.loaded(release)
        if found is not None:
            return found
        with self._loading[release.id]:
            if release.id not in self._askers:
                kind = kind_of(self._tables.get(release.dataset), release.settings)
                pace = Pace(self._pad if kind.padded else 0.0)
                live = kind.live(self._tables, self._stored(release, kind, self.documents(release.id), pace))
                self._room.enter(release.id, live.rest)
                self._askers[release.id] = Asker(live, pace)
            return self._askers[release.id]

    def left(self, release: Release) -> dict[str, float | None]:
        """What may still be asked of a release, by what was answered so far; it waits for nobody."""
        if release.kind == "statistics":
            return {"epsilon": self.leave.left(release.id, release.settings.epsilon)}
        if release.status != OPEN:
            return {}
        kind = kind_of(self._tables.get(release.dataset), release.settings)
        return kind.left(self._stored(release, kind, {}))

    def _stored(self, release: Release, kind: Kind, documents: dict[str, str], pace: Pace | None = None) -> Stored:
        session = DatabaseSession(
            self._database, release.id, begun=True, reserve=partial(self._room.reserve, release.id),
            private=kind.private, wait=None if pace is None else pace.wait,
        )  # fmt: skip
        return Stored(session, release.facts, documents)

    @staticmethod
    def _row(connection: sa.Connection, release: str, *, lock: bool = False) -> Any:
        query = store.releases.select().where(store.releases.c.id == release)
        row = connection.execute(query.with_for_update() if lock else query).first() if is_name(release) else None
        if row is None:
            raise NotFound(f"there is no release {release!r}, or none that this key is for")
        return row


def _release(row: Any) -> Release:
    settings = json.loads(row.settings)
    # Earlier versions took notes that are refused now.
    settings["note"] = as_line(settings["note"])
    content = {field.name: getattr(row, field.name) for field in fields(Release)}
    content |= {"settings": _SETTINGS.validate_python(settings), "facts": json.loads(row.facts)}
    return Release(**content)


def sweep(database: Database) -> None:
    """What a server that is no more left unfinished has failed; the ledger knows whether it was paid for.

    Only while no server runs.
    """
    message = "the server stopped while this was being opened; a debit, if there was one, stands"
    table = store.releases
    with database.transaction(write=True) as connection:
        connection.execute(table.update().where(table.c.status == OPENING).values(status=FAILED, message=message))
    give_up_claims(database)
