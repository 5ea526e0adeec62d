"""The tables of docs/choosing.md: generated rows, real noise; under five minutes on two busy cores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression as WithoutPrivacy
from sklearn.pipeline import make_pipeline

from epsilearn import BoundedScaler, LinearRegression, LogisticRegression

FITS = 20
COLUMNS = 10


def labelled(rows: int, columns: int, seed: int) -> tuple[Any, Any]:
    """Normal rows of norm about 1, and labels drawn by a logistic model of weight norm 8."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, columns)) / np.sqrt(columns)
    weights = np.random.default_rng(columns).normal(size=columns)
    weights *= 8 / np.linalg.norm(weights)
    return X, generator.random(rows) < 1 / (1 + np.exp(-X @ weights))


def table(title: str, heads: Iterable[str], lines: Iterable[Iterable[Any]]) -> None:
    """Print a table as Markdown."""
    heads = list(heads)
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---:|' * len(heads)}")
    for line in lines:
        print(f"| {' | '.join(map(str, line))} |", flush=True)


def accuracy(train: Any, test: Any, **settings: Any) -> str:
    """Mean accuracy on fresh rows over many fits, and its standard error."""
    options = {"data_norm": 1.5, "classes": [False, True], **settings}
    scores = [LogisticRegression(**options).fit(*train).score(*test) for _ in range(FITS)]
    return f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) / np.sqrt(FITS):.3f}"


def by_epsilon(test: Any) -> None:
    """Accuracy by budget and number of rows."""
    tables = {rows: labelled(rows, COLUMNS, 1) for rows in (1_000, 10_000, 100_000)}
    lines = [
        [epsilon, *(accuracy(train, test, epsilon=epsilon) for train in tables.values())]
        for epsilon in (0.01, 0.1, 0.5, 1, 2, 5)
    ]
    lines.append(["none", *(f"{WithoutPrivacy().fit(*train).score(*test):.3f}" for train in tables.values())])
    table("accuracy by epsilon and rows", ["ε", *(f"{rows:,} rows" for rows in tables)], lines)


def by_norm(train: Any, test: Any) -> None:
    """Accuracy by the declared bound, and how many rows it shortens."""
    norms = np.linalg.norm(train[0], axis=1)
    lines = [
        [norm, f"{np.mean(norms > norm):.1%}", *(accuracy(train, test, data_norm=norm, epsilon=e) for e in (0.1, 1.0))]
        for norm in (0.1, 0.5, 1, 1.5, 3, 10, 100)
    ]
    table("accuracy by data_norm, 10,000 rows", ["data_norm", "rows shortened", "ε = 0.1", "ε = 1"], lines)


def by_alpha(train: Any, test: Any) -> None:
    """Accuracy by regularisation, and what "auto" takes."""
    lines = []
    for alpha in ("auto", 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        line = []
        for epsilon in (0.1, 1.0):
            used = LogisticRegression(alpha=alpha, epsilon=epsilon, data_norm=1.5, classes=[False, True])
            strength = used.plan(rows=len(train[0]), features=COLUMNS).strength
            line += [f"{strength:.2g}", accuracy(train, test, alpha=alpha, epsilon=epsilon)]
        lines.append([alpha, *line])
    table("accuracy by alpha, 10,000 rows", ["alpha", "used, ε = 0.1", "accuracy", "used, ε = 1", "accuracy"], lines)


def by_people(train: Any, test: Any) -> None:
    """Accuracy by how many records a person may have."""
    lines = [
        [people, *(accuracy(train, test, rows_per_person=people, delta=delta) for delta in (0.0, 1e-6))]
        for people in (1, 2, 5, 20)
    ]
    table("accuracy by rows_per_person, 10,000 rows, ε = 1", ["rows_per_person", "pure", "δ = 10⁻⁶"], lines)


def by_delta() -> None:
    """Accuracy with and without a delta, by the number of columns."""
    lines = []
    for columns in (3, 10, 30, 100):
        train, test = labelled(10_000, columns, 1), labelled(10_000, columns, 2)
        without = f"{WithoutPrivacy(C=100).fit(*train).score(*test):.3f}"
        lines.append([columns, *(accuracy(train, test, delta=delta) for delta in (0.0, 1e-10, 1e-6, 1e-5)), without])
    heads = ["columns", "pure", "10⁻¹⁰", "10⁻⁶", "10⁻⁵", "without privacy"]
    table("accuracy by delta, 10,000 rows, ε = 1", heads, lines)


def by_useless(train: Any, test: Any) -> None:
    """Accuracy by the number of columns that say nothing, the norm's bound widened for them."""
    lines = []
    for useless in (0, 10, 40, 90):
        generator = np.random.default_rng(3)
        wide = [
            (np.hstack([X, generator.normal(size=(len(X), useless)) / np.sqrt(COLUMNS)]), y) for X, y in (train, test)
        ]
        norm = 1.5 * np.sqrt((COLUMNS + useless) / COLUMNS)
        lines.append([useless, *(accuracy(*wide, data_norm=norm, epsilon=epsilon) for epsilon in (0.1, 1.0))])
    table("accuracy by useless columns, 10,000 rows", ["useless columns", "ε = 0.1", "ε = 1"], lines)


def by_method(train: Any, test: Any) -> None:
    """Accuracy by where the noise goes."""
    lines = [
        [method, *(accuracy(train, test, method=method, epsilon=epsilon) for epsilon in (0.1, 1.0))]
        for method in ("objective", "output")
    ]
    table("accuracy by method, 10,000 rows", ["method", "ε = 0.1", "ε = 1"], lines)


def by_bounds() -> None:
    """Accuracy by the declared bounds of one column: who is older than 60, ages from 18 to 94."""
    generator = np.random.default_rng(1)
    ages = generator.integers(18, 95, size=(10_000, 1))
    old = ages[:, 0] > 60
    lines = []
    for bounds in ((18, 50), (18, 62), (18, 95), (0, 120), (0, 1_000), (0, 10_000)):
        line = []
        for epsilon in (0.1, 1.0):
            model = make_pipeline(
                BoundedScaler(bounds=bounds), LogisticRegression(epsilon=epsilon, data_norm=1.0, classes=[False, True])
            )
            scores = [model.fit(ages, old).score(ages, old) for _ in range(FITS)]
            line.append(f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) / np.sqrt(FITS):.3f}")
        share = np.mean((ages < bounds[0]) | (ages > bounds[1]))
        lines.append([f"{bounds[0]} to {bounds[1]:,}", f"{share:.1%}", *line])
    lines.append(["always no", "", *[f"{np.mean(~old):.3f}"] * 2])
    table("older than 60, 10,000 rows", ["bounds of age", "ages clipped", "ε = 0.1", "ε = 1"], lines)


def by_target_bound() -> None:
    """Root mean squared error of a regression by the declared bound on its targets."""
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, size=(10_000, 4)) / 2
    y = X @ [1.0, -1.0, 0.5, 0.0] + generator.normal(scale=0.1, size=10_000)
    lines = []
    for bound in (0.1, 0.5, 1, 1.5, 5, 50):
        errors = [
            np.sqrt(np.mean((LinearRegression(data_norm=1.0, target_bound=bound).fit(X, y).predict(X) - y) ** 2))
            for _ in range(FITS)
        ]
        share = f"{np.mean(np.abs(y) > bound):.1%}"
        lines.append([bound, share, f"{np.mean(errors):.3f} ± {np.std(errors, ddof=1) / np.sqrt(FITS):.3f}"])
    lines.append(["always 0", "", f"{np.sqrt(np.mean(y**2)):.3f}"])
    table("error by target_bound, 10,000 rows, ε = 1", ["target_bound", "targets clipped", "error"], lines)


if __name__ == "__main__":
    fresh = labelled(50_000, COLUMNS, 2)
    middle = labelled(10_000, COLUMNS, 1)
    by_epsilon(fresh)
    by_norm(middle, fresh)
    by_alpha(middle, fresh)
    by_people(middle, fresh)
    by_delta()
    by_useless(middle, fresh)
    by_method(middle, fresh)
    by_bounds()
    by_target_bound()
