"""Jobs and nodes in the columns and words of Slurm's ``squeue`` and ``sinfo``. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from cluster.nodes import GROUP
from cluster.platform.responses import JobBrief, NodeListed, NodeUse
from cluster.platform.state import JobState

Row = list[Any]
QUEUE = ("JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)")
NODES = ("PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST")
_REASONS = {
    "held": "JobHeldUser",
    "no_room": "Resources",
    "nodes_leaving": "Resources",
    "zones": "Resources",
    "behind": "Priority",
    "would_delay": "Priority",
    "over_quota": "QOSMaxNodePerUserLimit",
    "quota_too_small": "QOSMaxNodePerUserLimit",
    "too_large": "ReqNodeNotAvail",
    "no_group": "PartitionDown",
    "down": "PartitionDown",
    "killed": "PartitionDown",
}
"""Slurm's name of a reason; of others it has none."""
_STATES = {NodeUse.FREE: "idle", NodeUse.BUSY: "alloc", NodeUse.OUT: "down"}
_NUMBERED = re.compile(r"(.*?)(\d+)")


def queue_rows(jobs: Iterable[JobBrief], now_s: float) -> list[Row]:
    """Return rows of :data:`QUEUE` of jobs that have not ended, as a cluster tells them: those that run come last, as
    Slurm sorts them."""
    in_order = sorted(jobs, key=lambda job: (_short_state(job) != "PD", job.number))
    return [_queue_row(job, now_s) for job in in_order]


def _queue_row(job: JobBrief, now_s: float) -> Row:
    spent = clock(0.0 if job.began_s is None else now_s - job.began_s)
    where = host_list(job.nodes) if job.nodes else f"({_REASONS.get(job.reason, 'None')})"
    return [job.number, job.group, job.name, job.user, _short_state(job), spent, job.asks, where]


def _short_state(job: JobBrief) -> str:
    """Return pending, configuring (its nodes are asked), completing (it was told to leave) or running."""
    if not job.nodes:
        return "PD"
    if job.is_leaving:
        return "CG"
    return "R" if job.state is JobState.RUNNING else "CF"


def node_rows(nodes: Iterable[NodeListed]) -> list[Row]:
    """Return rows of :data:`NODES`, one per group of nodes and state."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in nodes:
        found[node.group, _STATES[node.state]].append(node.name)
    return [
        [group + ("*" if group == GROUP else ""), "up", "infinite", len(names), state, host_list(names)]
        for (group, state), names in sorted(found.items())
    ]


def clock(seconds: float) -> str:
    """Return a time as Slurm writes it: ``1-02:03:04``, ``2:03:04`` or ``3:04``."""
    whole = int(max(0.0, seconds))
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{whole % 60:02}"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def host_list(names: Sequence[str]) -> str:
    """Return names as Slurm does: those that differ in a last number only in brackets, ``z0h[000-002,004]``."""
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name in names:
        numbered = _NUMBERED.fullmatch(name)
        numbers[(numbered[1], len(numbered[2])) if numbered else (name, 0)].append(int(numbered[2]) if numbered else 0)
    return ",".join(_in_brackets(begin, width, sorted(found)) for (begin, width), found in numbers.items())


def _in_brackets(begin: str, width: int, numbers: Sequence[int]) -> str:
    if not width:
        return begin
    if len(numbers) == 1:
        return f"{begin}{numbers[0]:0{width}}"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return f"{begin}[{','.join('-'.join(f'{one:0{width}}' for one in ends) for ends in ranges)}]"
