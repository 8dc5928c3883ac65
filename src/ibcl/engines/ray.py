"""The engine on Ray: the same pieces of work, on the processes of one machine or of many.

A piece whose worker or node dies is tried again elsewhere by Ray; one that kills every worker it is
given to is reported, and so is one that raises. Files that the work writes must lie where every
node sees them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ibcl.engines.engine import Item, Outcome, Result, attempt
from ibcl.plugins import import_plugin, imported_plugins

RETRIES = 3
"""So many workers or nodes may die under a piece of work before it is given up."""


class RayEngine:
    """Workers of a Ray cluster.

    Where this process is connected to a cluster already, that one is used. Otherwise a cluster of
    this machine is started, which ends with this process, however it ends; or, with an address,
    that one is joined, and drops this process's work when it ends.

    Parameters
    ----------
    address
        Of a running cluster, such as ``auto`` or ``10.0.0.1:6379``; empty for one of this machine.
    processes
        How many pieces run at the same time; as many as there are processors without a number.
    """

    def __init__(self, address: str = "", processes: int | None = None) -> None:
        self.address, self.processes = address, processes

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Outcome[Item, Result]]:
        """Yield an outcome for every item, in the order they end."""
        import ray

        connect(self.address, self.processes)
        work: Any = ray.remote(max_retries=RETRIES, num_cpus=1)(_attempt_with_plugins)
        plugins = imported_plugins()
        shared = ray.put(function)
        waiting = list(reversed(items))
        running: dict[Any, Item] = {}
        try:
            while waiting or running:
                while waiting and (self.processes is None or len(running) < self.processes):
                    item = waiting.pop()
                    running[work.remote(plugins, shared, item)] = item
                ready, _ = ray.wait(list(running), fetch_local=False)
                for reference in ready:
                    yield _outcome(running.pop(reference), reference)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _attempt_with_plugins(
    plugins: Mapping[str, str], function: Callable[[Item], Result], item: Item
) -> tuple[Result | None, str | None]:
    """Attempt a piece of work where everything is registered that is registered here."""
    for name, folder in plugins.items():
        import_plugin(name, folder)
    return attempt(function, item)


def _outcome(item: Item, reference: Any) -> Outcome[Item, Any]:
    import ray

    try:
        result, error = ray.get(reference)
    except ray.exceptions.RayTaskError as problem:
        # What a piece raises is caught where it runs, so this one never began there.
        return Outcome(item, None, f"It could not begin on its worker: {problem.cause}.")
    except ray.exceptions.RayError as problem:
        name = type(problem).__name__
        return Outcome(item, None, f"Its worker died each of {RETRIES + 1} times ({name}).")
    return Outcome(item, result, error)


def connect(address: str = "", processes: int | None = None) -> None:
    """Join the cluster of an address, or start one on this machine; once per process."""
    try:
        # Nothing is reported to anybody.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
    except ImportError:
        raise ValueError("The ray engine is not installed: pip install 'ibcl[ray]'") from None
    if ray.is_initialized():
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address:
        try:
            _check_reachable(address)
            ray.init(address=address, **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"There is no Ray cluster at {address!r} ({str(error).splitlines()[0]}); start one "
                "with 'ray start --head', or leave the address out"
            ) from None
    else:
        # Ray's agents outlive a killed command for as long as they try to reach the cluster again,
        # a minute by default. On one machine it is either there or gone.
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
        # By default the workers let everything else on the machine go first.
        os.environ.setdefault("RAY_worker_niceness", "0")
        # Nobody looks at the figures of a cluster that ends with its command, and has no dashboard.
        os.environ.setdefault("RAY_enable_metrics_collection", "0")
        os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
        try:
            ray.init(
                # Whatever cluster the environment names: without an address it is this machine's.
                address="local",
                num_cpus=processes or os.cpu_count(),
                include_dashboard=False,
                **options,
            )
        except Exception as error:
            # Ray raises nothing more special where its processes take too long to start.
            raise ValueError(
                f"Ray did not start on this machine ({str(error).splitlines()[0]}); if others keep "
                "it busy, try again later"
            ) from None


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
