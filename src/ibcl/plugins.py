"""Plugins: modules of the user's that register parts of their own, in every process that works."""

from __future__ import annotations

import os
import sys
from importlib import import_module

_IMPORTED: dict[str, str] = {}


def import_plugin(name: str, folder: str | None = None) -> None:
    """Import a module, also from a folder: without one, that in which the command was given.

    Examples
    --------
    >>> import_plugin("json")
    >>> "json" in imported_plugins()
    True
    >>> import_plugin("no_such_module")
    Traceback (most recent call last):
    ...
    ValueError: The plugin 'no_such_module' cannot be imported (ModuleNotFoundError: No module \
named 'no_such_module')
    """
    folder = os.getcwd() if folder is None else folder
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        import_module(name)
    # Whatever a user's module raises, it is no fault of this library.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"The plugin {name!r} cannot be imported ({reason})") from error
    _IMPORTED[name] = folder


def imported_plugins() -> dict[str, str]:
    """Return the plugins imported so far, with their folders: what a worker must import too."""
    return dict(_IMPORTED)
