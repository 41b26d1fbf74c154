"""What numbers mean is declared once, and their names come from that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.reproduction.computed import COMPUTED, MEASURES
from fabric.measures import Better, Measure, heads, measure_at, measure_named
from fabric.metrics import UNITS, least_name, verify_unit
from runs.kinds import KINDS
from runs.measures import SHARED
from runs.registry import EXPERIMENTS
from traffic.job_kind import JobKind, Measures

ROOT = Path(__file__).parents[1]
OWN = [measure for one in EXPERIMENTS.values() for measure in one.load_measures()]
SOURCES = [path for package in ("runs", "traffic", "cluster", "experiments") for path in (ROOT / package).rglob("*.py")]
DECLARING = [path for path in SOURCES if re.search(r"fabric\.measures|measures import .*[A-Z]{4}", path.read_text())]
SHARED_ONLY = {"checkpoint_restore", "mdtest"}
"""Experiments whose metrics are all among those that several report."""
NODES = Measure("restore_<nodes>.all_s", "the time until all have it", Better.LESS, "restored")


def test_a_family_has_members_and_knows_them() -> None:
    assert NODES.of(16) == "restore_16.all_s"
    assert (NODES.unit, NODES.includes("restore_16.all_s"), NODES.includes("restore_x.all_s")) == ("s", True, False)
    with pytest.raises(ValueError, match=r"^measure restore_<nodes>.all_s: has not 2 labels \(1, 2\)$"):
        NODES.of(1, 2)
    assert heads([NODES, Measure("x", "without a head")]) == {"restore_<nodes>.all_s": "restored"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("lanes.read.p99_s", "<operation>.<percentile>_s"),
        ("lanes.storage.read.p999_at_least_s", "<operation>.<percentile>_at_least_s"),
        ("static.steps", "steps"),
        ("shared.hfreduce.algbw_Bps", "algbw_Bps"),
        ("day.events.node_out", "events.node_out"),
        ("day.events.other", "events.<event>"),
        ("a.restore_4.all_s", "restore_<nodes>.all_s"),
        ("a.restore.all_s", "restore.all_s"),
        ("a.first_token.p99_s", "first_token.<percentile>_s"),
    ],
)
def test_metrics_are_found_by_their_paths(path: str, name: str) -> None:
    found = measure_at(SHARED, path)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", ["delay_ms", "<operation>.size_MiB", "lost_percent", "read_Gbps", "packets_per_h"])
def test_a_name_that_ends_in_another_unit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(name)}: ends in .* and numbers of results are in units of _bps"):
        verify_unit(name)
    with pytest.raises(ValueError, match="convert it, or rename it"):
        Measures(lambda rows: {}, speeds=(), declared=(Measure(name, "what it is"),))


def test_declared_names_end_in_units_of_results_or_in_none() -> None:
    for one in (*SHARED, *OWN):
        verify_unit(one.name)


def test_a_measure_says_whether_it_is_the_least_that_a_number_can_be() -> None:
    assert (least_name("read.p99_s"), least_name("a_Bps"), least_name("n")) == (
        "read.p99_at_least_s", "a_at_least_Bps", "n_at_least",
    )  # fmt: skip
    assert {one.name for one in (*SHARED, *OWN) if one.is_least} == {
        one.name for one in (*SHARED, *OWN) if "_at_least" in one.name
    }


def test_what_nobody_declared_has_no_measure() -> None:
    assert measure_at(SHARED, "lanes.loudness_dB") is None
    assert measure_named([NODES], "restore.all_s") is None


@pytest.mark.parametrize("measure", dict.fromkeys([*SHARED, *OWN]), ids=lambda one: one.name)
def test_a_measure_says_what_it_is(measure: Measure) -> None:
    assert measure.meaning
    assert not measure.meaning.endswith(".")
    assert not measure.meaning[0].isupper() or measure.meaning.startswith(("FLOP", "TCP"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.name)
def test_a_kind_declares_what_its_jobs_are_measured_by(kind: JobKind) -> None:
    assert kind.measures.declared
    for name in kind.measures.speeds:
        measure = measure_named(kind.measures.declared, name)
        assert measure is not None, name
        assert measure.better is Better.MORE


def named_by_f_strings(path: Path) -> Iterator[str]:
    """Yield the keys of a module's dictionaries that f-strings make."""
    for node in ast.walk(ast.parse(path.read_text())):
        keys = (
            node.keys if isinstance(node, ast.Dict)
            else [node.key] if isinstance(node, ast.DictComp)
            else [node.slice] if isinstance(node, ast.Subscript)
            else []
        )  # fmt: skip
        yield from (f"{path.relative_to(ROOT)}:{key.lineno}" for key in keys if isinstance(key, ast.JoinedStr))


def metrics_named_by_f_strings(path: Path) -> Iterator[str]:
    """Yield the names that f-strings make in a module's calls of ``Metric(phase, job, name, ...)``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Metric":
            yield from (f"{path.relative_to(ROOT)}:{one.lineno}" for one in node.args if isinstance(one, ast.JoinedStr))


def test_no_metric_is_named_by_an_f_string_where_measures_are_declared() -> None:
    assert len(DECLARING) > 40
    assert [place for path in DECLARING for place in named_by_f_strings(path)] == []


def test_an_experiment_names_no_metric_by_an_f_string() -> None:
    summaries = [path for path in (ROOT / "experiments").glob("*/*.py") if re.search(r"\bMetric\(", path.read_text())]
    assert len(summaries) > 10
    assert [place for path in summaries for place in metrics_named_by_f_strings(path)] == []


def names_with_units(tree: ast.AST) -> Iterator[int]:
    """Yield the lines in which an f-string makes a name with a unit at its end; not those of attributes (getattr)."""
    attributes = {
        id(one)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
        for one in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in attributes and isinstance(node.values[-1], ast.Constant):
            texts = [str(one.value) for one in node.values if isinstance(one, ast.Constant)]
            if all(re.fullmatch(r"[\w.]+", text) for text in texts) and texts[-1].endswith(tuple(UNITS)):
                yield node.lineno


def test_no_name_with_a_unit_is_made_by_an_f_string() -> None:
    packages = ("app", "cluster", "controllers", "experiments", "fabric", "runs", "topologies", "traffic")
    paths = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in paths for line in names_with_units(ast.parse(path.read_text()))
    ]
    assert found == []
    assert list(names_with_units(ast.parse('found[f"{policy}.links_{count}_fraction"]'))) == [1]


def test_what_needs_no_run_is_declared() -> None:
    names = [name for numbers in COMPUTED.values() for name in numbers(1)]
    assert names
    assert [name for name in names if measure_named(MEASURES, name) is None] == []


def test_an_experiment_declares_its_own_metrics() -> None:
    assert {name for name, one in EXPERIMENTS.items() if not one.load_measures()} == SHARED_ONLY
