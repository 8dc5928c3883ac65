"""Commands that are imported when they are asked for, and errors of one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

# What wrong files, columns, preferences or settings raise; everything else is a fault of ours.
USER_ERRORS = (ValueError, OSError, LookupError, ImportError)


def command_group(commands: Mapping[str, str]) -> type[TyperGroup]:
    """Return a group of commands, each given as ``"module:function"`` and imported when used."""

    class CommandGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return None
            module, function = commands[cmd_name].split(":")
            app = typer.Typer(add_completion=False)
            app.command(cmd_name)(getattr(import_module(module), function))
            return typer.main.get_command(app)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except Exception as error:
                # What has an exit code already was made for the command line by typer.
                finished = hasattr(error, "exit_code")
                if finished or isinstance(error, typer.Abort | BrokenPipeError):
                    raise
                if ctx.params["debug"]:
                    raise
                typer.echo(f"Error: {sentence(error)}", err=True)
                raise typer.Exit(2 if isinstance(error, USER_ERRORS) else 1) from None

    return CommandGroup


def sentence(error: Exception) -> str:
    """Say in one sentence what went wrong.

    Examples
    --------
    >>> sentence(ValueError("The file is empty"))
    'The file is empty.'
    >>> sentence(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'a.csv: no such file or directory.'
    >>> sentence(ZeroDivisionError("division by zero")).split(";")[0]
    'Something went wrong inside ibcl (ZeroDivisionError: division by zero)'
    """
    if isinstance(error, ModuleNotFoundError):
        text = f"This command needs the package {error.name!r}: install it and try again"
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    elif isinstance(error, USER_ERRORS):
        text = str(error.args[0] if error.args else error)
    else:
        return (
            f"Something went wrong inside ibcl ({type(error).__name__}: {error}); "
            "run `ibcl --debug ...` to see where."
        )
    return " ".join(text.split()).rstrip(".") + "."
