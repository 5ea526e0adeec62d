"""Private Frank-Wolfe: time a step beside the straightforward loop, memory, risk and accuracy.

Usage: ``python benchmarks/lasso.py --data FOLDER [speed] [memory] [risk] [width] [refit] [accuracy]``. FOLDER holds the
data sets and their loader, ``load.py`` with `newsgroups`, `rcv1`, `dorothea` and `california`. Times are ratios taken
in one run.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.preprocessing import PolynomialFeatures

from epsilearn import Lasso, LogisticRegression, SparseLogisticRegression, frank_wolfe
from epsilearn.calibration.frank_wolfe import LogisticSlope, SquaredSlope
from epsilearn.constraints import L1Ball, L2Ball, Simplex
from epsilearn.rows.fixed import fixed_rows
from epsilearn.rows.paths import SlopePath, SquaredPath
from epsilearn.solvers.frank_wolfe import along_columns, greedy
from linear import loader, splits, summary

STEPS, RADIUS = 200, 20.0


def straightforward(X: Any, y: np.ndarray, slope: Callable, scale: float) -> np.ndarray:
    """The loop as anyone would write it: the whole gradient, and fresh Gumbel noise for every corner, each step."""
    generator = np.random.default_rng(0)
    rows, columns = X.shape
    theta = np.zeros(columns)
    transposed = X.T  # by columns: as quick as any
    for step in range(1, STEPS):
        gradient = transposed @ slope(X @ theta, y) / rows
        scores = np.concatenate([-RADIUS * gradient, RADIUS * gradient])
        if scale:
            scores += generator.gumbel(scale=scale, size=2 * columns)
        chosen = int(scores.argmax())
        theta *= 1 - 2 / (step + 2)
        theta[chosen % columns] += 2 / (step + 2) * (RADIUS if chosen < columns else -RADIUS)
    return theta


SLOPES = {
    "Lasso": lambda score, y: 2 * (score - y),
    "SparseLogisticRegression": lambda score, y: -y / (1 + np.exp(np.minimum(y * score, 700.0))),
}


def seconds(work: Callable, *arguments: Any) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def planned(name: str, X: Any, epsilon: float) -> frank_wolfe.PathPlan:
    bounds = SquaredSlope(1.0) if name == "Lasso" else LogisticSlope()
    table = frank_wolfe.PathTable(*X.shape, 1.0)
    return frank_wolfe.plan(bounds, table, L1Ball(RADIUS), epsilon=epsilon, delta=X.shape[0] ** -1.1, steps=STEPS)


def ours(plan: frank_wolfe.PathPlan, X: Any, y: np.ndarray, seed: int | None) -> tuple[float, float]:
    """Seconds for the path, and for getting the rows ready; without a seed the greedy path, without privacy."""
    start = time.perf_counter()
    rows = fixed_rows(X, plan.features)
    ready = time.perf_counter()
    if seed is not None:
        frank_wolfe.execute(plan, rows, y, random_state=seed)
    else:
        path = SquaredPath(rows, y, plan.targets) if plan.affine else SlopePath(rows, y, plan.code, plan.slopes)
        along_columns(path, Fraction(RADIUS), True, greedy, plan.steps, weights=np.zeros(X.shape[1], np.int64))
    return time.perf_counter() - ready, ready - start


def speed(load: Any, runs: int) -> dict[str, Any]:
    """Means over seeds: how long a path takes depends on whether it meets words that are in nearly every text."""
    X, labels = load.newsgroups()
    X = sparse.csr_array(X)
    X.data[:] = 1.0
    y = np.where(labels < 10, -1.0, 1.0)
    wider = sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], 10 * X.shape[1]))
    found: dict[str, Any] = {}
    for name, slope in SLOPES.items():
        plan, wide_plan = planned(name, X, 1.0), planned(name, wider, 1.0)
        ours(plan, X, y, seed=0)  # compiles
        times: dict[str, list[float]] = {key: [] for key in ("loop", "path", "ready", "wider", "greedy loop", "greedy")}
        for seed in range(max(runs, 5)):
            times["loop"].append(seconds(straightforward, X, y, slope, plan.law.scale))
            path, ready = ours(plan, X, y, seed)
            times["path"].append(path)
            times["ready"].append(ready)
            times["wider"].append(ours(wide_plan, wider, y, seed)[0])
        times["greedy loop"].append(seconds(straightforward, X, y, slope, 0.0))
        times["greedy"].append(ours(plan, X, y, seed=None)[0])
        mean = {key: statistics.mean(values) for key, values in times.items()}
        found[name] = {
            "milliseconds a step": {key: round(1e3 * value / (STEPS - 1), 3) for key, value in mean.items()},
            "each path": [round(1e3 * value / (STEPS - 1), 2) for value in times["path"]],
            "faster, getting the rows ready included": round(mean["loop"] / (mean["path"] + mean["ready"]), 1),
            "slowest path, getting ready included": round(mean["loop"] / (max(times["path"]) + mean["ready"]), 1),
            "faster, the path alone": round(mean["loop"] / mean["path"], 1),
            "ten times the columns": round(mean["wider"] / mean["path"], 2),
            "faster without privacy": round(mean["greedy loop"] / mean["greedy"], 1),
        }
        print(name, json.dumps(found[name], indent=2), flush=True)
    return found


WIDE = """
import resource, numpy as np
from scipy import sparse
from epsilearn import {name}
generator = np.random.default_rng(0)
rows, columns, each = 10**5, 10**7, 50
indices = np.sort(generator.integers(columns, size=(rows, each), dtype=np.int32), axis=1)
indices[:, 0] = generator.integers(20, size=rows)
X = sparse.csr_array((np.ones(rows * each, np.float32), indices.ravel(), np.arange(0, rows * each + 1, each)),
                     shape=(rows, columns))
X.sum_duplicates()
y = np.where(indices[:, 0] < 5, 1.0, -1.0)
import time
start = time.perf_counter()
model = {name}(epsilon=1.0, delta=1e-6, radius=20.0, feature_bound=1.0, n_steps=200, {extra}).fit(X, y)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
      sorted(set(model.selected_[:20].tolist()))[:5])
"""


def memory(load: Any, runs: int) -> dict[str, Any]:  # noqa: ARG001 - generated rows, one run each
    found = {}
    for name, extra in (("Lasso", "target_bound=1.0"), ("SparseLogisticRegression", "classes=[-1.0, 1.0]")):
        code = WIDE.format(name=name, extra=extra)
        text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        taken, peak = map(float, text.split()[:2])
        found[name] = {"seconds": round(taken, 2), "peak GiB, data and interpreter included": round(peak, 2)}
    print(json.dumps(found, indent=2))
    return found


def risk(load: Any, runs: int) -> dict[str, Any]:  # noqa: ARG001 - generated rows
    """Mean squared error with 500 columns, five of which matter; defaults except budget and bounds."""
    rows, columns = 10**5, 500
    generator = np.random.default_rng(0)
    theta = np.zeros(columns)
    theta[:5] = 0.3, -0.3, 0.2, -0.1, 0.1
    X = generator.uniform(-1, 1, (rows, columns))
    y = X @ theta + 0.1 * generator.normal(size=rows)
    errors, steps = [], 0
    for _ in range(max(runs, 20)):
        model = Lasso(epsilon=0.5, delta=rows**-1.1, feature_bound=1.0, target_bound=1.0).fit(X, y)
        errors.append(float(np.mean((model.predict(X) - y) ** 2)))
        steps = model.n_steps_
    least = float(np.mean((X @ np.linalg.lstsq(X, y, rcond=None)[0] - y) ** 2))
    found = {
        "mean squared error": summary(errors),
        "zero model": round(float(np.mean(y**2)), 5),
        "least squares": round(least, 5),
        "points of the path": steps,
    }
    print(json.dumps(found, indent=2))
    return found


def width(load: Any, runs: int) -> dict[str, Any]:  # noqa: ARG001 - generated rows
    """Mean excess risk beside the bound by the Gaussian width, as rows are added: noisy gradients on two sets."""
    found: dict[str, Any] = {}
    columns = 100
    for name, constraint, project in (("l2", L2Ball(1.0), onto_ball), ("simplex", Simplex(1.0), onto_simplex)):
        for rows in (10**3, 10**4, 10**5, 10**6):
            generator = np.random.default_rng(rows)
            X = generator.normal(size=(rows, columns)).astype(np.float32)
            X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
            theta = project(generator.normal(size=columns) ** 3)
            y = np.clip(X @ theta + 0.05 * generator.normal(size=rows), -1, 1)
            plan = frank_wolfe.plan(
                SquaredSlope(1.0), frank_wolfe.PathTable(rows, columns, 1.0, 1.0), constraint, epsilon=1.0,
                delta=rows**-1.1, method="gradient",
            )  # fmt: skip
            table = fixed_rows(X, plan.features, length=1.0)
            gram, cross = X.T.astype(float) @ X / rows, X.T.astype(float) @ y / rows
            least = quadratic(least_point(gram, cross, project), gram, cross)
            excess = [
                quadratic(frank_wolfe.execute(plan, table, y).point, gram, cross) - least
                for _ in range(3 if rows > 10**5 else max(runs, 10))
            ]
            found[f"{name}, {rows:,} rows"] = {
                "excess": summary(excess), "bound": round(plan.excess_bound, 4), "points": plan.steps,
                "width": round(constraint.width(columns), 3),
            }  # fmt: skip
            print(name, rows, found[f"{name}, {rows:,} rows"], flush=True)
    return found


def quadratic(theta: np.ndarray, gram: np.ndarray, cross: np.ndarray) -> float:
    return float(theta @ gram @ theta - 2 * cross @ theta)


def onto_ball(point: np.ndarray) -> np.ndarray:
    return point / max(1.0, float(np.linalg.norm(point)))


def onto_simplex(point: np.ndarray) -> np.ndarray:
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(point) + 1)
    return np.maximum(point - excess[np.flatnonzero(ordered > excess)[-1]], 0)


def least_point(gram: np.ndarray, cross: np.ndarray, project: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The minimiser over a set, by accelerated projected gradients."""
    step = 0.5 / np.linalg.eigvalsh(gram)[-1]
    point = ahead = project(np.zeros(len(cross)))
    for k in range(20_000):
        following = project(ahead - 2 * step * (gram @ ahead - cross))
        ahead = following + k / (k + 3) * (following - point)
        point = following
    return point


def accuracy(load: Any, runs: int) -> dict[str, Any]:
    """SparseLogisticRegression beside the l2 model; see docs/estimators/sparse-logistic-regression.md.

    RCV1's bounds were chosen on the first four fifths of one order of its rows; the last fifth is the test part.
    """
    found: dict[str, Any] = {}
    X, y = load.rcv1()
    order = np.random.default_rng(999).permutation(len(y))
    parts = [np.split(order, [int(0.8 * len(y))])] * runs
    sparse_options = {"feature_bound": 0.1, "radius": 100.0, "data_norm": 1.0}
    found["rcv1"] = compared(sparse.csr_array(X), y, parts, sparse_options, {"data_norm": 1.0}, right)
    X, y = load.dorothea()
    sparse_options, l2_options = {"feature_bound": 1.0, "fit_intercept": True}, {"data_norm": 30.0}
    found["dorothea"] = compared(
        sparse.csr_array(X), np.where(y > 0, 1, -1), splits(len(y), runs), sparse_options, l2_options, balanced
    )
    return found


def compared(X: Any, y: np.ndarray, parts: list, sparse_options: dict, l2_options: dict, score: Callable) -> dict:
    makers: dict[str, Callable[..., Any]] = {
        "sparse": lambda **budget: SparseLogisticRegression(classes=[-1, 1], **budget, **sparse_options),
        "sparse, refit 0.3": lambda **budget: SparseLogisticRegression(
            classes=[-1, 1], refit=0.3, **budget, **sparse_options
        ),
        "l2": lambda **budget: LogisticRegression(classes=[-1, 1], **budget, **l2_options),
    }
    found: dict[str, Any] = {}
    for epsilon in (0.1, 1.0, 5.0):
        for name, make in makers.items():
            scores = []
            for train, test in parts:
                model = make(epsilon=epsilon, delta=len(train) ** -1.1).fit(X[train], y[train])
                scores.append(score(y[test], model.predict(X[test])))
            found[f"epsilon {epsilon:g}, {name}"] = summary(scores)
            print(epsilon, name, summary(scores), flush=True)
    train, test = parts[0]
    found["without privacy"] = score(y[test], SklearnLogistic(C=10.0).fit(X[train], y[train]).predict(X[test]))
    print("without privacy", found["without privacy"])
    return found


def refit(load: Any, runs: int) -> dict[str, Any]:
    """What a second fit on the chosen columns does at the same total: house values by cubic terms of eight columns.

    The bounds are what anybody knows of California; shares were tried on the first 16,000 of one order of the rows, and
    the rest is the test part.
    """
    table, values = load.california()
    low = np.array([-125, 32, 0, 0, 0, 0, 0, 0])
    high = np.array([-114, 42, 52, 40_000, 6_500, 36_000, 6_100, 15])
    columns = table.select_dtypes("number").fillna(0).to_numpy(float)
    X = PolynomialFeatures(3).fit_transform(np.clip((columns - low) / (high - low) * 2 - 1, -1, 1))
    y = np.clip((values - 250_000) / 250_000, -1, 1)
    order = np.random.default_rng(5).permutation(len(y))
    train, test = order[:16_000], order[16_000:]
    found: dict[str, Any] = {
        "zero model": float(np.mean(y[test] ** 2)),
        "least squares": float(np.mean((X[test] @ np.linalg.lstsq(X[train], y[train], rcond=None)[0] - y[test]) ** 2)),
    }
    for epsilon in (1.0, 5.0):
        for share in (0.0, 0.3, 0.5):
            errors = []
            for _ in range(max(runs, 10)):
                model = Lasso(
                    epsilon=epsilon, delta=len(train) ** -1.1, feature_bound=1.0, target_bound=1.0, refit=share
                )
                errors.append(float(np.mean((model.fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2)))
            found[f"epsilon {epsilon:g}, refit {share:g}"] = summary(errors)
    print(json.dumps(found, indent=2))
    return found


def right(y: np.ndarray, guess: np.ndarray) -> float:
    return float(np.mean(guess == y))


def balanced(y: np.ndarray, guess: np.ndarray) -> float:
    return statistics.mean(right(y[y == label], guess[y == label]) for label in np.unique(y))


def main() -> None:
    parts = {"speed": speed, "memory": memory, "risk": risk, "width": width, "refit": refit, "accuracy": accuracy}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with the data sets and load.py")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    parser.add_argument("parts", nargs="*", default=[], help=f"which of {', '.join(parts)}; all if left out")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    load = loader(arguments.data)
    found = {name: parts[name](load, arguments.runs) for name in arguments.parts or parts}
    found["peak GiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
