"""What all studies share: what a run returns, how it uses the processors, and how it is written down."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from joblib import Parallel, delayed, parallel_config

from epsilearn import plots
from epsilearn.whole_files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Drawing", "Progress", "Result", "Sheet", "all_processors", "document", "each", "unwatched", "watched", "write",
    "write_text",
]  # fmt: skip

Item = TypeVar("Item")
Task = TypeVar("Task")
Found = TypeVar("Found")

_PACKAGES = ("numpy", "scipy", "scikit-learn", "epsilearn")


class Progress(Protocol):
    """What shows how far a piece of work has come, while handing on what it yields."""

    def __call__(self, work: Iterable[Item], total: int) -> Iterator[Item]: ...


@dataclass(frozen=True)
class Drawing:
    """A figure, and what it shows in words, for those who cannot see it."""

    figure: Figure
    words: str


@dataclass(frozen=True)
class Sheet:
    """A small table of results, for the terminal and for the gallery.

    Attributes
    ----------
    title : str
        What the numbers are.
    columns : tuple of str
        Their heads.
    rows : sequence of tuple of str
        Cells as they are shown; a short row leaves its last cells empty.
    texts : int
        How many of the first columns hold words; all others are numbers, and end on the right.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: int = 1


@dataclass(frozen=True)
class Result:
    """What a run of a study found.

    Attributes
    ----------
    settings : dataclass
        What it was run with.
    seeds : dict
        What its data follow from. Noise is drawn from the operating system, so that promises are real: a second run
        differs by it.
    measured : dict
        All numbers, ready for JSON.
    figures : dict of Drawing
        By the name of the file they go to.
    sheets : list of Sheet
        The numbers to look at.
    seen : list of str
        What this run shows, in sentences made from its numbers.
    """

    settings: Any
    seeds: dict[str, int]
    measured: dict[str, Any]
    figures: dict[str, Drawing]
    sheets: list[Sheet]
    seen: list[str]


def unwatched(work: Iterable[Item], total: int) -> Iterator[Item]:  # noqa: ARG001
    """The work as it is."""
    return iter(work)


@contextmanager
def watched(what: str) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere nothing."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    with Bars(console=console, transient=True, disable=not console.is_terminal) as bars:

        def show(work: Iterable[Item], total: int) -> Iterator[Item]:
            return iter(bars.track(work, total=total, description=what))

        yield show


def each(work: Callable[[Task], Found], tasks: Sequence[Task], progress: Progress) -> list[Found]:
    """What the work finds for each task, in their order; in one process, or in all inside `all_processors`.

    Examples
    --------
    >>> each(abs, [-1, 2, -3], unwatched)
    [1, 2, 3]
    """
    found: Iterable[Found] = Parallel(return_as="generator")(delayed(work)(task) for task in tasks)
    return list(progress(found, len(tasks)))


def all_processors() -> Any:
    """A context in which `each` uses every processor."""
    return parallel_config(backend="loky", n_jobs=-1)


def document(name: str, result: Result) -> dict[str, Any]:
    """What is written down of a run: no date and no machine, so that runs can be compared."""
    return {
        "study": name,
        "settings": _plain(result.settings),
        "seeds": result.seeds,
        "versions": {"python": platform.python_version(), **{package: version(package) for package in _PACKAGES}},
        "seen": result.seen,
        "measured": _plain(result.measured),
    }


def _plain(data: Any) -> Any:
    """What JSON can hold: no dataclasses, no infinity."""
    if is_dataclass(data) and not isinstance(data, type):
        return _plain(asdict(data))
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return "infinity" if isinstance(data, float) and math.isinf(data) else data


def write(name: str, result: Result, folder: Path) -> list[Path]:
    """Put a run's JSON, and a PNG and an SVG of each of its figures, into the folder; each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{name.replace('-', '_')}.json"
    write_text(report, json.dumps(document(name, result), indent=1, allow_nan=False) + "\n")
    images = [folder / f"{figure}{suffix}" for figure in result.figures for suffix in (".png", ".svg")]
    for path in images:
        plots.save(result.figures[path.stem].figure, path)
    return [report, *images]


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as put:
        put(text)
