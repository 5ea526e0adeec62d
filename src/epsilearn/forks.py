"""Forks: a mark of the running process that no child of it shares, nor any process elsewhere.

A process number is not enough. A child in a PID namespace of its own can have its parent's number, and numbers are
used again. So forks are counted too; a fork by C code, which Python does not hear of, is left to the number.
"""

from __future__ import annotations

import os
import secrets

__all__ = ["process_mark"]

_birth, _forks = secrets.token_hex(8), 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def process_mark() -> tuple[str, int, int]:
    """What tells this process from all others: its start, its number, and the forks since then.

    Examples
    --------
    >>> process_mark() == process_mark()
    True
    """
    return _birth, os.getpid(), _forks
