"""What a fit leaves behind: a folder with the model, its report and its guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from epsilearn.errors import InvalidInput
from epsilearn.job import Job
from epsilearn.ledger import Balance
from epsilearn.model_file import FILE_NAME, model_to_json
from epsilearn.released import ReleasedModel
from epsilearn.report import report

__all__ = ["write_release"]

# Budgets at which the report shows what privacy may cost.
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def write_release(folder: Path, job: Job, model: ReleasedModel, balance: Balance | None) -> None:
    """Write ``model.json``, ``report.html`` and ``guarantee.json`` into a folder that is not yet anybody's."""
    rows = int(model.settings["rows"])
    text = model_to_json(model)
    digest = json.loads(text)["digest"]
    page = report(model, job.outlook(rows), costs(job, rows), balance, digest)
    (folder / FILE_NAME).write_text(text, encoding="utf-8")
    (folder / "guarantee.json").write_text(model.guarantee.to_json() + "\n", encoding="utf-8")
    (folder / "report.html").write_text(page, encoding="utf-8")


def costs(job: Job, rows: int) -> list[tuple[float, float, float]]:
    """What privacy may cost at several budgets around the job's own; public numbers only."""
    from dataclasses import replace

    budgets = sorted({*(epsilon for epsilon in _EPSILONS if _near(epsilon, job.epsilon)), job.epsilon})
    found: list[tuple[float, float, float]] = []
    for epsilon in budgets:
        try:
            lost: Any = replace(job, epsilon=epsilon).outlook(rows).lost
        except InvalidInput:  # a budget that this table cannot be fitted with
            continue
        if lost is not None:
            found.append((epsilon, *lost))
    return found if len(found) > 1 else []


def _near(epsilon: float, own: float) -> bool:
    return own / 40 <= epsilon <= 40 * own
