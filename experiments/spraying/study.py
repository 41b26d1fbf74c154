"""What does it buy whom to send the packets of one flow on all paths, beside ECMP and one path?

Messages between hosts and steps of allreduces, each alone on the fabric, in each way of spreading them, with all links
and with uplinks of a leaf failed, where queues lose nothing and where they drop. Sprayed packets overtake each other:
what TCP takes for lost then is sent twice.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from experiments.spraying.config import Load, SprayingConfig, Spreading
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.model.patterns import permutation
from fabric.percentiles import nearest_ranks
from fabric.records.figure_forms import Bars, Looks, Number
from fabric.records.summary_table import SummaryTable
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.job_metrics import sent_by_port
from runs.jobs import started
from runs.session import Session
from runs.study import Found, Played, Study
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.job import CollectiveJob
from traffic.collectives.nccl import NcclJob
from traffic.flows.sized_flows import SizedFlow, SizedFlowsJob
from traffic.job import Job, Records
from traffic.metrics import ideal_algbw, payload_fraction
from traffic.stepped_job import FiniteSteps

TIME, BOUND = "time_s", "of_bound_fraction"
_LEAST_S = 0.001


def links_words(failed: int) -> str:
    """Return which links there are, in words."""
    return f"{failed} uplink{'s' * (failed > 1)} failed" if failed else "all links"


@dataclass(frozen=True)
class Spread(
    Case,
    name="{queueing}_{spreading}_{failed}_{load}",
    title="{load}, {spreading}, {failed}, {queueing}",
):
    """A load, how it is spread, with how many uplinks less, in which queues."""

    queueing: Queueing = axis("queueings")
    spreading: Spreading = axis("spreadings", name=lambda one: one.value)
    failed: int = axis("failed_uplinks", name=lambda count: f"less_{count}", words=links_words)
    load: Load = axis("loads", name=lambda one: one.value)


AnyFound = Found[Spread, SprayingConfig]

# What is played -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """What one host sends another."""

    source: NodeId
    sink: NodeId
    size_bytes: int


def messages_of(config: SprayingConfig, fabric: Fabric, load: Load) -> list[Message]:
    """Return the messages of a load that is no collective; a permutation is one of the config's seed."""
    hosts, size = fabric.computes, config.message
    if load is Load.INCAST:
        return [Message(host, hosts[-1], size) for host in hosts[: config.senders]]
    if load is Load.ALL_TO_ALL:
        part = -(-size // (len(hosts) - 1))
        return [Message(host, other, part) for host in hosts for other in hosts if host != other]
    nics = [fabric.nics_of[host][0] for host in hosts]
    pairs = permutation(fabric, nics, random.Random(f"{config.seed}"))
    return [Message(source.node, sink.node, size) for source, sink in pairs]


def flows_of(messages: Sequence[Message], each: int, start_s: float) -> list[SizedFlow]:
    """Return the connections of messages, ``each`` of every message, those of a message one after the other."""
    flows = []
    for message in messages:
        parts = [len(part) for part in np.array_split(range(message.size_bytes), each)] if each > 1 else []
        sizes = parts or [message.size_bytes]
        flows += [SizedFlow(message.source, message.sink, size, start_s) for size in sizes if size]
    return flows


def _play(session: Session, config: SprayingConfig, case: Spread) -> dict[str, float]:
    """Play a case and return the least time that NICs allow it."""
    fabric = session.live.fabric
    session.use_routing(config.routing_of(case.spreading), case.spreading.value)
    session.use_reordering(config.transport.reordering if case.spreading.tolerates_reordering else None)
    controls = dict.fromkeys(DATA_LEVELS, config.control_of(case.queueing))
    session.use_congestion_control(controls, config.dcqcn, config.queues.marking)
    session.use_queueing(case.queueing)
    schedule = _failing(fabric, case.failed)
    settle_s = config.settle if case.failed else _LEAST_S
    if not case.load.is_collective:
        messages = messages_of(config, fabric, case.load)
        flows = flows_of(messages, case.spreading.flows, settle_s)
        with closing(SizedFlowsJob(session.stage, flows, _nothing, config.patience, ServiceLevel.OTHER)) as job:
            job.start()
            session.run_phase(case.name, case.title, [job], settle_s, schedule)
        return {"bound_s": bound_s(fabric, messages)}
    collective = _collective(session, config, case)
    with started(session, [collective]):
        session.warm_up(collective)
        steps: list[Job] = [FiniteSteps(collective, lambda phase: _later(collective, phase, settle_s))]
        session.run_phase(case.name, case.title, steps, 0.0, schedule)
    return {"bound_s": step_bound_s(config, case.load, fabric)}


def _nothing(number: int, at_source: bool) -> Sequence[int]:
    """No message follows another."""
    return ()


def _later(job: CollectiveJob, phase: str, settle_s: float) -> Records:
    time.sleep(settle_s)
    return job.run_steps(1, phase)


def _collective(session: Session, config: SprayingConfig, case: Spread) -> CollectiveJob:
    """Return the allreduce of a case over all hosts, with as many connections from rank to rank as a message has."""
    ranks = session.live.fabric.computes
    if case.load is Load.HFREDUCE:
        return HFReduceJob(session.stage, config.hfreduce, ranks)
    nccl = config.nccl.model_copy(update={"queue_pairs": case.spreading.flows})
    return NcclJob(session.stage, nccl, ranks)


def _failing(fabric: Fabric, count: int) -> FailureSchedule:
    """Return that so many uplinks of the first leaf fail at once, for good."""
    uplinks = fabric.uplinks_of(fabric.with_role(Role.LEAF)[0])[:count]
    return FailureSchedule.of([Failure(fabric.link_at[port], 0.0, math.inf) for port in uplinks])


def bound_s(fabric: Fabric, messages: Sequence[Message]) -> float:
    """Return the time that the busiest NIC takes for messages, at the rate of payload."""
    sent: dict[NodeId, int] = {}
    received: dict[NodeId, int] = {}
    for one in messages:
        sent[one.source] = sent.get(one.source, 0) + one.size_bytes
        received[one.sink] = received.get(one.sink, 0) + one.size_bytes
    most = max(*sent.values(), *received.values())
    return most * 8 / (fabric.nic_rate_bps * payload_fraction(fabric.mtu_bytes))


def step_bound_s(config: SprayingConfig, load: Load, fabric: Fabric) -> float:
    """Return the time that NICs take for a step of an allreduce: each rank sends almost twice its data in a ring, twice
    in HFReduce's trees."""
    ranks = len(fabric.computes)
    size, sent = (config.nccl.size, 2 * (ranks - 1) / ranks) if load is Load.RING else (config.hfreduce.size, 2.0)
    return size / ideal_algbw(fabric.nic_rate_bps, sent) / payload_fraction(fabric.mtu_bytes)


# What is measured -----------------------------------------------------------------------------------------------------


def _measure(played: Played[Spread, SprayingConfig]) -> list[Metric]:
    case, fabric = played.case, played.fabric
    rows = played.rows("steps" if case.load.is_collective else "operations")
    took = (rows["ended_s"] - rows["started_s"]).to_numpy()
    values = {
        TIME: float(rows["ended_s"].max() - rows["started_s"].min()),
        "p50_s": nearest_ranks(took, 50)[0],
        **played.packets("sent_packets", "drops_packets", "retransmissions", "sent_twice", "overtaking", "timeouts"),
    }
    values[BOUND] = played.counted["bound_s"] / values[TIME]
    if not case.failed:
        values["uplinks_most_ratio"] = _unevenness(played, fabric)
    return metrics_of(case.name, "", values)


def _unevenness(played: Played[Spread, SprayingConfig], fabric: Fabric) -> float:
    """Return what the busiest uplink of a leaf carried over the mean of all, the most of any leaf; NaN: none sent."""
    ports = played.session.table("ports")
    phase = played.phase
    sent = sent_by_port(ports[ports["at_s"].between(phase.started_s, phase.ended_s)])
    found = []
    for leaf in fabric.with_role(Role.LEAF):
        carried = [sent.get(str(port), 0.0) for port in fabric.uplinks_of(leaf)]
        if sum(carried):
            found.append(max(carried) * len(carried) / sum(carried))
    return max(found, default=math.nan)


MEASURES = (
    Measure(TIME, "time from the first message's start to the last one's end, or of the allreduce", Better.LESS),
    Measure("p50_s", "time of a connection's part of a message, or of the allreduce, median", Better.LESS),
    Measure(BOUND, "the time that the busiest NIC needs, over the time it took", Better.MORE),
    Measure("uplinks_most_ratio", "bytes of the busiest uplink over the mean of its leaf, the most of any leaf"),
)

# What is said ---------------------------------------------------------------------------------------------------------


def _answer(found: AnyFound) -> str:
    told = []
    for load in found.config.loads:
        whole = [one for one in found.outcomes if one.case.load is load and not one.case.failed]
        here = [one for one in whole if one.case.queueing is found.config.queueings[0]]
        if not here:
            continue
        best, worst = (choose(here, key=lambda one: one[BOUND]) for choose in (max, min))
        words = (f"{one.case.format('{spreading}')} {one[BOUND]:.0%}" for one in (best, worst))
        told.append(f"{here[0].case.format('{load}')}: {' to '.join(words)}")
    if not told:
        return "Nothing was played with all links."
    return f"Of what NICs allow, with all links, {found.outcomes[0].case.format('{queueing}')}: {'; '.join(told)}."


def _tables(found: AnyFound) -> Iterator[SummaryTable]:
    yield case_table(
        "How long messages take",
        found.outcomes,
        (
            Column("in", "queueing", is_once=True),
            Column("load", "load"),
            Column("spread", "spreading"),
            Column("links", "failed"),
            Column("time", TIME),
            Column("of NICs", BOUND, ".0%"),
            Column("median", "p50_s"),
            Column("busiest uplink", "uplinks_most_ratio", ".2f x"),
            Column("overtaking", "overtaking"),
            Column("sent again", "retransmissions"),
            Column("twice", "sent_twice"),
            Column("drops", "drops_packets"),
            Column("timeouts", "timeouts"),
        ),
        "of NICs: the time that the busiest NIC needs over the time taken; busiest uplink: over the mean of its leaf; "
        "overtaking: segments that came before an earlier one; twice: of those sent again, what had arrived",
    )


STUDY = Study(
    title=lambda found: f"Messages spread over the paths of {found.fabric.name}",
    cases=Spread.grid,
    play=_play,
    measure=_measure,
    measures=MEASURES,
    answer=_answer,
    tables=_tables,
    figures=(
        Bars(
            "spreadings",
            "The time that the busiest NIC needs over the time that messages and allreduces take, by how they are "
            "spread over paths.",
            "How near messages come to what NICs allow",
            numbers=(Number(BOUND, "of what NICs allow"),),
            x="{load}",
            colour="{spreading}",
            panels="{queueing}, {failed}",
            labels=("", "of what NICs allow"),
            looks=Looks(11.0, 3.2, percent_y=True, legend=5),
        ),
    ),
)
