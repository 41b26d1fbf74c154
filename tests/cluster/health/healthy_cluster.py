"""A cluster in one process, in time that jumps, whose nodes have NICs of given rates and GPUs with given errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.health.bandwidth import MeterError
from cluster.health.checks import CheckResult, Occasion
from cluster.health.config import HealthConfig
from cluster.health.host import NicState
from cluster.health.node import NodeHealth, NodeNics
from cluster.health.xids import GpuError
from cluster.nodes import Nodes
from cluster.platform.events import NodeBack, NodeOut, Validated
from cluster.platform.health import HealthSetup
from cluster.platform.messages import RankOrder
from cluster.platform.timers import Timers
from fabric.config import checked
from tests.cluster.platform.fake_nodes import FakeCluster

RATE_BPS = 10_000_000
OVERHEAD = 0.97


@dataclass
class FakeHost:
    """A host: which part of its rate its NIC has, and what its kernel's log tells."""

    share: float = 1.0
    carrier: bool = True
    frames: int = 1000
    dropped: int = 0
    repaired_s: float = -1.0
    log: list[GpuError] = field(default_factory=list)
    wrong: frozenset[int] = frozenset()

    def nics(self) -> tuple[NicState, ...]:
        self.frames += 1000
        return (NicState("eth0", self.carrier, RATE_BPS, self.frames, self.dropped),)

    def gpu_errors(self) -> tuple[GpuError, ...]:
        return tuple(self.log)

    def wrong_gpus(self) -> frozenset[int]:
        return self.wrong

    def breaks(self, xid: int, gpu: int = 0) -> None:
        self.log.append(GpuError(time.monotonic(), gpu, xid))


@dataclass
class FakeMeter:
    """Measures what the slower of two NICs carries, in the time that it takes."""

    node: str
    hosts: Mapping[str, FakeHost]
    busy: dict[str, int] = field(default_factory=dict)
    """How many more tests of a node something else is in the way of."""

    async def measure(self, nic: int, peer: str, size_bytes: int, timeout_s: float) -> float:
        rate_bps = OVERHEAD * RATE_BPS * min(self.hosts[one].share for one in (self.node, peer))
        for one in (self.node, peer):
            if self.busy.get(one, 0) > 0:
                self.busy[one] -= 1
                rate_bps /= 4
        takes_s = 8 * size_bytes / rate_bps if rate_bps else timeout_s + 1
        await asyncio.sleep(min(takes_s, timeout_s))
        if takes_s > timeout_s:
            raise MeterError(f"{size_bytes} B were not through within {timeout_s:g} s")
        return rate_bps


class HealthyCluster(FakeCluster):
    """A cluster that keeps health by a config's keys."""

    def __init__(self, folder: Path, nodes: Nodes, health: dict[str, Any], timers: Timers | None = None) -> None:
        super().__init__(folder, nodes, timers)
        config = checked(HealthConfig, health, "test")
        self.hosts = {name: FakeHost() for name in nodes.names}
        nics = NodeNics(("",), ("eth0",), (RATE_BPS,))
        self.setup = HealthSetup(
            config, {name: NodeNics((name,), nics.interfaces, nics.rates_bps) for name in nodes.names}
        )
        self.busy: dict[str, int] = {}
        self.begun: set[int] = set()
        """The lives of which a rank has begun."""
        self.watching: dict[str, asyncio.Task[None]] = {}

    def start_scheduler(self) -> None:
        super().start_scheduler()
        self.scheduler.keep_health(self.setup)

    def start_agent(self, name: str) -> None:
        super().start_agent(name)
        agent, start = self.agents[name], self.ranks[name].start

        def started(order: RankOrder, *others: Any) -> None:
            self.begun.add(order.life)
            start(order, *others)

        self.ranks[name].start = started  # type: ignore[assignment, method-assign]
        meter = FakeMeter(name, self.hosts, self.busy)
        health = NodeHealth(name, self.setup.nics, self.setup.config, self.hosts[name], meter)
        health.send, health.watch.on_change = agent.send, agent.beat
        health.watch.on_error = lambda errors: agent.stop_ranks()
        health.steps = self.steps_on(name)
        agent.health = health
        self.watching[name] = asyncio.get_running_loop().create_task(health.watch_on(agent.playing))

    def steps_on(self, name: str) -> Callable[[], dict[int, tuple[int, int]]]:
        """Return what tells the steps of the ranks on a node: none."""
        return dict

    def kill_agent(self, name: str) -> None:
        super().kill_agent(name)
        self.watching[name].cancel()

    def results(self) -> list[tuple[Occasion, CheckResult]]:
        """Return what validations have found, by the journal."""
        events = self.scheduler.journal.events()
        return [(one.occasion, result) for one in events if isinstance(one, Validated) for result in one.results]

    def moves(self) -> list[tuple[str, str, str]]:
        """Return which nodes went out and came back, each with the reason, in order, by the journal."""
        found = []
        for event in self.scheduler.journal.events():
            if isinstance(event, NodeOut | NodeBack):
                found.append(("out" if isinstance(event, NodeOut) else "back", event.node, str(event.why)))
        return found
