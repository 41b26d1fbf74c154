"""Answers to users about a cluster: its jobs, one job with all its lives, a rank's log, nodes, quotas.

All follows from the journal and the state, so the folder of a cluster that is down answers as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cluster.decisions import Action, Decision
from cluster.nodes import Nodes
from cluster.platform.events import Asked, EndOrdered, Event, Left, OfJob, Started, Validated
from cluster.platform.journal import events_in
from cluster.platform.responses import (
    JobBrief,
    JobDescribed,
    JobInFull,
    JobsListed,
    LifeOfJob,
    LogPiece,
    NodeListed,
    NodesListed,
    NodeUse,
    QuotasListed,
    QuotaUse,
)
from cluster.platform.state import JobStatus, PlatformState
from cluster.policies import Policy
from cluster.scheduler import tick
from cluster.tasks import Priority, Task, TaskState, Users
from fabric.errors import ConfigError

MOST_JOBS = 500
"""Jobs of one answer: a message has a MiB at most."""
MOST_LOG_BYTES = 1 << 16
_MOST_NODES, _MOST_EVENTS, _MOST_LIVES = 30_000, 1000, 1000
_DIGITS = 6


@dataclass(frozen=True)
class Snapshot:
    """A cluster's state and journal at a moment, from which answers follow. ``origin_s``: when the journal's time was
    zero, by the clock of the state; ``now_s``: the time by that clock; ``policy`` and ``turn``: how the scheduler
    decides now, None if the cluster is down."""

    state: PlatformState
    journal: Path
    origin_s: float
    now_s: float
    policy: Policy | None
    turn: int = 0

    @classmethod
    def read(cls, journal: Path, nodes: Nodes, users: Users) -> Snapshot:
        """Return those of a cluster that is down. Raises ConfigError if the file is not a journal, ValueError if it is
        one of other nodes."""
        events = list(events_in(journal))
        return cls(PlatformState(nodes, users, events), journal, 0.0, events[-1].at_s if events else 0.0, None)

    @property
    def asked_s(self) -> float:
        """The time of an answer, by the cluster's clock."""
        return self.time_s(self.now_s)

    def time_s(self, at_s: float) -> float:
        """Return a time of the state by the cluster's clock."""
        return round(at_s - self.origin_s, _DIGITS)

    def unless_none_s(self, at_s: float | None) -> float | None:
        """As :meth:`time_s`; None for None."""
        return None if at_s is None else self.time_s(at_s)

    def events(self) -> Iterator[Event]:
        """Yield what has happened, by the journal's time."""
        return events_in(self.journal)


# Jobs ----------------------------------------------------------------------------------------------------------------


def jobs(snapshot: Snapshot, after: int = 0, most: int = MOST_JOBS) -> JobsListed:
    """Return jobs by their numbers, those after one, and whether there are more."""
    numbers = sorted(number for number in snapshot.state.jobs if number > after)
    shown, waits = numbers[: min(most, MOST_JOBS)], why_waiting(snapshot)
    listed = tuple(job(snapshot, number, waits) for number in shown)
    return JobsListed(snapshot.asked_s, listed, more=len(numbers) > len(shown))


class Waits(NamedTuple):
    """Why a life waits: in words, and the name of the reason, for programs."""

    words: str = ""
    reason: str = ""


_DOWN = Waits("the cluster is down", "down")
_ASKED = Waits("its nodes are asked whether they can take it", "asked")
_KILLED = Waits("the cluster was killed; this job begins again once it is up", "killed")


def why_waiting(snapshot: Snapshot) -> dict[int, Waits]:
    """Return, by their numbers, why lives wait that wait, as the scheduler would say now; of a cluster that is down
    also of those that had nodes."""
    state, tasks = snapshot.state, snapshot.state.tasks.values()
    held = {
        one.number: Waits(f"held by its user: fabric cluster release {one.chain}", "held")
        for one in tasks
        if state.is_held(one)
    }
    if snapshot.policy is None:
        return {one.number: _DOWN if one.state is TaskState.QUEUED else _KILLED for one in tasks} | held
    found = dict.fromkeys(state.asked, _ASKED) | held
    waiting = {task.number for task in tasks if task.state is TaskState.QUEUED} - held.keys()
    if not waiting:
        return found
    decisions = tick(state.at(snapshot.now_s), snapshot.policy, snapshot.turn)
    return found | {one.task: _waits(one, state.nodes) for one in decisions if one.task in waiting}


def _waits(decision: Decision, nodes: Nodes) -> Waits:
    if decision.action is Action.START:
        return Waits()
    return Waits(str(decision.because(nodes)), decision.reason.name.lower())


def job(snapshot: Snapshot, number: int, waiting: dict[int, Waits]) -> JobBrief:
    """Return a job in brief."""
    found = _job(snapshot, number)
    life, spec = found.lives[-1], found.spec
    task, waits = snapshot.state.tasks.get(life), waiting.get(life, Waits())
    nodes = () if task is None else snapshot.state.nodes_of(life)
    return JobBrief(
        number=number,
        name=spec.name,
        user=spec.user,
        priority=spec.priority.name,
        group=spec.group,
        state=found.state,
        asks=spec.nodes,
        lives=len(found.lives),
        nodes=nodes,
        step=found.step,
        code=found.code,
        why=found.why,
        waits=waits.words,
        reason=waits.reason,
        is_held=found.is_held,
        is_leaving=task is not None and task.state is TaskState.LEAVING,
        began_s=snapshot.unless_none_s(task.began_s) if task is not None and nodes else None,
        submitted_s=snapshot.time_s(found.submitted_s),
        ended_s=snapshot.unless_none_s(found.ended_s),
    )


def _job(snapshot: Snapshot, number: int) -> JobStatus:
    found = snapshot.state.jobs.get(number)
    if found is None:
        last = max(snapshot.state.jobs, default=0)
        known = f"the last one is {last}" if last else "no job has been submitted yet"
        raise ConfigError("job", [f"job {number}: no job has this number; {known}: fabric cluster list"])
    return found


def described(snapshot: Snapshot, number: int) -> JobDescribed:
    """Return a job with its lives and events, the latest if there are very many."""
    found = _job(snapshot, number)
    own = set(found.lives)
    events = [replace(one, at_s=round(one.at_s, _DIGITS)) for one in snapshot.events() if _is_of(one, number, own)]
    lives = {life: LifeOfJob(life) for life in found.lives}
    for one in events:
        life = getattr(one, "life", number)
        lives[life] = _after(lives[life], one)
    brief, shown = job(snapshot, number, why_waiting(snapshot)), _latest(list(lives.values()))
    return JobDescribed(
        snapshot.asked_s,
        JobInFull(**vars(brief), command=found.spec.command, directory=found.spec.directory),
        shown,
        lives_left_out=len(lives) - len(shown),
        events=tuple(_without_nodes(events[-_MOST_EVENTS:])),
        events_left_out=max(0, len(events) - _MOST_EVENTS),
    )


def _latest(lives: list[LifeOfJob]) -> tuple[LifeOfJob, ...]:
    """Return as many of the latest lives as fit into an answer."""
    shown = lives[-_MOST_LIVES:]
    while len(shown) > 1 and sum(len(one.nodes) for one in shown) > _MOST_NODES:
        del shown[0]
    return tuple(shown)


def _without_nodes(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events without nodes, which may be thousands, and are those of lives."""
    for one in events:
        yield replace(one, nodes=()) if isinstance(one, Asked | Started) else one


def _is_of(event: Event, number: int, lives: set[int]) -> bool:
    return event.number == number if isinstance(event, OfJob) else getattr(event, "life", None) in lives


def _after(life: LifeOfJob, event: Event) -> LifeOfJob:
    """Return a life as it is after an event."""
    if isinstance(event, Asked):
        return replace(life, nodes=event.nodes)
    if isinstance(event, Started):
        return replace(life, nodes=event.nodes, started_s=event.at_s, started_why=str(event.why))
    if isinstance(event, EndOrdered):
        return replace(life, told_s=event.at_s, told=event.how, told_why=str(event.why))
    if isinstance(event, Left):
        return replace(life, left_s=event.at_s, code=event.code, step=event.step, finished=event.finished)
    return life


# Logs ----------------------------------------------------------------------------------------------------------------


def log(snapshot: Snapshot, number: int, rank: int = 0, life: int | None = None, offset: int = 0) -> LogPiece:
    """Return a rank's output from a byte offset, as text with a character per byte. ``life``: None: the last one that
    had nodes. Raises ConfigError."""
    found = _job(snapshot, number)
    nodes = found.nodes
    if life is None and not nodes:
        return _piece(b"", 0, found.state.is_over, found, (None, rank, ""))
    life = max(nodes) if life is None else life
    if life not in nodes:
        had = ", ".join(map(str, nodes)) or "none yet"
        raise ConfigError("life", [f"life {life}: job {number} had nodes in lives {had}; give one of these"])
    if not 0 <= rank < len(nodes[life]):
        most = len(nodes[life]) - 1
        raise ConfigError(
            "rank", [f"rank {rank}: life {life} of job {number} has ranks 0 to {most}; give one of these"]
        )
    node, is_over = nodes[life][rank], life not in snapshot.state.tasks
    path = snapshot.journal.parent / node / f"{life}-{rank}" / "log"
    data = b""
    if path.exists():
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(MOST_LOG_BYTES)
    is_all = is_over and len(data) < MOST_LOG_BYTES
    return _piece(data, offset, is_all, found, (life, rank, node))


def _piece(data: bytes, offset: int, is_all: bool, job: JobStatus, whose: tuple[int | None, int, str]) -> LogPiece:
    end = offset + len(data)
    return LogPiece(*whose, job.state, job.state.is_over, text=data.decode("latin-1"), offset=end, is_all=is_all)


# Nodes and quotas ----------------------------------------------------------------------------------------------------


def nodes(snapshot: Snapshot) -> NodesListed:
    """Return all nodes: free, busy with which job, or out, and why."""
    state = snapshot.state
    by_node = {node: task for task in state.tasks.values() for node in state.nodes_of(task.number)}
    validated_s = {node: one.at_s for one in snapshot.events() if isinstance(one, Validated) for node in one.nodes}
    out = state.out
    listed = [
        _node(state.nodes, place, out.get(name, ""), by_node.get(name), validated_s.get(name))
        for place, name in enumerate(state.nodes.names)
    ]
    return NodesListed(snapshot.asked_s, tuple(listed))


def _node(nodes: Nodes, place: int, out: str, task: Task | None, validated_s: float | None) -> NodeListed:
    return NodeListed(
        name=nodes.names[place],
        zone=int(nodes.zones[place]),
        group=nodes.groups[int(nodes.group_of[place])],
        state=NodeUse.OUT if out else NodeUse.BUSY if task else NodeUse.FREE,
        out=out,
        life=None if task is None else task.number,
        job=None if task is None else task.chain,
        user="" if task is None else task.user,
        validated_s=None if validated_s is None else round(validated_s, _DIGITS),
    )


def quotas(snapshot: Snapshot) -> QuotasListed:
    """Return the nodes that each user holds and waits for by priority, beside the quota."""
    state, held, waiting = snapshot.state, dict[_Share, int](), dict[_Share, int]()
    for user, level, group in state.users.quotas:
        held[user, group, level.name] = 0
    for task in state.tasks.values():
        share = (task.user, task.group, task.level_at(snapshot.now_s).name)
        counted = waiting if task.state is TaskState.QUEUED else held
        counted[share] = counted.get(share, 0) + task.nodes
    rows = [
        QuotaUse(user, level, group, held.get(share, 0), waiting.get(share, 0), _quota(state.users, share))
        for share in sorted({*held, *waiting})
        for user, group, level in [share]
    ]
    return QuotasListed(tuple(rows))


_Share = tuple[str, str, str]
"""A user, a group and the name of a priority."""


def _quota(users: Users, share: _Share) -> int | None:
    user, group, level = share
    return None if level == Priority.AUTO.name else users.quota((user, Priority[level], group))
