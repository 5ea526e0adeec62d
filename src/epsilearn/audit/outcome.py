"""Outcomes: everything that a run shows, taken apart into named pieces that two runs can be compared by.

What came back (attribute by attribute), the exception, warnings, log lines, what was printed, and the files that were
written. Two runs whose random answers were the same must show the same, whatever the records were.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["observed"]

_DEEPEST = 12
# Where Python and numba keep what they compiled when a module was first used.
_CACHES = "__pycache__"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def observed(run: Callable[[], Any], session: type) -> dict[str, str]:
    """Run something, and tell what it showed: a text for each piece, by the piece's name.

    Parameters
    ----------
    run : callable
        What to run.
    session : type
        That of live sessions, which hold private values by their nature: their public face alone is told.
    """
    shown: dict[str, str] = {}
    printed, complained = io.StringIO(), io.StringIO()
    with (
        _files() as files,
        _log() as lines,
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        warnings.simplefilter("always")
        try:
            result = run()
        except Exception as error:
            shown.update(_errors(error))
            result = None
    shown.update(_Pieces(session).of("result", result))
    shown.update(
        {f"warning {n}": f"{one.category.__name__}: {one.message} ({_place(one)})" for n, one in enumerate(warned)}
    )
    shown.update({f"log line {number}": line for number, line in enumerate(lines)})
    shown.update({"printed": printed.getvalue(), "printed to stderr": complained.getvalue()})
    for number, path in enumerate(files):
        shown[f"file {number}"] = f"{path.suffix} {_digest(path)}"
    return shown


def _errors(error: BaseException | None) -> dict[str, str]:
    """An exception and those behind it: what was suppressed is not printed, but whoever catches the error has it."""
    told: dict[str, str] = {}
    while error is not None and len(told) < _DEEPEST:
        told["exception" + f" behind {len(told)}" * bool(told)] = f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__
    return told


def _place(warning: warnings.WarningMessage) -> str:
    return f"{Path(warning.filename).name}:{warning.lineno}"


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"


@contextmanager
def _log() -> Iterator[list[str]]:
    """Every log record that is made, whatever level its logger has."""
    lines: list[str] = []
    usual = logging.getLogRecordFactory()

    def factory(*arguments: Any, **words: Any) -> logging.LogRecord:
        record = usual(*arguments, **words)
        lines.append(f"{record.name} {record.levelname}: {record.getMessage()}")
        return record

    logging.setLogRecordFactory(factory)
    try:
        yield lines
    finally:
        logging.setLogRecordFactory(usual)


class _Watch(threading.local):
    """The files that this thread has opened for writing, or given their name, since somebody asked."""

    paths: dict[Path, None] | None = None


_watch = _Watch()


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    paths = _watch.paths
    if paths is None or event not in ("open", "os.rename", "os.link", "sqlite3.connect"):
        return
    with contextlib.suppress(TypeError, ValueError):
        if event == "open":
            name, mode, flags = arguments
            writes = set(mode) & set("wax+") if isinstance(mode, str) else isinstance(flags, int) and flags & _WRITING
            if not writes or isinstance(name, int):
                return
        else:
            name = arguments[0 if event == "sqlite3.connect" else 1]
        path = Path(os.fsdecode(name))
        if _CACHES not in path.parts and path.parts[:2] not in (("/", "dev"), ("/", "proc")):
            paths[path] = None


@functools.cache
def _hooked() -> None:
    # There is no way to take such a hook out again; without a watch it does nothing.
    sys.addaudithook(_on_event)


@contextmanager
def _files() -> Iterator[dict[Path, None]]:
    _hooked()
    before, _watch.paths = _watch.paths, {}
    try:
        yield _watch.paths
    finally:
        _watch.paths = before


class _Pieces:
    """An object taken apart."""

    def __init__(self, session: type) -> None:
        self._session = session
        self._seen: dict[int, tuple[str, Any]] = {}
        self._found: dict[str, str] = {}

    def of(self, name: str, value: Any) -> dict[str, str]:
        """Each piece by its name."""
        self._take(name, value, 0)
        return self._found

    def _take(self, name: str, value: Any, depth: int) -> None:
        plain = _plain(value)
        if plain is not None:
            self._found[name] = plain
            return
        # Kept alive: another object at the same address would pass for this one.
        if id(value) in self._seen or depth > _DEEPEST:
            self._found[name] = f"as {self._seen[id(value)][0]}" if id(value) in self._seen else "too deep"
            return
        self._seen[id(value)] = name, value
        self._found[name] = f"{type(value).__module__}.{type(value).__qualname__}"
        for inner, part in self._inside(value):
            self._take(f"{name}{inner}", part, depth + 1)

    def _inside(self, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            yield from ((f"[{key!r}]", part) for key, part in value.items())
        elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
            yield from (
                (f"[{number}]", part) for number, part in enumerate(np.ravel(value) if _is_array(value) else value)
            )
        elif isinstance(value, set | frozenset):
            yield from ((f"{{{number}}}", part) for number, part in enumerate(sorted(value, key=repr)))
        elif isinstance(value, functools.partial):
            yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
        elif isinstance(value, types.MethodType):
            yield from ((".__self__", value.__self__), (".__func__", value.__func__))
        elif isinstance(value, types.FunctionType):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
                with contextlib.suppress(ValueError):
                    yield f".{name}", cell.cell_contents
        else:
            yield from self._attributes(value)

    def _attributes(self, value: Any) -> Iterator[tuple[str, Any]]:
        hidden = isinstance(value, self._session)
        names = dict.fromkeys(getattr(value, "__dict__", ()))
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
            if kind.__module__.partition(".")[0] == "epsilearn":
                # What a session has left is often computed when it is asked for.
                names |= dict.fromkeys(n for n, member in vars(kind).items() if isinstance(member, property))
        for name in names:
            if hidden and name.startswith("_"):
                continue
            with contextlib.suppress(Exception):
                yield f".{name}", getattr(value, name)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _plain(value: Any) -> str | None:
    """A text for what has no parts, or None."""
    if value is None or isinstance(value, bool | int | str | bytes | type | types.ModuleType | complex):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, float):
        return f"float {value.hex()}"
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype != object):
        array = np.ascontiguousarray(value)
        return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    return None
