"""Jobs on their way to Slurm, and what is known of them: without Slurm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.nodes import Nodes
from cluster.platform.events import JobSpec
from cluster.platform.programs import Submission
from cluster.slurm import standing
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen
from cluster.slurm.commands import Unanswered
from cluster.slurm.submitting import MOST_TRIES, Submitting
from cluster.slurm.watching import LifeEnd, Watch
from fabric.errors import TrafficError

ONE, TWO = (JobSpec(name, "ada", 1, ("true",)) for name in ("one", "two"))


class Taking:
    """An sbatch that takes a job, takes it without saying so, or does not."""

    def __init__(self) -> None:
        self.says = self.takes = True
        self.has: list[SlurmJobSeen] = []

    def submit(self, number: int, spec: JobSpec) -> int:
        identity = 100 + len(self.has)
        if self.takes:
            self.has.append(SlurmJobSeen(identity, number, "PENDING", 0, (), 0, "Resources"))
        if self.takes and self.says:
            return identity
        raise Unanswered(f"sbatch {spec.name}: Socket timed out")


@pytest.fixture
def slurm() -> Taking:
    return Taking()


def test_jobs_are_due_in_the_order_of_their_times(slurm: Taking) -> None:
    submitting = Submitting(slurm.submit)
    submitting.begin([Submission(5.0, TWO), Submission(0.0, ONE)])
    assert [[*submitting.due(since_s)] for since_s in (0.0, 1.0, 6.0)] == [[ONE], [], [TWO]]
    assert submitting.waiting == []


def test_a_job_that_slurm_did_not_take_is_submitted_again_and_in_the_end_named(slurm: Taking) -> None:
    submitting = Submitting(slurm.submit)
    submitting.add(1, ONE)
    submitting.add(2, TWO)
    slurm.takes = False
    for _ in range(MOST_TRIES - 1):
        with pytest.raises(Unanswered):
            submitting.submit()
        assert submitting.seen(slurm.has) == ([], [])
    with pytest.raises(TrafficError, match="job one: Slurm answers, and has not taken it 5 times: sbatch one: Socket"):
        submitting.submit()
    slurm.takes = True
    submitting.submit()
    assert (submitting.identities, submitting.on_their_way) == ({1: 100, 2: 101}, {})


def test_a_job_that_was_taken_unheard_is_not_submitted_again(slurm: Taking) -> None:
    submitting = Submitting(slurm.submit)
    submitting.add(1, ONE)
    slurm.says = False
    with pytest.raises(Unanswered):
        submitting.submit()
    assert submitting.seen(slurm.has) == (slurm.has, [])
    slurm.says = True
    submitting.submit()
    assert (len(slurm.has), submitting.identities) == (1, {1: 100})


def test_of_a_job_that_came_twice_the_first_stays(slurm: Taking) -> None:
    submitting = Submitting(slurm.submit)
    submitting.add(1, ONE)
    slurm.says = False
    with pytest.raises(Unanswered):
        submitting.submit()
    slurm.says = True
    submitting.submit()  # slurmctld, which was held, has answered who looked before it saw to the first.
    first, second = slurm.has
    others = [SlurmJobSeen(identity, 9, "RUNNING", 0, ("a",), 0) for identity in (200, 201)]
    assert submitting.seen([second, *others, first]) == ([first, others[0]], [second.identity])
    assert submitting.seen([first, replace(second, state="CANCELLED")]) == ([first], [])


def test_where_all_stands_is_said_in_lines(slurm: Taking, tmp_path: Path) -> None:
    assert standing.of_nodes([]) == "slurmctld has reported no node"
    up = [SlurmNodeSeen(f"z0h00{number}", frozenset({"IDLE"})) for number in range(7)]
    down = [SlurmNodeSeen(f"z1h00{number}", frozenset({"UNKNOWN", "NOT_RESPONDING"}), "no port") for number in range(5)]
    assert standing.of_nodes([*up, *down]) == (
        "nodes as Slurm has them: 7 IDLE; 5 NOT_RESPONDING+UNKNOWN (no port): z1h000, z1h001, z1h002, z1h003, ..."
    )
    watch = Watch(Nodes.grid(1, 1, 2), lambda job, restart: LifeEnd())
    submitting = Submitting(slurm.submit)
    for spec in (ONE, TWO, replace(ONE, name="three")):
        submitting.add(watch.submitted(0.0, spec)[0], spec)
    submitting.submit()
    submitting.add(4, TWO)
    watch.submitted(0.0, replace(TWO, name="four"))
    slurm.takes = False
    with pytest.raises(Unanswered):
        submitting.submit()
    submitting.begin([Submission(5.0, replace(ONE, name="five"))])
    watch.look(1.0, slurm.has[:2], ())
    said = [*standing.of_jobs(watch.state, submitting, watch.seen, is_up=False)]
    assert said == [
        "job one: PENDING in Slurm, Resources, queued again 0 times",
        "job two: PENDING in Slurm, Resources, queued again 0 times",
        "job three: submitted, and not yet seen in Slurm",
        "job four: Slurm has not taken it: sbatch two: Socket timed out",
        "job five: is submitted 5 s after the start, but not before all nodes are idle",
    ]
    (tmp_path / "slurmctld.log").write_text("first\nlast\n")
    (tmp_path / "z1h000").mkdir()
    (tmp_path / "z1h000" / "slurmd.log").write_text("")
    assert [*standing.last_lines(tmp_path, [*up, *down[:2]])] == [
        "slurmctld.log ends: last",
        "z1h000/slurmd.log ends: it is empty",
        "z1h001/slurmd.log ends: it cannot be read: No such file or directory",
        f"logs of all daemons: {tmp_path}",
    ]
