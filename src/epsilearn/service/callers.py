"""Who is let in: whose key it is, whether it is for this, how often it has called, and how much of it is in hand."""

from __future__ import annotations

from epsilearn.errors import EpsilearnError
from epsilearn.service.keys import Caller, Keys, UnknownKey, is_key, unknown_key
from epsilearn.service.limits import Buckets, Places

__all__ = ["Callers", "Forbidden", "TooOften"]


class Forbidden(EpsilearnError):
    """The key is good, and not for this."""


class TooOften(EpsilearnError):
    """More calls than a key may make."""

    def __init__(self, wait: float, caller: Caller | None = None) -> None:
        super().__init__(f"too many calls with this key or from this address; wait {max(1, round(wait))} seconds")
        self.wait, self.caller = wait, caller


class Callers:
    """Lets callers in, each process by itself: together they let in no more than the whole.

    Parameters
    ----------
    keys : Keys
    per_minute : float
        How many calls a key may make in this process; an address with wrong keys a tenth of that, and as many of what
        needs no key. /healthz has ten times that for itself: whoever watches must not be kept out by whoever looks.
    at_once : int
        How many calls of a key may be in hand in this process.
    """

    def __init__(self, keys: Keys, per_minute: float, at_once: int) -> None:
        self._keys, self._places = keys, Places(at_once)
        self._calls, self._wrong = Buckets(per_minute), Buckets(max(1.0, per_minute / 10))
        self._open, self._health = Buckets(per_minute), Buckets(10 * per_minute)

    def check_address(self, path: str, address: str) -> None:
        """Refuse an address that asks too often for what needs no key."""
        wait = (self._health if path == "/healthz" else self._open).take(address)
        if wait > 0:
            raise TooOften(wait)

    def check_form(self, authorization: str, address: str) -> None:
        """Refuse what is no key at all, at once and without the database."""
        if not is_key(_key_in(authorization)):
            raise self._refusal(address)

    def admit(self, authorization: str, address: str) -> Caller:
        """Whose call it is, by the header and the address it came with; it is in hand until `leave`."""
        try:
            caller = self._keys.check(_key_in(authorization))
        except UnknownKey:
            raise self._refusal(address) from None
        if (wait := self._calls.take(caller.key)) > 0:
            raise TooOften(wait, caller)
        if not self._places.enter(caller.key):
            raise TooOften(1.0, caller)
        return caller

    def _refusal(self, address: str) -> EpsilearnError:
        wait = self._wrong.take(address)
        return TooOften(wait) if wait > 0 else unknown_key()

    def leave(self, caller: Caller) -> None:
        """A call that was admitted has ended."""
        self._places.leave(caller.key)


def _key_in(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    return key if scheme.lower() == "bearer" else ""
