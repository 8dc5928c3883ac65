"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ibcl.serve.drift import Drift

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_ROWS = (1, 2, 5, 10, 25, 50, 100, 250, 1000, 4096, 10_000)


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ibcl_requests", "Requests", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "ibcl_request_seconds",
            "Time of a request",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batch_rows = Histogram(
            "ibcl_batch_rows",
            "Rows predicted together",
            buckets=_ROWS,
            registry=self.registry,
        )
        self.rows = Counter("ibcl_rows", "Rows predicted", registry=self.registry)
        self.versions = Counter(
            "ibcl_versions_loaded", "Versions of the knowledge base", registry=self.registry
        )
        self.refused = Counter(
            "ibcl_versions_refused", "Versions that could not be loaded", registry=self.registry
        )
        self.tasks = Gauge("ibcl_tasks", "Tasks of the active version", registry=self.registry)
        self.novelty = Gauge(
            "ibcl_novelty", "Recent average distance of rows from all tasks", registry=self.registry
        )
        # Finding the counter of a route takes as long as counting.
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.drifts = _Drifts()
        self.registry.register(self.drifts)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = route, status
        if key not in self._counted:
            self._counted[key] = (
                self.requests.labels(route, str(status)),
                self.seconds.labels(route),
            )
        requests, times = self._counted[key]
        requests.inc()
        times.observe(seconds)

    def see(
        self,
        tasks: Sequence[str],
        preferences: NDArray[np.float64],
        shares: NDArray[np.float64] | None,
    ) -> None:
        """Take in the preferences that rows were predicted with, and the gate's shares of them."""
        self.drifts.see(tasks, preferences, shares)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self.registry)


class _Drifts(Collector):
    """Drift of preferences and of the gate, computed when they are scraped."""

    def __init__(self) -> None:
        self._tasks: tuple[str, ...] = ()
        self.preference, self.gate = Drift(), Drift()

    def see(
        self,
        tasks: Sequence[str],
        preferences: NDArray[np.float64],
        shares: NDArray[np.float64] | None,
    ) -> None:
        if tuple(tasks) != self._tasks:
            self._tasks = tuple(tasks)
            self.preference, self.gate = Drift(), Drift()
        self.preference.see(preferences)
        if shares is not None:
            self.gate.see(shares)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, drift, what in (
            ("preference", self.preference, "preferences asked for"),
            ("gate", self.gate, "tasks that rows look like"),
        ):
            yield GaugeMetricFamily(
                f"ibcl_{name}_drift",
                f"Total variation between recent and usual {what}",
                value=drift.value,
            )
            shares = GaugeMetricFamily(
                f"ibcl_{name}_share", f"Recent average of {what}", labels=["task"]
            )
            recent = drift.recent
            for task, share in zip(self._tasks, () if recent is None else recent, strict=False):
                shares.add_metric([task], float(share))
            yield shares
