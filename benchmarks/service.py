"""How fast a server answers: two analysts, sixteen connections, batches of a hundred, twenty thousand stored records.

    python benchmarks/service.py [--seconds 60] [--rows 20000] [--workers 1] [--output FILE]

Every answer is compared with all others to the same question, and the ledger is verified afterwards. Answers are timed
beside the bare numpy kernel product of the same number of points with the same number of records, in the same run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from demo import SCHEMA, patients
from machine import machine

from epsilearn import Client, Ledger
from epsilearn.encoding import Encoding
from epsilearn.job import kernel_of
from epsilearn.schema import Schema
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.serve import serve
from epsilearn.service.store import opened_store

BATCH, CONNECTIONS, DISTINCT = 100, 16, 2000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server in a process of its own, on a generated table."""

    def __init__(self, folder: Path, rows: int, workers: int) -> None:
        (folder / "tables").mkdir()
        pyarrow.csv.write_csv(patients(rows, 7), folder / "tables" / "patients.csv")
        self.schema, self.port = SCHEMA.replace("rows = 30000\n", ""), free_port()
        self.config, self.database = folder / "config.toml", str(folder / "state.db")
        self.config.write_text(
            f'database = "state.db"\ntables = "tables"\nport = {self.port}\nworkers = {workers}\n'
            "[limits]\nrequests_per_minute = 100000000\n"
        )
        self.process = multiprocessing.get_context("spawn").Process(target=serve, args=(str(self.config),))
        self.process.start()

    def client(self, role: str, name: str) -> Client:
        keys = Keys(opened_store(Configuration.read(self.config).database, make=True))
        return Client(f"http://127.0.0.1:{self.port}", keys.create(role, name, None, "benchmark")[0], timeout=1800)

    def wait(self, client: Client) -> None:
        for _ in range(600):
            try:
                client.datasets()
                return
            except Exception:
                time.sleep(0.1)
        raise SystemExit("the server did not start")

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(timeout=60)


def questions(count: int, seed: int) -> list[dict[str, Any]]:
    """Different patients, as JSON has them."""
    table = patients(count, seed).drop_columns(["patient", "readmitted"])
    chance = np.random.default_rng(seed)
    rows = table.to_pylist()
    for row in rows:
        # Whole numbers repeat; a little more makes nearly every point a new one.
        row["lives_alone"] = row["lives_alone"] == "true"
        row["age"] = float(row["age"]) + chance.uniform(-0.5, 0.5)
    return rows


def connection_loop(
    port: int, key: str, release: str, bodies: list[bytes], seconds: float, order: int, told: dict[int, Any]
) -> tuple[int, list[float], int]:
    """Ask until the time is over: how many answers, how long each request took, how many differed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    chance, end, count, times, differ = np.random.default_rng(order), time.monotonic() + seconds, 0, [], 0
    while time.monotonic() < end:
        chosen = int(chance.integers(len(bodies)))
        start = time.monotonic()
        connection.request("POST", f"/api/releases/{release}/predict", bodies[chosen], headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {content[:300]!r}")
        times.append(time.monotonic() - start)
        scores = tuple(one["score"] for one in json.loads(content)["answers"])
        count += len(scores)
        differ += told.setdefault(chosen, scores) != scores
    return count, times, differ


def analyst(port: int, key: str, release: str, bodies: list[bytes], seconds: float, seed: int, results: Any) -> None:
    """Half of the connections, in a process of their own."""
    told: dict[int, Any] = {}
    found: list[tuple[int, list[float], int]] = []

    def work(number: int) -> None:
        found.append(connection_loop(port, key, release, bodies, seconds, 100 * seed + number, told))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((sum(f[0] for f in found), [t for f in found for t in f[1]], sum(f[2] for f in found), told))


def load(server: Server, release: str, bodies: list[bytes], seconds: float) -> dict[str, float]:
    """Two analysts at once; their answers are compared with each other too."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    keys = [server.client("analyst", name)._key for name in ("anna", "bert")]
    people = [
        context.Process(target=analyst, args=(server.port, key, release, bodies, seconds, seed, results))
        for seed, key in enumerate(keys)
    ]
    for person in people:
        person.start()
    found = [results.get(timeout=seconds + 1200) for _ in people]
    for person in people:
        person.join()
    both = set(found[0][3]) & set(found[1][3])
    differ = sum(f[2] for f in found) + sum(found[0][3][k] != found[1][3][k] for k in both)
    times = np.array([t for f in found for t in f[1]])
    return {
        "answers": sum(f[0] for f in found), "answers_per_second": sum(f[0] for f in found) / seconds,
        "median_request_seconds": float(np.median(times)), "slowest_request_seconds": float(times.max()),
        "questions_asked_by_both": len(both) * BATCH, "questions_with_two_answers": int(differ),
    }  # fmt: skip


def bare_product(kernel_name: str, server: Server, rows: int, points: list[dict[str, Any]]) -> float:
    """Seconds for the kernel's values between a batch and all records, times a vector: the best of five."""
    import pyarrow as pa

    schema = Schema.from_toml(server.schema)
    encoding = Encoding(schema, "readmitted")
    X = encoding.matrix(patients(rows, 7))
    Z = encoding.matrix(pa.Table.from_pylist(points[:BATCH]))
    kernel, weights = kernel_of(kernel_name, schema.length("readmitted")), np.random.default_rng(0).normal(size=rows)
    return best(lambda: kernel.matrix(Z, X) @ weights)


def best(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        start = time.monotonic()
        work()
        times.append(time.monotonic() - start)
    return min(times)


def first_time(server: Server, holder: Client, bodies: list[bytes], settings: dict[str, Any]) -> float:
    """Seconds for a batch of points that nobody has asked before, by one connection: their noise is drawn and kept."""
    release = holder.open("stays", "process", wait=3600, **settings)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    headers = {"Authorization": f"Bearer {holder._key}", "Content-Type": "application/json"}
    start = time.monotonic()
    for body in bodies:
        connection.request("POST", f"/api/releases/{release.id}/predict", body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {answer.read()[:300]!r}")
        answer.read()
    return (time.monotonic() - start) / len(bodies)


def measured(server: Server, holder: Client, kernel: str, rows: int, seconds: float) -> dict[str, Any]:
    points = questions(40_000 if kernel == "linear" else DISTINCT, 11)
    bodies = [json.dumps({"rows": points[s : s + BATCH]}).encode() for s in range(0, len(points), BATCH)]
    start = time.monotonic()
    settings = {"target": "readmitted", "epsilon": 1.0, "delta": 1e-6, "kernel": kernel, "max_points": DISTINCT}
    release = holder.open("stays", "process", wait=3600, **settings)
    opening = time.monotonic() - start
    print(f"{kernel}: opened in {opening:.1f} s", flush=True)
    found = load(server, release.id, bodies, seconds)
    bare = bare_product(kernel, server, rows, points)
    ratio = (BATCH / found["answers_per_second"]) / bare
    first = first_time(server, holder, bodies, settings)
    return {
        "kernel": kernel, "distinct_points": len(points), "opening_seconds": opening, **found,
        "bare_product_seconds_per_batch": bare, "server_over_bare_product": ratio,
        "first_time_seconds_per_batch": first, "first_time_over_bare_product": first / bare,
    }  # fmt: skip


def main() -> None:
    """Run both kernels and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name), options.rows, options.workers)
        try:
            holder = server.client("holder", "ruth")
            server.wait(holder)
            holder.register("stays", "patients.csv", server.schema, epsilon=4.0, delta=1e-5, rule="pure")
            runs = [measured(server, holder, k, options.rows, options.seconds) for k in ("linear", "rbf")]
            ledger = Ledger(server.database, dataset="stays")
            ledger.verify()
            balance = ledger.balance()
        finally:
            server.stop()
    content = {
        "rows": options.rows, "workers": options.workers, "seconds": options.seconds, "connections": CONNECTIONS,
        "batch": BATCH, "runs": runs, "spent_epsilon": balance.spent_epsilon, "debits": balance.debits,
        "machine": machine(),
    }  # fmt: skip
    print(json.dumps(content, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
