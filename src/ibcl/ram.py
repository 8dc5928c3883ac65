"""Whether a computation fits into memory, asked before it begins."""

from __future__ import annotations

import os
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/memory.max")
_STATE = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes a computation may take on this machine, or None where the system does not say."""
    candidates = [_physical(), _free(), _limit()]
    known = [value for value in candidates if value is not None]
    return min(known, default=None)


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse what would take more than the memory there is.

    Examples
    --------
    >>> check_memory(1000, "A small posterior", "nothing")
    >>> check_memory(10**18, "This posterior", "use a narrower head")
    Traceback (most recent call last):
        ...
    ValueError: This posterior needs about 931,322,574.6 GiB of memory, more than there is; use a \
narrower head.
    """
    available = available_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"{what} needs about {needed / 2**30:,.1f} GiB of memory, more than there is; {remedy}."
        )


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _free() -> int | None:
    """What Linux says can be had without swapping, caches given back."""
    try:
        lines = _STATE.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return None


def _limit() -> int | None:
    """The limit of a container."""
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None
