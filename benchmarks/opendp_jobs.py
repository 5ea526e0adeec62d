"""What OpenDP is asked to do: Gaussian noise on a vector, on the exact sampler it has; runs in its own environment."""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import opendp.prelude as dp

dp.enable_features("contrib")


def seconds_per_coordinate(count: int, repeats: int) -> float:
    """Median over a few vectors."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    mechanism = dp.m.make_gaussian(*space, scale=4.2)
    values = [0.0] * count
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        mechanism(values)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]) / count


if __name__ == "__main__":
    request = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps({"seconds": seconds_per_coordinate(**request), "versions": {"opendp": version("opendp")}}))
