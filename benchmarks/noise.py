"""Exact noise against plain float noise from the same operating-system bits, and against OpenDP.

Ratios of medians, taken in one run; times themselves depend on the machine.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import answers
from scipy.special import ndtri

import epsilearn

SIZE = 10**6
REPEATS = 15


def uniforms(count: int) -> np.ndarray:
    words = np.frombuffer(os.urandom(8 * count), np.uint64)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def plain_normal(values: np.ndarray) -> np.ndarray:
    return values + 4.2 * ndtri(uniforms(len(values)))


def plain_box_muller(values: np.ndarray) -> np.ndarray:
    uniform = uniforms(len(values))
    half = len(values) // 2
    radius, angle = np.sqrt(-2 * np.log(uniform[:half])), 2 * np.pi * uniform[half:]
    return values + 4.2 * np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


def plain_k_norm(values: np.ndarray) -> np.ndarray:
    direction = ndtri(uniforms(len(values)))
    radius = np.random.default_rng().gamma(len(values))
    return values + direction * (radius / np.linalg.norm(direction))


def plain_noisy_max(scores: np.ndarray) -> int:
    return int(np.argmax(scores - 2.0 * np.log(-np.log(uniforms(len(scores))))))


def alternating(runs: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Median seconds of each, run in turn so that a slow spell of the machine hits all of them alike."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def measure() -> dict[str, Any]:
    """Median milliseconds of each, and the ratios that matter with the most they may be."""
    values = np.random.default_rng(0).normal(size=SIZE)
    gaussian = {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6}
    seconds = alternating(
        {
            "gaussian, exact": lambda: epsilearn.gaussian(values, **gaussian),
            "gaussian, plain (inverse)": lambda: plain_normal(values),
            "gaussian, plain (Box-Muller)": lambda: plain_box_muller(values),
            "k-norm, exact": lambda: epsilearn.k_norm(values, sensitivity=1.0, epsilon=1.0),
            "k-norm, plain": lambda: plain_k_norm(values),
            "noisy max, exact": lambda: epsilearn.exponential(values, sensitivity=1.0, epsilon=1.0),
            "noisy max, plain": lambda: plain_noisy_max(values),
        }
    )
    fastest = min(seconds["gaussian, plain (inverse)"], seconds["gaussian, plain (Box-Muller)"])
    ratios = {
        "Gaussian vector / plain floats": (seconds["gaussian, exact"] / fastest, 5.0),
        "K-norm vector / plain floats": (seconds["k-norm, exact"] / seconds["k-norm, plain"], 5.0),
        "noisy maximum / plain floats": (seconds["noisy max, exact"] / seconds["noisy max, plain"], 3.0),
    }
    peer = next(iter(answers("opendp", {"count": 20_000, "repeats": 3})))
    if "seconds" in peer:
        ratios["Gaussian vector / OpenDP, a coordinate"] = (seconds["gaussian, exact"] / SIZE / peer["seconds"], 1 / 20)
    milliseconds = {name: round(1000 * value, 2) for name, value in seconds.items()}
    return {"milliseconds": milliseconds, "ratios": ratios, "reason": peer.get("reason")}


def main() -> None:
    found = measure()
    print(f"{SIZE:,} coordinates or candidates; medians of {REPEATS} runs in turn\n")
    print(f"{'ratio':45}{'measured':>12}{'at most':>10}")
    for name, (ratio, limit) in found["ratios"].items():
        print(f"{name:45}{ratio:12.4f}{limit:10.3f}")
    if found["reason"]:
        print(f"OpenDP cannot run: {found['reason']}")
    print("\n" + json.dumps({"milliseconds": found["milliseconds"]}))


if __name__ == "__main__":
    main()
