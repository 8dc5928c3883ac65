"""The version of the code behind a result: a hash of the files it was made by, and of no others."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_ROOT = "ibcl"


@cache
def code_version(*modules: str) -> str:
    """Hash the sources of these modules and of all of this package that they import.

    A method added elsewhere changes nothing; a change in what a method is made from does.

    Examples
    --------
    >>> code_version("ibcl.preference") == code_version("ibcl.tasks")
    False
    """
    found: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if name in found or path is None:
            continue
        found[name] = path.read_bytes()
        waiting += _imported_by(name, found[name], is_package=path.name == "__init__.py")
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + found[name])
    return digest.hexdigest()[:12]


@cache
def _file_of(name: str) -> Path | None:
    # The package itself only lists names; importing one of them does not depend on the others.
    if not name.startswith(f"{_ROOT}."):
        return None
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _imported_by(name: str, source: bytes, is_package: bool) -> list[str]:
    package = name if is_package else name.rpartition(".")[0]
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names
