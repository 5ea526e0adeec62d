"""A hospital's job from end to end: a table, a schema, a budget, a private model, predictions, a report.

The table is generated: nothing in it is anybody's data. So what the model gets right may be shown, beside what a model
without privacy gets right, which for a real table would have to be paid for.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.markup import escape
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import epsilearn
from epsilearn.cli import main as command_line
from epsilearn.encoding import Encoding

FOLDER = Path("demo-output")
ROWS, NEW_ROWS, SEED = 30_000, 10_000, 2026
WARDS = ["medicine", "surgery", "cardiology", "oncology", "geriatrics"]

# What the hospital knows without looking at a single patient.
SCHEMA = """\
version = 1
rows_per_person = 1
rows = 30000

[columns.patient]
ignore = true

[columns.age]
bounds = [18, 100]

[columns.sex]
categories = ["female", "male"]

[columns.ward]
categories = ["medicine", "surgery", "cardiology", "oncology", "geriatrics"]

[columns.admission]
categories = ["planned", "emergency"]

[columns.days]
bounds = [0, 40]

[columns.conditions]
bounds = [0, 10]

[columns.earlier_stays]
bounds = [0, 8]

[columns.haemoglobin]
bounds = [6, 18]
missing = 13.5

[columns.lives_alone]
categories = [false, true]

[columns.readmitted]
categories = ["no", "yes"]
"""

console = Console(highlight=False)


def patients(rows: int, seed: int) -> pa.Table:
    """A generated table of stays, and whether the patient was back within thirty days."""
    chance = np.random.default_rng(seed)
    age = np.clip(chance.normal(63, 17, rows), 18, 100).round()
    ward = chance.choice(5, rows, p=[0.34, 0.27, 0.16, 0.12, 0.11])
    emergency = chance.random(rows) < 0.35 + 0.003 * (age - 60)
    conditions = np.minimum(chance.poisson(0.5 + np.maximum(age - 40, 0) / 20), 10)
    days = np.minimum(np.ceil(chance.gamma(1.5, 1.2 + conditions / 2)), 40)
    earlier = np.minimum(chance.poisson(0.3 + conditions / 5), 8)
    haemoglobin = np.clip(chance.normal(13.8 - 0.25 * conditions, 1.6, rows), 6, 18).round(1)
    alone = chance.random(rows) < 0.15 + 0.004 * np.maximum(age - 50, 0)
    lean = -2.9 + 0.45 * conditions + 0.55 * earlier + 0.9 * emergency + 0.35 * alone - 0.22 * (haemoglobin - 13.5)
    lean += np.array([0.0, -0.5, 0.4, 0.8, 0.3])[ward] + 0.012 * (age - 60)
    back = chance.random(rows) < expit(1.3 * lean)
    measured = chance.random(rows) > 0.04
    return pa.table(
        {
            "patient": [f"P{number:06d}" for number in range(rows)],
            "age": age.astype(int),
            "sex": np.where(chance.random(rows) < 0.52, "female", "male"),
            "ward": np.array(WARDS)[ward],
            "admission": np.where(emergency, "emergency", "planned"),
            "days": days.astype(int),
            "conditions": conditions,
            "earlier_stays": earlier,
            "haemoglobin": pa.array(haemoglobin, mask=~measured),
            "lives_alone": pa.array(np.where(alone, "true", "false")),
            "readmitted": np.where(back, "yes", "no"),
        }
    )


def say(*words: str) -> None:
    """Type a command, and run it."""
    console.print(f"\n[bold]$ epsilearn {escape(' '.join(words))}[/]")
    try:
        command_line(list(words))
    except SystemExit as end:
        if end.code:
            sys.exit(end.code)


def accuracy_without_privacy(encoding: Encoding, table: pa.Table, new: pa.Table) -> float:
    """What scikit-learn reaches on the same columns."""
    plain = LogisticRegression(C=10.0, max_iter=2000).fit(encoding.matrix(table), encoding.targets(table))
    return float(plain.score(encoding.matrix(new), encoding.targets(new)))


def main() -> None:
    """Run the demo and say where everything is."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    table, new = patients(ROWS, SEED), patients(NEW_ROWS, SEED + 1)
    for name, rows in (("patients.csv", table), ("new-patients.csv", new)):
        pyarrow.csv.write_csv(rows, FOLDER / name)
    (FOLDER / "schema.toml").write_text(SCHEMA)
    data, schema, budget, model = (str(FOLDER / name) for name in ("patients.csv", "schema.toml", "budget.db", "model"))
    console.print(
        f"[bold]A generated table of {ROWS:,} hospital stays:[/] {data}. Who will be back within thirty days?"
    )
    ask = ("--schema", schema, "--target", "readmitted", "--epsilon", "1", "--delta", "1e-6", "--ledger", budget)
    say("schema", "check", schema, data, "--target", "readmitted")
    say("ledger", "create", budget, "--dataset", "patients", "--epsilon", "2", "--delta", "1e-5")
    say("fit", data, *ask, "--dry-run")
    say("fit", data, *ask, "-o", model)
    say("predict", model, str(FOLDER / "new-patients.csv"), "-o", str(FOLDER / "predictions.csv"))
    say("ledger", "history", budget)
    finish(table, new, model)


def finish(table: pa.Table, new: pa.Table, model: str) -> None:
    """The promise, the accuracy, the paths."""
    released = epsilearn.load(model)
    truth = np.array(new["readmitted"])
    private = float((released.predict(new) == truth).mean())
    plain = accuracy_without_privacy(released.encoding, table, new)
    console.print(f"\n[bold]What was promised:[/] {released.guarantee}.")
    console.print(released.guarantee.explain().sentences()[1])
    console.print(
        f"\n[bold]What it cost:[/] right for {private:.1%} of {NEW_ROWS:,} new patients; without privacy "
        f"{plain:.1%}, always saying no {(truth == 'no').mean():.1%}. (The table is generated; of a real one nobody "
        "would know.)\n"
    )
    for name in ("model/report.html", "model/model.json", "model/guarantee.json", "predictions.csv", "budget.db"):
        console.print(f"  {FOLDER / name}")


if __name__ == "__main__":
    main()
