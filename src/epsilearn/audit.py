"""Audits: two neighbours in, many refits, a lower bound on epsilon out.

A proof says that epsilon is at most so much; an audit says that it is at least so much. Where the two contradict each
other, the proof, the code or the description of the data is wrong. What an audit finds is computed from its data
without any noise: run it on made-up data. See ``docs/audit.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from epsilearn.checks import check_budget, check_integer, check_probability
from epsilearn.errors import InvalidInput

__all__ = ["Finding", "audit", "clopper_pearson", "epsilon_bound"]

Array = NDArray[np.float64]
Run = Callable[[Any], Array]
Score = Callable[[Array], Array]

_BATCHES = 25  # for each data set
_MOST_THRESHOLDS = 1000  # the best of so many is as good as the best of all


@dataclass(frozen=True)
class Finding:
    """What an audit found. Not private: it was computed from the audited data without noise.

    Attributes
    ----------
    claimed_epsilon, delta : float
        The claim that was put to the test.
    lower_bound : float
        With the stated confidence no smaller epsilon is true at this delta.
    confidence : float
        A true claim is refuted with probability ``1 - confidence`` at most.
    trials : int
        How often the mechanism was run on each data set.
    event : str
        What was looked for in the releases; chosen from runs that did not count.
    favoured : {"first", "second"}
        The data set on which it is the more likely.
    hits : tuple of int
        How often it was seen in the runs that counted, on the favoured data set and on the other.
    """

    claimed_epsilon: float
    delta: float
    lower_bound: float
    confidence: float
    trials: int
    event: str
    favoured: str
    hits: tuple[int, int]

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at this confidence."""
        return self.lower_bound > self.claimed_epsilon

    @property
    def judged(self) -> int:
        """How many runs counted, on each data set."""
        return self.trials - self.trials // 2

    @property
    def reach(self) -> float:
        """The largest lower bound that so many runs can give, whatever the mechanism."""
        return float(epsilon_bound(self.judged, 0, self.judged, self.delta, self.confidence))

    def __str__(self) -> str:
        at_delta = f" at delta = {self.delta:g}" if self.delta else ""
        other = "second" if self.favoured == "first" else "first"
        return (
            f"{'REFUTED' if self.refuted else 'not refuted'}: epsilon = {self.claimed_epsilon:.6g}{at_delta}\n"
            f"epsilon is at least {self.lower_bound:.4f}, with confidence {self.confidence:.10g}\n"
            f"seen: {self.event}; in {self.hits[0]} of {self.judged} runs on the {self.favoured} data set, "
            f"in {self.hits[1]} on the {other}\n"
            f"so many runs can show an epsilon of at most {self.reach:.4f}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "refuted": self.refuted, "reach": self.reach}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


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
    progress: Callable[[float], None] | None = None,
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
    trials = check_integer("trials", trials, least=100)
    confidence = check_probability("confidence", confidence)
    mechanism, measure = _runnable(mechanism), statistic or _measure
    # Two runs that do not count: what is wrong with the mechanism should show now, not after all the others.
    rehearsal = mechanism(first)
    claimed_epsilon, delta = _claim(rehearsal, claimed_epsilon, delta)
    size = _vector(measure(rehearsal)).size

    def run(data: Any) -> Array:
        return _vector(measure(mechanism(data)), size)

    run(second)
    runs = _collect(run, (first, second), trials, n_jobs, progress)
    half = trials // 2
    event = _choose(runs[0][:half], runs[1][:half], delta, confidence)
    better, worse = runs if event.favoured == "first" else runs[::-1]
    hits = event.count(better[half:]), event.count(worse[half:])
    bound = float(epsilon_bound(*hits, trials - half, delta, confidence))
    return Finding(claimed_epsilon, delta, bound, confidence, trials, str(event), event.favoured, hits)


def clopper_pearson(hits: Any, runs: int, failure: float) -> tuple[Array, Array]:
    """Lower and upper limits of a probability; each by itself is wrong with probability at most ``failure``."""
    hits = np.asarray(hits, np.float64)
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), runs - hits + 1, failure))
    high = np.where(hits == runs, 1.0, betainccinv(hits + 1, np.maximum(runs - hits, 1), failure))
    return low, high


def epsilon_bound(hits: Any, other_hits: Any, runs: int, delta: float, confidence: float) -> Array:
    """The least epsilon that two counts of one event allow: log((p - delta) / q), for the limits of p and q.

    Privacy says p <= e**epsilon q + delta for the event's probabilities on neighbours. Both limits hold together with
    the given confidence, each being wrong with at most half of what is left.

    Examples
    --------
    >>> round(float(epsilon_bound(900, 100, 1000, 0.0, 0.999)), 3)
    1.859
    """
    return np.log(np.maximum(_ratio(hits, other_hits, runs, delta, confidence), 1.0))


def _ratio(hits: Any, other_hits: Any, runs: int, delta: float, confidence: float) -> Array:
    failure = (1 - confidence) / 2
    low, high = clopper_pearson(hits, runs, failure)[0], clopper_pearson(other_hits, runs, failure)[1]
    return (low - delta) / high


def _runnable(mechanism: Any) -> Callable[[Any], Any]:
    if not hasattr(mechanism, "fit"):
        if not callable(mechanism):
            raise InvalidInput(f"mechanism must be a function or an estimator, got {type(mechanism).__name__}")
        return mechanism  # type: ignore[no-any-return]
    if not hasattr(mechanism, "get_params"):
        return lambda data: mechanism.fit(*data)
    # A pipeline names its steps' settings step__setting.
    given = {name.split("__")[-1] for name, value in mechanism.get_params().items() if value is not None}
    if "random_state" in given:
        raise InvalidInput("random_state repeats the noise, and every run must draw its own; audit with None")
    if "ledger" in given:
        raise InvalidInput("every run would debit the ledger; audit on made-up data, with ledger=None")
    return lambda data: clone(mechanism).fit(*data)


def _claim(release: Any, epsilon: float | None, delta: float | None) -> tuple[float, float]:
    promise = getattr(release, "guarantee", getattr(release, "guarantee_", None))
    reason = getattr(promise, "void_reason", None)
    if reason:
        raise InvalidInput(f"the release promises nothing ({reason}); audit it as it is meant to run")
    if epsilon is not None:
        return check_budget(epsilon, 0.0 if delta is None else delta)
    if promise is None:
        raise InvalidInput("the release carries no guarantee; say what to test with claimed_epsilon=")
    if delta is not None:
        raise InvalidInput("a delta needs the claimed_epsilon that goes with it")
    return check_budget(promise.epsilon, promise.delta)


def _measure(release: Any) -> Any:
    """What a release shows, if the caller does not say."""
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
        raise InvalidInput(
            f"runs gave {size} numbers and then {vector.size}: a length that varies is itself a release; "
            "give a statistic= of fixed length"
        )
    return vector


def _collect(
    run: Run, pair: tuple[Any, Any], trials: int, n_jobs: int | None, progress: Callable[[float], None] | None
) -> tuple[Array, Array]:
    """All runs on both data sets, one row each."""
    sizes = [len(part) for part in np.array_split(np.arange(trials), _BATCHES)]
    tasks = (delayed(_batch)(run, data, size) for size in sizes for data in pair)
    # Batches of their own: a mechanism is then copied for each, and one that copies its noise is found out.
    results: Iterator[Array] = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator")(tasks)
    batches: list[Array] = []
    for batch in results:
        batches.append(batch)
        if progress is not None:
            progress(len(batches) / (2 * _BATCHES))
    _check_fresh(batches[::2])
    return np.concatenate(batches[::2]), np.concatenate(batches[1::2])


def _batch(run: Run, data: Any, size: int) -> Array:
    return np.array([run(data) for _ in range(size)])


def _check_fresh(batches: list[Array]) -> None:
    """Refuse noise that repeats from batch to batch; a mechanism without noise is another matter, and a finding."""
    shortest = min(len(batch) for batch in batches)
    heads = np.array([batch[:shortest] for batch in batches])
    if (heads == heads[0]).all() and not (heads == heads[0, 0]).all():
        raise InvalidInput(
            "every process drew the same noise: the mechanism carries a generator, and each process got a copy; "
            "make the generator inside the mechanism, or use n_jobs=1"
        )


@dataclass(frozen=True)
class _Event:
    """A score (a number for each release) of at least or, with a negative sign, at most a threshold."""

    name: str
    score: Score
    sign: int
    threshold: float
    favoured: str

    def count(self, releases: Array) -> int:
        return int(np.count_nonzero(self.sign * self.score(releases) >= self.threshold))

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.sign > 0 else '<='} {self.sign * self.threshold:.6g}"


def _choose(first: Array, second: Array, delta: float, confidence: float) -> _Event:
    """The event that promises the largest bound."""
    # Scores are fitted to half of these runs and compared on the rest, lest those with many cells flatter themselves.
    half = len(first) // 2
    candidates: list[tuple[float, _Event]] = []
    for name, score in _scores(first[:half], second[:half]):
        measured = score(first[half:]), score(second[half:])
        for sign, favoured in product((1, -1), ("first", "second")):
            better, worse = measured if favoured == "first" else measured[::-1]
            ratio, threshold = _best_threshold(sign * better, sign * worse, delta, confidence)
            candidates.append((ratio, _Event(name, score, sign, threshold, favoured)))
    return max(candidates, key=lambda found: found[0])[1]


def _best_threshold(better: Array, worse: Array, delta: float, confidence: float) -> tuple[float, float]:
    thresholds = np.unique(np.concatenate([better, worse]))
    if len(thresholds) > _MOST_THRESHOLDS:
        thresholds = thresholds[np.linspace(0, len(thresholds) - 1, _MOST_THRESHOLDS).astype(int)]
    hits, other_hits = (len(s) - np.searchsorted(np.sort(s), thresholds) for s in (better, worse))
    # The ratio itself, not its logarithm: where no event gives a bound yet, the most promising one is still wanted.
    ratios = _ratio(hits, other_hits, len(better), delta, confidence)
    best = int(np.argmax(ratios))
    return float(ratios[best]), float(thresholds[best])


def _scores(first: Array, second: Array) -> Iterator[tuple[str, Score]]:
    """Ways to tell the data sets apart, fitted to runs on each."""
    releases, labels = np.concatenate([first, second]), np.repeat([1.0, 0.0], [len(first), len(second)])
    if releases.shape[1] == 1:
        yield "the number released", lambda some: some[:, 0]
    scaler = StandardScaler().fit(releases)
    centres = [np.median(scaler.transform(part), axis=0) for part in (first, second)]

    def features(some: Array) -> Array:
        scaled = scaler.transform(some)
        return np.column_stack([scaled, *(np.linalg.norm(scaled - centre, axis=1) for centre in centres)])

    # The true log-odds are linear in the release for normal noise, and in its distances for K-norm noise.
    linear = LogisticRegression(C=100.0, max_iter=1000).fit(features(releases), labels)
    # Rounded, because equal releases must score alike, and the last bits of a product vary.
    yield "log-odds of the first, by distances,", lambda some: linear.decision_function(features(some)).round(9)
    # For choices and counts, and for densities that cross often. Cuts worth less than a chi-squared of 10 are undone.
    tree = DecisionTreeClassifier(max_leaf_nodes=64, min_samples_leaf=5, ccp_alpha=5 / len(labels), random_state=0)
    tree.fit(features(releases), labels)
    yield "share of the first, in cells of a tree,", lambda some: tree.predict_proba(features(some))[:, 1]
