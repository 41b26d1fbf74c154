"""The health of one node, for its agent: carries out what a validation asks, and watches counters and errors.

It knows no agent: messages come to :meth:`NodeHealth.hear`, and go by ``send``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cluster.health.allreduce_check import GpuTest, allreduce_result
from cluster.health.bandwidth import MeterError
from cluster.health.check_program import CheckError
from cluster.health.checks import Check, CheckResult, Verdict
from cluster.health.config import HealthConfig
from cluster.health.gpu_teams import GpuParts
from cluster.health.host import Host, NicState
from cluster.health.messages import (
    Checked,
    CheckNode,
    HealthOrder,
    HealthWord,
    MeasureNic,
    NicMeasured,
    NodeRepaired,
    Progress,
)
from cluster.health.storage_check import stress
from cluster.health.unwell import Unwell
from cluster.health.xids import GpuError
from fabric.units import format_rate

_PART = 0.9
"""Of the scheduler's patience: it takes silence for an answer, so tests end before, and say why."""
_SPEED_SLACK = 0.01
"""A port's rate in whole bytes per second may be this much below the NIC's."""


class Meter(Protocol):
    """What measures bandwidth to another node."""

    async def measure(self, nic: int, peer: str, size_bytes: int, timeout_s: float) -> float:
        """Return bit/s by a NIC to a peer's address. Raises MeterError."""


@dataclass(frozen=True)
class NodeNics:
    """A node's NICs by their number: addresses, interfaces, and rates in bit/s as they should be; and its GPUs, if it
    has an inside."""

    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    rates_bps: tuple[int, ...]
    gpus: GpuParts | None = None


class NodeWatch:
    """What an agent's looks at its host see. ``on_error`` is called with GPU errors that are new, ``on_change`` when
    what :meth:`unwell` says has changed."""

    def __init__(self, config: HealthConfig, host: Host) -> None:
        self.on_error: Callable[[Sequence[GpuError]], None] = lambda errors: None
        self.on_change: Callable[[], None] = lambda: None
        self._config, self._host = config, host
        self._seen_errors = 0
        self._before: tuple[NicState, ...] = ()
        self._errors: dict[GpuError, None] = {}
        self._drops: dict[int, str] = {}
        """By the number of the NIC that has dropped too much, in words."""

    def unwell(self) -> Unwell:
        """Return the node's faults since its last repair."""
        errors = {error.words: error.xid for error in self._errors}
        return Unwell("; ".join([*errors, *self._drops.values()]), tuple(errors.values()))

    def dropping(self) -> list[str]:
        """Return which NICs have dropped too much since the last repair, in words."""
        return list(self._drops.values())

    def since_repair(self, errors: Sequence[GpuError] | None = None) -> list[GpuError]:
        """Return the errors since the last repair that take a node out. ``errors``: all that the log has, if it has
        been read just now."""
        repaired_s = self._host.repaired_s
        found = self._host.gpu_errors() if errors is None else errors
        return [one for one in found if one.at_s >= repaired_s and one.kind.takes_out]

    def look(self) -> None:
        """Look once."""
        said = self.unwell()
        errors = self._host.gpu_errors()
        fresh, self._seen_errors = errors[self._seen_errors :], len(errors)
        self._errors.update(dict.fromkeys(self.since_repair(errors)))
        now = self._host.nics()
        for number, (one, before) in enumerate(zip(now, self._before, strict=False)):
            frames, dropped = one.frames - before.frames, one.dropped - before.dropped
            if dropped > 0 and dropped > self._config.drops * (frames + dropped):
                self._drops[number] = f"NIC {number}: {dropped} of {frames + dropped} frames dropped"
        self._before = now
        if self.unwell() != said:
            self.on_change()
        if fresh:
            self.on_error(fresh)

    def repaired(self) -> None:
        """Take what was wrong so far as mended."""
        self._host.repaired_s = time.monotonic()
        self._errors.clear()
        self._drops.clear()
        self._before = ()


class NodeHealth:
    """One node's health. ``nics``: those of all nodes by name; ``steps``: by the life of each rank that runs here,
    which rank it is, and the last step that it told; ``gpu_test``: that of its GPUs, if it has an inside."""

    def __init__(self, node: str, nics: Mapping[str, NodeNics], config: HealthConfig, host: Host, meter: Meter) -> None:
        self.node, self.config = node, config
        self.watch = NodeWatch(config, host)
        self.send: Callable[[HealthWord], None] = lambda word: None
        self.steps: Callable[[], Mapping[int, tuple[int, int]]] = dict
        self.gpu_test: GpuTest | None = None
        self._nics, self._host, self._meter = nics, host, meter
        self._told_steps: dict[int, tuple[int, int]] = {}
        self._measuring: set[asyncio.Task[None]] = set()

    def unwell(self) -> Unwell:
        """Return the node's faults."""
        return self.watch.unwell()

    async def watch_on(self, playing: asyncio.Event) -> None:
        """Look at counters, errors and steps, forever, while packets may move."""
        while True:
            await playing.wait()
            self.watch.look()
            self._tell_steps()
            await asyncio.sleep(self.config.look)

    def _tell_steps(self) -> None:
        steps = dict(self.steps())
        for life, (rank, step) in steps.items():
            if self._told_steps.get(life) != (rank, step):
                self.send(Progress(life, rank, step))
        self._told_steps = steps

    # What the scheduler asks ------------------------------------------------------------------------------------------

    def hear(self, order: HealthOrder) -> None:
        """Take an order."""
        if isinstance(order, CheckNode):
            self._spawn(self._check(order))
        elif isinstance(order, MeasureNic):
            self._spawn(self._measure(order))
        elif isinstance(order, NodeRepaired):
            self.watch.repaired()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._measuring.add(task)
        task.add_done_callback(self._measuring.discard)

    async def _check(self, order: CheckNode) -> None:
        found = (*self.checks(), *await self._allreduce(), *await self._storage())
        self.send(Checked(order.number, found))

    async def _allreduce(self) -> list[CheckResult]:
        if self.gpu_test is None or not self._tests_gpus:
            return []
        return [await allreduce_result(self.node, self.gpu_test, self._host.wrong_gpus(), self._test_s)]

    @property
    def _tests_gpus(self) -> bool:
        return self.gpu_test is not None and Check.ALLREDUCE in self.config.validation.checks

    @property
    def _tests_storage(self) -> bool:
        checks = self.config.validation
        return checks.storage is not None and Check.STORAGE in checks.checks

    @property
    def _test_s(self) -> float:
        """How long a test by a program may take: they follow one another."""
        return _PART * self.config.validation.timeout / max(1, self._tests_gpus + self._tests_storage)

    async def _storage(self) -> list[CheckResult]:
        asked = self.config.validation.storage
        if asked is None or not self._tests_storage:
            return []
        try:
            speeds = await stress(self.node, asked.files, asked.size, self._test_s)
        except CheckError as error:
            return [CheckResult(self.node, Check.STORAGE, Verdict.FAILED, 0.0, asked.least, "bit/s", str(error))]
        told = f"writes {format_rate(speeds.write_bps)}, reads {format_rate(speeds.read_bps)}"
        slower = min(speeds)
        verdict = Verdict.PASSED if slower >= asked.least else Verdict.FAILED
        return [CheckResult(self.node, Check.STORAGE, verdict, slower, asked.least, "bit/s", told)]

    async def _measure(self, order: MeasureNic) -> None:
        checks = self.config.validation
        answer = NicMeasured(order.number, order.peer, order.nic)
        size_bytes = checks.bytes_at(self._nics[self.node].rates_bps[order.nic])
        try:
            address, timeout_s = self._nics[order.peer].addresses[order.nic], _PART * checks.timeout
            bps = await self._meter.measure(order.nic, address, size_bytes, timeout_s)
            answer = replace(answer, bps=bps)
        except MeterError as error:
            answer = replace(answer, why=str(error))
        self.send(answer)

    def checks(self) -> list[CheckResult]:
        """Return what the node finds of itself."""
        nics = self._host.nics()
        found = [*self._links(nics), *self._speeds(nics), self._counters(), *self._errors()]
        return [one for one in found if one.check in self.config.validation.checks]

    def _links(self, nics: Sequence[NicState]) -> list[CheckResult]:
        return [
            self._of(Check.LINK, one.carrier, float(one.carrier), 1.0, f"NIC {number} has no carrier")
            for number, one in enumerate(nics)
        ]

    def _speeds(self, nics: Sequence[NicState]) -> list[CheckResult]:
        found = []
        for number, (one, wanted) in enumerate(zip(nics, self._nics[self.node].rates_bps, strict=True)):
            if one.rate_bps is None:
                why = f"NIC {number}: its queues do not say their rate"
                found.append(
                    CheckResult(self.node, Check.SPEED, Verdict.UNKNOWN, limit=wanted, unit="bit/s", reason=why)
                )
                continue
            why = f"NIC {number} is at {format_rate(one.rate_bps)} of {format_rate(wanted)}"
            passed = one.rate_bps >= wanted * (1 - _SPEED_SLACK)
            verdict = Verdict.PASSED if passed else Verdict.FAILED
            said = "" if passed else why
            found.append(CheckResult(self.node, Check.SPEED, verdict, one.rate_bps, wanted, "bit/s", said))
        return found

    def _counters(self) -> CheckResult:
        said = self.watch.dropping()
        return self._of(Check.COUNTERS, not said, len(said), 0.0, "; ".join(said))

    def _errors(self) -> list[CheckResult]:
        since = self.watch.since_repair()
        found = []
        for check, is_memory in ((Check.GPU, False), (Check.MEMORY, True)):
            mine = [one for one in since if one.kind.is_memory is is_memory]
            why = "; ".join(dict.fromkeys(one.words for one in mine))
            told = self._of(check, not mine, len(mine), 0.0, why)
            found.append(replace(told, xids=tuple(dict.fromkeys(one.xid for one in mine))))
        return found

    def _of(self, check: Check, passed: bool, measured: float, limit: float, why: str) -> CheckResult:
        verdict = Verdict.PASSED if passed else Verdict.FAILED
        return CheckResult(self.node, check, verdict, measured, limit, "", "" if passed else why)
