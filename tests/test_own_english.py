"""Texts that users read, in errors, descriptions of keys and help, are written as docs are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.english import not_english

ROOT = Path(__file__).parents[1]
SOURCES = ("fabric", "topologies", "controllers", "traffic", "cluster", "runs", "experiments", "app", "tools")


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that are not docstrings, with their lines; a formatted one as a whole."""
    tree = ast.parse(path.read_text())
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            apart |= {id(part) for part in node.values}
            parts = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.lineno, node.value


def faults_of(path: Path) -> list[str]:
    return [f"{path}:{line}: {fault}" for line, text in texts_of(path) for fault in not_english(text)]


@pytest.mark.parametrize("folder", SOURCES)
def test_texts_that_users_read_are_written_in_an_engineers_english(folder: str) -> None:
    assert [fault for path in sorted((ROOT / folder).rglob("*.py")) for fault in faults_of(path)] == []


def test_a_phrase_is_seen_in_a_text_and_not_in_a_docstring(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""It is no port."""\n\nERROR = f"{1} is no port of {2}"\nFINE = "there is no port"\n')
    assert faults_of(module) == [f"{module}:3: 'is no port': is not a"]
