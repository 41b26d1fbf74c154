"""How fast do HFReduce and NCCL add up gradients, and is it the network that limits them?

One allreduce over growing numbers of nodes, each variant alone on the fabric: HFReduce over a plain and over a
zone-aware tree, without and with caps for what a host can add up per second, and NCCL's ring and tree. The paper
measures 186 MiB in its Figure 7a (arXiv 2408.14158v2, IV-D). Where the network alone is faster than the paper's
figures, hosts set them; a cap shows which part of the host would.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pandas as pd

from experiments.hfreduce_vs_nccl.variants import (
    KINDS,
    PAPER_BPS,
    PAPER_SIZE_BYTES,
    HFReduceVsNcclConfig,
    Variant,
    chosen_nodes,
    gigabytes,
    phase_name,
    variants,
    zones_of_nodes,
)
from experiments.run.job_metrics import collective_medians
from experiments.run.placement import RankOrder, link_loads, order_ranks
from experiments.run.session import PhaseOutcome, Session
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_size
from traffic import metrics
from traffic.collectives.hfreduce import TreeKind
from traffic.collectives.job import CollectiveJob
from traffic.job import Records

QUESTION = "How fast are HFReduce and NCCL over growing numbers of nodes, and is it the network that limits them?"


class CountedSteps:
    """A started collective as a job of a phase: it plays a number of steps, however long they take."""

    def __init__(self, job: CollectiveJob, steps: int) -> None:
        self.level = job.level
        self.name = job.name
        self._job = job
        self._steps = steps
        self._phase = ""

    def start(self) -> None:
        """Do nothing: the collective has started."""

    def play(self, phase: str) -> None:
        """Note the phase."""
        self._phase = phase

    def halt(self) -> Records:
        """Play the steps and return their rows. Raises TrafficError as a collective does."""
        return self._job.run_steps(self._steps, self._phase)

    def close(self) -> None:
        """Do nothing: who started the collective closes it."""


def run_hfreduce_vs_nccl(session: Session, config: HFReduceVsNcclConfig) -> dict[str, Any]:
    """Play every variant over every number of nodes and return the summary."""
    session.use_queueing(config.queueing)
    crowding: dict[str, float] = {}
    for count in config.nodes:
        nodes = chosen_nodes(session.live.fabric, count)
        for variant in variants(config):
            ranks = _ordered(session, config, nodes, variant)
            crowding[phase_name(variant, count)] = _crowding(session, variant, ranks)
            with closing(variant.job(session, config, ranks)) as job:
                job.start()
                job.warm_up()
                title = f"{variant.title}, {count} nodes"
                session.run_phase(phase_name(variant, count), title, [CountedSteps(job, config.steps)], 0.0)
    return summarize(session, config, crowding)


def _crowding(session: Session, variant: Variant, ranks: tuple[NodeId, ...]) -> float:
    """Return how much more than the busiest NIC the busiest link carries; 1 if static routes never collide there."""
    fabric = session.live.fabric
    loads = link_loads(fabric, session.live.plan, ranks, variant.flows(zones_of_nodes(fabric, ranks)))
    return max(loads.values()) / max(load for port, load in loads.items() if not port.node.is_switch)


def _ordered(
    session: Session, config: HFReduceVsNcclConfig, nodes: tuple[NodeId, ...], variant: Variant
) -> tuple[NodeId, ...]:
    if config.rank_order is RankOrder.NODES:
        return nodes
    flows = variant.flows(zones_of_nodes(session.live.fabric, nodes))
    return order_ranks(session.live.fabric, session.live.plan, nodes, flows)


Figures = Mapping[str, Mapping[str, float]]
"""All numbers of each phase, by its name."""


def summarize(session: Session, config: HFReduceVsNcclConfig, crowding: Mapping[str, float]) -> dict[str, Any]:
    """Return the tables and metrics of a run. ``crowding``: of each phase, the busiest link over the busiest NIC."""
    fabric = session.live.fabric
    steps = session.table("steps")
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    figures: dict[str, dict[str, float]] = {}
    for variant in variants(config):
        for count in config.nodes:
            zones = zones_of_nodes(fabric, chosen_nodes(fabric, count))
            name = phase_name(variant, count)
            figures[name] = {
                **_step_metrics(steps[steps["phase"] == name]),
                "network_ideal_Bps": variant.network_ideal_Bps(fabric, zones),
                "busiest_link_of_nic": crowding[name],
                **_network_metrics(outcomes[name]),
            }
    return {
        "title": f"HFReduce and NCCL: allreduce of {format_size(config.size)} over growing numbers of nodes",
        "answer": _answer(config, fabric, figures),
        "metrics": {f"{phase}.{name}": value for phase, found in figures.items() for name, value in found.items()},
        "tables": [
            _bandwidth_table(config, fabric, figures),
            _explanation_table(config, fabric, figures),
            _network_table(config, fabric, figures),
        ],
        "scaling": _scaling(config),
    }


def _step_metrics(steps: pd.DataFrame) -> dict[str, float]:
    if steps.empty:
        return {}
    return {**collective_medians(steps), "steps": len(steps)}


def _network_metrics(outcome: PhaseOutcome) -> dict[str, float]:
    counted = outcome.conservation
    return {
        "drops_packets": counted.dropped_by_queues,
        "sent_packets": counted.sent_packets,
        "retransmissions": counted.retransmissions,
    }


def _paper_range(level: ServiceLevel) -> str:
    low, high = PAPER_BPS[level]
    return f"{gigabytes(low)}-{gigabytes(high)}"


def _at_full_scale(fabric: Fabric, figures: Figures, variant: Variant, count: int) -> float | None:
    """Return a variant's algbw in bytes a second of the system that the fabric stands for; None if no step ended."""
    value = figures[phase_name(variant, count)].get("algbw_Bps")
    return None if value is None else value * fabric.scale


def _answer(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> str:
    """Return the finding, from the largest number of nodes."""
    count = max(config.nodes)
    by_name = {variant.name: variant for variant in variants(config)}

    def got(name: str) -> str:
        value = _at_full_scale(fabric, figures, by_name[name], count)
        return "an unknown number of" if value is None else gigabytes(value)

    zone_aware = f"hfreduce_{TreeKind.ZONE_AWARE.value}"
    capped = "".join(
        f", {got(f'{zone_aware}_{cap}')} with a host that adds up {gigabytes(host.cap_bytes_per_s)} GB/s"
        for cap, host in config.host_caps.items()
    )
    return (
        f"With {format_size(config.size)} over {count} nodes the network alone lets HFReduce add up "
        f"{got(zone_aware)} GB/s{capped} (paper: "
        f"{_paper_range(ServiceLevel.HFREDUCE)}), an NCCL ring {got('nccl_ring')} GB/s and an NCCL tree "
        f"{got('nccl_tree')} GB/s (paper: {_paper_range(ServiceLevel.NCCL)})."
    )


def _bandwidth_table(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> dict[str, Any]:
    rows = []
    for variant in variants(config):
        cells = []
        for count in config.nodes:
            value = _at_full_scale(fabric, figures, variant, count)
            cells.append(
                "none"
                if value is None
                else f"{gigabytes(value)} ({value / _limit(config, fabric, figures, variant, count):.0%})"
            )
        rows.append([variant.title, *cells, _paper_range(variant.level)])
    scaled = "" if fabric.scale == 1 else f", times the scale of {fabric.scale:,.10g}"
    payload = metrics.payload_fraction(fabric.mtu_bytes)
    return {
        "title": f"algbw in GB/s of {format_size(config.size)} (share of the limit: the network's ideal or the cap)",
        "columns": ["variant", *(f"{count} nodes" for count in config.nodes), "paper, 186 MiB"],
        "rows": rows,
        "note": f"algbw = size / time of a step, as nccl-tests defines it, median over steps{scaled}; the network's "
        f"ideal fills the busiest rank's NIC, of which headers leave {payload:.1%}; below 4 nodes all are of one zone, "
        "where both of HFReduce's trees are the same",
    }


def _limit(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures, variant: Variant, count: int) -> float:
    """Return the least algbw in bytes a second at full scale that the network's ideal or the cap allows."""
    ideal = figures[phase_name(variant, count)]["network_ideal_Bps"] * fabric.scale
    cap = variant.cap_Bps(config)
    return ideal if cap is None else min(ideal, cap)


def _explanation_table(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> dict[str, Any]:
    count = max(config.nodes)
    rows = []
    for variant in variants(config):
        value = _at_full_scale(fabric, figures, variant, count)
        if value is not None:
            ideal = figures[phase_name(variant, count)]["network_ideal_Bps"] * fabric.scale
            cap = variant.cap_Bps(config)
            share, capped = f"{value / ideal:.0%}", "none" if cap is None else gigabytes(cap)
            cells = [gigabytes(value), gigabytes(ideal), share, capped]
            rows.append([variant.title, *cells, _paper_range(variant.level), explanation(variant, value, ideal, cap)])
    return {
        "title": f"What the network alone explains: {count} nodes, GB/s",
        "columns": ["variant", "here", "network's ideal", "share", "host's cap", "paper", "conclusion"],
        "rows": rows,
        "note": f"the paper's ranges are over all its numbers of nodes, at {format_size(PAPER_SIZE_BYTES)}; here "
        "computing, PCIe and memory take no time except where a cap states one",
    }


def explanation(variant: Variant, value: float, ideal: float, cap: float | None) -> str:
    """Return what an algbw says beside the network's ideal, a host's cap and the paper's range, all in bytes/s."""
    low, high = PAPER_BPS[variant.level]
    if cap is not None and cap < ideal:
        carried = f"the network carries {value / cap:.0%} of what this host adds up"
        if value > high:
            return f"{carried}: {value / high:.1f} times the paper's best, which this cap does not explain"
        return (
            f"{carried}: with such hosts it explains the paper's figures" if value >= low else f"{carried}: too little"
        )
    limits = "the network" if cap is None else "the network, which is slower than this cap,"
    if value > high:
        hosts = "PCIe, memory, kernels" if variant.level is ServiceLevel.NCCL else "the sum in the node, PCIe, memory"
        return f"{limits} allows {value / high:.1f} times the paper's best: hosts ({hosts}) set the paper's figures"
    if value < low:
        return f"below the paper's range: {limits} and TCP limit more here than the paper's network did"
    return f"inside the paper's range: {limits} alone explains the paper's figures"


def _network_table(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> dict[str, Any]:
    rows = []
    for variant in variants(config):
        for count in config.nodes:
            found = figures[phase_name(variant, count)]
            zones = zones_of_nodes(fabric, chosen_nodes(fabric, count))
            pairs = {tuple(sorted((a, b))) for a, b, _ in variant.flows(zones) if zones[a] != zones[b]}
            counts = [f"{found[name]:,.0f}" for name in ("sent_packets", "drops_packets", "retransmissions")]
            rows.append([variant.title, str(count), str(len(pairs)), f"{found['busiest_link_of_nic']:.2f}", *counts])
    columns = ["variant", "nodes", "pairs across zones", "busiest link", "packets sent", "dropped", "retransmitted"]
    return {
        "title": "Network",
        "columns": columns,
        "rows": rows,
        "note": "busiest link: its load relative to that of the busiest NIC, by the routes; above 1, flows share it",
    }


def _scaling(config: HFReduceVsNcclConfig) -> dict[str, Any]:
    """Return what the figure of algbw over nodes shows: phases by line, and the paper's ranges."""
    return {
        "title": f"Allreduce of {format_size(config.size)}",
        "series": [
            {
                "label": variant.title,
                "service_level": variant.level.label,
                "phases": [phase_name(variant, count) for count in config.nodes],
            }
            for variant in variants(config)
        ],
        "bands": [
            {
                "label": f"paper, {KINDS[level]}: {_paper_range(level)} GB/s",
                "service_level": level.label,
                "from_Bps": low,
                "to_Bps": high,
            }
            for level, (low, high) in PAPER_BPS.items()
        ],
        "caps": [
            {"label": f"host cap, {name}: {gigabytes(host.cap_bytes_per_s)} GB/s", "algbw_Bps": host.cap_bytes_per_s}
            for name, host in config.host_caps.items()
        ],
    }
