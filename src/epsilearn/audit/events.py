"""Events that tell two data sets apart, learned from releases on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from epsilearn.audit.counts import clopper_pearson, log_ratio, normal_distance

__all__ = ["Event", "Prospect", "choose"]

Array = NDArray[np.float64]
Score = Callable[[Array], Array]

_MOST_THRESHOLDS = 200  # the best of so many is nearly as good as the best of all, and limits take time
# The best of many events flatters itself: each is taken at a limit that luck alone passes so often.
_FLATTERY = 0.05
_LAST = 1000.0  # more than any bound


@dataclass(frozen=True)
class Event:
    """A score (a number for each release) of at least or, with a negative sign, at most a threshold."""

    name: str
    score: Score
    sign: int
    threshold: float
    favoured: str

    def strengths(self, releases: Array) -> Array:
        """The score with its sign: the event is a strength of at least the threshold."""
        return self.sign * self.score(releases)

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.sign > 0 else '<='} {self.sign * self.threshold:.6g}"


@dataclass(frozen=True)
class Prospect:
    """The bound that runs still to come can be expected to give, from how often an event was seen so far.

    Attributes
    ----------
    runs : int
        How many runs will judge, on each data set.
    delta, confidence : float
        As they will be judged by.
    gaussian : bool
        Whether to hope for the Gaussian bound on mu, instead of the one on epsilon.
    """

    runs: int
    delta: float
    confidence: float
    gaussian: bool = False

    def __call__(self, hits: NDArray[Any], other_hits: NDArray[Any], seen: int) -> Array:
        p, q = clopper_pearson(hits, seen, _FLATTERY)[0], clopper_pearson(other_hits, seen, _FLATTERY)[1]
        bound = self.bound(p, q)
        # Where no event gives a bound, the one that might is still wanted; it comes after all those that do.
        return np.where(bound > 0, bound, log_ratio(p, q, self.delta) - _LAST)

    def bound(self, p: Array, q: Array) -> Array:
        """What to expect of an event with these probabilities on either data set."""
        failure = (1 - self.confidence) / 2
        low = clopper_pearson(p * self.runs, self.runs, failure)[0]
        high = clopper_pearson(q * self.runs, self.runs, failure)[1]
        return normal_distance(low, high) if self.gaussian else log_ratio(low, high, self.delta)


def choose(first: Array, second: Array, prospect: Prospect) -> tuple[Event, float]:
    """The event that promises the largest bound, and the bound that it promises."""
    # Scores are fitted to half of these runs and compared on the rest, lest those with many cells flatter themselves.
    half = len(first) // 2
    candidates: list[tuple[float, Event]] = []
    for name, score in _scores(first[:half], second[:half]):
        measured = score(first[half:]), score(second[half:])
        for sign, favoured in product((1, -1), ("first", "second")):
            better, worse = measured if favoured == "first" else measured[::-1]
            promised, threshold = _best_threshold(sign * better, sign * worse, prospect)
            candidates.append((promised, Event(name, score, sign, threshold, favoured)))
    promised, event = max(candidates, key=lambda found: found[0])
    return event, promised


def _best_threshold(better: Array, worse: Array, prospect: Prospect) -> tuple[float, float]:
    thresholds = np.unique(np.concatenate([better, worse]))
    if len(thresholds) > _MOST_THRESHOLDS:
        thresholds = thresholds[np.linspace(0, len(thresholds) - 1, _MOST_THRESHOLDS).astype(int)]
    hits, other_hits = (len(s) - np.searchsorted(np.sort(s), thresholds) for s in (better, worse))
    promised = prospect(hits, other_hits, len(better))
    best = int(np.argmax(promised))
    return float(promised[best]), float(thresholds[best])


def _scores(first: Array, second: Array) -> Iterator[tuple[str, Score]]:
    """Ways to tell the data sets apart, fitted to runs on each."""
    releases, labels = np.concatenate([first, second]), np.repeat([1.0, 0.0], [len(first), len(second)])
    if releases.shape[1] == 1:
        yield "the number released", lambda some: some[:, 0]
    # A few releases may be larger than the others by many powers of ten; all of them should keep a place of their own.
    scaler = RobustScaler().fit(releases)
    centres = [np.median(scaler.transform(part), axis=0) for part in (first, second)]

    def features(some: Array) -> Array:
        scaled = scaler.transform(some)
        return np.column_stack([scaled, *(np.linalg.norm(scaled - centre, axis=1) for centre in centres)])

    # The true log-odds are linear in the release for normal noise, and in its distances for K-norm noise.
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=1000))
    linear.fit(features(releases), labels)
    # Rounded, because equal releases must score alike, and the last bits of a product vary.
    yield "log-odds of the first, by distances,", lambda some: linear.decision_function(features(some)).round(9)
    # For choices and counts, and for densities that cross often. Cuts worth less than a chi-squared of 10 are undone.
    tree = DecisionTreeClassifier(max_leaf_nodes=64, min_samples_leaf=5, ccp_alpha=5 / len(labels), random_state=0)
    tree.fit(np.arcsinh(features(releases)), labels)
    yield "share of the first, in cells of a tree,", lambda some: tree.predict_proba(np.arcsinh(features(some)))[:, 1]
