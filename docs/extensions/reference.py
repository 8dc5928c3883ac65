"""The pages of the reference: one per module, and one for each of its public names.

What is public is what the modules say: ``__all__``, or else what a module defines itself without a
leading underscore. A name that `ibcl` itself offers is described there and nowhere else.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

OBJECTS = Path("objects")
GROUPS = {
    "The library": [
        "ibcl",
        "ibcl.networks",
        "ibcl.settings",
        "ibcl.defaults",
        "ibcl.state",
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
        "ibcl.predictive",
        "ibcl.pooling",
        "ibcl.routing",
        "ibcl.model",
        "ibcl.conformal",
        "ibcl.merging",
    ],
    "Front doors": ["ibcl.encoding", "ibcl.tabular", "ibcl.serve"],
    "Ways out": ["ibcl.onnx", "ibcl.mlflow", "ibcl.hub"],
    "Experiments": [
        "ibcl.experiments.methods",
        "ibcl.experiments.benchmarks",
        "ibcl.engines",
        "ibcl.experiments.evaluation.metrics",
        "ibcl.rl",
    ],
}


def write_reference(folder: Path) -> dict[str, str]:
    """Write the pages; those that have not changed stay untouched, so that builds are quick.

    Returns
    -------
    Other file names for classes that a file system without upper case could not tell from a
    function, by their full names.
    """
    folder.mkdir(exist_ok=True)
    described: set[int] = set()
    objects: dict[str, str] = {}
    parts = ["Reference", "=========", "", "Everything public, from the docstrings.", ""]
    wanted = {Path("index.rst")}
    for title, modules in GROUPS.items():
        parts += [title, "-" * len(title), "", ".. toctree::", "   :maxdepth: 1", ""]
        for name in modules:
            parts.append(f"   {name}")
            module = import_module(name)
            names = _new(module, described)
            _put(folder / f"{name}.rst", _page(name, names))
            wanted.add(Path(f"{name}.rst"))
            objects |= {f"{name}.{own}": _file_name(name, own, names) for own in names}
        parts.append("")
    _put(folder / "index.rst", "\n".join(parts))
    wanted |= {OBJECTS / f"{name}.rst" for name in objects.values()}
    for page in folder.rglob("*.rst"):
        if page.relative_to(folder) not in wanted:
            page.unlink()
    return {name: other for name, other in objects.items() if name != other}


def _file_name(module: str, name: str, names: list[str]) -> str:
    clash = name != name.lower() and name.lower() in names
    return f"{module}.{name}.class" if clash else f"{module}.{name}"


def _new(module: ModuleType, described: set[int]) -> list[str]:
    """Public names of a module whose objects are not described yet."""
    names = []
    for name in _public(module):
        value = getattr(module, name)
        if id(value) not in described:
            described.add(id(value))
            names.append(name)
    return names


def _page(title: str, names: list[str]) -> str:
    lines = [title, "=" * len(title), "", f".. automodule:: {title}", "   :no-members:", ""]
    if names:
        lines += [f".. currentmodule:: {title}", "", ".. autosummary::", f"   :toctree: {OBJECTS}"]
        lines += ["   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    return "\n".join(lines)


def _public(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(name for name in listed if _described_here(getattr(module, name)))
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def _described_here(value: object) -> bool:
    """Whether it is a class or function of ours, not a table or another library's type."""
    return callable(value) and str(getattr(value, "__module__", "")).startswith("ibcl")


def _put(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
