"""Slurm's files: what slurm.conf says of nodes, partitions, policy and timers. Pure."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.nodes import Nodes
from cluster.placement import Placement
from cluster.platform.timers import Timers
from cluster.platform.user import RESTART_CODE, SUSPENDED_CODE
from cluster.policies import POLICIES
from cluster.tasks import LEVELS, Priority

CONTROLLER_PORT, NODE_PORT = 6817, 6818
ALL = "all"
"""The partition of policies without priorities."""
CREDENTIAL_S = 60
"""How long a launch may take; Slurm also holds a requeued job for so long, unless it is released."""
KILL_WAIT_S = 1
"""From SIGTERM to SIGKILL of a job that is stopped."""
LEAST_FAILED_AFTER_S = 3
"""slurmctld pings each third of SlurmdTimeout, in whole seconds."""
_GRACE_BEYOND_S = 5
"""How long Slurm waits for who was told to leave beyond what its own ranks give it: only for one that hangs."""


@dataclass(frozen=True)
class SchedulingOf:
    """What of slurm.conf a policy is: the scheduler's plugin, whether higher levels take nodes of lower ones."""

    scheduler: str
    preempts: bool = False


SCHEDULING: Mapping[str, SchedulingOf] = {
    "hai": SchedulingOf("sched/builtin", preempts=True),
    "hai_backfill": SchedulingOf("sched/backfill", preempts=True),
    "fifo": SchedulingOf("sched/builtin"),
    "easy": SchedulingOf("sched/backfill"),
}
"""Policies that Slurm has a counterpart of without an accounting database."""
PLACEMENTS: Mapping[Placement, str] = {
    Placement.PACKED: "topology/none",
    Placement.LEAVES: "topology/tree",
}
"""Placements that Slurm has a counterpart of."""


@dataclass(frozen=True)
class At:
    """Where a daemon is: the host's name, its address, the daemon's port."""

    host: str
    address: str
    port: int


@dataclass(frozen=True)
class SlurmPlan:
    """What the files are made of. ``folder``: where they are, with Slurm's state; ``logs``: where daemons log.

    ``ends``: where each node's slurmd is, in the order of ``nodes``. ``ends_at_limit``: whether a job is stopped that
    has run for its limit; else only backfill asks for it.
    """

    controller: At
    nodes: Nodes
    ends: tuple[At, ...]
    policy: str
    placement: Placement
    timers: Timers
    folder: Path
    logs: Path
    ends_at_limit: bool = False

    @property
    def config(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.folder / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Where munged is asked."""
        return self.folder / "munge" / "socket"

    def partition_of(self, priority: Priority) -> str:
        """Return the partition that a job of a priority is submitted to. AUTO is the highest: there are no quotas."""
        if not SCHEDULING[self.policy].preempts:
            return ALL
        return (LEVELS[0] if priority is Priority.AUTO else priority).name


def refusals(policy: str, placement: Placement, timers: Timers) -> Iterator[str]:
    """Yield what of a platform's config Slurm cannot do, each with the key's name in front."""
    if policy not in SCHEDULING:
        others = ", ".join(SCHEDULING)
        why = ""
        if policy in POLICIES and POLICIES[policy].order.by_usage:
            why = "; Slurm's fair share needs its accounting database (slurmdbd), which no run starts"
        yield f"policy: {policy}, and engine slurm has {others}; use one of these, or engine own{why}"
    if placement not in PLACEMENTS:
        have = ", ".join(one.value for one in PLACEMENTS)
        yield f"placement: {placement.value}, and engine slurm has {have}; use one of these, or engine own"
    if timers.failed_after < LEAST_FAILED_AFTER_S:
        yield (
            f"timers.failed_after: {timers.failed_after:g} s; Slurm counts whole seconds and pings each third of it: "
            f"{LEAST_FAILED_AFTER_S} s or more"
        )
    if timers.fence is not None:
        yield f"timers.fence: {timers.fence:g} s, and Slurm has none; leave it out, or use engine own"


def slurm_conf(plan: SlurmPlan) -> str:
    """Return the text of slurm.conf."""
    lines = [*_controller_lines(plan), *_policy_lines(plan), *_timer_lines(plan.timers), _limit_line(plan)]
    lines += [f"NodeName={end.host} NodeAddr={end.address} Port={end.port} CPUs=1 State=UNKNOWN" for end in plan.ends]
    return "\n".join([*lines, *_partition_lines(plan)]) + "\n"


def _controller_lines(plan: SlurmPlan) -> list[str]:
    folder, logs = plan.folder, plan.logs
    return [
        "ClusterName=fabric",
        f"SlurmctldHost={plan.controller.host}({plan.controller.address})",
        f"SlurmctldPort={plan.controller.port}",
        # A run has one user, root in its own namespaces; whose a job is, its account says.
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={plan.munge_socket},cred_expire={CREDENTIAL_S}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={logs}/slurmctld.log",
        f"SlurmdLogFile={logs}/%n/slurmd.log",
        "LogTimeFormat=iso8601_ms",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        "MailProg=/bin/true",
        "MaxJobCount=20000",
        "MinJobAge=65533",  # Jobs that have ended are read, too.
    ]


def _policy_lines(plan: SlurmPlan) -> list[str]:
    scheduling = SCHEDULING[plan.policy]
    tick = max(1, math.ceil(plan.timers.tick))
    options = [f"sched_interval={tick}", "batch_sched_delay=0"]
    if scheduling.preempts:
        options.append("preempt_youngest_first")
    if scheduling.scheduler == "sched/backfill":
        options += [f"bf_interval={tick}", "bf_resolution=1", "bf_continue"]
    preemption = ("preempt/partition_prio", "REQUEUE") if scheduling.preempts else ("preempt/none", "OFF")
    return [
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        f"TopologyPlugin={PLACEMENTS[plan.placement]}",
        f"SchedulerType={scheduling.scheduler}",
        "SchedulerParameters=" + ",".join(options),
        "PriorityType=priority/basic",
        f"PreemptType={preemption[0]}",
        f"PreemptMode={preemption[1]}",
    ]


def _timer_lines(timers: Timers) -> list[str]:
    return [
        f"SlurmdTimeout={math.ceil(timers.failed_after)}",
        f"KillWait={KILL_WAIT_S}",
        "ReturnToService=2",
        "JobRequeue=1",
        f"RequeueExit={RESTART_CODE},{SUSPENDED_CODE}",
        "SlurmdParameters=config_overrides",
    ]


def _limit_line(plan: SlurmPlan) -> str:
    # Without it limits are what users state for backfill, and who runs for longer goes on.
    return f"OverTimeLimit={0 if plan.ends_at_limit else 'UNLIMITED'}"


def _partition_lines(plan: SlurmPlan) -> list[str]:
    common = "Nodes=ALL OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP"
    if not SCHEDULING[plan.policy].preempts:
        return [f"PartitionName={ALL} Default=YES {common}"]
    grace = math.ceil(plan.timers.answer + plan.timers.save) + _GRACE_BEYOND_S
    return [
        f"PartitionName={level.name} PriorityTier={level.value} PreemptMode=REQUEUE GraceTime={grace} "
        f"Default={'YES' if level is Priority.NORMAL else 'NO'} {common}"
        for level in LEVELS
    ]


def topology_conf(plan: SlurmPlan) -> str:
    """Return the text of topology.conf: leaves, zones, and what joins them."""
    nodes = plan.nodes
    zones: dict[int, dict[int, list[str]]] = {}
    for name, zone, leaf in zip(nodes.names, nodes.zones.tolist(), nodes.leaves.tolist(), strict=True):
        zones.setdefault(zone, {}).setdefault(leaf, []).append(name)
    lines = []
    for zone, leaves in zones.items():
        lines += [f"SwitchName=leaf{leaf} Nodes={','.join(names)}" for leaf, names in leaves.items()]
        lines.append(f"SwitchName=zone{zone} Switches={','.join(f'leaf{leaf}' for leaf in leaves)}")
    if len(zones) > 1:
        lines.append(f"SwitchName=all Switches={','.join(f'zone{zone}' for zone in zones)}")
    return "\n".join(lines) + "\n"


CGROUP_CONF = "CgroupPlugin=cgroup/v1\n"
"""No control group is used; slurmd still looks whether there could be some."""


def begin_state(plan: SlurmPlan) -> None:
    """Let Slurm have no state: it saves that seconds late, and would know jobs as running that have ended meanwhile."""
    for name in ("state", *(f"spool-{end.host}" for end in plan.ends)):
        shutil.rmtree(plan.folder / name, ignore_errors=True)
        (plan.folder / name).mkdir(parents=True)


def write(plan: SlurmPlan) -> None:
    """Write the files, and make the folders that they name."""
    begin_state(plan)
    (plan.folder / "munge").mkdir(exist_ok=True)
    for end in plan.ends:
        (plan.logs / end.host).mkdir(parents=True, exist_ok=True)
    plan.config.write_text(slurm_conf(plan))
    (plan.folder / "cgroup.conf").write_text(CGROUP_CONF)
    if PLACEMENTS[plan.placement] == "topology/tree":
        (plan.folder / "topology.conf").write_text(topology_conf(plan))
