"""One column out of a CSV, Parquet or Arrow file. Errors name the file, the column and the row, never a value."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import IO, Any

from epsilearn.errors import InvalidInput

__all__ = ["read_column"]


def read_column(path: str | Path, column: str, *, as_text: bool = False) -> Any:
    """The named column as an Arrow column, after every row of the file has been checked.

    A CSV file has no types. They are not guessed from the values, which would let one record change how all the
    others are read: the column is read as numbers, or as text if so asked.
    """
    import pyarrow as pa

    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    kinds = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    kind = kinds[-1] if kinds else ""
    if kind not in (".csv", ".tsv", ".parquet", ".arrow", ".feather"):
        raise InvalidInput(f"{path.name}: unknown kind of file; expected .csv, .tsv, .parquet, .arrow or .feather")
    try:
        if kind in (".csv", ".tsv"):
            table = _read_csv(path, column, "\t" if kind == ".tsv" else ",", as_text)
        else:
            table = _read_parquet(path, column) if kind == ".parquet" else _read_arrow(path, column)
    except (pa.ArrowException, csv.Error, OSError, EOFError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        # Arrow's own text quotes the offending value or row: it must not be shown, nor chained.
        raise InvalidInput(_explanation(path, column, error)) from None
    if table.num_rows == 0:
        raise InvalidInput(f"{path.name} has no rows; there must be at least one")
    return table[column]


def _check_name(path: Path, column: str, names: list[str]) -> None:
    if names.count(column) > 1:
        raise InvalidInput(f"{path.name} has {names.count(column)} columns called {column!r}; names must differ")
    if column not in names:
        # The names are not listed: in a file without a header the first line is somebody's record.
        raise InvalidInput(
            f"{path.name} has no column {column!r} among its {len(names)}; the first line must name them"
        )


def _read_csv(path: Path, column: str, delimiter: str, as_text: bool) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with _opened(path) as file:
        first = file.readline().decode("utf-8-sig")
        lines = 1 + sum(1 for _ in file)
    header = next(csv.reader([first], delimiter=delimiter, strict=True), None)
    if not header:
        raise InvalidInput(f"{path.name} is empty; expected a header and at least one row")
    _check_name(path, column, header)
    broken: list[tuple[int | None, int]] = []

    def notice(row: Any) -> str:
        broken.append((row.number, row.actual_columns))
        return "skip"

    table = arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(use_threads=False),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=notice, ignore_empty_lines=False, newlines_in_values=False
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=[column],
            column_types={column: pa.string() if as_text else pa.float64()},
            strings_can_be_null=False,
        ),
    )
    if broken:
        number, actual = broken[0]
        raise InvalidInput(
            f"{path.name}, line {number}: {actual} fields where the header has {len(header)}; mend the file first"
        )
    # A stray quotation mark would join lines, and one record could swallow all that follow it.
    if table.num_rows != lines - 1:
        raise InvalidInput(
            f"{path.name} has {lines} lines but {table.num_rows} rows under its header: a quotation mark is not "
            "closed, or a field holds a line break; mend the file first"
        )
    return table


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read_parquet(path: Path, column: str) -> Any:
    from pyarrow import parquet

    _check_name(path, column, parquet.read_schema(path).names)
    return parquet.read_table(path, columns=[column])


def _read_arrow(path: Path, column: str) -> Any:
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        _check_name(path, column, reader.schema.names)
        return reader.read_all().select([column])


def _explanation(path: Path, column: str, error: Exception) -> str:
    text = str(error).lower()
    if "conversion error" in text:
        return f"{path.name}: column {column!r} holds something that is not a number"
    if "utf" in text or isinstance(error, UnicodeError):
        return f"{path.name} is not UTF-8 text; convert it first"
    if isinstance(error, PermissionError):
        return f"{path.name} cannot be read: permission denied"
    return f"{path.name} cannot be read as {path.suffix}: it is damaged or of another kind"
