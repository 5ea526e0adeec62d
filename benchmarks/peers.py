"""Other libraries, each in an environment of its own, built once from the package index."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DIFFPRIVLIB = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "numpy<2.3")


def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """The interpreter of an environment that holds these packages."""
    home = FOLDER / ".environments" / name
    python, done = home / "bin" / "python", home / "installed"
    if not done.exists() or done.read_text() != "\n".join(requirements):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True)
        done.write_text("\n".join(requirements))
    return python


def diffprivlib(job: str, **options: Any) -> Any:
    """Run one job of ``diffprivlib_jobs.py`` in its environment."""
    python = environment("diffprivlib", DIFFPRIVLIB)
    command = [str(python), str(FOLDER / "diffprivlib_jobs.py"), job, json.dumps(options)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(finished.stdout.strip().splitlines()[-1])
