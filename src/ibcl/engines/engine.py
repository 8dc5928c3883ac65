"""What an engine is: it applies a function to items, and yields an outcome for each as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Item, Result]):
    """An item, and its result or the reason why there is none."""

    item: Item
    result: Result | None = None
    error: str | None = None


class Engine(Protocol):
    """Applies a function to items somewhere."""

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Outcome[Item, Result]]:
        """Yield an outcome for every item, in the order they end."""


def attempt(function: Callable[[Item], Result], item: Item) -> tuple[Result | None, str | None]:
    """Return the function's result, or what it raised as one text.

    Examples
    --------
    >>> attempt(abs, -1)
    (1, None)
    """
    try:
        return function(item), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
