"""Where agents and users reach the scheduler, and what users are answered."""

from __future__ import annotations

from collections.abc import Callable

from cluster.platform.channel import Channel, Message, accept_on
from cluster.platform.events import spec_of
from cluster.platform.scheduler_program import Scheduler
from fabric.errors import FabricError
from traffic.transport.connection import Connection, Listener


class Doors:
    """Where agents and users come in, until the first message says which of them it is."""

    def __init__(self, scheduler: Scheduler, listener: Listener) -> None:
        self.scheduler = scheduler
        self._open: set[Channel] = set()
        self._stop = accept_on(listener, self._come)

    def close(self) -> None:
        """Take nobody in any more, and end all connections."""
        self._stop()
        for channel in list(self._open):
            channel.close()
        self._open.clear()
        self.scheduler.agents.clear()

    def _come(self, connection: Connection) -> None:
        who: list[str] = []

        def lost(why: str) -> None:
            self._open.discard(channel)
            if who and self.scheduler.agents.get(who[0]) is channel:
                del self.scheduler.agents[who[0]]

        def hear(message: Message) -> None:
            if message["kind"] == "hello":
                node = str(message.get("node"))
                if node not in self.scheduler.heard_s:
                    channel.send({"kind": "refused", "faults": [f"node: the cluster has no {node!r}"]})
                    return
                who[:] = [node]
                self.scheduler.agents[node] = channel
            if who:
                self.scheduler.hear(who[0], message)
            else:
                channel.send(answer(self.scheduler, message))

        channel = Channel(connection, hear, lost)
        self._open.add(channel)


def answer(scheduler: Scheduler, message: Message) -> Message:
    """Return what a user is answered: as asked, or ``refused`` with every fault."""
    questions: dict[str, Callable[[Scheduler, Message], Message]] = {
        "submit": lambda one, asked: {
            "kind": "submitted",
            "number": one.submit(spec_of(asked["spec"]), str(asked.get("token", ""))),
        },
        "cancel": lambda one, asked: _done(one.cancel, asked),
        "suspend": lambda one, asked: _done(one.suspend, asked),
        "list": lambda one, asked: {"kind": "jobs", "jobs": [_told_of(one, number) for number in one.state.jobs]},
        "nodes": lambda one, asked: {"kind": "nodes", "nodes": _nodes(one)},
    }
    question = questions.get(message["kind"])
    if question is None:
        return {"kind": "refused", "faults": [f"{message['kind']!r}: ask one of {', '.join(questions)}"]}
    try:
        return question(scheduler, message)
    except FabricError as error:
        return {"kind": "refused", "faults": list(getattr(error, "faults", (str(error),)))}
    except (KeyError, TypeError, ValueError) as error:
        return {"kind": "refused", "faults": [f"{message['kind']}: {type(error).__name__}: {error}"]}


def _done(what: Callable[[int], None], asked: Message) -> Message:
    what(int(asked["number"]))
    return {"kind": "done"}


def _told_of(scheduler: Scheduler, number: int) -> Message:
    job = scheduler.state.jobs[number]
    life = job.lives[-1]
    nodes = scheduler.state.nodes_of(life) if life in scheduler.state.tasks else ()
    return {
        "number": number,
        "name": job.spec.name,
        "user": job.spec.user,
        "priority": job.spec.priority.name,
        "state": job.state.value,
        "lives": len(job.lives),
        "nodes": list(nodes),
        "step": job.step,
        "code": job.code,
        "why": job.why,
    }


def _nodes(scheduler: Scheduler) -> list[Message]:
    by_node = {node: life for life, ends in scheduler.left.items() for node in ends}
    return [
        {"name": name, "out": scheduler.state.out.get(name, ""), "life": by_node.get(name)}
        for name in scheduler.state.nodes.names
    ]
