"""The libraries of the benchmark, each in an environment of its own, built once from the package index."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = [
    "DIFFPRIVLIB", "REQUIREMENTS", "Worker", "answers", "built", "environment", "fingerprint", "install", "interpreter",
]  # fmt: skip

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent / "src" / "epsilearn"

DIFFPRIVLIB = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "numpy<2.3")
REQUIREMENTS = {
    "diffprivlib": DIFFPRIVLIB,
    "opacus": ("opacus==1.6.0", "torch==2.13.0"),
    "opendp": ("opendp==0.16.0", "numpy"),
    "sklearn": ("scikit-learn==1.9.1",),
}


def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """The interpreter of an environment that holds these packages."""
    return built(name, "\n".join(requirements), lambda python: install(python, *requirements))


def built(name: str, stamp: str, fill: Callable[[Path], None]) -> Path:
    """The interpreter of an environment, made anew whenever what it follows from, the stamp, has changed."""
    home = FOLDER / ".environments" / name
    python, done = home / "bin" / "python", home / "installed"
    if not done.exists() or done.read_text() != stamp:
        print(f"building the environment of {name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        fill(python)
        done.write_text(stamp)
    return python


def install(python: Path, *words: str) -> None:
    """Install packages by pip, with whatever options it is to have."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *words], check=True, capture_output=True)


def interpreter(library: str) -> Path:
    """Where a library's jobs run; ours where this script does."""
    return Path(sys.executable) if library == "epsilearn" else environment(library, REQUIREMENTS[library])


def fingerprint(library: str) -> str:
    """A digest of everything but the request that a library's results follow from."""
    files = [FOLDER / "job.py", FOLDER / f"{library}_jobs.py"]
    files += sorted(SOURCES.rglob("*.py")) if library == "epsilearn" else []
    digest = hashlib.sha256(repr(REQUIREMENTS.get(library)).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _request(content: dict[str, Any]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(content, file)
        file.flush()
        yield file.name


def answers(library: str, request: dict[str, Any], threads: int | None = None) -> Iterator[dict[str, Any]]:
    """The lines that a library's job script prints, as they come."""
    with _request(request) as path:
        command = [str(interpreter(library)), str(FOLDER / f"{library}_jobs.py"), path]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_variables(threads)
        )
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
        _, complaint = process.communicate()
    if process.returncode != 0:
        last = complaint.strip().splitlines()[-1:] or [f"the process ended with code {process.returncode}"]
        yield {"reason": last[0][:300]}


def _variables(threads: int | None) -> dict[str, str]:
    if threads is None:
        return dict(os.environ)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return os.environ | dict.fromkeys(names, str(threads))


class Worker:
    """A process that holds a table and fits a model each time it is told to."""

    def __init__(self, library: str, request: dict[str, Any]) -> None:
        self._holder = _request(request)
        command = [str(interpreter(library)), str(FOLDER / f"{library}_jobs.py"), self._holder.__enter__()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def fit(self) -> dict[str, Any]:
        """One fit: its seconds, or the reason why there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"reason": "the process ended"}

    def end(self) -> None:
        """Let the process go."""
        self._process.communicate()
        self._holder.__exit__(None, None, None)
