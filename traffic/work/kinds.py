"""The kind of jobs that plays graphs of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.tables import NO_UNIT, Column, Table, common
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import JobRows
from traffic.work.job import PlayConfig, WorkConfig, WorkJob, places_of, schedule_choice, work_faults
from traffic.work.list_schedule import Timeline
from traffic.work.measures import OF_TRAINING, OF_WORK
from traffic.work.placement import nodes_needed, ranks_per_node
from traffic.work.training_job import PlayedTrainingConfig, TrainingJob, training_faults
from traffic.work.training_numbers import training_numbers
from traffic.work.volumes import moved_by_files, sent_between

_RANK = {
    "rank": Column("int64", "count", "number of the rank, from 0"),
    "step": Column("int64", "count", "number of the step, from 0 over the job's life"),
}
_PLAY = Column("int64", "count", "number of the play: of those steps that ranks played in a row, one as a rule")
WORK_STEPS = Table(
    "One row per rank and step of a job that plays a graph of work.",
    {
        **common("phase", "job", "service_level", "host"),
        **_RANK,
        "play": _PLAY,
        "sent_bytes": Column("int64", "bytes", "what the rank sends in a step, by the graph"),
        "started_s": Column("float64", "s", "when the rank began the step"),
        "ended_s": Column("float64", "s", "when its last operation ended"),
    },
)
WORK_OPERATIONS = Table(
    "One row per operation of a graph of work, of the steps and ranks that are recorded.",
    {
        **common("phase", "job", "host"),
        **_RANK,
        "operation": Column("int64", "count", "place of the operation in the rank's list, from 0"),
        "name": Column("category", NO_UNIT, "its name in the graph, if it has one"),
        "kind": Column(
            "category", NO_UNIT, "`compute`, `send`, `receive`, `read`, `write`, or the name of a collective"
        ),
        "stream": Column("category", NO_UNIT, "the stream that it is on, if it is on one"),
        "partner": Column(
            "category", NO_UNIT, "the rank that it sends to or receives from, or the group that it calls"
        ),
        "size_bytes": Column("int64", "bytes", "size of the message or collective"),
        "ready_s": Column("float64", "s", "when it waited for no other operation, and at most for its stream"),
        "started_s": Column("float64", "s", "when it started"),
        "ended_s": Column("float64", "s", "when it ended"),
    },
)


def _data(config: PlayConfig, fabric: Fabric, nodes: Sequence[NodeId]) -> list[DataFlow]:
    """Return where a step's data goes between hosts, as parts of all that it sends."""
    graph = config.loaded()
    ranks = places_of(config, fabric, nodes, graph.ranks)
    sent = sent_between(graph, schedule_choice(config, fabric, ranks))
    outside = {pair: size for pair, size in sent.items() if ranks[pair[0]].host != ranks[pair[1]].host}
    flows = [(ranks[a].host, ranks[b].host, float(size)) for (a, b), size in outside.items()]
    for rank, moved in moved_by_files(graph).items():
        host, servers = ranks[rank].host, fabric.storages
        flows += [(server, host, moved.read_bytes / len(servers)) for server in servers if moved.read_bytes]
        flows += [(host, server, moved.written_bytes / len(servers)) for server in servers if moved.written_bytes]
    total = sum(size for _, _, size in flows)
    return [(source, target, size / total) for source, target, size in flows]


def _fixed_nodes(config: PlayConfig, fabric: Fabric) -> tuple[int, str]:
    """Return how many nodes the ranks of a graph need, which is as many as they get, and why."""
    ranks, on_node = config.loaded().ranks, ranks_per_node(fabric, config.ranks_per_node)
    needed = nodes_needed(ranks, on_node)
    return needed, f"{ranks} ranks, {on_node} on a node, take {needed}"


def of_work_steps(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of a job: how long its steps took, how many there were, what they sent per second, and, if
    operations of all ranks were recorded, what of a step is exposed and idle."""
    from traffic.work import metrics  # With pandas, which programs in hosts need not have.

    table = rows.table("work_steps")
    if table.empty:
        return {}
    times = metrics.step_times(table)
    found = {"step_s": float(times.median()), "steps": float(table["step"].nunique())}
    if float(times.min()) > 0:
        plays = table.groupby("play").agg({"sent_bytes": "sum", "step": "nunique"})
        found["sent_Bps"] = float((plays["sent_bytes"] / plays["step"] / times).median())
    return found | metrics.of_timelines(_timelines(rows))


def _timelines(rows: JobRows) -> list[Timeline]:
    """Return the steps of which operations of all ranks were recorded."""
    from traffic.work.metrics import timelines

    operations = rows.table("work_operations")
    if rows.config is None or rows.config.recorded_ranks is not None or operations.empty:
        return []
    return timelines(rows.config.loaded(), operations)


WORK = JobKind(
    name="work",
    meaning="A graph of work, step after step: computing, messages, collectives of groups.",
    config=WorkConfig,
    level=ServiceLevel.NCCL,
    least_nodes=1,
    make=WorkJob,
    measures=Measures(of=of_work_steps, speeds=("sent_Bps",), declared=OF_WORK),
    data=DataOfJob(_data, fixed_nodes=_fixed_nodes),
    faults=work_faults,
    tables={"work_steps": WORK_STEPS, "work_operations": WORK_OPERATIONS},
    preload=("traffic.work.player.rank",),
)


def of_training(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of any graph's job, those of a step being those of all its micro-batches, and what follows for
    training: :func:`traffic.work.training_numbers.training_numbers`."""
    found = dict(of_work_steps(rows))
    if rows.config is not None and "step_s" in found:
        found |= training_numbers(rows.config, found["step_s"], rows.table("work_operations"), _timelines(rows))
    return found


def _training_nodes(config: PlayedTrainingConfig, fabric: Fabric) -> tuple[int, str]:
    return _fixed_nodes(config.placed_by_node(), fabric)


def _training_data(config: PlayedTrainingConfig, fabric: Fabric, nodes: Sequence[NodeId]) -> list[DataFlow]:
    return _data(config.placed_by_node(), fabric, nodes)


TRAINING = JobKind(
    name="training",
    meaning="Training of a model on a layout: what its ranks compute, send and receive, step after step.",
    config=PlayedTrainingConfig,
    level=ServiceLevel.NCCL,
    least_nodes=1,
    make=TrainingJob,
    measures=Measures(of=of_training, speeds=("sent_Bps",), declared=OF_TRAINING),
    data=DataOfJob(_training_data, fixed_nodes=_training_nodes),
    faults=training_faults,
    preload=("traffic.work.player.rank",),
)
