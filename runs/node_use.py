"""How much of each limit of a node was used: links by the counters of ports, budgets by the kernel's own; the table
``node_limits``."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from fabric.measure.census import lane_counters
from fabric.model.identity import NodeId
from fabric.model.inside import BudgetKind, Inside, budget_name, gpu_of, to_gpu
from fabric.model.network import Fabric, Port
from fabric.queueing import budgets
from fabric.queueing.vl_abi import WEIGHT_ONE
from fabric.tables import NO_UNIT, Column, Table, common
from fabric.world.programs import guest_calls
from traffic.collectives.job import CollectiveJob
from traffic.job import Records

if TYPE_CHECKING:
    from runs.live import LiveFabric

TABLES = {
    "node_limits": Table(
        "One row per phase, node of it and limit of the node, over the steps of the phase.",
        {
            **common("phase", "host"),
            "limit": Column("category", NO_UNIT, "what limits: a link of the node in one direction, or a budget"),
            "served_bytes": Column("int64", "bytes", "bytes that it served, each with its weight"),
            "rate_bps": Column("int64", "bit/s", "its rate"),
            "busy": Column("float64", "fraction", "what it served, of what it could have in the time of the steps"),
        },
    ),
}
ROOT_PORT, MEMORY, NVLINK = "root port", "memory", "NVLink"
TO_CPU, TO_GPU = "PCIe, GPU to CPU", "PCIe, CPU to GPU"
NIC_OUT, NIC_IN = "NIC, out", "NIC, in"
PEER_OUT, PEER_IN = "GPU to NIC", "NIC to GPU"
LIMITS = (ROOT_PORT, TO_CPU, TO_GPU, MEMORY, NIC_OUT, NIC_IN, PEER_OUT, PEER_IN, NVLINK)
"""In the order in which they are told."""
_BUDGETS = {
    BudgetKind.MEMORY: MEMORY,
    BudgetKind.ROOT_PORT: ROOT_PORT,
    BudgetKind.PEER_OUT: PEER_OUT,
    BudgetKind.PEER_IN: PEER_IN,
}


@dataclass(frozen=True)
class NodeLimitCounter:
    """A limit of a node: the kind that it is of, its rate, and where what it served is counted: a port, or a
    budget by its name."""

    host: NodeId
    limit: str
    rate_bps: int
    counted_at: Port | str


Served = Mapping[Port | str, float]
"""Bytes, cumulative, by where they are counted."""


def counters_of(fabric: Fabric, hosts: Sequence[NodeId]) -> list[NodeLimitCounter]:
    """Return all limits of these nodes; none of nodes that are points."""
    if fabric.inside is None:
        return []
    return [one for host in hosts for one in _of_host(fabric, fabric.inside, host)]


def _of_host(fabric: Fabric, inside: Inside, host: NodeId) -> Iterator[NodeLimitCounter]:
    for gpu in range(inside.gpus):
        yield NodeLimitCounter(host, TO_CPU, inside.gpu_link_bps, Port(gpu_of(host, gpu), 0))
        yield NodeLimitCounter(host, TO_GPU, inside.gpu_link_bps, Port(*to_gpu(host, gpu)))
        if inside.nvlink is not None and inside.nvlink.peers(gpu):
            yield NodeLimitCounter(host, NVLINK, inside.nvlink.rate_bps, Port(gpu_of(host, gpu), 1))
    for nic in fabric.nics_of[host]:
        yield NodeLimitCounter(host, NIC_OUT, fabric.nic_rate_bps, nic.port)
        yield NodeLimitCounter(host, NIC_IN, fabric.nic_rate_bps, fabric.link_at[nic.port].other(nic.port))
    for draw in {draw.budget: draw for draw in fabric.draws_of(host)}.values():
        yield NodeLimitCounter(host, _BUDGETS[draw.kind], 8 * draw.rate_Bps, budget_name(host, *draw.budget))


def served(live: LiveFabric, counters: Sequence[NodeLimitCounter]) -> Served:
    """Return what each limit has served up to now. Raises EmulationError without the module ``vl``."""
    drawn = dict(ChainMap(*guest_calls.everywhere(budgets.read)))
    found: dict[Port | str, float] = {}
    for one in counters:
        if isinstance(one.counted_at, str):
            found[one.counted_at] = drawn[budgets.number_of(one.counted_at)].drawn / WEIGHT_ONE
        else:
            found[one.counted_at] = 0
    for (port, _), value in lane_counters(live.emulation, "sent_bytes").items():
        if port in found:
            found[port] += value
    return found


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


def limits_frame(
    phase: str, counters: Sequence[NodeLimitCounter], before: Served, after: Served, seconds: float
) -> pd.DataFrame:
    """Return the rows of ``node_limits`` of a phase whose steps took ``seconds`` in all."""
    rows = []
    for one in counters:
        grown = after[one.counted_at] - before[one.counted_at]
        busy = 8 * grown / (one.rate_bps * seconds)
        rows.append([phase, one.host.name, one.limit, round(grown), one.rate_bps, busy])
    table = TABLES["node_limits"]
    return pd.DataFrame(rows, columns=list(table.columns)).astype(table.dtypes)


def busiest(rows: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return by phase and limit how busy the busiest of all nodes' was."""
    most = rows.groupby(["phase", "limit"], observed=True)["busy"].max().reset_index()
    columns = (most[name].tolist() for name in ("phase", "limit", "busy"))
    return {(phase, limit): value for phase, limit, value in zip(*columns, strict=True)}
