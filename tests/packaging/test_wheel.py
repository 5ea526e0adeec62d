"""The wheel, as people get it: in an empty environment, with one extra, outside the repository, at that extra's job."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
ROWS = 400
LIMIT = 600  # seconds; far more than anything here takes
SCHEMA = """
version = 1
rows = 400

[columns]
age = {bounds = [0, 100]}
dose = {bounds = [0, 1]}
ill = {categories = ["no", "yes"]}
"""


def ran(*words: object, **options) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, **options)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    home: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of ours: no path to the sources, no other environment."""
        ours = ("PYTHON", "VIRTUAL_ENV", "PYSPARK", "SPARK", "DASK", "COV_")
        return {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    @property
    def script(self) -> Path:
        return self.home / "bin" / "epsilearn"

    def run(self, *words: object, code: int = 0) -> str:
        """What a command says, on either stream; it must end with this code, and never with a traceback."""
        done = ran(self.script, *words, cwd=self.folder, env=self.environment)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "Traceback" not in said
        return said

    def fit(self, *words: object, code: int = 0) -> str:
        found = ["--schema", "schema.toml", "--target", "ill", "--epsilon", 1, "-o", "out", *words]
        return self.run("fit", "table.parquet", *found, code=code)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that nothing that lies about here gets into it."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=leave)
    done = ran(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, source)
    assert done.returncode == 0, done.stderr
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture
def install(wheel, tmp_path) -> Callable[[str], Installed]:
    """The wheel with an extra, in an environment that has nothing else, beside a small table."""

    def make(extra: str) -> Installed:
        home, folder = tmp_path / "environment", tmp_path / "work"
        folder.mkdir()
        _install(home, f"{wheel}[{extra}]" if extra else str(wheel))
        found = Installed(home, folder)
        where = ran(home / "bin" / "python", "-c", "import epsilearn; print(epsilearn.__file__)", cwd=folder,
                    env=found.environment)  # fmt: skip
        assert Path(where.stdout.strip()).is_relative_to(home), where.stderr
        _write_table(folder)
        return found

    return make


def _install(home: Path, what: str) -> None:
    """By uv where it is there and reaches a registry, which takes seconds; else by pip."""
    if find_spec("uv"):
        uv = [sys.executable, "-m", "uv", "--quiet"]
        assert ran(*uv, "venv", "--python", sys.executable, home).returncode == 0
        if ran(*uv, "pip", "install", "--python", home / "bin" / "python", what).returncode == 0:
            return
        shutil.rmtree(home)
    assert ran(sys.executable, "-m", "venv", home).returncode == 0
    done = ran(home / "bin" / "python", "-m", "pip", "install", "--quiet", what)
    assert done.returncode == 0, done.stderr


def _write_table(folder: Path) -> None:
    chance = np.random.default_rng(0)
    age = chance.uniform(0, 100, ROWS)
    ill = np.where(age > 50, "yes", "no")
    table = pa.table({"age": age, "dose": chance.uniform(0, 1, ROWS), "ill": ill})
    pyarrow.parquet.write_table(table, folder / "table.parquet")
    (folder / "schema.toml").write_text(SCHEMA)


def test_the_wheel_alone_fits_shows_and_exports_and_says_which_extra_is_missing(install):
    epsilearn = install("")
    epsilearn.run("ledger", "create", "budget.db", "--dataset", "clinic", "--epsilon", 5)
    # First what it cannot do: in each case by a name to install, and for nothing.
    for engine in ("dask", "spark"):
        said = epsilearn.fit("--engine", engine, "--ledger", "budget.db", code=2)
        assert f"pip install 'epsilearn[{engine}]'" in said
    assert not (epsilearn.folder / "out").exists()
    epsilearn.fit("--ledger", "budget.db")
    assert epsilearn.run("ledger", "history", "budget.db", "--json").count("fit logistic") == 1
    assert "promise" in epsilearn.run("show", "out")
    assert len(epsilearn.run("predict", "out", "table.parquet").splitlines()) == ROWS + 1
    assert "pip install pandas" in epsilearn.run("export", "out", "--format", "sklearn", code=2)
    assert "epsilearn[onnx]" in epsilearn.run("export", "out", "--format", "onnx", code=2)
    (epsilearn.folder / "server.toml").write_text('database = "state.db"\ntables = "."\n')
    assert "epsilearn[serve]" in epsilearn.run("serve", "server.toml", code=2)


def test_onnx(install):
    epsilearn = install("onnx")
    epsilearn.fit()
    epsilearn.run("export", "out", "--format", "onnx")
    assert (epsilearn.folder / "model.onnx").stat().st_size


def test_dask(install):
    epsilearn = install("dask")
    epsilearn.fit("--engine", "dask")
    assert "promise" in epsilearn.run("show", "out")
    # Workers elsewhere need more of it, which must be there too.
    nowhere = ("--engine", "dask", "--address", "tcp://127.0.0.1:1")
    assert "no Dask scheduler" in epsilearn.run(
        "fit",
        "table.parquet",
        "--schema",
        "schema.toml",
        "--target",
        "ill",
        "--epsilon",
        1,
        "-o",
        "x",
        *nowhere,
        code=1,
    )


def test_spark(install):
    if shutil.which("java") is None:
        reason = "no Java on this machine; install Debian's default-jre-headless"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    epsilearn = install("spark")
    epsilearn.fit("--engine", "spark")
    assert "promise" in epsilearn.run("show", "out")


def test_postgresql(install, postgres_url):
    epsilearn = install("postgresql")
    epsilearn.run("ledger", "create", postgres_url, "--dataset", "clinic", "--epsilon", 5)
    epsilearn.fit("--ledger", postgres_url, "--dataset", "clinic")
    assert epsilearn.run("ledger", "history", postgres_url, "--dataset", "clinic", "--json").count("fit logistic") == 1


def test_serve(install):
    epsilearn = install("serve")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (epsilearn.folder / "server.toml").write_text(f'database = "state.db"\ntables = "."\nport = {port}\n')
    command = [str(epsilearn.script), "serve", "server.toml"]
    with subprocess.Popen(command, cwd=epsilearn.folder, env=epsilearn.environment, stderr=subprocess.PIPE) as server:
        try:
            status, page = (
                _asked(server, f"http://127.0.0.1:{port}/healthz"),
                _asked(server, f"http://127.0.0.1:{port}/"),
            )
        finally:
            server.send_signal(signal.SIGTERM)
        said = server.stderr.read().decode()
    assert "ok" in status
    assert "<html" in page
    assert "Traceback" not in said


def _asked(server: subprocess.Popen, url: str) -> str:
    end = time.monotonic() + LIMIT
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert server.poll() is None, server.stderr.read().decode()
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.2)
