"""Spans for OpenTelemetry, where the operator has set it up; nothing where not."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def tracer() -> Any:
    """Return OpenTelemetry's tracer for the service, None where its software is not installed.

    The interface alone, which other packages bring along, would only cost time.

    Examples
    --------
    >>> tracer() is None or hasattr(tracer(), "start_as_current_span")
    True
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        return None
    return import_module("opentelemetry.trace").get_tracer("ibcl.serve")
