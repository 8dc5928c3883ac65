"""Logs: one JSON object a line on standard error, and never a feature, a label or a preference."""

from __future__ import annotations

import logging
import sys
import time
import traceback
import warnings
from datetime import UTC, datetime
from typing import Any, TextIO

from pydantic_core import to_json

LOGGER = logging.getLogger("ibcl.serve")


class Event(logging.LogRecord):
    """A record of what happened, without the line of code, thread and process.

    Nobody reads these, and finding them out takes longer than answering a request.
    """

    def __init__(self, level: int, event: str, facts: dict[str, Any]) -> None:
        self.__dict__.update(_PLAIN)
        self.levelno, self.levelname = level, logging.getLevelName(level)
        self.msg, self.facts = event, facts
        self.created = time.time()


_PLAIN = logging.LogRecord(LOGGER.name, logging.INFO, "", 0, "", (), None).__dict__


class JsonLines(logging.Formatter):
    """Write a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        return to_json(facts, fallback=str).decode()


def start_logging(level: int = logging.INFO) -> None:
    """Send the service's and the web server's events, and warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    warnings.showwarning = _report_warning
    for name in ("ibcl.serve", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level if name == "ibcl.serve" else logging.WARNING)
        logger.propagate = False


def report(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Log an event with its facts."""
    if LOGGER.isEnabledFor(level):
        LOGGER.handle(Event(level, event, facts))


def _report_warning(
    message: Warning | str,  # noqa: ARG001
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Log where a warning comes from; not what it says, which may quote what a user sent."""
    where = f"{filename.rsplit('/', 1)[-1]}:{lineno}"
    report("warning", logging.WARNING, warning=category.__name__, where=where)


def report_fault(error: BaseException, **facts: Any) -> None:
    """Log where a fault happened; not its message, which may quote what a user sent."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    report("fault", logging.ERROR, error=type(error).__name__, where=where, **facts)
