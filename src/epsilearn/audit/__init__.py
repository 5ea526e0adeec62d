"""Audits: neighbours in, many refits, a lower bound on epsilon out.

A proof says that epsilon is at most so much; an audit says that it is at least so much. Where the two contradict each
other, the proof, the code or the description of the data is wrong. What an audit finds is computed from its data
without any noise: run it on made-up data. See ``docs/audit.md``.
"""

from __future__ import annotations

from epsilearn.audit.bits import audit_bits
from epsilearn.audit.counts import clopper_pearson, epsilon_bound, gaussian_bound
from epsilearn.audit.finding import Claim, Finding
from epsilearn.audit.hostile import hostile_neighbours
from epsilearn.audit.membership import Membership, membership_attack
from epsilearn.audit.replay import Difference, Replay, replay
from epsilearn.audit.trials import audit, judge

__all__ = [
    "Claim",
    "Difference",
    "Finding",
    "Membership",
    "Replay",
    "audit",
    "audit_bits",
    "clopper_pearson",
    "epsilon_bound",
    "gaussian_bound",
    "hostile_neighbours",
    "judge",
    "membership_attack",
    "replay",
]
