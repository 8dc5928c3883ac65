"""Metadata that a file does not give back as it was."""

from typing import Any


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value
