"""How much slack does communication of DeepSeek's step with expert parallelism have, and what takes it?

Ten phases a layer on two streams: what computes takes the time that was measured, what communicates moves its bytes in
packets. Each variant plays whole steps: on the idle fabric, beside reads, with a cut, by other routes, in one lane.
Beside them stands the schedule on paper with all times as measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pandas as pd

from experiments.expert_parallel.config import GPUS, ExpertParallelConfig, VariantConfig, servers_of
from experiments.expert_parallel.summary import Paper, Step, summarize
from fabric.failures.schedule import FailureSchedule
from fabric.measure.verdict import Check
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.results import Phase
from runs.phase_rows import carried_out_checks
from runs.session import Session
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.job import Job
from traffic.stepped_job import FiniteSteps
from traffic.work.generators.expert_step import FIRST_COMPUTE_S, Extras, measured_step, step_with_bytes
from traffic.work.generators.routing import Routed, RoutingRule, route
from traffic.work.graph import WorkGraph
from traffic.work.job import PlayConfig, WorkJob
from traffic.work.list_schedule import list_schedule


def routed_by(config: ExpertParallelConfig) -> Routed:
    """Return where tokens go."""
    rule = config.routed
    found = RoutingRule(
        rule.experts, rule.top, config.nodes, min(rule.top_nodes, config.nodes), seed=config.seed, skew=rule.skew
    )
    return route(found, config.nodes * GPUS, GPUS, config.tokens)


def graph_of(
    config: ExpertParallelConfig,
    routed: Routed,
    nvlink_Bps: float,  # noqa: N803 - bytes, not bits
) -> WorkGraph:
    """Return the step; ``nvlink_Bps``: bytes per second of a GPU's NVLink."""
    extras = Extras(
        has_local=config.local == "as_measured",
        launch_s=FIRST_COMPUTE_S / config.shrink,
        nvlink_Bps=None if config.nvlink_in_packets else nvlink_Bps,
        kernels_shrink=config.shrink if config.kernels == "deepep" else None,
    )
    return step_with_bytes(config.phases(), routed, GPUS, extras)


def paper_of(config: ExpertParallelConfig) -> Paper:
    """Return the step with all times as measured, on paper, not shrunk."""
    whole = config.model_copy(update={"shrink": 1.0})
    return Paper(list_schedule(measured_step(whole.phases()), lambda operations, ranks: 0.0).end_s)


def reads_of(fabric: Fabric, config: ExpertParallelConfig) -> list[FanIn]:
    """Return what nodes read meanwhile, by their first NIC: of all storage nodes in its plane, again and again."""
    nodes = fabric.computes[: config.nodes]
    return [FanIn("read", node, servers_of(fabric, node), config.read_size) for node in nodes]


def run_expert_parallel(session: Session, config: ExpertParallelConfig) -> dict[str, Any]:
    """Play the variants and return the summary."""
    inside = session.live.fabric.inside
    assert inside is not None and inside.nvlink is not None, "faults() has looked"
    routed = routed_by(config)
    graph = graph_of(config, routed, inside.nvlink.rate_bps / 8)
    found = []
    for variant in config.variants:
        session.use_routing(config.routing_of(variant), variant.policy.name)
        session.use_queueing(variant.queueing)
        with _jobs(session, config, variant, graph) as jobs:
            schedule = config.schedule_of(variant, session.live.fabric) if variant.failures else None
            outcome = session.run_phase(variant.name, _title(variant), jobs, 0.0, schedule)
        session.checks += missed_checks(variant, schedule, session.table("failures"), outcome.phase)
        found.append(Step.of(session, config, variant, graph))
    return summarize(session, config, routed, paper_of(config), found)


def missed_checks(
    variant: VariantConfig, schedule: FailureSchedule | None, failures: pd.DataFrame, phase: Phase
) -> list[Check]:
    """Return the checks of failures of a variant that never happened, as those that are due after its last step."""
    from_s, end_s = phase.load_s
    rows = failures[failures["phase"] == phase.name]
    checks = carried_out_checks(schedule, rows, end_s - from_s, f"variants.{variant.name}.failures")
    return [check for check in checks if check.value]


@contextmanager
def _jobs(
    session: Session, config: ExpertParallelConfig, variant: VariantConfig, graph: WorkGraph
) -> Iterator[list[Job]]:
    """Start the jobs of a variant: reads, if there are any, and the steps. Close them behind."""
    nodes = session.live.fabric.computes[: config.nodes]
    play = PlayConfig(slice=config.slice, recorded_steps=config.steps)
    with ExitStack() as stack:
        jobs: list[Job] = []
        if variant.reads:
            reads = FanInJob(session.stage, reads_of(session.live.fabric, config), ServiceLevel.STORAGE)
            stack.callback(reads.close)
            reads.start()
            jobs.append(reads)
        step = WorkJob(session.stage, play, nodes, level=ServiceLevel.NCCL, name="step", graph=graph)
        stack.callback(step.close)
        session.tell(f"starting {graph.ranks} ranks")
        step.start()
        step.warm_up()
        yield [FiniteSteps(step, partial(step.run_steps, config.steps)), *jobs]


def _title(variant: VariantConfig) -> str:
    beside = [*(["beside reads"] if variant.reads else []), *(["with failures"] if variant.failures else [])]
    return f"{variant.name}: {' and '.join(beside) or 'alone'}, {variant.policy.name} routes, {variant.queueing.words}"
