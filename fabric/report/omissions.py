"""What a run does not model, by its engine and its queueings: part of every report."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fabric.model.lanes import FlowControl, Queueing
from fabric.results import Result
from fabric.world.engine import Engine
from fabric.world.engines import ENGINES, NAMESPACE

LOSSES = (
    "Losslessness, in the queueings {queueings}. A full queue drops there, and TCP retransmits; a full buffer of "
    "InfiniBand, or of Ethernet with PFC, pauses the sender, and congestion spreads back through the fabric. Without "
    "it, every setting that lets queues grow is flattered, above all no congestion control."
)
IDLE_LINKS = (
    "Time on the wire of an idle link, in the queueings {queueings}. An idle link passes two frames at once, so lone "
    "small messages arrive sooner than over a real link."
)
CREDITS = (
    "InfiniBand's time limits: no switch discards packets that have waited for too long (HOQLife, SwitchLifetime), so "
    "a deadlock that a real fabric ends by losing packets lasts. Credits return without using the link."
)
SLOW_RECEIVERS = (
    "Slow receivers, and cut-through switching. Hosts accept data at the rate of their link, so no host's buffer "
    "pushes back into a lossless fabric; every switch forwards a frame after it has received all of it."
)
PFC = (
    "PFC's frames: a pause takes no time on the wire, waits behind no frame in flight, and holds until it is lifted "
    "instead of for a number of quanta. No PFC watchdog discards packets of a paused lane."
)
REAL_TIME = (
    "RDMA and NICs. Programs use kernel TCP, so latencies include the kernel's scheduling, and hosts spend CPU time on "
    "packets that an RDMA NIC moves by itself."
)
VIRTUAL_TIME = (
    "RDMA and NICs: programs use kernel TCP. And the time that computing takes: programs, switches and the controller "
    "answer at once; only waiting and the links take time. So latencies are those of queues and links alone, repairs "
    "are as fast as with a controller that needs no time, and there is no jitter other than queues.jitter."
)
HARDWARE = "GPUs, PCIe, host memory and SSDs, except for what an experiment states as a rate or a delay."
SCALE = (
    "True rates: rates are scaled, and time is not scaled with them. The slower the link, the longer a queue of a "
    "given size takes to drain, and the less the emulating machine's own delays matter."
)


def omissions(result: Result) -> list[str]:
    """Return what a run leaves out, a paragraph each."""
    engine = ENGINES[result.manifest.get("engine", NAMESPACE.name)]
    queueings = [Queueing(name) for name in dict.fromkeys(phase.queueing for phase in result.phases)]
    return list(_omissions(engine, queueings, _flow_control(result), is_scaled=result.scale != 1))


def _omissions(
    engine: Engine, queueings: Collection[Queueing], flow_control: FlowControl, is_scaled: bool
) -> Iterator[str]:
    lossy = " and ".join(queueing.value for queueing in queueings if not queueing.is_of_vl)
    if lossy:
        yield LOSSES.format(queueings=lossy)
        yield IDLE_LINKS.format(queueings=lossy)
    if any(queueing.is_lossless for queueing in queueings):
        yield PFC if flow_control is FlowControl.PFC else CREDITS
        yield SLOW_RECEIVERS
    yield VIRTUAL_TIME if engine.is_exact else REAL_TIME
    yield HARDWARE
    if is_scaled:
        yield SCALE


def _flow_control(result: Result) -> FlowControl:
    """Return what the run's config says, by default credits."""
    config = result.config if (result.directory / "config.yaml").exists() else {}
    queues = config.get("queues")
    said: Any = queues.get("flow_control") if isinstance(queues, Mapping) else None
    return FlowControl(said or FlowControl.CREDIT.value)
