"""Where agents and users reach the scheduler, and what users are answered."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from cluster.platform import telling
from cluster.platform.channel import BadMessageError, Channel, Message, accept_on
from cluster.platform.events import spec_of
from cluster.platform.messages import HELLO, Beat, Hello, Word, of_values
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.telling import Books
from fabric.errors import ConfigError, FabricError
from traffic.transport.connection import Connection, Listener


class Doors:
    """Where agents and users come in, until the first message says which of them it is."""

    def __init__(self, scheduler: Scheduler, listener: Listener) -> None:
        self.scheduler = scheduler
        self._said_s: dict[str, float] = {}
        """When each node's agent sent the latest hello or heartbeat that has come, by its own clock."""
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
            if not who and message["kind"] != HELLO:
                channel.send(answer(self.scheduler, message))
                return
            try:
                word = of_values(message)
            except BadMessageError as error:
                channel.send({"kind": "refused", "faults": [str(error)]})
                return
            if isinstance(word, Hello):
                node = word.node
                if node not in self.scheduler.heard_s:
                    channel.send({"kind": "refused", "faults": [f"node: the cluster has no {node!r}"]})
                    return
                if word.at <= self._said_s.get(node, -math.inf):
                    # The kernel goes on sending what a connection that was given up had left.
                    forget()
                    return
                who[:] = [node]
                former = self.scheduler.agents.get(node)
                self.scheduler.agents[node] = channel
                if former is not None and former is not channel:
                    self._open.discard(former)
                    former.close()  # Its agent has given it up; what it said there the hello says, too.
            if isinstance(word, Hello | Beat):
                self._said_s[who[0]] = max(word.at, self._said_s.get(who[0], -math.inf))
            if isinstance(word, Word):
                self.scheduler.hear(who[0], word)

        def forget() -> None:
            self._open.discard(channel)
            channel.close()

        channel = Channel(connection, hear, lost)
        self._open.add(channel)


ORDERS: dict[str, Callable[[Scheduler, Message], Message]] = {
    "submit": lambda one, asked: {
        "kind": "submitted",
        "number": one.submit(spec_of(asked["spec"]), str(asked.get("token", ""))),
    },
    "cancel": lambda one, asked: _done(one.cancel, asked),
    "suspend": lambda one, asked: _done(one.suspend, asked),
    "validate": lambda one, asked: _validate(one, asked),
}
"""What users tell the scheduler to do."""
QUESTIONS: dict[str, Callable[[Books, Message], Message]] = {
    "list": lambda books, asked: telling.jobs(
        books, int(asked.get("after", 0)), int(asked.get("most", telling.MOST_JOBS))
    ),
    "describe": lambda books, asked: telling.described(books, int(asked["number"])),
    "log": lambda books, asked: telling.log(
        books,
        int(asked["number"]),
        int(asked.get("rank", 0)),
        None if asked.get("life") is None else int(asked["life"]),
        int(asked.get("offset", 0)),
    ),
    "nodes": lambda books, asked: telling.nodes(books),
    "quotas": lambda books, asked: telling.quotas(books),
}
"""What they ask; the folder of a cluster that is down answers these, too."""


def answer(scheduler: Scheduler, message: Message) -> Message:
    """Return what a user is answered: as asked, or ``refused`` with every fault."""
    kind = message["kind"]
    if kind in ORDERS:
        return unless_refused(kind, lambda: ORDERS[kind](scheduler, message))
    if kind in QUESTIONS:
        return unless_refused(kind, lambda: QUESTIONS[kind](books_of(scheduler), message))
    return {"kind": "refused", "faults": [f"{kind!r}: ask one of {', '.join([*ORDERS, *QUESTIONS])}"]}


def unless_refused(kind: str, question: Callable[[], Message]) -> Message:
    """Return what a question is answered, or ``refused`` with every fault that it has."""
    try:
        return question()
    except FabricError as error:
        return {"kind": "refused", "faults": list(getattr(error, "faults", (str(error),)))}
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        # Whatever one user asks, the others' cluster goes on.
        return {"kind": "refused", "faults": [f"{kind}: {type(error).__name__}: {error}"]}


def books_of(scheduler: Scheduler) -> Books:
    """Return what answers of a scheduler follow from."""
    journal = scheduler.journal
    return Books(
        scheduler.state, journal.path, journal.origin_s, time.monotonic(), scheduler.policy, scheduler.turns.number
    )


def _done(what: Callable[[int], None], asked: Message) -> Message:
    what(int(asked["number"]))
    return {"kind": "done"}


def _validate(scheduler: Scheduler, asked: Message) -> Message:
    if scheduler.health is None:
        raise ConfigError("validate", ["this platform keeps no health; give it `health:`"])
    scheduler.health.demand([str(node) for node in asked["nodes"]])
    return {"kind": "done"}
