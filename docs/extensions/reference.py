"""The pages of the reference: one a module, and one for each of its public names.

What is public is what the modules say: ``__all__``, or else what a module defines itself without a
leading underscore. A name that `ibcl` itself offers is described there and nowhere else.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

GROUPS = {
    "The library": [
        "ibcl",
        "ibcl.networks",
        "ibcl.choices",
        "ibcl.preference",
        "ibcl.tasks",
        "ibcl.knowledge",
        "ibcl.uncertainty",
        "ibcl.store",
    ],
    "Distributions, likelihoods, inference": [
        "ibcl.gaussians",
        "ibcl.likelihoods",
        "ibcl.inference",
    ],
    "From a preference to a model": [
        "ibcl.pooling",
        "ibcl.gates",
        "ibcl.moments",
        "ibcl.model",
        "ibcl.revision",
    ],
    "Front doors": ["ibcl.encoding", "ibcl.tabular", "ibcl.serve"],
    "Experiments": [
        "ibcl.experiments.methods",
        "ibcl.experiments.benchmarks",
        "ibcl.experiments.engine",
        "ibcl.experiments.evaluation.metrics",
        "ibcl.rl",
    ],
}


def write_reference(folder: Path) -> None:
    """Write the pages; those that have not changed stay untouched, so that builds are quick."""
    folder.mkdir(exist_ok=True)
    described: set[int] = set()
    parts = ["Reference", "=========", "", "Everything public, from the docstrings.", ""]
    wanted = {"index.rst"}
    for title, modules in GROUPS.items():
        parts += [title, "-" * len(title), "", ".. toctree::", "   :maxdepth: 1", ""]
        for name in modules:
            parts.append(f"   {name}")
            wanted.add(f"{name}.rst")
            _put(folder / f"{name}.rst", _page(import_module(name), described))
        parts.append("")
    _put(folder / "index.rst", "\n".join(parts))
    for page in folder.glob("*.rst"):
        if page.name not in wanted:
            page.unlink()


def _page(module: ModuleType, described: set[int]) -> str:
    names = []
    for name in _public(module):
        value = getattr(module, name)
        if inspect.ismodule(value) or id(value) in described:
            continue
        described.add(id(value))
        names.append(name)
    title = module.__name__
    lines = [title, "=" * len(title), "", f".. automodule:: {title}", "   :no-members:", ""]
    if names:
        lines += [f".. currentmodule:: {title}", "", ".. autosummary::", "   :toctree: objects"]
        lines += ["   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    return "\n".join(lines)


def _public(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(name for name in listed if callable(getattr(module, name)))
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def _put(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
