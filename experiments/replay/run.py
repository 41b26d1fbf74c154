"""How long do the flows of a workload file take on this fabric, and how long would they in theory?

Each flow is a TCP connection of its own that is open beforehand. Theory lets fluids share links max-min fairly, on the
very paths that the flows take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from controllers.planning.ecmp import FiveTuple
from controllers.planning.paths import nics_for, path_load, planned_path
from controllers.planning.policies import POLICIES
from controllers.planning.policies.policy import or_list
from experiments.replay.connection_matrix import MOST_COUNT, End, Firing, Matrix, read_matrix
from experiments.replay.fluid import fluid_times
from experiments.replay.measures import LINE_RATE, LINE_THEORY, LINE_TIME
from fabric.config import MOST_TIME_S, TimeS
from fabric.errors import ConfigError
from fabric.metrics import metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.percentiles import nearest_ranks
from fabric.records.cells import Row, count_of, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_rate, format_time
from runs.config import QueueingConfig
from runs.phase_lengths import PhaseLengths
from runs.session import PhaseOutcome, Session
from traffic.flows.sized_flows import SizedFlow, SizedFlowsJob

PHASE = "replay"
_SHOWN = 10
_OWN_METRICS = 32
"""Up to so many flows, each has metrics of its own, unless the config says which."""
_LEAST_S = 0.001


class ReplayConfig(QueueingConfig):
    """A connection matrix, as its file has it."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing in which the flows play."
    )
    source: str = Field(default="matrix", description="Name of the workload file, for messages and figures.")
    matrix: str = Field(
        description="Content of the workload file: an htsim connection matrix. `fabric replay FILE` fills it in."
    )
    time_scale: Annotated[float, Field(gt=0, le=1e9, strict=False)] | None = Field(
        default=None,
        description=(
            "Multiplies the flows' start times. Without it, by how much slower the fabric is than what it stands for."
        ),
    )
    patience: Annotated[TimeS, Field(gt=0)] = Field(
        default=600.0, description="Longest time that a flow may take before the run fails."
    )
    lines: list[Annotated[int, Field(ge=1, le=MOST_COUNT)]] | None = Field(
        default=None,
        description="Lines of the file whose flows have metrics of their own. Without it, all if they are few.",
    )

    def flows(self) -> Matrix:
        """Return the matrix. Raises ConfigError with every line that cannot be read or played."""
        return read_matrix(self.matrix, self.source)

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as the flows take."""
        return PhaseLengths(until="all flows have ended")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        try:
            matrix = self.flows()
        except ConfigError as error:
            yield from (f"{self.source}: {fault}" for fault in error.faults)
            return
        if matrix.nodes > len(fabric.computes):
            have = f"{fabric.name} has {len(fabric.computes)} compute nodes"
            yield f"{self.source}: Nodes {matrix.nodes}: {have}; use a larger topology"
        yield from self._without_end(matrix, fabric)
        if others := sorted(set(self.lines or ()) - {one.line for one in matrix.connections}):
            yield f"lines: {', '.join(map(str, others))}: no connection of {self.source}; name lines that have one"
        if self.routing.policy.moves:
            staying = or_list(policy for policy in POLICIES if not policy.moves)
            yield f"routing.policy: {self.routing.policy}: theory needs paths that stay; use {staying}"

    def scale_on(self, fabric: Fabric) -> float:
        """Return by how much starts are multiplied."""
        return fabric.scale if self.time_scale is None else self.time_scale

    def _without_end(self, matrix: Matrix, fabric: Fabric) -> Iterator[str]:
        """Yield the first flow that starts too late, and the first that cannot end in its time even if it is alone."""
        for one in matrix.connections:
            if one.start_s is not None and (start_s := one.start_s * self.scale_on(fabric)) > MOST_TIME_S:
                late = f"starts after {start_s:,.0f} s, and the last may after {MOST_TIME_S:,.0f}"
                yield f"{self.source}: line {one.line}: {late}; lower its start or time_scale"
                break
        for one in matrix.connections:
            if (least_s := one.size_bytes * 8 / fabric.nic_rate_bps) > self.patience:
                alone = f"takes a NIC of {format_rate(fabric.nic_rate_bps)} {least_s:,.0f} s"
                yield (
                    f"{self.source}: line {one.line}: size {one.size_bytes} {alone}, longer than patience, "
                    f"{self.patience:,.0f} s; raise that or lower it"
                )
                break


def run_replay(session: Session, config: ReplayConfig) -> dict[str, Any]:
    """Play the matrix and return the summary."""
    fabric, matrix, firing = session.live.fabric, config.flows(), Firing(config.flows())
    scale = config.scale_on(fabric)
    starts = [None if one.start_s is None else one.start_s * scale for one in matrix.connections]
    flows = [
        SizedFlow(fabric.computes[one.source], fabric.computes[one.sink], one.size_bytes, start_s)
        for one, start_s in zip(matrix.connections, starts, strict=True)
    ]

    def told(number: int, at_source: bool) -> Sequence[int]:
        return firing.ended(number, End.SENT if at_source else End.RECEIVED)

    session.use_queueing(config.queueing)
    with closing(SizedFlowsJob(session.stage, flows, config.patience, ServiceLevel.OTHER, told)) as job:
        job.start()
        last_s = max((start_s for start_s in starts if start_s is not None), default=0.0)
        outcome = session.run_phase(PHASE, f"{len(flows)} flows of {config.source}", [job], max(last_s, _LEAST_S))
        paths = _paths(session, job)
    parts = _parts(session, flows) if config.routing.policy.sprays else None
    found = _beside_theory(session, matrix, fluid_times(fabric, matrix, paths, scale, parts))
    session.keep_frame("replayed", found)
    return summarize(session, config, outcome, found, paths)


def _paths(session: Session, job: SizedFlowsJob) -> list[tuple[Port, ...]]:
    """Return the ports that each flow leaves by, or the packets of one of its paths."""
    fabric, plan = session.live.fabric, session.live.plan
    paths = []
    for number in range(len(job.flows)):
        pair = job.nics[number]
        key = FiveTuple(pair[0].ip, pair[1].ip, *job.ports[number])
        paths.append(tuple(planned_path(plan, fabric, *pair, key)))
    return paths


def _parts(session: Session, flows: Sequence[SizedFlow]) -> list[dict[Port, float]]:
    """Return what part of each flow takes each port, where packets are sprayed."""
    fabric, plan = session.live.fabric, session.live.plan
    return [path_load(plan, fabric, *nics_for(fabric, flow.source, flow.sink)) for flow in flows]


def _beside_theory(session: Session, matrix: Matrix, theory: Sequence[float]) -> pd.DataFrame:
    rows = session.table("operations")
    found = rows[rows["phase"] == PHASE][["host", "peer", "size_bytes", "started_s", "ended_s"]].reset_index(drop=True)
    found.insert(0, "line", [one.line for one in matrix.connections])
    return found.assign(took_s=found["ended_s"] - found["started_s"], theory_s=list(theory))


def summarize(
    session: Session, config: ReplayConfig, outcome: PhaseOutcome, found: pd.DataFrame, paths: Sequence[Sequence[Port]]
) -> dict[str, Any]:
    """Return the tables and metrics of a replay."""
    took, theory = found["took_s"].to_numpy(), found["theory_s"].to_numpy()
    last = float(found["ended_s"].max() - found["started_s"].min())
    metrics = {
        "flows": len(found),
        **dict(zip(("fct_p50_s", "fct_p99_s"), nearest_ranks(took, 50, 99), strict=True)),
        "fct_max_s": float(took.max()),
        "theory_p50_s": nearest_ranks(theory, 50)[0],
        "theory_max_s": float(theory.max()),
        "worst_ratio": float((took / theory).max()),
        "median_ratio": float(np.median(took / theory)),
        "all_s": last,
        "drops_packets": outcome.conservation.dropped_by_queues,
        "retransmissions": outcome.conservation.retransmissions,
    }
    metrics |= _of_each_flow(found, config.lines)
    slowest = f"{format_time(metrics['fct_max_s'])} (theory: {format_time(metrics['theory_max_s'])})"
    return {
        "title": f"Replay of {config.source} on {session.live.fabric.name}",
        "answer": f"The slowest of {len(found)} flows takes {slowest}.",
        "metrics": metrics_of(PHASE, "", metrics),
        "tables": [_times_table(metrics, took, theory), _slowest_table(found, paths)],
    }


def _of_each_flow(found: pd.DataFrame, lines: Sequence[int] | None) -> dict[str, float]:
    """Return the times and rates of the flows of these lines of the file; without them of all, unless they are many."""
    if lines is not None:
        found = found[found["line"].isin(lines)]
    elif len(found) > _OWN_METRICS:
        return {}
    columns = {
        LINE_TIME: found["took_s"],
        LINE_THEORY: found["theory_s"],
        LINE_RATE: found["size_bytes"] * 8 / found["took_s"],
    }
    return {
        measure.of(line): float(value)
        for measure, values in columns.items()
        for line, value in zip(found["line"], values, strict=True)
    }


def _times_table(metrics: dict[str, float], took: Any, theory: Any) -> SummaryTable:
    rows: list[Row] = []
    for name, percent in (("median", 50), ("99th percentile", 99), ("slowest", 100)):
        ours, ideal = (nearest_ranks(values, percent)[0] for values in (took, theory))
        rows.append([name, quantity(ours, "time"), quantity(ideal, "time"), quantity(ours / ideal - 1, "+.1%")])
    return SummaryTable(
        title="Flow completion times",
        columns=["of all flows", "measured", "theory", "off"],
        rows=rows,
        note=(
            "theory: fluids that share the links of their paths max-min fairly",
            f"dropped by queues: {metrics['drops_packets']:.0f}, retransmissions: {metrics['retransmissions']:.0f}",
        ),
    )


def _slowest_table(found: pd.DataFrame, paths: Sequence[Sequence[Port]]) -> SummaryTable:
    users: dict[Port, int] = {}
    for path in paths:
        for port in path:
            users[port] = users.get(port, 0) + 1
    rows: list[Row] = []
    for place, row in found.sort_values("took_s", ascending=False, kind="stable").head(_SHOWN).iterrows():
        busiest = max(paths[int(str(place))], key=lambda port: users[port])
        flow = f"{row['host']} → {row['peer']}"
        times = [
            quantity(row["took_s"], "time"),
            quantity(row["theory_s"], "time"),
            quantity(row["took_s"] / row["theory_s"] - 1, "+.1%"),
        ]
        rows.append(
            [
                flow,
                count_of(row["line"]),
                quantity(row["size_bytes"], "size"),
                *times,
                (f"{busiest} (", count_of(users[busiest]), ")"),
            ]
        )
    return SummaryTable(
        title="Slowest flows",
        columns=["flow", "line", "size", "took", "theory", "off", "busiest port (flows)"],
        rows=rows,
        note="all are in samples/replayed.parquet",
    )
