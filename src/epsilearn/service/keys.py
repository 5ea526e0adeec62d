"""Keys: who may do what with which data sets. Only their digests are kept."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from epsilearn.database import Database
from epsilearn.errors import EpsilearnError, InvalidInput
from epsilearn.service import store

__all__ = [
    "ANALYST", "HOLDER", "ROLES", "Caller", "Keys", "UnknownKey", "check_name", "is_key", "is_name", "unknown_key",
]  # fmt: skip

HOLDER, ANALYST = "holder", "analyst"
ROLES = (HOLDER, ANALYST)
_FORM = re.compile(r"epsk_([0-9a-f]{16})_([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_DAYS = 36_500


class UnknownKey(EpsilearnError):
    """The key is wrong, revoked or expired; which of these is nobody's business."""


@dataclass(frozen=True)
class Caller:
    """Somebody whose key was found good.

    Attributes
    ----------
    key : str
        The key's public name.
    role : {"holder", "analyst"}
    name : str
        Written into the ledger and the log.
    datasets : tuple of str or None
        Those the key is for; None for all.
    expires : str or None
        When it ends, if it does.
    """

    key: str
    role: str
    name: str
    datasets: tuple[str, ...] | None
    expires: str | None = None

    @property
    def label(self) -> str:
        """How the ledger knows somebody: names may be given twice, keys not."""
        return f"{self.name} ({self.key[:6]})"

    def may_see(self, dataset: str) -> bool:
        return self.datasets is None or dataset in self.datasets


def is_name(name: Any) -> bool:
    """Whether it can stand in a path, a ledger and a log: letters, digits, dots, dashes."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(what: str, name: Any) -> str:
    """A name, or an error that says what one is."""
    if not is_name(name):
        raise InvalidInput(
            f"{what} must be 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit"
        )
    return str(name)


class Keys:
    """The keys in a server's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        role: str,
        name: str,
        datasets: list[str] | None,
        who: str,
        days: float | None = None,
        latest: str | None = None,
    ) -> tuple[str, str]:
        """A new key, told this once, and the name by which it is revoked.

        Parameters
        ----------
        role : {"holder", "analyst"}
        name : str
            Whose it is.
        datasets : list of str or None
            What it is for; None for everything, also what is registered later.
        who : str
            Who made it.
        days : float, optional
            After which it expires.
        latest : str, optional
            When it expires at the latest: nobody gives away more than they have.
        """
        if role not in ROLES:
            raise InvalidInput(f"a key's role is {' or '.join(ROLES)}, not {role!r}")
        check_name("a key's name", name)
        for dataset in datasets or []:
            check_name("a data set's name", dataset)
        if days is not None and not 0 < days <= _LONGEST_DAYS:
            raise InvalidInput(f"a key lasts more than 0 and at most {_LONGEST_DAYS:,} days")
        made, secret = secrets.token_hex(8), secrets.token_hex(32)
        created = store.now()
        expires = latest
        if days is not None:
            ends = (datetime.fromisoformat(created) + timedelta(days=days)).isoformat(timespec="microseconds")
            expires = ends if latest is None else min(ends, latest)
        row = {
            "id": made, "digest": _digest(secret), "role": role, "name": name, "created": created, "who": who,
            "datasets": json.dumps(datasets), "expires": expires, "revoked": None,
        }  # fmt: skip
        with self._database.transaction(write=True) as connection:
            connection.execute(store.keys.insert().values(**row))
        return f"epsk_{made}_{secret}", made

    def check(self, text: str) -> Caller:
        """Whose key this is; `UnknownKey` if it is nobody's, any more or yet."""
        form = _FORM.fullmatch(text)
        made, secret = form.groups() if form else ("", "")
        with self._database.transaction(write=False) as connection:
            row = connection.execute(store.keys.select().where(store.keys.c.id == made)).first()
        # As much work for a name that does not exist.
        same = hmac.compare_digest(_digest("") if row is None else row.digest, _digest(secret))
        ended = row is None or row.revoked is not None or (row.expires is not None and row.expires <= store.now())
        if row is None or ended or not same:
            raise unknown_key()
        return Caller(row.id, row.role, row.name, _names(row.datasets), row.expires)

    def revoke(self, key: str) -> bool:
        """End a key; False if there is none of that name."""
        with self._database.transaction(write=True) as connection:
            chosen = store.keys.c.id == key
            found = connection.execute(sa.select(store.keys.c.revoked).where(chosen)).first()
            if found is not None and found.revoked is None:
                connection.execute(store.keys.update().where(chosen).values(revoked=store.now()))
        return found is not None

    def listed(self) -> list[dict[str, Any]]:
        """Every key but for its secret, the newest first."""
        with self._database.transaction(write=False) as connection:
            rows = connection.execute(store.keys.select().order_by(store.keys.c.created.desc())).all()
        return [
            {
                **{name: getattr(row, name) for name in ("id", "role", "name", "created", "who", "expires", "revoked")},
                "datasets": None if row.datasets == "null" else json.loads(row.datasets),
            }
            for row in rows
        ]


def is_key(text: str) -> bool:
    """Whether a text has the form of a key; if not, it is nobody's, and not worth a look into the database."""
    return _FORM.fullmatch(text) is not None


def unknown_key() -> UnknownKey:
    """What everybody is told whose key is not good."""
    return UnknownKey("this key is not valid: it is wrong, expired or revoked; ask the data holder for one")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _names(text: str) -> tuple[str, ...] | None:
    found = json.loads(text)
    return None if found is None else tuple(found)
