"""What is written for Slurm, and what is read of its answers: without Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.nodes import Nodes
from cluster.placement import Placement
from cluster.platform.events import JobSpec
from cluster.platform.timers import Timers
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen, hosts_in, jobs_in, nodes_in
from cluster.slurm.commands import Slurm, script_of
from cluster.slurm.configuration import ALL, At, SlurmPlan, refusals, slurm_conf, topology_conf
from cluster.slurm.installed import missing, why_no_slurm
from cluster.tasks import LEVELS, Priority
from fabric.errors import TrafficError

NODES = Nodes.grid(2, 2, 2)


def plan(policy: str = "hai", placement: Placement = Placement.PACKED, **timers: float) -> SlurmPlan:
    ends = tuple(At(name, f"10.0.0.{number + 2}", 6818) for number, name in enumerate(NODES.names))
    manager = At("z9h000", "10.0.0.1", 6817)
    return SlurmPlan(manager, NODES, ends, policy, placement, Timers(**timers), Path("/run/slurm-1"), Path("/logs"))


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_level_is_a_partition_that_takes_nodes_of_lower_ones_with_notice() -> None:
    found = lines(slurm_conf(plan(answer=5, save=7, failed_after=30.2)))
    partitions = [line for line in found if line.startswith("PartitionName=")]
    assert [line.split()[0] for line in partitions] == [f"PartitionName={level.name}" for level in LEVELS]
    assert all("PreemptMode=REQUEUE GraceTime=17 " in line for line in partitions)
    tiers = [int(line.partition("PriorityTier=")[2].split()[0]) for line in partitions]
    assert tiers == sorted(tiers, reverse=True)
    for line in (
        "PreemptType=preempt/partition_prio",
        "SchedulerType=sched/builtin",
        "SlurmdTimeout=31",
        "SlurmctldHost=z9h000(10.0.0.1)",
        "NodeName=z0h000 NodeAddr=10.0.0.2 Port=6818 CPUs=1 State=UNKNOWN",
    ):
        assert line in found
    assert plan().partition_of(Priority.HIGH) == "HIGH"
    assert plan().partition_of(Priority.AUTO) == LEVELS[0].name


def test_policies_without_priorities_have_one_partition() -> None:
    for policy, scheduler in (("fifo", "sched/builtin"), ("easy", "sched/backfill")):
        found = lines(slurm_conf(plan(policy)))
        assert sum(line.startswith("PartitionName=") for line in found) == 1
        assert {f"SchedulerType={scheduler}", "PreemptType=preempt/none"} <= {*found}
        assert plan(policy).partition_of(Priority.HIGH) == ALL


def test_a_limit_is_what_backfill_plans_with_and_ends_a_job_only_if_so_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "OverTimeLimit=UNLIMITED" in lines(slurm_conf(plan()))
    assert "OverTimeLimit=0" in lines(slurm_conf(replace(plan(), ends_at_limit=True)))
    asked: list[Sequence[str]] = []

    def answer(_: Slurm, command: Sequence[str]) -> str:
        asked.append(command)
        return "7\n"

    monkeypatch.setattr(Slurm, "_asked", answer)
    slurm, paths = Slurm({}, Path("slurm.conf")), (Path("1.sh"), Path("1.out"))
    for limit_s in (None, 61.0):
        slurm.submit(1, JobSpec("a", "ada", 2, ("true",), limit_s=limit_s), ALL, *paths)
    without, stated = ([word for word in command if word.startswith("--time=")] for command in asked)
    assert (without, stated) == ([], ["--time=2"]), "whole minutes, as Slurm counts"


def test_leaves_and_zones_are_switches_of_slurms() -> None:
    assert "TopologyPlugin=topology/tree" in lines(slurm_conf(plan(placement=Placement.LEAVES)))
    assert lines(topology_conf(plan())) == [
        "SwitchName=leaf0 Nodes=z0h000,z0h001",
        "SwitchName=leaf1 Nodes=z0h002,z0h003",
        "SwitchName=zone0 Switches=leaf0,leaf1",
        "SwitchName=leaf2 Nodes=z1h000,z1h001",
        "SwitchName=leaf3 Nodes=z1h002,z1h003",
        "SwitchName=zone1 Switches=leaf2,leaf3",
        "SwitchName=all Switches=zone0,zone1",
    ]


def test_what_slurm_cannot_do_is_named() -> None:
    assert list(refusals("hai", Placement.PACKED, Timers())) == []
    for policy, placement, timers, words in (
        (
            "fair_share",
            Placement.PACKED,
            {},
            "policy: fair_share, and engine slurm has hai, hai_backfill, fifo, easy; ",
        ),
        ("hai", Placement.SPREAD, {}, "placement: spread, and engine slurm has packed, leaves"),
        (
            "hai",
            Placement.PACKED,
            {"failed_after": 2.0, "beat": 0.5},
            "timers.failed_after: 2 s; Slurm counts whole seconds",
        ),
        ("hai", Placement.PACKED, {"fence": 10.0, "beat": 5.0}, "timers.fence: 10 s, and Slurm has none"),
    ):
        (found,) = refusals(policy, placement, Timers(**timers))
        assert found.startswith(words)


JOB = (
    "JobId=7 JobName=3 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901757 Nice=0 Account=ada QOS=(null) "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:15 "
    "PreemptEligibleTime=2026-11-27T21:00:00 PreemptTime={told} ReqNodeList=(null) ExcNodeList=(null) "
    "NodeList=z0h[001-003],z1h007 BatchHost=z0h001 NumNodes=4 Command=/a b/JobState=FAILED WorkDir=/tmp"
)


def test_jobs_and_nodes_are_read_as_scontrol_prints_them() -> None:
    nodes = ("z0h001", "z0h002", "z0h003", "z1h007")
    text = "".join(JOB.format(told=when) + "\n\n" for when in ("None", "2026-11-27T21:00:09"))
    assert jobs_in(text) == [SlurmJobSeen(7, 3, "RUNNING", 2, nodes, 143, is_told=told) for told in (False, True)]
    assert jobs_in("No jobs in the system\n") == []
    with pytest.raises(TrafficError, match="cannot be read"):
        jobs_in(JOB.replace("JobName=3", "JobName=three"))
    shown = nodes_in(
        "NodeName=z0h001 CoresPerSocket=1 State=DOWN* Port=1 Reason=Not responding [slurm@2026-11-27T21:00:00]\n"
        "NodeName=z0h002 State=IDLE+COMPLETING* Partitions=HIGH,NORMAL \n"
        "NodeName=z0h003 State=IDLE Partitions=HIGH"
    )
    assert shown == [
        SlurmNodeSeen("z0h001", frozenset({"DOWN"}), "Not responding"),
        SlurmNodeSeen("z0h002", frozenset({"IDLE", "COMPLETING"})),
        SlurmNodeSeen("z0h003", frozenset({"IDLE"})),
    ]
    assert [node.is_out for node in shown] == [True, False, False]
    assert [node.is_idle for node in shown] == [False, False, True]


def test_short_forms_of_hosts_are_long_ones() -> None:
    for short, hosts in (
        ("", ()),
        ("z0h001", ("z0h001",)),
        ("z0h[001-003,007],z1h000", ("z0h001", "z0h002", "z0h003", "z0h007", "z1h000")),
        ("a[9-11]", ("a9", "a10", "a11")),
    ):
        assert hosts_in(short) == hosts


def test_absent_programs_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name in ("munged", "srun") else f"/usr/bin/{name}")
    assert missing() == ["munged", "srun"]
    assert why_no_slurm() == (
        "Slurm is not installed (no munged, srun); install it (Debian: apt-get install slurmctld slurmd slurm-client "
        "munge), or use engine own"
    )


def test_a_script_quotes_what_users_write() -> None:
    spec = JobSpec("a\nrm -rf /", "ada", 1, ("echo", "$HOME; exit 1"))
    text = script_of(3, spec, Path("/a b/ranks.json"), Path("/a b/logs"))
    assert "\nrm -rf /" not in text
    assert "rank_program '/a b/ranks.json' echo '$HOME; exit 1'\n" in text
