"""Tables in files: their header alone, or their rows a few at a time.

CSV and TSV (gzipped or not), Parquet, Arrow and libsvm. `TableFile.names` and its like read no more of a file than the
header or footer that names its columns, to the byte. Errors name the file, the column and the line, never a value.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from epsilearn.columns import numbers_in
from epsilearn.errors import InvalidInput
from epsilearn.schema import FORMATS, FileFormat, Schema

__all__ = ["TableFile", "read_column"]

_ENDINGS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_ENDINGS |= {".libsvm": "libsvm", ".svmlight": "libsvm", ".svm": "libsvm"}
T = TypeVar("T")
_BATCH = 1 << 16
_LONGEST_HEADER = 1 << 24  # bytes


@dataclass(frozen=True)
class TableFile:
    """A table in a file, of which nothing has been read yet.

    Parameters
    ----------
    path : Path
        Where it is.
    format : str
        One of `epsilearn.schema.FORMATS`.
    delimiter : str
        What separates the fields of a CSV file.
    given : tuple of str or None
        The names of the columns of a CSV file without a header.
    """

    path: Path
    format: str
    delimiter: str = ","
    given: tuple[str, ...] | None = None

    @classmethod
    def at(cls, path: str | Path, written: FileFormat | None = None, names: tuple[str, ...] | None = None) -> TableFile:
        """The file at this path, written as its name or ``written`` says; ``names`` for one without a header."""
        path, written = Path(path), written or FileFormat()
        if not path.is_file():
            raise InvalidInput(f"there is no file {path}")
        kind = _kind_of(path, written.format)
        if _zipped(path) and kind in ("parquet", "arrow"):
            raise InvalidInput(f"{path.name}: a {kind} file is compressed inside, if at all; unzip it first")
        given = names if kind in ("csv", "tsv") and not written.header else None
        return cls(path, kind, written.delimiter or ("\t" if kind == "tsv" else ","), given)

    @classmethod
    def described(cls, path: str | Path, schema: Schema, missing: str | None = None) -> TableFile:
        """The file of a table that a schema describes, without one column perhaps; nothing has been read yet."""
        file = cls.at(path, schema.file, tuple(name for name in schema.columns if name != missing))
        if (file.format == "libsvm") != schema.sparse:
            raise InvalidInput(
                f"{file.path.name} is not the kind of file that the schema describes: they disagree on libsvm"
            )
        return file

    def names(self) -> list[str]:
        """The columns' names, from the header alone."""
        if self.format == "libsvm":
            return []
        if self.given is not None:
            return list(self.given)
        return self._explained(lambda: _csv_names(self) if self._is_text else list(self._arrow_schema().names))

    def types(self) -> list[str | None]:
        """What each column holds, from the header alone: "number", "text" or "boolean"; None where it does not say."""
        if self._is_text:
            return [None] * len(self.names())
        return self._explained(lambda: [_type_name(kind) for kind in self._arrow_schema().types])

    def rows(self) -> int | None:
        """How many rows there are, if the footer says so."""
        if self.format != "parquet":
            return None
        return self._explained(lambda: int(_parquet_footer(self.path).num_rows))

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """Arrow tables of these columns, a few thousand rows at a time; all fields of a CSV file are texts.

        A CSV file has no types. They are not guessed from the values, which would let one record change how all the
        others are read.
        """
        self._check_columns(columns)
        if self.format == "libsvm":
            raise InvalidInput(f"{self.path.name} is a libsvm file, whose columns have no names")
        read = {"parquet": _parquet_batches, "arrow": _arrow_batches}.get(self.format, _csv_batches)
        # Each step by itself: the caller's own errors, raised between two of them, are not this file's.
        found = read(self, columns)
        while (batch := self._explained(lambda: next(found, None))) is not None:
            yield batch

    def sparse_rows(self, count: int, first: int) -> tuple[Any, Any]:
        """The rows of a libsvm file as a sparse matrix of ``count`` columns, and the first field of each line."""
        from sklearn.datasets import load_svmlight_file

        def read() -> tuple[Any, Any]:
            with _opened(self.path) as file:
                X, y = load_svmlight_file(file, n_features=count, zero_based=first == 0)
            return X, y

        return self._explained(read)

    def sparse_size(self) -> int:
        """About how many bytes the rows of a libsvm file take once they are read."""

        def count() -> int:
            with _opened(self.path) as file:
                return sum(12 * line.count(b":") + 16 for line in file)

        return self._explained(count)

    @property
    def _is_text(self) -> bool:
        return self.format in ("csv", "tsv", "libsvm")

    def _arrow_schema(self) -> Any:
        if self.format == "parquet":
            return _parquet_footer(self.path).schema.to_arrow_schema()
        return _arrow_header(self.path)

    def _check_columns(self, columns: list[str]) -> None:
        names = self.names()
        for column in columns:
            if names.count(column) > 1:
                raise InvalidInput(
                    f"{self.path.name} has {names.count(column)} columns called {column!r}; names must differ"
                )
            if column not in names:
                # The names are not listed: in a file without a header the first line is somebody's record.
                raise InvalidInput(
                    f"{self.path.name} has no column {column!r} among its {len(names)}; the first line must name them"
                )

    def _explained(self, read: Callable[[], T]) -> T:
        """What was read, or an error without the value or the row that a reader quotes of a damaged file."""
        try:
            return read()
        except (InvalidInput, MemoryError):
            raise
        except Exception as error:
            fault = _fault(self, error)
        # Raised out here, and not from a context manager: an error raised while another is handled carries it along.
        raise InvalidInput(fault)


def read_column(path: str | Path, column: str, *, as_text: bool = False) -> Any:
    """The named column as an Arrow column, after every row of the file has been checked.

    A CSV file's fields are read as numbers, or as text if so asked.
    """
    import pyarrow as pa

    file = TableFile.at(path)
    batches = list(file.batches([column]))
    if not sum(batch.num_rows for batch in batches):
        raise InvalidInput(f"{file.path.name} has no rows; there must be at least one")
    found = pa.concat_tables(batches)[column]
    if not file._is_text or as_text:
        return found
    numbers = numbers_in(found)
    if numbers is None:
        raise InvalidInput(f"{file.path.name}: column {column!r} holds something that is not a number")
    return numbers


def _kind_of(path: Path, stated: str | None) -> str:
    """What the file's name says it is, or what was stated where the name says nothing."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    kind = _ENDINGS.get(endings[-1] if endings else "", stated)
    if kind is None:
        raise InvalidInput(
            f"{path.name}: unknown kind of file; expected {', '.join(_ENDINGS)}, or a schema whose [file] says which "
            f"format: {', '.join(FORMATS)}"
        )
    return kind


def _zipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if _zipped(path) else path.open("rb")  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------- headers


def _first_line(path: Path) -> bytes:
    """The first line, and not a byte more: the rest is somebody's record."""
    line = bytearray()
    unzip = zlib.decompressobj(wbits=31) if _zipped(path) else None
    with path.open("rb", buffering=0) as file:
        while not line.endswith(b"\n"):
            byte = file.read(1)
            if not byte:
                break
            if unzip is not None and unzip.eof:
                unzip = zlib.decompressobj(wbits=31)  # a file may be several, one after the other
            line += byte if unzip is None else unzip.decompress(byte)
            if b"\n" in line:
                return bytes(line[: line.index(b"\n") + 1])
            if b"\r" in line[:-1]:
                raise InvalidInput(f"{path.name}: lines end with a carriage return alone; end them with a line feed")
            if len(line) > _LONGEST_HEADER:
                raise InvalidInput(f"{path.name}: the first line does not end; is it a text file?")
    return bytes(line)


def _csv_names(file: TableFile) -> list[str]:
    first = _first_line(file.path).decode("utf-8-sig")
    header = next(csv.reader([first], delimiter=file.delimiter, strict=True), None)
    if not header:
        raise InvalidInput(f"{file.path.name} is empty; expected a header and at least one row")
    return header


def _parquet_footer(path: Path) -> Any:
    """What a Parquet file says of itself at its end, read without anything before it."""
    import pyarrow as pa
    from pyarrow import parquet

    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        file.seek(max(0, size - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or not 0 < length <= size - 12:
            raise ValueError("not a Parquet file")
        file.seek(size - 8 - length)
        footer = file.read(length)
    return parquet.read_metadata(pa.BufferReader(b"PAR1" + footer + tail))


def _arrow_header(path: Path) -> Any:
    """The schema at the beginning of an Arrow file."""
    import pyarrow as pa

    with path.open("rb", buffering=0) as file:
        start = file.read(16)
        length = int.from_bytes(start[12:16], "little")
        if start[:6] != b"ARROW1" or start[8:12] != b"\xff" * 4 or not 0 < length <= _LONGEST_HEADER:
            raise ValueError("not an Arrow file")
        message = file.read(length)
    return pa.ipc.read_schema(pa.py_buffer(start[8:] + message))


def _type_name(kind: Any) -> str | None:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


# ---------------------------------------------------------------------------------------------------------- rows


def _parquet_batches(file: TableFile, columns: list[str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(file.path) as source:
        for batch in source.iter_batches(_BATCH, columns=columns):
            yield pa.table(batch).select(columns)


def _arrow_batches(file: TableFile, columns: list[str]) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(str(file.path)) as source:
        reader = pa.ipc.open_file(source)
        for i in range(reader.num_record_batches):
            yield pa.table(reader.get_batch(i)).select(columns)


def _csv_batches(file: TableFile, columns: list[str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = file.names()
    lines, rows = _count_lines(file, len(names))
    broken: list[tuple[int | None, int]] = []

    def notice(row: Any) -> str:
        broken.append((row.number, row.actual_columns))
        return "skip"

    reader = arrow_csv.open_csv(
        pa.input_stream(str(file.path), compression="gzip" if _zipped(file.path) else None),
        read_options=arrow_csv.ReadOptions(
            use_threads=False, column_names=names, skip_rows=0 if file.given is not None else 1
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=file.delimiter, invalid_row_handler=notice, ignore_empty_lines=False, newlines_in_values=False
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
        ),
    )
    read = 0
    for batch in reader:
        # Lines that are empty, at the end of the file only, are not rows.
        kept = min(batch.num_rows, rows - read)
        read += batch.num_rows
        if kept > 0:
            yield pa.table(batch.slice(0, kept)).select(columns)
    _check_lines(file, broken, len(names), lines, read)


def _count_lines(file: TableFile, columns: int) -> tuple[int, int]:
    """How many lines the file has, and how many of them are rows: neither the header nor empty ones at the end.

    In a file of one column an empty line is a row whose value is empty.
    """
    lines = last = 0
    with _opened(file.path) as source:
        for lines, line in enumerate(source, start=1):
            # A reader that takes it for the end of a line would count rows that are not there.
            if b"\r" in line.rstrip(b"\r\n"):
                raise InvalidInput(f"{file.path.name}, line {lines} holds a carriage return; take it out")
            if not _is_text(line):
                raise InvalidInput(f"{file.path.name}, line {lines} is not UTF-8 text; convert the file first")
            if columns > 1 and not line.strip(b"\r\n"):
                continue
            if lines > last + 1:
                raise InvalidInput(f"{file.path.name}, line {last + 1} is empty; take it out")
            last = lines
    return lines, last - (file.given is None)


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:  # which holds the line
        return False
    return True


def _check_lines(file: TableFile, broken: list[tuple[int | None, int]], width: int, lines: int, read: int) -> None:
    if broken:
        number, actual = broken[0]
        line = "" if number is None else f", line {number}"
        raise InvalidInput(f"{file.path.name}{line}: {actual} fields where there are {width} columns; mend it first")
    # A stray quotation mark would join lines, and one record could swallow all that follow it.
    if read != lines - (file.given is None):
        raise InvalidInput(
            f"{file.path.name} has {lines} lines but {read} rows: a quotation mark is not closed, or a field holds a "
            "line break; mend the file first"
        )


def _fault(file: TableFile, error: Exception) -> str:
    text, name = str(error).lower(), file.path.name
    if "utf" in text or isinstance(error, UnicodeError):
        return f"{name} is not UTF-8 text; convert it first"
    if isinstance(error, PermissionError):
        return f"{name} cannot be read: permission denied"
    if file.format == "libsvm":
        return (
            f"{name} cannot be read as libsvm: each line is a target, then number:value with numbers that rise and "
            "stay within the count that the schema states"
        )
    return f"{name} cannot be read as {file.format}: it is damaged or of another kind"
