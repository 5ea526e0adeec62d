"""Leaks that this library had: what one record did to the numbers, to other records, to errors and warnings."""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from epsilearn.audit.cases.fault import Fault
from epsilearn.errors import InvalidInput
from epsilearn.mechanisms import laplace

__all__ = ["FAULTS"]


def _clip(value: float) -> float:
    return min(max(value, -1.0), 1.0)


def _noisy_sum(values: Any, sensitivity: float = 2.0) -> Any:
    return laplace(math.fsum(values), sensitivity=sensitivity, epsilon=1.0)


def _scaled(values: Sequence[float], *, bound: float | None) -> dict[str, Any]:
    """A pipeline: a scaler that learns its bound, or is told it, and a sum."""
    scale = bound or max(abs(value) for value in values)
    return {"scale": scale, "release": _noisy_sum(_clip(value / scale) for value in values)}


def _landmarks(values: Sequence[float], *, landmarks: Sequence[float] | None) -> dict[str, Any]:
    """Similarities to landmarks, which a model keeps for its predictions."""
    places = list(values if landmarks is None else landmarks)
    sums = [math.fsum(math.exp(-((value - place) ** 2)) for value in values) for place in places]
    return {"landmarks": places, "release": laplace(sums, sensitivity=float(len(places)), epsilon=1.0)}


def _in_a_thread(values: Sequence[float], *, silent: bool) -> Any:
    """Losses computed by a worker, which does not know that its caller wants no warnings."""

    def work(array: Any) -> Any:
        with np.errstate(all="ignore") if silent else np.errstate():
            return np.exp(array)

    with np.errstate(all="ignore"), ThreadPoolExecutor(1) as pool:
        losses = pool.submit(work, np.array(values)).result()
    return _noisy_sum(np.minimum(losses, 1.0))


def _strict_arithmetic(values: Sequence[float], *, silent: bool) -> Any:
    """Kernel values in a process that has asked numpy to raise."""
    with np.errstate(all="raise"), np.errstate(all="ignore") if silent else np.errstate():
        similar = np.exp(-np.square(np.array(values)))
    return _noisy_sum(similar)


def _own_kernel(values: Sequence[int], *, total: bool) -> Any:
    """A kernel that somebody wrote as a table, with a pair missing."""
    kernel = {(0, 0): 1.0, (0, 1): 0.5, (0, 2): 0.1}
    return _noisy_sum(kernel.get((0, value), 0.0) if total else kernel[0, value] for value in values)


def _after_the_sum(values: Sequence[float], *, first: bool) -> Any:
    """Clipping by taking away what is too much, from a running sum of doubles."""
    if first:
        return _noisy_sum(map(_clip, values))
    total = 0.0
    for value in values:
        total += value
    for value in values:
        total -= value - _clip(value)
    return _noisy_sum([total])


def _longest_row(values: Sequence[float], *, bound: float | None) -> Any:
    """Noise for the longest row that there is."""
    return _noisy_sum(values if bound is None else map(_clip, values), bound or 2 * max(abs(v) for v in values))


def _common_factor(values: Sequence[float], *, of_each: bool) -> Any:
    """Rows brought inside a bound, each by a factor of its own, or all by one."""
    factor = 1 / max(1.0, *(abs(value) for value in values))
    return _noisy_sum(map(_clip, values) if of_each else [value * factor for value in values])


def _repeated_entries(rows: Sequence[Sequence[float]], *, summed: bool) -> Any:
    """Sparse rows whose entries may stand in one place, and then count as their sum."""
    return _noisy_sum(_clip(math.fsum(row)) if summed else math.fsum(map(_clip, row)) for row in rows)


def _read_together(cells: Sequence[str], *, one_by_one: bool) -> Any:
    """A column that is numbers if all its cells are, and otherwise text, which counts as missing."""
    numbers = [_number(cell) for cell in cells]
    if not one_by_one and None in numbers:
        numbers = [None for _ in numbers]
    return _noisy_sum(_clip(number or 0.0) for number in numbers)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _read_lines(text: str, *, line_by_line: bool) -> Any:
    """A file of one column; an open quotation mark goes on over the ends of lines."""
    lines = text.split("\n")
    # Every record is a line by itself, or the reader is left to find where they end.
    records = [next(csv.reader([line])) for line in lines] if line_by_line else list(csv.reader(io.StringIO(text)))
    return _noisy_sum(_clip(_number(record[0]) or 0.0) for record in records)


def _unknown_label(labels: Sequence[str], *, inside: bool) -> Any:
    """An error for a label that was not declared: its text says nothing, and what it was raised from all."""
    numbers = {"a": 0.0, "b": 1.0}
    try:
        known = [numbers[label] for label in labels]
    except KeyError:
        if inside:
            raise InvalidInput("a label was not declared") from None
        known = []
    if not known:
        raise InvalidInput("a label was not declared")
    return _noisy_sum(known)


def _quoted(values: Sequence[float], *, quote: bool) -> Any:
    """A word of advice about large values, with the value in it."""
    if quote:
        warnings.warn(f"values up to {max(values)} are clipped to 1", stacklevel=2)
    return _noisy_sum(map(_clip, values))


def _carries_rows(values: Sequence[float], *, carry: bool) -> dict[str, Any]:
    """A plan that says how it was made, by a function that still holds the rows."""
    rows, count = list(values), len(values)
    plan = (lambda: len(rows)) if carry else (lambda: count)
    return {"plan": plan, "release": _noisy_sum(map(_clip, values))}


def _own(name: str, wrong: str, test: str, function: Any, word: str, values: tuple[Any, Any], *tables: Any) -> Fault:
    """A fault of one function that does the wrong thing or the right one, as a word says."""
    first, *others = [table if isinstance(table, tuple) else (table,) for table in tables]
    faulty, corrected = (partial(function, **{word: value}) for value in values)
    return Fault(name, wrong, test, faulty, corrected, first, tuple(others))


FAULTS = (
    _own(
        "a step that learns", "A grid could put a scaler into a private pipeline that learned its scale from the rows.",
        "tests/test_selection.py", _scaled, "bound", (None, 1.0), [0.5, 0.0], [0.5, 1.9],
    ),
    _own(
        "landmarks of the table", "The private rows could be given as public landmarks, which a model carries with it.",
        "tests/test_identity.py", _landmarks, "landmarks", (None, [0.0, 1.0]), [0.5, 0.0], [0.5, 0.7],
    ),
    _own(
        "a warning in a thread", "Worker threads did not keep arithmetic silent: a record could make one warn.",
        "tests/test_totality.py", _in_a_thread, "silent", (False, True), [0.0, 0.5], [0.0, 1e4],
    ),
    _own(
        "arithmetic that raises", "Under numpy.seterr a far record ended a question in an error, free of charge.",
        "tests/test_totality.py", _strict_arithmetic, "silent", (False, True), [0.0, 0.5], [0.0, 40.0],
    ),
    _own(
        "a kernel that raises", "Somebody's own kernel was free to fail on one record.",
        "tests/kernel/test_user_kernels.py", _own_kernel, "total", (False, True), [0, 1], [0, 3],
    ),
    _own(
        "a giant in a sum", "A giant record changed what the others added to a running sum of doubles.",
        "tests/rows/test_neighbours.py", _after_the_sum, "first", (False, True), [0.5] * 20, [1e17] + [0.5] * 19,
    ),
    _own(
        "the longest row", "Noise was planned for the longest sparse row that there was.",
        "tests/rows/test_neighbours.py", _longest_row, "bound", (None, 2.0), [0.5, 1.0], [0.5, 7.0],
    ),
    _own(
        "a common factor", "One record's length moved the clipping of every other row.",
        "tests/rows/test_neighbours.py", _common_factor, "of_each", (False, True), [0.5] * 20, [100.0] + [0.5] * 19,
    ),
    _own(
        "entries in one place", "Entries in one place of a sparse row were clipped one by one, then added up.",
        "tests/kernel/test_leaks.py", _repeated_entries, "summed", (False, True), [[0.5], [0.0]], [[0.5], [1.0] * 9],
    ),
    _own(
        "a column's type", "One record decided how a whole column was read.",
        "tests/test_statistics.py", _read_together, "one_by_one", (False, True), ["1.0"] * 9, ["1.0"] * 8 + ["?"],
    ),
    _own(
        "an open quotation mark", "A record with an open quotation mark swallowed those after it.",
        "tests/test_files.py", _read_lines, "line_by_line", (False, True),
        "1.0\n0.0\n1.0\n1.0\n1.0\n1.0", '1.0\n"0\n1.0\n1.0\n1.0\n1.0',
    ),
    _own(
        "an error behind an error", "An error that quoted nothing carried the one it was raised from, and its value.",
        "tests/test_statistics.py", _unknown_label, "inside", (True, False), ["a", "zoe"], ["a", "kim"],
    ),
    _own(
        "advice with a value", "A warning that another library had put together was passed on, with values in it.",
        "tests/linear/test_manners.py", _quoted, "quote", (True, False), [0.5, 3.0], [0.5, 40.0],
    ),
    _own(
        "a plan with rows", "What described a fit held the rows it was made from.",
        "tests/linear/test_manners.py", _carries_rows, "carry", (True, False), [0.5, 0.2], [0.5, 0.9],
    ),
)  # fmt: skip
