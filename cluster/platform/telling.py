"""What users are told of a cluster: its jobs, one job with all its lives, what a rank printed, nodes, quotas.

All follows from the journal and the state, so the folder of a cluster that is down answers as well. Times are seconds
since the cluster first came up, without those in which it was down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cluster.decisions import Action, Decision
from cluster.nodes import Nodes
from cluster.platform.events import Demanded, Event, Held, OfJob, Released, Submitted, Validated, to_line
from cluster.platform.journal import events_in
from cluster.platform.state import JobStatus, PlatformState
from cluster.policies import Policy
from cluster.scheduler import tick
from cluster.tasks import Priority, TaskState, Users
from fabric.errors import ConfigError

Answer = dict[str, Any]
MOST_JOBS = 500
"""Jobs of one answer: a message has a MiB at most."""
MOST_LOG_BYTES = 1 << 16
_MOST_NODES, _MOST_EVENTS, _MOST_LIVES = 30_000, 1000, 1000
_DIGITS = 6


@dataclass(frozen=True)
class Books:
    """What answers follow from. ``origin_s``: when the journal's time was zero, by the clock of the state; ``now_s``:
    the time by that clock; ``policy`` and ``turn``: how the scheduler decides now, None of one that is down."""

    state: PlatformState
    journal: Path
    origin_s: float
    now_s: float
    policy: Policy | None
    turn: int = 0

    @classmethod
    def read(cls, journal: Path, nodes: Nodes, users: Users) -> Books:
        """Return those of a cluster that is down. Raises ConfigError if the journal is none, ValueError if it is of
        other nodes."""
        events = list(events_in(journal))
        return cls(PlatformState(nodes, users, events), journal, 0.0, events[-1].at_s if events else 0.0, None)

    def time_s(self, at_s: float | None) -> float | None:
        """Return a time of the state as users are told it."""
        return None if at_s is None else round(at_s - self.origin_s, _DIGITS)

    def events(self) -> Iterator[Event]:
        """Yield what has happened, by the journal's time."""
        return events_in(self.journal)


# Jobs ----------------------------------------------------------------------------------------------------------------


def jobs(books: Books, after: int = 0, most: int = MOST_JOBS) -> Answer:
    """Return jobs by their numbers, those after one, and whether there are more."""
    numbers = sorted(number for number in books.state.jobs if number > after)
    shown, waits = numbers[: min(most, MOST_JOBS)], why_waiting(books)
    return {
        "kind": "jobs",
        "now_s": books.time_s(books.now_s),
        "jobs": [job(books, number, waits) for number in shown],
        "more": len(numbers) > len(shown),
    }


class Waits(NamedTuple):
    """Why a life waits: in words, and the name of the reason, for programs."""

    words: str = ""
    reason: str = ""


_DOWN = Waits("the cluster is down", "down")
_ASKED = Waits("its nodes are asked whether they can take it", "asked")
_KILLED = Waits("the cluster was killed; this job begins again once it is up", "killed")


def why_waiting(books: Books) -> dict[int, Waits]:
    """Return, by their numbers, why lives wait that wait, as the scheduler would say now; of a cluster that is down
    also of those that had nodes."""
    state, tasks = books.state, books.state.tasks.values()
    held = {
        one.number: Waits(f"held by its user: fabric cluster release {one.chain}", "held")
        for one in tasks
        if state.is_held(one)
    }
    if books.policy is None:
        return {one.number: _DOWN if one.state is TaskState.QUEUED else _KILLED for one in tasks} | held
    found = dict.fromkeys(state.asked, _ASKED) | held
    waiting = {task.number for task in tasks if task.state is TaskState.QUEUED} - held.keys()
    if not waiting:
        return found
    decisions = tick(state.at(books.now_s), books.policy, books.turn)
    return found | {one.task: _waits(one, state.nodes) for one in decisions if one.task in waiting}


def _waits(decision: Decision, nodes: Nodes) -> Waits:
    if decision.action is Action.START:
        return Waits()
    return Waits(str(decision.because(nodes)), decision.reason.name.lower())


def job(books: Books, number: int, waiting: dict[int, Waits]) -> Answer:
    """Return a job in brief."""
    found = _job(books, number)
    life, spec = found.lives[-1], found.spec
    task, waits = books.state.tasks.get(life), waiting.get(life, Waits())
    nodes = () if task is None else books.state.nodes_of(life)
    return {
        "number": number,
        "name": spec.name,
        "user": spec.user,
        "priority": spec.priority.name,
        "group": spec.group,
        "state": found.state.value,
        "asks": spec.nodes,
        "lives": len(found.lives),
        "nodes": list(nodes),
        "step": found.step,
        "code": found.code,
        "why": found.why,
        "waits": waits.words,
        "reason": waits.reason,
        "is_held": found.is_held,
        "is_leaving": task is not None and task.state is TaskState.LEAVING,
        "began_s": books.time_s(task.began_s) if task is not None and nodes else None,
        "submitted_s": books.time_s(found.submitted_s),
        "ended_s": books.time_s(found.ended_s),
    }


def _job(books: Books, number: int) -> JobStatus:
    found = books.state.jobs.get(number)
    if found is None:
        last = max(books.state.jobs, default=0)
        known = f"the last one is {last}" if last else "there is none yet"
        raise ConfigError("job", [f"job {number}: there is none of that number; {known}: fabric cluster list"])
    return found


def described(books: Books, number: int) -> Answer:
    """Return a job with its lives and events, the latest if there are very many."""
    found = _job(books, number)
    own = set(found.lives)
    events = [_told(one) for one in books.events() if _is_of(one, number, own)]
    lives: dict[int, Answer] = {life: {"life": life, "nodes": [], "code": None, "step": None} for life in found.lives}
    for one in events:
        _take(lives[one.get("life", number)], one)
        one.pop("nodes", None)
    shown = list(lives.values())[-_MOST_LIVES:]
    what = {"command": list(found.spec.command), "directory": found.spec.directory}
    while len(shown) > 1 and sum(len(one["nodes"]) for one in shown) > _MOST_NODES:
        del shown[0]
    return {
        "kind": "job",
        "now_s": books.time_s(books.now_s),
        "job": job(books, number, why_waiting(books)) | what,
        "lives": shown,
        "lives_left_out": len(lives) - len(shown),
        "events": events[-_MOST_EVENTS:],
        "events_left_out": max(0, len(events) - _MOST_EVENTS),
    }


def _is_of(event: Event, number: int, lives: set[int]) -> bool:
    return event.number == number if isinstance(event, OfJob) else getattr(event, "life", None) in lives


def _told(event: Event) -> Answer:
    """Return an event as users are told it: as the journal has it, without the spec, and with its reason in words."""
    values: Answer = json.loads(to_line(event))
    values.pop("spec", None)
    if (why := getattr(event, "why", None)) is not None:
        values["why"] = str(why)
    return values | {"at_s": round(event.at_s, _DIGITS)}


def _take(life: Answer, event: Answer) -> None:
    """Put into a life what an event says of it."""
    kind, at_s = event["event"], event["at_s"]
    if "nodes" in event:
        life["nodes"] = event["nodes"]
    if kind == "started":
        life |= {"started_s": at_s, "started_why": event["why"]}
    elif kind == "told":
        life |= {"told_s": at_s, "told": event["how"], "told_why": event["why"]}
    elif kind == "left":
        life |= {"left_s": at_s, "code": event["code"], "step": event["step"], "finished": event["finished"]}


# Logs ----------------------------------------------------------------------------------------------------------------


def log(books: Books, number: int, rank: int = 0, life: int | None = None, offset: int = 0) -> Answer:
    """Return what a rank printed from a byte on, as text with a character per byte, and whether that is all that it
    ever will. ``life``: None: the last one that had nodes. Raises ConfigError."""
    found = _job(books, number)
    nodes = found.nodes
    if life is None and not nodes:
        is_over = found.state.is_over
        return _piece(b"", 0, is_over, found, life=None, rank=rank, node="")
    life = max(nodes) if life is None else life
    if life not in nodes:
        had = ", ".join(map(str, nodes)) or "none yet"
        raise ConfigError("life", [f"life {life}: job {number} had nodes in lives {had}; give one of these"])
    if not 0 <= rank < len(nodes[life]):
        most = len(nodes[life]) - 1
        raise ConfigError(
            "rank", [f"rank {rank}: life {life} of job {number} has ranks 0 to {most}; give one of these"]
        )
    node, is_over = nodes[life][rank], life not in books.state.tasks
    path = books.journal.parent / node / f"{life}-{rank}" / "log"
    data = b""
    if path.exists():
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(MOST_LOG_BYTES)
    is_all = is_over and len(data) < MOST_LOG_BYTES
    return _piece(data, offset, is_all, found, life=life, rank=rank, node=node)


def _piece(data: bytes, offset: int, is_all: bool, job: JobStatus, **whose: Any) -> Answer:
    state = {"state": job.state.value, "is_over": job.state.is_over}
    return {
        "kind": "log",
        **whose,
        **state,
        "text": data.decode("latin-1"),
        "offset": offset + len(data),
        "is_all": is_all,
    }


# Nodes and quotas ----------------------------------------------------------------------------------------------------


def nodes(books: Books) -> Answer:
    """Return all nodes: free, busy with which job, or out, and why."""
    state, told = books.state, []
    by_node = {node: task for task in state.tasks.values() for node in state.nodes_of(task.number)}
    validated = {node: one for one in books.events() if isinstance(one, Validated) for node in one.nodes}
    for place, name in enumerate(state.nodes.names):
        task, out = by_node.get(name), state.out.get(name, "")
        told.append(
            {
                "name": name,
                "zone": int(state.nodes.zones[place]),
                "group": state.nodes.groups[int(state.nodes.group_of[place])],
                "state": "out" if out else "busy" if task else "free",
                "out": out,
                "life": task and task.number,
                "job": task and task.chain,
                "user": task.user if task else "",
                "validated_s": round(validated[name].at_s, _DIGITS) if name in validated else None,
            }
        )
    return {"kind": "nodes", "now_s": books.time_s(books.now_s), "nodes": told}


def quotas(books: Books) -> Answer:
    """Return what each user holds and waits for by priority, in nodes, and the quota; None is no limit."""
    state, rows = books.state, dict[tuple[str, str, str], Answer]()

    def row(user: str, level: Priority, group: str) -> Answer:
        quota = None if level is Priority.AUTO else state.users.quota((user, level, group))
        new = {"user": user, "priority": level.name, "group": group, "holds": 0, "waits": 0, "quota": quota}
        return rows.setdefault((user, group, level.name), new)

    for user, level, group in state.users.quotas:
        row(user, level, group)
    for task in state.tasks.values():
        asked = row(task.user, task.level_at(books.now_s), task.group)
        asked["waits" if task.state is TaskState.QUEUED else "holds"] += task.nodes
    return {"kind": "quotas", "quotas": [rows[key] for key in sorted(rows)]}


# As it happens -------------------------------------------------------------------------------------------------------


def sentence(state: PlatformState, event: Event) -> str:
    """Return an event as a line for people, and let ``state``, which all events before it have led to, be as after
    it."""
    life = getattr(event, "life", None)
    task = None if life is None else state.tasks.get(life)
    state.apply(event)
    told = _told(event)
    at = f"{event.at_s:9.1f} s  "
    if isinstance(event, Submitted):
        spec = event.spec
        return (
            f"{at}job {event.number} submitted: {spec.name} of {spec.user}, {spec.nodes} nodes at {spec.priority.name}"
        )
    if isinstance(event, Held | Released):
        return f"{at}job {event.number} {told['event']}: {event.why}"
    if isinstance(event, Demanded):
        return f"{at}{shortened(list(event.nodes))} to be validated: a user asked for it"
    if isinstance(event, Validated):
        failed = ", ".join(dict.fromkeys(f"{one.node} ({one.words})" for one in event.failed()))
        return f"{at}validated {shortened(list(event.nodes))} ({event.occasion.value}): {failed or 'all passed'}"
    if task is None:
        return f"{at}{told['event']}: {told.get('node', '')}: {told.get('why', '')}"
    which = f"job {task.chain}" + (f" (life {life})" if life != task.chain else "")
    what = str(told.get("how", told["event"]))
    if told["event"] == "left":
        what = "finished" if told["finished"] else "left"
        told["why"] = ", ".join([f"code {told['code']}, step {told['step']}", *filter(None, [told["why"]])])
    if told["event"] == "saved":
        what = f"saved step {told['step']}"
    nodes = f" on {shortened(told['nodes'])}" if told.get("nodes") else ""
    return f"{at}{which} {what}{nodes}" + (f": {told['why']}" if told.get("why") else "")


def shortened(names: list[str], most: int = 4) -> str:
    """Return names as a person reads them: all of a few, or the ends of many and how many there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)})"
