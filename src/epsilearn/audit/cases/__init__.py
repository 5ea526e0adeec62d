"""Faults that audits are examined on: public reports of other libraries, and every leak that this one had."""

from __future__ import annotations

from epsilearn.audit.cases import diffprivlib, own_sessions, own_tables, peers
from epsilearn.audit.cases.fault import Fault, Unread

__all__ = ["FAULTS", "UNREAD", "Fault", "Unread"]

_GROUPS = ("public", "further", "own")

FAULTS: tuple[Fault, ...] = tuple(
    sorted(
        (*diffprivlib.FAULTS, *peers.FAULTS, *own_tables.FAULTS, *own_sessions.FAULTS),
        key=lambda fault: _GROUPS.index(fault.group),
    )
)
UNREAD: tuple[Unread, ...] = peers.UNREAD
