"""Who is let in: whose key it is, whether it is for this, and how often it has called."""

from __future__ import annotations

from epsilearn.errors import EpsilearnError
from epsilearn.service.keys import Caller, Keys, UnknownKey
from epsilearn.service.limits import Buckets

__all__ = ["Callers", "Forbidden", "TooOften"]


class Forbidden(EpsilearnError):
    """The key is good, and not for this."""


class TooOften(EpsilearnError):
    """More calls than a key may make."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"too many calls with this key or from this address; wait {max(1, round(wait))} seconds")
        self.wait = wait


class Callers:
    """Lets callers in, each process by itself: together they let in no more than the whole.

    Parameters
    ----------
    keys : Keys
    per_minute : float
        How many calls a key may make in this process; an address with wrong keys a tenth of that.
    """

    def __init__(self, keys: Keys, per_minute: float) -> None:
        self._keys = keys
        self._calls, self._wrong = Buckets(per_minute), Buckets(max(1.0, per_minute / 10))

    def admit(self, authorization: str, address: str) -> Caller:
        """Whose call it is, by the header and the address it came with."""
        scheme, _, key = authorization.partition(" ")
        try:
            caller = self._keys.check(key if scheme.lower() == "bearer" else "")
        except UnknownKey:
            if (wait := self._wrong.take(address)) > 0:
                raise TooOften(wait) from None
            raise
        if (wait := self._calls.take(caller.key)) > 0:
            raise TooOften(wait)
        return caller
