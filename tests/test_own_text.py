"""Nothing takes apart a sentence that the program itself wrote: what is asked of a reason is a field of a value.

Types hold it for values: a reason is a class (``cluster/platform/reasons.py``), and so are a message of the platform
(``cluster/platform/messages.py``) and a fault of a config's key (``fabric.config.Fault``). Here it is held for cells of
tables, titles and names of phases, for texts of faults, for names of operations, and for bounds in names of metrics.
Lists, details and names that are kept in one text have one reader each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.metrics import UNITS

ROOT = Path(__file__).parent.parent
PACKAGES = ("app", "cluster", "controllers", "experiments", "fabric", "runs", "topologies", "traffic")
READERS = {
    "cluster/platform/old_words.py": "sentences of journals and tables of earlier versions",
    "cluster/platform/programs.py": "tokens of a config's submissions",
    "experiments/dcqcn_frontier/earlier.py": "groups of points in results of earlier versions",
    "experiments/fencing/tables.py": "names of phases in tables of earlier versions",
    "fabric/metrics.py": "units at the ends of names of metrics, and parts of their paths",
    "fabric/model/identity.py": "names of nodes, ports, links, and parts of nodes",
    "fabric/records/packed.py": "cells that hold several values",
    "traffic/metrics.py": "names of operations in tables: the kind, and what became of it",
    "traffic/work/operation_names.py": "names of operations in graphs",
}
"""The modules that take own text apart, each beside what writes it or for what is written no more."""
PROSE = {
    "circle", "error", "failure", "fault", "faults", "phase", "phase_name", "title", "why", "told_why", "started_why",
    "reason", "reasons", "detail", "details", "missed", "causes", "blamed", "operation", "note", "notes", "group",
    "metric", "stream", "partner", "token", "port", "peer", "link", "target", "step", "queueing",
}  # fmt: skip
"""Keys, columns and fields whose values are for people, or are several values in one text."""
TAKES_APART = {
    "split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix",
    "removesuffix", "contains", "extract", "match", "fullmatch", "search", "findall", "loads",
}  # fmt: skip
FOREIGN = {
    "app/sweeps/slurm.py",
    "cluster/slurm/answers.py",  # Slurm's own words.
    "traffic/work/formats/aicb.py",  # A trace of another project's.
    "traffic/work/formats/msccl.py",
    "traffic/work/formats/packed.py",  # Errors of parsers.
    "traffic/work/formats/goal_writing.py",  # GOAL's numbered streams.
    "fabric/emulation/openvswitch.py",  # Files of its process.
    "fabric/failures/by_hand.py",  # What users type.
    "topologies/free_form.py",
}


def prose_in(node: ast.expr, keys: set[str]) -> str:
    """Return the key or field for people that an expression is, as it stands or made a text; empty: it is none."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return prose_in(node.args[0], keys)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "map"):
        return prose_in(node.func.value, keys)
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in keys else prose_in(node.value, keys) if node.attr == "str" else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value) if node.slice.value in keys else ""
    return node.id if isinstance(node, ast.Name) and node.id in keys else ""


def taken_apart(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield where own text is taken apart: by methods of texts, regular expressions, JSON, and what is in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKES_APART:
            for one in (node.func.value, *node.args):
                if found := prose_in(one, PROSE):
                    yield node.lineno, f"{node.func.attr} of {found}"
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str) and node.left.value != ""
            if is_text and (found := prose_in(node.comparators[0], PROSE - {"details", "reasons"})):
                yield node.lineno, f"in {found}"


def test_no_module_takes_apart_what_the_program_wrote() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if str(path.relative_to(ROOT)) not in READERS.keys() | FOREIGN
        for line, what in taken_apart(ast.parse(path.read_text()))
    }
    assert sorted(found) == []


@pytest.mark.parametrize(
    "text",
    [
        'row["why"].startswith("not heard")', 'str(row["why"]).partition(":")', '"no answer" in event.why',
        'fault.partition(": ")', 'rows["phase"].astype(str).str.rpartition("_")',
        '"is missing" in one.fault', 'one.phase.title.startswith("static")',
        'EARLIER.search(str(row["why"]))', 'json.loads(row["details"])', 'table["causes"].astype(str).str.split(", ")',
        'rows["operation"].astype(str).str.fullmatch("read(_.*)?")', 'row["operation"].endswith("_failed")',
        'str(error).removeprefix("NCCL: ")', '"unexpected" in str(error)', 'self.circle.removeprefix("deadlock: ")',
        'table["why"].str.extract("step")', 'why.rpartition("step ")', 'table.note.split("; ")',
        'one.port.rpartition(":")', 'rows["target"].str.startswith("st001/")',
    ],
)  # fmt: skip
def test_what_would_is_found(text: str) -> None:
    assert len(list(taken_apart(ast.parse(text)))) == 1


BOUND = "_at_least"
"""In names of metrics of which only the least is known, which ``fabric.metrics.least_name`` makes."""
TALKING = ("cluster/platform/agent_program.py", "cluster/platform/scheduler_program.py", "cluster/platform/health.py",
           "cluster/health/node.py", "app/commands/cluster_questions.py")  # fmt: skip
"""What speaks and hears messages that are values."""


MESSAGES = ("message", "word", "order", "hello")


def bounds_in_names(tree: ast.AST) -> list[int]:
    """Return the lines in which a bound is looked for in a name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_read = node.func.attr in TAKES_APART and any(BOUND in ast.unparse(one) for one in node.args)
        else:
            is_read = isinstance(node, ast.Compare) and BOUND in ast.unparse(node.left)
        found += [node.lineno] if is_read else []  # type: ignore[attr-defined]
    return found


def units_in_names(tree: ast.AST) -> list[int]:
    """Return the lines in which a unit, or that something is a part of a whole, is looked for in a name."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKES_APART
        if any(isinstance(one, ast.Constant) and one.value in UNITS for one in node.args)
    ]


def keys_of_messages(tree: ast.AST) -> list[int]:
    """Return the lines in which a message is a dictionary: its kind is given, or a key of it is asked for."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            is_one = any(isinstance(key, ast.Constant) and key.value == "kind" for key in node.keys)
        else:
            is_one = isinstance(node, ast.Subscript) and ast.unparse(node.value) in MESSAGES
        found += [node.lineno] if is_one else []  # type: ignore[attr-defined]
    return found


def test_no_bound_is_read_out_of_a_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for line in bounds_in_names(ast.parse(path.read_text()))
    ]
    assert found == []


def test_units_in_names_have_one_reader() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if str(path.relative_to(ROOT)) not in READERS
        for line in units_in_names(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize("text", ['name.endswith("_fraction")', 'name.removesuffix("_Bps").removesuffix(".")'])
def test_a_unit_that_is_read_is_found(text: str) -> None:
    assert len(units_in_names(ast.parse(text))) == 1


@pytest.mark.parametrize("text", ['name.endswith("_at_least_s")', '"_at_least" in row["metric"]'])
def test_a_bound_that_is_read_is_found(text: str) -> None:
    assert len(bounds_in_names(ast.parse(text))) == 1


def test_messages_of_the_platform_are_values_to_those_who_speak_and_hear() -> None:
    found = [f"{path}:{line}" for path in TALKING for line in keys_of_messages(ast.parse((ROOT / path).read_text()))]
    assert found == []


@pytest.mark.parametrize("text", ['self.send({"kind": "beat", "at": 1.0})', 'message["life"]'])
def test_a_message_that_is_a_dictionary_is_found(text: str) -> None:
    assert len(keys_of_messages(ast.parse(text))) == 1


def test_readers_are_still_needed() -> None:
    for path in READERS:
        source = (ROOT / path).read_text()
        assert any(f".{name}(" in source for name in TAKES_APART), path
