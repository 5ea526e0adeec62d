"""Engines that are started for a fit talk to nobody else: every socket and file is tried, as another account."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.cli.listening import family, listeners
from tests.cli.test_engines import split, words
from tests.rows.conftest import prepare_spark

import epsilearn

INTRUDER = Path(__file__).with_name("intruder.py")
COMMAND = [sys.executable, "-c", "from epsilearn.cli import main; main()"]
LIMIT = 300  # seconds; far more than anything here takes

# All that somebody without a secret may be told: who are you? (Spark answers questions for a stream or a chunk of one
# before it has asked, so these must not be there.)
REFUSALS = [
    r"!xsAuthentication error: ",
    r"!zspy4j\.Py4JException: Unknown command received",
    r".{8}\x05.{12}java\.lang\.IllegalArgumentException: Unknown challenge message",
    r".{8}\x08",  # there is no such stream
    r".{8}\x02",  # there is no such chunk
]


@pytest.fixture
def folder():
    """A folder that everybody may look into, unlike those of pytest."""
    if os.geteuid() != 0:
        reason = "only root can become another account"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    home.chmod(0o755)
    yield home
    shutil.rmtree(home)


def intrude(sockets, *folders: Path, scheduler: str = "") -> list[tuple[str, str, str]]:
    """What another account got: where, how, and what."""
    places = [[s.kind, s.address, s.port] for s in sockets]
    task = {"sockets": places, "folders": list(map(str, folders)), "scheduler": scheduler}
    command = [sys.executable, str(INTRUDER)]
    done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=LIMIT, check=True)
    *lines, last = done.stdout.splitlines()
    assert last == "done", done.stderr
    return [tuple(json.loads(line)) for line in lines]


def is_refusal(answer: str) -> bool:
    return any(re.match(refusal, answer, re.DOTALL) for refusal in REFUSALS)


def wait_for(condition, process: subprocess.Popen) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, "it ended too soon"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def start_fit(clinic, folder: Path, engine: str, **environment: str) -> subprocess.Popen:
    """A fit to files that only their owner may read, with a folder of its own for everything temporary."""
    scratch = folder / "tmp"
    scratch.mkdir()
    scratch.chmod(0o755)
    table = split(clinic, folder)
    for path in (table, *table.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
    command = [*COMMAND, *map(str, words(clinic, folder, "logistic", table, engine)), "-o", str(folder / "out")]
    environment |= {"TMPDIR": str(scratch), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"}
    return subprocess.Popen(command, cwd=folder, env=os.environ | environment, stderr=subprocess.PIPE)


def test_sockets_of_every_kind_are_found(tmp_path):
    before = listeners(os.getpid())
    with (
        socket.create_server(("127.0.0.1", 0)) as old,
        socket.create_server(("::", 0), family=socket.AF_INET6) as new,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as unnamed,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets,
    ):
        named.bind(str(tmp_path / "s"))
        unnamed.bind("\0epsilearn-test")
        packets.bind(("127.0.0.1", 0))
        named.listen()
        unnamed.listen()
        found = {(s.kind, s.address, s.port, s.is_loopback) for s in listeners(os.getpid()) - before}
        assert found == {
            ("tcp", "127.0.0.1", old.getsockname()[1], True),
            ("tcp", "::", new.getsockname()[1], False),
            ("udp", "127.0.0.1", packets.getsockname()[1], True),
            ("unix", str(tmp_path / "s"), 0, True),
            ("unix", "@epsilearn-test", 0, True),
        }


def test_nothing_listens_while_dask_computes(clinic, folder):
    looks = 0
    with start_fit(clinic, folder, "dask") as fit:
        while fit.poll() is None:
            assert listeners(fit.pid) == set()
            looks += 1
        said = fit.stderr.read().decode()
    assert (fit.returncode, said) == (0, "")
    assert looks > 5
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.slow
def test_the_intruder_gets_into_a_cluster_of_dask_that_is_not_protected(folder):
    """What the other tests rule out is possible: they could fail."""
    program = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
    (folder / "cluster.py").write_text(program)
    command = [sys.executable, str(folder / "cluster.py")]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cluster:
        answers = intrude([], folder, scheduler=cluster.stdout.readline().decode().strip())
        cluster.stdin.close()
    assert "ran as 0" in {answer for _, _, answer in answers}
    assert (str(folder / "cluster.py"), "read", "open") in answers


@pytest.mark.slow
def test_nobody_else_gets_into_a_session_of_spark(clinic, folder):
    prepare_spark()
    with start_fit(clinic, folder, "spark") as fit:
        # Java's gateway, driver and blocks; and between Java and Python the driver's socket and the workers'.
        wait_for(lambda: len(listeners(fit.pid)) >= 5, fit)
        # While the process that asks stands still, all the others are there to be asked.
        fit.send_signal(signal.SIGSTOP)
        try:
            found, processes = listeners(fit.pid), family(fit.pid)
            commands = [Path(f"/proc/{process}/cmdline") for process in processes]
            told = b"".join(command.read_bytes() for command in commands if command.exists())
            answers = intrude(found, folder)
        finally:
            fit.send_signal(signal.SIGCONT)
        fit.stderr.read()
    assert fit.returncode == 0
    assert epsilearn.load(folder / "out").guarantee.epsilon == pytest.approx(3.0)
    assert {s.kind for s in found} == {"tcp", "unix"}
    assert all(s.is_loopback for s in found)
    assert not any(s.address.startswith("@") for s in found)
    assert [answer for answer in answers if answer[1] != "read" and not is_refusal(answer[2])] == []
    # They were really asked.
    assert any("Authentication error" in answer for _, _, answer in answers)
    assert any("Unknown challenge message" in answer for _, _, answer in answers)
    # The schema is public, and so is the folder that the model will be in.
    read = {Path(where).relative_to(folder).parts for where, how, _ in answers if how == "read"}
    assert ("schema.toml",) in read
    assert [parts for parts in read if parts[0] in ("tmp", "parts") and parts != ("tmp",)] == []
    assert b"secret" not in told
    wait_for_end(processes)
    assert list((folder / "tmp").iterdir()) == []


def wait_for_end(processes: set[int]) -> None:
    """Java ends by itself when Python has ended, a little later."""
    end = time.monotonic() + LIMIT
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < end, "a process is left over"
        time.sleep(0.05)


@pytest.mark.slow
def test_the_intruder_gets_into_a_session_of_spark_that_is_not_protected(folder):
    prepare_spark()
    program = (
        "import sys\nfrom pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.port', '0').getOrCreate().sparkContext\n"
        "kept = [spark.broadcast(list(range(1000))) for _ in range(8)]\nprint('ready', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:
        assert session.stdout.readline() == b"ready\n"
        answers = intrude(listeners(session.pid))
        session.stdin.close()
    assert any(how.startswith("GET") and answer.startswith("HTTP/1.1 200") for _, how, answer in answers)
    assert any(how.startswith("spark block") and answer.startswith("opened") for _, how, answer in answers)
    assert not all(is_refusal(answer) for _, _, answer in answers)
