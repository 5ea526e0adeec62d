"""How long a balance and a debit take in a long ledger, against a short one.

    python benchmarks/ledger.py [--long 100000] [--short 1000] [--url postgresql://user@host/name]

Without a URL: SQLite, in a folder that is gone afterwards. A server's database gets two data sets of its own, whose
names no other run has. Ratios of medians, taken in one run, through an open handle and through one opened for each.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epsilearn import Guarantee, Ledger

PROMISE = Guarantee.pure(1e-6)
REPEATS = 101
AT_ONCE = 10_000


def grown(url: str, name: str, entries: int) -> Ledger:
    """A ledger of so many debits, written as debits are, many in one transaction."""
    ledger = Ledger.create(url, dataset=name, epsilon=1.0)
    left = entries
    while left:
        stretch = min(left, AT_ONCE)
        with ledger._writing() as book:
            totals = book.totals
            for _ in range(stretch):
                totals = book.header.rule.add(totals, PROMISE)
                book.append("debit", "benchmark", "", PROMISE.to_dict(), totals)
        left -= stretch
    return ledger


def medians(runs: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Median seconds of each, run in turn so that a slow spell of the machine hits all of them alike."""
    for run in runs.values():
        run()
    seconds: dict[Any, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def measure(url: str, short: int, long: int) -> None:
    ledgers = {size: grown(url, f"benchmark {size} {uuid.uuid4().hex}", size) for size in (short, long)}
    runs: dict[Any, Callable[[], Any]] = {}
    for size, ledger in ledgers.items():
        runs["balance, open handle", size] = ledger.balance
        runs["balance, new handle", size] = lambda ledger=ledger: Ledger(url, dataset=ledger.dataset).balance()
        runs["debit, open handle", size] = lambda ledger=ledger: ledger.debit(PROMISE)
        runs["debit, new handle", size] = lambda ledger=ledger: Ledger(url, dataset=ledger.dataset).debit(PROMISE)
    found = medians(runs)
    print(f"{'':22}{f'{short:,} entries':>18}{f'{long:,} entries':>18}{'ratio':>8}")
    for name in dict.fromkeys(name for name, _ in runs):
        few, many = found[name, short], found[name, long]
        print(f"{name:22}{few * 1e3:15.2f} ms{many * 1e3:15.2f} ms{many / few:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", type=int, default=1000)
    parser.add_argument("--long", type=int, default=100_000)
    parser.add_argument("--url", help="a PostgreSQL database; SQLite if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(options.url or str(Path(folder) / "budget.db"), options.short, options.long)


if __name__ == "__main__":
    main()
