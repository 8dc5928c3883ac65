"""What commands print: tables for people, one JSON object for machines, progress on stderr.

Names of tasks, columns, classes and files are somebody else's text: none of it is taken as markup,
and no control character in it reaches the terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ibcl.names import printable

if TYPE_CHECKING:
    from ibcl.inference import Progress, ProgressCallback

# Wide enough for the tables here where the output is a file or a pipe.
_WIDTH_OF_A_PIPE = 120


def emit(result: Mapping[str, Any], as_json: bool, *renderables: Any) -> None:
    """Print the result as JSON, or what stands for it on a terminal; texts are lines."""
    if as_json:
        typer.echo(as_json_line(result))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_PIPE)
    for renderable in renderables:
        plain = isinstance(renderable, str)
        console.print(Text(printable(renderable)) if plain else renderable, highlight=False)


def as_json_line(result: Mapping[str, Any]) -> str:
    r"""Write one line of JSON, with whatever a terminal must not see escaped.

    Examples
    --------
    >>> as_json_line({"ä": "\x9b", "b": float("nan")})
    '{"ä": "\\u009b", "b": null}'
    """
    line = json.dumps(_plain(result), ensure_ascii=False, allow_nan=False)
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in line
    )


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Return a rich table, with numbers to the right and text to the left."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(
        title=Text(printable(title)), box=box.SIMPLE, title_justify="left", title_style="bold"
    )
    for position, column in enumerate(columns):
        numeric = all(isinstance(row[position], int | float | None) for row in rows)
        result.add_column(
            Text(printable(column)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        result.add_row(*(Text(printable(text(value))) for value in row))
    return result


def count(number: int, noun: str) -> str:
    """Write a number of things.

    Examples
    --------
    >>> count(1, "task"), count(2000, "task")
    ('1 task', '2,000 tasks')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def text(value: Any) -> str:
    """Write a value for a table.

    Examples
    --------
    >>> text(None), text(1234567), text(0.98765), text(1.23e-7)
    ('–', '1,234,567', '0.9877', '1e-07')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-4 else f"{value:.0e}"
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value)
    return str(value)


def _plain(value: Any) -> Any:
    """Turn tuples, paths and numbers that JSON does not know into what it does."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int | str | None) else str(value)


@contextmanager
def progress_bar(description: str, hidden: bool) -> Iterator[ProgressCallback]:
    """Show how far learning has come, on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    disable = hidden or not console.is_terminal
    with Bar(*columns, console=console, disable=disable, transient=True) as bar:
        task = bar.add_task(printable(description), total=None)

        def show(progress: Progress) -> None:
            bar.update(task, completed=progress.done, total=progress.total)

        yield show


@contextmanager
def stages(hidden: bool) -> Iterator[Callable[[str], None]]:
    """Show which stage of some longer work is under way, on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, quiet=hidden)
    with console.status("Starting") as status:
        yield lambda stage: status.update(Text(printable(stage)))
