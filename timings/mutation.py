"""Change the core at random, one small change at a time, and say which changes no test notices.

    OMP_NUM_THREADS=1 python timings/mutation.py --changes 60 --seed 0 --minutes 20 routing/gate

Comparisons, signs, constants, `and` and `or`, conditions and returned values are changed; with
``--kind other`` statements are left out, arguments and branches swapped, `min` and `max` exchanged
and comparisons turned around. Docstrings, annotations and what only words an error are left alone.

The tests run once to learn which of them run which lines; ``--record`` keeps that in a file. A
change is then made in a forked process that has collected the tests already, in the compiled
function, and only tests that run its line follow, the quickest first. What is outside of functions
is changed in a copy of the sources and imported afresh. The working tree is never touched.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "ibcl"
# The core and its tests lie here, but for what needs a server, another process or a log.
FOLDERS = ("", "knowledge/", "preference/", "routing/", "pooling/", "gaussians/", "likelihoods/")
FOLDERS += ("inference/", "store/", "tabular/")
TESTS = (*FOLDERS, "estimators/")
LEFT_OUT = {"__init__", "run_logs", "progress", "objects", "remote"}
LEFT_OUT |= {f"test_{name}" for name in ("run_logs", "devices", "import", "killed", "layers")}
LEFT_OUT |= {f"test_{name}" for name in ("logging", "remote", "threads", "wheel")}


def _names(root: Path, folders: tuple[str, ...], pattern: str) -> list[str]:
    """Return the names of Python files in these folders, without those left out."""
    return [
        f"{folder}{path.stem}"
        for folder in folders
        for path in sorted((root / folder).glob(pattern))
        if path.stem not in LEFT_OUT
    ]


MODULES = _names(SOURCES, FOLDERS, "*.py")
FILES = _names(ROOT / "tests", TESTS, "test_*.py")
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
TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
}
# Functions to which the order of their arguments means nothing.
SYMMETRIC = {"min", "max", "minimum", "maximum", "equal", "allclose", "hypot"}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
NAMES |= {"argmax": "argmin", "argmin": "argmax", "amax": "amin", "floor": "ceil", "ceil": "floor"}
NAMES |= {"zeros": "ones", "zeros_like": "ones_like", "new_zeros": "new_ones", "sum": "mean"}


Steps = tuple[tuple[str, int | None], ...]


class Change(NamedTuple):
    """One changed node of a module's tree, and the way to it from the root."""

    module: str
    line: int
    before: str
    after: ast.AST
    path: Steps

    def __str__(self) -> str:
        texts = (self.before, ast.unparse(self.after))
        before, after = (" ".join(text.split())[:90] for text in texts)
        return f"{self.module}:{self.line}: {before}  ->  {after}"


def _small_variants(node: ast.AST) -> Iterator[ast.AST]:
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


def _other_variants(node: ast.AST) -> Iterator[ast.AST]:
    """Changes of another kind."""
    changed = copy.copy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in TURNED:
        changed.ops = [TURNED[type(changed.ops[0])](), *changed.ops[1:]]
        yield changed
    elif isinstance(changed, ast.Call) and len(changed.args) > 1:
        name = ast.unparse(changed.func).split(".")[-1]
        starred = any(isinstance(argument, ast.Starred) for argument in changed.args[:2])
        if not starred and name not in SYMMETRIC:
            changed.args = [changed.args[1], changed.args[0], *changed.args[2:]]
            yield changed
    elif isinstance(changed, ast.Name) and changed.id in NAMES:
        yield ast.Name(NAMES[changed.id], changed.ctx)
    elif isinstance(changed, ast.Attribute) and changed.attr in NAMES:
        yield ast.Attribute(changed.value, NAMES[changed.attr], changed.ctx)
    elif isinstance(changed, ast.If | ast.While):
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
        if isinstance(node, ast.If):
            yield ast.Pass()
    elif isinstance(changed, ast.Expr | ast.AugAssign | ast.Break | ast.Continue):
        if not (isinstance(changed, ast.Expr) and isinstance(changed.value, ast.Constant)):
            yield ast.Pass()
    elif isinstance(changed, ast.BinOp) and isinstance(changed.op, ast.Sub | ast.Div | ast.MatMult):
        changed.left, changed.right = changed.right, changed.left
        yield changed
    elif isinstance(changed, ast.Slice):
        if changed.lower is not None:
            yield ast.Slice(None, changed.upper, changed.step)
        if changed.upper is not None:
            yield ast.Slice(changed.lower, None, changed.step)


KINDS: dict[str, tuple[Callable[[ast.AST], Iterator[ast.AST]], ...]] = {
    "small": (_small_variants,),
    "other": (_other_variants,),
    "both": (_small_variants, _other_variants),
}


def _left_alone(node: ast.AST) -> bool:
    """Whether nothing inside this node may change: errors, assertions, annotations."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":
        # As an assertion: it holds whatever is asked of the function.
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


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((SOURCES / f"{module}.py").read_text())


def changes_of(module: str, kind: str) -> list[Change]:
    """Every change of a module."""
    return [
        Change(module, getattr(node, "lineno", 0), ast.unparse(node), variant, path)
        for node, path in _places(_tree(module))
        for variants in KINDS[kind]
        for variant in variants(node)
    ]


def changes_at(place: str, kind: str) -> list[Change]:
    """Every change of a module, or of one line of it: ``"names"``, ``"routing/gate:120"``."""
    module, _, line = place.partition(":")
    return [change for change in changes_of(module, kind) if line in ("", str(change.line))]


def _nodes(tree: ast.AST, path: Steps) -> list[ast.AST]:
    """Return the nodes on a way, from the root on."""
    found = [tree]
    for name, index in path:
        value = getattr(found[-1], name)
        found.append(value if index is None else value[index])
    return found


def changed_tree(change: Change) -> ast.Module:
    """Return the module with this change, every line in its place."""
    tree = copy.deepcopy(_tree(change.module))
    *_, parent, changed = _nodes(tree, change.path)
    name, index = change.path[-1]
    after = ast.copy_location(copy.deepcopy(change.after), changed)
    if index is None:
        setattr(parent, name, after)
    else:
        getattr(parent, name)[index] = after
    return ast.fix_missing_locations(tree)


def _function_of(change: Change) -> ast.FunctionDef | None:
    """Return the outermost function whose body holds the change."""
    nodes = _nodes(_tree(change.module), change.path)
    for node, (name, _) in zip(nodes, change.path, strict=False):
        if isinstance(node, ast.FunctionDef):
            return node if name == "body" else None
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def put_in_place(change: Change) -> None:
    """Give the function that is loaded already its changed code."""
    function = _function_of(change)
    assert function is not None
    path = str(SOURCES / f"{change.module}.py")
    module = compile(changed_tree(change), path, "exec", dont_inherit=True)
    first = min([function.lineno, *(node.lineno for node in function.decorator_list)])
    places = {(function.name, function.lineno), (function.name, first)}
    (new,) = {code for code in _codes(module) if (code.co_name, code.co_firstlineno) in places}
    gc.unfreeze()
    loaded = [
        made
        for made in gc.get_objects()
        if isinstance(made, FunctionType)
        and made.__code__.co_filename == path
        and (made.__code__.co_qualname, made.__code__.co_firstlineno)
        == (new.co_qualname, new.co_firstlineno)
    ]
    if not loaded:
        raise LookupError(f"{change}: {new.co_qualname} is not loaded.")
    for made in loaded:
        made.__code__ = new


class Record:
    """Which tests run which lines, by the lines' words, and how many seconds they take."""

    def __init__(self, path: Path, seconds: float, files: list[str]) -> None:
        self.path, self.seconds = path, seconds
        self.files: dict[str, dict[str, Any]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )
        # Examples in docstrings are tests too.
        examples = [f"src/ibcl/{module}.py" for module in MODULES] if files == FILES else []
        self.names = [*(f"tests/{name}.py" for name in files), *examples]

    def missing(self) -> list[str]:
        """Return the files of tests that are not recorded as they are."""
        return [
            name for name in self.names if self.files.get(name, {}).get("digest") != _digest(name)
        ]

    def complete(self) -> None:
        """Run, in a process of its own, the tests of changed files that are not recorded."""
        missing = {name: _digest(name) for name in self.missing()}
        if missing:
            known = {name: self.files.get(name, {}).get("tests", {}) for name in missing}
            recorder = _Recorder({test for tests in known.values() for test in tests})
            child = os.fork()
            if child == 0:
                _pytest(list(missing), recorder)
                for name, digest in missing.items():
                    tests = {**known[name], **recorder.tests[name]}
                    self.files[name] = {"digest": digest, "tests": tests}
                self.path.write_text(json.dumps(self.files))
                os._exit(0)
            os.waitpid(child, 0)
            self.files = json.loads(self.path.read_text())

    def tests_of(self, change: Change) -> list[str]:
        """Return the tests that run the change's line: the quickest case of each function first.

        Then follows another case of each, and so on, since cases of one function mostly notice the
        same; in all as many as the seconds allow.
        """
        inside = _function_of(change) is not None
        words = _words(change) if inside else set()
        functions: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for name in self.names:
            if not inside and name.startswith("src"):
                # Examples in docstrings are imported from the working tree, not from a copy.
                continue
            for test, found in self.files[name]["tests"].items():
                lines = found["lines"].get(change.module)
                if lines and (not inside or not words.isdisjoint(lines)):
                    functions[test.split("[")[0]].append((found["seconds"], test))
        rounds = sorted(
            (turn, *case) for cases in functions.values() for turn, case in enumerate(sorted(cases))
        )
        chosen, total = [], 0.0
        for _, seconds, test in rounds:
            if not chosen or total + seconds <= self.seconds:
                chosen.append(test)
                total += seconds
        return chosen


def _digest(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


def _words(change: Change) -> set[str]:
    """Return the line of the change and the first of its statement, without their place."""
    lines = (SOURCES / f"{change.module}.py").read_text().splitlines()
    nodes = _nodes(_tree(change.module), change.path)
    statement = [node for node in nodes if isinstance(node, ast.stmt)][-1]
    return {lines[change.line - 1].strip(), lines[statement.lineno - 1].strip()}


class _Recorder:
    """A plugin of pytest that writes down which lines each test runs, but for those known."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.tests: dict[str, dict[str, Any]] = defaultdict(dict)
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._wanted = {str(SOURCES / f"{module}.py"): module for module in MODULES}
        self._texts = {
            module: (SOURCES / f"{module}.py").read_text().splitlines() for module in MODULES
        }

    def _trace(self, frame: FrameType, *_: object) -> Any:
        module = self._wanted.get(frame.f_code.co_filename)
        if module is None:
            return None
        add = self._lines[module].add

        def line(frame: FrameType, *_: object) -> Any:
            add(frame.f_lineno)
            return line

        return line

    def _text(self, module: str, numbers: set[int]) -> list[str]:
        return sorted({self._texts[module][number - 1].strip() for number in numbers})

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.known]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines = defaultdict(set)
        self._passed = True
        begin = time.process_time()
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            if self._passed:
                self.tests[item.nodeid.split("::")[0]][item.nodeid] = {
                    "seconds": time.process_time() - begin,
                    "lines": {name: self._text(name, found) for name, found in self._lines.items()},
                }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._passed = False


class _Failures:
    """A plugin of pytest that knows whether any test failed."""

    found = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.found = self.found or report.failed


class _Chosen:
    """A plugin of pytest that keeps some tests, in their order."""

    def __init__(self, names: list[str]) -> None:
        self.order = {name: number for number, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(kept, key=lambda item: self.order[item.nodeid])


class Trial:
    """Tries changes and counts those that a test notices."""

    def __init__(self, record: Record, end: float) -> None:
        self.record, self.end = record, end
        self.tried = self.noticed = 0

    def in_copies(self, changes: list[Change]) -> None:
        """Change copies of the sources, each imported by a process of its own."""
        for change in changes:
            with tempfile.TemporaryDirectory() as name:
                shutil.copytree(SOURCES, Path(name) / "ibcl")
                target = Path(name) / "ibcl" / f"{change.module}.py"
                target.write_text(ast.unparse(changed_tree(change)))
                tests = self.record.tests_of(change)
                self._count(change, tests, lambda tests=tests, name=name: _fresh(tests, name))

    def in_place(self, changes: list[Change]) -> None:
        """Change functions of processes that have collected the tests."""
        names = dict.fromkeys(test for change in changes for test in self.record.tests_of(change))
        files = list(dict.fromkeys(name.split("::")[0] for name in names))

        def loop(session: pytest.Session) -> bool:
            items = {item.nodeid: item for item in session.items}
            gc.freeze()
            for change in changes:
                tests = [items[name] for name in self.record.tests_of(change) if name in items]
                self._count(change, tests, lambda c=change, t=tests: _patched(session, c, t))
            return True

        if files:
            _pytest(files, _Loop(loop))

    def _count(self, change: Change, tests: list[Any], run: Callable[[], bool]) -> None:
        if time.monotonic() > self.end:
            return
        found = bool(tests) and _is_true(run, 30 + int(3 * self.record.seconds))
        self.tried, self.noticed = self.tried + 1, self.noticed + found
        word = "noticed " if found else "SURVIVED"
        print(f"{word} {change}" + ("" if tests else "  (no test runs it)"), flush=True)


class _Loop:
    """A plugin of pytest that does something else than running the tests."""

    def __init__(self, loop: Callable[[pytest.Session], bool]) -> None:
        self.pytest_runtestloop = loop


def _patched(session: pytest.Session, change: Change, tests: list[pytest.Item]) -> bool:
    """Whether a test fails after a function of this process was changed."""
    put_in_place(change)
    failures = _Failures()
    session.config.pluginmanager.register(failures)
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.found:
            return True
    return False


def _fresh(tests: list[str], folder: str) -> bool:
    """Whether a test fails on the sources in a folder."""
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = folder
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    return _pytest(files, _Chosen(tests), "-x") != 0


def _is_true(run: Callable[[], bool], longest: int) -> bool:
    """Run in a process of its own; true also where that does not end in time."""
    child = os.fork()
    if child == 0:
        # Of the processor's time, so that a busy machine does not look like an endless loop.
        resource.setrlimit(resource.RLIMIT_CPU, (longest, longest))
        signal.alarm(20 * longest)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        try:
            kept = os.dup(2)
            os.dup2(silence, 2)
            os._exit(1 if run() else 0)
        except LookupError as error:
            os.write(kept, f"{error}\n".encode())
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0


def _pytest(files: list[str], plugin: object, *options: str) -> int:
    """Run pytest in this process."""
    os.chdir(ROOT)
    # What takes long and says nothing else than the rest.
    slow = "not onnx and not exported and not traced and not optimiser and not repeated"
    # Other plugins take longer to load than most of these tests to run, and they need none.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    documents = ["--doctest-modules"] if any(name.startswith("src") for name in files) else []
    settings = ["-q", "-s", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"]
    arguments = [*settings, *documents, *options, "-k", slow, *files]
    return int(pytest.main(arguments, plugins=[plugin]))


def _import_the_rest() -> None:
    """Import what takes seconds, once for all changes; nothing of it is changed."""
    names = ("pandas", "sklearn.datasets", "sklearn.linear_model", "scipy.optimize", "scipy.stats")
    for name in ("torch", "torch.func", "hypothesis", "pydantic", "safetensors.torch", *names):
        import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES, help="of src/ibcl, or module:line")
    parser.add_argument("--changes", type=int, default=40, help="how many to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, default="both", help="of changes")
    parser.add_argument("--quick", action="store_true", help="only what is inside of functions")
    parser.add_argument("--minutes", type=float, default=25.0, help="stop after these")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests after each change")
    parser.add_argument("--tests", nargs="+", default=FILES, help="only these files of tests")
    parser.add_argument("--record", type=Path, help="file that keeps which tests run which lines")
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    # As many of each module, in turn, so that large ones do not hide the small.
    pools = [changes_at(place, arguments.kind) for place in arguments.modules]
    if arguments.quick:
        pools = [[change for change in pool if _function_of(change)] for pool in pools]
    for pool in pools:
        generator.shuffle(pool)
    turns = range(max(map(len, pools)))
    chosen = [pool[i] for i in turns for pool in pools if i < len(pool)][: arguments.changes]
    _import_the_rest()
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        record = Record(
            arguments.record or Path(folder) / "record.json", arguments.seconds, arguments.tests
        )
        record.complete()
        trial = Trial(record, end)
        trial.in_copies([change for change in chosen if _function_of(change) is None])
        trial.in_place([change for change in chosen if _function_of(change) is not None])
    share = trial.noticed / max(1, trial.tried)
    print(f"{trial.noticed} of {trial.tried} changes were noticed ({share:.0%})")


if __name__ == "__main__":
    main()
