"""Imports point one way, outside libraries stay where they belong, and every module says what it is for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "fabric": set[str](),
    "topologies": {"fabric"},
    "controllers": {"fabric"},
    "traffic": {"fabric"},
    "experiments": {"fabric", "topologies", "controllers", "traffic"},
}
MODULES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_by(path: Path) -> Iterator[str]:
    """Yield the top-level package of each import of a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def importers_of(library: str) -> set[str]:
    return {name_of(path) for path in MODULES if library in imported_by(path)}


def test_all_packages_are_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    ours = set(imported_by(path)) & {*MAY_IMPORT, "tests"}
    assert ours <= MAY_IMPORT[package] | {package}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_are_absolute(path: Path) -> None:
    levels = [node.level for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    assert set(levels) <= {0}


def test_two_files_import_mininet() -> None:
    assert importers_of("mininet") == {"fabric/emulation/build.py", "fabric/emulation/mininet_nodes.py"}


def test_only_the_controllers_import_ryu() -> None:
    importers = importers_of("ryu")
    assert importers
    assert {Path(name).parts[0] for name in importers} == {"controllers"}


def modules_loaded_by(*names: str) -> set[str]:
    """Return the top-level packages in memory after a fresh Python imported some modules."""
    program = f"import json, sys, {', '.join(names)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_planners_and_the_controllers_client_run_without_ryu() -> None:
    loaded = modules_loaded_by("controllers.planning.plan", "controllers.planning.routes", "controllers.client")
    assert "controllers" in loaded
    assert not loaded & {"ryu", "eventlet"}


def test_a_fabric_is_computed_without_mininet() -> None:
    pure = ("topologies.load", "fabric.model.lanes", "fabric.queueing.htb", "controllers.planning.routes")
    loaded = modules_loaded_by(*pure)
    assert "topologies" in loaded
    assert not loaded & {"mininet", "ryu"}


def test_the_command_answers_without_loading_mininet_or_ryu() -> None:
    loaded = modules_loaded_by("experiments.cli")
    assert "experiments" in loaded
    assert not loaded & {"mininet", "ryu", "eventlet", "scapy", "matplotlib"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert docstring.splitlines()[0].strip()


ASK_WHICH_ENGINE = {"fabric/world/engines.py", "fabric/world/inside.py", "fabric/world/virtual_time.py", "fabric/world/virtual/guest.py"}
"""Engines themselves. All others ask an engine what it can do."""


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nobody_asks_which_engine_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    compared = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(
            isinstance(end, ast.Name) and end.id in ("NAMESPACE", "VIRTUAL") for end in (node.left, *node.comparators)
        )
    ]
    called = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "in_guest"
    ]
    assert not compared
    assert not called or name_of(path) in ASK_WHICH_ENGINE
