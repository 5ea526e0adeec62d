"""What the numbers depend on: machine, versions and commit, and nothing that names the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers import REQUIREMENTS

__all__ = ["machine", "versions"]

FOLDER = Path(__file__).parent


def machine() -> dict[str, Any]:
    """The machine and the commit, as they are now."""
    return {
        "cores": _cores(),
        "processor": _processor(),
        "memory": _memory(),
        "system": platform.system(),
        "python": platform.python_version(),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "../src", ".")),
    }


def _cores() -> int:
    """Those that this process may use, where the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor(path: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _memory() -> int | None:
    """In gigabytes, where the system says."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, OSError, ValueError):
        return None


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *words], cwd=FOLDER, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # not a clone, or no git
    return done.stdout.strip()


def versions(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Those here, and those that the peers' results name."""
    found = {name: version(name) for name in ("epsilearn", "numpy", "scipy", "numba")}
    found["opendp"] = REQUIREMENTS["opendp"][0].partition("==")[2]
    for line in lines:
        for name, number in line.get("versions", {}).items():
            found[name if line["library"] != "diffprivlib" or name == "diffprivlib" else f"its {name}"] = number
    return found
