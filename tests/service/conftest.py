"""A real server in a process of its own, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epsilearn import Client
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.store import opened_store

CANARY = "Zaphod424242"
CANARY_NUMBER = 87.31415926


LONGEST = 600.0  # seconds: far above what anything takes, on a busy machine too


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that must happen, however busy the machine is."""
    end = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {LONGEST:g} seconds in vain until {what}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """A folder with tables, a configuration, and the server that runs on it."""

    def __init__(self, folder: Path, database: str, **limits: float) -> None:
        self.folder, self.port = folder, free_port()
        (folder / "tables").mkdir(exist_ok=True)
        self.config = folder / "config.toml"
        self.limits = {"requests_per_minute": 1_000_000, "pad_seconds": 0.05, **limits}
        self.workers = 1
        self.database = database
        self.output = folder / "output.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.program = ["-m", "epsilearn.cli"]
        self.tls: ssl.SSLContext | None = None
        self.write_config()

    def write_config(self) -> None:
        lines = [f"{name} = {value}" for name, value in self.limits.items()]
        self.config.write_text(
            f'database = "{self.database}"\ntables = "tables"\nport = {self.port}\nworkers = {self.workers}\n[limits]\n'
            + "\n".join(lines)
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Deployment:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "serve", str(self.config)], stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: self.process.poll() is not None or self.healthy(), "the server answers")
        if self.process.poll() is not None:
            pytest.fail(f"the server did not start: {self.output.read_text()}")
        return self

    def refused(self) -> subprocess.CompletedProcess[str]:
        """How a server ends that must not start."""
        return subprocess.run(
            [sys.executable, "-m", "epsilearn.cli", "serve", str(self.config)],
            check=False, capture_output=True, text=True, timeout=LONGEST,
        )  # fmt: skip

    def healthy(self) -> bool:
        return self.raw("GET", "/healthz")[0] == 200

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        if how == signal.SIGKILL:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        self.process.wait(timeout=LONGEST)
        self.process = None

    def restart(self, how: int = signal.SIGTERM) -> None:
        self.stop(how)
        self.start()

    def key(self, role: str, name: str, *datasets: str, days: float | None = None) -> str:
        keys = Keys(opened_store(Configuration.read(self.config).database, make=True))
        return keys.create(role, name, list(datasets) or None, "tests", days)[0]

    def client(self, role: str = "holder", name: str = "ruth", *datasets: str) -> Client:
        return Client(self.url, self.key(role, name, *datasets))

    def raw(
        self, method: str, path: str, body: bytes | None = None, key: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """A request as it is, whatever is wrong with it; status 0 if there is no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST)
        if self.tls is not None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LONGEST, context=self.tls)
        try:
            if key is not None:
                headers["Authorization"] = f"Bearer {key}"
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read()
        except (ConnectionError, http.client.HTTPException, TimeoutError):
            return 0, {}, b""
        finally:
            connection.close()

    def post(self, path: str, content: Any, key: str) -> tuple[int, Any]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        status, _, answer = self.raw("POST", path, body, key, **{"Content-Type": "application/json"})
        return status, json.loads(answer) if answer else None


# The whole suite runs on both; on PostgreSQL with the slow tests, as it takes as long again.
@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], scope="session")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a server's state may be: once a file, once a real PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("state") / "state.db")
    import psycopg

    server = request.getfixturevalue("postgres_server")
    name = f"service_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return str(server.rsplit("/", 1)[0] + "/" + name)


@pytest.fixture
def empty_database(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A place of the same kind that nobody else uses."""
    return str(tmp_path / "state.db") if "://" not in database else str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="session")
def deployment(database: str, clinic: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server that all tests of a worker share; each uses data sets of its own."""
    made = Deployment(tmp_path_factory.mktemp("server"), database)
    prepare(made, clinic)
    made.start()
    yield made
    made.stop()


def prepare(made: Deployment, clinic: Any) -> None:
    """The clinic's table, with values in it that must never be seen again."""
    tables = made.folder / "tables"
    text = clinic.write(tables, "csv").read_text()
    # A note that nobody uses, a ward that the schema does not know, a weight inside the bounds.
    lines = text.splitlines()
    lines[1] = f"44,{CANARY_NUMBER},{CANARY},true,0.0,{CANARY},yes,II,{CANARY_NUMBER / 10}"
    (tables / "table.csv").write_text("\n".join(lines) + "\n")
    clinic.write_schema(tables).rename(tables / "table.toml")
    # Points of a sphere: enough of them for an interactive session to have something to say.
    X = sphere(20_000, 0)
    rows = [f"note {i},{a!r},{b!r},{c!r},{'yes' if a > 0 else 'no'}" for i, (a, b, c) in enumerate(X.tolist())]
    (tables / "sphere.csv").write_text("\n".join(["note,a,b,c,label", *rows]) + "\n")
    bounds = "".join(f"[columns.{name}]\nbounds = [-1, 1]\n" for name in "abc")
    (tables / "sphere.toml").write_text(
        f'version = 1\nnorm = 1.0\n[columns.note]\nignore = true\n{bounds}[columns.label]\ncategories = ["no", "yes"]\n'
    )


def sphere(count: int, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(count, 3))
    return X / np.linalg.norm(X, axis=1)[:, None]


def directions(count: int) -> list[dict[str, float]]:
    """Points to ask about the sphere."""
    return [dict(zip("abc", row, strict=True)) for row in sphere(count, 1).tolist()]


# An interactive session on the sphere whose first answers are private, and teach its hypothesis the others.
TALKATIVE = {
    "target": "label", "kernel": "linear", "alpha": 0.1, "questions": 400, "failure": 1e-3, "epsilon": 5.0,
    "delta": 1e-6,
}  # fmt: skip


@pytest.fixture
def holder(deployment: Deployment) -> Client:
    return deployment.client()


@pytest.fixture
def stays(deployment: Deployment, holder: Client, request: pytest.FixtureRequest) -> str:
    """A fresh data set with a budget of epsilon 10."""
    return registered(deployment, holder, request.node.name)


def registered(deployment: Deployment, holder: Client, name: str, table: str = "table", **budget: Any) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "-", name)[:40] + uuid.uuid4().hex[:8]
    name = name.lstrip("-")
    tables = deployment.folder / "tables"
    # One table has one budget: a copy whose unused note says something else is another table.
    text = (tables / f"{table}.csv").read_text().replace("note 7,", f"note {name},")
    (tables / f"{name}.csv").write_text(text)
    settings = {"epsilon": 10.0, "delta": 1e-4, "rule": "pure", **budget}
    holder.register(name, f"{name}.csv", (tables / f"{table}.toml").read_text(), **settings)
    return name


@pytest.fixture
def point(clinic: Any) -> dict[str, Any]:
    """One patient, without the targets that some test predicts."""
    return {"age": 40, "weight": 80.5, "ward": "surgery", "smokes": True, "grade": 1, "stage": "I", "days": 3.5}


def points(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Different patients."""
    wards, grades, stages = ["surgery", "medicine", "elsewhere"], [0, 1, 2.5], ["I", "II", "III", "IV"]
    return [
        {
            "age": (7 * i) % 91, "weight": 30 + (i * 1.37) % 120, "ward": wards[i % 3], "smokes": i % 2 == 0,
            "grade": grades[i % 3], "stage": stages[i % 4], "days": (i * 0.113) % 30,
        }
        for i in range(start, start + count)
    ]  # fmt: skip
