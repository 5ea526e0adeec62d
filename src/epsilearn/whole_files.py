"""Files and folders that are there whole or not at all, their place made sure of before anything is spent.

What is being written lies hidden beside its place, under a name that is nobody else's: a file's cannot be guessed, a
folder's is held by a lock, so that two fits into one folder do not both pay. The next clears what a killed one left.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from epsilearn.errors import InvalidInput

try:
    import fcntl
except ModuleNotFoundError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

__all__ = ["whole_file", "whole_folder"]


@contextmanager
def whole_file(path: Path) -> Iterator[Callable[[str | bytes], None]]:
    """Yield what to call with the file's content; until then only a hidden file beside it holds the place."""
    with _placing(path):
        partial = _hidden(path, secrets.token_hex(8))
        if path.is_dir():
            raise InvalidInput(f"cannot write {path}: it is a folder")
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

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

    The folder must not be there yet, and nobody else may be filling one for this place. Left without that call, by an
    error or an interruption, nothing remains.
    """
    named, lock = False, -1
    with _placing(path):
        partial = _hidden(path, "new")
        try:
            lock = _locked(path, partial)
            _empty(partial)
        except KeyboardInterrupt:
            # It may have come at any moment since the folder was made.
            if lock >= 0:
                os.close(lock)
            _give_back(partial)
            raise

    def finish() -> None:
        nonlocal named
        for file in sorted(partial.iterdir()):
            _to_disk(file)
        _to_disk(partial)
        # A folder that appeared meanwhile is not overwritten: renaming refuses one that holds anything.
        partial.rename(path)
        named = True
        _to_disk(path.absolute().parent)

    try:
        yield partial, finish
    finally:
        if not named:  # otherwise the hidden name is somebody else's by now
            shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


@contextmanager
def _placing(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:  # a name may hold what no name can
        raise InvalidInput(f"cannot write {path}: {getattr(error, 'strerror', None) or 'no such name'}") from None


def _locked(path: Path, partial: Path) -> int:
    """A handle to the hidden folder, which is ours alone until it is closed."""
    while True:
        if os.path.lexists(path):
            raise InvalidInput(f"{path} is there already; choose another folder, or take it away first")
        partial.mkdir(exist_ok=True)
        handle = os.open(partial, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0))
        try:
            _lock(handle, path)
            # Whoever had it before may have given it its name, or taken it away.
            if _same(handle, partial) and not os.path.lexists(path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _give_back(partial: Path) -> None:
    """Take away a hidden folder that holds nothing, unless somebody else has it."""
    with suppress(OSError, InvalidInput):
        handle = os.open(partial, os.O_RDONLY)
        try:
            _lock(handle, partial)
            partial.rmdir()
        finally:
            os.close(handle)


def _lock(handle: int, path: Path) -> None:
    if hasattr(os, "geteuid") and os.fstat(handle).st_uid != os.geteuid():
        raise InvalidInput(f"cannot write {path}: somebody else has taken its place; choose another folder")
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInput(f"another process is writing {path}; wait for it, or choose another folder") from None


def _same(handle: int, partial: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), partial.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _empty(folder: Path) -> None:
    """Clear what a process that was killed has left."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _hidden(path: Path, mark: str) -> Path:
    place = path.absolute()
    return place.with_name(f".{place.name}.{mark}.partial")


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
