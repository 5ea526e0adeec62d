"""diffprivlib's logistic regression, held to its claim: exact divergences of its constants, and audits of its releases.

Its noise is that of Chaudhuri, Monteleoni and Sarwate (2011), who take rows of norm at most 1. For longer rows, of norm
R, the curvature that one record adds is R**2 / 4; ``Vector`` counts R / 4. For R well above 1 the claim is false.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import DIFFPRIVLIB, FOLDER, environment

from epsilearn.audit import Claim, Finding, judge
from epsilearn.audit.exact import hockey_stick, minimiser_log_density
from epsilearn.losses import Logistic
from epsilearn.mechanisms.release import NoiseLaw


@dataclass(frozen=True)
class Table:
    """Records, and how often each stands in the table."""

    X: list[list[float]]
    y: list[int]
    repeats: list[int]


@dataclass(frozen=True)
class Setting:
    """A configuration of the peer, and two neighbours."""

    name: str
    epsilon: float
    data_norm: float
    C: float
    fit_intercept: bool
    first: Table
    second: Table


def lonely(norm: float) -> tuple[Table, Table]:
    """A record at the bound against an empty one; two empty ones beside it, since the peer wants both classes."""
    first, second = (Table([[0.0], [0.0], [x]], [0, 1, 1], [1, 1, 1]) for x in (norm, 0.0))
    return first, second


def crowded(rows: int) -> tuple[Table, Table]:
    """As many of either class, so that the minimiser is near 0, and one more whose label changes."""
    first, second = (Table([[1.0], [1.0], [1.0]], [0, 1, label], [rows, rows, 1]) for label in (1, 0))
    return first, second


SETTINGS = (
    Setting("rows of norm 1 (as in the paper)", 1.0, 1.0, 0.01, False, *lonely(1.0)),
    Setting("rows of norm 100", 1.0, 100.0, 0.01, False, *lonely(100.0)),
    Setting("an intercept, and all settings at their defaults", 1.0, 1.0, 1.0, True, *lonely(1.0)),
    Setting("40,001 rows and the default tolerance", 1.0, 1.0, 0.01, False, *crowded(20_000)),
)


def noise_scale(epsilon: float, norm: float, size: float) -> tuple[float, float]:
    """The scale of the peer's noise and the n lambda it ends up with, as ``mechanisms/vector.py`` computes them."""
    left = epsilon - 2 * math.log(1 + 0.25 * norm / size)
    if left > 0:
        return 2 * norm / left, size
    return 2 * norm / (epsilon / 2), 0.25 * norm / math.expm1(epsilon / 4)


def exact_epsilon(epsilon: float, norm: float, size: float) -> float:
    """What is true of one record at the bound against an empty one, without an intercept: one weight, one integral."""
    scale, size = noise_scale(epsilon, norm, size)
    law = NoiseLaw("k-norm", scale)
    reach = (60 * scale + norm) / size
    grid = np.concatenate([np.linspace(-reach, reach, 40_001), np.linspace(-20, 20, 40_001) / norm])[:, None]
    full, empty = (minimiser_log_density(Logistic(), np.array([[x]]), np.ones(1), size, law, grid) for x in (norm, 0.0))
    return float(np.abs(full - empty).max())


def exact_delta(epsilon: float, size: float) -> float:
    """The delta that is true at the claimed epsilon with an intercept, rows of norm 1; it should be 0.

    The intercept is not regularised unless the budget is so small that ``Vector`` adds a term of its own. Where the
    others say nothing of it, one record is all its curvature, and the ratio of densities has no bound.
    """
    scale, total = noise_scale(epsilon, math.sqrt(2), size)
    axis = np.linspace(-40, 40, 801)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    cell = 2 * math.log(axis[1] - axis[0])
    law, sizes = NoiseLaw("k-norm", scale), np.array([total, total - size])
    laws = [
        minimiser_log_density(
            Logistic(), np.array([[0.0, 1.0], [0.0, 1.0], [x, 1.0]]), np.array([-1.0, 1.0, 1.0]), sizes, law, points
        )
        + cell
        for x in (1.0, 0.0)
    ]
    return hockey_stick(laws[0], laws[1], epsilon)


def releases(setting: Setting, table: Table, trials: int, folder: Path) -> np.ndarray:
    """Made by the real library in its own environment."""
    output = folder / "releases.npy"
    job = {
        **vars(table), "trials": trials, "output": str(output), "epsilon": setting.epsilon,
        "data_norm": setting.data_norm, "C": setting.C, "fit_intercept": setting.fit_intercept,
    }  # fmt: skip
    python = environment("diffprivlib", DIFFPRIVLIB)
    subprocess.run([str(python), str(FOLDER / "audit_diffprivlib_jobs.py"), json.dumps(job)], check=True)
    found: np.ndarray = np.load(output)
    return found if setting.fit_intercept else found[:, :-1]


def audited(setting: Setting, trials: int) -> Finding:
    with tempfile.TemporaryDirectory() as folder:
        first, second = (releases(setting, table, trials, Path(folder)) for table in (setting.first, setting.second))
    return judge(first, second, Claim(setting.epsilon))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    trials = parser.parse_args().trials
    print("Exact epsilon of its constants at a claimed 1, one record of norm R against an empty one, no intercept\n")
    sizes = (1.0, 10.0, 100.0, 1000.0)
    print("     R   " + "".join(f"   1/C = {size:<6g}" for size in sizes))
    for norm in (1.0, 2.0, 5.0, 10.0, 100.0):
        print(f"{norm:6g}   " + "".join(f"{exact_epsilon(1.0, norm, size):10.3f}    " for size in sizes))
    print("\nExact delta at a claimed epsilon of 1 (it should be 0), rows of norm 1 and an intercept\n")
    print("".join(f"   1/C = {size:<6g}" for size in sizes))
    print("".join(f"{exact_delta(1.0, size):10.4f}    " for size in sizes))
    for setting in SETTINGS:
        print(f"\n{setting.name}\n{audited(setting, trials)}", flush=True)


if __name__ == "__main__":
    main()
