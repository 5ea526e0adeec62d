"""What a fit leaves behind: a folder with the model, its report and its guarantee."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from epsilearn.errors import InvalidInput
from epsilearn.job import Job
from epsilearn.ledger import Balance
from epsilearn.model_file import FILE_NAME, model_to_json
from epsilearn.outlook import Outlook
from epsilearn.released import ReleasedModel
from epsilearn.report import report

__all__ = ["Foreseen", "foresee", "release_texts", "write_release"]

# Budgets at which the report shows what privacy may cost.
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Foreseen:
    """What the report says besides the model: all of it known before anything is spent."""

    outlook: Outlook
    costs: tuple[tuple[float, float, float], ...]


def foresee(job: Job, rows: int) -> Foreseen:
    """The outlook of a job, and what privacy may cost at budgets around its own; from public numbers only."""
    own = job.outlook(rows)
    if own.lost is None:
        return Foreseen(own, ())
    found = [(job.epsilon, *own.lost)]
    for epsilon in _EPSILONS:
        if job.epsilon / 40 <= epsilon <= 40 * job.epsilon and epsilon != job.epsilon:
            try:
                lost = replace(job, epsilon=epsilon).outlook(rows).lost
            except InvalidInput:  # a budget that this table cannot be fitted with
                continue
            assert lost is not None
            found.append((epsilon, *lost))
    return Foreseen(own, tuple(sorted(found)) if len(found) > 1 else ())


def release_texts(model: ReleasedModel, foreseen: Foreseen, balance: Balance | None) -> dict[str, str]:
    """What a fit leaves behind, by the names of the files: the model, its report and its guarantee."""
    text = model_to_json(model)
    return {
        FILE_NAME: text,
        "guarantee.json": model.guarantee.to_json() + "\n",
        "report.html": _page(model, foreseen, balance, json.loads(text)["digest"]),
    }


def write_release(folder: Path, model: ReleasedModel, foreseen: Foreseen, balance: Balance | None) -> None:
    """Write ``model.json``, ``report.html`` and ``guarantee.json`` into a folder that is not yet anybody's."""
    for name, text in release_texts(model, foreseen, balance).items():
        (folder / name).write_text(text, encoding="utf-8")


def _page(model: ReleasedModel, foreseen: Foreseen, balance: Balance | None, digest: str) -> str:
    try:
        return report(model, foreseen.outlook, foreseen.costs, balance, digest)
    except Exception:  # what was paid for is delivered, even if it cannot be drawn
        words = escape(f"{model.guarantee}\n\n{model.guarantee.to_json()}")
        return (
            f"<!doctype html>\n<title>A private model</title>\n<pre>The report could not be drawn.\n\n{words}</pre>\n"
        )
