"""Records in parts that live elsewhere: in files, or with the workers of a cluster. Only sums over a part leave it.

A pass hands one piece of `Work` to every part. What comes back says which records it saw, and is refused unless these
are the records of the first pass, which checked them all: every part once, with as many rows and the same numbers. So
neither a task that an engine runs twice, nor a part that has changed, can double or drop a record in silence.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.checks import check_integer
from epsilearn.errors import EpsilearnError, InvalidInput, StateError
from epsilearn.quiet import quietly
from epsilearn.rows.interface import Array
from epsilearn.rows.memory import check_finite
from epsilearn.rows.passes import checksum
from epsilearn.rows.rounding import most_blocks
from epsilearn.rows.totals import Total
from epsilearn.threads import alone

__all__ = [
    "Block", "Build", "Checked", "Gathered", "Parts", "Preparation", "Seen", "Targets", "Task",
    "Unreadable", "Work", "applied", "check_in_memory",
]  # fmt: skip

# From features and targets to rows in memory, and from these to arrays that are to be added up.
Build = Callable[[Any, Array], Any]
Task = Callable[[Any], list[NDArray[Any]]]


class Unreadable(EpsilearnError):
    """A part could not be read. Trying again may help; what was wrong is not quoted, as it may hold a record."""


@dataclass(frozen=True)
class Targets:
    """Targets that are still where their rows are, and what is to be made of them there."""

    steps: tuple[Callable[[Any], Any], ...] = ()

    def then(self, step: Callable[[Any], Any]) -> Targets:
        """The same, with one more thing done to them."""
        return Targets((*self.steps, step))

    def __call__(self, values: Any) -> Any:
        for step in self.steps:
            values = step(values)
        return values


def applied(step: Callable[[Any], Any], values: Any) -> Any:
    """What a function makes of targets: now if they are here, later if they are elsewhere."""
    return values.then(step) if isinstance(values, Targets) else step(values)


@dataclass(frozen=True)
class Preparation:
    """From a block, as it comes out of its part, to features and targets."""

    decode: Callable[[Any], tuple[Any, Any]]
    maps: tuple[Callable[[Any], Any], ...]
    targets: Targets
    width: int

    def __call__(self, block: Any) -> tuple[Any, Array]:
        """Features as they are in the table, and targets as they are to be."""
        X, targets = self.decode(block)
        target = np.ascontiguousarray(self.targets(targets), np.float64)
        if X.ndim != 2 or target.shape != X.shape[:1]:
            raise InvalidInput(f"features of shape {X.shape} and targets of shape {target.shape} do not fit together")
        return X, target

    def mapped(self, X: Any) -> Any:
        """What is made of the features."""
        for step in self.maps:
            X = step(X)
        if X.ndim != 2 or X.shape[1] != self.width:
            raise InvalidInput(f"expected {self.width} features, got an array of shape {X.shape}")
        return X


@dataclass(frozen=True)
class Seen:
    """Which records there were: how many, in how many blocks, and a checksum of their numbers."""

    rows: int = 0
    blocks: int = 0
    checksum: int = 0

    def __add__(self, other: Seen) -> Seen:
        # A block's checksum knows its place, so that adding them up in any order says which stood where.
        return Seen(self.rows + other.rows, self.blocks + other.blocks, (self.checksum + other.checksum) % 2**64)


@dataclass(frozen=True)
class Block:
    """What work made of one block: what it was, arrays to be added up, and the few records that are to be kept."""

    seen: Seen
    addends: list[NDArray[Any]]
    kept: tuple[Any, Array] | None


@dataclass
class Gathered:
    """What work made of some parts.

    Attributes
    ----------
    seen : dict
        What each part held.
    totals : list of Total
        Sums over these parts.
    kept : dict
        A few records of each part, where they were asked for.
    fault : (int, str) or None
        Which part has something wrong with its records, and what; trying again would not help.
    """

    seen: dict[int, Seen] = field(default_factory=dict)
    totals: list[Total] = field(default_factory=list)
    kept: dict[int, list[tuple[Any, Array]]] = field(default_factory=dict)
    fault: tuple[int, str] | None = None

    def add(self, part: int, block: Block) -> None:
        """One more block of a part."""
        self.seen[part] = self.seen.get(part, Seen()) + block.seen
        self.totals = self.totals or [Total() for _ in block.addends]
        for total, addend in zip(self.totals, block.addends, strict=True):
            total.add(addend)
        if block.kept is not None:
            self.kept.setdefault(part, []).append(block.kept)

    @quietly()
    def merge(self, other: Gathered) -> Gathered:
        """Both together, and neither is touched; no part may be in both."""
        if self.fault or other.fault:
            return Gathered(fault=self.fault or other.fault)
        if not self.seen.keys().isdisjoint(other.seen):
            raise StateError("a part was counted twice; nothing was released")
        totals = self.totals or other.totals
        if self.totals and other.totals:
            totals = [mine.merged(theirs) for mine, theirs in zip(self.totals, other.totals, strict=True)]
        return Gathered(self.seen | other.seen, totals, self.kept | other.kept)

    @property
    def values(self) -> list[NDArray[Any]]:
        """The sums."""
        return [total.value for total in self.totals]


@dataclass(frozen=True)
class Work:
    """What is done with every part, wherever that is.

    Parameters
    ----------
    prepare : Preparation
        From blocks to features and targets.
    build : callable
        From these to rows.
    task : callable
        From rows to arrays to be added up.
    sample : (int, int), optional
        Of how many records some are to be kept, and how many bytes these may take.
    """

    prepare: Preparation
    build: Build
    task: Task
    sample: tuple[int, int] | None = None

    @quietly()
    def block(self, part: int, place: int, block: Any) -> Block:
        """What is made of one block, which stands at a place in a part."""
        fault = ""
        try:
            X, target = self.prepare(block)
            if not len(target):
                return Block(Seen(), [], None)
            # Before it is mapped: what machines make of features may differ in a last bit, the table may not.
            seen = Seen(len(target), 1, checksum(X, target, place))
            X = self.prepare.mapped(X)
            return Block(seen, self.task(self.build(X, target)), self._kept(part + place, X, target))
        except (InvalidInput, MemoryError):
            raise
        except Exception as error:
            fault = type(error).__name__
        # Raised out here: the error that was caught may carry private values along.
        raise Unreadable(f"its rows cannot be read ({fault})")

    def _kept(self, number: int, X: Any, target: Array) -> tuple[Any, Array] | None:
        """Every so manieth record, as if all blocks were as long as this one."""
        if self.sample is None:
            return None
        records, most = self.sample
        size = (X.data.nbytes + X.indices.nbytes if sparse.issparse(X) else X.nbytes) / len(target)
        stride = max(1, math.ceil(records * size / most))
        some = slice(-number * len(target) % stride, None, stride)
        # Copies: a few records must not keep their whole block in memory.
        return (X[some].copy(), target[some].copy()) if some.start < len(target) else None

    # Here as well as in the process that asks: what a worker of a cluster warns of would go into its log.
    @quietly()
    def part(self, part: int, blocks: Iterable[Any]) -> Gathered:
        """What is made of one part, in one thread: other parts keep the others busy."""
        found = Gathered({part: Seen()})
        with alone():
            try:
                for place, block in enumerate(blocks):
                    made = self.block(part, place, block)
                    if made.seen.rows:
                        found.add(part, made)
            except InvalidInput as error:
                return Gathered(fault=(part, str(error)))
        return found


class Parts(ABC):
    """A table whose records are in parts elsewhere, each with its target.

    Parameters
    ----------
    rows : int
        How many records there are, which is public; another number is an error before anything is spent.
    names : sequence of str
        The columns that are features.
    decode : callable
        From a block, as it comes out of a part, to features and targets.
    """

    def __init__(self, rows: int, names: Iterable[str], decode: Callable[[Any], tuple[Any, Any]]) -> None:
        self.n = check_integer("rows", rows)
        self.names = list(names)
        if not self.names:
            raise InvalidInput("a table needs at least one column besides its target")
        self._decode, self._width = decode, len(self.names)
        self._maps: tuple[Callable[[Any], Any], ...] = ()
        self._targets = Targets()
        self.known: dict[int, Seen] | None = None
        self.watch: Callable[[int], None] | None = None

    def tell(self, rows: int) -> None:
        """Tell whoever watches how many rows of this pass are done."""
        if self.watch is not None:
            self.watch(rows)

    @property
    def shape(self) -> tuple[int, int]:
        """How many records and features there are."""
        return self.n, self._width

    def through(self, function: Callable[[Any], Any], width: int) -> Any:
        """The table of what a function makes of these features, computed where they are; it must be picklable."""
        mapped = copy.copy(self)
        mapped._maps, mapped._width = (*self._maps, function), width
        return mapped

    def relabelled(self, targets: Targets, known: dict[int, Seen]) -> Any:
        """The table with other targets, what is made of its own; its records have been checked, and were these."""
        other = copy.copy(self)
        other._targets, other.known = Targets((*self._targets.steps, *targets.steps)), known
        return other

    def preparation(self, targets: Targets) -> Preparation:
        """How a block of this table becomes features and targets."""
        return Preparation(self._decode, self._maps, Targets((*self._targets.steps, *targets.steps)), self._width)

    @abstractmethod
    def label(self, part: int) -> str:
        """What to call a part in an error."""

    @abstractmethod
    def gather(self, work: Work) -> Gathered:
        """What work makes of all parts; every part once, however often an engine has tried it."""


class Checked:
    """A table in parts of which every record has been read and checked once; before anything is spent.

    Parameters
    ----------
    parts : Parts
        Where they are.
    targets : Targets
        What is to be made of their targets.
    sample : int
        How many bytes the records that are kept may take; 0 keeps none.

    Attributes
    ----------
    seen : dict
        What each part held.
    kept : list of pairs
        Features and targets of some records, block by block.
    """

    def __init__(self, parts: Parts, targets: Targets, sample: int = 0) -> None:
        self.parts, self._prepare = parts, parts.preparation(targets)
        if parts.known is not None:
            # Something has been spent on these records already.
            self.seen = parts.known
            self.kept = self._kept(self._again(check_finite, _nothing, sample))
            return
        fault = ""
        try:
            found = self._gathered(check_finite, _nothing, sample)
            fault = self._fault(found)
        except Unreadable as error:
            fault = str(error)
        if fault:
            raise InvalidInput(fault)
        self.seen = found.seen
        self._check_size(sum(self.seen.values(), Seen()))
        self.kept = self._kept(found)

    @staticmethod
    def _kept(found: Gathered) -> list[tuple[Any, Array]]:
        return [block for part in sorted(found.kept) for block in found.kept[part]]

    def _check_size(self, all_of_them: Seen) -> None:
        if all_of_them.rows != self.parts.n:
            raise InvalidInput(
                f"the table has {all_of_them.rows:,} rows, and {self.parts.n:,} were declared; is a part missing, or "
                "there twice?"
            )
        if all_of_them.blocks > most_blocks(self.parts.n):
            raise InvalidInput("the table is in too many small blocks; write it anew with some thousand rows in each")

    def _gathered(self, build: Build, task: Task, sample: int = 0) -> Gathered:
        return self.parts.gather(Work(self._prepare, build, task, (self.parts.n, sample) if sample else None))

    def _fault(self, found: Gathered) -> str:
        return "" if found.fault is None else f"{self.parts.label(found.fault[0])}: {found.fault[1]}"

    def _again(self, build: Build, task: Task, sample: int = 0) -> Gathered:
        """One more pass, which must see what the first one saw."""
        found = self._gathered(build, task, sample)
        odd = [part for part in self.seen | found.seen if self.seen.get(part) != found.seen.get(part)]
        if found.fault is not None:
            odd = [found.fault[0]]
        if odd:
            raise StateError(
                f"{self.parts.label(min(odd))} is not what it was when it was checked: its records have changed, or "
                "are read in another order each time; nothing was released. Write the table to Parquet files first"
            )
        return found

    def sums(self, build: Build, task: Task) -> list[NDArray[Any]]:
        """One pass over all records: the sums of what a task makes of each block of rows, built as one says."""
        return self._again(build, task).values


def _nothing(rows: Any) -> list[NDArray[Any]]:  # noqa: ARG001 - reading and checking them is all there is to do
    return []


def check_in_memory(X: Any) -> None:
    """Refuse a table in parts where its rows would have to be at hand."""
    if isinstance(X, Parts):
        raise InvalidInput(
            "a table in parts can be fitted, and nothing else; take its rows into memory, some at a time"
        )
