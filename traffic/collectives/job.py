"""Allreduces over TCP as jobs: their config, and the run's side, which starts ranks and orders their steps.

Ranks are programs (:mod:`traffic.collectives.rank`). Steps are ordered over pipes, so the fabric carries only the
collective's own bytes.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fabric.config import SizeBytes, Strict, TimeS
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.units import format_time
from fabric.world.agents import AgentHandle
from traffic.collectives.chunk_link import StalledError
from traffic.collectives.dataset import ELEMENT_BYTES, Dataset
from traffic.collectives.rank import (
    DEFAULT_SLOTS,
    FAILURES_TIMEOUT_S,
    START_TIMEOUT_S,
    RankArguments,
    RankFailed,
    Schedule,
    StepDone,
    StepOrder,
    run_rank,
)
from traffic.job import Halt, Play, Records, Stage

REPORT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 10.0
BASE_STEP_TIMEOUT_S = 60.0
"""What a step may take beyond its share of the network: link cuts and TCP's retransmission timeouts."""
IDEAL_STEPS_TIMEOUT = 20
"""How many times the ideal step time a step may take: an allreduce with a twentieth of its NIC still ends."""


def _whole_elements(size_bytes: int) -> int:
    if size_bytes % ELEMENT_BYTES:
        raise ValueError(f"{size_bytes} bytes are not whole float32 elements; use a multiple of {ELEMENT_BYTES}")
    return size_bytes


ElementsBytes = Annotated[SizeBytes, Field(gt=0), AfterValidator(_whole_elements)]
"""A size in bytes of one or more float32 elements."""


class CollectiveConfig(Strict):
    """An allreduce of ``size`` bytes a rank in steps, each of which may take ``step_timeout`` (if None, derived).

    ``slots``: how many chunks (of a tree, at its root) or slices (of a ring) a rank holds between taking them in and
    sending them on. When all are in use it takes no more, and TCP holds its peer back. NCCL's connections have 8.

    ``stall_timeout``: a rank that neither sends nor receives for so long in a step fails, and with it the job; it then
    begins again, with new programs and connections, from the step that failed. Without it such a run ends. It must be
    longer than a step takes. TCP alone survives a cut, but it tries again after 200 ms at the earliest and each time
    after twice as long, so what waits notices the link's return late, by up to as long as the cut (InfiniBand's
    hardware tries again at one interval, 7 times as a rule, and then breaks the connection).
    """

    size: ElementsBytes = 2 * 1024 * 1024
    step_timeout: Annotated[TimeS, Field(gt=0)] | None = None
    slots: Annotated[int, Field(ge=2)] = DEFAULT_SLOTS
    stall_timeout: Annotated[TimeS, Field(gt=0)] | None = None


def step_timeout_s(config: CollectiveConfig, ideal_s: float) -> float:
    """Return what a step may take: as configured, or 60 s and 20 times the ideal step time."""
    if config.step_timeout is not None:
        return config.step_timeout
    return BASE_STEP_TIMEOUT_S + IDEAL_STEPS_TIMEOUT * ideal_s


AddressOf = Callable[[NodeId], str]


def nic_address(stage: Stage, nodes: Sequence[NodeId]) -> AddressOf:
    """Return how a job finds a node's address: see :meth:`Fabric.nics_in_common`. Raises TopologyError."""
    nics = stage.fabric.nics_in_common(nodes)
    return lambda node: nics[node].ip


def zones_of(stage: Stage, nodes: Sequence[NodeId]) -> list[int]:
    """Return the zone of each node's first NIC."""
    return [stage.fabric.nics_of[node][0].zone for node in nodes]


@dataclass(frozen=True)
class Collective:
    """What distinguishes one collective job from another. ``ideal_step_s`` is the step time of an idle fabric."""

    name: str
    level: ServiceLevel
    schedule: Schedule
    buffers_per_rank: int
    ideal_step_s: float


class CollectiveJob:
    """A :class:`traffic.job.Job` that repeats an allreduce over ``ranks``, one step after another, while it plays.

    ``address_of`` gives a node's address on the fabric, by default as :func:`nic_address` says. Steps are numbered from
    0 over the job's life; one that stalled and was begun again keeps its number.
    """

    def __init__(
        self,
        stage: Stage,
        collective: Collective,
        config: CollectiveConfig,
        ranks: Sequence[NodeId],
        address_of: AddressOf | None = None,
        name: str | None = None,
    ) -> None:
        if len(ranks) < 2:
            raise TrafficError(f"{collective.name}: {len(ranks)} ranks; an allreduce needs at least 2 nodes")
        self.level = collective.level
        self.name = name or self.level.label
        self.ranks = tuple(ranks)
        self.step_timeout_s = step_timeout_s(config, collective.ideal_step_s)
        self._stage = stage
        self._collective = collective
        self._config = config
        self._address_of = address_of or nic_address(stage, ranks)
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._handles: list[AgentHandle] = []
        self._next_step = 0
        self._phase = ""
        self._steps: list[dict[str, Any]] = []
        self._restarts: list[dict[str, Any]] = []
        self._dataset: Dataset | None = None
        self._halting = threading.Event()
        self._closed = False
        self._owning = threading.Lock()
        """Held while ranks are forked or taken to be ended: both the experiment's thread and the player's do so."""
        self._player: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Fork the ranks and connect them. Raises TrafficError naming a rank that did not come up."""
        self._files = tempfile.TemporaryDirectory(prefix=f"{self.level.label}-")
        self._dataset = Dataset.write(
            Path(self._files.name),
            len(self.ranks),
            self._collective.buffers_per_rank,
            self._config.size // ELEMENT_BYTES,
            self._stage.seed,
            self._collective.schedule.longest_piece,
        )
        self._start_ranks()

    def _start_ranks(self) -> None:
        assert self._dataset is not None, "start() has written it"
        for rank in range(len(self.ranks)):
            self._fork(rank, self._dataset)
        listening = self._collect("listening", START_TIMEOUT_S)
        self._order([message.endpoint for message in listening])
        self._collect("connections", START_TIMEOUT_S)

    def _fork(self, rank: int, dataset: Dataset) -> None:
        node = self.ranks[rank]
        arguments = RankArguments(
            collective=self._collective.name,
            rank=rank,
            hosts=tuple(node.name for node in self.ranks),
            address=self._address_of(node),
            options=self._stage.socket_options(self.level),
            schedule=self._collective.schedule,
            dataset=dataset,
            timeout_s=self.step_timeout_s,
            stall_s=self._config.stall_timeout or self.step_timeout_s,
        )
        name = f"{self._collective.name} rank {rank}"
        with self._owning:
            if self._closed:
                raise TrafficError(f"{self._collective.name}: was closed while its ranks were started")
            namespace = self._stage.namespace_of(node)
            self._handles.append(self._stage.pool.start(name, node.name, run_rank, arguments, namespace))

    def _end_ranks(self) -> None:
        """End all ranks at once. Whoever calls it first does it; none is left for another."""
        with self._owning:
            ending, self._handles = self._handles, []
        for handle in ending:
            handle.kill()
        self._stage.pool.stop(ending)

    def play(self, phase: str) -> None:
        """Begin to repeat steps; returns once every rank samples its connections.

        Ranks that were still waiting to begin again when the phase before ended are started anew.
        """
        self._begin(phase)
        self._player = threading.Thread(target=self._step_until_halted, daemon=True)
        self._player.start()

    def halt(self) -> Records:
        """End after the step under way and return rows of all steps of the phase.

        Waits for that step at most its timeout, and for one attempt to begin again, if one is under way. Raises
        TrafficError if a rank failed or its sum was wrong.
        """
        self._halting.set()
        if self._player is not None:
            self._player.join(self.step_timeout_s + REPORT_TIMEOUT_S + self._restart_patience_s())
            if self._player.is_alive():
                raise TrafficError(self._not_ended())
            self._player = None
        if self._error is not None:
            raise self._error
        return self._finish()

    def run_steps(self, count: int, phase: str = "") -> Records:
        """Carry out exactly ``count`` steps and return their rows. Raises TrafficError as :meth:`halt` does."""
        self._begin(phase)
        for _ in range(count):
            self._step()
        return self._finish()

    def warm_up(self) -> None:
        """Carry out a short step that no row tells of: in it TCP opens its windows. Its sum is checked like any other.

        Raises TrafficError as :meth:`halt` does.
        """
        self._start_missing_ranks()
        self._order_step(warms_up=True)

    def close(self) -> None:
        """End the ranks and remove the data."""
        self._halting.set()
        with self._owning:
            self._closed = True
        if self._player is None:
            self._stage.pool.stop(self._handles)
            self._handles = []
        self._end_ranks()  # The player sees them go, whatever it waits for.
        if self._player is not None:
            self._player.join(CLOSE_TIMEOUT_S)
        if self._files is not None:
            self._files.cleanup()

    def _begin(self, phase: str) -> None:
        if self._dataset is None:
            raise TrafficError(f"{self._collective.name}: has not started; call start() before play()")
        self._start_missing_ranks()
        self._phase, self._steps, self._restarts, self._error = phase, [], [], None
        self._halting.clear()
        self._sample()

    def _start_missing_ranks(self) -> None:
        """Start the ranks if the last phase ended before they could begin again."""
        if not self._handles:
            self._start_ranks()

    def _sample(self) -> None:
        self._order(Play(self._phase))
        self._collect("samples begun", REPORT_TIMEOUT_S)

    def _finish(self) -> Records:
        records = Records(steps=self._steps, restarts=self._restarts)
        self._order(Halt())
        for message in self._collect("rows", REPORT_TIMEOUT_S):
            records.extend(message)
        return records

    def _step_until_halted(self) -> None:
        try:
            while not self._halting.is_set():
                self._step_or_restart()
        except Exception as error:  # Whatever it is, halt() raises it where the experiment sees it.
            self._error = error

    def _step_or_restart(self) -> None:
        try:
            self._step()
        except StalledError as stall:
            if self._config.stall_timeout is None:
                raise
            self._restart(str(stall))

    def _restart(self, reason: str) -> None:
        """Begin again from the last whole step, as a job does whose ranks have given up, and if that stalls, too, again
        until it works or the phase ends: then ``resumed_s`` is NaN, and the next phase starts the ranks."""
        failed = time.monotonic()
        resumed = math.nan
        self._end_ranks()
        while math.isnan(resumed) and not self._halting.is_set():
            try:
                self._start_ranks()
                self._sample()
                resumed = time.monotonic()
            except StalledError:
                self._end_ranks()
        self._restarts.append(
            {
                "phase": self._phase,
                "service_level": self.level.label,
                "step": self._next_step,
                "failed_s": failed,
                "resumed_s": resumed,
                "reason": reason,
            }
        )

    def _restart_patience_s(self) -> float:
        """Return how long one attempt to begin again may take: to listen, to connect, to sample."""
        if self._config.stall_timeout is None:
            return 0.0
        return 2 * (START_TIMEOUT_S + FAILURES_TIMEOUT_S) + REPORT_TIMEOUT_S

    def _step(self) -> None:
        done = self._order_step()
        self._steps.append(
            {
                "phase": self._phase,
                "service_level": self.level.label,
                "step": done[0].step,
                "ranks": len(self.ranks),
                "size_bytes": self._config.size,
                "started_s": min(message.started for message in done),
                "ended_s": max(message.ended for message in done),
            }
        )

    def _order_step(self, warms_up: bool = False) -> list[StepDone]:
        number = self._next_step
        self._order(StepOrder(number, warms_up))
        done: list[StepDone] = self._collect(f"end of step {number}", self._step_patience_s() + REPORT_TIMEOUT_S)
        self._next_step += 1
        return done

    def _step_patience_s(self) -> float:
        """Return how long a step may take: a rank that stalls says so itself, unless it is the one that has stopped."""
        stall_s = self._config.stall_timeout
        return self.step_timeout_s if stall_s is None else min(self.step_timeout_s, 2 * stall_s)

    def _not_ended(self) -> str:
        ideal = format_time(self._collective.ideal_step_s)
        return (
            f"{self._collective.name}: step {self._next_step} did not end within {self.step_timeout_s:g} s of halt "
            f"(its ideal time is {ideal}); look for cut links or raise step_timeout"
        )

    def _order(self, message: object) -> None:
        for handle in self._handles:
            # A rank that has gone is not the whole story: the others tell the rest when their answers are collected.
            with contextlib.suppress(TrafficError):
                handle.send(message)

    def _collect(self, what: str, timeout_s: float) -> list[Any]:
        """Return every rank's next message. Raises TrafficError with the failure that is not another's consequence."""
        deadline = time.monotonic() + timeout_s
        messages: list[Any] = []
        failures: list[RankFailed] = []
        for handle in self._handles:
            message = _next_message(handle, deadline, what, is_first=not failures)
            if isinstance(message, RankFailed):
                deadline = min(deadline, time.monotonic() + FAILURES_TIMEOUT_S)
                failures.append(message)
            messages.append(message)
        if failures:
            cause = min(failures, key=lambda failure: failure.is_consequence)
            kind = StalledError if cause.is_stall else TrafficError
            raise kind(cause.text + _others(len(failures) - 1))
        return messages


def _others(count: int) -> str:
    return f" ({count} more of its ranks ended with it)" if count else ""


def _next_message(handle: AgentHandle, deadline: float, what: str, is_first: bool) -> Any:
    """Return a rank's message, or RankFailed if none came; silence after another's failure is a consequence."""
    try:
        return handle.receive(max(0.0, deadline - time.monotonic()), what)
    except TrafficError as error:
        is_silence = time.monotonic() >= deadline
        return RankFailed(str(error), is_consequence=is_silence and not is_first, is_stall=is_silence)
