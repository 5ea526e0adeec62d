"""Shared fixtures: a real PostgreSQL, ledgers in both databases, rigged bits."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest


def _postgres_binaries() -> Path | None:
    places = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep)]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in places if (p / "initdb").exists() and (p / "postgres").exists()), None)


def _unprivileged_user() -> str:
    """PostgreSQL refuses to run as root: use its own account, or nobody."""
    if os.geteuid() != 0:
        return getpass.getuser()
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL started for these tests alone, on loopback."""
    binaries = _postgres_binaries()
    if binaries is None:
        reason = "no PostgreSQL binaries (initdb, postgres) on this machine; install Debian's postgresql package"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="epsilearn-postgres-"))
    as_user = {"user": user} if os.geteuid() == 0 else {}
    if as_user:
        shutil.chown(folder, user)
    data, port = folder / "data", _free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], check=True, **quiet, **as_user
    )
    server = subprocess.Popen(
        [
            binaries / "postgres",
            "-D",
            data,
            "-p",
            str(port),
            "-h",
            "127.0.0.1",
            "-k",
            folder,
            "-c",
            "max_connections=60",
        ],
        **quiet,
        **as_user,
    )
    url = f"postgresql://tester@127.0.0.1:{port}/postgres"
    try:
        _wait_for(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    for _ in range(300):
        if server.poll() is not None:
            pytest.fail("PostgreSQL did not start")
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    pytest.fail("PostgreSQL did not answer within 30 s")


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A fresh, empty database."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres_server.rsplit("/", 1)[0] + "/" + name


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be created: once a file, once a real PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path / "budget.db")
    return str(request.getfixturevalue("postgres_url"))


class RiggedBits:
    """Bits dealt from a fixed string of 0s and 1s; after its end, one digit for ever."""

    seeded = False

    def __init__(self, digits: str, then: str = "0") -> None:
        self._digits, self._then, self.drawn = digits, then, 0

    def integer(self, bits: int) -> int:
        dealt = self._digits[self.drawn : self.drawn + bits].ljust(bits, self._then)
        self.drawn += bits
        return int(dealt, 2)

    def words(self, count: int) -> np.ndarray:
        return np.array([self.integer(64) for _ in range(count)], np.uint64)


@pytest.fixture
def rigged() -> type[RiggedBits]:
    return RiggedBits
