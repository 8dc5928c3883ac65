"""Change the core at random, one small change at a time, and say which changes no test notices.

    OMP_NUM_THREADS=1 python timings/mutation.py --changes 60 --seed 0 --minutes 20 routing gates

Each change is made in a copy of the sources, never in the working tree. Comparisons, signs,
constants, `and` and `or`, conditions and returned values are changed; docstrings, annotations and
what only words an error are left alone. Modules stand beside the tests that should notice.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
_GAUSSIANS = ["gaussians/test_algebra", "gaussians/test_families", "test_pooling"]
_LIKELIHOODS = ["likelihoods/test_likelihoods", "likelihoods/test_quadrature"]
_INFERENCE = ["inference/test_dense", "inference/test_weights", "inference/test_one_vs_rest"]
_TABULAR = ["tabular/test_schema", "tabular/test_targets", "estimator/test_tables"]
# Tests in the order in which they most probably notice.
TESTS: dict[str, list[str]] = {
    "moments": ["test_moments"],
    "gates": ["test_gates"],
    "routing": ["test_routing", "test_many", "test_choices"],
    "pooling/routed": ["test_routing", "test_gates", "test_many", "test_choices"],
    "pooling/evidence": ["test_pooling", "test_learner", "test_routing"],
    "pooling/rule": ["test_pooling", "test_learner", "test_many"],
    "predictors": ["test_predictors", "test_routing", "test_learner"],
    "many": ["test_many"],
    "inferred_preference": ["test_inferred_preference"],
    "choices": ["test_choices", "test_learner"],
    "view": ["test_view", "test_many", "test_inferred_preference", "test_learner"],
    "model": ["test_model", "test_learner", "test_routing", "test_predictors"],
    "learner": ["test_learner", "test_view", "test_routing", "test_choices", "test_many"],
    "learning": ["test_learner", "test_routing", "test_choices"],
    "generation": ["test_view", "test_model", "test_routing"],
    "knowledge": ["test_knowledge", "test_pooling", "test_revision", "test_learner"],
    "region": ["test_region"],
    "preference": ["test_preference"],
    "revision": ["test_revision", "test_routing"],
    "networks": ["test_networks", "test_learner", "test_choices"],
    "mixture": ["test_mixture"],
    "closed_form": ["test_model", "estimator/test_estimator"],
    "uncertainty": ["test_uncertainty"],
    "tasks": ["test_tasks", "test_learner"],
    "names": ["test_names"],
    "memory": ["test_memory"],
    "gaussians/distribution": _GAUSSIANS,
    "gaussians/natural": _GAUSSIANS,
    "gaussians/diagonal": _GAUSSIANS,
    "gaussians/dense": [*_GAUSSIANS, "store/test_compact"],
    "gaussians/low_rank": [*_GAUSSIANS, "store/test_compact"],
    "gaussians/block_diagonal": [*_GAUSSIANS, "store/test_compact"],
    "gaussians/independent": _GAUSSIANS,
    "likelihoods/likelihood": _LIKELIHOODS,
    "likelihoods/bernoulli": _LIKELIHOODS,
    "likelihoods/categorical": _LIKELIHOODS,
    "likelihoods/one_vs_rest": [*_LIKELIHOODS, "inference/test_one_vs_rest"],
    "likelihoods/normal": _LIKELIHOODS,
    "likelihoods/poisson": _LIKELIHOODS,
    "likelihoods/quadrature": _LIKELIHOODS,
    "likelihoods/registry": [*_LIKELIHOODS, "test_choices"],
    "inference/dense": _INFERENCE,
    "inference/head": _INFERENCE,
    "inference/marginal_likelihood": ["inference/test_marginal_likelihood"],
    "inference/mean_field": ["inference/test_mean_field", "inference/test_weights"],
    "inference/one_vs_rest": ["inference/test_one_vs_rest", *_INFERENCE],
    "inference/reparametrisation": ["inference/test_mean_field", "inference/test_weights"],
    "inference/sites": _INFERENCE,
    "files": ["store/test_files", "store/test_faults"],
    "store/description": ["store/test_store", "store/test_manifest", "store/test_models"],
    "store/manifest": ["store/test_manifest", "store/test_damage", "store/test_store"],
    "store/models": ["store/test_models"],
    "store/posteriors": ["store/test_compact", "store/test_store", "store/test_damage"],
    "store/storage": ["store/test_places", "store/test_compact", "store/test_store"],
    "tabular/answers": ["estimator/test_estimator"],
    "tabular/columns": _TABULAR,
    "tabular/heads": [*_TABULAR, "estimator/test_estimator"],
    "tabular/schema": _TABULAR,
    "tabular/tables": _TABULAR,
    "tabular/targets": ["tabular/test_targets", "tabular/test_schema"],
    "tabular/values": _TABULAR,
    "tabular/weights": [*_TABULAR, "estimator/test_estimator"],
}
# Seconds after which tests have not ended.
LONGEST = 300
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
}


Steps = tuple[tuple[str, int | None], ...]


class Change(NamedTuple):
    """One changed node of a module's tree, and the way to it from the root."""

    module: str
    line: int
    before: str
    after: ast.AST
    path: Steps


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """Small changes of one node."""
    changed = copy.copy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in COMPARISONS:
        changed.ops = [COMPARISONS[type(changed.ops[0])](), *changed.ops[1:]]
        yield changed
    elif isinstance(changed, ast.BinOp) and type(changed.op) in OPERATORS:
        changed.op = OPERATORS[type(changed.op)]()
        yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not | ast.USub):
        yield changed.operand
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        changed.value = not changed.value
        yield changed
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, int | float):
        for value in (changed.value + 1, changed.value - 1):
            yield ast.Constant(value)
    elif isinstance(changed, ast.IfExp):
        yield ast.IfExp(changed.test, changed.orelse, changed.body)
    elif isinstance(changed, ast.Return) and not isinstance(changed.value, ast.Constant | None):
        yield ast.Return(ast.Constant(None))


def _left_alone(node: ast.AST) -> bool:
    """Whether nothing inside this node may change: errors, annotations, logging."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
        return True
    return isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__")


def _places(node: ast.AST, path: Steps = ()) -> Iterator[tuple[ast.AST, Steps]]:
    """Every node that may change, with the way to it from the root."""
    if _left_alone(node):
        return
    yield node, path
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(value, ast.AST):
            yield from _places(value, (*path, (name, None)))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _places(item, (*path, (name, index)))


def changes_of(module: str) -> list[Change]:
    """Every small change of a module."""
    return [
        Change(module, getattr(node, "lineno", 0), ast.unparse(node), variant, path)
        for node, path in _places(_tree(module))
        for variant in _variants(node)
    ]


def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / "src" / "ibcl" / f"{module}.py").read_text())


def changed_source(change: Change) -> str:
    """Return the module with this change."""
    tree = _tree(change.module)
    parent: ast.AST = tree
    for name, index in change.path[:-1]:
        value = getattr(parent, name)
        parent = value if index is None else value[index]
    name, index = change.path[-1]
    if index is None:
        setattr(parent, name, change.after)
    else:
        getattr(parent, name)[index] = change.after
    return ast.unparse(ast.fix_missing_locations(tree))


def noticed(change: Change, folder: Path, passing: set[str]) -> bool:
    """Whether a test fails, or does not end, with this change, and passes without it.

    Parameters
    ----------
    passing
        Tests known to pass without a change.
    """
    target = folder / "ibcl" / f"{change.module}.py"
    kept = target.read_text()
    target.write_text(changed_source(change))
    tests = [str(ROOT / "tests" / f"{name}.py") for name in TESTS[change.module]]
    found, failed = _fails(tests, folder)
    target.write_text(kept)
    if failed and failed not in passing:
        if _fails([str(ROOT / failed)], folder)[0]:
            raise SystemExit(f"{failed} fails without a change; mend it first.")
        passing.add(failed)
    return found


def _fails(tests: list[str], folder: Path) -> tuple[bool, str]:
    """Whether a test fails on the copy, and which one, if it says."""
    record = folder / "failed"
    record.write_text("")
    child = os.fork()
    if child == 0:
        _run_tests(tests, folder, record)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0, record.read_text()


class _FirstFailure:
    """Keeps the name of the first test that fails."""

    def __init__(self, record: Path) -> None:
        self.record = record

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.record.write_text(report.nodeid)


def _run_tests(tests: list[str], folder: Path, record: Path) -> NoReturn:
    """Run tests on the copy, in a process of their own."""
    os.chdir(ROOT)
    # Of the processor's time, so that a busy machine does not look like an endless loop.
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.path.insert(0, str(folder))
    # What takes long and says nothing else than the rest.
    slow = "not onnx and not exported and not traced and not optimiser and not repeated"
    # Plugins take longer to load than most of these tests to run, and they need none.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    settings = "addopts=--import-mode=importlib"
    options = ["-q", "-x", "-o", settings, "-p", "no:cacheprovider", "-k", slow]
    os._exit(int(pytest.main([*options, *tests], plugins=[_FirstFailure(record)])))


def _import_the_rest() -> None:
    """Import what takes seconds, once for all changes; nothing of it is changed."""
    names = ("pandas", "sklearn.datasets", "sklearn.linear_model", "scipy.optimize", "scipy.stats")
    for name in ("torch", "torch.func", "hypothesis", "pydantic", "safetensors.torch", *names):
        import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="of src/ibcl")
    parser.add_argument("--changes", type=int, default=40, help="how many to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=25.0, help="stop after these")
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    # As many of each module, in turn, so that large ones do not hide the small.
    pools = [changes_of(module) for module in arguments.modules or TESTS]
    for pool in pools:
        generator.shuffle(pool)
    chosen = [pool[i] for i in range(max(map(len, pools))) for pool in pools if i < len(pool)]
    _import_the_rest()
    end = time.monotonic() + 60 * arguments.minutes
    killed = tried = 0
    passing: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "src" / "ibcl", folder / "ibcl")
        for change in chosen[: arguments.changes]:
            if time.monotonic() > end:
                break
            found = noticed(change, folder, passing)
            tried, killed = tried + 1, killed + found
            word = "noticed " if found else "SURVIVED"
            texts = (change.before, ast.unparse(change.after))
            before, after = (" ".join(text.split())[:90] for text in texts)
            print(f"{word} {change.module}:{change.line}: {before}  ->  {after}", flush=True)
    print(f"{killed} of {tried} changes were noticed ({killed / max(1, tried):.0%})")


if __name__ == "__main__":
    main()
