"""One column out of a CSV, Parquet or Arrow file. Errors name the file, the column and the row, never a value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epsilearn.errors import InvalidInput

__all__ = ["read_column"]


def read_column(path: str | Path, column: str) -> Any:
    """The named column as an Arrow column, after every row of the file has been checked."""
    import pyarrow as pa

    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    reader = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".csv.gz": _read_csv,
        ".tsv.gz": _read_csv,
        ".parquet": _read_parquet,
        ".arrow": _read_arrow,
        ".feather": _read_arrow,
    }.get(kind.lower())
    if reader is None:
        raise InvalidInput(f"{path.name}: unknown kind of file; expected .csv, .tsv, .parquet, .arrow or .feather")
    try:
        table = reader(path, column)
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
        # Arrow's own text quotes the offending value or row: it must not be shown, nor chained.
        raise InvalidInput(_explanation(path, error)) from None
    if column not in table.column_names:
        raise InvalidInput(f"{path.name} has no column {column!r}; it has: {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise InvalidInput(f"{path.name} has no rows; there must be at least one")
    return table[column]


def _read_csv(path: Path, _column: str) -> Any:
    from pyarrow import csv

    broken: list[tuple[int | None, int, int]] = []

    def notice(row: Any) -> str:
        broken.append((row.number, row.expected_columns, row.actual_columns))
        return "skip"

    separator = "\t" if ".tsv" in path.suffixes else ","
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False),
        parse_options=csv.ParseOptions(delimiter=separator, invalid_row_handler=notice),
    )
    if broken:
        number, expected, actual = broken[0]
        raise InvalidInput(
            f"{path.name}, line {number}: {actual} fields where the header has {expected}; mend the file and try again"
        )
    return table


def _read_parquet(path: Path, column: str) -> Any:
    from pyarrow import parquet

    names = parquet.read_schema(path).names
    if column not in names:
        raise InvalidInput(f"{path.name} has no column {column!r}; it has: {', '.join(names)}")
    return parquet.read_table(path, columns=[column])


def _read_arrow(path: Path, _column: str) -> Any:
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _explanation(path: Path, error: Exception) -> str:
    text = str(error).lower()
    if "conversion error" in text or "utf8" in text:
        return f"{path.name}: a column changes its type or encoding part of the way; every column must be of one type"
    if "empty csv" in text:
        return f"{path.name} is empty; expected a header and at least one row"
    if isinstance(error, PermissionError):
        return f"{path.name} cannot be read: permission denied"
    return f"{path.name} cannot be read as {path.suffix or 'a table'}: it is damaged or of another kind"
