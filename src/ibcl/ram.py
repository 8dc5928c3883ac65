"""Whether a computation fits into memory, asked before it begins.

What one call may take is bounded by the machine, and by the environment variable ``IBCL_MEMORY``,
such as ``2GiB``. Rows are worked on so many at a time that it suffices; what cannot be done in
blocks, and would take more, is refused beforehand with an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

SETTING = "IBCL_MEMORY"
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
# What each number of a row's densities and answers takes, with all that is held on the way; by
# measurement (tests/test_memory_of_a_call.py).
_BYTES_PER_NUMBER = 128
# Of what a call may take, blocks of rows take this part; and at most so many bytes.
_BLOCK_SHARE, _LARGEST_BLOCK = 4, 2**30
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_STATE = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes a computation may take on this machine, or None where the system does not say."""
    candidates = [_physical(), _free(), _limit(), memory_setting()]
    known = [value for value in candidates if value is not None]
    return min(known, default=None)


def memory_setting() -> int | None:
    """Bytes that one call may take by ``IBCL_MEMORY``; None where it is not set.

    Examples
    --------
    >>> os.environ["IBCL_MEMORY"] = "1.5 GiB"
    >>> memory_setting()
    1610612736
    >>> del os.environ["IBCL_MEMORY"]
    """
    text = os.environ.get(SETTING, "").strip()
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)?", text.upper())
    if found is None:
        raise ValueError(f"{SETTING} must be a number of bytes or such as 500MB or 2GiB: {text!r}.")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def bytes_per_row(tasks: int, columns: int) -> int:
    """Bytes that all tasks' densities and answers take for one row, roughly.

    Examples
    --------
    >>> bytes_per_row(tasks=5, columns=2)
    3200
    """
    return _BYTES_PER_NUMBER * tasks * (2 * columns + 1)


def rows_at_once(bytes_a_row: int) -> int:
    """Return how many rows are worked on together, where each takes so many bytes.

    Examples
    --------
    >>> rows_at_once(2**20)
    1024
    """
    setting = memory_setting()
    room = _LARGEST_BLOCK if setting is None else min(_LARGEST_BLOCK, setting // _BLOCK_SHARE)
    return max(1, room // max(1, bytes_a_row))


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
        amount = f"{what} needs about {_gibibytes(needed)} of memory, more than"
        if available == memory_setting():
            raise ValueError(
                f"{amount} the {_gibibytes(available)} that {SETTING} allows; {remedy}, or set "
                f"{SETTING} higher."
            )
        raise ValueError(f"{amount} there is; {remedy}.")


def _gibibytes(number: int) -> str:
    return f"{number / 2**30:,.1f} GiB" if number >= 2**28 else f"{number / 2**20:,.1f} MiB"


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
