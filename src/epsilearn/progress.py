"""A bar on the data holder's own terminal while a long fit runs. Nothing of it is written down."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["fitting", "passing", "reading", "stepping"]

_PATIENCE = 2.0  # seconds before a bar appears by itself


@contextmanager
def fitting(verbose: bool | None, certificate: float) -> Iterator[Callable[[float], None] | None]:
    """Yield what a solver is to tell its gradient norms to, or None if nobody watches.

    Parameters
    ----------
    verbose : bool or None
        Whether to show a bar; None shows one on a terminal if the fit takes longer than two seconds.
    certificate : float
        The norm at which the solver is done.
    """
    with _bar(verbose) as show:
        yield None if show is None else _Digits(certificate, show).update


@contextmanager
def stepping(verbose: bool | None, steps: int) -> Iterator[Callable[[int], None] | None]:
    """Yield what a path is to tell the number of its step to, or None if nobody watches; else like `fitting`."""
    with _bar(verbose) as show:
        yield None if show is None else lambda step: show((step + 1) / steps)


@contextmanager
def passing(verbose: bool | None, table: Any) -> Iterator[None]:
    """Show the passes over a table in parts, one after the other, and say in the end how many there were.

    That number depends on the records; like the rest it is for the data holder's eyes and is not kept.
    """
    with _bar(verbose, "pass 1") as show:
        if show is None:
            yield
            return
        passes = _Passes(table.n, show)
        table.watch = passes.update
        try:
            yield
        finally:
            table.watch = None
    passes.tell()


@contextmanager
def reading(verbose: bool | None, rows: int | None) -> Iterator[Callable[[int], None] | None]:
    """Yield what a reader is to tell the number of rows read so far to; ``rows`` is how many there are, if known."""
    with _bar(verbose, "reading") as show:
        yield None if show is None else lambda read: show(min(read / rows, 1.0) if rows else None)


@contextmanager
def _bar(verbose: bool | None, what: str = "fitting") -> Iterator[Callable[..., None] | None]:
    """What to tell the share done so far to; None where nobody knows it."""
    if verbose is False or (verbose is None and not sys.stderr.isatty()):
        yield None
        return
    bar = _Bar(what, time.monotonic() + (0.0 if verbose else _PATIENCE))
    try:
        yield bar.show
    finally:
        bar.close()


class _Passes:
    """How many passes there have been, and how far the last one is."""

    def __init__(self, rows: int, show: Callable[..., None]) -> None:
        self._rows, self._show = rows, show
        self._count, self._last, self._started = 1, 0, time.monotonic()

    def update(self, rows: int) -> None:
        if rows <= self._last:
            self._count += 1
        self._last = rows
        # Never quite the whole: a bar that has ended stops its clock.
        self._show(min(rows / self._rows, 0.9999), f"pass {self._count}")

    def tell(self) -> None:
        """Say so on the terminal, if it took long enough for anybody to wonder."""
        console = _console()
        # A terminal forgets; a file that errors are written to does not.
        if console.is_terminal and time.monotonic() - self._started > _PATIENCE:
            console.print(f"{self._count} passes over {self._rows:,} rows", highlight=False)


class _Digits:
    """Digits of the gradient norm gained so far, out of those needed."""

    def __init__(self, certificate: float, show: Callable[[float], None]) -> None:
        self._certificate, self._show = certificate, show
        self._first = math.nan

    def update(self, norm: float) -> None:
        if math.isnan(self._first):
            self._first = norm
        needed = math.log(max(self._first / self._certificate, 2.0))
        gained = math.log(max(self._first / norm, 1.0))
        self._show(min(gained / needed, 1.0))


class _Bar:
    """A bar that appears after a while."""

    def __init__(self, what: str, appears: float) -> None:
        self._what, self._appears = what, appears
        self._progress: Progress | None = None

    def show(self, share: float | None, what: str | None = None) -> None:
        self._what = what or self._what
        if self._progress is None:
            if time.monotonic() < self._appears:
                return
            self._progress = _progress()
            self._task = self._progress.add_task(self._what, total=None if share is None else 1.0)
        self._progress.update(self._task, completed=share or 0.0, description=self._what)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _progress() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=_console(), transient=True)
    progress.start()
    return progress
