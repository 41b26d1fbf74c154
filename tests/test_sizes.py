"""Functions can be read at a glance, and classes have few attributes; those that have more say why."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from app.whose_packages import PACKAGES

ROOT = Path(__file__).parent.parent
LONGEST_FUNCTION = 60
MOST_ATTRIBUTES = 12
MOST_PARAMETERS = 6
LARGER = {
    (
        "topologies/summary.py",
        "TopologySummary",
    ): "one per key of what users write or read",
    ("fabric/model/lanes.py", "QueueConfig"): "one per key of what users write or read",
    ("runs/config.py", "RunConfig"): "one per key of what users write or read",
    ("cluster/platform/responses.py", "JobBrief"): "one per key of what users write or read",
    ("fabric/queueing/vl_abi.py", "PortOptions"): "one per member of the kernel's structure",
    ("fabric/queueing/vl_abi.py", "LaneStats"): "one per member of the kernel's structure",
    ("fabric/queueing/vl.py", "VlConfig"): "one per member of the kernel's structure",
    ("fabric/measure/census.py", "HostCount"): "one per count of a phase, as manifests have had them",
    ("fabric/records/conservation.py", "Conservation"): "one per count of a phase, as manifests have had them",
}
"""Classes that have more attributes for good, and why."""
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a file, which is parsed once for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def classes(nodes: Iterable[ast.AST]) -> Iterator[ast.ClassDef]:
    yield from (node for node in nodes if isinstance(node, ast.ClassDef))


def attributes_of(found: ast.ClassDef) -> set[str]:
    """Return the names of what instances have: fields that are declared, and all that methods set of ``self``."""
    declared = {
        node.target.id
        for node in found.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and not ast.unparse(node.annotation).startswith("InitVar")  # Which are only given to __post_init__.
    }
    methods = (node for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    stored = {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return declared | stored


@cache
def large() -> set[tuple[str, str]]:
    return {
        (name_of(path), found.name)
        for path in FILES
        for found in classes(nodes_of(path))
        if len(attributes_of(found)) > MOST_ATTRIBUTES
    }


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(nodes: Iterable[ast.AST]) -> Iterator[Function]:
    yield from (node for node in nodes if isinstance(node, Function))


def place_of(found: Function) -> str:
    """Return what names a function in a file: several have one name, such as ``__init__`` or ``run``."""
    return f"{found.name}, line {found.lineno}"


def parameters_of(found: Function) -> list[str]:
    """Return the names of what a caller gives."""
    parts = found.args
    names = [one.arg for one in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_are_short(package: str) -> None:
    found = {name_of(path): too_long(nodes_of(path)) for path in files_of(package)}
    assert {name: longer for name, longer in found.items() if longer} == {}


def files_of(package: str) -> list[Path]:
    found = [path for path in FILES if path.is_relative_to(ROOT / package)]
    assert found, f"no file of {package} is looked at"
    return found


def too_long(nodes: Iterable[ast.AST]) -> dict[str, int]:
    lines = {place_of(one): (one.end_lineno or one.lineno) - one.lineno + 1 for one in functions(nodes)}
    return {place: length for place, length in lines.items() if length > LONGEST_FUNCTION}


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_have_few_parameters(package: str) -> None:
    found = {
        f"{name_of(path)}: {place_of(one)}": parameters_of(one)
        for path in files_of(package)
        for one in functions(nodes_of(path))
        if len(parameters_of(one)) > MOST_PARAMETERS
    }
    assert found == {}


def test_each_of_several_functions_with_one_name_is_measured() -> None:
    long = "class A:\n    def f(self):\n" + LONGEST_FUNCTION * "        pass\n"
    tree = ast.parse(f"{long}class B:\n    def f(self):\n        pass\n")
    assert too_long(ast.walk(tree)) == {"f, line 2": LONGEST_FUNCTION + 1}


def test_what_a_caller_gives_is_counted() -> None:
    (found,) = functions(ast.walk(ast.parse("def f(self, a, /, b, *c, d, **e): ...")))
    assert parameters_of(found) == ["a", "b", "d"]


def test_classes_have_few_attributes() -> None:
    assert large() - LARGER.keys() == set()


def test_the_lists_of_larger_classes_name_no_others() -> None:
    assert len(set(LARGER.values())) <= 3, "reasons"
    assert LARGER.keys() - large() == set()


def test_declared_fields_and_what_methods_set_are_counted() -> None:
    source = (
        "class A:\n    a: int\n    B = 2\n    def f(self):\n        self.c = self.d = 1\n        other.e = self.g\n"
    )
    (found,) = classes(ast.walk(ast.parse(source)))
    assert attributes_of(found) == {"a", "c", "d"}
