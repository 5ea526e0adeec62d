"""``epsilearn predict``, ``show``, ``evaluate`` and ``export``: what can be done with a released model."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from epsilearn.cli.common import (
    AsJson,
    Dataset,
    app,
    console,
    named_ledger,
    print_data,
    print_json,
    reserved,
    say,
    show,
)
from epsilearn.errors import InvalidInput

__all__ = ["evaluate", "export", "predict", "show_model"]

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="model.json, or the folder it is in.")]
TablePath = Annotated[Path, typer.Argument(metavar="TABLE", help="CSV, TSV, Parquet, Arrow or libsvm.")]


@app.command()
def predict(
    model: ModelPath,
    table: TablePath,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A CSV file; printed if left out.")] = None,
    without_target: Annotated[
        bool, typer.Option("--without-target", help="The file has no header and no target column.")
    ] = False,
) -> None:
    """Predict for raw rows. It costs those the model was fitted to nothing more."""
    from epsilearn.model_file import load

    released = load(model)
    classes = released.classes
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = ["prediction"]
    if classes is not None and released.has_probabilities:
        heads += [f"probability of {value}" for value in classes.tolist()]
    writer.writerow(heads)
    with reserved(output) as write:
        for X, _ in _batches(released, table, targets=False, without_target=without_target):
            scores = released.weights.scores(X)
            columns = [released.predictions(scores).tolist()]
            if len(heads) > 1:
                columns += released.probabilities(scores).T.tolist()
            writer.writerows(zip(*columns, strict=True))
        if output is None:
            print_data(text.getvalue())
        else:
            write(text.getvalue())
            say(f"{output}: {text.getvalue().count(chr(10)) - 1:,} predictions of {released.target}")


def _batches(model: Any, table: Path, *, targets: bool, without_target: bool = False) -> Iterator[tuple[Any, Any]]:
    """Encoded rows of a table, a few thousand at a time, and their targets if asked for."""
    from epsilearn.encoding import encoded
    from epsilearn.files import TableFile

    missing = model.target if without_target else None
    return encoded(TableFile.described(table, model.schema, missing), model.encoding, targets)


@app.command("show")
def show_model(
    model: ModelPath,
    top: Annotated[int, typer.Option(help="How many of the largest weights to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show a released model: what was promised, the noise, the largest weights."""
    from epsilearn.checks import check_integer
    from epsilearn.model_file import load
    from epsilearn.released import MODELS, LinearWeights

    check_integer("--top", top, least=0)
    released = load(model)
    guarantee = released.guarantee
    if as_json:
        print_json(
            {
                "model": released.model,
                "target": released.target,
                "guarantee": guarantee.to_dict(),
                "settings": released.settings,
                "noise": {"kind": released.noise.kind, "scale": released.noise.scale},
                "intercept": released.weights.intercept.tolist(),
                "weights": _largest(released, top) if isinstance(released.weights, LinearWeights) else None,
            }
        )
        return
    classes = released.classes
    kind = "" if classes is None else f"; classes {', '.join(str(v) for v in classes.tolist())}"
    lines = [
        ("model", f"{MODELS[released.model]} of {released.target}{kind}"),
        ("promise", str(guarantee)),
        ("theorem", guarantee.theorem),
        ("noise", f"{released.noise.kind}, scale {released.noise.scale:.4g}"),
        *((name, f"{number:,.6g}") for name, number in released.settings.items()),
    ]
    if guarantee.ledger is not None:
        lines.append(("ledger", f"{guarantee.ledger.dataset}, entry {guarantee.ledger.entry}"))
    show(lines)
    if isinstance(released.weights, LinearWeights):
        _show_weights(released, top)


def _largest(model: Any, top: int) -> list[dict[str, Any]]:
    import numpy as np

    names, weights = model.encoding.names, model.weights.coefficients
    order = np.argsort(-np.abs(weights).max(axis=0), kind="stable")[:top]
    return [{"feature": names[i], "weights": weights[:, i].tolist()} for i in order if weights[:, i].any()]


def _show_weights(model: Any, top: int) -> None:
    from rich.table import Table
    from rich.text import Text

    outputs = len(model.weights.coefficients)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("feature", overflow="fold")
    titles = ["weight"] if outputs == 1 else [str(value) for value in model.classes.tolist()]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row(Text("intercept", "dim"), *(f"{number:+.4g}" for number in model.weights.intercept))
    for entry in _largest(model, top):
        table.add_row(entry["feature"], *(f"{number:+.4g}" for number in entry["weights"]))
    console.print()
    console.print(table)


@app.command()
def evaluate(
    model: ModelPath,
    table: TablePath,
    epsilon: Annotated[float | None, typer.Option(help="The budget of the score.")] = None,
    not_private: Annotated[bool, typer.Option("--not-private", help="The exact score; promises nothing.")] = False,
    ledger: Annotated[str | None, typer.Option(help="Debit this ledger (a file or a database URL).")] = None,
    dataset: Dataset = None,
    as_json: AsJson = False,
) -> None:
    """Score a released model on private test rows, as a private release."""
    import numpy as np

    from epsilearn.evaluation import mean_score
    from epsilearn.model_file import load

    if (epsilon is None) != not_private:
        raise InvalidInput("a score is a release: give its --epsilon, or say --not-private for the exact one")
    if not_private and ledger is not None:
        raise InvalidInput("--not-private promises nothing, and a budget cannot pay for that; leave --ledger out")
    released = load(model)
    budget = named_ledger(ledger, dataset)
    scores, bounds, name = _scores(released, table)
    if not_private:
        _show_exact(float(np.mean(scores)), name, len(scores), as_json)
        return
    release = mean_score(
        scores, bounds, epsilon=epsilon, rows_per_person=released.schema.rows_per_person, ledger=budget,
        purpose=f"{name} of a model of {released.target}",
    )  # fmt: skip
    assert release.noise is not None
    half = release.noise.half_width(0.95)
    if as_json:
        print_json(
            {"score": name, "value": release.value, "half_width_95": half, "guarantee": release.guarantee.to_dict()}
        )
        return
    show(
        [
            (name, f"{release.value:.4f}"),
            ("noise", f"{release.noise.kind}, within ±{half:.2g} at 95%"),
            ("promise", str(release.guarantee)),
        ]
    )


def _scores(model: Any, table: Path) -> tuple[Any, tuple[float, float], str]:
    """Each record's score, the range it lies in, and what the mean is called."""
    import numpy as np

    from epsilearn.evaluation import squared_errors

    bounds = model.schema.columns[model.target].bounds
    numbers = model.classes is None
    found = []
    for X, truth in _batches(model, table, targets=True):
        scores = model.weights.scores(X)
        if numbers:
            found.append(squared_errors(model.predictions(scores), truth, *bounds))
        else:
            found.append((model.positions(scores) == truth).astype(np.float64))
    if numbers:
        return np.concatenate(found), (0.0, (bounds[1] - bounds[0]) ** 2), "mean squared error"
    return np.concatenate(found), (0.0, 1.0), "accuracy"


def _show_exact(value: float, name: str, rows: int, as_json: bool) -> None:
    if as_json:
        print_json({"score": name, "value": value, "rows": rows, "guarantee": None})
        return
    show([(name, f"{value:.4f} on {rows:,} rows"), ("promise", "none: this number depends on every row, exactly")])


@app.command()
def export(
    model: ModelPath,
    kind: Annotated[str, typer.Option("--format", help="onnx or sklearn.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="By default model.onnx or model.joblib.")
    ] = None,
) -> None:
    """Write a released model in another format: ONNX, or a scikit-learn pipeline."""
    from epsilearn.checks import check_choice
    from epsilearn.model_file import load

    check_choice("--format", kind, ("onnx", "sklearn"))
    released = load(model)
    path = output or Path("model.onnx" if kind == "onnx" else "model.joblib")
    if kind == "onnx":
        from epsilearn.export.onnx import to_onnx as convert
    else:
        from epsilearn.export.pipeline import to_joblib as convert
    content = convert(released)
    with reserved(path) as write:
        write(content)
    say(f"{path}: {len(content):,} bytes")
