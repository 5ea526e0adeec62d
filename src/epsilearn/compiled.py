"""Compiled functions: machine code kept on disk where that is possible, made anew where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled"]


def compiled(function: Callable[..., Any] | None = None, *, inline: Any = "never") -> Any:
    """Compile without fast-math, releasing the interpreter's lock; cached on disk if there is a place for it."""
    if function is None:
        return lambda later: compiled(later, inline=inline)
    try:
        return njit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:  # numba found no folder it may write to
        return njit(nogil=True, inline=inline)(function)
