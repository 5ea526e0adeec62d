"""Of many cases the worst: searched for, and then audited with fresh runs, or computed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from epsilearn.audit.events import Prospect
from epsilearn.audit.exact import COARSER, ExactFinding, Laws, exact_laws
from epsilearn.audit.finding import Claim, Finding
from epsilearn.audit.neighbours import Case, search, worst
from epsilearn.audit.trials import Progress, judge, promise_in
from epsilearn.errors import EpsilearnError, InvalidInput
from epsilearn.guarantee import Guarantee

__all__ = ["audit_worst", "exact_worst", "promise_of", "worst_releases"]

Array = NDArray[np.float64]

_SEARCH_SHARE = 100  # the first round of the search runs each case for one in so many of the trials
_LEAST_SEARCH = 24


def promise_of(cases: list[Case]) -> Guarantee:
    """What the first of these that runs at all promises; the settings are the same for all of them."""
    for case in cases[:-1]:
        try:
            return _promise(case)
        except EpsilearnError:  # a setting that it refuses
            continue
    return _promise(cases[-1])


def _promise(case: Case) -> Guarantee:
    promise: Guarantee = promise_in(case.runs.rehearse())
    return promise


def audit_worst(
    cases: list[Case],
    claim: Claim,
    *,
    trials: int = 5000,
    confidence: float = 0.999,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[Finding, Case]:
    """Search for the worst of these cases, and audit it with fresh runs.

    Parameters
    ----------
    cases : list of Case
        From `Subject.cases`, or your own.
    claim : Claim
        What to put to the test.
    trials, confidence, n_jobs, progress
        As for `audit`.

    Returns
    -------
    finding : Finding
    case : Case
        What it was found on.

    Examples
    --------
    >>> from epsilearn.audit import Claim
    >>> from epsilearn.audit.subjects import Options, subject
    >>> from epsilearn.audit.worst import audit_worst
    >>> cases = subject("laplace").cases(Options(epsilon=1.0))
    >>> finding, case = audit_worst(cases, Claim(1.0), trials=200, confidence=0.999999)
    >>> finding.refuted, case.words
    (False, '0.0 against 1.0, sensitivity 1')
    """
    first, second, case = worst_releases(cases, claim, trials, confidence, n_jobs, progress)
    return judge(first, second, claim, confidence), case


def worst_releases(
    cases: list[Case],
    claim: Claim,
    trials: int,
    confidence: float,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[Array, Array, Case]:
    """Fresh releases from both neighbours of the worst of these cases, and which it is."""
    told: Progress = progress or (lambda _share: None)
    share = 0.0 if len(cases) == 1 else 0.5
    case = cases[0]
    if len(cases) > 1:
        prospect = Prospect(trials - trials // 2, claim.delta, confidence, claim.gaussian)
        case = _worst(cases, prospect, max(_LEAST_SEARCH, trials // _SEARCH_SHARE), n_jobs, lambda x: told(share * x))
    runs = case.runs
    runs.rehearse()
    return *runs.collect(trials, n_jobs, lambda part: told(share + (1 - share) * part)), case


def _worst(cases: list[Case], prospect: Prospect, trials: int, n_jobs: int | None, progress: Progress) -> Case:
    """By the laws of what is released where they can be computed, and by running each case a few times elsewhere."""
    if _laws(cases[-1]) is None:
        return search(cases, prospect, trials=trials, n_jobs=n_jobs, progress=progress)
    return worst(cases, lambda case: _measured_by_laws(case, lambda laws: laws.ideal(prospect)), progress)[0]


def exact_worst(cases: list[Case], claim: Claim, progress: Progress | None = None) -> tuple[ExactFinding, Case]:
    """The largest epsilon that is true of one of these cases at the claimed delta, computed and not sampled.

    Examples
    --------
    >>> from epsilearn.audit import Claim
    >>> from epsilearn.audit.subjects import Options, subject
    >>> from epsilearn.audit.worst import exact_worst
    >>> cases = subject("svc").cases(Options(epsilon=1.0, alpha=100.0, rows=1))
    >>> finding, case = exact_worst(cases, Claim(1.0))
    >>> 0.9 < finding.real <= 1.0, finding.refuted
    (True, False)
    """
    if _laws(cases[-1]) is None:
        raise InvalidInput(
            "the exact laws are known for linear models with one or two weights, and for paths among few corners; "
            "ask for fewer columns, or leave --by exact out"
        )
    case, _ = worst(cases, lambda case: _measured_by_laws(case, lambda laws: laws.epsilon(claim.delta)), progress)
    laws = _laws(case)
    if laws is None:
        raise InvalidInput("none of these settings is one that the mechanism takes; choose others")
    coarser = [] if laws.points is None else [found for share in COARSER if (found := _laws(case, share)) is not None]
    return ExactFinding.of(claim, laws, coarser), case


def _laws(case: Case, fineness: float = 1.0) -> Laws | None:
    return exact_laws(case.mechanism, case.first, case.second, fineness)


def _measured_by_laws(case: Case, measure: Callable[[Laws], float]) -> float:
    """Of the laws of a case; a setting that the mechanism refuses measures nothing."""
    try:
        laws = _laws(case)
    except EpsilearnError:
        return -math.inf
    return -math.inf if laws is None else measure(laws)
