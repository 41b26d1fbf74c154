"""A phase of Slurm's ends with all of its rows though Slurm does not answer at once: without Slurm."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.nodes import Nodes
from cluster.platform.events import JobSpec
from cluster.platform.kinds import PLATFORM_EVENTS
from cluster.platform.programs import Submission
from cluster.slurm import programs
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen
from cluster.slurm.commands import Unanswered
from fabric.errors import TrafficError

NODES = Nodes.grid(1, 1, 2)


class FakeSlurm:
    """Two idle nodes, and jobs that wait until they are cancelled; of each program's calls the first ones are not
    answered. ``takes``: whether a job is taken all the same."""

    def __init__(self, unanswered: dict[str, int], takes: bool) -> None:
        self.unanswered, self.takes = unanswered, takes
        self.has: list[SlurmJobSeen] = []

    def _answer(self, program: str) -> None:
        if self.unanswered.get(program):
            self.unanswered[program] -= 1
            raise Unanswered(f"{program}: Unable to contact slurm controller (connect failure)")

    def jobs(self) -> list[SlurmJobSeen]:
        return self.has

    def nodes(self) -> list[SlurmNodeSeen]:
        return [SlurmNodeSeen(name, frozenset({"IDLE"})) for name in NODES.names]

    def submit(self, number: int, *others: object) -> int:
        is_lost = bool(self.unanswered.get("sbatch"))
        if not is_lost or self.takes:
            self.has.append(SlurmJobSeen(100 + len(self.has), number, "PENDING", 0, (), 0, "Resources"))
        self._answer("sbatch")
        return self.has[-1].identity

    def cancel(self, identities: Sequence[int]) -> None:
        self._answer("scancel")
        self.has = [replace(one, state="CANCELLED") if one.identity in identities else one for one in self.has]


def keeper_of(slurm: FakeSlurm, folder: Path) -> Any:
    """Return the controller's keeper in a phase that has just begun, with one job."""
    plan = SimpleNamespace(nodes=NODES, config=folder / "slurm.conf", logs=folder, munge_socket=folder / "munge")
    plan.controller, plan.partition_of = SimpleNamespace(host="z0h000"), lambda priority: "normal"
    submission = Submission(0.0, JobSpec("one", "ada", 1, ("true",)))
    arguments = SimpleNamespace(
        plan=plan, submissions=(submission,), environment={}, settings=folder, logs=folder, scripts=folder
    )
    keeper: Any = programs._Controller(cast(programs.ControllerArguments, arguments))
    keeper._munged = keeper.slurmctld = SimpleNamespace(is_alive=True, verify=lambda: None, stop=lambda: None)
    keeper._slurm = slurm
    keeper._submitting.begin(arguments.submissions)
    keeper._phase, keeper._began_s = "one", time.monotonic()
    return keeper


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("unanswered", [{}, {"sbatch": 2}, {"scancel": 3}, {"sbatch": 1, "scancel": 1}])
def test_a_phase_ends_with_its_rows_though_slurm_does_not_answer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unanswered: dict[str, int], takes: bool
) -> None:
    monkeypatch.setattr(programs, "_munged", lambda plan: ["munged"])
    slurm = FakeSlurm(dict(unanswered), takes)
    rows = keeper_of(slurm, tmp_path).end().rows("platform_events")
    assert [row["event"] for row in rows] == ["up", "submitted", "cancel", "left"]
    assert {frozenset(row) for row in rows} == {frozenset(PLATFORM_EVENTS.columns) - {"job"}}
    assert [one.state for one in slurm.has] == ["CANCELLED"] * len(slurm.has)


def test_a_job_that_slurm_never_takes_is_named_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_munged", lambda plan: ["munged"])
    with pytest.raises(TrafficError, match="job one: Slurm answers, and has not taken it 5 times"):
        keeper_of(FakeSlurm({"sbatch": 100}, takes=False), tmp_path).end()
