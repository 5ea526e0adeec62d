"""A whole server in this process, on which every route is tried."""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.joints.commands import written
from tests.joints.homes import folder
from tests.joints.models import PUBLIC

from epsilearn.service.app import create
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.store import opened_store

PATIENCE = 600  # seconds for a release to open, on a machine that has much else to do
CONFIGURATION = 'database = "state.db"\ntables = "tables"\n[limits]\npad_seconds = 0.01\n'


@contextlib.contextmanager
def inherited_context() -> Iterator[None]:
    """Threads that are started inside see the context of whoever starts them, and so the tape of a replay."""
    usual = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        context, run = contextvars.copy_context(), thread.run
        thread.run = lambda: context.copy().run(run)  # type: ignore[method-assign]
        usual(thread)

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = usual  # type: ignore[method-assign]


def service(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """Register, open, ask, close, and look at every route."""
    from starlette.testclient import TestClient

    with folder() as place, inherited_context():
        (place / "tables").mkdir()
        _, schema = written(place / "tables", X, y, "csv", True)
        (place / "config.toml").write_text(CONFIGURATION)
        configuration = Configuration.read(place / "config.toml")
        key = Keys(opened_store(configuration.database, make=True)).create("holder", "ruth", None, "tests", None)[0]
        app = create(configuration)
        with TestClient(app, headers={"Authorization": f"Bearer {key}"}) as client:
            visit = _Visit(client)
            _visited(visit, app.state.parts, kind, schema.read_text())
        routes = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
        assert visit.routes == routes, "a route that nobody looks at"
        return visit.seen


class _Visit:
    """Calls, each kept by a name."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.seen: dict[str, Any] = {}
        self.routes: set[tuple[str, str]] = set()

    def __call__(self, method: str, path: str, content: Any = None, **values: str) -> Any:
        answer = self._client.request(method, path.format(**values), json=content)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        told = _timeless(answer.json()) if is_json else answer.text
        self.seen[f"{method} {path} {len(self.seen)}"] = answer.status_code, told
        self.routes.add((method, path))
        return told


def _timeless(told: Any) -> Any:
    """Without times: those of a minute may be the same in two runs, and others in a third."""
    if isinstance(told, dict):
        return {name: "" if name in ("time", "created") else _timeless(value) for name, value in told.items()}
    return [_timeless(one) for one in told] if isinstance(told, list) else told


def _visited(call: _Visit, parts: Any, kind: str, schema: str) -> None:
    dataset = {"name": "d", "file": "table.csv", "schema_toml": schema, "epsilon": 10.0, "delta": 1e-3}
    call("POST", "/api/datasets", dataset)
    wanted: dict[str, Any] = {"kind": kind, "epsilon": 1.0}
    if kind != "statistics":
        wanted |= {"target": "target"}
    if kind in ("process", "interactive"):
        wanted |= {"delta": 1e-6}
    call("POST", "/api/datasets/{name}/bill", wanted, name="d")
    release = call("POST", "/api/datasets/{name}/releases", wanted, name="d")["id"]
    # Not by a route: how often one waits is written down.
    _wait_until(lambda: parts.releases.get(release).status != "opening")
    _asked(call, release)
    for document in ("model.json", "guarantee.json", "report.html"):
        call("GET", "/api/releases/{release}/documents/{document}", release=release, document=document)
    call("GET", "/api/releases/{release}", release=release)
    call("POST", "/api/releases/{release}/close", release=release)
    made = call("POST", "/api/keys", {"role": "analyst", "name": "anna"})["id"]
    call("DELETE", "/api/keys/{key}", key=made)
    for path in ("/api/datasets/{name}", "/api/datasets/{name}/spending"):
        call("GET", path, name="d")
    for path in ("/api/datasets", "/api/files", "/api/keys", "/api/me", "/api/log", "/api/log/counts", "/healthz"):
        call("GET", path)
    counted = call("GET", "/metrics").splitlines()
    # Each count by itself, and without how long calls took.
    call.seen["metrics"] = [line for line in counted if not re.match(r"epsilearn_call_seconds|.*_created", line)]
    del call.seen[next(name for name in call.seen if name.startswith("GET /metrics"))]


def _asked(call: _Visit, release: str) -> None:
    """Whatever can be asked of any release; some of it is refused."""
    points = [dict(zip(("c0", "c1", "c2"), np.clip(row, -1, 1).tolist(), strict=True)) for row in PUBLIC]
    for _ in range(2):
        call("POST", "/api/releases/{release}/predict", {"rows": points}, release=release)
    for name in ("mean", "sum", "variance", "quantile", "median", "histogram", "count"):
        asked: dict[str, Any] = {"statistic": name, "column": "target" if name == "count" else "c0", "epsilon": 0.1}
        if name == "count":
            asked["equals"] = 1
        if name == "histogram":
            asked["edges"] = [-1.0, 0.0, 1.0]
        call("POST", "/api/releases/{release}/statistic", asked, release=release)


def _wait_until(done: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"still opening after {PATIENCE} s"
        time.sleep(0.02)
