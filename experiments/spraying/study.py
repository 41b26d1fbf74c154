"""What does it buy whom to send the packets of one flow on all paths, beside ECMP and one path?

Each load is alone on the fabric. Sprayed packets overtake each other: what TCP takes for lost then is sent twice."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.spraying.config import Load, SprayingConfig, Spreading, links_words
from fabric.measures import Better, Measure
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.percentiles import nearest_ranks
from fabric.records.figure_forms import Bars, Looks, Number
from runs.case_tables import Answer, CaseTable
from runs.cases import Case, axis
from runs.job_metrics import UNEVEN, unevenness
from runs.measures import PACKETS
from runs.session import Session
from runs.study import Played, Study, play_case, play_steps
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.nccl import NcclJob
from traffic.flows.messages import flows_of
from traffic.flows.sized_flows import SizedFlowsJob


@dataclass(frozen=True)
class Spread(Case, name="{queueing}_{spreading}_{failed}_{load}", title="{load}, {spreading}, {failed}, {queueing}"):
    """A load, how it is spread, with how many uplinks less, in which queues."""

    queueing: Queueing = axis("queueings")
    spreading: Spreading = axis("spreadings", sets=lambda one: {"nccl.queue_pairs": one.flows})
    failed: int = axis("failed_uplinks", "less_{}".format, links_words)
    load: Load = axis("loads")


def _play(session: Session, config: SprayingConfig, case: Spread) -> dict[str, float]:
    own, ranks = case.in_config(config), session.live.fabric.computes
    transport = case.spreading.transport(own.transport)
    session.use_routing(own.routing_of(case.spreading), case.spreading.value)
    session.use_transport(transport)
    session.use_congestion_control(own.controls_in(case.queueing), own.dcqcn, own.marking_of(case.spreading))
    session.use_queueing(case.queueing)
    stage, settle_s, failed = session.stage, own.settle_s(case.failed), own.failing(session.live.fabric, case.failed)
    if case.load.is_collective:
        step = NcclJob(stage, own.nccl, ranks) if case.load is Load.RING else HFReduceJob(stage, own.hfreduce, ranks)
        play_steps(session, case.name, case.title, step, after_s=settle_s, schedule=failed)
        return {}
    flows = flows_of(own.messages(stage.fabric, case.load), case.spreading.flows, settle_s)
    job = SizedFlowsJob(stage, flows, own.patience, ServiceLevel.OTHER)
    play_case(session, case, [job], settle_s, failed)
    return job.said if transport.kind == "messages" else {}


def _measure(played: Played[Spread, SprayingConfig]) -> dict[str, float]:
    case, whole_s = played.case, (played.phase.started_s, played.phase.ended_s)
    rows = played.rows("steps" if case.load.is_collective else "operations")
    took_s = float(rows["ended_s"].max() - rows["started_s"].min())
    return {
        "time_s": took_s,
        "p50_s": nearest_ranks((rows["ended_s"] - rows["started_s"]).to_numpy(), 50)[0],
        **(played.packets(*(one.name for one in PACKETS)) | dict(played.counted)),
        "of_bound_fraction": played.config.least_s(played.fabric, case.load) / took_s,
        **({} if case.failed else {UNEVEN.name: unevenness(played.fabric, played.session.table("ports"), whole_s)}),
    }


STUDY = Study[Spread, SprayingConfig](
    title=lambda found: f"Messages spread over the paths of {found.fabric.name}",
    cases=(Spread,),
    play=_play,
    measure=_measure,
    measures=(
        Measure("time_s", "time from the first message's start to the last one's end; of the allreduce", Better.LESS),
        Measure("p50_s", "time of a connection's part of a message, or of the allreduce, median", Better.LESS),
        Measure("of_bound_fraction", "the time that the busiest NIC needs, over the time it took", Better.MORE),
        UNEVEN,
    ),
    answer=Answer(
        lambda found: f"Of what NICs allow, with all links, {found.outcomes[0].case.format('{queueing}')}: {{}}.",
        each="{spreading} {of_bound_fraction|.0%}",
        by="{load}",
        ends=lambda one: -one["of_bound_fraction"],
        between=" to ",
        rows=lambda found: [one for one in found.outcomes if found.config.answers(one.case.queueing, one.case.failed)],
    ),
    tables=(
        CaseTable(
            "How long messages take",
            "in {queueing|once}, load {load}, spread {spreading}, links {failed}, time {time_s}, of NICs "
            "{of_bound_fraction|.0%}, median {p50_s}, busiest uplink {uplinks_most_ratio|.2f x}, "
            "overtaking {overtaking}, sent again {retransmissions}, twice {sent_twice}, drops {drops_packets}, "
            "trimmed {naks}, timeouts {timeouts}",
            "of NICs: the time that the busiest NIC needs over the time taken; busiest uplink: over the mean of its "
            "leaf; overtaking: segments that came before an earlier one; twice: of those sent again, what had arrived",
        ),
    ),
    figures=(
        Bars(
            "spreadings",
            "What the busiest NIC needs over the time that messages and allreduces take, by how they are spread.",
            "How near messages come to what NICs allow",
            numbers=(Number("of_bound_fraction", "of what NICs allow"),),
            x="{load}",
            colour="{spreading}",
            panels="{queueing}, {failed}",
            labels=("", "of what NICs allow"),
            looks=Looks(13.0, 3.2, percent_y=True, legend=6),
        ),
    ),
)
