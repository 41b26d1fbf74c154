"""What does it buy whom to send the packets of one flow on all paths, beside ECMP and one path?

Messages between hosts and steps of allreduces, each alone on the fabric, in each way of spreading them, with all links
and with uplinks of a leaf failed, where queues lose nothing and where they drop. Sprayed packets overtake each other:
what TCP takes for lost then is sent twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from experiments.spraying.config import Load, SprayingConfig, Spreading
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.measures import Better, Measure
from fabric.model.identity import Role
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.percentiles import nearest_ranks
from fabric.records.figure_forms import Bars, Looks, Number
from runs.case_tables import CaseTable, Column, say
from runs.cases import Case, axis
from runs.job_metrics import UNEVEN, unevenness
from runs.jobs import started
from runs.measures import PACKETS
from runs.session import Session
from runs.study import Found, Played, Study
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.job import CollectiveJob
from traffic.collectives.nccl import NcclJob
from traffic.flows.messages import Message, all_to_all, bound_s, flows_of, incast, permuted
from traffic.flows.sized_flows import SizedFlowsJob
from traffic.job import Records
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
    spreading: Spreading = axis(
        "spreadings", name=lambda one: one.value, sets=lambda one: {"nccl.queue_pairs": one.flows}
    )
    failed: int = axis("failed_uplinks", name=lambda count: f"less_{count}", words=links_words)
    load: Load = axis("loads", name=lambda one: one.value)


def _play(session: Session, config: SprayingConfig, case: Spread) -> dict[str, float]:
    """Play a case and return the least time that NICs allow it."""
    session.use_routing(config.routing_of(case.spreading), case.spreading.value)
    session.use_reordering(config.transport.reordering if case.spreading.tolerates_reordering else None)
    controls = dict.fromkeys(DATA_LEVELS, config.control_of(case.queueing))
    session.use_congestion_control(controls, config.dcqcn, config.queues.marking)
    session.use_queueing(case.queueing)
    play = _play_allreduce if case.load.is_collective else _play_messages
    return {"bound_s": play(session, case.in_config(config), case, config.settle if case.failed else _LEAST_S)}


def _play_messages(session: Session, config: SprayingConfig, case: Spread, settle_s: float) -> float:
    messages = messages_of(config, session.live.fabric, case.load)
    flows = flows_of(messages, case.spreading.flows, settle_s)
    with closing(SizedFlowsJob(session.stage, flows, _nothing, config.patience, ServiceLevel.OTHER)) as job:
        job.start()
        session.run_phase(case.name, case.title, [job], settle_s, _failing(session.live.fabric, case.failed))
    return bound_s(session.live.fabric, messages)


def messages_of(config: SprayingConfig, fabric: Fabric, load: Load) -> list[Message]:
    """Return the messages of a load that is no collective; a permutation is one of the config's seed."""
    if load is Load.INCAST:
        return incast(fabric, config.senders, config.message)
    if load is Load.ALL_TO_ALL:
        return all_to_all(fabric, config.message)
    return permuted(fabric, config.message, config.seed)


def _nothing(number: int, at_source: bool) -> Sequence[int]:
    """No message follows another."""
    return ()


def _play_allreduce(session: Session, config: SprayingConfig, case: Spread, settle_s: float) -> float:
    """Play a step over all hosts; NCCL's has as many connections from rank to rank as a message has."""
    fabric, ranks = session.live.fabric, session.live.fabric.computes
    job: CollectiveJob = (
        HFReduceJob(session.stage, config.hfreduce, ranks)
        if case.load is Load.HFREDUCE
        else NcclJob(session.stage, config.nccl, ranks)
    )

    def later(phase: str) -> Records:
        time.sleep(settle_s)
        return job.run_steps(1, phase)

    with started(session, [job]):
        session.warm_up(job)
        session.run_phase(case.name, case.title, [FiniteSteps(job, later)], 0.0, _failing(fabric, case.failed))
    return step_bound_s(config, case.load, fabric)


def _failing(fabric: Fabric, count: int) -> FailureSchedule:
    """Return that so many uplinks of the first leaf fail at once, for good."""
    uplinks = fabric.uplinks_of(fabric.with_role(Role.LEAF)[0])[:count]
    return FailureSchedule.of([Failure(fabric.link_at[port], 0.0, math.inf) for port in uplinks])


def step_bound_s(config: SprayingConfig, load: Load, fabric: Fabric) -> float:
    """Return the time that NICs take for a step of an allreduce: each rank sends almost twice its data in a ring, twice
    in HFReduce's trees."""
    ranks = len(fabric.computes)
    size, sent = (config.nccl.size, 2 * (ranks - 1) / ranks) if load is Load.RING else (config.hfreduce.size, 2.0)
    return size / ideal_algbw(fabric.nic_rate_bps, sent) / payload_fraction(fabric.mtu_bytes)


def _measure(played: Played[Spread, SprayingConfig]) -> dict[str, float]:
    case, phase = played.case, played.phase
    rows = played.rows("steps" if case.load.is_collective else "operations")
    took_s = float(rows["ended_s"].max() - rows["started_s"].min())
    values = {
        TIME: took_s,
        "p50_s": nearest_ranks((rows["ended_s"] - rows["started_s"]).to_numpy(), 50)[0],
        **played.packets(*(one.name for one in PACKETS)),
        BOUND: played.counted["bound_s"] / took_s,
    }
    if not case.failed:
        in_time = (phase.started_s, phase.ended_s)
        values[UNEVEN.name] = unevenness(played.fabric, played.session.table("ports"), in_time)
    return values


def _answer(found: Found[Spread, SprayingConfig]) -> str:
    told = []
    for load in found.config.loads:
        whole = [one for one in found.outcomes if one.case.load is load and not one.case.failed]
        here = [one for one in whole if one.case.queueing is found.config.queueings[0]]
        if here:
            ends = [choose(here, key=lambda one: one[BOUND]) for choose in (max, min)]
            words = " to ".join(say(one, f"{{spreading}} {{{BOUND}|.0%}}") for one in ends)
            told.append(say(here[0], f"{{load}}: {words}"))
    if not told:
        return "Nothing was played with all links."
    return f"Of what NICs allow, with all links, {found.outcomes[0].case.format('{queueing}')}: {'; '.join(told)}."


STUDY = Study[Spread, SprayingConfig](
    title=lambda found: f"Messages spread over the paths of {found.fabric.name}",
    cases=Spread.grid,
    play=_play,
    measure=_measure,
    measures=(
        Measure(TIME, "time from the first message's start to the last one's end, or of the allreduce", Better.LESS),
        Measure("p50_s", "time of a connection's part of a message, or of the allreduce, median", Better.LESS),
        Measure(BOUND, "the time that the busiest NIC needs, over the time it took", Better.MORE),
        UNEVEN,
    ),
    answer=_answer,
    tables=(
        CaseTable(
            "How long messages take",
            (
                Column("in", "queueing", is_once=True),
                Column("load", "load"),
                Column("spread", "spreading"),
                Column("links", "failed"),
                Column("time", TIME),
                Column("of NICs", BOUND, ".0%"),
                Column("median", "p50_s"),
                Column("busiest uplink", UNEVEN.name, ".2f x"),
                Column("overtaking", "overtaking"),
                Column("sent again", "retransmissions"),
                Column("twice", "sent_twice"),
                Column("drops", "drops_packets"),
                Column("timeouts", "timeouts"),
            ),
            "of NICs: the time that the busiest NIC needs over the time taken; busiest uplink: over the mean of its "
            "leaf; overtaking: segments that came before an earlier one; twice: of those sent again, what had arrived",
        ),
    ),
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
