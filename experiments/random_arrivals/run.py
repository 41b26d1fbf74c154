"""How long does a packet wait at a link whose packets come at random?

A host sends single packets of one size to another, at the times of a Poisson process, by an open loop. Each waits at
the host's link for those before it; all later links are as fast or faster, so nothing waits there again. That is M/D/1,
where the mean wait is rho / (2 (1 - rho)) times what a packet takes, at a load of rho (Pollaczek and Khinchine).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from fabric.config import SizeBytes
from fabric.metrics import metrics_of
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.records.cells import Row, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import exact
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.flows.random_arrivals import Burst, RandomArrivalsJob

_HEADERS_BYTES = 14 + 20 + 8
"""Ethernet's, IP's and UDP's."""
Load = Annotated[float, Field(gt=0, lt=1)]


class RandomArrivalsConfig(QueueingConfig):
    """Packets that come at random to one link."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing of the link."
    )
    loads: Annotated[list[Load], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [0.2, 0.4, 0.6, 0.8],
        description="Loads of the link, as fractions of its rate; each is a phase.",
    )
    frames: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=8000, description="Packets of each load. More narrow the error of the mean wait."
    )
    payload: Annotated[SizeBytes, Field(ge=18)] = Field(default=1024, description="Payload of each packet.")
    batches: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=20, description="Stretches of packets whose means give the error of the mean."
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as drawn arrivals take."""
        return PhaseLengths(until="all packets have arrived")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if len(fabric.computes) < 2:
            yield f"topology: {len(fabric.computes)} compute nodes; this needs 2"
        if self.payload + _HEADERS_BYTES > fabric.frame_bytes:
            most = fabric.frame_bytes - _HEADERS_BYTES
            yield f"payload: {self.payload} B does not fit a frame of {fabric.frame_bytes} B; make it {most} B or less"
        if self.frames < self.batches:
            yield f"batches: {self.batches} exceed the {self.frames} frames; lower it"


def run_random_arrivals(session: Session, config: RandomArrivalsConfig) -> dict[str, Any]:
    """Play every load and return the summary."""
    session.use_queueing(config.queueing)
    source, sink = session.live.fabric.computes[:2]
    wire_s = frame_time_s(session.live.fabric, config.payload)
    found: dict[str, dict[str, float]] = {}
    with closing(RandomArrivalsJob(session.stage, source, sink, config.payload)) as job:
        job.start()
        for number, load in enumerate(config.loads):
            job.burst = Burst(config.frames, wire_s / load, (config.seed, number))
            session.run_phase(phase_name(load), f"at a load of {load:.0%}", [job], 0.0)
            found[phase_name(load)] = waits(job.sent_ns / 1e9, job.came_ns / 1e9, load, wire_s, config)
    return summarize(config, found)


def phase_name(load: float) -> str:
    """Return the name of a load's phase."""
    return f"load_{exact(load)}".replace(".", "p")


def frame_time_s(fabric: Fabric, payload_bytes: int) -> float:
    """Return what a packet takes on a NIC's link."""
    return (payload_bytes + _HEADERS_BYTES) * 8 / fabric.nic_rate_bps


Seconds = npt.NDArray[np.float64]


def waits(
    sent_s: Seconds, came_s: Seconds, load: float, wire_s: float, config: RandomArrivalsConfig
) -> dict[str, float]:
    """Return the mean wait of packets, its standard error, what theory says of such arrivals (M/D/1) and of these very
    ones. ``sent_s`` and ``came_s``: of each packet, in the order of sending, shape (n,).

    What a packet takes that does not wait is the median of what each took beyond the wait that those before it explain.
    ``most_off_s`` is how far a single packet was from that.
    """
    found = {"theory_wait_s": load / (2 * (1 - load)) * wire_s, "lost_packets": float(config.frames - len(sent_s))}
    if len(sent_s) < config.batches:
        return found
    explained_s = lindley(sent_s, wire_s)
    beyond_s = came_s - sent_s - explained_s
    unhindered_s = float(np.median(beyond_s))
    waited_s = came_s - sent_s - unhindered_s
    means = [float(batch.mean()) for batch in np.array_split(waited_s, config.batches)]
    return found | {
        "mean_wait_s": float(waited_s.mean()),
        "error_s": float(np.std(means, ddof=1)) / len(means) ** 0.5,
        "explained_wait_s": float(explained_s.mean()),
        "most_off_s": float(np.abs(beyond_s - unhindered_s).max()),
        "longest_wait_s": float(waited_s.max()),
    }


def lindley(sent_s: Seconds, wire_s: float) -> Seconds:
    """Return how long each packet has to wait for those before it: W' = max(0, W + S - gap) (Lindley, 1952)."""
    found = np.zeros(len(sent_s))
    for number, gap_s in enumerate(np.diff(sent_s), start=1):
        found[number] = max(0.0, found[number - 1] + wire_s - gap_s)
    return found


def summarize(config: RandomArrivalsConfig, found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    waited = {load: found[phase_name(load)] for load in config.loads if "mean_wait_s" in found[phase_name(load)]}
    off = {load: one["mean_wait_s"] / one["theory_wait_s"] - 1 for load, one in waited.items()}
    worst = max(off, key=lambda load: abs(off[load]), default=None)
    answer = "No packet came."
    if worst is not None:
        answer = f"Mean waits are within {abs(off[worst]):.1%} of theory, the farthest off at a load of {worst:.0%}."
    return {
        "title": "Random arrivals: how long packets wait at a link",
        "answer": answer,
        "metrics": [metric for phase, values in found.items() for metric in metrics_of(phase, "", values)],
        "tables": [_table(waited, off)],
    }


def _table(waited: Mapping[float, Mapping[str, float]], off: Mapping[float, float]) -> SummaryTable:
    waits = ("mean_wait_s", "error_s", "theory_wait_s", "explained_wait_s", "most_off_s", "longest_wait_s")
    rows: list[Row] = []
    for load, one in waited.items():
        cells: Row = [measured(one, name, ".3f us") for name in waits]
        cells.insert(3, quantity(off[load], "+.1%"))
        rows.append([quantity(load, ".0%"), *cells, measured(one, "lost_packets")])
    return SummaryTable(
        title="Waits",
        columns=[
            *("load", "mean wait", "standard error", "M/D/1", "off", "these arrivals", "a packet off", "longest"),
            "lost",
        ],
        rows=rows,
        note="errors: of means of batches; these arrivals: Lindley's recursion of when they were sent",
    )
