"""The scheduler's server: connections of agents and users, and answers to users."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from cluster.platform import queries
from cluster.platform.channel import BadMessageError, Channel, Message, accept_on
from cluster.platform.events import spec_of
from cluster.platform.messages import HELLO, Beat, Hello, Word, of_values
from cluster.platform.queries import Snapshot
from cluster.platform.requests import (
    REQUESTS,
    SCHEDULERS,
    CancelJob,
    DescribeJob,
    HoldJob,
    ListJobs,
    ListNodes,
    OfJob,
    Question,
    ReadLog,
    ReleaseJob,
    Submit,
    SuspendJob,
    UserOrder,
    ValidateNodes,
)
from cluster.platform.responses import RESPONSES, Document, Done, JobTaken, Refused, Response
from cluster.platform.scheduler_program import Scheduler
from fabric.errors import ConfigError, FabricError
from traffic.transport.connection import Connection, Listener


class SchedulerServer:
    """Connections to the scheduler; the first message of each says whether it is an agent's or a user's."""

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
                channel.send(RESPONSES.to_values(Refused((str(error),))))
                return
            if isinstance(word, Hello):
                node = word.node
                if node not in self.scheduler.heard_s:
                    channel.send(RESPONSES.to_values(Refused((f"node: the cluster has no {node!r}",))))
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


def answer(scheduler: Scheduler, message: Message) -> Message:
    """Return what a user is answered: as asked, or ``refused`` with every fault."""
    kind = message["kind"]
    if kind not in SCHEDULERS:
        return RESPONSES.to_values(Refused((f"{kind!r}: ask one of {', '.join(SCHEDULERS)}",)))

    def answered() -> Response:
        asked = REQUESTS.of_values(message)
        if isinstance(asked, UserOrder):
            return _carried_out(scheduler, asked)
        assert isinstance(asked, Question)
        return answer_query(snapshot_of(scheduler), asked)

    return RESPONSES.to_values(unless_faulty(kind, answered))


def _carried_out(scheduler: Scheduler, order: UserOrder) -> JobTaken | Done:
    """Do what a user tells the scheduler to do."""
    if isinstance(order, Submit):
        return JobTaken(scheduler.submit(spec_of(order.spec), order.token))
    if isinstance(order, ValidateNodes):
        if scheduler.health is None:
            raise ConfigError("validate", ["this platform keeps no health; give it `health:`"])
        scheduler.health.demand(order.nodes)
    else:
        _order_of(scheduler, order)(order.number)
    return Done()


def _order_of(scheduler: Scheduler, order: OfJob) -> Callable[[int], None]:
    orders: dict[type, Callable[[int], None]] = {
        CancelJob: scheduler.cancel,
        SuspendJob: scheduler.suspend,
        HoldJob: scheduler.hold,
        ReleaseJob: scheduler.release,
    }
    return orders[type(order)]


def answer_query(found: Snapshot, asked: Question) -> Document:
    """Return the answer to a question from a snapshot, of a cluster that is up or of the folder of one that is down."""
    if isinstance(asked, ListJobs):
        most = queries.MOST_JOBS if asked.most is None else asked.most
        return queries.jobs(found, asked.after or 0, most)
    if isinstance(asked, DescribeJob):
        return queries.described(found, asked.number)
    if isinstance(asked, ReadLog):
        return queries.log(found, asked.number, asked.rank, asked.life, asked.offset)
    return queries.nodes(found) if isinstance(asked, ListNodes) else queries.quotas(found)


def unless_faulty(kind: str, question: Callable[[], Response]) -> Response:
    """Return the answer to a question, or that it is refused, with every fault that it has."""
    try:
        return question()
    except FabricError as error:
        faults: tuple[str, ...] = tuple(getattr(error, "faults", (str(error),)))
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        # Whatever one user asks, the others' cluster goes on.
        faults = (f"{kind}: {type(error).__name__}: {error}",)
    return Refused(faults)


def snapshot_of(scheduler: Scheduler) -> Snapshot:
    """Return what answers of a scheduler follow from."""
    journal = scheduler.journal
    return Snapshot(
        scheduler.state, journal.path, journal.origin_s, time.monotonic(), scheduler.policy, scheduler.turns.number
    )
