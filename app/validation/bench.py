"""Common parts of the validator's tests: the fabric, its routes, programs in hosts, and whether the machine kept up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from app.validation.findings import Fault
from app.validation.rounds import Path
from controllers.planning.paths import planned_path
from fabric.measure.frames import machine_frame
from fabric.measure.machine_checks import machine_checks
from fabric.measure.sampling import Sampler, SamplerSetup
from fabric.measure.verdict import Status
from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair
from fabric.queueing.lossless import lane_names
from fabric.world.engine import Engine
from fabric.world.engines import current_engine
from fabric.world.programs.agents import AgentPool
from runs.live import LiveFabric, Tell
from traffic.job import Stage

SEED = 1
_SAMPLE_PERIOD_S = 0.05
_TIMELINESS = ("lateness_p99_s", "host_lateness_p99_s")
"""What of a run's verdict says that figures in real time are of a machine that was late, and not of the fabric."""
_LEAST_FRAME_TIME_S = 1 / 600
"""Tests of fast links last as long as those of links whose largest frame takes so long, and may be as late."""


@dataclass(frozen=True)
class Settings:
    """What to test: ``quick`` leaves the bandwidth tests out, ``most_pairs`` is when a sample of pairs is taken."""

    quick: bool = False
    most_pairs: int = 1000


@dataclass(frozen=True)
class Times:
    """How long loads play, in seconds."""

    pair_ramp_s: float
    pair_s: float
    all_ramp_s: float
    all_s: float
    storage_s: float


_FRAMES = Times(60, 150, 200, 800, 1200)
_LEAST_S = Times(0.15, 0.4, 0.5, 2.5, 4.0)


@dataclass
class Bench:
    """Where tests are made: ``fabric`` is the one intended, by which routes are planned; ``live`` is what is there.

    ``faults``: what was found so far.
    """

    live: LiveFabric
    fabric: Fabric
    pool: AgentPool
    settings: Settings
    tell: Tell
    faults: list[Fault] = field(default_factory=list)
    late: str = ""
    """Why the last thing measured may be the machine's fault; empty if the machine kept up."""

    @cached_property
    def engine(self) -> Engine:
        """The engine."""
        return current_engine()

    @cached_property
    def times(self) -> Times:
        """How long loads play: so many frames of the slowest link; in real time no less than can be told from noise."""
        frame_s, least = self.fabric.frame_time_s, vars(_LEAST_S)
        played = {
            name: max(count * frame_s, self.engine.duration_s(least[name], count, frame_s))
            for name, count in vars(_FRAMES).items()
        }
        return Times(**played)

    @property
    def budget(self) -> float:
        """What switches are sure to pass on while hosts' programs send and receive, in frames a second."""
        return self.engine.timing.carried_frames_s

    def path(self, pair: NicPair) -> Path:
        """Return the planned path of a pair."""
        return planned_path(self.live.plan, self.fabric, *pair)

    def cost(self, path: Path) -> float:
        """Return what a full path costs switches, in frames a second, a third of them acknowledgements."""
        rate_bps = min(self.fabric.link_at[port].rate_bps for port in path)
        return 1.5 * rate_bps / 8 / self.fabric.frame_bytes * (len(path) - 1)

    def stage(self, receive_window_bytes: int | None = None) -> Stage:
        """Return where programs play."""
        return Stage(self.fabric, self.pool, self.live.emulation.namespace_of, SEED, {}, receive_window_bytes)

    @property
    def faulty_ports(self) -> set[Port]:
        """The ports that the faults found so far are about."""
        return {port for fault in self.faults for port in fault.ports}

    @cached_property
    def _sampler(self) -> Sampler:
        pid = self.live.emulation.switches.switch_pid
        return Sampler(self.pool, SamplerSetup((None,), pid, has_input_queues=False, period_s=_SAMPLE_PERIOD_S))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Find out, for :attr:`late`, whether the machine kept up in a block. Virtual time is never late."""
        self.late = ""
        if self.engine.is_exact:
            yield
            return
        self._sampler.begin(lane_names(self.live.emulation.lane_plan))
        began = time.monotonic()
        yield
        frame = machine_frame(self._sampler.end(), began)
        frame_time_s = max(self.fabric.frame_time_s, _LEAST_FRAME_TIME_S)
        checks = [check for check in machine_checks(frame, frame_time_s, self.engine) if check.name in _TIMELINESS]
        self.late = "; ".join(check.text for check in checks if check.status is Status.INVALID)
