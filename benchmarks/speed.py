"""Times, memory, imports and the first fit: on otherwise idle cores, libraries in turn, reported as ratios."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from methods import METHODS, OURS, Settings
from peers import FOLDER, SOURCES, Worker, answers, built, fingerprint, install, interpreter
from store import Store, key
from tables import Prepared

import noise

__all__ = ["measure"]

EPSILON = 1.0
# Seconds after which a table gets no further round.
PATIENCE = 100.0
REPOSITORY = FOLDER.parent
FIRST_FIT = """
import numpy as np, warnings
warnings.simplefilter("ignore")
from epsilearn import LogisticRegression
rows = np.random.default_rng(0).normal(size=(10_000, 20)) / 5
LogisticRegression(data_norm=1.0, delta=1e-6, classes=[False, True]).fit(rows, rows[:, 0] > 0)
"""

# A library may load little until something of it is used, so the model itself is imported too.
IMPORTS = {
    "epsilearn": {"import": "import epsilearn", "model": "from epsilearn import LogisticRegression"},
    "diffprivlib": {"import": "import diffprivlib", "model": "from diffprivlib.models import LogisticRegression"},
    "opacus": {"import": "import opacus", "model": "from opacus import PrivacyEngine"},
}

Line = dict[str, Any]


def measure(store: Store, tables: list[Prepared], lines: list[Line], repeats: int) -> dict[str, Any]:
    """Everything but accuracy; ``lines`` tell which settings were the best of each grid."""
    found: dict[str, Any] = {"seconds": [], "memory": [], "starts": 2 * repeats}
    for table in tables:
        contestants = _contestants(table, lines)
        shared = {"table": table.digest, "who": {name: who[1] for name, who in contestants.items()}}
        failed = partial(_unmeasured, table, contestants)
        make = partial(_in_turn, table, contestants, repeats)
        found["seconds"] += _kept(store, make, failed, what="seconds", repeats=repeats, **shared)
        found["memory"] += _kept(store, partial(_memory, table, contestants), failed, what="memory", **shared)
    found["import"] = _kept(store, partial(_imports, found["starts"]), _without, what="import", repeats=repeats)
    found["first fit"] = _kept(store, _first_fit, _without, what="first fit")
    found["noise"] = _kept(store, noise.measure, _without, what="noise")
    return found


def _kept(store: Store, make: Callable[[], Any], failed: Callable[[str], Any], **parts: Any) -> Any:
    """What was measured, now or by an earlier run of the same code; what ``failed`` makes of the reason otherwise."""
    name = key(codes={method.library: fingerprint(method.library) for method in METHODS}, **parts)
    result = store.get(name)
    if result is None:
        try:
            result = {"key": name, "found": make()}
        except Exception as error:
            # Not worth the rest of a long run, and not kept: the next one tries again.
            return failed(f"{type(error).__name__}: {error}"[:200])
        store.put(result)
    return result["found"]


def _without(reason: str) -> Line:
    return {"reason": reason}


def _unmeasured(table: Prepared, contestants: Iterable[str], reason: str) -> list[Line]:
    """A line for everybody, so that nobody is missing from the page."""
    return [{"table": table.facts.name, "who": name, "reason": reason} for name in contestants]


def _contestants(table: Prepared, lines: list[Line]) -> dict[str, tuple[str, Settings]]:
    """Ours at the defaults, and every peer at its defaults and at its best settings for epsilon = 1."""
    facts = table.facts
    found = {"epsilearn": (OURS.library, OURS.budget(OURS.defaults(facts), EPSILON, facts))}
    for line in sorted(lines, key=lambda line: line["method"].casefold()):  # a library's entries side by side
        if line["table"] != facts.name or line["library"] == OURS.library or "mean" not in line:
            continue
        # Hundreds of steps are too many for a quick look.
        too_long = facts.quick and line["library"] == "opacus"
        if line["epsilon"] in (EPSILON, None) and not too_long:
            found[f"{line['method']} ({line['kind']})"] = (line["library"], line["settings"])
    return found


def _in_turn(table: Prepared, contestants: dict[str, tuple[str, Settings]], repeats: int) -> list[Line]:
    """Median seconds of a fit, one library after the other in each round; the first round is not counted."""
    workers = {
        name: Worker(library, {"what": "seconds", "folder": table.folder, "settings": settings})
        for name, (library, settings) in contestants.items()
    }
    rounds, started = [], time.monotonic()
    while len(rounds) < 2 or (len(rounds) <= repeats and time.monotonic() - started < PATIENCE):
        rounds.append({name: worker.fit() for name, worker in workers.items()})
    for worker in workers.values():
        worker.end()
    lines = []
    for name in workers:
        results = [fits[name] for fits in rounds[1:]]
        line: Line = {"table": table.facts.name, "who": name}
        reason = next((result["reason"] for result in results if "reason" in result), None)
        lines.append(line | ({"reason": reason} if reason else {"seconds": _median(results), "fits": len(results)}))
    shown = ", ".join(f"{line['who']} {line['seconds']:.2f} s" for line in lines if "seconds" in line)
    print(f"times on {table.facts.name}: {shown}", flush=True)
    return lines


def _median(results: list[Line]) -> float:
    return statistics.median(result["seconds"] for result in results)


def _memory(table: Prepared, contestants: dict[str, tuple[str, Settings]]) -> list[Line]:
    """Peak memory of a fit above its input, in units of the input, each in a process of its own."""
    lines = []
    for name, (library, settings) in contestants.items():
        request = {"what": "memory", "folder": table.folder, "settings": settings}
        answer = next(iter(answers(library, request)))
        kept = {field: answer[field] for field in ("rise", "reason") if field in answer}
        lines.append({"table": table.facts.name, "who": name} | kept)
    return lines


def _installed() -> Path:
    """An interpreter with this package installed as anybody would, not from the source folder."""
    return built("epsilearn", (REPOSITORY / "pyproject.toml").read_text(), _install)


def _install(python: Path, *options: str) -> None:
    """From a copy: building in place would leave files behind, and pick up those of an earlier build."""
    with tempfile.TemporaryDirectory() as copy:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, copy)
        shutil.copytree(SOURCES, f"{copy}/src/epsilearn", ignore=shutil.ignore_patterns("__pycache__"))
        install(python, *options, copy)


def _reinstalled() -> Path:
    """The same, fresh: whatever an earlier run compiled is gone."""
    python = _installed()
    for folder in python.parent.parent.glob("lib/*/site-packages/epsilearn"):
        shutil.rmtree(folder)
    _install(python, "--force-reinstall", "--no-deps")
    return python


def _process_seconds(python: Path, code: str) -> float:
    start = time.perf_counter()
    # From a folder without modules that could be taken for the library's.
    subprocess.run([str(python), "-c", code], check=True, cwd=python.parent, env=_clean())
    return time.perf_counter() - start


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA"))}


def _imports(repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of an interpreter that imports a library and ends; of one that imports the model it needs."""
    _reinstalled()
    pairs = [(name, kind) for name, codes in IMPORTS.items() for kind in codes]
    rounds = [
        {(name, kind): _process_seconds(_python(name), IMPORTS[name][kind]) for name, kind in pairs}
        for _ in range(repeats + 1)  # the first is not counted
    ]
    found: dict[str, dict[str, float]] = {name: {} for name in IMPORTS}
    for name, kind in pairs:
        found[name][kind] = statistics.median(seconds[name, kind] for seconds in rounds[1:])
    return found


def _python(library: str) -> Path:
    return _installed() if library == "epsilearn" else interpreter(library)


def _first_fit() -> dict[str, float]:
    """Seconds from the start of the interpreter to the end of the first fit ever, and of the second."""
    python = _reinstalled()
    return {"first": _process_seconds(python, FIRST_FIT), "second": _process_seconds(python, FIRST_FIT)}
