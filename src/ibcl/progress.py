"""One progress bar for all long work: what is done, of how much, and the time left, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ibcl.names import printable


class Bar(NamedTuple):
    """What drives a bar that is shown."""

    advance: Callable[[int], None]
    """So much more is done."""
    reach: Callable[[int], None]
    """So much is done in all."""
    say: Callable[[str], None]
    """Write a line above the bar; also where there is no terminal."""


@contextmanager
def progress_bar(title: str, total: int, done: int = 0, transient: bool = False) -> Iterator[Bar]:
    """Show how far work has come, where there is a terminal to show it on.

    Parameters
    ----------
    transient
        True removes the bar at the end.

    Examples
    --------
    >>> with progress_bar("features", total=2) as bar:
    ...     bar.advance(1)
    ...     bar.reach(2)
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=transient, disable=not console.is_terminal
    ) as shown:
        task = shown.add_task(printable(title), total=total, completed=done)
        yield Bar(
            lambda more: shown.update(task, advance=more),
            lambda now: shown.update(task, completed=now),
            lambda line: shown.console.print(
                printable(line), highlight=False, markup=False, soft_wrap=True
            ),
        )
