"""The service itself, apart from how it is reached: everything it holds, and what it does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from sqlalchemy import delete, insert, select

from ibcl.serve import database, feedback, fitting
from ibcl.serve.batching import Batcher
from ibcl.serve.errors import Refusal
from ibcl.serve.fitting import Fitted
from ibcl.serve.logs import report, report_fault
from ibcl.serve.metrics import Metrics
from ibcl.serve.preferences import Change, Preferences, Stored
from ibcl.serve.served import Numbers, Row, Served
from ibcl.serve.settings import Settings
from ibcl.serve.tokens import Tokens
from ibcl.serve.validation import Validation
from ibcl.serve.versions import Versions

_PINNED = "pinned version"
_QUICK_ROWS = 512
"""Rows that routed evidence predicts in a few milliseconds."""


class Job(NamedTuple):
    """Rows to predict, with a preference given or a user's."""

    rows: Sequence[Row]
    weights: dict[str, float] | None
    user: str | None
    version: str | None = None


class Done(NamedTuple):
    """A job's result."""

    served: Served
    fitted: Fitted
    means: list[list[float]]
    """Probabilities or expected values, a list a row."""
    decisions: list[Any]
    """The predictions as the user's classes or values."""

    @property
    def preference(self) -> Numbers:
        """The preference that was used, in the order of the tasks."""
        return np.array(list(self.fitted.weights.values()))


class Service:
    """Everything a service holds; `close` it in the end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._engine = database.open_database(settings.database_url)
        self.preferences, self.tokens = Preferences(self._engine), Tokens(self._engine)
        self.versions = Versions(
            settings.knowledge_base,
            settings.folder / "versions",
            settings.versions,
            self.read_pinned(),
            self._report,
        )
        self.metrics.tasks.set(len(self.versions.active.tasks))
        self.validation = Validation(settings)
        self._predicting, self._writing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.working = ThreadPoolExecutor(2)
        self._predictions: Batcher[Job, Done] = Batcher(
            self._predict,
            self._predicting,
            size=lambda job: len(job.rows),
            largest=settings.batch_rows,
            wait=settings.batch_wait,
            quick=self._quick,
        )
        self._changes: Batcher[Change, Stored | None] = Batcher(
            self.preferences.change, self._writing, largest=512, wait=settings.batch_wait
        )
        self._reads: Batcher[str, Stored | None] = Batcher(
            self._read, self.working, largest=512, wait=settings.batch_wait
        )
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Finish what is under way and let everything go."""
        self._closing.set()
        self._watcher.join()
        for executor in (self._predicting, self._writing, self.working):
            executor.shutdown()
        self._engine.dispose()

    def _report(self, event: str, **facts: Any) -> None:
        if event == "version loaded":
            self.metrics.versions.inc()
        if event == "version refused":
            self.metrics.refused.inc()
        report(event, **facts)

    def _watch(self) -> None:
        while not self._closing.wait(self.settings.poll):
            try:
                self.versions.look()
                self.metrics.tasks.set(len(self.versions.active.tasks))
                self.tokens.refresh()
            except Exception as error:
                # The next look may find the disk or the database back again.
                report_fault(error, during="watching")

    async def predict(self, job: Job) -> Done:
        """Predict, together with what others ask for at the same time."""
        return await self._predictions.submit(job)

    async def change(self, change: Change) -> Stored | None:
        """Change a user's preference; when this returns, the change is on disk."""
        return await self._changes.submit(change)

    async def read(self, user: str) -> Stored | None:
        """Return what is stored of a user, read together with others asked for meanwhile."""
        return await self._reads.submit(user)

    def _read(self, users: Sequence[str]) -> list[Stored | Exception | None]:
        known = self.preferences.read(users)
        return [known.get(user) for user in users]

    def fit(self, stored: Stored, served: Served) -> Fitted:
        """Read a stored preference with the tasks of a version."""
        share = stored.share_of_new_tasks
        if share is None:
            share = self.settings.share_of_new_tasks
        return fitting.stored(stored.weights, served.tasks, share)

    def _quick(self, jobs: Sequence[Job]) -> bool:
        """Tell of a batch that needs neither the database nor the making of models."""
        rows = sum(len(job.rows) for job in jobs)
        plain = all(job.user is None and job.version is None for job in jobs)
        return plain and rows <= _QUICK_ROWS and self.versions.active.shared_heads

    def _predict(self, jobs: Sequence[Job]) -> list[Done | Exception]:
        """Predict a batch of jobs; rows of one version are predicted together."""
        users = {job.user for job in jobs if job.user is not None}
        known = self.preferences.read(users) if users else {}
        results: list[Done | Exception | None] = [None] * len(jobs)
        groups: dict[str, tuple[Served, list[int], list[Fitted]]] = {}
        active = self.versions.active
        for position, job in enumerate(jobs):
            try:
                served = active if job.version is None else self.versions.get(job.version)
                fitted = self._fitted(job, served, known)
            except Refusal as refusal:
                results[position] = refusal
                continue
            group = groups.setdefault(served.version, (served, [], []))
            group[1].append(position)
            group[2].append(fitted)
        for served, positions, preferences in groups.values():
            chosen = [jobs[position] for position in positions]
            done = self._predict_together(served, chosen, preferences)
            for position, result in zip(positions, done, strict=True):
                results[position] = result
        return [result for result in results if result is not None]

    def _fitted(self, job: Job, served: Served, known: dict[str, Stored]) -> Fitted:
        if job.weights is not None:
            return fitting.given(job.weights, served.tasks)
        assert job.user is not None
        stored = known.get(job.user)
        if stored is None:
            raise Refusal(404, "This user has no stored preference.")
        return self.fit(stored, served)

    def _predict_together(
        self, served: Served, jobs: Sequence[Job], fitted: Sequence[Fitted]
    ) -> list[Done | Exception]:
        try:
            inputs = served.encode([row for job in jobs for row in job.rows])
        except Refusal as refusal:
            if len(jobs) == 1:
                return [refusal]
            # Somebody's rows do not fit; everybody else's are predicted all the same.
            return [
                result
                for job, one in zip(jobs, fitted, strict=True)
                for result in self._predict_together(served, [job], [one])
            ]
        sizes = [len(job.rows) for job in jobs]
        preferences = np.array([list(one.weights.values()) for one in fitted])
        weights = np.repeat(preferences, sizes, axis=0)
        prepared = served.prepare(inputs)
        means = served.predict(prepared, weights)
        if not np.isfinite(means).all():
            raise FloatingPointError("A prediction is not a finite number.")
        decisions = served.decide(means)
        self.metrics.batch_rows.observe(len(inputs))
        self.metrics.rows.inc(len(inputs))
        self.metrics.see(served.tasks, weights, prepared.shares)
        listed, ends = means.tolist(), accumulate(sizes)
        return [
            Done(served, one, listed[end - size : end], decisions[end - size : end])
            for one, size, end in zip(fitted, sizes, ends, strict=True)
        ]

    def infer(
        self,
        counts: dict[str, float] | None,
        served: Served,
        log_likelihood: Numbers,
        forgetting: float | None,
    ) -> feedback.Inferred:
        """Update what is known of a user with examples."""
        factor = self.settings.forgetting if forgetting is None else forgetting
        return feedback.update(counts, log_likelihood, served.tasks, factor)

    def activate(self, version: str | None) -> Served:
        """Answer from a version, and remember to; None follows the newest again."""
        served = self.versions.activate(version)
        with self._engine.begin() as connection:
            table = database.choices
            connection.execute(delete(table).where(table.c.name == _PINNED))
            if version is not None:
                connection.execute(insert(table).values(name=_PINNED, value=served.version))
        return served

    def read_pinned(self) -> str | None:
        """Return the version that the database says to stay with."""
        table = database.choices
        with self._engine.connect() as connection:
            return connection.execute(
                select(table.c.value).where(table.c.name == _PINNED)
            ).scalar_one_or_none()


def log_likelihood_of(
    served: Served,
    rows: Sequence[Row],
    labels: Sequence[Any] | None,
    clicked: Sequence[bool] | None,
) -> Numbers:
    """Return log L_ik of a user's examples; see `ibcl.serve.feedback`."""
    for what, values in (("labels", labels), ("clicked", clicked)):
        if values is not None and len(values) != len(rows):
            raise Refusal(
                409, f"There are {len(rows)} rows but {len(values)} {what}; give one a row."
            )
    inputs = served.encode(rows)
    encoded = None if labels is None else served.labels(labels)
    if clicked is not None:
        chosen = torch.as_tensor(clicked)
        inputs = inputs[chosen]
        encoded = None if encoded is None else encoded[chosen]
    if not len(inputs):
        return np.zeros((0, len(served.tasks)))
    return served.log_likelihood(inputs, encoded)
