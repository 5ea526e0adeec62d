"""Every consumer of private rows beside every kind of model and every home of rows.

A cell is what a replay on hostile neighbours finds: the consumer refuses, the same way whatever the record, or it shows
nothing. Run as a program, this prints the whole matrix.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import epsilearn as el
from epsilearn import statistics
from epsilearn.audit import Replay, hostile_neighbours, replay
from epsilearn.cli import _run
from epsilearn.kernel import RBF, Linear, UserKernel
from epsilearn.losses import HuberisedHinge

ROWS, WIDTH = 60, 3
REFUSES, NOTHING = "refuses", "shows nothing"

generator = np.random.default_rng(7)
X = generator.normal(size=(ROWS, WIDTH)) / 3
LABELS = np.where(X[:, 0] + 0.1 * generator.normal(size=ROWS) > 0, 1, -1)
NUMBERS = np.clip(X[:, 0], -1, 1)
ELSEWHERE = generator.normal(size=(ROWS, WIDTH)) / 3  # other people's rows
PUBLIC = generator.normal(size=(6, WIDTH)) / 3
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "verbose": False}
CLASSES: dict[str, Any] = {**SETTINGS, "classes": [-1, 1]}


@dataclass(frozen=True)
class Model:
    """A kind of model: how one is made, whether it tells classes, and what it is asked when it is fitted."""

    make: Callable[[], Any]
    classifies: bool = True
    asked: bool = False

    @property
    def target(self) -> np.ndarray:
        return LABELS if self.classifies else NUMBERS


def _columns() -> Any:
    """A scaler and an encoder with declared categories side by side."""
    return ColumnTransformer(
        [
            ("numbers", el.BoundedScaler(bounds=(-1, 1)), [0, 1]),
            ("kind", OneHotEncoder(categories=[[-1.0, 0.0, 1.0]], handle_unknown="ignore", sparse_output=False), [2]),
        ],
        sparse_threshold=0,
    )


def _linear(kind: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: kind(data_norm=1.0, **settings)


MODELS: dict[str, Model] = {
    "LogisticRegression": Model(_linear(el.LogisticRegression, **CLASSES)),
    "LogisticRegression, output": Model(_linear(el.LogisticRegression, method="output", **CLASSES)),
    "LogisticRegression, gradient": Model(_linear(el.LogisticRegression, method="gradient", delta=1e-6, **CLASSES)),
    "LinearSVC": Model(_linear(el.LinearSVC, **CLASSES)),
    "LinearRegression": Model(_linear(el.LinearRegression, target_bound=1.0, **SETTINGS), False),
    "LinearRegression, moments": Model(
        _linear(el.LinearRegression, target_bound=1.0, delta=1e-6, method="sufficient-statistics", **SETTINGS), False
    ),
    "ConvexERM": Model(lambda: el.ConvexERM(loss=HuberisedHinge(0.5), data_norm=1.0, alpha=1.0, **CLASSES)),
    "Lasso": Model(lambda: el.Lasso(feature_bound=1.0, target_bound=1.0, delta=1e-6, refit=0.5, **SETTINGS), False),
    "SparseLogisticRegression": Model(lambda: el.SparseLogisticRegression(feature_bound=1.0, **CLASSES)),
    "LandmarkClassifier": Model(lambda: el.LandmarkClassifier(landmarks=PUBLIC, **CLASSES)),
    "LandmarkRegressor": Model(lambda: el.LandmarkRegressor(landmarks=PUBLIC, target_bound=1.0, **SETTINGS), False),
    "RandomFeatures": Model(lambda: el.RandomFeatures(n_features=6, **CLASSES)),
    "SemiInteractiveLearner": Model(lambda: el.SemiInteractiveLearner(public_points=PUBLIC, **CLASSES)),
    "NonInteractiveLearner": Model(lambda: el.NonInteractiveLearner(candidates=PUBLIC, **CLASSES)),
    "GaussianProcessRelease": Model(lambda: el.GaussianProcessRelease(kernel=RBF(0.5), **CLASSES), asked=True),
    "GaussianProcessRelease, finite": Model(
        lambda: el.GaussianProcessRelease(kernel=Linear(1.0), **CLASSES), asked=True
    ),
    "InteractiveLearner": Model(lambda: el.InteractiveLearner(kernel=Linear(1.0), questions=50, **CLASSES), asked=True),
    "PrivateSelection": Model(
        lambda: el.PrivateSelection(el.LogisticRegression(data_norm=1.0, **CLASSES), {"alpha": [0.1, 1.0]})
    ),
    "pipeline": Model(
        lambda: make_pipeline(el.BoundedScaler(bounds=(-1, 1)), el.LogisticRegression(data_norm=1.0, **CLASSES))
    ),
    "pipeline by columns": Model(lambda: make_pipeline(_columns(), el.LogisticRegression(data_norm=2.0, **CLASSES))),
}

# What is a session, or a step that learns from rows: asking it about private rows must be refused.
SESSIONS = ("GaussianProcessRelease", "GaussianProcessRelease, finite", "InteractiveLearner")


# ------------------------------------------------------------------------------------------------- homes of rows


def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])


HOMES: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.ascontiguousarray,
    "numpy, by columns": np.asfortranarray,
    "numpy, single": lambda X: np.clip(X, -3e38, 3e38).astype(np.float32),
    "lists": lambda X: X.tolist(),
    "sparse": sparse.csr_array,
    "pandas": _frame,
    "polars": lambda X: pl.from_pandas(_frame(X)),
}
COLUMN_HOMES: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.asarray,
    "list": lambda column: column.tolist(),
    "pandas": pd.Series,
    "polars": pl.Series,
    "Arrow": pa.array,
    "Arrow, chunked": lambda column: pa.chunked_array([column[:7], column[7:]]),
}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of the same name each time, so that two runs can be compared by it."""
    made = Path(tempfile.gettempdir()) / f"epsilearn-joints-{os.getpid()}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _in_parts(X: np.ndarray, y: np.ndarray, place: Path) -> Path:
    """Two Parquet files of two row groups each."""
    frame = _frame(X).assign(target=y)
    half = len(X) // 2
    for number, part in enumerate((frame[:half], frame[half:])):
        table = pa.Table.from_pandas(part, preserve_index=False)
        pyarrow.parquet.write_table(table, place / f"{number}.parquet", row_group_size=10)
    return place


# ---------------------------------------------------------------------------------------------------- consumers


def _shown(model: Model, fitted: Any) -> Any:
    """A fitted model, and what it answers to public points."""
    said = fitted.decision_function(PUBLIC) if model.asked else None
    return fitted, said, getattr(fitted, "points_left_", None)


def fit(model: Model, home: Callable[[np.ndarray], Any], X: np.ndarray, y: np.ndarray) -> Any:
    return _shown(model, model.make().fit(home(X), y))


def fit_parquet(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place:
        rows = el.ParquetRows(str(_in_parts(X, y, place)), target="target", rows=len(X))
        return _shown(model, model.make().fit(rows))


def fit_dask(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    import dask.dataframe as dd

    frame = dd.from_pandas(_frame(X).assign(target=y), npartitions=3)
    return _shown(model, model.make().fit(el.DaskRows(frame, target="target", rows=len(X))))


def score(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    """A private score of a model that was fitted to other people's rows."""
    fitted = model.make().fit(ELSEWHERE, model.target)
    release = el.private_score(fitted, X, y, epsilon=0.5, target_bound=None if model.classifies else 1.0)
    return release, _shown(model, fitted)


def score_nested(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    """The same of a model inside others."""
    from sklearn.model_selection import GridSearchCV

    outer = GridSearchCV(make_pipeline(el.BoundedScaler(bounds=(-1, 1)), model.make()), {}, cv=2).fit(
        ELSEWHERE, model.target
    )
    release = el.private_score(outer, X, y, epsilon=0.5, target_bound=None if model.classifies else 1.0)
    return release, outer.best_estimator_


def select(strategy: str, model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    inner = model.make()
    delta = 0.0 if strategy == "stopping" or not getattr(inner, "delta", 0.0) else 1e-6
    bound = None if model.classifies else 1.0
    search = el.PrivateSelection(inner, {}, epsilon=2.0, delta=delta, strategy=strategy, target_bound=bound)
    chosen = search.fit(X, y)
    return chosen, _shown(model, chosen.best_estimator_)


def statistic(name: str, home: Callable[[np.ndarray], Any], column: np.ndarray) -> Any:
    options: dict[str, Any] = {"bounds": (-1.0, 1.0), "epsilon": 1.0}
    if name == "histogram":
        options = {"edges": [-1.0, 0.0, 1.0], "epsilon": 1.0}
    if name == "count":
        column, options = column > 0, {"epsilon": 1.0}
    return getattr(statistics, name)(home(column), **options)


SCHEMA = """version = 1
rows = {rows}
[columns.c0]
bounds = [-1, 1]
[columns.c1]
bounds = [-1, 1]
[columns.c2]
bounds = [-1, 1]
[columns.target]
{target}
"""


def _written(place: Path, X: np.ndarray, y: np.ndarray, kind: str, classifies: bool) -> tuple[Path, Path]:
    frame = _frame(X).assign(target=y)
    table, schema = place / f"table.{kind}", place / "schema.toml"
    if kind == "csv":
        frame.to_csv(table, index=False)
    else:
        frame.to_parquet(table)
    words = "categories = [-1, 1]" if classifies else "bounds = [-1, 1]"
    schema.write_text(SCHEMA.format(rows=len(X), target=words))
    return table, schema


def _commands(*commands: list[str]) -> list[int]:
    return [_run(words, as_json="--json" in words) for words in commands]


def command_fit(model: str, kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """``epsilearn fit``, and all that it leaves behind."""
    classifies = model not in ("linear", "lasso")
    with folder() as place:
        table, schema = _written(place, X, y, kind, classifies)
        words = ["fit", str(table), "--schema", str(schema), "--target", "target", "--epsilon", "1", "--model", model]
        codes = _commands([*words, "-o", str(place / "out")], ["show", str(place / "out")])
        return codes, {path.name: path.read_text() for path in sorted((place / "out").glob("*"))}


def command_stats(name: str, kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    with folder() as place:
        table, _ = _written(place, X, y, kind, False)
        extra = {"histogram": ["--edges=-1,0,1"], "count": ["--equals=0.5"]}.get(name, ["--bounds=-1,1"])
        return _commands(["stats", str(table), "--column", "c0", "--statistic", name, *extra, "--json"])


def command_evaluate(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """``epsilearn evaluate`` of a model that was fitted to other people's rows."""
    with folder() as place:
        table, schema = _written(place, ELSEWHERE, LABELS, "csv", True)
        words = ["fit", str(table), "--schema", str(schema), "--target", "target", "--epsilon", "1"]
        _commands([*words, "-o", str(place / "out")])
        (place / "test").mkdir()
        test, _ = _written(place / "test", X, y, kind, True)
        return _commands(["evaluate", str(place / "out"), str(test), "--epsilon", "0.5"])


def command_audit(X: np.ndarray, y: np.ndarray) -> Any:
    """``epsilearn audit`` of a table: there is no such thing."""
    with folder() as place:
        table, _ = _written(place, X, y, "csv", True)
        return _commands(["audit", str(table)], ["audit", "logistic", str(table)], ["audit", "--releases", str(table)])


@contextlib.contextmanager
def inherited_context() -> Iterator[None]:
    """Threads that are started inside see the context of whoever starts them, and so the tape of a replay."""
    usual = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        context, run = contextvars.copy_context(), thread.run
        thread.run = lambda: context.copy().run(run)  # type: ignore[method-assign]
        usual(thread)

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = usual  # type: ignore[method-assign]


def service(kind: str, X: np.ndarray, y: np.ndarray) -> Any:
    """A whole server in this process: register, open, ask, and look at every route."""
    from starlette.testclient import TestClient

    from epsilearn.service.app import create
    from epsilearn.service.configuration import Configuration
    from epsilearn.service.keys import Keys
    from epsilearn.service.store import opened_store

    with folder() as place, inherited_context():
        (place / "tables").mkdir()
        _, schema = _written(place / "tables", X, y, "csv", True)
        (place / "config.toml").write_text('database = "state.db"\ntables = "tables"\n[limits]\npad_seconds = 0.01\n')
        configuration = Configuration.read(place / "config.toml")
        key = Keys(opened_store(configuration.database, make=True)).create("holder", "ruth", None, "tests", None)[0]
        with TestClient(create(configuration), headers={"Authorization": f"Bearer {key}"}) as client:
            return _asked(client, kind, schema.read_text())


def _asked(client: Any, kind: str, schema: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def call(method: str, path: str, name: str, content: Any = None) -> Any:
        answer = client.request(method, path, json=content)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        seen[name] = answer.status_code, answer.json() if is_json else answer.text
        return seen[name][1]

    dataset = {"name": "d", "file": "table.csv", "schema_toml": schema, "epsilon": 10.0, "delta": 1e-3}
    call("POST", "/api/datasets", "register", dataset)
    wanted: dict[str, Any] = {"kind": kind, "epsilon": 1.0}
    if kind != "statistics":
        wanted |= {"target": "target"}
    if kind in ("process", "interactive"):
        wanted |= {"delta": 1e-6}
    release = call("POST", "/api/datasets/d/releases", "open", wanted)["id"]
    for _ in range(3000):
        if client.get(f"/api/releases/{release}").json()["status"] != "opening":
            break
        threading.Event().wait(0.02)
    points = [dict(zip(("c0", "c1", "c2"), np.clip(row, -1, 1).tolist(), strict=True)) for row in PUBLIC]
    if kind == "statistics":
        for name in ("mean", "quantile", "count"):
            asked = {"statistic": name, "column": "c0" if name != "count" else "target", "epsilon": 0.1}
            if name == "count":
                asked["equals"] = 1
            call("POST", f"/api/releases/{release}/statistic", name, asked)
    else:
        call("POST", f"/api/releases/{release}/predict", "predict", {"rows": points})
        call("POST", f"/api/releases/{release}/predict", "again", {"rows": points})
    for name in ("", *(f"/documents/{document}" for document in ("model.json", "guarantee.json", "report.html"))):
        call("GET", f"/api/releases/{release}{name}", f"release{name}")
    for path in ("/api/datasets", "/api/datasets/d", "/api/files", "/healthz", "/openapi.json"):
        call("GET", path, path)
    return seen


# ------------------------------------------------------------------------------- what users can bring in themselves


def swapped_step(X: np.ndarray, y: np.ndarray) -> Any:
    """A grid that puts a step which learns in the place of one that does not."""
    from sklearn.preprocessing import MaxAbsScaler

    steps = make_pipeline(el.BoundedScaler(bounds=(-1, 1)), el.LogisticRegression(data_norm=1.0, **CLASSES))
    return el.PrivateSelection(steps, {"boundedscaler": [MaxAbsScaler()]}, epsilon=1.0).fit(X, y)


def own_landmarks(X: np.ndarray, y: np.ndarray) -> Any:
    """The private table itself as landmarks."""
    return el.LandmarkClassifier(landmarks=X[:5], **CLASSES).fit(X, y)


def selected_landmarks(X: np.ndarray, y: np.ndarray) -> Any:
    model = el.LandmarkClassifier(landmarks=PUBLIC, **CLASSES)
    return el.PrivateSelection(model, {"landmarks": [X[:5]]}, epsilon=1.0).fit(X, y)


def own_kernel(X: np.ndarray, y: np.ndarray) -> Any:
    """A kernel that fails on some private points."""

    def kernel(a: float, b: float) -> float:
        if abs(a) > 5 or abs(b) > 5:
            raise KeyError(a)
        return float(np.exp(-((a - b) ** 2)))

    model = el.GaussianProcessRelease(kernel=UserKernel(kernel, declared=1.0), **CLASSES)
    model.fit(X[:, 0].tolist(), y)
    return model, model.decision_function([0.25, 0.5]), model.points_left_


def own_model(X: np.ndarray, y: np.ndarray) -> Any:
    """A score of somebody's model that fails on some private rows, and warns on others."""

    class Picky(ClassifierMixin, BaseEstimator):
        def fit(self, X: Any, y: Any) -> Any:
            self.classes_ = np.unique(y)
            return self

        def predict(self, X: Any) -> Any:
            if np.abs(X).max() > 5:
                raise ValueError(f"{np.abs(X).max()} is too large")
            if np.abs(X).max() > 1.5:
                warnings.warn("rather large", stacklevel=2)
            return np.where(X[:, 0] > 0, 1, -1)

    return el.private_score(Picky().fit(ELSEWHERE, LABELS), X, y, epsilon=1.0)


def strict_numpy(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    """A program that wants numpy to raise whatever happens."""
    with np.errstate(all="raise"):
        return _shown(model, model.make().fit(X, y))


def strict_statistic(column: np.ndarray) -> Any:
    with np.errstate(all="raise"):
        return [statistic(name, np.asarray, column) for name in ("sum", "mean", "variance", "quantile", "histogram")]


# ------------------------------------------------------------------------------------------------------ the matrix


@dataclass(frozen=True)
class Cell:
    """One consumer of private rows, one kind of model or statistic, one home."""

    consumer: str
    model: str
    home: str
    run: Callable[..., Any]
    table: tuple[Any, ...]
    labels: tuple[bool, ...]

    @property
    def name(self) -> str:
        return " | ".join((self.consumer, self.model, self.home))

    def replayed(self, count: int) -> Replay:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replay(self.run, self.table, hostile_neighbours(self.table, count, labels=self.labels))


def outcome(found: Replay) -> str:
    """What a cell of the matrix says."""
    if found.refuted:
        return "LEAKS"
    return REFUSES if found.ended else NOTHING


def cells() -> Iterator[Cell]:
    for name, model in MODELS.items():
        table, labels = (X, model.target), (False, model.classifies)
        for home, convert in HOMES.items():
            yield Cell("fit", name, home, partial(fit, model, convert), table, labels)
        yield Cell("fit", name, "Parquet", partial(fit_parquet, model), table, labels)
        yield Cell("fit", name, "Dask", partial(fit_dask, model), table, labels)
        yield Cell("private_score", name, "numpy", partial(score, model), table, labels)
        yield Cell("private_score, nested", name, "numpy", partial(score_nested, model), table, labels)
        for strategy in ("parts", "stopping"):
            run = partial(select, strategy, model)
            yield Cell(f"selection, {strategy}", name, "numpy", run, table, labels)
    for name in ("count", "sum", "mean", "variance", "histogram", "quantile"):
        for home, convert in COLUMN_HOMES.items():
            yield Cell("statistics", name, home, partial(statistic, name, convert), (NUMBERS,), (False,))
        for kind in ("csv", "parquet"):
            both = (X, NUMBERS), (False, False)
            yield Cell("epsilearn stats", name, kind, partial(command_stats, name, kind), *both)
    for name in ("logistic", "svm", "linear", "lasso", "sparse-logistic", "landmark"):
        classifies = name not in ("linear", "lasso")
        for kind in ("csv", "parquet"):
            table = (X, LABELS if classifies else NUMBERS)
            yield Cell("epsilearn fit", name, kind, partial(command_fit, name, kind), table, (False, classifies))
    for kind in ("csv", "parquet"):
        yield Cell("epsilearn evaluate", "logistic", kind, partial(command_evaluate, kind), (X, LABELS), (False, True))
    yield Cell("epsilearn audit", "", "csv", command_audit, (X, LABELS), (False, True))
    for run in (swapped_step, own_landmarks, selected_landmarks, own_kernel, own_model):
        yield Cell(run.__name__.replace("_", " "), "", "numpy", run, (X, LABELS), (False, True))
    for name, model in MODELS.items():
        table, labels = (X, model.target), (False, model.classifies)
        yield Cell("strict numpy", name, "numpy", partial(strict_numpy, model), table, labels)
    yield Cell("strict numpy", "statistics", "numpy", strict_statistic, (NUMBERS,), (False,))
    for kind in ("model", "process", "interactive", "statistics"):
        yield Cell("service", kind, "csv", partial(service, kind), (X, LABELS), (False, True))


CELLS: dict[str, Cell] = {cell.name: cell for cell in cells()}


def main() -> None:
    """Print the matrix."""
    for name, cell in CELLS.items():
        found = cell.replayed(4)
        print(f"{name:70} {outcome(found):14} {found.charges:3} debits {found.answers:4} answers", flush=True)
        if found.refuted or found.unsettled:
            print("    " + str(found).replace("\n", "\n    ")[:1500], flush=True)


if __name__ == "__main__":
    main()
