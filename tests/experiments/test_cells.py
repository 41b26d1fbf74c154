"""Tables hand over numbers: no module of an experiment, of runs or of jobs makes words of them for a cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODULES = [
    path
    for folder in ("experiments", "runs", "traffic", "cluster")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "records.cells import" in path.read_text() or "runs.case_tables import" in path.read_text()
]
_NOT_CELLS = ("title", "columns", "note")
"""Of a table, in the order of its arguments without the rows."""


def words_in_cells(source: str) -> list[str]:
    """Return the expressions that write a number in functions that make cells, but for what titles, heads and notes of
    tables are made of."""
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef) and _makes_cells(one)]
    return [ast.unparse(node) for function in functions for node in _written(function, _beside_cells(function))]


def _makes_cells(function: ast.FunctionDef) -> bool:
    returned = ast.unparse(function.returns) if function.returns else ""
    is_table = any(_called(node) == "SummaryTable" for node in ast.walk(function))
    return is_table or any(name in returned for name in ("Row", "Cell", "Quantity"))


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _beside_cells(function: ast.FunctionDef) -> set[ast.AST]:
    """Return the arguments of tables that are not rows, and what is assigned to the names in them."""
    found: set[ast.AST] = set()
    for call in (node for node in ast.walk(function) if _called(node) == "SummaryTable"):
        assert isinstance(call, ast.Call)
        found |= {one.value for one in call.keywords if one.arg in _NOT_CELLS}
        found |= {one for place, one in enumerate(call.args) if place != 2}
    while True:
        names = {node.id for one in found for node in ast.walk(one) if isinstance(node, ast.Name)}
        more = {
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign | ast.AugAssign)
            and {ast.unparse(one) for one in getattr(node, "targets", None) or [node.target]} & names  # type: ignore[union-attr]
        }
        if more <= found:
            return found
        found |= more


def _written(node: ast.AST, left_out: set[ast.AST]) -> Iterator[ast.AST]:
    if node in left_out:
        return
    has_form = isinstance(node, ast.FormattedValue) and node.format_spec is not None
    is_count = _called(node) == "str" and "len(" in ast.unparse(node)
    if has_form or is_count or _called(node).startswith(("format_", "told_")):
        yield node
        return
    for inner in ast.iter_child_nodes(node):
        yield from _written(inner, left_out)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_writes_a_number_for_a_cell(path: Path) -> None:
    assert words_in_cells(path.read_text()) == [], "give it as a number, by fabric.records.cells"


def test_tables_of_experiments_are_looked_at() -> None:
    tables = [path for path in (ROOT / "experiments").rglob("*.py") if "SummaryTable(" in path.read_text()]
    left = [str(path.relative_to(ROOT)) for path in tables if path not in MODULES]
    assert left == []


WRITTEN = {
    "a form": ('rows = [[f"{value:.2f} x"]]', ["{value:.2f}"]),
    "a time": ('rows = [[format_time(value), "alone"]]', ["format_time(value)"]),
    "a count": ("rows = [[str(len(values))]]", ["str(len(values))"]),
    "text": ('rows = [[f"in {value}", quantity(value, ".2f x")]]', []),
    "a note": ('rows, share = [], f"{value:.0%}"', ["{value:.0%}"]),
    "a note by a name": ('rows = []\n    note = f"{value:.0%}"', []),
}


@pytest.mark.parametrize(("body", "found"), WRITTEN.values(), ids=list(WRITTEN))
def test_a_number_that_is_written_is_found(body: str, found: list[str]) -> None:
    source = f'def table(value):\n    {body}\n    return SummaryTable("T", ["x"], rows, note)\n'
    assert [one.removeprefix("f'").removesuffix("'") for one in words_in_cells(source)] == found
