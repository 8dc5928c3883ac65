"""The service as a process: what it refuses to start with, and how it runs."""

from __future__ import annotations

import gc
import socket
from dataclasses import replace

import torch
import uvicorn
from fastapi import FastAPI

from ibcl.serve.app import create_app
from ibcl.serve.logs import report, start_logging
from ibcl.serve.protocol import bounded
from ibcl.serve.service import Service
from ibcl.serve.settings import Settings, is_loopback
from ibcl.serve.tokens import Tokens


def run(settings: Settings, host: str, port: int) -> None:
    """Serve until asked to stop."""
    # One row's matrices are faster on one thread, and the web server needs the other ones.
    torch.set_num_threads(1)
    settings = settled(settings, host)
    app = create_app(settings)
    service: Service = app.state.service
    try:
        check_tokens(service.tokens, host)
        listening = listen(host, port)
    except BaseException:
        service.close()
        raise
    start_logging()
    address, taken = listening.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    report("serving", url=f"http://{shown}:{taken}", version=service.versions.active.version)
    # What was loaded stays until the end; looking through it for garbage would only take time.
    gc.collect()
    gc.freeze()
    uvicorn.Server(configuration(app, settings)).run(sockets=[listening])


def configuration(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return how the web server runs an application."""
    return uvicorn.Config(
        app,
        http=bounded(settings),
        # Nothing here speaks it, and it would be another way in.
        ws="none",
        # Who asks is who is connected: headers that say otherwise can be written by anybody.
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=settings.drain_seconds,  # type: ignore[arg-type]
    )


def settled(settings: Settings, host: str) -> Settings:
    """Return settings with which callers need tokens wherever others than this machine can ask.

    Examples
    --------
    >>> from pathlib import Path
    >>> settled(Settings(Path("movies.ibcl")), "0.0.0.0").tokens_required
    True
    """
    return settings if is_loopback(host) else replace(settings, tokens_required=True)


def check_tokens(tokens: Tokens, host: str) -> None:
    """Refuse to listen where callers need tokens and there are none to show."""
    if not is_loopback(host) and not tokens.facts():
        raise ValueError(
            f"Listening on {host} lets others ask, so callers need tokens: make one with "
            "'ibcl token' first, or listen on 127.0.0.1"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes callers at an address; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
    except OSError as error:
        listening.close()
        raise ValueError(f"Cannot listen on {host}:{port}: {error.strerror}") from None
    listening.listen(2048)
    return listening
