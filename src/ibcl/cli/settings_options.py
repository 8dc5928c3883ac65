"""One option for every setting that `ibcl.settings` declares, for commands that take them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Optional

import typer

from ibcl.settings import TableSettings, check_setting, declared

PANEL = "Settings, fixed by the first task"
# Settings whose values are names of a registry, which the help text lists.
_NAMED = ("network", "inference", "pooling", "likelihood")
_FLAGS = {"independent": "--independent/--sequential"}
# Old names of --independent and --sequential, which go with version 0.4.
_OLD_FLAGS = "--isolated/--chained"
# Lists of numbers, as they are written on a command line.
_NUMBERS: dict[str, type] = {"priors": float, "hidden": int}


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with the argument `settings` one option per setting in its place.

    `settings` then holds those that were given, read and checked, by their names.
    """
    signature = inspect.signature(command, eval_str=True)
    options = {name: facts for name, facts in declared(TableSettings).items() if facts[1].option}

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in options}
        isolated = arguments.pop("isolated")
        if isolated is not None:
            old, new = ("isolated", "independent") if isolated else ("chained", "sequential")
            typer.echo(
                f"Warning: --{old} is called --{new} now; the old name goes with version 0.4.",
                err=True,
            )
            values["independent"] = isolated
        given = {name: _read(name, value) for name, value in values.items() if value is not None}
        command(**arguments, settings=given)

    own = [parameter for name, parameter in signature.parameters.items() if name != "settings"]
    added = [*(_parameter(name, *facts) for name, facts in options.items()), _old_flags()]
    with_options.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    del with_options.__wrapped__
    return with_options


def _parameter(name: str, default: Any, facts: Any) -> inspect.Parameter:
    listed = f" One of {{{name}}}." if name in _NAMED else ""
    names = [_FLAGS[name]] if name in _FLAGS else []
    option = typer.Option(
        *names,
        help=facts.help + listed,
        show_default=str(default) if facts.left_open is None else facts.left_open,
        rich_help_panel=PANEL,
    )
    # Typer reads the type at run time, where a union with None must be spelled out.
    annotation = Annotated[Optional[facts.option], option]  # noqa: UP045
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _old_flags() -> inspect.Parameter:
    annotation = Annotated[Optional[bool], typer.Option(_OLD_FLAGS, hidden=True)]  # noqa: UP045
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("isolated", kind, default=None, annotation=annotation)


def _read(name: str, value: Any) -> Any:
    """Read what was written for a setting, and refuse what it cannot be."""
    from ibcl.cli.choices import choose

    if name in _NAMED:
        return choose(name, value)
    if name in _NUMBERS:
        value = numbers(value, _NUMBERS[name], name)
    if name == "expert" and value != "auto":
        raise ValueError(
            f"--expert must be auto, not {value!r}; other experts are given from Python"
        )
    if name == "memory" and value.isdecimal():
        value = int(value)
    if name not in ("inference", "pooling", "likelihood"):
        check_setting(TableSettings, name, value)
    return value


def numbers(text: str, kind: type, option: str) -> tuple[Any, ...]:
    """Read numbers separated by commas.

    Examples
    --------
    >>> numbers("2,2.5", float, "priors")
    (2.0, 2.5)
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--{option} must be numbers separated by commas, not {text!r}") from None
