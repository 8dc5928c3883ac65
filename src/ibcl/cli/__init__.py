"""The command line: one file per command, listed here, imported when asked for.

To add a command, write a function with a docstring in a file of its own and add its line to
`COMMANDS`. Import heavy packages inside the function, so that ``ibcl --help`` stays fast.
"""

from __future__ import annotations

import logging
import os
import warnings
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ibcl.cli.commands import command_group
from ibcl.names import printable
from ibcl.plugins import import_plugin

COMMANDS = {
    "demo": "ibcl.cli.demo:demo",
    "learn": "ibcl.cli.learn:learn",
    "show": "ibcl.cli.show:show",
    "generate": "ibcl.cli.generate:generate",
    "predict": "ibcl.cli.predict:predict",
    "score": "ibcl.cli.score:score",
    "forget": "ibcl.cli.forget:forget",
    "merge": "ibcl.cli.merge:merge",
    "serve": "ibcl.cli.serve:serve",
    "token": "ibcl.cli.serve:token",
    "bench": "ibcl.cli.bench:bench",
    "ablate": "ibcl.cli.bench:ablate",
    "tune": "ibcl.cli.bench:tune",
    "report": "ibcl.cli.bench:report",
    "rl": "ibcl.cli.rl:rl",
}

app = typer.Typer(
    cls=command_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ibcl {version('ibcl')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option(envvar="IBCL_DEBUG", help="Show the traceback of any error.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", envvar="IBCL_VERBOSE", help="Say what is chosen and done."),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            envvar="IBCL_PLUGINS",
            metavar="MODULE",
            help="Import a module that registers networks, likelihoods, pooling rules or inference "
            "methods of your own; may be repeated.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="IBCL_THREADS",
            help="Threads to compute with.",
            show_default="one for small matrices, all processors for large ones",
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Imprecise Bayesian continual learning.

    Learn tasks one by one, then turn any preference between them into a model at once, with no
    data and no training.
    """
    del debug  # Read from the context where an error is reported.
    warnings.showwarning = _one_line_warning
    if verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("ibcl").setLevel(logging.INFO)
    if threads is not None:
        os.environ["IBCL_THREADS"] = str(threads)
    for name in plugin or ():
        import_plugin(name)


def _one_line_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {printable(' '.join(str(message).split()))}", err=True)


def main() -> None:
    """Run the command line."""
    app()
