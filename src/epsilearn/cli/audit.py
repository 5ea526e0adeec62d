"""``epsilearn audit``: promises put to the test, on made-up data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epsilearn.cli.common import AsJson, app, print_json, reserved, save_figure, say, show
from epsilearn.errors import InvalidInput

if TYPE_CHECKING:
    from epsilearn.audit.finding import Claim
    from epsilearn.audit.neighbours import Case

__all__ = ["audit"]

REFUTED = 4


@app.command()
def audit(
    subject: Annotated[
        str | None,
        typer.Argument(help="An estimator or mechanism by name, or FILE.py:FUNCTION; left out, the names are listed."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="The budget to build it with.")] = 1.0,
    delta: Annotated[
        float | None, typer.Option(help="The delta to build it with; its own default if left out.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="As the estimator takes it, such as output.")] = None,
    calibration: Annotated[str | None, typer.Option(help="paper is held to what is claimed for it.")] = None,
    alpha: Annotated[float | None, typer.Option(help="The regularisation; several are tried if left out.")] = None,
    rows: Annotated[int | None, typer.Option(help="Of the made-up tables; several are tried if left out.")] = None,
    columns: Annotated[int, typer.Option(help="Of the made-up tables; few are audited best.")] = 1,
    intercept: Annotated[bool, typer.Option("--intercept", help="Fit an intercept as well.")] = False,
    releases: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two .npy files of releases that another program made from two neighbours."),
    ] = None,
    claim: Annotated[
        float | None, typer.Option(help="The epsilon to test, for --releases or a file's function.")
    ] = None,
    claim_delta: Annotated[float | None, typer.Option(help="The delta that goes with it.")] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compute instead of sampling, where that is possible.")
    ] = False,
    bits: Annotated[bool, typer.Option("--bits", help="Look at the bits of the floats alone.")] = False,
    membership: Annotated[bool, typer.Option("--membership", help="Try to tell whose record was in.")] = False,
    trials: Annotated[int, typer.Option(help="Runs on each of the two data sets.")] = 5000,
    confidence: Annotated[float, typer.Option(help="How sure the bound is.")] = 0.999,
    jobs: Annotated[int, typer.Option(help="How many processes; -1 for one on each core.")] = -1,
    plot: Annotated[Path | None, typer.Option(help="Draw what was seen: .png, .svg or .pdf.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the finding to this file, as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> int | None:
    """Find a lower bound on the true epsilon of a mechanism, from made-up neighbours; exit code 4 if it is refuted.

    Nothing here is private: what an audit computes from its data is printed without noise.
    """
    from epsilearn.audit.subjects import Options
    from epsilearn.checks import check_integer, check_probability

    if subject is None and releases is None:
        _list_subjects(as_json)
        return None
    ways = [name for name, wanted in (("exact", exact), ("bits", bits), ("membership", membership)) if wanted]
    if len(ways) > 1:
        raise InvalidInput(f"--{ways[0]} and --{ways[1]} are two audits; ask for one at a time")
    way = ways[0] if ways else "events"
    if way == "exact" and plot is not None:
        raise InvalidInput("--plot draws what was sampled, and --exact samples nothing")
    check_integer("--trials", trials, least=100)
    check_probability("--confidence", confidence)
    options = Options(epsilon, delta, method, calibration, alpha, rows, columns, intercept)
    held = None if claim is None else _claim(claim, claim_delta)
    if claim is None and claim_delta is not None:
        raise InvalidInput("--claim-delta needs the --claim that goes with it")
    with _watched() as progress:
        work = _Work(way, trials, confidence, jobs, progress)
        if releases is not None:
            outcome = _of_releases(subject, releases, held, options, work)
        elif ".py:" in str(subject):
            outcome = _of_file(str(subject), held, options, work)
        else:
            outcome = _of_subject(str(subject), held, options, work)
    with reserved(output) as write:
        _report(outcome, as_json, write)
    if plot is not None:
        save_figure(lambda path: _draw(outcome, path), plot)
    return REFUTED if outcome.found.refuted else 0


@dataclass(frozen=True)
class _Work:
    """Which audit, and how long."""

    way: str
    trials: int
    confidence: float
    jobs: int
    progress: Callable[[float], None]


@dataclass(frozen=True)
class _Outcome:
    """What was audited, and what was found."""

    title: str
    neighbours: str
    found: Any


def _list_subjects(as_json: bool) -> None:
    from epsilearn.audit.subjects import SUBJECTS

    titles = {name: one.title for name, one in SUBJECTS.items()}
    if as_json:
        print_json(titles)
    else:
        show([*titles.items(), ("FILE.py:FUNCTION", "any mechanism: see docs/audit.md")])


def _claim(epsilon: float, delta: float | None) -> Claim:
    from epsilearn.audit.finding import Claim

    return Claim(epsilon, delta or 0.0)


def _of_subject(name: str, held: Claim | None, options: Any, work: _Work) -> _Outcome:
    from epsilearn.audit.finding import Claim
    from epsilearn.audit.subjects import subject as named
    from epsilearn.audit.worst import exact_worst, promise_of

    if held is not None:
        raise InvalidInput("--claim is for --releases and for functions of a file; --epsilon builds what is named")
    one = named(name)
    cases = one.cases(options)
    promise = promise_of(cases)
    printed = promise.claimed_epsilon
    claim = Claim.of(promise) if printed is None else Claim(printed, promise.delta)
    if work.way == "exact":
        found, case = exact_worst(cases, claim, work.progress)
        return _Outcome(one.title, case.words, found)
    return _sampled(one.title, cases, claim, work)


def _sampled(title: str, cases: list[Case], claim: Claim, work: _Work) -> _Outcome:
    from epsilearn.audit.worst import audit_worst, worst_releases

    if work.way == "events":
        found, case = audit_worst(
            cases, claim, trials=work.trials, confidence=work.confidence, n_jobs=work.jobs, progress=work.progress
        )
        return _Outcome(title, case.words, found)
    first, second, case = worst_releases(cases, claim, work.trials, work.confidence, work.jobs, work.progress)
    return _Outcome(title, case.words, _judged(first, second, claim, work))


def _judged(first: Any, second: Any, claim: Claim, work: _Work) -> Any:
    from epsilearn.audit import audit_bits, judge
    from epsilearn.audit.membership import attack

    if work.way == "bits":
        return audit_bits(first, second, claim, work.confidence)
    return (attack if work.way == "membership" else judge)(first, second, claim, work.confidence)


def _of_releases(
    subject: str | None, files: tuple[Path, Path], claim: Claim | None, options: Any, work: _Work
) -> _Outcome:
    if subject is not None:
        raise InvalidInput("--releases were made elsewhere; leave the subject out")
    if claim is None:
        raise InvalidInput("say what is claimed of these releases with --claim")
    _check_plain(options, work)
    first, second = map(_loaded, files)
    return _Outcome("releases", f"{files[0].name} against {files[1].name}", _judged(first, second, claim, work))


def _loaded(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        raise InvalidInput(f"cannot read {path} as an array of numbers in numpy's .npy format") from None


def _of_file(place: str, claim: Claim | None, options: Any, work: _Work) -> _Outcome:
    """A function of a file that also says which neighbours to run it on, and what it claims."""
    from epsilearn.audit.neighbours import Case

    _check_plain(options, work)
    path, _, name = place.rpartition(":")
    words = _executed(Path(path))
    for word in (name, "FIRST", "SECOND"):
        if word not in words:
            raise InvalidInput(f"{path} has no {word}; an audit needs {name or 'a function'}, FIRST and SECOND")
    if claim is None:
        if "EPSILON" not in words:
            raise InvalidInput(f"{path} does not say what is claimed; give it EPSILON (and DELTA), or use --claim")
        claim = _claim(words["EPSILON"], words.get("DELTA"))
    case = Case(words[name], words["FIRST"], words["SECOND"], "FIRST against SECOND", words.get("STATISTIC"))
    return _sampled(place, [case], claim, work)


def _executed(path: Path) -> dict[str, Any]:
    import runpy

    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    return runpy.run_path(str(path))


def _check_plain(options: Any, work: _Work) -> None:
    from epsilearn.audit.subjects import Options

    if options != Options() or work.way == "exact":
        raise InvalidInput("--epsilon, --delta, --exact and what builds an estimator are for subjects by name")


@contextmanager
def _watched() -> Iterator[Callable[[float], None]]:
    """A bar on a terminal; elsewhere nothing."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("auditing", total=1.0)
        yield lambda share: bars.update(task, completed=share)


def _report(outcome: _Outcome, as_json: bool, write: Callable[[str | bytes], None]) -> None:
    import json

    document = {"subject": outcome.title, "neighbours": outcome.neighbours, **outcome.found.to_dict()}
    write(json.dumps(document, indent=2) + "\n")
    if as_json:
        print_json(document)
        return
    show([("audited", outcome.title), ("neighbours", outcome.neighbours)])
    say("")
    say(str(outcome.found))


def _draw(outcome: _Outcome, path: Path) -> None:
    from epsilearn import plots
    from epsilearn.audit.bits import BitFinding
    from epsilearn.audit.figures import finding_figure, membership_figure
    from epsilearn.audit.membership import Membership

    if isinstance(outcome.found, Membership):
        figure = membership_figure(outcome.found, outcome.title)
    else:
        found = outcome.found.finding if isinstance(outcome.found, BitFinding) else outcome.found
        figure = finding_figure(found, outcome.title)
    plots.save(figure, path)
