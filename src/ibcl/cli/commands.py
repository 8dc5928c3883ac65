"""Commands that are imported when they are asked for, and errors of one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ibcl.cli.choices import fill_in
from ibcl.cli.wording import exit_code, sentence
from ibcl.names import printable


class Command(TyperCommand):
    """A command whose help shows every word, brackets and the names in registries too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the choices there are now."""
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text:
                parameter.help = _without_markup(fill_in(text))  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def command_group(commands: Mapping[str, str]) -> type[TyperGroup]:
    """Return a group of commands, each given as ``"module:function"`` and imported when used.

    In the function's place there may be a `typer.Typer` with commands of its own.
    """

    class CommandGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return None
            module, name = commands[cmd_name].split(":")
            app = getattr(import_module(module), name)
            if not isinstance(app, typer.Typer):
                function, app = app, typer.Typer(add_completion=False)
                app.command(cmd_name, cls=Command)(function)
            command = typer.main.get_command(app)
            # A group of commands has no name of its own, and would be listed without one.
            command.name = cmd_name
            command.help = _paragraphs(_without_markup(command.help or ""))
            return command

        def make_context(self, *arguments: Any, **settings: Any) -> Any:
            try:
                return super().make_context(*arguments, **settings)
            except Exception as error:
                _make_printable(error)
                raise

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except Exception as error:
                # What has an exit code already was made for the command line by typer.
                if hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError):
                    _make_printable(error)
                    raise
                if ctx.params["debug"]:
                    raise
                # A way out may be to learn with another setting, whatever the command.
                learn = self.get_command(ctx, "learn")
                command = self.get_command(ctx, ctx.invoked_subcommand or "")
                options = {
                    parameter.name: parameter.opts[0]
                    for each in (learn, command)
                    for parameter in getattr(each, "params", ())
                    if parameter.opts[0].startswith("--")
                }
                typer.echo(f"Error: {sentence(error, options)}", err=True)
                raise typer.Exit(exit_code(error)) from None

    return CommandGroup


def _without_markup(text: str) -> str:
    """Return help that is shown word for word."""
    from rich.markup import escape

    return escape(text)


def _paragraphs(text: str) -> str:
    """Return help whose lines end where the terminal does, and not where they do in the source."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _make_printable(error: Exception) -> None:
    """Let no control character of an argument reach the terminal by way of typer's errors."""
    message = getattr(error, "message", None)
    if isinstance(message, str):
        error.message = "\n".join(map(printable, message.splitlines()))  # type: ignore[attr-defined]
