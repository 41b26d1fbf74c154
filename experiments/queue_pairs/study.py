"""How evenly does ECMP spread queue pairs, by how many a pair of hosts has, and by how many source ports there are?

A queue pair's UDP source port decides its path. Hosts write messages to the other leaf, each divided among so many
queue pairs: their links are bins, and the time of all is that of the fullest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from controllers.planning.balls_in_bins import used_of_uplinks
from controllers.planning.ecmp import FiveTuple
from controllers.planning.paths import planned_path
from experiments.queue_pairs.config import QueuePairsConfig, label_words
from fabric.measures import Better, Measure
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Port
from fabric.records.figure_forms import Lines, Looks, Number
from runs.case_tables import Answer, CaseTable
from runs.cases import Case, axis, name_of
from runs.session import Session
from runs.study import Played, Study, medians, play_case
from traffic.flows.messages import bound_s, flows_of
from traffic.flows.sized_flows import SizedFlowsJob

_START_S = 0.001
_MEDIANS = medians("{count} {labels}")
_USED = Measure("of_bound_fraction", "the time that the busiest NIC needs, over the time of all messages", Better.MORE)
_BY_PORTS = Measure("of_bound_by_ports_fraction", "the same, by the known ports of the queue pairs", Better.MORE)
_FULLEST = Measure("fullest_ratio", "queue pairs of the fullest uplink over their mean", Better.LESS)


@dataclass(frozen=True)
class Spread(Case, name="qp{count}_labels_{labels}_{draw}", title="{count} queue pairs, {labels}, draw {draw}"):
    """How many queue pairs a pair of hosts has, with source ports of how many labels, and which draw it is."""

    count: int = axis("queue_pairs")
    labels: int | None = axis("flow_labels", name_of, label_words, sets="transport.queue_pairs.flow_labels")
    draw: int = axis("draws")


def _play(session: Session, config: QueuePairsConfig, case: Spread) -> dict[str, float]:
    own = case.in_config(config)
    session.use_routing(own.routing_of(case.draw))
    session.use_queue_pairs(own.transport.queue_pairs)
    session.use_queueing(own.queueing)
    flows = flows_of(own.messages(session.live.fabric, case.draw), case.count, _START_S)
    job = SizedFlowsJob(session.stage, flows, own.patience, ServiceLevel.OTHER)
    play_case(session, case, [job], _START_S)
    return {"fullest": max(_loads(session, job).values())}


def _loads(session: Session, job: SizedFlowsJob) -> Counter[Port]:
    """Return how many queue pairs each leaf's uplink has, by their ports."""
    fabric, plan, found = session.live.fabric, session.live.plan, Counter[Port]()
    for number, ends in enumerate(job.nics):
        key = FiveTuple(ends[0].ip, ends[1].ip, *job.ports[number])
        found.update(port for port in planned_path(plan, fabric, *ends, key) if fabric.goes_up(port))
    return found


def _measure(played: Played[Spread, QueuePairsConfig]) -> dict[str, float]:
    rows, config, fabric = played.rows("operations"), played.config, played.fabric
    took_s = float(rows["ended_s"].max() - rows["started_s"].min())
    least_s = bound_s(fabric, config.messages(fabric, played.case.draw))
    by_ports = min(1.0, played.case.count / played.counted["fullest"])
    ratio = {_BY_PORTS.name: by_ports, _FULLEST.name: played.counted["fullest"] / played.case.count}
    return {"time_s": took_s, _USED.name: least_s / took_s, **ratio, **played.packets()}


STUDY = Study[Spread, QueuePairsConfig](
    title=lambda found: f"Queue pairs over the paths of {found.fabric.name}",
    cases=(Spread,),
    play=_play,
    measure=_measure,
    measures=(Measure("time_s", "time until all messages have arrived", Better.LESS), _USED, _BY_PORTS, _FULLEST),
    theory=lambda found, one: {_USED.name: used_of_uplinks(found.fabric, one.case.count)},
    answer=Answer(
        "Of their NICs, pairs of hosts get {}.",
        each="{of_bound_fraction|.0%} by {count} queue pairs (theory: {of_bound_in_theory_fraction|.0%})",
        rows=lambda found: [one for one in _MEDIANS(found) if one.case.labels == found.config.flow_labels[0]],
    ),
    tables=(
        CaseTable(
            "What pairs of hosts get of their NICs",
            "source ports {labels|once}, queue pairs {count}, of NICs {of_bound_fraction|.1%}, "
            "balls in bins {of_bound_in_theory_fraction|.1%}, by known ports {of_bound_by_ports_fraction|.1%}, "
            "fullest uplink {fullest_ratio|.2f x}, time {time_s}, drops {drops_packets}",
            "medians over draws; balls in bins: the mean if each queue pair takes any uplink alike",
            rows=lambda found: sorted(_MEDIANS(found), key=lambda one: found.config.flow_labels.index(one.case.labels)),
        ),
    ),
    figures=(
        Lines(
            "queue_pairs",
            "What pairs of hosts get of their NICs by ECMP, by their queue pairs and how many source ports there are.",
            "ECMP of queue pairs",
            numbers=(
                Number("of_bound_fraction", "of what NICs allow"),
                Number("of_bound_in_theory_fraction", "balls in bins, mean"),
            ),
            x="{count}",
            line="{labels}, draw {draw}",
            colour="{labels}",
            dash="draw {draw}",
            labels=("number of queue pairs of a pair of hosts", ""),
            looks=Looks(9.0, 3.0, percent_y=True, most_y=1.05),
        ),
    ),
)
