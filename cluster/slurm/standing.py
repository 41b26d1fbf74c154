"""What is known of a cluster whose jobs have not ended, for the errors that say so. Pure, but for daemons' logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cluster.platform.state import PlatformState
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen
from cluster.slurm.submitting import Submitting

_MOST_NAMES = 4
_MOST_LOGS = 3
_LAST_BYTES = 4096
_USUAL = ("IDLE", "ALLOCATED", "MIXED")


def of_nodes(nodes: Sequence[SlurmNodeSeen]) -> str:
    """Return how many nodes are in which state, and the names of those that no job could get."""
    if not nodes:
        return "slurmctld has reported no node"
    by_state: dict[str, list[str]] = {}
    for node in nodes:
        state = "+".join(sorted(node.states)) + (f" ({node.reason})" if node.reason else "")
        by_state.setdefault(state, []).append(node.name)
    parts = []
    for state, names in by_state.items():
        few = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        parts.append(f"{len(names)} {state}" + ("" if state in _USUAL else f": {few}"))
    return f"nodes as Slurm has them: {'; '.join(parts)}"


def of_jobs(
    state: PlatformState, submitting: Submitting, seen: Mapping[int, SlurmJobSeen], is_up: bool
) -> Iterator[str]:
    """Yield where each job stands that has not ended. ``seen``: jobs by number, as Slurm has shown them."""
    for task in state.tasks.values():
        name = f"job {state.jobs[task.chain].spec.name}"
        if (way := submitting.on_their_way.get(task.chain)) is not None:
            yield f"{name}: Slurm has not taken it" + (f": {way.why}" if way.why else "")
        elif (job := seen.get(task.chain)) is None:
            yield f"{name}: submitted, and not yet seen in Slurm"
        else:
            why = f", {job.reason}" if job.reason else ""
            yield f"{name}: {job.state} in Slurm{why}, queued again {job.restarts} times"
    for one in submitting.waiting:
        when = f"is submitted {one.at_s:g} s after the start"
        yield f"job {one.spec.name}: {when}" + ("" if is_up else ", but not before all nodes are idle")


def last_lines(logs: Path, nodes: Sequence[SlurmNodeSeen]) -> Iterator[str]:
    """Yield the last line of slurmctld's log, and of those of some nodes that no job could get; then where all are."""
    odd = [node.name for node in nodes if not node.states & {*_USUAL}]
    for path in (logs / "slurmctld.log", *(logs / name / "slurmd.log" for name in odd[:_MOST_LOGS])):
        yield f"{path.relative_to(logs)} ends: {_last_line(path)}"
    yield f"logs of all daemons: {logs}"


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LAST_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return lines[-1] if lines else "it is empty"
