"""A new kind of job touches its folder and one list: it is configured, placed, played, measured and read back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from controllers.planning.routes import plan_static_routes
from experiments import load
from experiments.shared_cluster.run import job_metrics, speed_of
from fabric.errors import ResultError
from fabric.results import ResultWriter
from fabric.world.programs import packages
from fabric.world.programs.agents import AgentPool
from runs import kinds
from runs.allocation import Allocation
from runs.job_config import PlacedJob, any_job_of, config_of, job_faults, place_jobs
from runs.known_tables import own_tables
from runs.phase_rows import job_row
from runs.record import write_samples
from runs.run_tables import RunTables
from runs.timeline import PlayedTimeline, Timeline
from tests.runs.own_kind import write_own_kind
from tests.synthetic_result import Recipe, write_result
from tests.waiting import LIMIT_S
from topologies.load import load_fabric
from traffic.job import Records, Stage
from traffic.job_kind import JobKind

SMALL = load_fabric("fire_flyer_2_small")
PLAN = plan_static_routes(SMALL)


@pytest.fixture
def pulse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobKind]:
    """The kind of a temporary folder, in the list."""
    monkeypatch.setattr(packages._FINDER, "folders", dict(packages._FINDER.folders))
    write_own_kind(tmp_path)
    kind: JobKind = import_module("own_kind.kinds").PULSE
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, kind))
    yield kind
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_kind"]:
        del sys.modules[name]


def configured(**values: Any) -> Any:
    return TypeAdapter(any_job_of(kinds.KINDS)).validate_python({"name": "beat", "nodes": 2, "kind": "pulse", **values})


def placed_on(stage: Stage, **values: Any) -> PlacedJob:
    (one,) = place_jobs([configured(**values)], stage, PLAN, Allocation.PACKED)
    return one


def test_its_keys_are_checked_beside_those_of_all_jobs(pulse: JobKind) -> None:
    config = configured(size="64 KiB", start="2 s", nodes=1, service_level="nccl")
    assert (config.windows(), config.own()) == ([(2.0, None)], pulse.config.model_validate({"size": "64 KiB"}))
    assert list(job_faults([config], SMALL, 10.0)) == [
        "jobs.beat.nodes: 1; pulse needs 2 or more",
        "jobs.beat: size: 65536 bytes do not fit a packet of fire_flyer_2_small; lower it",
    ]


def test_a_key_that_all_jobs_have_is_no_kinds_own(pulse: JobKind) -> None:
    clashing: Any = SimpleNamespace(__name__="ClashingConfig", model_fields={"start": None, "size": None})
    with pytest.raises(ValueError, match="kind of job pulse: all jobs have the key start; rename its own"):
        config_of(replace(pulse, config=clashing))


def played(one: PlacedJob) -> PlayedTimeline:
    """Return what a phase of some pulses shows. A job says at its end how many there were; if too few, it plays
    again."""
    window_s = 0.3
    while True:
        line = Timeline("together", one.windows())
        line.begin()
        time.sleep(window_s)
        ended = line.end()
        if len(ended.records.rows("pulses")) > 4:
            return ended
        assert window_s < LIMIT_S, f"played for {window_s:g} s and waited for five pulses"
        window_s *= 2


def test_it_plays_is_measured_by_its_own_table_and_that_is_read_back(pulse: JobKind, tmp_path: Path) -> None:
    pool = AgentPool(pulse.preload)
    tables = RunTables()
    try:
        one = placed_on(Stage(SMALL, pool, lambda node: None, 1), period="5 ms")
        assert {port.node for port in one.loads if not port.node.is_switch} == {one.nodes[0]}, "the sender"
        with closing(one.job):
            one.job.start()
            ended = played(one)
    finally:
        pool.stop()
    tables.keep_records(ended.records)
    tables.keep_rows("jobs", [job_row("together", played) for played in ended.played])

    session: Any = SimpleNamespace(table=tables.table, aside=tables.aside)
    name, speed = speed_of(job_metrics(session, one, "together"), one.measures) or ("", 0.0)
    assert name == "pulses.rate_Bps"
    assert 0 < speed <= 2 * 1000 / 0.005

    directory = write_result(tmp_path / "result", Recipe())
    write_samples(session, ResultWriter(directory, own_tables({})))
    found = load(directory).table("pulses")
    assert len(found) == len(tables.table("pulses")) > 4
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == pulse.tables["pulses"].dtypes
    assert set(found["job"]) == {"beat"}
    assert set(found["host"]) == {str(node) for node in one.nodes}
    assert found["at_s"].between(0.0, time.monotonic() - tables.origin).all(), "seconds of the run"


def test_a_result_without_such_jobs_has_no_such_file_and_reads_as_no_rows(pulse: JobKind, tmp_path: Path) -> None:
    directory = write_result(tmp_path / "result", Recipe())
    tables = RunTables()
    session: Any = SimpleNamespace(table=tables.table, aside=tables.aside)
    write_samples(session, ResultWriter(directory, own_tables({})))
    assert not (directory / "samples" / "pulses.parquet").exists()
    assert (directory / "samples" / "steps.parquet").exists()
    found = load(directory).table("pulses")
    assert (len(found), list(found.columns)) == (0, list(pulse.tables["pulses"].columns))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"phase": "p", "job": "j", "host": "h", "at_s": 1.0}, "a row lacks size_bytes; correct"),
        (
            {"phase": "p", "job": "j", "host": "h", "at_s": 1.0, "size_bytes": 1, "colour": "red"},
            "a row has colour, which is not declared; correct",
        ),
    ],
)
def test_rows_have_the_columns_that_are_declared(pulse: JobKind, row: dict[str, Any], words: str) -> None:
    with pytest.raises(ResultError, match=f"table pulses: {words}"):
        RunTables().keep_records(Records(pulses=[row]))


def test_a_table_has_one_meaning(pulse: JobKind, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResultError, match="table pulses: a kind of job has one of this name; rename the experiment's"):
        own_tables(pulse.tables)
    again = replace(pulse, name="again", tables={"pulses": pulse.tables["pulses"]})
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, again))
    with pytest.raises(ResultError, match="jobs of kind again: there is another table pulses; rename theirs"):
        kinds.tables_of_jobs()
    monkeypatch.setattr(kinds, "KINDS", (replace(pulse, tables={"steps": pulse.tables["pulses"]}),))
    with pytest.raises(ResultError, match="jobs of kind pulse: there is another table steps"):
        kinds.tables_of_jobs()


EVERYWHERE = """
import sys
from pathlib import Path
from tests.runs.own_kind import write_own_kind
write_own_kind(Path(sys.argv[1]))
from own_kind.kinds import PULSE
from runs import kinds
kinds.KINDS = (*kinds.KINDS, PULSE)

sys.path.insert(0, "docs/_ext")
from app.cli import main
from runs.registry import resolve
from runs.preload import PRELOAD
from configs import config_pages
print("own_kind.programs" in PRELOAD)
config = resolve("shared_cluster", ['jobs=[{"name": "beat", "kind": "pulse", "nodes": 3, "size": 500}]'])[1]
print(config.jobs[0].size, config.commands)
print(any("### PulseJobConfig" in page for _, page in config_pages()))
main(["keys", "shared_cluster", "jobs"])
"""


def test_commands_and_the_reference_know_it_too(tmp_path: Path) -> None:
    """In a process of its own: configs are made of the list as it is when they are loaded."""
    words = [sys.executable, "-c", EVERYWHERE, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["True", "500 ()", "True"]
    assert any("jobs[pulse].period" in line for line in lines)
