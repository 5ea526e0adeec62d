"""What the scoreboard does not say of linear models: regression, and the time and memory of a certified minimum.

Usage: ``python benchmarks/linear.py --data FOLDER [regression] [speed] [memory]``. FOLDER holds the data sets and their
loader, ``load.py`` with functions `california`, `covertype` and `rcv1`. Times are ratios taken in one run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from peers import Worker
from scipy import sparse

from epsilearn import BoundedScaler, LinearRegression, LogisticRegression
from epsilearn.erm import Table, execute, plan
from epsilearn.losses import Logistic
from epsilearn.rows import Bounds, as_rows

CERTIFICATE, STRENGTH = 1e-10, 1e-5


def loader(folder: str) -> Any:
    specification = importlib.util.spec_from_file_location("load", Path(folder) / "load.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def splits(rows: int, runs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """80/20, a new one for each run, the same for every method."""
    orders = [np.random.default_rng(run).permutation(rows) for run in range(runs)]
    return [(order[: int(0.8 * rows)], order[int(0.8 * rows) :]) for order in orders]


def summary(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"


def written(folder: str, X: Any, y: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """A table and its splits, as the job scripts read them."""
    np.save(f"{folder}/X.npy", X)
    np.save(f"{folder}/y.npy", y)
    for run, (train, test) in enumerate(parts):
        np.save(f"{folder}/train{run}.npy", train)
        np.save(f"{folder}/test{run}.npy", test)


RANGES = {
    "longitude": (-125, -114), "latitude": (32, 42), "housing_median_age": (0, 60), "total_rooms": (0, 40_000),
    "total_bedrooms": (0, 7_000), "population": (0, 36_000), "households": (0, 7_000), "median_income": (0, 16),
}  # fmt: skip
OCEAN = ["<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN"]


def regression(load: Any, runs: int) -> dict[str, list[float]]:
    """R² on California housing, its columns brought to the unit ball by public ranges, missing values set to 0."""
    X, y = load.california()
    scaler = BoundedScaler(bounds=RANGES, categories={"ocean_proximity": OCEAN})
    X, y = scaler.fit_transform(X.fillna(0.0)), np.asarray(y, np.float64)
    found: dict[str, list[float]] = {}
    for method in ("objective", "output", "sufficient-statistics"):
        name = f"California, epsilon 1.0, delta 1/n², R², {method}"
        found[name] = []
        for train, test in splits(len(y), runs):
            options = {"delta": len(train) ** -2.0, "data_norm": 1.0, "target_bound": (0.0, 500_001.0)}
            model = LinearRegression(epsilon=1.0, method=method, **options)
            found[name].append(model.fit(X[train], y[train]).score(X[test], y[test]))
        print(f"{name:70} {summary(found[name])}")
    return found


def covertype(load: Any) -> tuple[np.ndarray, np.ndarray]:
    X, y = load.covertype()
    X = np.asarray(X, np.float64)[:500_000]
    # To [0, 1] by column, then into the unit ball: 13 entries are not zero at most.
    X = np.ascontiguousarray((X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12) / 12**0.5)
    return X, np.where(np.asarray(y)[:500_000] == 2, 1.0, -1.0)


def certified_fit(X: Any, y: np.ndarray) -> None:
    rows = as_rows(X, y, Bounds(1.0, intercept=0.15))
    made = plan(Logistic(), Table.of(rows), strength=STRENGTH, epsilon=1.0, method="output")
    execute(replace(made, certificate=CERTIFICATE), Logistic(), rows)


def speed(load: Any, repeats: int = 3) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression as Plain

    X, y = covertype(load)
    inverse = 1 / (len(y) * STRENGTH)
    certified_fit(X[:1000], y[:1000])  # compiles
    ours, theirs = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        certified_fit(X, y)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        Plain(C=inverse, solver="newton-cholesky").fit(X, y)
        theirs.append(time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        written(folder, X, y, [(np.arange(len(y)), np.arange(1))])
        settings = {"epsilon": 1.0, "C": inverse}
        worker = Worker("diffprivlib", {"what": "seconds", "folder": folder, "settings": settings})
        peer = [worker.fit()["seconds"] for _ in range(repeats + 1)][1:]
        worker.end()
    own = statistics.median(ours)
    found = {
        "seconds": own,
        "against diffprivlib (at most 0.35)": own / statistics.median(peer),
        "against newton-cholesky (at most 0.5)": own / statistics.median(theirs),
    }
    for name, value in found.items():
        print(f"CoverType, 500,000 rows, certificate {CERTIFICATE:g}: {name:45} {value:.3f}")
    return found


def memory(folder: str) -> dict[str, float]:
    """The rise of peak memory over a warmed-up process, each fit in a process of its own."""
    found = {}
    for name, most in (("covertype", 1.3), ("rcv1", 6.0)):
        command = [sys.executable, __file__, "--data", folder, "--rise", name]
        found[name] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{name}: peak memory rises by {found[name]:.2f} x the input (at most {most})")
    return found


def rise(load: Any, name: str) -> float:
    """Peak memory while fitting, input counted once, over the input's size."""
    generator = np.random.default_rng(0)
    small = generator.normal(size=(2000, 20))
    certified_fit(small, np.sign(small[:, 0]))
    LogisticRegression(data_norm=1.0).fit(sparse.csr_array(small), np.sign(small[:, 0]))
    if name == "covertype":
        X, y = covertype(load)
        size = X.nbytes
    else:
        X, y = load.rcv1()
        X, y = sparse.csr_array(X), np.asarray(y, np.float64)
        size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    # What loading took at its peak must not hide what fitting takes.
    Path("/proc/self/clear_refs").write_text("5")
    before = current()
    if name == "covertype":
        certified_fit(X, y)
        return (peak() - before + size) / size
    LogisticRegression(epsilon=1.0, delta=len(y) ** -2.0, data_norm=1.0).fit(X, y)
    return (peak() - before) / size


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def current() -> int:
    return _status("VmRSS")


def peak() -> int:
    return max(_status("VmHWM"), 0) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["speed", "memory", "regression"])
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rise")
    parser.add_argument("--json")
    options = parser.parse_args()
    load = loader(options.data)
    if options.rise:
        print(rise(load, options.rise))
        return
    jobs = {
        "regression": lambda: regression(load, options.runs),
        "speed": lambda: speed(load),
        "memory": lambda: memory(options.data),
    }
    found = {what: jobs[what]() for what in options.what}
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
