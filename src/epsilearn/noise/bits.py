"""Where randomness comes from.

`OperatingSystemBits` is the only source a release may use. It keeps no state that a copy could share:
the small buffer belongs to one thread of one process and is thrown away on fork, and pickling or copying
the object yields another handle to the same operating system. `SeededBits` repeats itself on purpose;
whatever it touches carries no promise.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epsilearn.errors import EntropyError, InvalidInput
from epsilearn.forks import process_mark

__all__ = ["BitSource", "OperatingSystemBits", "SeededBits", "source_of"]

_BUFFER_WORDS = 512


class BitSource(Protocol):
    """Independent fair bits, and whether they could be predicted."""

    seeded: bool

    def integer(self, bits: int) -> int:
        """A uniform integer below ``2**bits``."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit words."""


class _Buffer(threading.local):
    def __init__(self) -> None:
        self.owner = process_mark()
        self.words: list[int] = []


_buffer = _Buffer()


def _forget_buffer() -> None:
    # The old list is emptied as well: a draw that a fork interrupted may hold it already.
    _buffer.words.clear()
    _buffer.words, _buffer.owner = [], process_mark()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_buffer)


def _operating_system(count: int) -> bytes:
    try:
        return os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise EntropyError("the operating system gave no random bits; nothing was released") from error


class OperatingSystemBits:
    """Bits from the operating system's cryptographic generator."""

    seeded = False

    def integer(self, bits: int) -> int:
        count = (bits + 63) // 64
        drawn = 0
        for _ in range(count):
            drawn = drawn << 64 | self._word()
        return drawn >> (64 * count - bits)

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(_operating_system(8 * count), dtype=np.uint64)

    def _word(self) -> int:
        while True:
            # A fork that bypasses Python's hooks is still noticed by its process number.
            if _buffer.owner != process_mark():
                _forget_buffer()
            # Which list is settled before it is filled: where a signal handler forks in between, the words that parent
            # and child both hold go into a list that the child has given up, and looks at no more.
            words = _buffer.words
            try:
                # Popping is one step: a signal handler that draws in between cannot be dealt the same word.
                return words.pop()
            except IndexError:
                words.extend(self.words(_BUFFER_WORDS).tolist())

    def __reduce__(self) -> tuple[type[OperatingSystemBits], tuple[()]]:
        return OperatingSystemBits, ()


class SeededBits:
    """Bits that repeat for the same seed. For studies and tests only; they void every promise."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def integer(self, bits: int) -> int:
        count = (bits + 7) // 8
        return int.from_bytes(self._generator.bytes(count), "little") >> (8 * count - bits)

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._generator.bytes(8 * count), dtype=np.uint64)


def source_of(random_state: int | BitSource | None) -> BitSource:
    """The bit source meant by ``random_state``: the operating system for None, otherwise a seeded one."""
    if random_state is None:
        return OperatingSystemBits()
    if isinstance(random_state, bool):
        raise InvalidInput("random_state must be None or an integer, not a bool")
    if isinstance(random_state, (int, np.integer)):
        if random_state < 0:
            raise InvalidInput(f"random_state must not be negative, got {random_state}")
        return SeededBits(int(random_state))
    if isinstance(random_state, np.random.RandomState):
        return SeededBits(int(random_state.randint(2**31)))
    if type(random_state) in (OperatingSystemBits, SeededBits):
        return random_state
    raise InvalidInput(f"random_state must be None or an integer, got {type(random_state).__name__}")
