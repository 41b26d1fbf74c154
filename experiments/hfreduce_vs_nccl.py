"""How fast do HFReduce and NCCL add up gradients, and is it the network that limits them?

One allreduce over growing numbers of nodes, each variant alone on the fabric: HFReduce over a plain and over a
zone-aware tree, without and with caps for what a host can add up a second, and NCCL's ring and tree. The paper measures
186 MiB in its Figure 7a (arXiv 2408.14158v2, IV-D). Where the network alone is faster than the paper's figures, hosts
set them; a cap says which part of the host would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, StringConstraints, field_validator, model_validator

from experiments.config import RunConfig
from experiments.isolation import RankOrder
from experiments.placement import Flow, order_ranks
from experiments.session import PhaseOutcome, Session
from fabric.config import TimeS
from fabric.identity import NodeId, Role
from fabric.lanes import Queueing, ServiceLevel
from fabric.model import Fabric
from fabric.units import format_size
from traffic import metrics
from traffic.collective import CollectiveJob, ElementsBytes
from traffic.hfreduce import HFReduceConfig, HFReduceJob, HostMemoryConfig, TreeKind, trees_of
from traffic.job import Records
from traffic.nccl import Algorithm, NcclConfig, NcclJob, nccl_flows, sent_fraction
from traffic.trees import sent_fractions, tree_flows

QUESTION = "How fast are HFReduce and NCCL over growing numbers of nodes, and is it the network that limits them?"
PAPER_SIZE_BYTES = 186 * 2**20
PAPER_BPS = {ServiceLevel.HFREDUCE: (6.3e9, 8.1e9), ServiceLevel.NCCL: (1.6e9, 4.8e9)}
"""The least and the most algbw of the paper's Figure 7a, over all its numbers of nodes, in bytes a second."""
_KINDS = {ServiceLevel.HFREDUCE: "HFReduce", ServiceLevel.NCCL: "NCCL"}
_BOTH_ZONES_FROM = 4
CapName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


def _default_caps() -> dict[str, HostMemoryConfig]:
    return {
        "memory": HostMemoryConfig(),
        "measured": HostMemoryConfig(bandwidth=8_100_000_000, operations_per_byte=1.0),
    }


class HFReduceVsNcclConfig(RunConfig):
    """The allreduce, and over how many nodes. ``chunk`` is HFReduce's, ``slice`` NCCL's; ``host_caps`` are by name."""

    nodes: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)] = Field(
        default_factory=lambda: [2, 4, 8, 16]
    )
    size: ElementsBytes = 16 * 2**20
    steps: Annotated[int, Field(ge=1)] = 1
    chunk: ElementsBytes = 256 * 1024
    slice: ElementsBytes = 256 * 1024
    gpus_per_node: Annotated[int, Field(ge=1)] = 1
    queueing: Annotated[Queueing, Field(strict=False)] = Queueing.SHARED
    host_caps: dict[CapName, HostMemoryConfig] = Field(default_factory=_default_caps)
    rank_order: Annotated[RankOrder, Field(strict=False)] = RankOrder.ROUTES
    step_timeout: Annotated[TimeS, Field(gt=0)] | None = None

    @field_validator("nodes")
    @classmethod
    def _verify_nodes(cls, value: list[int]) -> list[int]:
        twice = sorted({count for count in value if value.count(count) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(str, twice))} more than once; name each number of nodes once")
        return value

    @model_validator(mode="after")
    def _verify_pieces(self) -> HFReduceVsNcclConfig:
        for key, value in (("chunk", self.chunk), ("slice", self.slice)):
            if 2 * value > self.size:
                raise ValueError(
                    f"{key}: {format_size(value)} is more than the half of {format_size(self.size)} that a tree "
                    "carries, so nothing would be pipelined; lower it or raise size"
                )
        return self

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """The one."""
        return (self.queueing,)

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        have = [len(fabric.with_role(Role.COMPUTE, zone=zone)) for zone in range(fabric.zones)]
        for count in self.nodes:
            for zone, wanted in enumerate(nodes_by_zone(count, fabric.zones)):
                if wanted > have[zone]:
                    yield f"nodes: {count} takes {wanted} compute nodes of zone {zone}, which has {have[zone]}"


def nodes_by_zone(count: int, zones: int) -> list[int]:
    """Return how many nodes each zone gives: equally many from 4 nodes on, the first zones more; below, zone 0 all."""
    if count < _BOTH_ZONES_FROM:
        return [count] + [0] * (zones - 1)
    return [count // zones + (zone < count % zones) for zone in range(zones)]


def chosen_nodes(fabric: Fabric, count: int) -> tuple[NodeId, ...]:
    """Return the nodes of an allreduce over ``count``, zone by zone, the first of each."""
    shares = enumerate(nodes_by_zone(count, fabric.zones))
    return tuple(node for zone, share in shares for node in fabric.with_role(Role.COMPUTE, zone=zone)[:share])


def _zones(fabric: Fabric, nodes: Sequence[NodeId]) -> list[int]:
    return [fabric.nics_of[node][0].zone for node in nodes]


@dataclass(frozen=True)
class Variant:
    """An algorithm with what caps it. ``cap`` is a key of the config's ``host_caps``."""

    name: str
    title: str
    level: ServiceLevel
    algorithm: TreeKind | Algorithm
    cap: str | None = None

    def flows(self, zones: Sequence[int]) -> list[Flow]:
        """Return what a step sends between ranks of these zones."""
        if isinstance(self.algorithm, TreeKind):
            return tree_flows(trees_of(self.algorithm, zones))
        return nccl_flows(self.algorithm, len(zones))

    def ideal_bps(self, config: HFReduceVsNcclConfig, fabric: Fabric, zones: Sequence[int]) -> float:
        """Return the algbw in bytes a second at which the busiest NIC is full, or the host's cap if that is lower."""
        if isinstance(self.algorithm, TreeKind):
            sent = max(sent_fractions(trees_of(self.algorithm, zones)))
        else:
            sent = sent_fraction(self.algorithm, len(zones))
        by_nic = metrics.ideal_algbw(fabric.nic_rate_bps, sent)
        return min(by_nic, config.host_caps[self.cap].cap_bytes_per_s / fabric.scale) if self.cap else by_nic

    def job(self, session: Session, config: HFReduceVsNcclConfig, ranks: Sequence[NodeId]) -> CollectiveJob:
        """Return the job that plays it over ``ranks``."""
        common: dict[str, Any] = {"size": config.size, "step_timeout": config.step_timeout}
        if isinstance(self.algorithm, Algorithm):
            made = NcclConfig(**common, algorithm=self.algorithm, slice=config.slice)
            return NcclJob(session.stage, made, ranks)
        hfreduce = HFReduceConfig(
            **common,
            chunk=config.chunk,
            gpus_per_node=config.gpus_per_node,
            tree=self.algorithm,
            host_memory=config.host_caps[self.cap] if self.cap else None,
        )
        return HFReduceJob(session.stage, hfreduce, ranks)


def variants(config: HFReduceVsNcclConfig) -> tuple[Variant, ...]:
    """Return what is played, in order."""
    found = []
    for kind, words in ((TreeKind.PLAIN, "plain tree"), (TreeKind.ZONE_AWARE, "zone-aware tree")):
        make = partial(Variant, level=ServiceLevel.HFREDUCE, algorithm=kind)
        found.append(make(f"hfreduce_{kind.value}", f"HFReduce, {words}"))
        for cap, host in config.host_caps.items():
            title = f"HFReduce, {words}, host {cap} {_gb(host.cap_bytes_per_s)} GB/s"
            found.append(make(f"hfreduce_{kind.value}_{cap}", title, cap=cap))
    for algorithm in Algorithm:
        name = algorithm.value
        found.append(Variant(f"nccl_{name}", f"NCCL, {name}", ServiceLevel.NCCL, algorithm))
    return tuple(found)


def phase_name(variant: Variant, count: int) -> str:
    """Return the name of the phase that plays a variant over ``count`` nodes."""
    return f"{variant.name}_n{count}"


class CountedSteps:
    """A started collective as a job of a phase: it plays a number of steps, however long they take.

    One more step goes before them and is not told: in it TCP finds its windows, which costs up to a third of the time.
    """

    def __init__(self, job: CollectiveJob, steps: int) -> None:
        self.level = job.level
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
        records = self._job.run_steps(1 + self._steps, self._phase)
        del records.steps[0]
        return records

    def close(self) -> None:
        """Do nothing: who started the collective closes it."""


def run_hfreduce_vs_nccl(session: Session, config: HFReduceVsNcclConfig) -> dict[str, Any]:
    """Play every variant over every number of nodes and return the summary."""
    session.use_queueing(config.queueing)
    for count in config.nodes:
        nodes = chosen_nodes(session.live.fabric, count)
        for variant in variants(config):
            ranks = _ordered(session, config, nodes, variant)
            with closing(variant.job(session, config, ranks)) as job:
                job.start()
                title = f"{variant.title}, {count} nodes"
                session.run_phase(phase_name(variant, count), title, [CountedSteps(job, config.steps)], 0.0)
    return summarize(session, config)


def _ordered(
    session: Session, config: HFReduceVsNcclConfig, nodes: tuple[NodeId, ...], variant: Variant
) -> tuple[NodeId, ...]:
    if config.rank_order is RankOrder.NODES:
        return nodes
    flows = variant.flows(_zones(session.live.fabric, nodes))
    return order_ranks(session.live.fabric, session.live.plan, nodes, flows)


Figures = Mapping[str, Mapping[str, float]]
"""All numbers of each phase, by its name."""


def summarize(session: Session, config: HFReduceVsNcclConfig) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric = session.live.fabric
    steps = session.table("steps")
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    figures: dict[str, dict[str, float]] = {}
    for variant in variants(config):
        for count in config.nodes:
            zones = _zones(fabric, chosen_nodes(fabric, count))
            name = phase_name(variant, count)
            figures[name] = {
                **_step_metrics(steps[steps["phase"] == name]),
                "ideal_algbw_Bps": variant.ideal_bps(config, fabric, zones),
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
    medians = metrics.with_bandwidths(steps)[["algbw", "busbw", "time_s"]].median()
    return {
        "algbw_Bps": float(medians["algbw"]),
        "busbw_Bps": float(medians["busbw"]),
        "step_s": float(medians["time_s"]),
        "steps": len(steps),
    }


def _network_metrics(outcome: PhaseOutcome) -> dict[str, float]:
    counted = outcome.conservation
    return {"drops_packets": counted.dropped_by_queues, "sent_packets": counted.sent_packets}


def _gb(value: float) -> str:
    return f"{value / 1e9:.3g}"


def _paper_range(level: ServiceLevel) -> str:
    low, high = PAPER_BPS[level]
    return f"{_gb(low)}-{_gb(high)}"


def _at_full_scale(fabric: Fabric, figures: Figures, variant: Variant, count: int) -> float | None:
    """Return a variant's algbw in bytes a second of the system that the fabric stands for; None if no step ended."""
    value = figures[phase_name(variant, count)].get("algbw_Bps")
    return None if value is None else value * fabric.scale


def _answer(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> str:
    """Return the finding in a sentence, from the largest number of nodes."""
    count = max(config.nodes)
    by_name = {variant.name: variant for variant in variants(config)}

    def got(name: str) -> str:
        value = _at_full_scale(fabric, figures, by_name[name], count)
        return "an unknown number of" if value is None else _gb(value)

    zone_aware = f"hfreduce_{TreeKind.ZONE_AWARE.value}"
    capped = "".join(
        f", {got(f'{zone_aware}_{cap}')} with a host that adds up {_gb(host.cap_bytes_per_s)} GB/s"
        for cap, host in config.host_caps.items()
    )
    # Less data than the paper's leaves more of a step to the filling of pipelines and of TCP's windows.
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
            ideal = figures[phase_name(variant, count)]["ideal_algbw_Bps"] * fabric.scale
            value = _at_full_scale(fabric, figures, variant, count)
            cells.append(f"{'none' if value is None else _gb(value)} of {_gb(ideal)}")
        rows.append([variant.title, *cells, _paper_range(variant.level)])
    scaled = "" if fabric.scale == 1 else f", times the scale of {fabric.scale:,.10g}"
    return {
        "title": f"algbw in GB/s of {format_size(config.size)}, of the ideal",
        "columns": ["variant", *(f"{count} nodes" for count in config.nodes), "paper, 186 MiB"],
        "rows": rows,
        "note": f"algbw as nccl-tests defines it, median over steps{scaled}; ideal: a full NIC at the busiest rank, or "
        "the host's cap if lower; below 4 nodes all are of one zone, where both trees are one",
    }


def _explanation_table(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> dict[str, Any]:
    rows = []
    for variant in variants(config):
        got = [_at_full_scale(fabric, figures, variant, count) for count in config.nodes]
        values = [value for value in got if value is not None]
        if values:
            limits = "network and a host's cap" if variant.cap else "network alone"
            here = "-".join(dict.fromkeys((_gb(min(values)), _gb(max(values)))))
            rows.append([variant.title, limits, here, _paper_range(variant.level), explanation(variant, values)])
    return {
        "title": "What the network explains, and what it does not",
        "columns": ["variant", "limited here by", "GB/s here", "GB/s in the paper", "so"],
        "rows": rows,
        "note": f"the paper's ranges are over all its numbers of nodes, at {format_size(PAPER_SIZE_BYTES)}; computing, "
        "PCIe and memory cost nothing here but where a cap says so",
    }


def explanation(variant: Variant, values: Sequence[float]) -> str:
    """Return what some algbws in bytes a second say beside the paper's range."""
    low, high = PAPER_BPS[variant.level]
    least, most = min(values), max(values)
    if least > high:
        times = f"{least / high:.1f} times the paper's best or more"
        if variant.cap:
            return f"{times}: this cap alone does not explain the paper's figures"
        if variant.level is ServiceLevel.NCCL:
            return f"{times}: not the network but hosts (PCIe, memory) set the paper's figures"
        return f"{times}: not the network but hosts (the sum in the node, PCIe) set the paper's figures"
    if most < low:
        return "below the paper's range: TCP or too small a size limits here what did not limit the paper's system"
    if least >= low and most <= high:
        limits = "the cap explains" if variant.cap else "the network alone explains"
        return f"inside the paper's range: {limits} its figures"
    return "partly inside the paper's range"


def _network_table(config: HFReduceVsNcclConfig, fabric: Fabric, figures: Figures) -> dict[str, Any]:
    rows = []
    for variant in variants(config):
        for count in config.nodes:
            found = figures[phase_name(variant, count)]
            zones = _zones(fabric, chosen_nodes(fabric, count))
            pairs = {tuple(sorted((a, b))) for a, b, _ in variant.flows(zones) if zones[a] != zones[b]}
            cells = [str(len(pairs)), f"{found['sent_packets']:.0f}", f"{found['drops_packets']:.0f}"]
            rows.append([variant.title, str(count), *cells])
    columns = ["variant", "nodes", "pairs across zones", "packets sent", "dropped by queues"]
    return {"title": "Network", "columns": columns, "rows": rows}


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
                "label": f"paper, {_KINDS[level]}: {_paper_range(level)} GB/s",
                "service_level": level.label,
                "from_Bps": low,
                "to_Bps": high,
            }
            for level, (low, high) in PAPER_BPS.items()
        ],
    }
