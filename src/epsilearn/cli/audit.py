"""``epsilearn audit``: promises put to the test, on made-up data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epsilearn.checks import check_choice
from epsilearn.cli.common import AsJson, app, complain, print_json, save_figure, say, show
from epsilearn.errors import EpsilearnError, InvalidInput

if TYPE_CHECKING:
    from epsilearn.audit.finding import Claim
    from epsilearn.audit.neighbours import Case

__all__ = ["audit"]

REFUTED = 4
FIGURES = (".png", ".svg", ".pdf")
EXAM = "exam"
_WAYS = ("releases", "exact", "bits", "membership", "replay")


@app.command()
def audit(
    subject: Annotated[
        str | None,
        typer.Argument(
            help="An estimator or mechanism by name, or FILE.py:FUNCTION; left out, the names are listed. exam: try "
            "the audits themselves, on faults that are known."
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget to build it with; 1 if left out.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="The delta to build it with; its own default if left out.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="As the estimator takes it, such as output.")] = None,
    calibration: Annotated[str | None, typer.Option(help="paper is held to what is claimed for it.")] = None,
    alpha: Annotated[float | None, typer.Option(help="The regularisation; several are tried if left out.")] = None,
    margin: Annotated[float | None, typer.Option(help="As the estimator takes it.")] = None,
    rows: Annotated[int | None, typer.Option(help="Of the made-up tables; several are tried if left out.")] = None,
    columns: Annotated[int | None, typer.Option(help="Of the made-up tables, 1 if left out; few are best.")] = None,
    rows_per_person: Annotated[int | None, typer.Option(help="The tables then differ in so many rows.")] = None,
    intercept: Annotated[bool, typer.Option("--intercept", help="Fit an intercept as well.")] = False,
    centre: Annotated[bool, typer.Option("--centre", help="Move rows by a private mean first.")] = False,
    releases: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two .npy files of releases that another program made from two neighbours."),
    ] = None,
    claim: Annotated[
        float | None, typer.Option(help="The epsilon to test, for --releases or a file's function.")
    ] = None,
    claim_delta: Annotated[float | None, typer.Option(help="The delta that goes with it.")] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="releases: sample them. exact: compute instead, where that is possible. bits: look at the bits of the "
            "floats alone. membership: try to tell whose record was in. replay: run on neighbours with the same random "
            "answers, and see what else differs. Left out: releases."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Runs on each of the two data sets; 5000 if left out.")] = None,
    confidence: Annotated[float | None, typer.Option(help="How sure the bound is; 0.999 if left out.")] = None,
    jobs: Annotated[int | None, typer.Option(help="How many processes; one on each core if left out.")] = None,
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

    build = {
        "epsilon": epsilon, "delta": delta, "method": method, "calibration": calibration, "alpha": alpha,
        "margin": margin, "rows": rows, "columns": columns, "rows_per_person": rows_per_person,
        "intercept": intercept or None, "centre": centre or None,
    }  # fmt: skip
    sampling = {"trials": trials, "confidence": confidence, "jobs": jobs}
    files = {"plot": plot, "output": output}
    claimed = {"claim": claim, "claim_delta": claim_delta}
    if subject is None and releases is None:
        _refuse("needs something to audit: a name, or FILE.py:FUNCTION", build, sampling, files, claimed, {"by": by})
        _list_subjects(as_json)
        return None
    if subject == EXAM:
        _refuse("chooses one way, and the exam tries all of them; leave it out", {"by": by})
        _refuse("is fixed in the exam, whose cases bring their own; leave it out", build, sampling, claimed)
        _refuse("were made elsewhere, and the exam has its own cases; leave them out", {"releases": releases})
        _refuse("has nothing to draw here; leave it out", {"plot": plot})
        return _examined(output, as_json)
    by = by or "releases"
    by_name = releases is None and ".py" not in str(subject)
    _check_words(by, by_name, releases is not None, build, sampling, claimed, plot)
    _check_places(plot, output)
    options = Options(**_given(build))
    held = None if claim is None else _claim(claim, claim_delta)
    with _watched() as progress:
        work = _Work.of(by, progress, **_given(sampling))
        if releases is not None:
            outcome = _of_releases(subject, releases, held, work)
        elif by_name:
            outcome = _of_subject(str(subject), options, work)
        else:
            outcome = _of_file(str(subject), held, work)
    _report(outcome, as_json)
    if output is not None:
        _kept(lambda: _write(output, json.dumps(outcome.to_dict(), indent=2) + "\n"))
    if plot is not None:
        _kept(lambda: save_figure(lambda path: _draw(outcome, path), plot))
    return REFUTED if outcome.found.refuted else 0


def _examined(output: Path | None, as_json: bool) -> int:
    """The audits' own exam; exit code 4 if a fault was missed or a twin accused."""
    from epsilearn import __version__
    from epsilearn.audit.exam import exam
    from epsilearn.cli.exam import show_exam

    _check_places(None, output)
    with _watched() as progress:
        result = exam(progress=progress)
    told = {"epsilearn": __version__, **result.to_dict()}
    if as_json:
        print_json(told)
    else:
        show_exam(result)
    if output is not None:
        _kept(lambda: _write(output, json.dumps(told, indent=2) + "\n"))
    return 0 if result.passed else REFUTED


def _check_words(
    by: str,
    by_name: bool,
    of_releases: bool,
    build: dict[str, Any],
    sampling: dict[str, Any],
    claimed: dict[str, Any],
    plot: Path | None,
) -> None:
    """Which options have a meaning for this audit of this subject."""
    check_choice("--by", by, _WAYS)
    if by in ("exact", "replay"):
        _refuse(f"is about sampling, and --by {by} samples nothing; leave it out", sampling)
        if of_releases:
            raise InvalidInput(f"--by {by} needs the mechanism itself, not its --releases")
    if by == "replay":
        _refuse("has nothing to draw here; leave it out", {"plot": plot})
    if of_releases:
        made = {name: sampling[name] for name in ("trials", "jobs")}
        _refuse("has no meaning for --releases, which are there already; leave it out", made)
    if claimed["claim"] is None:
        _refuse("needs the --claim that goes with it", {"claim_delta": claimed["claim_delta"]})
    if by_name:
        _refuse("is for --releases and for functions of a file; --epsilon builds what is named", claimed)
    else:
        _refuse("is for subjects by name; leave it out", build)
        if by == "exact":
            raise InvalidInput("--by exact is for subjects by name")


def _given(words: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in words.items() if value is not None}


def _refuse(why: str, *groups: dict[str, Any]) -> None:
    """Options that would be ignored are a mistake."""
    for name in (name for group in groups for name in _given(group)):
        raise InvalidInput(f"--{name.replace('_', '-')} {why}")


def _check_places(plot: Path | None, output: Path | None) -> None:
    """Whether files can be written there, before hours are spent on what goes into them."""
    from epsilearn.whole_files import whole_file

    if plot is not None and plot.suffix.lower() not in FIGURES:
        raise InvalidInput(f"cannot draw to {plot.name}: the figure must be a .png, .svg or .pdf")
    for path in (plot, output):
        if path is not None:
            with whole_file(path):  # made sure of, and left as it was
                pass


def _write(path: Path, text: str) -> None:
    from epsilearn.whole_files import whole_file

    with whole_file(path) as write:
        write(text)


def _kept(write: Callable[[], Any]) -> None:
    """A file that cannot be written after all is complained of, and the verdict stands."""
    try:
        write()
    except (OSError, InvalidInput) as error:
        complain(f"{error}; the verdict above stands", REFUTED, as_json=False)


@dataclass(frozen=True)
class _Work:
    """Which audit, and how long."""

    way: str
    progress: Callable[[float], None]
    trials: int
    confidence: float
    jobs: int

    @staticmethod
    def of(
        way: str,
        progress: Callable[[float], None],
        trials: int = 5000,
        confidence: float = 0.999,
        jobs: int = -1,
    ) -> _Work:
        """With these words checked, before anything runs."""
        from epsilearn.audit.trials import LEAST_TRIALS, check_jobs
        from epsilearn.checks import check_integer, check_probability

        check_integer("--trials", trials, least=LEAST_TRIALS)
        check_probability("--confidence", confidence)
        check_jobs("--jobs", jobs)
        return _Work(way, progress, trials, confidence, jobs)


@dataclass(frozen=True)
class _Outcome:
    """What was audited, and what was found."""

    title: str
    case: dict[str, Any]
    found: Any

    def to_dict(self) -> dict[str, Any]:
        """With all that somebody needs to run it again."""
        from epsilearn import __version__

        return {"subject": self.title, "epsilearn": __version__, **self.case, **self.found.to_dict()}


def _list_subjects(as_json: bool) -> None:
    from epsilearn.audit.subjects import SUBJECTS

    titles = {name: one.title for name, one in SUBJECTS.items()}
    if as_json:
        print_json(titles)
    else:
        others = [
            ("FILE.py:FUNCTION", "any mechanism: see docs/audit.md"),
            (EXAM, "the audits themselves, on known faults"),
        ]
        show([*titles.items(), *others])


def _claim(epsilon: float, delta: float | None) -> Claim:
    from epsilearn.audit.finding import Claim

    return Claim(epsilon, delta or 0.0)


def _of_subject(name: str, options: Any, work: _Work) -> _Outcome:
    from epsilearn.audit.finding import Claim
    from epsilearn.audit.subjects import SUBJECTS
    from epsilearn.audit.worst import exact_worst, promise_of

    check_choice("the subject", name, (*SUBJECTS, EXAM, "FILE.py:FUNCTION"))
    one = SUBJECTS[name]
    cases = one.cases(options)
    claim = Claim.of(promise_of(cases), printed=True)
    if work.way == "replay":
        return _replayed(one.title, cases, work)
    if work.way == "exact":
        found, case = exact_worst(cases, claim, work.progress)
        return _Outcome(one.title, case.to_dict(), found)
    return _sampled(one.title, cases, claim, work)


def _replayed(title: str, cases: list[Case], work: _Work) -> _Outcome:
    from epsilearn.audit.replay_cases import replay_cases

    found = replay_cases(cases, progress=work.progress)
    return _Outcome(title, {"neighbours": f"{found.neighbours} made-up ones"}, found)


def _sampled(title: str, cases: list[Case], claim: Claim, work: _Work) -> _Outcome:
    from epsilearn.audit.trials import CopiedNoise
    from epsilearn.audit.worst import worst_releases

    try:
        first, second, case = worst_releases(cases, claim, work.trials, work.confidence, work.jobs, work.progress)
    except CopiedNoise:
        raise CopiedNoise("--jobs 1") from None
    return _Outcome(title, case.to_dict(), _judged(first, second, claim, work, case.float_noise))


def _judged(first: Any, second: Any, claim: Claim, work: _Work, float_noise: Any = None) -> Any:
    from epsilearn.audit import audit_bits, judge
    from epsilearn.audit.membership import attack

    if work.way == "bits":
        centres, scale = float_noise or (None, None)
        return audit_bits(first, second, claim, work.confidence, centres=centres, scale=scale)
    return (attack if work.way == "membership" else judge)(first, second, claim, work.confidence)


def _of_releases(subject: str | None, files: tuple[Path, Path], claim: Claim | None, work: _Work) -> _Outcome:
    if subject is not None:
        raise InvalidInput("--releases were made elsewhere; leave the subject out")
    if claim is None:
        raise InvalidInput("say what is claimed of these releases with --claim")
    first, second = map(_loaded, files)
    case = {"neighbours": f"{files[0].name} against {files[1].name}"}
    return _Outcome("releases", case, _judged(first, second, claim, work))


def _loaded(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        raise InvalidInput(f"cannot read {path} as an array of numbers in numpy's .npy format") from None


def _of_file(place: str, claim: Claim | None, work: _Work) -> _Outcome:
    """A function of a file that also says which neighbours to run it on, and what it claims."""
    path, _, name = place.rpartition(":")
    if not path:
        raise InvalidInput(f"which function of {place}? write {place}:FUNCTION")
    try:
        words = _executed(Path(path))
        claim = _claim_in(words, path) if claim is None else claim
        case = _case_in(words, path, name)
        if work.way == "replay":
            return _Outcome(place, case.to_dict(), _replay_file(case, claim))
        return _sampled(place, [case], claim, work)
    except EpsilearnError:
        raise
    except (Exception, SystemExit) as error:
        # Its data are made up: what it says may be shown.
        said = " ".join(str(error).split())
        raise InvalidInput(f"{path} raised {type(error).__name__}{f': {said}' if said else ''}; mend it") from None


def _case_in(words: dict[str, Any], path: str, name: str) -> Case:
    from epsilearn.audit.neighbours import Case

    for word in (name, "FIRST", "SECOND"):
        if word not in words:
            raise InvalidInput(f"{path} has no {word}; an audit needs {name or 'a function'}, FIRST and SECOND")
    if ("CENTRES" in words) != ("SCALE" in words):
        raise InvalidInput(f"{path} has one of CENTRES and SCALE; they go together, or are left out")
    float_noise = (words["CENTRES"], words["SCALE"]) if "CENTRES" in words else None
    neighbours = words["FIRST"], words["SECOND"], "FIRST against SECOND"
    return Case(words[name], *neighbours, words.get("STATISTIC"), float_noise=float_noise)


def _replay_file(case: Case, claim: Claim) -> Any:
    from epsilearn.audit import replay

    return replay(case.mechanism, (case.first,), [(case.second,)], claim=(claim.epsilon, claim.delta))


def _claim_in(words: dict[str, Any], path: str) -> Claim:
    if "EPSILON" not in words:
        raise InvalidInput(f"{path} does not say what is claimed; give it EPSILON (and DELTA), or use --claim")
    return _claim(words["EPSILON"], words.get("DELTA"))


def _executed(path: Path) -> dict[str, Any]:
    import runpy

    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    return runpy.run_path(str(path))


@contextmanager
def _watched() -> Iterator[Callable[[float], None]]:
    """A bar on a terminal; elsewhere nothing."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("auditing", total=1.0)
        yield lambda share: bars.update(task, completed=share)


def _report(outcome: _Outcome, as_json: bool) -> None:
    if as_json:
        print_json(outcome.to_dict())
        return
    show([("audited", outcome.title), ("neighbours", outcome.case["neighbours"])])
    say("")
    for line in str(outcome.found).split("\n"):
        say(line)


def _draw(outcome: _Outcome, path: Path) -> None:
    from epsilearn import plots
    from epsilearn.audit.figures import figure_of

    plots.save(figure_of(outcome.found, outcome.title), path)
