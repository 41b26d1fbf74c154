"""What the site takes from the code: the schema of result tables, the keys of configs, and the Python API.

Modules are found by walking the packages, so that none has to be listed here; :data:`PARTS` says which of them a user
may import.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import shutil
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from configs import config_pages
from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from fabric.measures import Measure
from fabric.tables import TABLES, Table
from runs import congestion, stall_metrics
from runs.kinds import KINDS
from runs.measures import PACKETS
from runs.registry import EXPERIMENTS
from traffic.measures import OPERATIONS

PARTS: dict[str, frozenset[str]] = {
    "topologies": frozenset(),
    "controllers": frozenset({"policies", "plan", "planner", "paths", "routing"}),
    "fabric": frozenset(
        {"config", "errors", "injection", "measures", "metrics", "model", "results", "schedule", "summary_table",
         "kinds", "tables", "units", "verdict"}
    ),
    "traffic": frozenset(
        {"background", "cache", "closed_forms", "collective", "connection", "exchange", "hfreduce", "job", "job_kind",
         "list_schedule", "measures", "program_group", "step_metrics", "step_numbers", "tcp", "trace", "usrbio"}
    ),
    "cluster": frozenset({"manager"}),
    "runs": frozenset(
        {"config", "definition", "events", "failures", "job_config", "jobs", "launcher", "phase_lengths", "placement",
         "run_result", "session", "spec"}
    ),
    "app": frozenset({"export"}),
}  # fmt: skip
"""For each package, the names that a module's dotted path must have one of; none: all of its modules. They hold what
``fabric new`` and the tutorials import, and the contracts that a user implements (``tests/test_contracts.py``)."""
IMPURE = frozenset({"ryu", "eventlet", "urllib"})
"""A module of PARTS that imports one of these is a program's, not a user's."""
PURE_TO_CALLERS = frozenset({"runs.launching.launcher"})
"""Modules of PARTS for users all the same."""
_GENERATED = "generated"


def modules(package: str, parts: frozenset[str]) -> Iterator[str]:
    """Yield the names of a package's modules that users may import."""
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        wanted = not parts or parts & set(module.name.split(".")[1:])
        is_users = module.name in PURE_TO_CALLERS or not _imports(module.name) & IMPURE
        if wanted and is_users and ast.get_docstring(_tree(module.name)):
            yield module.name


def _tree(name: str) -> ast.Module:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ExtensionError(f"{name}: has no source to read")
    return ast.parse(Path(spec.origin).read_text())


def _imports(name: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def table_pages() -> Iterator[str]:
    """Yield the schema of all result tables as lines of Markdown."""
    for name, table in TABLES.items():
        yield from _schema(name, table, table.row)
    for kind in KINDS:
        for name, table in kind.tables.items():
            yield from _schema(name, table, f"Only in results of runs with jobs of kind `{kind.name}`. {table.row}")
    for experiment in EXPERIMENTS.values():
        for name, table in experiment.load_tables().items():
            yield from _schema(name, table, f"Only in results of `{experiment.name}`. {table.row}")


def _schema(name: str, table: Table, introduction: str) -> Iterator[str]:
    yield from (f"### `{name}`", "", introduction, "", "| column | dtype | unit | meaning |", "|---|---|---|---|")
    for name, column in table.columns.items():
        meaning = f"{column.meaning}; cumulative" if column.grows else column.meaning
        yield f"| `{name}` | {column.dtype} | {column.unit} | {meaning} |"
    yield ""


def measure_tables() -> Iterator[str]:
    """Yield what metrics mean as lines of Markdown: those that several experiments report, then those of each."""
    yield from _measures("Packets and lossless lanes", (*PACKETS, *stall_metrics.MEASURES, *congestion.MEASURES))
    yield from _measures("Operations of a kind", OPERATIONS)
    for kind in KINDS:
        own = [one for one in kind.measures.declared if one not in OPERATIONS]
        yield from _measures(f"Jobs of kind `{kind.name}`", own)
    for experiment in EXPERIMENTS.values():
        yield from _measures(f"`{experiment.name}`", experiment.load_measures())


def _measures(title: str, measures: Sequence[Measure]) -> Iterator[str]:
    if measures:
        yield from (f"### {title}", "", "| name | unit | meaning | better |", "|---|---|---|---|")
        yield from (f"| `{one.name}` | {one.unit} | {one.meaning} | {one.better.value} |" for one in measures)
        yield ""


class Metrics(SphinxDirective):
    """``{metrics}``: what metrics mean."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return self.parse_text_to_nodes("\n".join(measure_tables()), allow_section_headings=True)


class ResultTables(SphinxDirective):
    """``{result-tables}``: the schema of all result tables."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return self.parse_text_to_nodes("\n".join(table_pages()), allow_section_headings=True)


def write_pages(app: Sphinx) -> None:
    """Write the pages of configs and modules into the source directory, for Sphinx to find; git ignores them."""
    target = Path(app.srcdir) / _GENERATED
    shutil.rmtree(target, ignore_errors=True)
    (target / "api").mkdir(parents=True)
    (target / "configs").mkdir()
    for name, lines in config_pages():
        (target / "configs" / f"{name}.md").write_text("\n".join(lines) + "\n")
    for package, parts in PARTS.items():
        names = list(modules(package, parts))
        missing = [part for part in parts if not any(part in name.split(".") for name in names)]
        if missing or not names:
            raise ExtensionError(
                f"{package}: no module is named {', '.join(sorted(missing))}; correct PARTS in {__file__}"
            )
        for name in names:
            page = f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n"
            (target / "api" / f"{name}.md").write_text(page)


def short_signature(
    app: Sphinx, what: str, name: str, found: object, options: object, signature: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Leave out the parameters of configs, whose keys the page of configs has, and of enumerations."""
    is_value = isinstance(found, type) and issubclass(found, (BaseModel, Enum))
    return ("", None) if is_value else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("metrics", Metrics)
    app.add_directive("result-tables", ResultTables)
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-signature", short_signature)
    return {"parallel_read_safe": True}
