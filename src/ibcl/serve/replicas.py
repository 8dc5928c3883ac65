"""Replicas of the service on Ray Serve, behind one address and on one database.

Every replica is the whole application of `ibcl.serve.app` in a process of its own. What users are
told is stored is in PostgreSQL, which all replicas share, so that any of them can die at any time:
those requests fail that it held, the others take the next ones, and another replica takes its
place. Each replica looks for new versions of the knowledge base by itself; which version to stay
with is in the database, and followed from there.

What is counted a replica: the rate limit of a caller, and ``/metrics``.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from typing import Any

import torch
from fastapi import FastAPI

from ibcl.engines.ray import connect
from ibcl.serve import database
from ibcl.serve.app import create_app
from ibcl.serve.errors import ApiError
from ibcl.serve.logs import report, report_fault, start_logging
from ibcl.serve.process import check_tokens, listen, settled
from ibcl.serve.service import Service
from ibcl.serve.settings import Settings
from ibcl.serve.tokens import Tokens
from ibcl.serve.validation import Validation
from ibcl.serve.versions import Versions
from ibcl.store import as_url

_NAME = "ibcl"
# More wait at the address, and go to whichever replica is free first.
_HELD = 128
_HEALTH_SECONDS = 2.0


def check_replicas(settings: Settings, replicas: int) -> None:
    """Refuse replicas that could not share what users are told is stored.

    Examples
    --------
    >>> from pathlib import Path
    >>> check_replicas(Settings(Path("movies.ibcl"), database="postgresql://db/users"), 3)
    >>> check_replicas(Settings(Path("movies.ibcl")), 1)
    """
    if replicas > 1 and not settings.database_url.startswith("postgresql"):
        raise ValueError(
            f"{replicas} replicas need a database that they can share: give --database "
            "postgresql://user@host/name, or one replica, since SQLite is a file of one machine"
        )


def run_replicas(settings: Settings, host: str, port: int, replicas: int, address: str) -> None:
    """Serve with so many replicas until asked to stop.

    Parameters
    ----------
    address
        Of a running Ray cluster whose nodes see the knowledge base and the data folder; empty for a
        cluster of this machine, which ends with this process.
    """
    check_replicas(settings, replicas)
    place = settings.knowledge_base
    # Other processes have other current folders.
    settings = replace(
        settled(settings, host),
        knowledge_base=place if as_url(place) else place.absolute(),
        data=settings.folder.absolute(),
    )
    engine = database.open_database(settings.database_url)
    try:
        check_tokens(Tokens(engine), host)
    finally:
        engine.dispose()
    # Loaded here first: errors show early, and replicas find version and validation rows kept.
    kept = settings.folder / "versions"
    versions = Versions(settings.knowledge_base, kept, settings.versions, network=settings.network)
    version = versions.active.version
    Validation(settings, versions.active)
    settings = replace(settings, validation={})
    # Ray Serve takes no socket, and no port that is still to be found.
    listening = listen(host, port)
    taken = listening.getsockname()[1]
    listening.close()
    connect(address, replicas)
    start_logging()
    _start(settings, host, taken, replicas)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    shown = f"[{host}]" if ":" in host else host
    report("serving", url=f"http://{shown}:{taken}", version=version, replicas=replicas)
    stopped.wait()
    _stop()


def _start(settings: Settings, host: str, port: int, replicas: int) -> None:
    from ray import serve
    from ray.exceptions import RayError

    def application() -> FastAPI:
        return build(settings)

    deployment: Any = serve.deployment(
        name="service",
        num_replicas=replicas,
        max_ongoing_requests=_HELD,
        health_check_period_s=_HEALTH_SECONDS,
        ray_actor_options={"num_cpus": 1},
    )
    wrapped: Any = serve.ingress(application)()
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": host.strip("[]"), "port": port},
            logging_config={"enable_access_log": False, "log_level": "WARNING"},
        )
        serve.run(deployment(wrapped).bind(), name=_NAME, route_prefix="/")
    except RayError as error:
        raise ValueError(
            f"Ray Serve did not start on this machine ({type(error).__name__}); if others keep it "
            "busy, try again later"
        ) from None


def _stop() -> None:
    from ray import serve

    serve.shutdown()  # type: ignore[no-untyped-call]


def build(settings: Settings) -> FastAPI:
    """Make the application of one replica; it follows the others' choice of a version."""
    torch.set_num_threads(1)
    start_logging()
    app = create_app(settings)
    follower = Follower(app.state.service)
    follower.start()
    report("replica started", process=os.getpid())
    return app


class Follower(threading.Thread):
    """Follows the version that some replica was pinned to."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._seen = service.versions.pinned

    def run(self) -> None:
        """Look again and again."""
        while True:
            try:
                self.look()
            except Exception as error:
                # The next look may find the database back again.
                report_fault(error, during="following")
            threading.Event().wait(self._service.settings.poll)

    def look(self) -> None:
        """Activate what the database says, where it says something new."""
        wanted, versions = self._service.read_pinned(), self._service.versions
        if wanted == self._seen:
            return
        self._seen = wanted
        if wanted != versions.pinned:
            try:
                versions.activate(wanted)
            except ApiError:
                report("version gone", version=wanted)
