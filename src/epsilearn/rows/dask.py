"""Tables of Dask: each partition is summed by the worker that has it, and only sums travel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

from epsilearn.errors import InvalidInput, StateError
from epsilearn.rows.arrow_blocks import Columns, stretches
from epsilearn.rows.missing import missing_package
from epsilearn.rows.parts import Gathered, Parts, Unreadable, Work
from epsilearn.threads import one_thread_each

__all__ = ["DaskRows", "gathered"]

_RETRIES = 3  # of a task that could not read its part; what is wrong with the records themselves is not tried again
_checked: WeakSet[Any] = WeakSet()  # clients whose workers have what they need
_FAN = 8  # how many sums are added at a time, on their way to the process that asked


class DaskRows(Parts):
    """The records of a Dask data frame or of Dask arrays, on any client.

    Each pass is one graph: a task for every partition, and sums of eight at a time. A worker that dies takes nothing
    along: its tasks are run again elsewhere, and a partition's sums are used once. Noise is drawn in the process that
    calls `fit`, nowhere else.

    Parameters
    ----------
    table : dask.dataframe.DataFrame or dask.array.Array
        A frame with its target, or the features alone. It is computed again in each pass unless it was persisted.
    target : str or dask.array.Array
        The frame's column to predict; or the targets, as an array beside the features.
    rows : int
        How many records there are, which is public. Any other number is an error.
    columns : sequence of str, optional
        The frame's columns that are features; by default all but the target.
    client : distributed.Client or "threads", optional
        Where to compute: its workers, or threads of this process; by default wherever Dask computes.
    encode : callable, optional
        From an Arrow table to features and targets, both arrays; ``columns`` are then what they are called.
    read : sequence of str, optional
        The columns that ``encode`` needs.

    Examples
    --------
    >>> import dask.array as da
    >>> from epsilearn import DaskRows, LogisticRegression
    >>> X = da.random.default_rng(0).normal(size=(5000, 2), chunks=(1000, 2)).persist() / 2
    >>> rows = DaskRows(X, target=X[:, 0] > 0, rows=5000)
    >>> model = LogisticRegression(data_norm=2.0, classes=[False, True]).fit(rows)
    >>> print(model.guarantee_)
    epsilon = 1, per record, replace-one
    """

    def __init__(
        self,
        table: Any,
        *,
        target: Any,
        rows: int,
        columns: Iterable[str] | None = None,
        client: Any = None,
        encode: Callable[[Any], tuple[Any, Any]] | None = None,
        read: Iterable[str] | None = None,
    ) -> None:
        import dask.array as da

        if isinstance(table, da.Array):
            self._parts = _pairs(table, target)
            super().__init__(rows, [f"x{number}" for number in range(table.shape[1])], _pair)
        elif _is_frame(table):
            names = [name for name in table.columns if name != target] if columns is None else list(columns)
            # Names are texts once a frame is handed to Arrow.
            super().__init__(rows, map(str, names), encode or Columns(tuple(map(str, names)), str(target)))
            needed = [*names, target] if read is None else list(read)
            missing = [name for name in needed if name not in table.columns]
            if missing:
                raise InvalidInput(f"the frame has no column {missing[0]!r}")
            self._parts = table[needed].to_delayed()
        else:
            raise InvalidInput("table must be a Dask data frame or a Dask array")
        self._client = client

    def label(self, part: int) -> str:
        return f"partition {part}"

    def gather(self, work: Work) -> Gathered:
        found = gathered(work, self._parts, stretches, self._client)
        self.tell(sum(seen.rows for seen in found.seen.values()))
        return found


def _is_frame(table: Any) -> bool:
    try:
        import dask.dataframe as dd
    except ImportError:  # arrays need no pandas
        return False
    return isinstance(table, dd.DataFrame)


def gathered(work: Work, parts: Iterable[Any], opened: Callable[[Any], Iterable[Any]], client: Any = None) -> Gathered:
    """What workers make of parts, which ``opened`` turns into blocks where they are."""
    import dask

    # One node of the graph, which every task refers to: sent to each worker once.
    shared = dask.delayed(work, pure=False)
    make, add = dask.delayed(_made, pure=False), dask.delayed(_merged, pure=False)
    level = [make(shared, number, opened, part) for number, part in enumerate(parts)]
    while len(level) > 1:
        level = [add(level[start : start + _FAN]) for start in range(0, len(level), _FAN)]
    try:
        return _computed(level[0], client)
    except (StateError, Unreadable, MemoryError):
        raise
    except Exception as error:
        package = missing_package(error)
        fault = f"the table cannot be read ({type(error).__name__})"
        if package:
            fault = f"Dask's workers cannot import {package}: install epsilearn[dask] where they run"
    # Raised out here: what was caught may quote a record.
    raise Unreadable(fault)


def _computed(value: Any, client: Any) -> Gathered:
    import dask

    if client is None:
        (found,) = dask.compute(value)
    elif client == "threads":
        with one_thread_each():
            (found,) = dask.compute(value, scheduler="threads")
    else:
        _check_workers(client)
        found = client.compute(value, retries=_RETRIES).result()
    return found  # type: ignore[no-any-return]


def _check_workers(client: Any) -> None:
    """Let an import that fails there be an error here: a worker that cannot read its task would die, and we wait."""
    if client not in _checked:
        for run in (client.run_on_scheduler, client.run):
            run(exec, "import epsilearn.rows.parts")
        _checked.add(client)


def _pairs(features: Any, target: Any) -> list[Any]:
    """Blocks of features with those of their targets, each pair as one delayed value."""
    import dask
    import dask.array as da

    if not isinstance(target, da.Array) or target.ndim != 1 or features.ndim != 2:
        raise InvalidInput("features of two dimensions need targets of one, as another Dask array")
    features = features.rechunk({1: -1})
    if features.numblocks[0] != target.numblocks[0] or features.chunks[0] != target.chunks[0]:
        try:
            target = target.rechunk((features.chunks[0],))
        except ValueError:
            raise InvalidInput("features and targets must be in chunks of the same sizes; rechunk them") from None
    blocks = zip(features.to_delayed().ravel(), target.to_delayed().ravel(), strict=True)
    return [dask.delayed(tuple, pure=False)(list(pair)) for pair in blocks]


def _pair(block: tuple[Any, Any]) -> tuple[Any, Any]:
    return block


def _made(work: Work, number: int, opened: Callable[[Any], Iterable[Any]], part: Any) -> Gathered:
    """What a worker makes of a part."""
    return work.part(number, opened(part))


def _merged(some: list[Gathered]) -> Gathered:
    first, *others = some
    for other in others:
        first = first.merge(other)
    return first
