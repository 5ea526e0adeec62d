"""Shared fixtures: a real PostgreSQL, ledgers in both databases, rigged bits."""

from __future__ import annotations

import getpass
import gzip
import json
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
            "-c",
            "fsync=off",  # no test cuts the power, and hundreds of databases take a minute to sync
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
        server.wait(timeout=600)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail("PostgreSQL did not start")
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    pytest.fail("PostgreSQL did not answer within 600 s")


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


def toml_of(value: object) -> str:
    """A value as TOML, tables inline; a schema needs no more."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_of(str(key))} = {toml_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


class Clinic:
    """A small table with every kind of column, what is public about it, and the files it can be written to."""

    formats = ("csv", "csv.gz", "tsv", "parquet", "arrow")

    def __init__(self, rows: int = 200, seed: int = 0) -> None:
        chance = np.random.default_rng(seed)
        age = chance.integers(0, 101, rows)
        pain = age / 100 + chance.normal(0, 0.3, rows)
        self.columns: dict[str, list] = {
            "age": age.tolist(),
            "weight": [None if chance.random() < 0.1 else round(w, 1) for w in chance.normal(75, 30, rows)],
            "ward": chance.choice(["surgery", "Surg.", "medicine", "eye"], rows).tolist(),
            "smokes": (chance.random(rows) < 0.3).tolist(),
            "grade": chance.choice([0.0, 1.0, 2.5], rows).tolist(),
            "note": [f"note {i}" for i in range(rows)],
            "died": np.where(pain > 0.5, "yes", "no").tolist(),
            "stage": np.array(["I", "II", "III", "IV"])[np.digitize(pain, [0.25, 0.5, 0.75])].tolist(),
            "days": np.round(np.clip(30 * pain, 0, 30), 2).tolist(),
        }
        self.public: dict[str, dict] = {
            "age": {"bounds": [0, 90]},
            "weight": {"bounds": [30.0, 150.0], "missing": 70.0},
            "ward": {
                "categories": ["surgery", "medicine", "elsewhere"],
                "other": "elsewhere",
                "missing": "medicine",
                "aliases": {"Surg.": "surgery"},
            },
            "smokes": {"categories": [False, True]},
            "grade": {"categories": [0, 1, 2.5]},
            "note": {"ignore": True},
            "died": {"categories": ["no", "yes"], "aliases": {"no.": "no", "yes.": "yes"}},
            "stage": {"categories": ["I", "II", "III", "IV"]},
            "days": {"bounds": [0, 30]},
        }

    @property
    def rows(self) -> int:
        return len(self.columns["age"])

    def schema(self, **changes: object) -> dict:
        return {"version": 1, "columns": self.public, **changes}

    def write_schema(self, folder: Path, **changes: object) -> Path:
        path = folder / "schema.toml"
        path.write_text("".join(f"{k} = {toml_of(v)}\n" for k, v in self.schema(**changes).items()), encoding="utf-8")
        return path

    def arrow(self):
        import pyarrow as pa

        return pa.table(self.columns)

    def lines(self, delimiter: str = ",") -> list[str]:
        def shown(value: object) -> str:
            return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

        return [delimiter.join(map(shown, row)) for row in zip(*self.columns.values(), strict=True)]

    def write(self, folder: Path, kind: str) -> Path:
        import pyarrow.feather
        import pyarrow.parquet

        path = folder / f"table.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(self.arrow(), path)
        elif kind == "arrow":
            pyarrow.feather.write_feather(self.arrow(), path)
        else:
            delimiter = "\t" if kind == "tsv" else ","
            text = "\n".join([delimiter.join(self.columns), *self.lines(delimiter)]) + "\n"
            path.write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.encode())
        return path


@pytest.fixture(scope="session")
def clinic() -> Clinic:
    return Clinic()


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; give back its exit code, output and complaints."""
    from epsilearn.cli import _run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    # As wide as that, whatever the environment said when the command line was first imported.
    monkeypatch.setattr("epsilearn.cli.common.console.width", 200)

    def go(*words: object) -> tuple[int, str, str]:
        code = _run([str(word) for word in words], as_json="--json" in words)
        captured = capsys.readouterr()
        assert code != 1 or "unexpected" not in captured.out + captured.err, captured
        return code, captured.out, captured.err

    return go


def texts_of(error: BaseException | None) -> str:
    """Everything that an error and those behind it say."""
    found = ""
    while error is not None:
        found += f"{error!r} {error} {getattr(error, '__notes__', '')}\n"
        error = error.__cause__ or error.__context__
    return found


@pytest.fixture(scope="session")
def all_texts():
    return texts_of


@pytest.fixture(scope="session")
def as_toml():
    return toml_of


class Releases:
    """A released model of every kind, fitted to the clinic's table when first asked for."""

    jobs: dict[str, tuple[str, str, dict, dict]] = {  # noqa: RUF012
        "logistic": ("died", "logistic", {}, {}),
        "four": ("stage", "logistic", {}, {}),
        "svm": ("died", "svm", {}, {}),
        "linear": ("days", "linear", {}, {}),
        "lasso": ("days", "lasso", {}, {}),
        "sparse-logistic": ("died", "sparse-logistic", {}, {}),
        "landmark": ("died", "landmark", {}, {}),
        "landmark-four": ("stage", "landmark", {}, {}),
        "landmark-number": ("days", "landmark", {}, {}),
        "polynomial": ("died", "landmark", {"kernel": "polynomial"}, {}),
        "output": ("died", "logistic", {"method": "output", "delta": 1e-6}, {}),
        "short": ("died", "logistic", {}, {"norm": 1.2}),
        "short-lasso": ("days", "lasso", {"delta": 1e-6}, {"norm": 1.2, "rows_per_person": 2}),
        "short-landmark": ("days", "landmark", {}, {"norm": 1.2}),
        "grades": ("grade", "logistic", {}, {}),
        "smokes": ("smokes", "logistic", {}, {}),
        "numbered": ("target", "logistic", {}, {}),
        "numbered-lasso": ("target", "sparse-logistic", {}, {}),
    }

    def __init__(self, clinic: Clinic) -> None:
        self.clinic = clinic
        self._made: dict = {}

    def job(self, name: str, epsilon: float = 5.0):
        from epsilearn.encoding import Encoding
        from epsilearn.job import Job, public_landmarks
        from epsilearn.schema import Schema

        target, model, options, changes = self.jobs[name]
        if name.startswith("numbered"):
            numbered = {"bounds": [-2, 1], "count": 120}
            columns = {"target": {"categories": [-1, 1]}}
            schema = Schema.from_dict(
                {"version": 1, "file": {"format": "libsvm"}, "columns": columns, "others": numbered}
            )
        else:
            schema = Schema.from_dict(self.clinic.schema(**changes))
        if model == "landmark":
            options = {**options, "landmarks": public_landmarks(Encoding(schema, target), 9)}
        return Job(schema, target, model, epsilon, **options)

    def rows(self, name: str):
        """Raw rows, without their target."""
        if not name.startswith("numbered"):
            return self.clinic.arrow().drop_columns([self.jobs[name][0]])
        from scipy import sparse

        return sparse.random_array((self.clinic.rows, 120), density=0.1, rng=np.random.default_rng(0), format="csr")

    def __getitem__(self, name: str):
        if name not in self._made:
            job, rows = self.job(name), self.rows(name)
            if name.startswith("numbered"):
                y = (rows[:, [0]].toarray()[:, 0] > 0).astype(int)
            else:
                y = job.encoding.targets(self.clinic.arrow())
            self._made[name] = job.fit(job.encoding.matrix(rows), y)
        return self._made[name]


@pytest.fixture(scope="session")
def releases(clinic) -> Releases:
    return Releases(clinic)


def pytest_generate_tests(metafunc):
    """A test that takes a ``release`` is run for every kind of model."""
    if "release" in metafunc.fixturenames:
        metafunc.parametrize("release", list(Releases.jobs))
