"""A server under abuse: one worker with its default limits, and what another analyst notices of it.

    python benchmarks/service_abuse.py [--only half-open ...] [--seconds 60] [--output FILE]

Each scenario has a server of its own on this machine's own address, and ends by itself. While somebody abuses the
server, another process asks for /healthz and, as another analyst, for predictions and statistics of another data set,
and notes how long each took. Exits with 1 if something was over its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import multiprocessing
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
import pyarrow.csv
from demo import SCHEMA, patients
from machine import machine
from rich.console import Console
from rich.table import Table

from epsilearn import Client
from epsilearn.client import ServerError
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.store import opened_store

SLOWEST, MOST_MEMORY, MOST_LOG = 1.0, 2**30, 10**6  # seconds at the 99th percentile; bytes beyond those at rest
ROWS = 2000
POINT = {
    "age": 63.5, "sex": "female", "ward": "surgery", "admission": "planned", "days": 4.0, "conditions": 2.0,
    "earlier_stays": 1.0, "haemoglobin": 13.0, "lives_alone": True,
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """What an abuser knows: where the server is, a key, and a release if the scenario has one."""

    port: int
    key: str
    release: str
    seconds: float


# -------------------------------------------------------------------------------------------------------------- abuse


def together(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def asked(target: Target, path: str, body: bytes | None, key: str | None) -> int:
    """One request by a connection of its own; its status, or 0 if there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=600)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def nothing(target: Target) -> Counter[int]:
    """No abuse, to compare with."""
    time.sleep(target.seconds)
    return Counter()


def bad_rows(target: Target) -> Counter[int]:
    """Requests of 1.3 million rows that are none, four at a time."""
    body, found, end = (
        b'{"rows":[' + b",".join([b"[]"] * 1_300_000) + b"]}",
        Counter[int](),
        time.monotonic() + target.seconds,
    )

    def work(_number: int) -> None:
        while time.monotonic() < end:
            status = asked(target, "/api/releases/abc/predict", body, target.key)
            found[status] += 1
            if status == 429:
                time.sleep(0.1)

    together(4, work)
    return found


def half_open(target: Target) -> Counter[int]:
    """Five hundred requests whose headers do not end, each begun anew when it is cut off."""
    found, end = Counter[int](), time.monotonic() + target.seconds
    held: dict[int, socket.socket] = {}
    while time.monotonic() < end:
        for number in range(500):
            try:
                if number not in held:
                    held[number] = socket.create_connection(("127.0.0.1", target.port), timeout=30)
                    held[number].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Waiting: ")
                    found[1] += 1
                else:
                    held[number].sendall(b"x")
            except OSError:
                found[0] += 1
                if number in held:
                    held.pop(number).close()
        time.sleep(0.5)
    for connection in held.values():
        connection.close()
    return found


def keyless(target: Target) -> Counter[int]:
    """Ten thousand calls without a key, with long paths, eight at a time."""
    found, end = Counter[int](), time.monotonic() + target.seconds

    def work(number: int) -> None:
        for call in range(1250):
            if time.monotonic() > end:
                return
            found[asked(target, f"/api/datasets/{'x' * 250}{number}-{call}", None, None)] += 1

    together(8, work)
    return found


def statistics(target: Target) -> Counter[int]:
    """Statistics of four hundred thousand rows, forty-five of them waiting all the time."""
    found, end = Counter[int](), time.monotonic() + target.seconds

    def work(number: int) -> None:
        chance = np.random.default_rng(number)
        while time.monotonic() < end:
            question = {
                "statistic": "quantile",
                "column": "age",
                "q": float(chance.uniform(0.01, 0.99)),
                "epsilon": 1e-3,
            }
            found[
                asked(target, f"/api/releases/{target.release}/statistic", json.dumps(question).encode(), target.key)
            ] += 1

    together(45, work)
    return found


def growing(target: Target) -> Counter[int]:
    """Five thousand new points of one Gaussian process, a thousand in each of five requests at once."""
    found, chance = Counter[int](), np.random.default_rng(3)
    points = [
        {**POINT, "age": float(age), "days": float(days)} for age, days in chance.uniform([18, 1], [90, 30], (5000, 2))
    ]

    def work(number: int) -> None:
        body = json.dumps({"rows": points[1000 * number : 1000 * number + 1000]}).encode()
        found[asked(target, f"/api/releases/{target.release}/predict", body, target.key)] += 1

    together(5, work)
    return found


SCENARIOS: dict[str, tuple[Callable[[Target], Counter[int]], str]] = {
    "nothing": (nothing, "none"),
    "bad-rows": (bad_rows, "1.3 million bad rows in a request, four requests at a time"),
    "half-open": (half_open, "500 half-open connections"),
    "keyless": (keyless, "10,000 calls without a key"),
    "statistics": (statistics, "45 waiting statistics of 400,000 rows"),
    "growing": (growing, "5,000 new points of a growing Gaussian process"),
}


# -------------------------------------------------------------------------------------------------- the other analyst


def other_analyst(port: int, key: str, release: str, leave: str, begun: Any, ended: Any, results: Any) -> None:
    """Ask while there is abuse, a few times a second; how long each answer took, by what was asked."""
    results.put("ready")
    begun.wait()
    times: dict[str, list[float]] = {"health": [], "answer": []}
    target = Target(port, key, release, 0.0)

    def work(number: int) -> None:
        name, turn = ("health", "answer")[number], 0
        while not ended.is_set():
            turn, start = turn + 1, time.monotonic()
            if name == "health":
                status = asked(target, "/healthz", None, None)
            elif turn % 4:
                status = asked(target, f"/api/releases/{release}/predict", json.dumps({"rows": [POINT]}).encode(), key)
            else:
                question = {"statistic": "quantile", "column": "age", "q": turn / 1e5, "epsilon": 1e-3}
                status = asked(target, f"/api/releases/{leave}/statistic", json.dumps(question).encode(), key)
            # Whatever was not answered took for ever.
            times[name].append(time.monotonic() - start if status == 200 else math.inf)
            ended.wait(max(0.0, 0.2 - (time.monotonic() - start)))

    together(2, work)
    results.put(times)


# --------------------------------------------------------------------------------------------------------- the server


class Server:
    """A server in a process of its own, with the limits it has by default."""

    def __init__(self, folder: Path) -> None:
        (folder / "tables").mkdir()
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.config, self.output = folder / "config.toml", folder / "output.log"
        self.config.write_text(f'database = "state.db"\ntables = "tables"\nport = {self.port}\n')
        self.holder = self.client("holder", "ruth")
        with self.output.open("wb") as output:
            command = [sys.executable, "-m", "epsilearn.cli", "serve", str(self.config)]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self._wait()

    def client(self, role: str, name: str) -> Client:
        keys = Keys(opened_store(Configuration.read(self.config).database, make=True))
        return Client(f"http://127.0.0.1:{self.port}", keys.create(role, name, None, "benchmark")[0], timeout=600)

    def _wait(self) -> None:
        for _ in range(1200):
            with contextlib.suppress(ServerError):
                self.holder.datasets()
                return
            time.sleep(0.1)
        raise SystemExit(f"the server did not start: {self.output.read_text()}")

    def register(self, name: str, rows: int, seed: int) -> None:
        pyarrow.csv.write_csv(patients(rows, seed), self.folder / "tables" / f"{name}.csv")
        schema = SCHEMA.replace("rows = 30000\n", "")
        self.holder.register(name, f"{name}.csv", schema, epsilon=100.0, delta=1e-4, rule="pure")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=120)

    def memory(self, name: str) -> int:
        """VmRSS or VmHWM, in bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    def forget_peak(self) -> None:
        """Let VmHWM count from now on: what a holder's fit took before is not the abuser's."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def log(self) -> int:
        """Bytes of the log of calls, all of it in its file, and of what the server printed."""
        file = self.folder / "state.db.calls"
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file.stat().st_size + self.output.stat().st_size


def opened(server: Server, name: str) -> str:
    """What a scenario abuses, if it is a release."""
    if name == "statistics":
        server.register("large", 400_000, 11)
        return server.holder.open("large", "statistics", epsilon=50.0).id
    if name == "growing":
        server.register("large", 12_000, 11)
        settings = {"target": "readmitted", "epsilon": 1.0, "delta": 1e-6, "kernel": "rbf", "max_points": 20_000}
        return server.holder.open("large", "process", wait=3600, **settings).id
    return ""


def measured(name: str, seconds: float) -> dict[str, Any]:
    """One scenario on a server of its own."""
    abuse, _ = SCENARIOS[name]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            server.register("stays", ROWS, 7)
            about = {"target": "readmitted", "epsilon": 1.0, "delta": 1e-6, "kernel": "linear"}
            release = server.holder.open("stays", "process", **about).id
            leave = server.holder.open("stays", "statistics", epsilon=50.0).id
            server.holder.predict(release, [POINT])  # whoever asks first has it loaded
            eve = Target(server.port, server.client("analyst", "eve")._key, opened(server, name), seconds)
            begun, ended, results = context.Event(), context.Event(), context.Queue()
            words = (server.port, server.client("analyst", "bert")._key, release, leave, begun, ended, results)
            watch = context.Process(target=other_analyst, args=words)
            watch.start()
            results.get(timeout=600)
            server.forget_peak()
            memory, log, start = server.memory("VmRSS"), server.log(), time.monotonic()
            begun.set()
            statuses = abuse(eve)
            took = time.monotonic() - start
            ended.set()
            times = results.get(timeout=600)
            watch.join()
            log, peak = server.log() - log, server.memory("VmHWM")
        finally:
            server.stop()
    found = {
        "scenario": name, "seconds": took, "statuses": {str(status): n for status, n in sorted(statuses.items())},
        "health_p99": percentile(times["health"]), "answer_p99": percentile(times["answer"]),
        "asked": len(times["health"]) + len(times["answer"]), "memory_at_rest": memory, "memory_peak": peak,
        "log_growth": log,
    }  # fmt: skip
    slowest = max(found["health_p99"], found["answer_p99"])
    return {**found, "passed": slowest < SLOWEST and peak - memory < MOST_MEMORY and log < MOST_LOG}


def percentile(times: list[float]) -> float:
    return sorted(times)[math.ceil(0.99 * len(times)) - 1] if times else math.inf


def shown(runs: list[dict[str, Any]]) -> Table:
    table = Table("abuse", "/healthz p99", "another analyst p99", "memory: rest, peak", "log grew by", "")
    for run in runs:
        table.add_row(
            SCENARIOS[run["scenario"]][1], f"{run['health_p99']:.2f} s", f"{run['answer_p99']:.2f} s",
            f"{run['memory_at_rest'] / 2**20:.0f}, {run['memory_peak'] / 2**20:.0f} MiB",
            f"{run['log_growth'] / 1000:.0f} kB",
            "passed" if run["passed"] else "OVER ITS LIMIT",
        )  # fmt: skip
    return table


def main() -> None:
    """Run the scenarios one after the other, print what was seen, and fail if something was over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(SCENARIOS), nargs="+", default=list(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    runs = []
    for name in options.only:
        runs.append(measured(name, options.seconds))
        print(json.dumps(runs[-1]), flush=True)
    Console(width=140).print(shown(runs))
    if options.output is not None:
        content = {
            "runs": runs,
            "limits": {"p99": SLOWEST, "memory": MOST_MEMORY, "log": MOST_LOG},
            "machine": machine(),
        }
        options.output.write_text(json.dumps(content, indent=2, allow_nan=False, default=str) + "\n")
    sys.exit(0 if all(run["passed"] for run in runs) else 1)


if __name__ == "__main__":
    main()
