"""What do losses cost RDMA, by how queue pairs recover from them?

A lost frame costs go-back-N what is under way, a round trip, and selective repeat itself. One that is lost again
costs either a timeout, as does with go-back-N a lost NAK, which is sent once. PFC spares the losses of full queues, no
others.
"""

from __future__ import annotations

from controllers.planning.paths import nics_for, planned_path
from experiments.lossy_rdma.cases import AnyCase, IntoOne, OverLoss, over_loss
from experiments.lossy_rdma.config import LossyRdmaConfig, Way
from fabric.measures import Better, Measure
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Bars, Lines, Looks, Number
from runs.case_tables import Answer, CaseTable
from runs.measures import PACKETS, QUEUE_PAIRS
from runs.session import Session
from runs.study import Found, Outcome, Played, Question, Study, play_case
from traffic.flows.messages import bound_s, flows_of
from traffic.flows.sized_flows import SizedFlowsJob

_START_S = 0.001
_USED = Measure("of_bound_fraction", "the time that the busiest NIC needs, over the time of all messages", Better.MORE)
_COUNTS = [one.name for one in (*PACKETS, *QUEUE_PAIRS)]
_SAID = (
    "of NICs {of_bound_fraction|.1%}, in theory {of_bound_in_theory_fraction|.1%}, time {time_s}, dropped "
    "{drops_packets}, sent again {retransmissions}, twice {sent_twice}, NAKs {naks}, timeouts {timeouts}"
)
_NUMBERS = (Number("of_bound_fraction", "of what NICs allow"), Number("of_bound_in_theory_fraction", "in theory"))


def _play(session: Session, config: LossyRdmaConfig, case: AnyCase) -> None:
    session.use_queue_pairs(config.queue_pairs_of(case.way))
    session.use_queueing(case.way.queueing)
    flows = flows_of(case.messages(session.live.fabric, config), 1, _START_S)
    job = SizedFlowsJob(session.stage, flows, config.patience, ServiceLevel.OTHER)
    play_case(session, case, [job], _START_S, case.failing(session.live.fabric))


def _measure(played: Played[AnyCase, LossyRdmaConfig]) -> dict[str, float]:
    rows = played.rows("operations")
    took_s = float(rows["ended_s"].max() - rows["started_s"].min())
    least_s = bound_s(played.fabric, played.case.messages(played.fabric, played.config))
    return {"time_s": took_s, _USED.name: least_s / took_s, **played.packets(*_COUNTS)}


def _in_theory(found: Found[AnyCase, LossyRdmaConfig], one: Outcome[AnyCase]) -> dict[str, float]:
    fabric, config, case = found.fabric, found.config, one.case
    if isinstance(case, IntoOne):
        return {_USED.name: 1.0} if case.way is Way.PFC else {}
    path = planned_path(found.session.live.plan, fabric, *nics_for(fabric, fabric.computes[0], fabric.computes[-1]))
    links, frame_s = [fabric.link_at[port] for port in path], fabric.frame_bytes * 8 / fabric.nic_rate_bps
    trip_s = sum(2e-9 * link.delay_ns + fabric.frame_bytes * 8 / link.rate_bps for link in links)
    return {_USED.name: over_loss(config, case.way, case.loss, frame_s, trip_s)}


STUDY = Study[AnyCase, LossyRdmaConfig](
    title=lambda found: f"RDMA with losses on {found.fabric.name}",
    kinds=OverLoss,
    cases=(OverLoss, IntoOne),
    play=_play,
    measure=_measure,
    measures=(Measure("time_s", "time until all messages have arrived", Better.LESS), _USED),
    theory=_in_theory,
    answer=Answer(
        "Of its NIC, a write gets {}.",
        each="{of_bound_fraction|.0%} with {way} where {loss} of frames are lost",
        rows=lambda found: [one for one in found.outcomes if one.case.loss == found.config.losses[-1]],
    ),
    tables=(CaseTable("A write over a lossy link", "lost {loss|once}, recovery {way}, " + _SAID),),
    figures=(
        Lines(
            "losses",
            "What a write gets of its NIC over a link that loses frames, by how its queue pair recovers.",
            "A write over a lossy link",
            numbers=_NUMBERS,
            x="{loss}",
            line="{way}",
            labels=("frames lost each way (fraction)", ""),
            looks=Looks(9.0, 3.0, percent_y=True, most_y=1.05),
        ),
    ),
    further=(
        Question(
            kinds=IntoOne,
            measure=_measure,
            theory=_in_theory,
            answer=Answer(
                "An incast gets {}.",
                each="{of_bound_fraction|.0%} with {way} and {senders} senders",
                rows=lambda found: [one for one in found.outcomes if one.case.senders == found.config.senders[-1]],
            ),
            tables=(CaseTable("An incast", "senders {senders|once}, recovery {way}, " + _SAID),),
            figures=(
                Bars(
                    "incast",
                    "What hosts that write to one at once get of its NIC, by how queue pairs recover.",
                    "An incast",
                    numbers=_NUMBERS[:1],
                    x="{senders} senders",
                    colour="{way}",
                    labels=("", "of what the receiver's NIC allows"),
                    looks=Looks(8.0, 3.2, percent_y=True),
                ),
            ),
        ),
    ),
)
