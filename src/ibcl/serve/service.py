"""The service itself, apart from how it is reached: everything it holds, and what it does."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from sqlalchemy import delete, insert, select
from torch import Tensor

from ibcl.preference import FollowedPreference, follow, said
from ibcl.serve import database, fitting
from ibcl.serve.batching import Batcher
from ibcl.serve.errors import ApiError
from ibcl.serve.exports import Exports
from ibcl.serve.fitting import Fitted
from ibcl.serve.lineage import FIRST, Lineage
from ibcl.serve.logs import report, report_fault
from ibcl.serve.metrics import Metrics
from ibcl.serve.preferences import Change, Preferences, Stored
from ibcl.serve.served import Numbers, Row, Served
from ibcl.serve.settings import Settings
from ibcl.serve.tokens import Tokens
from ibcl.serve.validation import Validation
from ibcl.serve.versions import Versions

_PINNED = "pinned version"
_QUICK_ROWS, _QUICK_SUMS = 512, 4096
"""Rows, and rows times tasks, that routed evidence predicts in a few milliseconds."""
BLOCK_SUMS = 2**15
"""Rows times tasks that are predicted at once, which others wait for."""
_ROWS_OF_NETWORKS = 256
_NAMED = 100
"""Columns that an answer names at most."""
_DATABASE_SECONDS = 3.0
"""Within which a database answers that is there."""
Result = TypeVar("Result")


class Job(NamedTuple):
    """Rows to predict, with a preference given or a user's."""

    rows: Sequence[Row]
    weights: dict[str, float] | None
    user: str | None
    served: Served


class Done(NamedTuple):
    """A job's result."""

    served: Served
    fitted: Fitted
    means: list[list[float]]
    """Probabilities or expected values, a list per row."""
    decisions: list[Any]
    """The predictions as the user's classes or values."""
    ignored: list[str]
    """Columns of the rows that the knowledge base does not have."""
    unknown: dict[str, int]
    """How many categories of a column were never learnt."""

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
        self.preferences = Preferences(self._engine)
        self.tokens = Tokens(self._engine, settings.tokens_required)
        self._lineage = Lineage(self._engine)
        self.versions = Versions(
            settings.knowledge_base,
            settings.folder / "versions",
            settings.versions,
            self.read_pinned(),
            self._report,
            self._lineage.record,
            settings.network,
        )
        if settings.validation and self.versions.active.reads_arrays is not None:
            raise ValueError("Validation rows are tables, which this knowledge base does not read")
        self.metrics.tasks.set(len(self.versions.active.tasks))
        self.validation = Validation(settings, self.versions.active)
        self._predicting, self._writing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._working, self._loading = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
        self._checking = ThreadPoolExecutor(1)
        self.exports = Exports()
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
            self._read, self._working, largest=512, wait=settings.batch_wait
        )
        self._checks: Batcher[None, None] = Batcher(self._check, self._checking, wait=0.0)
        self._activating = threading.Lock()
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Finish the changes under way and let everything go; nobody waits for the rest."""
        self._closing.set()
        self._watcher.join(self.settings.drain_seconds)
        self._writing.shutdown()
        for executor in (self._predicting, self._working, self._loading, self._checking):
            executor.shutdown(wait=False, cancel_futures=True)
        self.exports.close()
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
                self.metrics.tasks.set(len(self.versions.tasks))
                self.tokens.refresh()
            except Exception as error:
                # The next look may find the disk or the database back again.
                report_fault(error, during="watching")

    async def work(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do something in a thread, so that nobody else waits for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._working, work, *arguments)

    async def version(self, version: str | None) -> Served:
        """Return a version, loaded in a thread of its own; the active one without a name."""
        if version is None:
            return self.versions.active
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._loading, self.versions.get, version)

    async def check_database(self) -> None:
        """Raise where the database does not answer in time."""
        try:
            await asyncio.wait_for(self._checks.submit(None), _DATABASE_SECONDS)
        except TimeoutError:
            raise database.away() from None

    def _check(self, checks: Sequence[None]) -> list[Exception | None]:
        self.read_pinned()
        return [None] * len(checks)

    def check_size(self, rows: int, served: Served) -> None:
        """Refuse more rows than the memory of one request allows for so many tasks."""
        tasks, largest = len(served.tasks), self.settings.largest_request
        if rows * tasks > largest:
            raise ApiError(
                413,
                f"{rows:,} rows for a knowledge base of {tasks:,} tasks are too many at once; send "
                f"at most {max(1, largest // tasks):,} rows per request.",
            )

    async def predict(self, job: Job) -> Done:
        """Predict, together with what others ask for at the same time.

        Many rows are handed in block by block, so that others wait for a block at most.
        """
        self.check_size(len(job.rows), job.served)
        parts: list[Done] = []
        for block in blocks(len(job.rows), job.served) or [slice(0, 0)]:
            parts.append(await self._predictions.submit(job._replace(rows=job.rows[block])))
            # A stored preference that changes meanwhile does not change in the middle of an answer.
            job = job._replace(weights=parts[0].fitted.weights, user=None)
        return _joined(parts)

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
        return fitting.stored(stored.weights, served.tasks, share, self._others(stored, served))

    def identities(self, served: Served) -> dict[str, str]:
        """Return what is stored with a preference over the tasks of a version."""
        return self._lineage.of(served.version)

    def counts(self, stored: Stored, served: Served) -> dict[str, float]:
        """Return the Dirichlet counts of what is known of a user, of tasks of a version alone."""
        counts = said(stored.weights) if stored.counts is None else stored.counts
        others = self._others(stored, served)
        return {task: count for task, count in counts.items() if task not in others}

    def _others(self, stored: Stored, served: Served) -> set[str]:
        """Return the tasks of a version that only share the name with what a user knew."""
        known = stored.identities or {}
        return {
            task
            for task, identity in self.identities(served).items()
            if task in stored.weights and known.get(task, FIRST) != identity
        }

    def _quick(self, jobs: Sequence[Job]) -> bool:
        """Tell of a batch that needs neither the database nor the making of models."""
        if any(
            job.user is not None
            or job.served.reads_arrays is not None
            or not job.served.state.predictives.shares_parameters
            for job in jobs
        ):
            return False
        rows = sum(len(job.rows) for job in jobs)
        sums = sum(len(job.rows) * len(job.served.tasks) for job in jobs)
        return rows <= _QUICK_ROWS and sums <= _QUICK_SUMS

    def _predict(self, jobs: Sequence[Job]) -> list[Done | Exception]:
        """Predict a batch of jobs; rows of one version are predicted together."""
        users = {job.user for job in jobs if job.user is not None}
        known = self.preferences.read(users) if users else {}
        results: list[Done | Exception | None] = [None] * len(jobs)
        groups: dict[str, tuple[Served, list[int], list[Fitted]]] = {}
        for position, job in enumerate(jobs):
            served = job.served
            try:
                fitted = self._fitted(job, known)
            except ApiError as error:
                results[position] = error
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

    def _fitted(self, job: Job, known: dict[str, Stored]) -> Fitted:
        if job.weights is not None:
            return fitting.given(job.weights, job.served.tasks)
        assert job.user is not None
        stored = known.get(job.user)
        if stored is None:
            raise ApiError(404, "This user has no stored preference.")
        return self.fit(stored, job.served)

    def _predict_together(
        self, served: Served, jobs: Sequence[Job], fitted: Sequence[Fitted]
    ) -> list[Done | Exception]:
        sizes = [len(job.rows) for job in jobs]
        preferences = np.array([list(one.weights.values()) for one in fitted])
        weights = np.repeat(preferences, sizes, axis=0)
        try:
            inputs = served.encode([row for job in jobs for row in job.rows])
            means = self._means(served, inputs, weights)
        except ApiError as error:
            if len(jobs) == 1:
                return [error]
            # Somebody's rows do not fit; everybody else's are predicted all the same.
            return [
                result
                for job, one in zip(jobs, fitted, strict=True)
                for result in self._predict_together(served, [job], [one])
            ]
        if not np.isfinite(means).all():
            raise FloatingPointError("A prediction is not a finite number.")
        decisions = served.decide(means)
        self.metrics.batch_rows.observe(len(inputs))
        self.metrics.rows.inc(len(inputs))
        listed, ends = means.tolist(), accumulate(sizes)
        return [
            Done(
                served,
                one,
                listed[end - size : end],
                decisions[end - size : end],
                ignored_columns(job.rows, served),
                served.unknown(job.rows),
            )
            for job, one, size, end in zip(jobs, fitted, sizes, ends, strict=True)
        ]

    def _means(self, served: Served, inputs: Tensor, weights: Numbers) -> Numbers:
        """Predict block by block, so that memory does not grow with the rows of a batch."""
        means = []
        for block in blocks(len(inputs), served):
            answers, chosen = served.answers(inputs[block]), weights[block]
            means.append(served.predict(answers, chosen))
            self.metrics.see(served.tasks, chosen, served.shares(answers))
        return means[0] if len(means) == 1 else np.concatenate(means)

    def infer(
        self,
        counts: dict[str, float] | None,
        served: Served,
        log_densities: Numbers,
        forgetting: float | None,
    ) -> FollowedPreference:
        """Update what is known of a user with examples."""
        factor = self.settings.forgetting if forgetting is None else forgetting
        return follow(counts, log_densities, served.tasks, factor)

    def activate(self, version: str | None) -> Served:
        """Answer from a version, and remember to; None follows the newest again."""
        name = None if version is None else self.versions.get(version).version
        with self._activating:
            with self._engine.begin() as connection:
                table = database.choices
                connection.execute(delete(table).where(table.c.name == _PINNED))
                if name is not None:
                    connection.execute(insert(table).values(name=_PINNED, value=name))
            return self.versions.activate(name)

    def read_pinned(self) -> str | None:
        """Return the version that the database says to stay with."""
        table = database.choices
        with self._engine.connect() as connection:
            return connection.execute(
                select(table.c.value).where(table.c.name == _PINNED)
            ).scalar_one_or_none()


def _joined(parts: Sequence[Done]) -> Done:
    """Return the results of a job's blocks as one."""
    if len(parts) == 1:
        return parts[0]
    unknown: Counter[str] = Counter()
    for part in parts:
        unknown.update(part.unknown)
    return parts[0]._replace(
        means=[row for part in parts for row in part.means],
        decisions=[decision for part in parts for decision in part.decisions],
        ignored=sorted({name for part in parts for name in part.ignored})[:_NAMED],
        unknown=dict(unknown),
    )


def blocks(rows: int, served: Served) -> list[slice]:
    """Split rows so that memory grows with neither their number nor that of the tasks."""
    size = max(1, BLOCK_SUMS // len(served.tasks))
    if served.reads_arrays is not None:
        # What networks compute of a row is far larger than the row.
        size = min(size, _ROWS_OF_NETWORKS)
    return [slice(begin, begin + size) for begin in range(0, rows, size)]


def ignored_columns(rows: Sequence[Row], served: Served) -> list[str]:
    """Return the columns of rows that a knowledge base does not have, in order of the alphabet."""
    if served.reads_arrays is not None:
        return []
    known = frozenset(served.columns)
    # Nearly all rows have no others, which their number of columns says at once.
    others = {name for row in rows if len(row) > len(known) for name in row if name not in known}
    return sorted(others)[:_NAMED]


def log_densities_of(
    served: Served,
    rows: Sequence[Row],
    labels: Sequence[Any] | None,
    clicked: Sequence[bool] | None,
) -> Numbers:
    """Return the log densities of a user's examples; see `ibcl.preference.follow`."""
    for what, values in (("labels", labels), ("clicked", clicked)):
        if values is not None and len(values) != len(rows):
            raise ApiError(
                409, f"There are {len(rows)} rows but {len(values)} {what}; give one per row."
            )
    inputs = served.encode(rows)
    encoded = None if labels is None else served.labels(labels)
    if clicked is not None:
        chosen = torch.as_tensor(clicked)
        inputs = inputs[chosen]
        encoded = None if encoded is None else encoded[chosen]
    if not len(inputs):
        return np.zeros((0, len(served.tasks)))
    return np.concatenate(
        [
            served.log_densities(inputs[block], None if encoded is None else encoded[block])
            for block in blocks(len(inputs), served)
        ]
    )
