"""Asking a server: a small client that needs nothing but Python."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from epsilearn.errors import BudgetExceeded, EpsilearnError, InvalidInput
from epsilearn.guarantee import Guarantee

__all__ = ["Budget", "Client", "DataSet", "Prediction", "Release", "ServerError", "Statistic"]

Value = str | float | bool | None
T = TypeVar("T")
_PAGE = 1000  # debits told at a time


class ServerError(EpsilearnError):
    """The server refused or could not answer; ``status`` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Budget:
    """Where the budget of a data set stands; ``used`` is the share that is gone."""

    epsilon: float
    delta: float
    rule: str
    spent_epsilon: float
    spent_delta: float
    remaining_epsilon: float
    used: float
    debits: int


@dataclass(frozen=True)
class DataSet:
    """A data set this key is for."""

    name: str
    rows: int
    balance: Budget


@dataclass(frozen=True)
class Release:
    """Something that can be asked or downloaded."""

    id: str
    dataset: str
    kind: str
    target: str | None
    status: str
    epsilon: float
    delta: float
    note: str
    message: str = ""


@dataclass(frozen=True)
class Prediction:
    """The answer at one point; ``private`` says where it came from, for interactive sessions."""

    prediction: Value
    score: float | None
    private: bool | None = None


@dataclass(frozen=True)
class Statistic:
    """A private statistic and its promise; ``asked_before`` if it cost nothing because somebody had asked."""

    value: float | list[int]
    bins: list[str] | None
    half_width_95: float | None
    guarantee: Guarantee
    asked_before: bool


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key goes to the server it is for, and to no other that this one names."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """A server's answers, as Python objects.

    Parameters
    ----------
    url : str
        Where the server is.
    key : str
        From the data holder.
    timeout : float
        Seconds to wait for one answer.
    context : ssl.SSLContext, optional
        For a server whose certificate this machine does not know.

    Examples
    --------
    >>> from epsilearn import Client
    >>> client = Client("https://learner.example", key="epsk_...")
    >>> client.url
    'https://learner.example'
    """

    def __init__(self, url: str, key: str, *, timeout: float = 120.0, context: ssl.SSLContext | None = None) -> None:
        parsed = urllib.parse.urlsplit(url)
        if parsed.scheme not in ("http", "https") or not parsed.netloc:
            raise InvalidInput(f"{url!r} is no server's address; it starts with https:// or http://")
        if not key.isascii() or not key.isprintable():
            raise InvalidInput("that is no key: keys are plain letters and digits")
        self.url, self._key, self._timeout = url.rstrip("/"), key, timeout
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    # ----------------------------------------------------------------------------------------------------- asking

    def datasets(self) -> list[DataSet]:
        """The data sets this key is for, each with its budget."""
        return [_data_set(found) for found in self._call("GET", "/api/datasets")]

    def budget(self, dataset: str) -> Budget:
        """What has been spent of a data set's budget, and what is left."""
        return _of(Budget, self._call("GET", f"/api/datasets/{_quoted(dataset)}")["balance"])

    def spending(self, dataset: str) -> list[dict[str, Any]]:
        """What was spent when, by whom, for what: every debit, in their order."""
        path, found = f"/api/datasets/{_quoted(dataset)}/spending?count={_PAGE}", list[dict[str, Any]]()
        while page := self._call("GET", f"{path}&before={found[0]['entry']}" if found else path)["spending"]:
            found = page + found
        return found

    def releases(self, dataset: str) -> list[Release]:
        """What has been opened on a data set, the newest first."""
        return [_of(Release, found) for found in self._call("GET", f"/api/datasets/{_quoted(dataset)}")["releases"]]

    def release(self, release: str) -> Release:
        """One release."""
        return _of(Release, self._call("GET", f"/api/releases/{_quoted(release)}"))

    def predict(self, release: str, rows: list[dict[str, Value]]) -> list[Prediction]:
        """Private predictions at points that have the schema's columns, in order."""
        found = self._call("POST", f"/api/releases/{_quoted(release)}/predict", {"rows": rows})
        return [_of(Prediction, answer) for answer in found["answers"]]

    def statistic(
        self, release: str, statistic: str, column: str, *, epsilon: float, equals: Value = None,
        edges: list[float] | None = None, q: float | None = None,
    ) -> Statistic:  # fmt: skip
        """A private statistic of a column; debited, unless somebody has asked the same before."""
        optional = {"equals": equals, "edges": edges, "q": q}
        asked: dict[str, Any] = {"statistic": statistic, "column": column, "epsilon": epsilon}
        asked |= {name: value for name, value in optional.items() if value is not None}
        found = self._call("POST", f"/api/releases/{_quoted(release)}/statistic", asked)
        return _of(Statistic, {**found, "guarantee": Guarantee.from_dict(found["guarantee"])})

    def guarantee(self, release: str) -> Guarantee:
        """What a release promises."""
        return Guarantee.from_json(self._download(release, "guarantee.json"))

    def report(self, release: str) -> str:
        """The report for people, as HTML."""
        return self._download(release, "report.html")

    def model(self, release: str) -> Any:
        """A released model, ready to predict here: see `epsilearn.load`."""
        from epsilearn.model_file import model_from_json

        return model_from_json(self._download(release, "model.json"))

    # ---------------------------------------------------------------------------------------------------- holding

    def register(
        self, name: str, file: str, schema: str, *, epsilon: float, delta: float = 0.0, rule: str | None = None
    ) -> DataSet:
        """Register a table of the server's folder with its schema, as TOML, and its budget for good."""
        asked = {"name": name, "file": file, "schema_toml": schema, "epsilon": epsilon, "delta": delta, "rule": rule}
        return _data_set(self._call("POST", "/api/datasets", asked))

    def bill(self, dataset: str, kind: str, **settings: Any) -> tuple[Budget, Budget]:
        """The budget before and after a release would be opened; nothing is debited."""
        found = self._call("POST", f"/api/datasets/{_quoted(dataset)}/bill", {"kind": kind, **settings})
        return _of(Budget, found["before"]), _of(Budget, found["after"])

    def open(self, dataset: str, kind: str, *, wait: float = 600.0, **settings: Any) -> Release:
        """Open a release and wait until it can be asked.

        Parameters
        ----------
        dataset : str
        kind : {"process", "interactive", "model", "statistics"}
        wait : float
            Seconds; 0 returns at once, while the release is still being opened.
        **settings
            As the API's description says: ``target``, ``epsilon``, ``delta``, ``kernel``, ...
        """
        path = f"/api/datasets/{_quoted(dataset)}/releases"
        found, end = _of(Release, self._call("POST", path, {"kind": kind, **settings})), time.monotonic() + wait
        while found.status == "opening" and time.monotonic() < end:
            time.sleep(0.2)
            found = self.release(found.id)
        if found.status == "failed":
            raise ServerError(409, f"the release could not be opened: {found.message}")
        return found

    def close(self, release: str) -> None:
        """End a release; what was debited stays debited."""
        self._call("POST", f"/api/releases/{_quoted(release)}/close")

    def create_key(
        self, name: str, role: str = "analyst", datasets: list[str] | None = None, days: float | None = None
    ) -> str:
        """A new key, told this once."""
        asked = {"name": name, "role": role, "datasets": datasets, "days": days}
        return str(self._call("POST", "/api/keys", asked)["key"])

    # ---------------------------------------------------------------------------------------------------- calling

    def _download(self, release: str, name: str) -> str:
        return self._text("GET", f"/api/releases/{_quoted(release)}/documents/{name}", None)

    def _call(self, method: str, path: str, content: Any = None) -> Any:
        text = self._text(method, path, content)
        return json.loads(text) if text else None

    def _text(self, method: str, path: str, content: Any) -> str:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            body = None if content is None else json.dumps(_plain(content), allow_nan=False).encode()
        except (TypeError, ValueError):
            raise InvalidInput("a question may hold texts, finite numbers, true and false") from None
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise _fault(error.code, error.read()) from None
        except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            raise ServerError(0, f"no answer from {self.url}: {getattr(error, 'reason', error)}") from None


def _plain(content: Any) -> Any:
    """Numbers of numpy as Python's own."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    return content.item() if hasattr(content, "item") else content


def _fault(status: int, body: bytes) -> EpsilearnError:
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the server answered with status {status}"
    if status == 422:
        return InvalidInput(text)
    return BudgetExceeded(text) if "refused: requested" in text else ServerError(status, text)


def _of(kind: type[T], content: dict[str, Any]) -> T:
    """The fields this version knows; a newer server may tell more."""
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in content.items() if name in known})


def _data_set(content: dict[str, Any]) -> DataSet:
    return DataSet(content["name"], content["rows"], _of(Budget, content["balance"]))


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
