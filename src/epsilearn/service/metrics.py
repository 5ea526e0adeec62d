"""What can be watched from outside: how many calls, how they ended, how long they took. No names, no budgets."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["MULTIPROCESS", "Metrics"]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # a folder in which several workers add up what they count


class Metrics:
    """Counters of one process; of all processes of a server where these share a folder."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "epsilearn_calls", "Calls by route, method and status", ["route", "method", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "epsilearn_call_seconds", "How long calls took, padding included", ["route"], registry=self._registry,
            buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )  # fmt: skip
        self._answers = Counter("epsilearn_answers", "Points answered, by kind", ["kind"], registry=self._registry)
        self._cut = Counter(
            "epsilearn_connections_cut", "Connections that the server ended, by why", ["why"], registry=self._registry
        )

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """One call."""
        # Anybody can make up methods; a series for each would be theirs to grow.
        self._calls.labels(route, method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def answered(self, kind: str, points: int) -> None:
        """Some points."""
        self._answers.labels(kind).inc(points)

    def cut(self, why: str) -> None:
        """A connection that was ended: too slow, malformed, or in the place of a newer one."""
        self._cut.labels(why).inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        registry: Any = self._registry
        if os.environ.get(MULTIPROCESS):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(registry))
