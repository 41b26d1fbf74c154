"""A job whose programs are forked while a phase plays: it pauses for another one, resumes, and the run is believed."""

from __future__ import annotations

import pytest

from fabric.results import Result
from tests.virtual.command import TINY, VirtualCommand

pytestmark = pytest.mark.guest
CLOCK_S = 1e-6
"""By how much the clocks of two threads may differ."""
EXPERIMENT = """
from pathlib import Path

from runs.config import RunConfig
from runs.decided_jobs import JobState
from runs.definition import Experiment
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.collectives.nccl import NcclConfig, NcclJob


class Turns:
    def __init__(self, first, second):
        self.first, self.second = first, second

    def decide(self, jobs):
        jobs.start(self.first)
        jobs.play("first")
        self.until(jobs, "first", JobState.PLAYING)
        jobs.wait_until(0.3)
        jobs.halt("first")
        jobs.start(self.second)
        self.until(jobs, "first", JobState.READY)
        jobs.play("second")
        self.until(jobs, "second", JobState.PLAYING)
        jobs.wait_until(0.6)
        jobs.halt("second")
        jobs.close("second")
        self.until(jobs, "second", JobState.CLOSED)
        jobs.play("first")

    def until(self, jobs, name, state):
        if not jobs.reach(state, name):
            raise RuntimeError(f"{name} was not {state.value} before the phase ended")


def run(session, config):
    session.use_queueing(config.queueings_played[0])
    nodes = session.live.fabric.computes[:2]
    first = HFReduceJob(session.stage, HFReduceConfig(size=65536, chunk=16384), nodes, name="first")
    second = NcclJob(session.stage, NcclConfig(size=65536, slice=16384), nodes, name="second")
    session.run_phase("turns", "two jobs in turns", [Turns(first, second)], 1.0)
    steps = session.table("steps")
    return {"title": "t", "metrics": {"turns.steps": float(len(steps))}, "tables": []}


EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Do jobs take turns?",
    config="taking_turns.experiment:RunConfig",
    run="taking_turns.experiment:run",
)
"""


def test_jobs_that_are_started_in_a_phase_take_turns_on_the_same_nodes(command: VirtualCommand) -> None:
    folder = command.here / "taking_turns"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "experiment.py").write_text(EXPERIMENT)
    (folder / "taking_turns.yaml").write_text(f"experiment: taking_turns\ntopology: {TINY}\n")
    result = Result(command.play(str(folder)))
    assert result.verdict["status"] == "faithful"
    jobs, steps = result.table("jobs").sort_values("started_s"), result.table("steps")
    columns = (jobs[name].tolist() for name in ("job", "started_s", "ended_s"))
    rows = list(zip(*columns, strict=True))
    assert [name for name, _, _ in rows] == ["first", "second", "first"]
    assert rows[0][2] <= rows[1][1] + CLOCK_S
    assert rows[1][2] <= rows[2][1] + CLOCK_S
    for name, started_s, ended_s in rows:
        own = steps[(steps["job"] == name) & steps["started_s"].between(started_s, ended_s)]
        assert len(own) >= 1
        assert (own["ended_s"] <= ended_s + CLOCK_S).all()
    (phase,) = result.phases
    assert phase.started_s <= rows[0][1] + CLOCK_S
    assert rows[2][2] <= phase.ended_s + CLOCK_S
