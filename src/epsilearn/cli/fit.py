"""``epsilearn fit``: from a table to a released model, and ``epsilearn plan``: the same without a table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from epsilearn.cli.common import AsJson, Dataset, app, named_ledger, print_json, say, show
from epsilearn.errors import EpsilearnError, InvalidInput

__all__ = ["fit", "plan"]

_MOST_MEMORY = 1_000_000
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

Model = Annotated[str, typer.Option(help="logistic, svm, linear, lasso, sparse-logistic or landmark.")]
Epsilon = Annotated[float, typer.Option(help="The budget; smaller is more private.")]
Delta = Annotated[float, typer.Option(help="The probability set aside; 0 is pure, more needs less noise.")]
Alpha = Annotated[str, typer.Option(help="The regularisation: a number, or auto.")]
Method = Annotated[str, typer.Option(help="Where noise goes: auto, objective, output or gradient.")]
Radius = Annotated[float | None, typer.Option(help="Of the l1 ball, for lasso and sparse-logistic.")]


@app.command()
def fit(
    table: Annotated[
        Path,
        typer.Argument(help="CSV, TSV, Parquet, Arrow or libsvm; text may be gzipped. With --engine also a folder."),
    ],
    schema: Annotated[Path, typer.Option(help="What is public about the table: see `epsilearn schema`.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    epsilon: Epsilon,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A folder to be made.")] = None,
    model: Model = "logistic",
    delta: Delta = 0.0,
    alpha: Alpha = "auto",
    method: Method = "auto",
    radius: Radius = None,
    kernel: Annotated[str, typer.Option(help="Of landmark models: rbf or polynomial.")] = "rbf",
    landmarks: Annotated[
        Path | None,
        typer.Option("--public-landmarks", help="PUBLIC rows for landmark models; by default drawn from the schema."),
    ] = None,
    ledger: Annotated[str | None, typer.Option(help="Debit this ledger (a file or a database URL).")] = None,
    dataset: Dataset = None,
    purpose: Annotated[str | None, typer.Option(help="Written into the ledger.")] = None,
    rows: Annotated[int | None, typer.Option(help="How many rows there are; checked, and used by --dry-run.")] = None,
    memory: Annotated[float, typer.Option(help="GiB that the encoded table may take, in memory.")] = 4.0,
    engine: Annotated[
        str, typer.Option(help="Where rows are read: memory; or, for more rows than that holds, local, dask or spark.")
    ] = "memory",
    address: Annotated[
        str | None, typer.Option(help="Of Dask's scheduler or Spark's master; by default started here.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Where --engine local keeps the numbers of a table that is not Parquet.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be promised; open no row.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a private model to a table and write it to a folder: model.json, report.html, guarantee.json."""
    from dataclasses import replace

    from epsilearn.engines import files_of, table_in_parts
    from epsilearn.files import TableFile
    from epsilearn.schema import Schema
    from epsilearn.schema_columns import check_count

    public = Schema.read(schema)
    if rows is not None:
        if public.rows not in (None, check_count("--rows", rows)):
            raise InvalidInput(f"--rows says {rows:,}, and the schema says {public.rows:,}; mend one of them")
        public = replace(public, rows=rows)
    if not 0 < memory <= _MOST_MEMORY:
        raise InvalidInput(f"--memory must be above 0 and at most {_MOST_MEMORY:,} GiB, got {memory:g}")
    _check_engine(engine, address, scratch, table)
    file = TableFile.described(files_of(table)[0], public)
    public = public if public.sparse else public.matched(file.names())
    if landmarks is not None and landmarks.exists() and any(map(landmarks.samefile, files_of(table))):
        raise InvalidInput(
            "the landmarks become part of the model, so they must be public rows, not those of the table"
        )
    job = _job(public, target, model, epsilon, delta, alpha, method, radius, kernel, landmarks)
    budget = named_ledger(ledger, dataset, purpose)
    if dry_run:
        # Of a folder the first file's footer is not enough.
        _foresee(job, public.rows or (None if table.is_dir() else file.rows()), budget, as_json)
        return
    if output is None:
        raise InvalidInput("where to? Name a folder with -o; it must not be there yet")
    verbose = False if as_json else None
    reading: AbstractContextManager[tuple[Any, Any]]
    if engine == "memory":
        reading = _in_memory(job, file, memory * 2**30, verbose)
    else:
        reading = table_in_parts(
            table, file, job.encoding, rows=public.rows, engine=engine, address=address, scratch=scratch
        )
    _release(job, reading, output, budget, purpose or f"fit {model} of {target}", verbose, as_json)


def _check_engine(engine: str, address: str | None, scratch: Path | None, table: Path) -> None:
    """Refuse words that have no meaning for this engine."""
    from epsilearn.checks import check_choice
    from epsilearn.engines import ENGINES

    check_choice("--engine", engine, ENGINES)
    if address is not None and engine not in ("dask", "spark"):
        raise InvalidInput(f"--address is for --engine dask and spark; {engine} reads the rows in this process")
    if scratch is not None and engine != "local":
        raise InvalidInput(f"--scratch is for --engine local; {engine} keeps nothing on disk")
    if table.is_dir() and engine == "memory":
        raise InvalidInput(f"{table} is a folder; --engine local reads the Parquet files in it")


@contextmanager
def _in_memory(job: Any, file: Any, memory: float, verbose: bool | None) -> Iterator[tuple[Any, Any]]:
    """All rows at once, and their targets."""
    yield job.read(file, memory, verbose)


def _job(
    schema: Any, target: str, model: str, epsilon: float, delta: float, alpha: str, method: str, radius: float | None,
    kernel: str, landmarks: Path | None,
) -> Any:  # fmt: skip
    from epsilearn.encoding import Encoding
    from epsilearn.job import Job

    _check_words(model, alpha, method, radius)
    if (landmarks is not None or kernel != "rbf") and model != "landmark":
        raise InvalidInput(f"--kernel and --public-landmarks are for landmark models, and this is a {model} model")
    points = None
    if landmarks is not None:
        schema.check_target(target)
        points = _public_rows(landmarks, Encoding(schema, target))
    return Job(schema, target, model, epsilon, delta, strength(alpha), method, radius, kernel, points)


def _check_words(model: str, alpha: str, method: str, radius: float | None) -> None:
    """Refuse words that have no meaning for this model, rather than not listen to them."""
    if radius is not None and model not in ("lasso", "sparse-logistic"):
        raise InvalidInput(f"--radius is for lasso and sparse-logistic; a {model} model has none")
    if model in ("lasso", "sparse-logistic") and (alpha, method) != ("auto", "auto"):
        raise InvalidInput(f"--alpha and --method have no meaning for {model}, whose path has its own noise")


def _public_rows(path: Path, encoding: Any) -> Any:
    """The rows of a public table, encoded like the private ones; it need not have the target."""
    from scipy import sparse

    from epsilearn.encoding import encoded
    from epsilearn.files import TableFile

    blocks = encoded(TableFile.described(path, encoding.schema), encoding, targets=False)
    return sparse.vstack([sparse.csr_array(X) for X, _ in blocks])


def strength(alpha: str) -> float | str:
    """The regularisation that a word stands for."""
    if alpha == "auto":
        return alpha
    try:
        return float(alpha)
    except ValueError:
        raise InvalidInput(f"--alpha must be a number or auto, got {alpha!r}") from None


def _foresee(job: Any, rows: int | None, ledger: Any, as_json: bool) -> None:
    if rows is None:
        raise InvalidInput(
            "how many rows are there? A text file does not say so before it is read; state it with --rows, or in the "
            "schema as rows = ..."
        )
    foreseen = job.outlook(rows)
    balance = None if ledger is None else ledger.balance()
    if as_json:
        left = None if balance is None else {"remaining_epsilon": balance.remaining_epsilon, "used": balance.used}
        if ledger is not None:
            ledger.check(foreseen.guarantee)
        print_json({**foreseen.to_dict(), "ledger": left})
        return
    more = []
    if balance is not None:
        state = f"{balance.used:.1%} used, epsilon {balance.remaining_epsilon:g} remaining"
        more.append(("ledger", f"{balance.dataset}: {state}"))
    show_outlook(foreseen, job.encoding.class_values() is None, *more)
    say("nothing was read but the header, and nothing was spent")
    if ledger is not None:
        ledger.check(foreseen.guarantee)


def show_outlook(foreseen: Any, numbers: bool, *more: tuple[str, str]) -> None:
    """What a fit would promise and could cost, on the terminal, and whatever else is to stand below."""
    noise = foreseen.noise
    lines = [
        ("table", f"{foreseen.rows:,} rows of {foreseen.features:,} numbers"),
        ("promise", str(foreseen.guarantee)),
        ("theorem", foreseen.guarantee.theorem),
        ("noise", f"{noise.kind}, scale {noise.scale:.4g}, in {_place(foreseen.method)}"),
    ]
    if foreseen.alpha is not None:
        lines.append(("regularisation", f"alpha {foreseen.alpha:.4g}"))
    if foreseen.steps is not None:
        lines.append(("path", f"{foreseen.steps} points, {foreseen.steps - 1} private steps"))
    if foreseen.weight_deviation is not None:
        exactly = "" if foreseen.method == "output" else "at most "
        lines.append(("a weight's noise", f"standard error {exactly}{foreseen.weight_deviation:.3g}"))
    if foreseen.lost is not None:
        low, high = foreseen.lost
        cost = f"{100 * low:.2g} to {100 * high:.2g} points of accuracy"
        if numbers:
            cost = f"{low:.2g} to {high:.2g} in root mean squared error"
        lines.append(("rough cost", f"{cost} (an easy table to a hard one; no bound)"))
    if foreseen.excess is not None:
        how = "in the mean" if foreseen.method == "path" else "with probability 95%"
        lines.append(("proven", f"mean loss within {foreseen.excess:.3g} of its least value, {how}"))
    else:
        lines.append(("proven", f"privacy alone: {foreseen.unproven}"))
    show([*lines, *more])


def _place(method: str) -> str:
    places = {"objective": "the objective", "output": "the result", "gradient": "the mean of all gradients"}
    return places.get(method, "every choice of a column")


def _release(
    job: Any, reading: Any, output: Path, ledger: Any, purpose: str, verbose: bool | None, as_json: bool
) -> None:
    from epsilearn.ledger import Held
    from epsilearn.release_folder import foresee, write_release
    from epsilearn.whole_files import whole_folder

    held = Held(ledger, purpose)
    with _ending_cleanly(), whole_folder(output) as (folder, finish), reading as (X, y):
        foreseen = foresee(job, X.shape[0])
        released = job.fit(X, y, held, verbose)
        balance = _balance(ledger)
        try:
            write_release(folder, released, foreseen, balance)
            with _uninterrupted():
                finish()
                _note_delivery(held, output)
        except OSError as error:
            raise EpsilearnError(f"cannot write {output}: {error.strerror}; a debit stands, not delivered") from None
    _show_release(released, output, balance, as_json)


def _balance(ledger: Any) -> Any:
    """The ledger after the debit; the delivery that is still to come moves no budget."""
    if ledger is None:
        return None
    try:
        return ledger.balance()
    except EpsilearnError:  # what was paid for is written all the same
        return None


def _note_delivery(held: Any, output: Path) -> None:
    try:
        held.arrived()
    except EpsilearnError as error:
        raise EpsilearnError(
            f"the model is in {output} and its debit stands, but the ledger could not note the delivery: {error}"
        ) from None


def _show_release(released: Any, output: Path, balance: Any, as_json: bool) -> None:
    if as_json:
        print_json({"output": str(output), "guarantee": released.guarantee.to_dict(), "settings": released.settings})
        return
    lines = [("promise", str(released.guarantee)), ("theorem", released.guarantee.theorem)]
    if balance is not None:
        stamp = released.guarantee.ledger
        lines.append(
            ("ledger", f"{stamp.dataset}, entry {stamp.entry}; epsilon {balance.remaining_epsilon:g} remaining")
        )
    lines += [(name, str(output / name)) for name in ("model.json", "report.html", "guarantee.json")]
    show(lines)


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """A request to end, or a terminal that goes away, is an interruption like Ctrl-C: nothing half-written stays."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    with _handling(interrupt, *_ENDINGS):
        yield


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Between a folder that gets its name and a ledger that hears of it nobody interrupts; little is left to do."""
    with _handling(lambda _number, _frame: None, signal.SIGINT, *_ENDINGS):
        yield


@contextmanager
def _handling(handler: Callable[[int, Any], None], *signals: signal.Signals) -> Iterator[None]:
    # Not a mask: that is a thread's own, and the solver's threads would take the signal instead.
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@app.command()
def plan(
    rows: Annotated[int, typer.Option(help="How many rows there would be.")],
    features: Annotated[int, typer.Option(help="How many numbers a row would have, categories counted singly.")],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    model: Annotated[str, typer.Option(help="logistic, svm, linear, lasso or sparse-logistic.")] = "logistic",
    classes: Annotated[int, typer.Option(help="How many classes the target has.")] = 2,
    target_bound: Annotated[float, typer.Option(help="Half the target's range, for linear and lasso.")] = 1.0,
    norm: Annotated[
        float | None, typer.Option(help="The length of the longest row; sqrt(features) if left out.")
    ] = None,
    rows_per_person: Annotated[int, typer.Option(help="How many rows one person may have.")] = 1,
    alpha: Alpha = "auto",
    method: Method = "auto",
    radius: Radius = None,
    loss: Annotated[
        float, typer.Option(help="The cost to find the number of rows for; 0.01 is a point of accuracy.")
    ] = 0.01,
    as_json: AsJson = False,
) -> None:
    """Say what a fit would promise and cost, and how many rows it would need, without any table."""
    from epsilearn.calibration.expectation import EASY, HARD
    from epsilearn.checks import check_choice, check_positive
    from epsilearn.job import own_method
    from epsilearn.outlook import outlook, rows_for
    from epsilearn.schema_columns import check_count

    check_choice("--model", model, ("logistic", "svm", "linear", "lasso", "sparse-logistic"))
    check_count("--features", features)
    check_count("--rows", rows)
    check_positive("--loss", loss)
    _check_words(model, alpha, method, radius)
    estimator = _plain_estimator(
        model, classes, target_bound, features**0.5 if norm is None else norm, radius,
        {"epsilon": epsilon, "delta": delta, "rows_per_person": rows_per_person},
        {"alpha": strength(alpha), "method": own_method(model, method)},
    )  # fmt: skip
    foreseen = outlook(estimator, rows, features)
    needed = None if foreseen.lost is None else [rows_for(estimator, features, loss, table) for table in (EASY, HARD)]
    if as_json:
        print_json({**foreseen.to_dict(), "rows_needed": needed, "for_loss": loss})
        return
    numbers = model in ("linear", "lasso")
    more = []
    if needed is not None:
        what = f"{loss:g} of error" if numbers else f"{100 * loss:g} points of accuracy"
        few, many = ("over a million million" if count is None else f"about {count:,}" for count in needed)
        more.append(("rows needed", f"{few} (an easy table), {many} (a hard one), to lose at most {what}"))
    show_outlook(foreseen, numbers, *more)


def _plain_estimator(
    model: str, classes: int, target_bound: float, norm: float, radius: float | None, budget: dict[str, Any],
    way: dict[str, Any],
) -> Any:  # fmt: skip
    from epsilearn import Lasso, LinearRegression, LinearSVC, LogisticRegression, SparseLogisticRegression
    from epsilearn.checks import check_integer

    labels = range(check_integer("--classes", classes, least=2))
    if model == "linear":
        return LinearRegression(data_norm=norm, target_bound=target_bound, **budget, **way)
    if model == "lasso":
        return Lasso(
            feature_bound=1.0,
            target_bound=target_bound,
            radius=target_bound if radius is None else radius,
            fit_intercept=True,
            **budget,
        )
    if model == "sparse-logistic":
        return SparseLogisticRegression(
            feature_bound=1.0, radius=10.0 if radius is None else radius, classes=labels, fit_intercept=True, **budget
        )
    kind = LogisticRegression if model == "logistic" else LinearSVC
    return kind(data_norm=norm, classes=labels, **budget, **way)
