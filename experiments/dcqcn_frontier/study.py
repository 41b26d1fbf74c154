"""Is there a set of DCQCN's parameters that suits HFReduce and storage at once, and do lanes without it do better?

HFReduce and storage play together on a lossless fabric, over the same compute nodes, in a short phase for each point:
DCQCN with the parameters of a grid, in one lane and in lanes, and the same with no congestion control (``line``). In
Fire-Flyer 2 no parameters suited both, so DCQCN is off there, and lanes, static routes and a request-to-send do its
work (arXiv 2408.14158v2, VI-A). Every point starts its programs anew, with parameters and marking of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.dcqcn_frontier.cases import HFREDUCE, NO_CONTROL, STORAGE, Alone, Point, Setting
from experiments.dcqcn_frontier.claim import CLAIM
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from experiments.dcqcn_frontier.points import POINTS
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import DATA_LEVELS
from fabric.percentiles import Percentile
from fabric.records.cells import Bound, measured
from runs.job_metrics import marked_packets
from runs.jobs import hfreduce_ranks, started
from runs.placement import RankOrder
from runs.session import Session
from runs.study import Played, Study
from traffic import congestion_control
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.step_numbers import algbw_in
from traffic.job import Job
from traffic.storage.job import StorageJob


def cases(config: DcqcnFrontierConfig) -> tuple[Setting, ...]:
    """Return the programs alone, with no congestion control in the last queueing, and all points, a queueing after the
    other, those without DCQCN first."""
    alone = [Alone(config.queueings[-1], NO_CONTROL, program) for program in (HFREDUCE, STORAGE)]
    together = [*Setting.grid(config), *Point.grid(config)]
    return (*alone, *sorted(together, key=lambda one: config.queueings.index(one.queueing)))


def run_dcqcn_frontier(session: Session, config: DcqcnFrontierConfig) -> dict[str, Any]:
    """Play both programs alone, then together at every point, and return the summary."""
    nodes = session.live.fabric.with_role(Role.COMPUTE, zone=0)[: config.nodes]
    ranks = hfreduce_ranks(session, config.hfreduce, RankOrder.ROUTES, nodes)
    first, second, *together = playing = cases(config)
    _play(session, config, ranks, [first, second])
    return STUDY.summarize(
        session, config, playing, {one.name: _play(session, config, ranks, [one]) for one in together}
    )


def _play(
    session: Session, config: DcqcnFrontierConfig, ranks: Sequence[NodeId], phases: Sequence[Setting]
) -> dict[str, float]:
    """Play phases of the same programs and parameters, and return how often DCQCN cut a rate."""
    one, fabric = phases[0], session.live.fabric
    controls = dict.fromkeys(DATA_LEVELS, one.control)
    session.use_congestion_control(controls, one.dcqcn(config, fabric), one.marking(config, fabric))
    session.use_queueing(one.queueing)
    before = congestion_control.rate_cuts()
    jobs: dict[str, Job] = {
        HFREDUCE: HFReduceJob(session.stage, config.hfreduce, ranks),
        STORAGE: StorageJob(session.stage, config.storage, ranks),
    }
    with started(session, list(jobs.values()), warms_up=True):
        for case in phases:
            session.run_phase(case.name, case.title, [jobs[name] for name in case.programs], config.phase_time)
    return {"cuts": congestion_control.rate_cuts() - before}


def _measure(played: Played[Setting, DcqcnFrontierConfig]) -> list[Metric]:
    phase, reads = played.phase, played.reads()
    p99 = measured(reads, "read.p99_s", otherwise=0.0)
    rates = {
        HFREDUCE: Metric(phase.name, HFREDUCE, "algbw_Bps", algbw_in(played.rows("steps"), *played.counted_s)),
        STORAGE: Metric(phase.name, STORAGE, "read_Bps", reads["read.bandwidth_Bps"]),
    }
    if isinstance(played.case, Alone):
        return [rates[played.case.program]]
    tail = Percentile(p99.value, p99.bound is Bound.NONE and p99.value > 0).named("read_p99_s")
    stalls = {"most_stalled_fraction": 0.0, "stalled_s": 0.0, **played.stalls()}
    network = {
        "marked_packets": marked_packets(played.session.table("ports"), (phase.started_s, phase.ended_s)),
        **played.counted,
        **{name: float(stalls[name]) for name in ("most_stalled_fraction", "stalled_s")},
    }
    return [*rates.values(), *metrics_of(phase.name, STORAGE, tail), *metrics_of(phase.name, "", network)]


STUDY = Study[Setting, DcqcnFrontierConfig](
    title="DCQCN's parameters, and lanes without it: HFReduce and storage together",
    cases=cases,
    measure=_measure,
    measures=(
        Measure("read_Bps", "bytes of reads per second", Better.MORE),
        Measure("read_p99_s", "99th percentile of the time that reads take", Better.LESS, is_of_many=True),
        Measure(
            "read_p99_at_least_s",
            "the least that this percentile can be: the read at this rank did not complete",
            Better.LESS,
            is_least=True,
            is_of_many=True,
        ),
        Measure("marked_packets", "packets that switches marked"),
        Measure("cuts", "times that DCQCN lowered a rate"),
    ),
    further=(CLAIM, POINTS),
)
