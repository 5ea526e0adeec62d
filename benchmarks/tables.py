"""The tables on disk, as the job scripts read them: rows, labels and the splits of all runs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import datasets
import numpy as np
from methods import Facts
from scipy import sparse

__all__ = ["Prepared", "prepared"]

FOLDER = Path(__file__).parent / ".tables"
QUICK_ROWS = 4000


@dataclass(frozen=True)
class Prepared:
    """Where a table is, what is public about it, and a digest of its bytes."""

    folder: str
    facts: Facts
    digest: str


def prepared(name: str, quick: bool = False) -> Prepared:
    """A table, written once; the quick benchmark takes a few thousand of its rows."""
    source = hashlib.sha256(Path(datasets.__file__).read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    folder = FOLDER / f"{name.lower().replace(' ', '-')}{'-quick' if quick else ''}-{source}"
    facts = folder / "facts.json"
    if not facts.exists():
        _write(name, quick, folder)
    content = json.loads(facts.read_text())
    digest = content.pop("digest")
    return Prepared(str(folder), Facts(**content), digest)


def _write(name: str, quick: bool, folder: Path) -> None:
    table = datasets.load(name)
    X, y = table.X, table.y
    if quick:
        some = np.random.default_rng(0).permutation(len(y))[:QUICK_ROWS]
        X, y = X[some], y[some]
    folder.mkdir(parents=True, exist_ok=True)
    if sparse.issparse(X):
        sparse.save_npz(folder / "X.npz", sparse.csr_matrix(X), compressed=False)
    else:
        np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    train_rows = len(datasets.split(len(y), 0)[0])
    facts = Facts(name, train_rows, X.shape[1], table.classes, sparse.issparse(X), quick)
    for run in range(facts.runs):
        train, test = datasets.split(len(y), run)
        np.save(folder / f"train{run}.npy", train)
        np.save(folder / f"test{run}.npy", test)
    digest = hashlib.sha256()
    for file in sorted(folder.glob("[Xy].np*")):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    # Last, because the folder is complete only with it.
    (folder / "facts.json").write_text(json.dumps(asdict(facts) | {"digest": digest.hexdigest()[:16]}))
