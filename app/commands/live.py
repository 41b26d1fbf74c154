"""A fabric brought up for the time of a block, as a command's options say."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from controllers.routing import Routing
from fabric.emulation.sflow import SflowExport, exporting
from fabric.model.lanes import LanePlan, Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.world import inside
from fabric.world.engine import Groundwork
from runs.captures import captures
from runs.config import queues_of
from runs.console import tell
from runs.groundwork import groundwork_of
from runs.live import LiveFabric, bring_up
from traffic import congestion_control
from traffic.dcqcn import DcqcnConfig


def lanes_of(options: argparse.Namespace) -> LanePlan:
    """Return the lanes that ``--queueing`` and ``--set`` ask for."""
    return plan_lanes(queues_of(options.overrides), Queueing(options.queueing))


def routing_of(options: argparse.Namespace) -> Routing:
    """Return the policies that ``--routing`` and ``--repair`` ask for."""
    return Routing.model_validate({"policy": options.routing, "repair": options.repair})


def groundwork_asked(fabric: Fabric, options: argparse.Namespace) -> Groundwork | None:
    """Return the groundwork of :func:`live_fabric` for these options; None inside a world, whose fabric stands."""
    if inside.is_inside():
        return None
    queues, queueing = queues_of(options.overrides), Queueing(options.queueing)
    return groundwork_of(fabric, queues, queueing, routing_of(options), is_measured=False)


@contextmanager
def live_fabric(
    fabric: Fabric,
    lanes: LanePlan,
    routing: Routing,
    captured: Sequence[str] = (),
    sflow: SflowExport | None = None,
    verbs: bool = False,
) -> Iterator[LiveFabric]:
    """Bring a fabric up for the time of a block, with what passes the ports of ``captured`` written to files, what
    switches export, and with ``verbs`` an RDMA device per NIC."""
    logs = inside.RUN_DIR / "logs"
    logs.mkdir(exist_ok=True)
    parameters = DcqcnConfig().parameters(fabric)
    congestion_control.offer(parameters, fabric.nic_rate_bps, tell)
    with bring_up(fabric, lanes, logs, tell, routing) as live:
        congestion_control.admit(live.emulation.host_namespaces, parameters, fabric.nic_rate_bps)
        if any(lane.marking is not None for lane in lanes.lanes):
            live.emulation.ask_for_ecn()
        if verbs:
            live.emulation.offer_verbs()
            controls = congestion_control.of_queue_pairs(lanes)
            congestion_control.control_queue_pairs(controls, parameters, fabric.nic_rate_bps)
        tell(f"up in {round(live.wall_s, 1):g} s")
        export = nullcontext() if sflow is None else exporting(live.emulation, sflow, logs, tell)
        with captures(live.emulation, captured), export:
            yield live
            if fault := congestion_control.ecn_fault():
                tell(fault)
