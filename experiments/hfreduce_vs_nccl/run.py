"""How fast do HFReduce and NCCL add up gradients, and what limits them?

One allreduce over growing numbers of nodes, each variant alone on the fabric. Of nodes with an inside, these are the
series of the paper's Figure 7 (arXiv 2408.14158v2, IV-D): HFReduce, HFReduce with NVLink within a zone and across
zones, and NCCL's ring over all GPUs. Data begins and ends in GPUs; PCIe, root ports, memory and NICs limit it as they
do, and nothing that the paper measured of an allreduce is put in. Of nodes that are points, the network alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pandas as pd

from experiments.hfreduce_vs_nccl.cost import cost_metrics, cost_table, node_price
from experiments.hfreduce_vs_nccl.limits import Busy, Figures, allowed_Bps, limits_of, limits_table, use_table
from experiments.hfreduce_vs_nccl.series import described_series
from experiments.hfreduce_vs_nccl.use import Served, busiest, counters_of, limits_frame, served
from experiments.hfreduce_vs_nccl.variants import (
    PAPER_BPS,
    PAPER_SIZE_BYTES,
    HFReduceVsNcclConfig,
    Variant,
    VariantPhase,
    chosen_variants,
    gigabytes,
    in_gigabytes,
    plays,
    zones_of_nodes,
)
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.records.cells import Row, count_of, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size
from runs.placement import RankOrder, link_loads, order_ranks
from runs.session import PhaseOutcome, Session
from runs.true_scale import scale_words, true_rate
from traffic import metrics
from traffic.collectives.job import CollectiveJob
from traffic.collectives.step_numbers import collective_medians
from traffic.job import Records
from traffic.stepped_job import FiniteSteps


class CountedSteps:
    """A number of steps of a started collective, with what ``count`` says before and after them."""

    def __init__(self, job: CollectiveJob, steps: int, count: Callable[[], Served]) -> None:
        self.before: Served = {}
        self.after: Served = {}
        self._job = job
        self._steps = steps
        self._count = count

    def __call__(self, phase: str) -> Records:
        """Play the steps in a phase and return their rows. Raises TrafficError as a collective does."""
        self.before = self._count()
        records = self._job.run_steps(self._steps, phase)
        self.after = self._count()
        return records


def run_hfreduce_vs_nccl(session: Session, config: HFReduceVsNcclConfig) -> dict[str, Any]:
    """Play every variant over every number of nodes and return the summary."""
    session.use_queueing(config.queueing)
    crowding: dict[str, float] = {}
    for play in plays(config, session.live.fabric):
        session.tell(play.title)
        ranks = _ordered(session, config, play)
        crowding[play.phase] = _crowding(session, play.variant, ranks)
        with closing(play.variant.job(session, config, ranks, play.size)) as job:
            job.start()
            session.warm_up(job)
            _play(session, config, play, job)
    return summarize(session, config, crowding)


def _play(session: Session, config: HFReduceVsNcclConfig, play: VariantPhase, job: CollectiveJob) -> None:
    """Play a phase, and keep what the limits of its nodes served meanwhile."""
    live = session.live
    counters = counters_of(live.fabric, play.variant.nodes(live.fabric, play.count))
    steps = CountedSteps(job, config.steps, partial(served, live, counters) if counters else dict)
    outcome = session.run_phase(play.phase, play.title, [FiniteSteps(job, steps)], 0.0)
    if counters:
        seconds = sum(row["ended_s"] - row["started_s"] for row in outcome.records.rows("steps"))
        session.keep_frame("node_limits", limits_frame(play.phase, counters, steps.before, steps.after, seconds))


def _crowding(session: Session, variant: Variant, ranks: tuple[NodeId, ...]) -> float:
    """Return how much more than the busiest NIC the busiest link carries; 1 if static routes never collide there."""
    fabric = session.live.fabric
    loads = link_loads(fabric, session.live.plan, ranks, variant.flows(zones_of_nodes(fabric, ranks)))
    return max(loads.values()) / max(load for port, load in loads.items() if not port.node.is_switch)


def _ordered(session: Session, config: HFReduceVsNcclConfig, play: VariantPhase) -> tuple[NodeId, ...]:
    fabric = session.live.fabric
    nodes = play.variant.nodes(fabric, play.count)
    if config.rank_order is RankOrder.NODES:
        return nodes
    return order_ranks(fabric, session.live.plan, nodes, play.variant.flows(zones_of_nodes(fabric, nodes)))


def summarize(session: Session, config: HFReduceVsNcclConfig, crowding: Mapping[str, float]) -> dict[str, Any]:
    """Return the tables and metrics of a run. ``crowding``: of each phase, the busiest link over the busiest NIC."""
    fabric = session.live.fabric
    steps = session.table("steps")
    busy = {} if fabric.inside is None else busiest(session.table("node_limits"))
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    played = plays(config, fabric)
    figures = {
        play.phase: {
            **_step_metrics(steps[steps["phase"] == play.phase]),
            "network_ideal_Bps": play.variant.network_ideal_Bps(fabric, play.count),
            **_limit_metrics(fabric, play),
            "busiest_link_of_nic": crowding[play.phase],
            **_network_metrics(outcomes[play.phase]),
        }
        for play in played
    }
    whole = [play for play in played if not play.is_size]
    price = node_price(config)
    costs = cost_metrics(fabric, whole, figures, price)
    tables = [*_tables(config, fabric, played, figures, busy), cost_table(config, whole, costs, price)]
    return {
        "title": f"HFReduce and NCCL: allreduce of {format_size(config.size)} over growing numbers of nodes",
        "answer": _answer(config, fabric, whole, figures),
        "metrics": [
            *(metric for phase, found in figures.items() for metric in metrics_of(phase, "", found)),
            *(Metric(phase, "", "times_nccl", value) for phase, value in _ratios(whole, figures).items()),
            *(Metric(phase, "", "algbw_Bps_per_price", value) for phase, value in costs.items()),
        ],
        "tables": [table for table in tables if table is not None],
        **described_series(config, fabric, played),
    }


def _tables(
    config: HFReduceVsNcclConfig, fabric: Fabric, played: Sequence[VariantPhase], figures: Figures, busy: Busy
) -> list[SummaryTable | None]:
    whole = [play for play in played if not play.is_size]
    return [
        _bandwidth_table(config, fabric, whole, figures),
        _ratio_table(config, whole, figures),
        limits_table(fabric, played, figures),
        use_table(fabric, played, busy),
        _explanation_table(fabric, whole, figures) if fabric.inside is None else None,
        _network_table(fabric, played, figures),
    ]


def _step_metrics(steps: pd.DataFrame) -> dict[str, float]:
    if steps.empty:
        return {}
    return {**collective_medians(steps), "steps": len(steps)}


def _limit_metrics(fabric: Fabric, play: VariantPhase) -> dict[str, float]:
    """Return the algbw that the tightest limit of a node allows, less headers, in bytes per s; nothing of points."""
    found = limits_of(fabric, play.variant, play.count)
    return {"limit_Bps": allowed_Bps(fabric, found[0]) / fabric.scale} if found else {}


def _network_metrics(outcome: PhaseOutcome) -> dict[str, float]:
    counted = outcome.conservation
    return {
        "drops_packets": counted.dropped_by_queues,
        "sent_packets": counted.sent_packets,
        "retransmissions": counted.retransmissions,
    }


def _at_full_scale(fabric: Fabric, figures: Figures, play: VariantPhase | None) -> float | None:
    """Return a phase's algbw in bytes a second of the system that the fabric stands for; None if no step ended."""
    value = None if play is None else figures[play.phase].get("algbw_Bps")
    return None if value is None else true_rate(fabric, value)


def _answer(config: HFReduceVsNcclConfig, fabric: Fabric, whole: Sequence[VariantPhase], figures: Figures) -> str:
    """Return the finding, from the largest number of nodes of each variant."""
    last = {play.variant.name: play for play in whole}
    size, gpus = format_size(config.size), 1 if fabric.inside is None else fabric.inside.gpus

    def got(name: str) -> str:
        value = _at_full_scale(fabric, figures, last.get(name))
        return "an unknown number of" if value is None else gigabytes(value)

    def told(name: str) -> str:
        play = last[name]
        return f"{play.variant.title} {got(name)} GB/s over {play.count * gpus} GPUs (paper: {play.variant.paper})"

    if fabric.inside is not None:
        series = "; ".join(told(name) for name in last)
        return f"With {size} on nodes with an inside ({fabric.inside.name}): {series}; no cap was put in."
    found = ((play.variant, got(name)) for name, play in last.items())
    series = "; ".join(f"{variant.title} {value} GB/s (paper: {variant.paper})" for variant, value in found)
    return f"With {size} over {max(config.nodes)} nodes the network alone allows: {series}."


def _bandwidth_table(
    config: HFReduceVsNcclConfig, fabric: Fabric, whole: Sequence[VariantPhase], figures: Figures
) -> SummaryTable:
    at = {(play.variant.name, play.count): play for play in whole}
    rows: list[Row] = []
    for variant in chosen_variants(config, fabric):
        cells: Row = []
        for count in config.nodes:
            play = at.get((variant.name, count))
            value = _at_full_scale(fabric, figures, play)
            if play is None or value is None:
                cells.append("none")
                continue
            ideal = true_rate(fabric, figures[play.phase]["network_ideal_Bps"])
            cells.append((in_gigabytes(value), " (", quantity(value / ideal, ".0%"), ")"))
        rows.append([variant.title, *cells, variant.paper])
    scaled = scale_words(fabric)
    payload = metrics.payload_fraction(fabric.mtu_bytes)
    gpus = "" if fabric.inside is None else f" of {fabric.inside.gpus} GPUs"
    return SummaryTable(
        title=f"algbw in GB/s of {format_size(config.size)} (share of the network's ideal)",
        columns=["variant", *(f"{count} nodes{gpus}" for count in config.nodes), "paper, 186 MiB"],
        rows=rows,
        note=f"algbw = size / time of a step, as nccl-tests defines it, median over steps{scaled}; the network's "
        f"ideal fills the busiest node's NIC, of which headers leave {payload:.1%}; below 4 nodes all are of one zone "
        "unless the variant says otherwise; none: not played, or no step ended",
    )


def _ratios(whole: Sequence[VariantPhase], figures: Figures) -> dict[str, float]:
    """Return how many times NCCL's ring each HFReduce is, by its phase."""
    algbw = {(play.variant.name, play.count): figures[play.phase].get("algbw_Bps") for play in whole}
    found = {}
    for play in whole:
        own, ring = algbw[play.variant.name, play.count], algbw.get(("nccl_ring", play.count))
        if play.variant.level == ServiceLevel.HFREDUCE and own and ring:
            found[play.phase] = own / ring
    return found


def _ratio_table(config: HFReduceVsNcclConfig, whole: Sequence[VariantPhase], figures: Figures) -> SummaryTable | None:
    found = _ratios(whole, figures)
    if not found:
        return None
    names = {play.variant.name: play.variant.title for play in whole if play.variant.level == ServiceLevel.HFREDUCE}
    phases = {(play.variant.name, play.count): play.phase for play in whole}
    rows: list[Row] = []
    for name, title in names.items():
        values = [found.get(phases.get((name, count), "")) for count in config.nodes]
        rows.append([title, *("none" if value is None else quantity(value, ".2f") for value in values)])
    (low, high), (nccl_low, nccl_high) = PAPER_BPS[ServiceLevel.HFREDUCE], PAPER_BPS[ServiceLevel.NCCL]
    return SummaryTable(
        title="How many times NCCL's ring",
        columns=["variant", *(f"{count} nodes" for count in config.nodes)],
        rows=rows,
        note=f"the paper's Figure 7a: best by best {high / nccl_high:.1f}, least by least {low / nccl_low:.1f}",
    )


def _explanation_table(fabric: Fabric, whole: Sequence[VariantPhase], figures: Figures) -> SummaryTable:
    count = max(play.count for play in whole)
    rows: list[Row] = []
    for play in (one for one in whole if one.count == count):
        value = _at_full_scale(fabric, figures, play)
        if value is not None:
            ideal = true_rate(fabric, figures[play.phase]["network_ideal_Bps"])
            cells = (in_gigabytes(value), in_gigabytes(ideal), quantity(value / ideal, ".0%"))
            rows.append([play.variant.title, *cells, play.variant.paper, explanation(play.variant, value)])
    return SummaryTable(
        title=f"What the network alone explains: {count} nodes, GB/s",
        columns=["variant", "here", "network's ideal", "share", "paper", "conclusion"],
        rows=rows,
        note=f"the paper's ranges are over all its numbers of nodes, at {format_size(PAPER_SIZE_BYTES)}; here nodes "
        "are points, in which computing, PCIe and memory take no time",
    )


def explanation(variant: Variant, value: float) -> str:
    """Return what an algbw of points says beside the paper's range, both in bytes/s."""
    low, high = PAPER_BPS[variant.level]
    if value > high:
        hosts = "PCIe, memory, kernels" if variant.level == ServiceLevel.NCCL else "the sum in the node, PCIe, memory"
        return f"the network allows {value / high:.1f} times the paper's best: hosts ({hosts}) set the paper's figures"
    if value < low:
        return "below the paper's range: the network and TCP limit more here than the paper's network did"
    return "inside the paper's range: the network alone explains the paper's figures"


def _network_table(fabric: Fabric, played: Sequence[VariantPhase], figures: Figures) -> SummaryTable:
    rows: list[Row] = []
    for play in played:
        found = figures[play.phase]
        zones = play.variant.zones(fabric, play.count)
        pairs = {tuple(sorted((a, b))) for a, b, _ in play.variant.flows(zones) if zones[a] != zones[b]}
        counts = [measured(found, name, ",.0f") for name in ("sent_packets", "drops_packets", "retransmissions")]
        sizes = count_of(play.count), quantity(play.size, "size")
        rows.append(
            [play.variant.title, *sizes, count_of(len(pairs)), measured(found, "busiest_link_of_nic", ".2f"), *counts]
        )
    columns = ["variant", "nodes", "size", "pairs across zones", "busiest link", "packets sent"]
    return SummaryTable(
        title="Network",
        columns=[*columns, "dropped", "retransmitted"],
        rows=rows,
        note="busiest link: its load relative to that of the busiest NIC, by the routes; above 1, flows share it",
    )
