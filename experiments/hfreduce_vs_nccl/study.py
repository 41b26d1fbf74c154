"""How fast do HFReduce and NCCL add up gradients, and what limits them?

One allreduce over growing numbers of nodes, each variant alone on the fabric. Of nodes with an inside, these are the
series of the paper's Figure 7 (arXiv 2408.14158v2, IV-D): HFReduce, HFReduce with NVLink within a zone and across
zones, and NCCL's ring over all GPUs. Data begins and ends in GPUs; PCIe, root ports, memory and NICs limit it as they
do, and nothing that the paper measured of an allreduce is put in. Of nodes that are points, the network alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.variants import (
    PAPER_BPS,
    PAPER_NVLINK_BPS,
    PAPER_SIZE_BYTES,
    SizePhase,
    Variant,
    VariantPhase,
    allowed_Bps,
    chosen_variants,
    gigabytes,
    in_gigabytes,
    plays,
)
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.records.cells import Cell, quantity
from fabric.records.figure_forms import Bands, Level, Looks, Number
from fabric.records.palette import GREY
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size
from runs.case_tables import Column, case_table
from runs.jobs import ordered_ranks
from runs.node_use import LIMITS, CountedSteps, busiest, counters_of, limits_frame, served
from runs.placement import CROWDING, link_loads, zones_of_nodes
from runs.session import Session
from runs.study import Found, Outcome, Played, Study
from runs.true_scale import scale_words, true_rate
from topologies.compare import priced_of
from traffic import metrics
from traffic.collectives.job import CollectiveJob
from traffic.collectives.step_numbers import collective_medians
from traffic.stepped_job import FiniteSteps

_SHOWN = 3
"""Of the limits of a node, the tightest."""

# Playing --------------------------------------------------------------------------------------------------------------


def run_hfreduce_vs_nccl(session: Session, config: HFReduceVsNcclConfig) -> dict[str, Any]:
    """Play every variant over every number of nodes and return the summary."""
    session.use_queueing(config.queueing)
    fabric = session.live.fabric
    playing = plays(config, fabric)
    counted: dict[str, dict[str, float]] = {}
    for play in playing:
        session.tell(play.title)
        nodes = play.variant.nodes(fabric, play.count)
        flows = play.variant.flows(zones_of_nodes(fabric, nodes))
        ranks = ordered_ranks(session, config.rank_order, nodes, flows)
        counted[play.name] = {CROWDING.name: _crowding(session, play.variant, ranks)}
        with closing(play.variant.job(session, config, ranks, play.size)) as job:
            job.start()
            session.warm_up(job)
            _play(session, config, play, job)
    return STUDY.summarize(session, config, playing, counted)


def _play(session: Session, config: HFReduceVsNcclConfig, play: VariantPhase, job: CollectiveJob) -> None:
    """Play a phase, and keep what the limits of its nodes served meanwhile."""
    live = session.live
    counters = counters_of(live.fabric, play.variant.nodes(live.fabric, play.count))
    steps = CountedSteps(job, config.steps, partial(served, live, counters) if counters else dict)
    outcome = session.run_phase(play.name, play.title, [FiniteSteps(job, steps)], 0.0)
    if counters:
        seconds = sum(row["ended_s"] - row["started_s"] for row in outcome.records.rows("steps"))
        session.keep_frame("node_limits", limits_frame(play.name, counters, steps.before, steps.after, seconds))


def _crowding(session: Session, variant: Variant, ranks: tuple[NodeId, ...]) -> float:
    """Return how much more than the busiest NIC the busiest link carries; 1 if static routes never collide there."""
    fabric = session.live.fabric
    loads = link_loads(fabric, session.live.plan, ranks, variant.flows(zones_of_nodes(fabric, ranks)))
    return max(loads.values()) / max(load for port, load in loads.items() if not port.node.is_switch)


# Numbers --------------------------------------------------------------------------------------------------------------

PhaseOutcome = Outcome[VariantPhase]
Phases = Found[VariantPhase, HFReduceVsNcclConfig]


def _measure(played: Played[VariantPhase, HFReduceVsNcclConfig]) -> list[Metric]:
    fabric, play, steps = played.fabric, played.case, played.rows("steps")
    limits = play.variant.limits(fabric, play.count)
    found = {
        **({} if steps.empty else {**collective_medians(steps), "steps": len(steps)}),
        "network_ideal_Bps": play.variant.network_ideal_Bps(fabric, play.count),
        **({"limit_Bps": allowed_Bps(fabric, limits[0]) / fabric.scale} if limits else {}),
        **played.counted,
        **played.packets("drops_packets", "sent_packets", "retransmissions"),
    }
    return metrics_of(play.name, "", found)


def whole(found: Phases) -> list[PhaseOutcome]:
    """Return what came of the phases over growing numbers of nodes, without those of other sizes."""
    return [one for one in found.outcomes if not isinstance(one.case, SizePhase)]


def by_variant(found: Phases) -> dict[Variant, dict[int, PhaseOutcome]]:
    """Return the same by variant and number of nodes."""
    groups: dict[Variant, dict[int, PhaseOutcome]] = {}
    for one in whole(found):
        groups.setdefault(one.case.variant, {})[one.case.count] = one
    return groups


def node_price(config: HFReduceVsNcclConfig) -> float | None:
    """Return the relative price of a node with its share of the network; None if the topology gives none."""
    return priced_of(config.topology, "topology").price_per_node


def aside(found: Phases, one: PhaseOutcome) -> dict[str, float]:
    """Return what a phase's algbw, if a step ended, is beside NCCL's ring, a node's price, the paper and limits; rates
    are those of the system that the fabric stands for."""
    if "algbw_Bps" not in one.values:
        return {}
    fabric, config, play = found.fabric, found.config, one.case
    rate_Bps = true_rate(fabric, one["algbw_Bps"])  # noqa: N806 - bytes, not bits
    told = {"here_Bps": rate_Bps}
    if play.size in config.sizes or (config.sizes and play.count == config.sizes_nodes):
        told["of_size_Bps"] = rate_Bps
    if isinstance(play, SizePhase):
        return told
    if "limit_Bps" in one.values:
        told["nvlink_limit_Bps" if play.variant.nvlink else "plain_limit_Bps"] = true_rate(fabric, one["limit_Bps"])
    if play.variant.nvlink:
        told["paper_nvlink_Bps"] = PAPER_NVLINK_BPS
    else:
        told["plain_Bps"] = rate_Bps
        if play.variant.is_published:
            told["paper_least_Bps"], told["paper_most_Bps"] = PAPER_BPS[play.variant.level]
    is_hfreduce = play.variant.level == ServiceLevel.HFREDUCE
    if is_hfreduce and any(other.case.variant.nvlink for other in found.outcomes):
        told["beside_nvlink_Bps"] = rate_Bps
    rings = [
        other for other in whole(found) if (other.case.variant.name, other.case.count) == ("nccl_ring", play.count)
    ]
    if is_hfreduce and rings and rings[0].values.get("algbw_Bps") and one["algbw_Bps"]:
        told["times_nccl"] = one["algbw_Bps"] / rings[0]["algbw_Bps"]
    if (price := node_price(config)) is not None:
        told["algbw_Bps_per_price"] = rate_Bps / price
    return told


def _over_phases(found: Phases) -> Iterator[Metric]:
    for name in ("times_nccl", "algbw_Bps_per_price"):
        yield from (Metric(one.case.name, "", name, one[name]) for one in whole(found) if name in one.values)


MEASURES = (
    Measure("network_ideal_Bps", "algbw that the network allows, by the bytes that the busiest NIC sends"),
    Measure("limit_Bps", "algbw that the tightest limit inside a node allows, less headers"),
    CROWDING,
    Measure("times_nccl", "algbw over that of NCCL's ring on as many nodes", Better.MORE),
    Measure("algbw_Bps_per_price", "algbw at full scale over the price of a node", Better.MORE),
)

# In words -------------------------------------------------------------------------------------------------------------


def answer(found: Phases) -> str:
    """Return the finding, from the largest number of nodes of each variant."""
    config, inside = found.config, found.fabric.inside
    last = [list(group.values())[-1] for group in by_variant(found).values()]
    size = format_size(config.size)

    def got(one: PhaseOutcome) -> str:
        return gigabytes(one["here_Bps"]) if "here_Bps" in one.values else "an unknown number of"

    if inside is not None:
        told = (
            f"{one.case.variant.title} {got(one)} GB/s over {one.case.count * inside.gpus} GPUs (paper: "
            f"{one.case.variant.paper})"
            for one in last
        )
        return f"With {size} on nodes with an inside ({inside.name}): {'; '.join(told)}; no cap was put in."
    told = (f"{one.case.variant.title} {got(one)} GB/s (paper: {one.case.variant.paper})" for one in last)
    return f"With {size} over {max(config.nodes)} nodes the network alone allows: {'; '.join(told)}."


def explanation(variant: Variant, value: float) -> str:
    """Return what an algbw of points says beside the paper's range, both in bytes/s."""
    low, high = PAPER_BPS[variant.level]
    if value > high:
        hosts = "PCIe, memory, kernels" if variant.level == ServiceLevel.NCCL else "the sum in the node, PCIe, memory"
        return f"the network allows {value / high:.1f} times the paper's best: hosts ({hosts}) set the paper's figures"
    if value < low:
        return "below the paper's range: the network and TCP limit more here than the paper's network did"
    return "inside the paper's range: the network alone explains the paper's figures"


# Tables ---------------------------------------------------------------------------------------------------------------


def _tables(found: Phases) -> Iterator[SummaryTable]:
    inside = found.fabric.inside
    yield _bandwidth_table(found)
    if any("times_nccl" in one.values for one in found.outcomes):
        yield _ratio_table(found)
    if inside is not None:
        yield _limits_table(found)
        yield _use_table(found)
    else:
        yield _explanation_table(found)
    yield _network_table(found)
    if (price := node_price(found.config)) is not None:
        yield _cost_table(found, price)


VariantRow = tuple[Variant, Mapping[int, PhaseOutcome]]


def _over_nodes(
    found: Phases, cell: Callable[[PhaseOutcome], Cell | None], form: str = "", of: str = ""
) -> list[Column]:
    """Return a column per number of nodes for rows that are variants; ``none`` if there is nothing to say."""

    def value(row: VariantRow, count: int) -> Cell:
        told = cell(row[1][count]) if count in row[1] else None
        return "none" if told is None else told

    counts = found.config.nodes
    return [Column(f"{count} nodes{of}", partial(value, count=count), form or None) for count in counts]


_VARIANT = Column("variant", lambda row: row[0].title)


def _bandwidth_table(found: Phases) -> SummaryTable:
    config, fabric, groups = found.config, found.fabric, by_variant(found)

    def reached(one: PhaseOutcome) -> Cell | None:
        if "here_Bps" not in one.values:
            return None
        return in_gigabytes(one["here_Bps"]), " (", quantity(one["algbw_Bps"] / one["network_ideal_Bps"], ".0%"), ")"

    payload = metrics.payload_fraction(fabric.mtu_bytes)
    of = "" if fabric.inside is None else f" of {fabric.inside.gpus} GPUs"
    return case_table(
        f"algbw in GB/s of {format_size(config.size)} (share of the network's ideal)",
        [(variant, groups.get(variant, {})) for variant in chosen_variants(config, fabric)],
        (_VARIANT, *_over_nodes(found, reached, of=of), Column("paper, 186 MiB", lambda row: row[0].paper)),
        f"algbw = size / time of a step, as nccl-tests defines it, median over steps{scale_words(fabric)}; the "
        f"network's ideal fills the busiest node's NIC, {payload:.1%} of whose bytes are payload; "
        "below 4 nodes all are of one zone unless the variant says otherwise; none: not played, or no step ended",
    )


def _ratio_table(found: Phases) -> SummaryTable:
    (low, high), (nccl_low, nccl_high) = PAPER_BPS[ServiceLevel.HFREDUCE], PAPER_BPS[ServiceLevel.NCCL]
    return case_table(
        "How many times NCCL's ring",
        [row for row in by_variant(found).items() if row[0].level == ServiceLevel.HFREDUCE],
        (_VARIANT, *_over_nodes(found, lambda one: one.values.get("times_nccl"), ".2f")),
        f"the paper's Figure 7a: best by best {high / nccl_high:.1f}, least by least {low / nccl_low:.1f}",
    )


def _cost_table(found: Phases, price: float) -> SummaryTable:
    per_price = _over_nodes(found, lambda one: one.values.get("algbw_Bps_per_price"), ".3g in GB/s")
    return case_table(
        "algbw per price of a node, GB/s",
        by_variant(found).items(),
        (_VARIANT, Column("price", lambda _: price, ".4g"), *per_price),
        "price: of a node with its share of the network, relative, in units of Table III of arXiv 2408.14158v2",
    )


_PHASE = (
    Column("variant", lambda one: one.case.variant.title),
    Column("GPUs", lambda one: one.case.count * one.case.variant.gpus),
    Column("size", "size"),
)


def _limits_table(found: Phases) -> SummaryTable:
    fabric = found.fabric
    assert fabric.inside is not None, "of points, no limits are known"

    def limit(one: PhaseOutcome, place: int) -> Cell:
        limits = one.case.variant.limits(fabric, one.case.count)
        if place >= len(limits):
            return None
        return f"{limits[place].name} ", in_gigabytes(allowed_Bps(fabric, limits[place]))

    heads = enumerate(("tightest", "second", "third")[:_SHOWN])
    return case_table(
        f"Which limit of a node ({fabric.inside.name}) binds, GB/s",
        [one for one in found.outcomes if "limit_Bps" in one.values and "here_Bps" in one.values],
        (
            *_PHASE,
            Column("here", "here_Bps", ".3g in GB/s"),
            Column("of the tightest", lambda one: one["algbw_Bps"] / one["limit_Bps"], ".0%"),
            *(Column(head, partial(limit, place=place)) for place, head in heads),
        ),
        "limits: closed forms, each alone, less headers; no measured cap is in the config",
    )


def _use_table(found: Phases) -> SummaryTable:
    busy = busiest(found.session.table("node_limits"))
    names = [name for name in LIMITS if any((one.case.name, name) in busy for one in found.outcomes)]

    def use(one: PhaseOutcome, name: str) -> Cell:
        return busy.get((one.case.name, name), "none")

    return case_table(
        "Where the time goes: how busy the limits of nodes were",
        found.outcomes if names else (),
        (*_PHASE, *(Column(name, partial(use, name=name), ".0%") for name in names)),
        "of the busiest node and GPU, over the steps; root port: both directions together; headers and "
        "acknowledgements count; where nothing is near 100 %, the allreduce waits for chunks under way",
    )


def _explanation_table(found: Phases) -> SummaryTable:
    count = max(one.case.count for one in whole(found))
    gigabytes_of = ".3g in GB/s"
    return case_table(
        f"What the network alone explains: {count} nodes, GB/s",
        [one for one in whole(found) if one.case.count == count and "here_Bps" in one.values],
        (
            _PHASE[0],
            Column("here", "here_Bps", gigabytes_of),
            Column("network's ideal", lambda one: true_rate(found.fabric, one["network_ideal_Bps"]), gigabytes_of),
            Column("share", lambda one: one["algbw_Bps"] / one["network_ideal_Bps"], ".0%"),
            Column("paper", lambda one: one.case.variant.paper),
            Column("conclusion", lambda one: explanation(one.case.variant, one["here_Bps"])),
        ),
        f"the paper's ranges are over all its numbers of nodes, at {format_size(PAPER_SIZE_BYTES)}; here nodes "
        "are points, in which computing, PCIe and memory take no time",
    )


def _network_table(found: Phases) -> SummaryTable:
    return case_table(
        "Network",
        found.outcomes,
        (
            _PHASE[0],
            Column("nodes", "count"),
            Column("size", "size"),
            Column("pairs across zones", lambda one: _pairs_across_zones(found.fabric, one.case)),
            Column("busiest link", "busiest_link_of_nic", ".2f"),
            Column("packets sent", "sent_packets"),
            Column("dropped", "drops_packets"),
            Column("retransmitted", "retransmissions"),
        ),
        "busiest link: its load relative to that of the busiest NIC, by the routes; above 1, flows share it",
    )


def _pairs_across_zones(fabric: Fabric, play: VariantPhase) -> int:
    zones = play.variant.zones(fabric, play.count)
    return len({tuple(sorted((a, b))) for a, b, _ in play.variant.flows(zones) if zones[a] != zones[b]})


# Figures --------------------------------------------------------------------------------------------------------------


def _over_gpus(name: str, title: str, caption: str, rate: str, limit: str, **more: Any) -> Bands:
    """Return algbw over GPUs, from it a thin line up to the closed form of the variant's tightest limit."""
    return Bands(
        name,
        caption,
        title,
        numbers=(Number(rate, "here", 1e-9, upto=limit),),
        x="{gpus}",
        line="{variant}",
        colour="{kind}",
        labels=("number of GPUs; nodes that are points have one", "algbw = size / time, median over steps (GB/s)"),
        looks=Looks(11.0, 5.4, legend=2),
        **more,
    )


STUDY = Study(
    title=lambda of: f"HFReduce and NCCL: allreduce of {format_size(of.config.size)} over growing numbers of nodes",
    cases=lambda config: plays(config, config.fabric()),
    measure=_measure,
    measures=MEASURES,
    aside=aside,
    over_cases=_over_phases,
    answer=answer,
    tables=_tables,
    figures=(
        _over_gpus(
            "scaling",
            "algbw over growing numbers of nodes",
            "Collectives over growing numbers of nodes: median algbw over the steps of a phase, one line per variant, "
            "at the scale of the system that the fabric stands for. Thin lines: up to what a node's tightest limit "
            "alone allows. Shaded: measured by others.",
            "plain_Bps",
            "plain_limit_Bps",
            band=(
                Number("paper_least_Bps", "paper, {kind}: {paper} GB/s", 1e-9),
                Number("paper_most_Bps", "", 1e-9),
            ),
        ),
        _over_gpus(
            "scaling_nvlink",
            "algbw over growing numbers of nodes, with NVLink",
            "HFReduce with NVLink within a zone and across zones, beside HFReduce without it: as scaling.",
            "beside_nvlink_Bps",
            "nvlink_limit_Bps",
            levels=(Level(Number("paper_nvlink_Bps", "paper, with NVLink: above this", 1e-9, colour=GREY), "--"),),
        ),
        Bands(
            "sizes",
            "algbw over the size of an allreduce: where it no longer grows is steady state.",
            "algbw over the size of an allreduce",
            numbers=(Number("of_size_Bps", "here", 1e-9),),
            x="{mebibytes}",
            line="{variant}",
            colour="{kind}",
            labels=("size (MiB)", "algbw = size / time, median over steps (GB/s)"),
            looks=Looks(11.0, 5.4, legend=2),
        ),
    ),
)
