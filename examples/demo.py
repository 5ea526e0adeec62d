"""From a table of people to released statistics and a checked budget, in a minute.

The table is generated, so nothing here is anybody's data, and the true values may be shown beside the private ones.
"""

from __future__ import annotations

import csv
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow.csv
from rich.console import Console
from rich.table import Table
from sklearn.pipeline import make_pipeline

from epsilearn import BoundedScaler, Ledger, LogisticRegression, explain, statistics
from epsilearn.errors import BudgetExceeded

FOLDER = Path("demo-output")
console = Console(highlight=False)


def write_table(path: Path, rows: int = 30_000) -> None:
    """A hospital's table: age, ward and length of stay."""
    chance = random.Random(20)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "ward", "days"])
        for _ in range(rows):
            age = min(100, max(18, round(chance.gauss(58, 19))))
            ward = chance.choices(["surgery", "medicine", "oncology"], [0.4, 0.45, 0.15])[0]
            writer.writerow([age, ward, min(60, 1 + int(chance.expovariate(1 / (2 + age / 15))))])


def main() -> None:
    """Run the demo and say where everything is."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    write_table(FOLDER / "patients.csv")
    patients = pyarrow.csv.read_csv(FOLDER / "patients.csv")
    ledger = Ledger.create(FOLDER / "budget.db", dataset="patients", epsilon=1.0)

    age, ward, days = patients["age"], patients["ward"], patients["days"]
    wards = ["surgery", "medicine", "oncology"]
    releases = {
        "mean age": statistics.mean(age, bounds=(0, 120), epsilon=0.1, ledger=ledger, purpose="mean age"),
        "median stay": statistics.quantile(
            days, 0.5, bounds=(0, 60), candidates=61, epsilon=0.1, ledger=ledger, purpose="median stay"
        ),
        "patients by ward": statistics.histogram(
            ward, categories=wards, epsilon=0.2, ledger=ledger, purpose="patients by ward"
        ),
    }
    truths = {
        "mean age": np.mean(age),
        "median stay": np.median(days),
        "patients by ward": np.array([np.sum(np.array(ward) == w) for w in wards]),
    }
    show(releases, truths)
    learn(patients, wards, ledger)
    try:
        statistics.mean(age, bounds=(0, 120), epsilon=0.7, ledger=ledger)
    except BudgetExceeded as refusal:
        console.print(f"\n[bold]A fifth request is refused.[/] {refusal}")

    balance = ledger.balance()
    total = explain(balance.spent_epsilon)
    (FOLDER / "guarantee.json").write_text(releases["patients by ward"].guarantee.to_json() + "\n")
    total.save_figure(FOLDER / "meaning.png")
    console.print(
        f"\n[bold]What was promised:[/] epsilon = {balance.spent_epsilon:g} in all, per patient. {total.sentences()[1]}"
    )
    head = ledger.verify(releases["mean age"].guarantee.ledger.head)
    console.print(f"The ledger's hash chain is intact; its head is {head[:16]}…\n")
    for name in ("patients.csv", "budget.db", "guarantee.json", "meaning.png"):
        console.print(f"  {FOLDER / name}")


def learn(patients: pyarrow.Table, wards: list[str], ledger: Ledger) -> None:
    """A private model: will a patient stay longer than four days?"""
    features, long = patients.select(["age", "ward"]), np.array(patients["days"]) > 4
    model = make_pipeline(
        BoundedScaler(bounds={"age": (0, 120)}, categories={"ward": wards}),
        LogisticRegression(epsilon=0.4, data_norm=1.0, classes=[False, True], ledger=ledger),
    ).fit(features, long)
    console.print(
        f"\n[bold]A private model[/] (epsilon 0.4) tells stays of more than four days by age and ward: "
        f"{model.score(features, long):.1%} right, against {max(long.mean(), 1 - long.mean()):.1%} "
        "for always guessing the same."
    )


def show(releases: dict[str, statistics.Release], truths: dict[str, object]) -> None:
    """The private values beside the true ones, which only a generated table allows."""
    table = Table(title="Released", title_justify="left", box=None, padding=(0, 1), header_style="bold")
    for name, side in (("statistic", "left"), ("private", "right"), ("true", "right"), ("epsilon", "right")):
        table.add_column(name, justify=side, no_wrap=True)
    for name, release in releases.items():
        table.add_row(name, number(release.value), number(truths[name]), f"{release.guarantee.epsilon:g}")
    console.print(table)


def number(value: object) -> str:
    """One number or several, for reading."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return ", ".join(f"{v:,}" for v in value) if isinstance(value, list) else f"{value:,.2f}"


if __name__ == "__main__":
    main()
