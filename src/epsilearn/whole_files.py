"""Files and folders that are there whole or not at all, their place made sure of before anything is spent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from epsilearn.errors import InvalidInput

__all__ = ["whole_file", "whole_folder"]


@contextmanager
def whole_file(path: Path) -> Iterator[Callable[[str | bytes], None]]:
    """Yield what to call with the file's content; until then only a hidden file beside it holds the place."""
    partial = _beside(path)
    with _place(path):
        if path.is_dir():
            raise InvalidInput(f"cannot write {path}: it is a folder")
        partial.touch()

    def write(content: str | bytes) -> None:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        _to_disk(partial)
        partial.replace(path)

    try:
        yield write
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield a hidden folder to fill, and what to call when it is full: it then gets its name, with all that is in it.

    The folder must not be there yet. Left without that call, by an error or an interruption, nothing remains.
    """
    partial = _beside(path)
    with _place(path):
        if os.path.lexists(path):
            raise InvalidInput(f"{path} is there already; choose another folder, or take it away first")
        partial.mkdir()

    def finish() -> None:
        for file in sorted(partial.iterdir()):
            _to_disk(file)
        _to_disk(partial)
        # A folder that appeared meanwhile is not overwritten: renaming refuses one that holds anything.
        partial.rename(path)
        _to_disk(path.absolute().parent)

    try:
        yield partial, finish
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _place(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:  # a name may hold what no name can
        raise InvalidInput(f"cannot write {path}: {getattr(error, 'strerror', None) or 'no such name'}") from None


def _beside(path: Path) -> Path:
    place = path.absolute()
    return place.with_name(f".{place.name}.{os.getpid()}.partial")


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
