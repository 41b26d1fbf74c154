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
LIFETIMES = (
    "Lifetimes: no switch discards packets that have lacked room for too long (HOQLife), so a deadlock that a real "
    "fabric ends by losing packets lasts; `queues.lifetime` sets one."
)
CREDITS = "InfiniBand's credits return without using the link, and no packet has a lifetime in a switch as a whole."
SLOW_RECEIVERS = (
    "Slow receivers. Hosts accept data at the rate of their link, so no host's buffer pushes back into a lossless "
    "fabric, but for a NIC that fails so."
)
STORE_AND_FORWARD = (
    "Cut-through switching: every switch forwards a frame after it has received all of it; `queues.cut_through` says "
    "after how much."
)
FRAMING = "Framing: preamble, FCS and gap, 24 bytes of the wire per frame of Ethernet; `queues.framing` adds them."
PFC = (
    "PFC's frames: a pause takes no time on the wire, waits behind no frame in flight, and holds until it is lifted "
    "instead of for a number of quanta."
)
NO_WATCHDOG = "A PFC watchdog, which discards packets of a lane that stands still; `queues.watchdog` sets one."
REAL_TIME = (
    "RDMA and NICs. Programs use kernel TCP, so latencies include the kernel's scheduling, and hosts spend CPU time on "
    "packets that an RDMA NIC moves by itself."
)
BY_TRANSPORT = {
    "tcp": "RDMA and NICs: programs use kernel TCP; `transport.kind` sets another transport.",
    "verbs": "NICs: what they do takes no time of their own, and their caches of queue pairs have no end.",
    "messages": "NICs: programs send datagrams by sockets, and place packets that come in any order themselves.",
}
VIRTUAL_TIME = (
    "The time that computing takes: programs, switches and the controller answer at once; only waiting and the links "
    "take time. So latencies are those of queues and links alone, repairs are as fast as with a controller that needs "
    "no time, and only queues.jitter adds jitter."
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
    return list(_omissions(engine, queueings, result, is_scaled=result.scale != 1))


def _omissions(engine: Engine, queueings: Collection[Queueing], result: Result, is_scaled: bool) -> Iterator[str]:
    queues = _said(result, "queues")
    lossy = " and ".join(queueing.value for queueing in queueings if not queueing.is_of_vl)
    if lossy:
        yield LOSSES.format(queueings=lossy)
        yield IDLE_LINKS.format(queueings=lossy)
    if any(queueing.is_lossless for queueing in queueings):
        yield from _of_lossless(queues)
    if not queues.get("framing"):
        yield FRAMING
    if engine.is_exact:
        yield BY_TRANSPORT[_said(result, "transport").get("kind", "tcp")]
    yield VIRTUAL_TIME if engine.is_exact else REAL_TIME
    yield HARDWARE
    if is_scaled:
        yield SCALE


def _of_lossless(queues: Mapping[str, Any]) -> Iterator[str]:
    is_pfc = queues.get("flow_control") == FlowControl.PFC.value
    yield PFC if is_pfc else CREDITS
    yield SLOW_RECEIVERS
    missing = {"cut_through": STORE_AND_FORWARD, "lifetime": LIFETIMES}
    if is_pfc:
        missing = {"cut_through": STORE_AND_FORWARD, "watchdog": NO_WATCHDOG}
    yield from (text for key, text in missing.items() if queues.get(key) is None)


def _said(result: Result, section: str) -> Mapping[str, Any]:
    """Return the settings of a section of the run's config; keys that it leaves out have their defaults."""
    config = result.config if (result.directory / "config.yaml").exists() else {}
    found = config.get(section)
    return found if isinstance(found, Mapping) else {}
