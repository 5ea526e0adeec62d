"""What a server is told before it starts: where it listens, where its state and the tables are, what it allows."""

from __future__ import annotations

import ipaddress
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from epsilearn.database import sqlite_path
from epsilearn.errors import InvalidInput

__all__ = ["Configuration", "Limits"]


@dataclass(frozen=True)
class Limits:
    """What a server allows of one request, one key, one connection and its log.

    Attributes
    ----------
    rows_per_request : int
        How many points one request may ask about.
    body_bytes : int
        How long the body of a request may be.
    requests_per_minute : int
        How many calls a key may make; an address that gives wrong keys may try a tenth as often, and ask as often for
        what needs no key (ten times as often for /healthz). Counted by each worker, for its share: a connection that
        stays with one of several gets no more than that.
    pad_seconds : float
        Answers of interactive sessions leave at multiples of this, so that time does not tell where they came from.
    memory_gib : float
        How much memory one table may take, encoded, and the kernel values between its rows while it is opened.
    sessions_gib : float
        How much memory the noise of all live sessions may take together, in each worker: a session's grows with the
        square of the points asked. Who was asked longest ago lets go of it first.
    calls_at_once : int
        How many calls of one key a worker has in hand at a time, answers that were not taken yet included; more are
        told to come back.
    connections : int
        How many connections a worker keeps open; at most half of the files that it may open. One more takes the place
        of the one that has waited longest for its first request, or else of one that is idle.
    header_seconds : float
        In which a connection must be encrypted, if it is to be, and the header of a request be complete.
    body_seconds : float
        In which the body of a request must be complete, and after which somebody who takes a long answer must have
        taken 10 kB a second.
    keep_alive_seconds : float
        After which a connection without a request is closed.
    log_calls : int
        How many calls the log lists one by one; older ones are counted by the day.
    log_days : float
        For how many days it lists them, and keeps counts of refused ones.
    """

    rows_per_request: int = 1000
    body_bytes: int = 4_000_000
    requests_per_minute: int = 600
    pad_seconds: float = 0.25
    memory_gib: float = 4.0
    sessions_gib: float = 2.0
    calls_at_once: int = 64
    connections: int = 500
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    keep_alive_seconds: float = 20.0
    log_calls: int = 1_000_000
    log_days: float = 400.0


@dataclass(frozen=True)
class Configuration:
    """Everything about a server that its database does not hold.

    Attributes
    ----------
    database : str
        A SQLite file, made if it does not exist, or a PostgreSQL URL.
    tables : Path
        The folder that data sets' files are in; no other file is ever opened as a table.
    host, port : str, int
        Where to listen.
    workers : int
        How many processes answer.
    certificate, private_key : Path, optional
        For HTTPS. Without them only this machine's own address is listened at, unless ``plain_http`` says that
        somebody else takes care of encryption.
    plain_http : bool
        Listen beyond this machine without encryption: behind a proxy that adds it.
    limits : Limits

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> made = Configuration.from_dict({"database": "state.db", "tables": "."}, Path(folder))
    >>> made.host, made.port, made.limits.rows_per_request
    ('127.0.0.1', 8750, 1000)
    """

    database: str
    tables: Path
    host: str = "127.0.0.1"
    port: int = 8750
    workers: int = 1
    certificate: Path | None = None
    private_key: Path | None = None
    plain_http: bool = False
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def read(cls, path: str | Path) -> Configuration:
        """The configuration in a TOML file; paths in it are relative to its folder."""
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInput(f"cannot read the configuration {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not UTF-8 text, so it is no configuration") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidInput(f"the configuration is not TOML: {error}") from None
        return cls.from_dict(data, path.parent)

    @classmethod
    def from_dict(cls, data: dict[str, Any], folder: Path) -> Configuration:
        """The configuration as plain data, paths relative to a folder."""
        known = _checked(cls, data, "the configuration")
        for name in ("database", "tables"):
            if name not in known:
                raise InvalidInput(f"the configuration must say {name} = ...")
        for name in ("tables", "certificate", "private_key"):
            if name in known:
                known[name] = (folder / known[name]).absolute()
        file = sqlite_path(known["database"]) if "://" not in known["database"] else None
        if file is not None:
            known["database"] = str((folder / known["database"]).absolute())
        if "limits" in known:
            known["limits"] = Limits(**_positive(_checked(Limits, known["limits"], "[limits]")))
        made = cls(**known)
        made._check()
        return made

    def _check(self) -> None:
        if not self.tables.is_dir():
            raise InvalidInput(f"there is no folder {self.tables}; tables = ... must name the one with the data sets")
        if not 0 <= self.port < 65536:
            raise InvalidInput("port must be a number between 0 and 65535")
        if not 1 <= self.workers <= 64:
            raise InvalidInput("workers must be a number between 1 and 64")
        if (self.certificate is None) != (self.private_key is None):
            raise InvalidInput("HTTPS needs both certificate = ... and private_key = ...")
        if self.certificate is None and not self.plain_http and not _is_loopback(self.host):
            raise InvalidInput(
                f"keys and answers would travel from {self.host} unencrypted; give certificate and private_key, or say "
                "plain_http = true if a proxy in front adds encryption"
            )


def _checked(kind: type, data: object, where: str) -> dict[str, Any]:
    """A table of the configuration with no unknown word, every value of its type."""
    if not isinstance(data, dict):
        raise InvalidInput(f"{where} must be a table")
    names = {f.name: str(f.type) for f in fields(kind)}
    unknown = sorted(set(data) - set(names))
    if unknown:
        raise InvalidInput(f"{where} knows no {unknown[0]!r}; it knows {', '.join(names)}")
    wanted: dict[str, tuple[type, str]] = {
        "bool": (bool, "true or false"),
        "int": (int, "a whole number"),
        "float": (float, "a number"),
        "Limits": (dict, "a table"),
    }
    for name, value in data.items():
        expected, words = wanted.get(names[name], (str, "a text"))
        plain = isinstance(value, expected) or (expected is float and isinstance(value, int))
        if not plain or (isinstance(value, bool) and expected is not bool):
            raise InvalidInput(f"{where}: {name} must be {words}")
    return dict(data)


def _positive(numbers: dict[str, Any]) -> dict[str, Any]:
    for name, number in numbers.items():
        if not 1e-3 <= number <= 1e12:
            raise InvalidInput(f"[limits] {name} must be at least 0.001, and no more than 1e12")
    return numbers


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
