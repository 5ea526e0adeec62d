"""Tables of Spark: each partition is summed by the executor that has it, and only sums travel."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from epsilearn.errors import InvalidInput
from epsilearn.rows.arrow_blocks import Columns, stretches
from epsilearn.rows.missing import missing_package
from epsilearn.rows.parts import Gathered, Parts, Unreadable, Work

__all__ = ["SparkRows", "parquet_frame"]

_DEPTH = 2  # of the tree in which sums are added on their way to the driver


class SparkRows(Parts):
    """The records of a Spark data frame.

    Each pass is one job: executors hand Arrow batches of a partition to Python, and sums are added up in a tree. A task
    that fails is run again, a slow one perhaps twice at once; a partition's sums are used once. Noise is drawn on the
    driver, nowhere else. The executors' Python needs epsilearn too.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        With its target. It is computed again in each pass unless it was cached; it must have the same rows in the same
        order each time, which a scan of files has and a shuffle may not.
    target : str
        The column to predict.
    rows : int
        How many records there are, which is public. Any other number is an error.
    columns : sequence of str, optional
        The columns that are features; by default all but the target.
    encode : callable, optional
        From an Arrow table to features and targets, both arrays; ``columns`` are then what they are called.
    read : sequence of str, optional
        The columns that ``encode`` needs.
    """

    def __init__(
        self,
        frame: Any,
        *,
        target: str,
        rows: int,
        columns: Iterable[str] | None = None,
        encode: Callable[[Any], tuple[Any, Any]] | None = None,
        read: Iterable[str] | None = None,
    ) -> None:
        names = [name for name in frame.columns if name != target] if columns is None else list(columns)
        super().__init__(rows, names, encode or Columns(tuple(names), target))
        needed = [*names, target] if read is None else list(read)
        for name in needed:
            if frame.columns.count(name) != 1:
                raise InvalidInput(f"the frame has {frame.columns.count(name)} columns called {name!r}, and needs one")
        # In backquotes, since a name may hold dots.
        self._frame = frame.select(*("`" + name.replace("`", "``") + "`" for name in needed))

    def label(self, part: int) -> str:
        return f"partition {part}"

    def gather(self, work: Work) -> Gathered:
        try:
            made = self._frame.mapInArrow(_Made(work), "found binary").rdd  # may compute what the frame rests on
            found = pickle.loads(made.map(_bytes).treeReduce(_merged, _DEPTH))
        except Exception as error:
            fault = _fault(error)
        else:
            self.tell(sum(seen.rows for seen in found.seen.values()))
            return found  # type: ignore[no-any-return]
        # Raised out here: what was caught may quote a record.
        raise Unreadable(fault)


def parquet_frame(session: Any, files: Iterable[Path]) -> Any:
    """The frame of some Parquet files, of which Spark reads no more than a footer now."""
    try:
        return session.read.parquet(*(str(file.resolve()) for file in files))
    except Exception as error:
        fault = _fault(error)
    raise InvalidInput(fault)


class _Made:
    """What an executor makes of a partition: one row, with the sums."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        blocks = (block for batch in batches for block in stretches(batch))
        found = self._work.part(context.partitionId(), blocks)
        yield pa.RecordBatch.from_pydict({"found": [pickle.dumps(found)]})


def _bytes(row: Any) -> bytes:
    return bytes(row[0])


def _merged(first: bytes, second: bytes) -> bytes:
    return pickle.dumps(pickle.loads(first).merge(pickle.loads(second)))


def _fault(error: Exception) -> str:
    """What went wrong, without what Spark says of it, which may quote a record; the name of a file is no secret."""
    if isinstance(error, ImportError):  # raised here, by Spark itself, before it looks at a record
        return "Spark needs pandas and PyArrow, newer ones perhaps: pip install --upgrade 'epsilearn[spark]'"
    if package := missing_package(error):
        return f"Spark's executors cannot import {package}: install epsilearn[spark] where they run"
    named = re.search(r"(?:reading|read|in) file:?\s*\[?(?:file:)?/*(\S+\.parquet)", str(error))
    where = named.group(1).rsplit("/", 1)[-1] if named else "the table"
    return f"{where} cannot be read by Spark ({type(error).__name__})"
