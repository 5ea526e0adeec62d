"""Tables in Parquet files, read a few thousand rows at a time while others are summed; never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from epsilearn.errors import InvalidInput
from epsilearn.rows.arrow_blocks import Columns, stretch
from epsilearn.rows.parts import Gathered, Parts, Seen, Unreadable, Work
from epsilearn.threads import in_order

__all__ = ["ParquetRows", "parquet_files"]

_BUFFER = 1 << 20  # bytes of a column that are read from disk at a time


class ParquetRows(Parts):
    """The records of Parquet files, for tables larger than memory.

    Every pass reads the files again, in batches of up to 16 MiB, while earlier batches are summed. In memory are four
    batches a core at most, what is being made of one a core, and a sample of 128 MiB.

    Parameters
    ----------
    path : path or sequence of paths
        A file, a folder of files (those that end in .parquet, subfolders included), or several files.
    target : str
        The column to predict.
    rows : int
        How many records there are, which is public. Any other number in the files is an error.
    columns : sequence of str, optional
        The columns that are features; by default all but the target, in the first file's order.
    encode : callable, optional
        From an Arrow table to features and targets, both arrays; ``columns`` are then what they are called. By default
        columns must be numbers, and are taken as they are.
    read : sequence of str, optional
        The columns that ``encode`` needs.
    client : distributed.Client or "threads", optional
        Workers of Dask that read the row groups, from a disk that all of them share, or Dask's threads in this process;
        by default this process does it without Dask.

    Examples
    --------
    >>> import numpy as np, pandas as pd, tempfile
    >>> from epsilearn import LogisticRegression, ParquetRows
    >>> generator = np.random.default_rng(0)
    >>> frame = pd.DataFrame(generator.normal(size=(5000, 2)) / 2, columns=["age", "dose"])
    >>> frame["ill"] = frame["age"] > 0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     frame.to_parquet(f"{folder}/part-0.parquet")
    ...     rows = ParquetRows(folder, target="ill", rows=5000)
    ...     model = LogisticRegression(data_norm=2.0, classes=[False, True]).fit(rows)
    >>> bool(model.score(frame[["age", "dose"]], frame["ill"]) > 0.8)
    True
    """

    def __init__(
        self,
        path: str | Path | Iterable[str | Path],
        *,
        target: str,
        rows: int,
        columns: Iterable[str] | None = None,
        encode: Callable[[Any], tuple[Any, Any]] | None = None,
        read: Iterable[str] | None = None,
        client: Any = None,
    ) -> None:
        self._client = client
        files = parquet_files(path)
        first = _footer(files[0])
        names = [name for name in first.names if name != target] if columns is None else list(columns)
        super().__init__(rows, names, encode or Columns(tuple(names), target))
        self._read = [*names, target] if read is None else list(read)
        self._files = files
        self._groups = [group for file in files for group in _groups(file, self._read, first)]
        found = sum(group.rows for group in self._groups)
        if found != self.n:
            raise InvalidInput(
                f"the files have {found:,} rows, and {self.n:,} were declared; is a file missing, or there twice?"
            )

    def label(self, part: int) -> str:
        return self._groups[part].file.name

    def gather(self, work: Work) -> Gathered:
        """Read in this thread, by Arrow's own; sum in the others. Or have it all done by workers."""
        return self._gathered_here(work) if self._client is None else self._gathered_there(work)

    def _gathered_there(self, work: Work) -> Gathered:
        from epsilearn.rows.dask import gathered

        found = gathered(work, self._groups, partial(_batches, self._read), self._client)
        self.tell(self.n)
        return found

    def _gathered_here(self, work: Work) -> Gathered:
        found = Gathered({part: Seen() for part in range(len(self._groups))})

        def made(item: tuple[int, int, Any]) -> tuple[int, Any]:
            part, place, batch = item
            try:
                return part, work.block(part, place, batch)
            except InvalidInput as error:
                return part, str(error)
            except Unreadable as error:
                fault = f"{self.label(part)}: {error}"
            raise Unreadable(fault)

        rows = 0
        for part, block in in_order(made, self._batches()):
            if isinstance(block, str):
                return Gathered(fault=(part, block))
            found.add(part, block)
            rows += block.seen.rows
            self.tell(rows)
        return found

    def _batches(self) -> Iterator[tuple[int, int, Any]]:
        """Every batch, with its part and its place there."""
        for part, group in enumerate(self._groups):
            yield from ((part, place, batch) for place, batch in enumerate(group.batches(self._read)))


def _batches(columns: list[str], group: _Group) -> Iterator[Any]:
    return group.batches(columns)


@dataclass(frozen=True)
class _Group:
    """A row group of a file: as much as one part."""

    file: Path
    number: int
    rows: int

    def batches(self, columns: list[str]) -> Iterator[Any]:
        from pyarrow import parquet

        source = _explained(self.file, lambda: parquet.ParquetFile(self.file, buffer_size=_BUFFER, pre_buffer=False))
        with source:
            found = source.iter_batches(stretch(len(columns)), row_groups=[self.number], columns=columns)
            # Each step by itself: the caller's own errors, raised between two of them, are not this file's.
            while (batch := _explained(self.file, lambda: next(found, None))) is not None:
                yield batch


def parquet_files(path: str | Path | Iterable[str | Path]) -> list[Path]:
    """The files that a path, or several, stand for; in the order of their names within a folder."""
    paths = [Path(path)] if isinstance(path, (str, Path)) else [Path(each) for each in path]
    found: list[Path] = []
    for each in paths:
        if each.is_dir():
            # Hidden ones, and those that other programs leave as notes, are no tables.
            inside = [file for file in sorted(each.rglob("*.parquet")) if file.is_file() and _is_part(file, each)]
            if not inside:
                raise InvalidInput(f"there is no .parquet file in {each}")
            found += inside
        elif each.is_file():
            found.append(each)
        else:
            raise InvalidInput(f"there is no file {each}; files are read from disks that this machine sees")
    if not found:
        raise InvalidInput("no file was named")
    # Whole paths: workers may be at home in another folder.
    found = [file.resolve() for file in found]
    _check_different(found)
    return found


def _check_different(files: list[Path]) -> None:
    """Refuse a file that is there twice, by one name or, as a hard link, by two."""
    names: dict[tuple[int, int] | Path, Path] = {}
    for file in files:
        if file in names:
            raise InvalidInput(f"{file.name} is named twice, and every record may be counted once only")
        names[file] = file
        place = file.stat()
        known = names.setdefault((place.st_dev, place.st_ino), file)
        if known != file and place.st_ino:  # 0 where a file system does not tell
            raise InvalidInput(
                f"{known.name} and {file.name} are one file with two names (a hard link), and every record may be "
                "counted once only; take one of them away"
            )


def _is_part(file: Path, folder: Path) -> bool:
    inside = file.relative_to(folder).parts
    if any("=" in part for part in inside[:-1]):
        raise InvalidInput(
            f"{folder}: a folder such as {inside[0]} holds a column in its name, which is not read; name the files, "
            "with that column written into them if it is needed"
        )
    return not any(part.startswith((".", "_")) for part in inside)


def _footer(file: Path) -> Any:
    """The columns that a file says it has."""
    from pyarrow import parquet

    return _explained(file, lambda: parquet.read_schema(file))


def _groups(file: Path, columns: list[str], first: Any) -> list[_Group]:
    """A file's row groups; it must have the columns, and of the same types as the first file."""
    from pyarrow import parquet

    schema = _footer(file)
    for name in columns:
        if schema.names.count(name) != 1:
            raise InvalidInput(f"{file.name} has {schema.names.count(name)} columns called {name!r}, and needs one")
        expected = first.field(name).type if first.names.count(name) == 1 else None
        if expected is not None and schema.field(name).type != expected:
            raise InvalidInput(
                f"{file.name}: column {name!r} is of type {schema.field(name).type}, and in the first file of type "
                f"{expected}; write all files with the same types"
            )
    footer = _explained(file, lambda: parquet.read_metadata(file))
    return [_Group(file, number, footer.row_group(number).num_rows) for number in range(footer.num_row_groups)]


def _explained(file: Path, read: Callable[[], Any]) -> Any:
    """What was read, or an error that names the file and quotes nothing of it."""
    try:
        return read()
    except MemoryError:
        raise
    except FileNotFoundError:
        fault = "is not there any more"
    except PermissionError:
        fault = "cannot be read: permission denied"
    except Exception:
        fault = "cannot be read as parquet: it is damaged or of another kind"
    # Raised out here: the error that was caught may carry private values along.
    raise Unreadable(f"{file.name} {fault}")
