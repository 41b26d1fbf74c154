"""Functions can be read at a glance, and classes have few attributes; those that have more say why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("controllers", "experiments", "fabric", "runs", "topologies", "traffic")
LONGEST_FUNCTION = 60
MOST_ATTRIBUTES = 12
LARGER = {
    "TopologySummary": "one number per line of what fabric topo show prints, and per key of its JSON",
    "LaneStats": "one per member of the kernel's structure",
    "VlConfig": "one per member of the kernel's structure",
    "Conservation": "one per count of a phase, as the manifest of every result has had them",
}
"""Classes that have more attributes for good, and why."""
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


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


LARGE = {
    found.name: len(attributes)
    for path in FILES
    for found in classes(ast.parse(path.read_text()))
    if len(attributes := attributes_of(found)) > MOST_ATTRIBUTES
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path: Path) -> None:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))
    lines = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lines.items() if length > LONGEST_FUNCTION} == {}


def test_classes_have_few_attributes() -> None:
    assert LARGE.keys() - LARGER.keys() == set()


def test_the_lists_of_larger_classes_name_no_others() -> None:
    assert len(set(LARGER.values())) <= 3, "reasons"
    assert LARGER.keys() - LARGE.keys() == set()


def test_declared_fields_and_what_methods_set_are_counted() -> None:
    source = (
        "class A:\n    a: int\n    B = 2\n    def f(self):\n        self.c = self.d = 1\n        other.e = self.g\n"
    )
    (found,) = classes(ast.parse(source))
    assert attributes_of(found) == {"a", "c", "d"}
