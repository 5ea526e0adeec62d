"""The search for two neighbours that a mechanism tells apart well.

Everything here follows from public bounds: records at the bound, at 0, opposite to each other, with companions that
cancel or that pull the model to where the loss is steep. A privacy promise holds for all of them, so the worst are the
best to audit with. Runs that were used to search are never used to judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from epsilearn.audit.events import Prospect, choose
from epsilearn.audit.trials import Progress, Runs
from epsilearn.errors import EpsilearnError

__all__ = ["Case", "Pair", "Record", "Universe", "pairs", "search", "worst"]

Array = NDArray[np.float64]

_KEPT = 3  # one case in so many goes on to the next round, for twice as many runs
_MOVES, _BRANCHES = 4, 2  # steps in which the best pair is made worse, each smaller, and tries in each
_GAIN = 0.01  # the share by which a move must be worse to be worth its crooked numbers
_SLANT = 1.1  # radians: about where the logistic loss of a crowded model is steepest for records that differ most


@dataclass(frozen=True)
class Record:
    """One row and its label or target."""

    features: tuple[float, ...]
    target: float

    def __str__(self) -> str:
        numbers = ", ".join(f"{value:.4g}" for value in self.features)
        return f"x = ({numbers}), y = {self.target:.4g}"


@dataclass(frozen=True)
class Universe:
    """All records there can be.

    Attributes
    ----------
    columns : int
        How many features a record has.
    bound : float
        The largest l2 norm of a row or, in a box, the largest feature.
    box : bool
        Which of the two.
    targets : tuple of float
        The labels, or the least and the largest target.
    numbers : bool
        Whether every number between those is a target too.
    """

    columns: int = 1
    bound: float = 1.0
    box: bool = False
    targets: tuple[float, ...] = (0.0, 1.0)
    numbers: bool = False

    def edges(self) -> list[tuple[float, ...]]:
        """Rows at the bound: the first along the first axis, or in the corner of the box."""
        first = np.zeros(self.columns)
        first[: self.columns if self.box else 1] = self.bound
        found = [first]
        if self.columns > 1:
            slanted, upright = np.zeros((2, self.columns))
            slanted[:2] = self.bound * math.cos(_SLANT), self.bound * math.sin(_SLANT)
            upright[1] = self.bound
            found += [slanted, upright]
        return [tuple(edge.tolist()) for edge in found]

    def moved(self, record: Record, generator: np.random.Generator, step: float) -> Record:
        """A record not far from this one, and inside the bounds."""
        features = np.array(record.features) + step * self.bound * generator.normal(size=self.columns)
        size = np.abs(features) if self.box else np.linalg.norm(features)
        features = features * np.minimum(1.0, self.bound / np.maximum(size, 1e-300))
        target = record.target
        if self.numbers:
            target = float(np.clip(target + step * generator.normal(), self.targets[0], self.targets[-1]))
        elif generator.random() < step / 2:
            target = float(generator.choice(self.targets))
        return Record(tuple(features.tolist()), target)


@dataclass(frozen=True)
class Pair:
    """Two tables that differ in one person: in one record, or in so many copies of one.

    Attributes
    ----------
    companions : tuple of Record
        What they have in common.
    first, second : Record
        What they differ in.
    ahead : bool
        Whether that is their first rows, or their last.
    copies : int
        How often they have it.
    """

    companions: tuple[Record, ...]
    first: Record
    second: Record
    ahead: bool = False
    copies: int = 1

    def tables(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Both tables, as ``fit`` takes them."""
        one, other = self._table(self.first), self._table(self.second)
        return one, other

    def _table(self, own: Record) -> tuple[Array, Array]:
        person = (own,) * self.copies
        records = (*person, *self.companions) if self.ahead else (*self.companions, *person)
        return np.array([r.features for r in records]), np.array([r.target for r in records])

    def moved(self, universe: Universe, generator: np.random.Generator, step: float) -> Pair:
        """The same with some of its records moved a little."""

        def perhaps(record: Record) -> Record:
            return universe.moved(record, generator, step) if generator.random() < 0.5 else record

        return replace(
            self,
            companions=tuple(map(perhaps, self.companions)),
            first=perhaps(self.first),
            second=universe.moved(self.second, generator, step),
        )

    def __str__(self) -> str:
        words = f"{f'{self.copies} times ' if self.copies > 1 else ''}{self.first} against {self.second}"
        if not self.companions:
            return words
        kinds = dict.fromkeys(map(str, self.companions))
        counts = [f"{sum(str(c) == kind for c in self.companions)} of {kind}" for kind in kinds]
        listed = "; ".join(counts[:4]) + ("; ..." if len(counts) > 4 else "")
        return f"{words}, {'before' if self.ahead else 'after'} {listed}"


def pairs(universe: Universe, rows: int, places: Sequence[bool] = (False,), copies: int = 1) -> Iterator[Pair]:
    """Neighbours that are nearly the worst for one mechanism or another, of at least as many rows as a person has."""
    edges, low, high = universe.edges(), universe.targets[0], universe.targets[-1]
    edge, empty = edges[0], (0.0,) * universe.columns
    opposite = tuple(-value for value in edge)
    swaps = [
        (Record(edge, high), Record(edge, low)),
        (Record(edge, high), Record(opposite, high)),
        (Record(edge, high), Record(empty, high)),
    ]
    for other in edges[1:]:
        mirrored = (other[0], -other[1], *other[2:])
        swaps += [(Record(other, high), Record(mirrored, high)), (Record(edge, high), Record(other, high))]
    crowds = [(Record(empty, high),), (Record(edge, low),), (Record(edge, low), Record(edge, high))]
    for crowd in crowds if rows > copies else crowds[:1]:
        companions = tuple(crowd[k % len(crowd)] for k in range(rows - copies))
        for first, second in swaps:
            for ahead in places:
                yield Pair(companions, first, second, ahead, copies)


@dataclass(frozen=True)
class Case:
    """A mechanism and two neighbours.

    Attributes
    ----------
    mechanism : callable or estimator
        As for `audit`.
    first, second : object
        The neighbours, as the mechanism takes them.
    words : str
        What they are.
    statistic : callable, optional
        As for `audit`.
    move : callable, optional
        From a random generator and the size of a step to a case nearby, if there is such a thing.
    settings : dict, optional
        How the mechanism was built, to be written down; an estimator's own if left out.
    float_noise : tuple, optional
        For the bits: the values without noise on either data set, and the scale of the Laplace noise.
    labels : tuple of bool, optional
        For a replay on hostile neighbours: which columns of the data are labels. None where the data are no table.
    """

    mechanism: Any
    first: Any
    second: Any
    words: str
    statistic: Callable[[Any], Any] | None = None
    move: Callable[[np.random.Generator, float], Case] | None = None
    settings: dict[str, Any] | None = None
    float_noise: tuple[tuple[Any, Any], float] | None = None
    labels: tuple[bool, ...] | None = None

    @staticmethod
    def of(
        mechanism: Any, pair: Pair, universe: Universe, statistic: Callable[[Any], Any] | None = None, setting: str = ""
    ) -> Case:
        """The case of two tables, whose records may be moved."""

        def move(generator: np.random.Generator, step: float) -> Case:
            return Case.of(mechanism, pair.moved(universe, generator, step), universe, statistic, setting)

        labels = (False, not universe.numbers)
        return Case(mechanism, *pair.tables(), f"{setting}{pair}", statistic, move, labels=labels)

    @property
    def runs(self) -> Runs:
        return Runs(self.mechanism, self.first, self.second, self.statistic)

    def to_dict(self) -> dict[str, Any]:
        """All that somebody needs to run it again: how it was built, and both data sets to the last digit."""
        settings = self.settings
        if settings is None and hasattr(self.mechanism, "get_params"):
            settings = self.mechanism.get_params(deep=False)
        return {
            "neighbours": self.words,
            "mechanism": getattr(self.mechanism, "__name__", type(self.mechanism).__name__),
            "settings": _plain(settings),
            "first": _plain(self.first),
            "second": _plain(self.second),
        }


def _plain(value: Any) -> Any:
    """As JSON has it; what it has not, as Python would print it."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def search(
    cases: Sequence[Case],
    prospect: Prospect,
    *,
    trials: int,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Case:
    """The case that promises the largest bound: the most promising go on for more runs, and the last one is moved.

    Parameters
    ----------
    cases : sequence of Case
        Where to look first.
    prospect : Prospect
        What is hoped for.
    trials : int
        How often to run each case on each data set in the first round.
    n_jobs, progress
        As for `audit`.
    """
    rounds = _rounds(len(cases), trials)
    total, done = sum(count * size for count, size in rounds) + _MOVES * _BRANCHES * rounds[-1][1], 0

    def scores(some: Sequence[Case], size: int) -> list[float]:
        nonlocal done
        tasks = (delayed(_separation)(case, size, prospect) for case in some)
        found = []
        for score in Parallel(n_jobs=n_jobs, return_as="generator")(tasks):
            found.append(score)
            done += size
            if progress is not None:
                progress(done / total)
        return found

    left = list(cases)
    for count, size in rounds:
        left = left[:count]
        found = scores(left, size)
        left = [left[k] for k in np.argsort(found)[::-1]]
    return _worsened(left[0], max(found), lambda some: scores(some, rounds[-1][1]))[0]


def _rounds(count: int, size: int) -> list[tuple[int, int]]:
    """How many cases there are in each round, and how often each is run."""
    rounds = [(count, size)]
    while rounds[-1][0] > 1:
        rounds.append((math.ceil(rounds[-1][0] / _KEPT), 2 * rounds[-1][1]))
    return rounds


def _separation(case: Case, size: int, prospect: Prospect) -> float:
    """What a few runs promise; a setting that the mechanism refuses promises nothing."""
    try:
        return choose(*case.runs.collect(size), prospect)[1]
    except EpsilearnError:
        return -math.inf


def worst(
    cases: Sequence[Case], measure: Callable[[Case], float], progress: Progress | None = None
) -> tuple[Case, float]:
    """The case with the largest measure, and how large it is, where that can be computed instead of sampled."""
    found = []
    for place, case in enumerate(cases):
        found.append(measure(case))
        if progress is not None:
            progress((place + 1) / len(cases))
    best = int(np.argmax(found))
    return _worsened(cases[best], found[best], lambda some: list(map(measure, some)))


def _worsened(case: Case, score: float, scores: Callable[[Sequence[Case]], list[float]]) -> tuple[Case, float]:
    """A small optimiser: moves that look worse for the mechanism are kept, and steps become smaller."""
    if case.move is None:
        return case, score
    generator, steps = np.random.default_rng(), np.geomspace(0.5, 0.05, _MOVES)
    for step in steps:
        moved = [case.move(generator, float(step)) for _ in range(_BRANCHES)]
        found = scores(moved)
        best = int(np.argmax(found))
        # Less is an accident of the few runs behind a score, and rows of many digits are hard to read.
        if found[best] > score + _GAIN * abs(score):
            case, score = moved[best], found[best]
            assert case.move is not None
    return case, score
