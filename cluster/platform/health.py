"""Health as the scheduler has it: who is validated when, what follows for nodes and for jobs.

What it knows of nodes follows from the journal's events, so that it is the same after the scheduler was killed; a
validation that was under way then is forgotten, and begun again when it is due. One that a user asked for is due until
its result is in the journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from cluster.health.checks import Check, Occasion
from cluster.health.config import HealthConfig
from cluster.health.histories import NodeHistory, Standing
from cluster.health.messages import Checked, CheckNode, HealthOrder, HealthWord, MeasureNic, NodeRepaired, Progress
from cluster.health.node import NodeNics
from cluster.health.pairs import LEAST_RING
from cluster.health.stalls import JobSteps
from cluster.health.unwell import Unwell
from cluster.health.validation import Measured, Nodes, Order, Validation
from cluster.platform.channel import Channel
from cluster.platform.events import Demanded, EndKind, EndOrdered, Event, Left, NodeBack, NodeOut, Started, Validated
from cluster.platform.reasons import FailedChecks, Lemon, Silent, Why
from cluster.platform.state import PlatformState
from cluster.tasks import TaskState
from fabric.errors import ConfigError

_SPARE = 1
"""Idle nodes that a validation may measure with beside those that its ring takes: for whoever is suspected. Jobs that
get one wait until it is free, so there are not more."""


class Before(Enum):
    """Whether a life may start on its nodes."""

    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    """One of its nodes is out by now."""


@dataclass(frozen=True)
class HealthSetup:
    """What a platform's health is told when it begins."""

    config: HealthConfig
    nics: Mapping[str, NodeNics]


class Acting(Protocol):
    """What health needs of the scheduler."""

    state: PlatformState
    agents: dict[str, Channel]

    def reaches(self, node: str, since_s: float) -> bool:
        """Return whether a node's agent is there, and was heard since a time."""

    def note(self, event: Event) -> None:
        """Write what happens, then let it be so."""

    def order(self, node: str, order: HealthOrder) -> None:
        """Send an order to a node's agent, if it is there."""

    def tell(self, life: int, how: EndKind, why: Why) -> None:
        """Have a life end."""


class HealthKeeper:
    """Validates nodes, takes them out and back, and watches jobs for stalls. ``events``: those before it began."""

    def __init__(self, scheduler: Acting, setup: HealthSetup, events: Iterable[Event]) -> None:
        self.config, self._scheduler = setup.config, scheduler
        nodes = scheduler.state.nodes
        leaves = dict(zip(nodes.names, nodes.leaves.tolist(), strict=True))
        self._nodes = Nodes({name: one.rates_bps for name, one in setup.nics.items()}, leaves.__getitem__)
        self.histories = {name: NodeHistory() for name in nodes.names}
        self._lives: dict[int, tuple[str, ...]] = {}
        self._validations: dict[int, Validation] = {}
        self._before: dict[int, Validation] = {}
        self._validated_s: dict[str, float] = {}
        self._began_s: float | None = None
        """When the cluster began, by the first event of its journal."""
        self._wanted: list[tuple[Occasion, tuple[str, ...]]] = []
        """What is to be validated; on demand, also what is being: its nodes are busy then, so that it begins once."""
        self._steps: dict[int, JobSteps] = {}
        self._count = 0
        for event in events:
            self.apply(event)

    # What happens -----------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take an event of the journal."""
        self._began_s = event.at_s if self._began_s is None else self._began_s
        if isinstance(event, NodeOut):
            self._out(event)
        elif isinstance(event, NodeBack):
            self.histories[event.node].back()
        elif isinstance(event, Started):
            self._lives[event.life] = event.nodes
            self._steps[event.life] = JobSteps(len(event.nodes), event.at_s)
            for node in event.nodes:
                self.histories[node].began(event.at_s, len(event.nodes))
        elif isinstance(event, EndOrdered) and event.how is EndKind.RESTART:
            nodes = self._lives.get(event.life, ())
            for node in nodes:
                if self.histories[node].standing is not Standing.IN:
                    self.histories[node].stopped(event.at_s, len(nodes))
        elif isinstance(event, Demanded):
            self._wanted.append((Occasion.DEMAND, event.nodes))
        elif isinstance(event, Validated):
            self._validated_s |= dict.fromkeys(event.nodes, event.at_s)
            if event.occasion is Occasion.DEMAND and (done := (event.occasion, event.nodes)) in self._wanted:
                self._wanted.remove(done)
        elif isinstance(event, Left):
            self._lives.pop(event.life, None)
            self._steps.pop(event.life, None)

    def _out(self, event: NodeOut) -> None:
        why, history = event.why, self.histories[event.node]
        if isinstance(why, Lemon):
            history.discarded()
            return
        xids = why.xids if isinstance(why, Unwell | FailedChecks) else ()
        history.out(event.at_s, 0.0 if isinstance(why, Silent) else self.config.repair, xids)

    def hear(self, node: str, word: HealthWord, now_s: float) -> None:
        """Take what an agent says of health."""
        if isinstance(word, Progress):
            if (steps := self._steps.get(word.life)) is not None:
                steps.tell(word.rank, word.step, now_s)
            return
        if (validation := self._validations.get(word.number)) is None:
            return
        if isinstance(word, Checked):
            validation.answer(Order(node), [replace(one, node=node) for one in word.results])
        else:
            validation.answer(Order(node, word.peer, word.nic), Measured(word.bps, word.why))
        self._advance(word.number, now_s)

    # Turns ------------------------------------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        """Go on with validations, begin those that are due, and look for stalls."""
        for number in list(self._validations):
            self._advance(number, now_s)
        self._name_lemons(now_s)
        self._begin_repaired(now_s)
        for wanted in list(self._wanted):
            if set(wanted[1]) <= set(self._idle()):
                if wanted[0] is not Occasion.DEMAND:
                    self._wanted.remove(wanted)
                self._begin(*wanted, now_s)
        self._begin_weekly(now_s)
        self._look_for_stalls(now_s)
        for life in [life for life in self._before if life not in self._scheduler.state.tasks]:
            del self._before[life]

    def before_start(self, life: int, nodes: Sequence[str], now_s: float) -> Before:
        """Return whether a life may start on nodes that it holds; called again in each turn until it is not pending.
        Nodes that are being validated, for whatever reason, are waited for."""
        mine = self._before.get(life)
        if mine is None:
            if not self._busy().isdisjoint(nodes):
                return Before.PENDING
            if any(self.histories[node].standing is not Standing.IN for node in nodes):
                return Before.FAILED
            if not self.config.validation.before_job:
                return Before.OK
            self._before[life] = self._begin(Occasion.BEFORE_JOB, nodes, now_s)
            return Before.PENDING
        if not mine.is_over:
            return Before.PENDING
        del self._before[life]
        return Before.FAILED if mine.failures() else Before.OK

    def demand(self, nodes: Sequence[str]) -> None:
        """Have nodes validated once they are idle. Raises ConfigError for one that there is not, or that is out."""
        faults = [f"nodes: the cluster has no {node!r}" for node in nodes if node not in self.histories]
        out = self._scheduler.state.out
        faults += [
            f"nodes: {node} is out ({out[node]}), and is validated once it is repaired" for node in nodes if node in out
        ]
        if not nodes:
            faults.append("nodes: none is named; name one or more")
        if faults:
            raise ConfigError("validate", faults)
        self._scheduler.note(Demanded(time.monotonic(), tuple(dict.fromkeys(nodes))))

    def end_phase(self) -> None:
        """Forget what is under way, but not what users asked for."""
        self._validations.clear()
        self._before.clear()
        self._wanted = [one for one in self._wanted if one[0] is Occasion.DEMAND]

    # Validations ------------------------------------------------------------------------------------------------------

    def _busy(self) -> set[str]:
        """Return the nodes that validations use."""
        return {node for one in self._validations.values() for node in one.nodes}

    def _idle(self) -> list[str]:
        """Return the nodes that no job has and no validation uses, and whose agents are there."""
        state, busy = self._scheduler.state, self._busy()
        held = {place for task in state.tasks.values() for place in task.placed}
        return [
            name
            for place, name in enumerate(state.nodes.names)
            if place not in held and name not in state.out and name not in busy and name in self._scheduler.agents
        ]

    def _begin(self, occasion: Occasion, subjects: Sequence[str], now_s: float) -> Validation:
        leaves = {self._nodes.leaf_of(node) for node in subjects}
        idle = sorted((node for node in self._idle() if node not in subjects),
                      key=lambda node: self._nodes.leaf_of(node) not in leaves)  # fmt: skip
        helpers = idle[: max(0, LEAST_RING - len(subjects)) + _SPARE]
        self._count += 1
        made = Validation(occasion, subjects, helpers, self._nodes, self.config.validation)
        self._validations[self._count] = made
        self._advance(self._count, now_s)
        return made

    def _advance(self, number: int, now_s: float) -> None:
        validation = self._validations[number]
        for order in validation.turn(now_s):
            asked = MeasureNic(number, order.peer, order.nic) if order.peer else CheckNode(number)
            self._scheduler.order(order.node, asked)
        if validation.is_over:
            del self._validations[number]
            self._close(validation, now_s)

    def _close(self, validation: Validation, now_s: float) -> None:
        """Take nodes out that failed, and bring repaired ones back that did not. What was found is written last: were
        this program killed before, the validation would be due again."""
        is_repair = validation.occasion is Occasion.REPAIR
        # Who is out comes back only as sound, as far as there is anybody to measure with.
        doubts = validation.untold() if is_repair and len(self.histories) > 1 else {}
        failures = doubts | validation.failures()
        for node in validation.subjects:
            if node in failures and (is_repair or node not in self._scheduler.state.out):
                why = FailedChecks(failures[node], validation.xids_of(node), is_repair)
                self._scheduler.note(NodeOut(now_s, node, why))
            elif is_repair and node not in failures:
                self._scheduler.note(NodeBack(now_s, node, "the validator passed it"))
        found = Validated(now_s, validation.occasion, validation.subjects, tuple(validation.results))
        self._scheduler.note(found)

    def _begin_repaired(self, now_s: float) -> None:
        """Validate the nodes whose repair is over, once there is somebody to measure bandwidth with: a node that nobody
        measured with has not passed."""
        repaired = list(self._repaired(now_s))
        alone = Check.BANDWIDTH in self.config.validation.checks and len(self.histories) > 1
        if repaired and (not alone or len(repaired) > 1 or self._idle()):
            for node in repaired:
                self._scheduler.order(node, NodeRepaired())
            self._begin(Occasion.REPAIR, repaired, now_s)

    def _repaired(self, now_s: float) -> Iterator[str]:
        """Yield the nodes that are out whose repair is over, and that can be reached."""
        busy = self._busy()
        for node in self._scheduler.state.out:
            history = self.histories[node]
            is_due = history.standing is Standing.OUT and now_s >= history.due_s
            if is_due and node not in busy and self._scheduler.reaches(node, history.out_s):
                yield node

    def _begin_weekly(self, now_s: float) -> None:
        every_s = self.config.validation.every
        if every_s is None or any(one.occasion is Occasion.WEEKLY for one in self._validations.values()):
            return
        names = self._scheduler.state.nodes.names
        for place, name in enumerate(names):
            # In turn: each begins as if it had been validated at another time of the last interval.
            began_s = now_s if self._began_s is None else self._began_s
            self._validated_s.setdefault(name, began_s - every_s * place / len(names))
        due = [node for node in self._idle() if now_s - self._validated_s[node] >= every_s]
        if due:
            self._begin(Occasion.WEEKLY, [min(due, key=lambda node: self._validated_s[node])], now_s)

    def _name_lemons(self, now_s: float) -> None:
        if (limits := self.config.lemon) is None:
            return
        for node in list(self._scheduler.state.out):
            history = self.histories[node]
            if history.standing is Standing.OUT and (why := history.lemon(now_s, limits)):
                self._scheduler.note(NodeOut(now_s, node, Lemon(why)))

    # Stalls -----------------------------------------------------------------------------------------------------------

    def _look_for_stalls(self, now_s: float) -> None:
        if (watch := self.config.stall) is None:
            return
        for life, steps in list(self._steps.items()):
            task = self._scheduler.state.tasks.get(life)
            if task is None or task.state is not TaskState.RUNNING or (stall := steps.stall(now_s, watch)) is None:
                continue
            nodes = self._lives[life]
            why = stall.words(nodes)
            for rank in stall.blamed:
                if nodes[rank] not in self._scheduler.state.out:
                    self._scheduler.note(NodeOut(now_s, nodes[rank], why))
            if not stall.blamed:
                self._wanted.append((Occasion.STALL, nodes))
            self._scheduler.tell(life, EndKind.RESTART, why)
