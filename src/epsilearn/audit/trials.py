"""Many releases on two neighbours, and what can be concluded from them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone

from epsilearn.audit.events import Prospect, choose
from epsilearn.audit.finding import Claim, Finding
from epsilearn.checks import check_integer, check_probability
from epsilearn.errors import InvalidInput
from epsilearn.fit_counts import uncounted

__all__ = [
    "LEAST_TRIALS",
    "CopiedNoise",
    "Runs",
    "as_releases",
    "audit",
    "check_jobs",
    "judge",
    "promise_in",
    "shown_numbers",
]

Array = NDArray[np.float64]
Progress = Callable[[float], None]

LEAST_TRIALS = 100
# Batches for each data set: enough to share out and to tell progress by, but each long enough to be worth a plan.
_MOST_BATCHES, _BATCH = 25, 40
_NO_ACCIDENT = 25.0  # what is less likely than e to minus this does not happen by itself


def audit(
    mechanism: Any,
    first: Any,
    second: Any,
    *,
    claimed_epsilon: float | None = None,
    delta: float | None = None,
    trials: int = 10_000,
    confidence: float = 0.999,
    statistic: Callable[[Any], Any] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Finding:
    """Run a mechanism many times on two neighbouring data sets, and bound its epsilon from below.

    Half of the runs choose an event that tells the two data sets apart; the other half counts how often it happens.
    The counts' Clopper-Pearson limits give the bound.

    Parameters
    ----------
    mechanism : callable or estimator
        A function of one data set that returns a number, a vector, a `Release` or a fitted estimator; or an estimator,
        a clone of which is fitted each time. It must draw fresh noise whenever it runs.
    first, second : object
        The two neighbours, as the mechanism takes them; for an estimator the tuples of what ``fit`` takes, ``(X, y)``.
    claimed_epsilon, delta : float, optional
        The claim to test. Read from the release's own guarantee if left out; a claimed epsilon alone means delta 0.
    trials : int
        How often to run on each data set.
    confidence : float
        How sure the bound is.
    statistic : callable, optional
        What to measure on what the mechanism returns: a number or a vector. By default the released value, or
        ``coef_`` and ``intercept_``.
    n_jobs : int, optional
        How many processes run it, as in scikit-learn: one if left out, -1 for one on each core.
    progress : callable, optional
        Called with the share of runs that is done.

    Returns
    -------
    Finding

    Examples
    --------
    A sensitivity of half the true one: epsilon 1 is promised, and 2 is true.

    >>> import epsilearn
    >>> from epsilearn.audit import audit
    >>> finding = audit(lambda x: epsilearn.laplace(x, sensitivity=1, epsilon=1.0), 0.0, 2.0, trials=2000)
    >>> finding.claimed_epsilon, finding.refuted
    (1.0, True)
    """
    trials = check_integer("trials", trials, least=LEAST_TRIALS)
    confidence = check_probability("confidence", confidence)
    runs = Runs(mechanism, first, second, statistic)
    claim = _claim(runs.rehearse(), claimed_epsilon, delta)
    return judge(*runs.collect(trials, n_jobs, progress), claim, confidence)


def judge(first: Any, second: Any, claim: Claim, confidence: float = 0.999) -> Finding:
    """Bound epsilon from below, from releases that are there already.

    Parameters
    ----------
    first, second : array of shape (trials,) or (trials, numbers)
        A release in each row, from either of two neighbours, independent of each other. The first half of the rows
        chooses the event and the second half judges it, so their order must not depend on what is in them.
    claim : Claim
        What to put to the test.
    confidence : float
        How sure the bound is.

    Returns
    -------
    Finding

    Examples
    --------
    >>> from epsilearn.audit import Claim, judge
    >>> generator = np.random.default_rng(0)
    >>> first, second = generator.laplace(0, 1, size=2000), generator.laplace(3, 1, size=2000)
    >>> judge(first, second, Claim(1.0)).refuted
    True
    """
    first, second = as_releases(first, second)
    trials = len(first)
    confidence = check_probability("confidence", confidence)
    half = trials // 2
    event, _ = choose(first[:half], second[:half], Prospect(trials - half, claim.delta, confidence, claim.gaussian))
    better, worse = (first, second) if event.favoured == "first" else (second, first)
    strengths = event.strengths(better[half:]), event.strengths(worse[half:])
    hits = [int(np.count_nonzero(some >= event.threshold)) for some in strengths]
    return Finding(
        claim, confidence, trials, str(event), event.favoured, (hits[0], hits[1]), event.threshold, strengths
    )


def as_releases(first: Any, second: Any) -> tuple[Array, Array]:
    """Two tables of numbers with as many rows each: releases from two data sets."""
    one, other = _table(first), _table(second)
    if one.shape != other.shape:
        raise InvalidInput(f"expected as many releases from both data sets, got shapes {one.shape}, {other.shape}")
    check_integer("the number of releases", len(one), least=LEAST_TRIALS)
    return one, other


def _table(releases: Any) -> Array:
    array = np.asarray(releases)
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise InvalidInput("releases must be an array of finite numbers, with a row for each release")
    return array.reshape(len(array), -1).astype(np.float64)


def promise_in(release: Any) -> Any:
    """The guarantee that a release or a fitted estimator carries, or None."""
    return getattr(release, "guarantee", getattr(release, "guarantee_", None))


def _claim(release: Any, epsilon: float | None, delta: float | None) -> Claim:
    promise = promise_in(release)
    if epsilon is None and delta is not None:
        raise InvalidInput("a delta needs the claimed_epsilon that goes with it")
    if epsilon is None or getattr(promise, "void_reason", None):
        return Claim.of(promise)
    return Claim(epsilon, 0.0 if delta is None else delta)


@dataclass(frozen=True)
class Runs:
    """A mechanism on two neighbours, to be run as often as anybody likes.

    Attributes
    ----------
    mechanism, first, second, statistic
        As for `audit`.
    """

    mechanism: Any
    first: Any
    second: Any
    statistic: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        _check_mechanism(self.mechanism)

    def rehearse(self) -> Any:
        """A release from the first data set, and one from the second that must be of the same size.

        What is wrong with the mechanism should show now, not after thousands of runs.
        """
        release = _prepared(self.mechanism, self.first)()
        size = _vector(self._measured(release)).size
        _vector(self._measured(_prepared(self.mechanism, self.second)()), size)
        return release

    def collect(self, trials: int, n_jobs: int | None = None, progress: Progress | None = None) -> tuple[Array, Array]:
        """So many fresh runs on both data sets, one row each."""
        check_jobs("n_jobs", n_jobs)
        count = min(_MOST_BATCHES, max(2, trials // _BATCH))
        sizes = [len(part) for part in np.array_split(np.arange(trials), count)]
        tasks = (delayed(self._batch)(data, size) for size in sizes for data in (self.first, self.second))
        # Batches of their own: a mechanism is then copied for each, and one that copies its noise is found out.
        results: Iterator[Array] = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator")(tasks)
        batches: list[Array] = []
        for batch in results:
            batches.append(batch)
            if progress is not None:
                progress(len(batches) / (2 * len(sizes)))
        if effective_n_jobs(n_jobs) > 1:
            _check_fresh(batches[::2])
        try:
            return np.concatenate(batches[::2]), np.concatenate(batches[1::2])
        except ValueError:
            raise _varying_length() from None

    def _batch(self, data: Any, size: int) -> Array:
        run = _prepared(self.mechanism, data)
        vectors = [_vector(self._measured(run())) for _ in range(size)]
        if len({vector.size for vector in vectors}) > 1:
            raise _varying_length()
        return np.array(vectors)

    def _measured(self, release: Any) -> Any:
        return shown_numbers(release) if self.statistic is None else self.statistic(release)


def _check_mechanism(mechanism: Any) -> None:
    if not hasattr(mechanism, "fit"):
        if not callable(mechanism):
            raise InvalidInput(f"mechanism must be a function or an estimator, got {type(mechanism).__name__}")
        return
    if not hasattr(mechanism, "get_params"):
        return
    # A pipeline names its steps' settings step__setting.
    given = {name.split("__")[-1] for name, value in mechanism.get_params().items() if value is not None}
    if "random_state" in given:
        raise InvalidInput("random_state repeats the noise, and every run must draw its own; audit with None")
    if "ledger" in given:
        raise InvalidInput("every run would debit the ledger; audit on made-up data, with ledger=None")


def _prepared(mechanism: Any, data: Any) -> Callable[[], Any]:
    """One run of a mechanism on one data set, which is made up: many runs spend nobody's budget."""
    run = _run(mechanism, data)

    def one() -> Any:
        with uncounted():
            return run()

    return one


def _run(mechanism: Any, data: Any) -> Callable[[], Any]:
    if not hasattr(mechanism, "fit"):
        return lambda: mechanism(data)
    if not hasattr(mechanism, "get_params"):
        return lambda: mechanism.fit(*data)
    model = clone(mechanism)
    if hasattr(model, "_planned"):
        # A plan has no chance in it, and takes most of a small fit's time: made once for each data set, never for both.
        model._planned = _remembered(model._planned)
    return lambda: copy.copy(model).fit(*data)


def _remembered(work: Callable[..., Any]) -> Callable[..., Any]:
    found: list[Any] = []

    def remembered(*arguments: Any) -> Any:
        if not found:
            found.append(work(*arguments))
        return found[0]

    return remembered


def shown_numbers(release: Any) -> Any:
    """What a release shows, if nobody says otherwise."""
    if hasattr(release, "coef_"):
        return np.append(np.ravel(release.coef_), np.ravel(getattr(release, "intercept_", ())))
    return getattr(release, "value", release)


def _vector(measured: Any, size: int | None = None) -> Array:
    try:
        vector = np.asarray(measured, np.float64).ravel()
    except (TypeError, ValueError):
        kind = type(measured).__name__
        raise InvalidInput(f"expected numbers from a run, got {kind}; give a statistic= that makes some") from None
    if not vector.size or not np.isfinite(vector).all():
        raise InvalidInput("a run gave NaN, an infinity or nothing at all; give a statistic= that reads it as numbers")
    if size is not None and vector.size != size:
        raise _varying_length()
    return vector


def _varying_length() -> InvalidInput:
    return InvalidInput(
        "runs gave more numbers at one time than at another: a length that varies is itself a release; give a "
        "statistic= of fixed length"
    )


def check_jobs(name: str, number: int | None) -> None:
    """A number of processes as scikit-learn counts them."""
    if number is not None and (isinstance(number, bool) or not isinstance(number, Integral) or number == 0):
        raise InvalidInput(f"{name} must be a whole number other than 0, got {number!r}; -1 is one on each core")


class CopiedNoise(InvalidInput):
    """The same noise came out of every process."""

    def __init__(self, remedy: str = "n_jobs=1") -> None:
        super().__init__(
            "every process drew the same noise: the mechanism carries a generator, and each process got a copy; "
            f"make the generator inside the mechanism, or use {remedy}"
        )


def _check_fresh(batches: list[Array]) -> None:
    """Refuse noise that repeats from batch to batch, if that is no accident."""
    shortest = min(len(batch) for batch in batches)
    heads = [batch[:shortest] for batch in batches]
    if not all(np.array_equal(head, heads[0]) for head in heads):
        return
    # With how many powers of e against it outputs with these frequencies repeat: 0 where there is but one output, and
    # a mechanism without noise is a finding; little where most outputs are alike.
    counts = np.unique(heads[0], axis=0, return_counts=True)[1]
    if -(len(heads) - 1) * counts @ np.log(counts / shortest) > _NO_ACCIDENT:
        raise CopiedNoise
