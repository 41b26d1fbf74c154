"""Fabrics of several shapes, one after the other in a guest: probes between NICs of every number, a permutation, and
all-to-all. ``any_fabric.py REPORT NAME...``; each fabric has a process and namespaces of its own (``any_fabric.py --one
REPORT NAME``)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from app.commands.probe import Packets, planned_hops, probe
from app.validation.bench import Bench, Settings
from app.validation.expectations import fair_goodputs_bps
from app.validation.load import AllToAllTest
from fabric.measure.census import conservation, take_census
from fabric.model.lanes import QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Fabric
from fabric.model.patterns import NicPair
from fabric.world import inside
from fabric.world.programs.agents import AgentPool, fork_server
from runs.live import LiveFabric, bring_up
from topologies.load import load_fabric
from traffic.flows.pair_streams import PRELOAD, Streams

_PRELOAD = (*PRELOAD, "fabric.measure.sampling")
LEVEL = ServiceLevel.NCCL
_FILES = 'for own in fabric netns utsns; do mkdir -p /run/$own; mount -t tmpfs none /run/$own; done; exec "$@"'
OWN_NAMESPACES = ["unshare", "--net", "--mount", "sh", "-c", _FILES, "sh"]


def permutation(fabric: Fabric) -> list[NicPair]:
    """Return flows from every NIC of every host to the same of the host half of all hosts further on."""
    hosts = fabric.computes
    partners = [*hosts[len(hosts) // 2 :], *hosts[: len(hosts) // 2]]
    return [
        pair
        for a, b in zip(hosts, partners, strict=True)
        for pair in zip(fabric.nics_of[a], fabric.nics_of[b], strict=True)
    ]


def seen(name: str) -> dict[str, Any]:
    """Return what became of probes and loads on a fabric."""
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    fork_server(_PRELOAD)
    lanes = plan_lanes(QueueConfig(), Queueing.LANES)
    with bring_up(load_fabric(name), lanes, logs, lambda text: None) as live:
        pool = AgentPool(_PRELOAD)
        try:
            bench = Bench(live, live.fabric, pool, Settings(), lambda text: None)
            all_to_all = AllToAllTest(bench).run().as_json()
            return {"probes": _probes(live), "permutation": _permutation(bench), "all_to_all": all_to_all}
        finally:
            pool.stop()


def _probes(live: LiveFabric) -> list[dict[str, Any]]:
    """Return, of a packet between the first and the last host by NICs of each number, its path and the planned one."""
    fabric = live.fabric
    pairs = zip(fabric.nics_of[fabric.computes[0]], fabric.nics_of[fabric.computes[-1]], strict=True)
    found = []
    for nics in pairs:
        packets = Packets.of_probe(nics, LEVEL)
        planned = planned_hops(live.plan, fabric, live.emulation.lane_plan, packets)
        met = probe(live, packets)
        ways = {"planned": [str(hop) for hop in planned], "met": [str(hop) for hop in met.hops]}
        found.append({**ways, "delivered": met.delivered})
    return found


def _permutation(bench: Bench) -> dict[str, Any]:
    flows = permutation(bench.fabric)
    streams = Streams(bench.stage(32 << 10), LEVEL)
    before = take_census(bench.live.emulation, bench.live.rule_drops)
    streams.start()
    goodput = streams.run(flows, bench.times.all_ramp_s, bench.times.all_s)
    streams.close()
    kept = conservation(bench.fabric, before, take_census(bench.live.emulation, bench.live.rule_drops))
    fair = fair_goodputs_bps(bench.fabric, [bench.path(flow) for flow in flows])
    return {
        "flows": [f"{a.port} to {b.port}" for a, b in flows],
        "fractions": [goodput[flow] / share for flow, share in zip(flows, fair, strict=True)],
        "unaccounted_packets": kept.unaccounted_packets,
    }


def main(report: str, *names: str) -> None:
    found = {}
    for name in names:
        own = [*OWN_NAMESPACES, sys.executable, __file__, "--one", report, name]
        subprocess.run(own, check=True)
        found[name] = json.loads(Path(report).read_text())
    Path(report).write_text(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        Path(sys.argv[2]).write_text(json.dumps(seen(sys.argv[3])))
    else:
        main(*sys.argv[1:])
