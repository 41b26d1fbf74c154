"""How much of GraySort's half hour on 3FS would the network alone take?

smallpond sorted 110.5 TiB with 50 compute nodes and 25 storage nodes in 30 minutes and 14 seconds (3FS's README): tasks
take the data apart into partitions, then each partition is sorted, and both phases read from and write to 3FS. Only the
shape is played: the same steps, by fewer nodes, with some MB each. Once without computing, so that the network is all
there is; its time per byte then says how long it would take for the published amount.
"""

from __future__ import annotations

from experiments.graysort.config import PAPER_BYTES, PAPER_NODES, PAPER_S, Computing, GraySortConfig, Sort
from fabric.measures import Better, Measure
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Bars, Level, Looks, Number
from runs.case_tables import Answer, CaseTable
from runs.session import Session
from runs.study import Found, Played, Study, of_job, play_steps
from runs.true_scale import true_time, why_alone
from traffic.sorting.measures import SORTS, sort_numbers
from traffic.work.job import WorkJob


def _play(session: Session, config: GraySortConfig, case: Sort) -> None:
    session.use_queueing(config.queueing)
    nodes = session.live.fabric.computes[: config.sort.ranks]
    job = WorkJob(session.stage, case.sort(config.sort), nodes, level=ServiceLevel.STORAGE, name="sort")
    play_steps(session, case.name, case.title, job)


def _measure(played: Played[Sort, GraySortConfig]) -> dict[str, float]:
    """Return the numbers of a sort, and how long the published data would take by its time per byte, at the true rate:
    what the network alone takes follows from scaled rates, too, with computing it is known at the true rate only."""
    fabric, config, shape = played.fabric, played.config.sort, played.case.sort(played.config.sort).shape
    found = sort_numbers(fabric, shape, config.files.replicas, played.rows("work_operations"))
    if played.case.computing is Computing.NONE or why_alone(fabric) is None:
        found["papers_data_s"] = true_time(fabric, found["all_s"]) * PAPER_BYTES / PAPER_NODES / shape.node_bytes
    return {**found, **played.packets()}


def _note(found: Found[Sort, GraySortConfig]) -> str:
    shape, reason = found.config.sort.shape, why_alone(found.fabric)
    return (
        f"{shape.ranks} nodes with {shape.node_bytes / 2**20:.4g} MiB each. NICs: payload, of their rate each way, "
        "over all of the time; NICs' least: how long the fuller of them takes at its rate. for the paper's data: "
        f"110.5 TiB on 50 nodes at this time per byte; they took {PAPER_S:,.0f} s"
        + ("" if reason is None else f", at the true rate; with computing, {reason}")
    )


def _of_papers(part: str, label: str) -> Number:
    """Return a part of the time that the published data would take."""
    return Number(lambda of: of["papers_data_s"] * of[part] / of["all_s"], label)


STUDY = Study[Sort, GraySortConfig](
    title="GraySort's shape",
    cases=Sort.grid,
    play=_play,
    measure=of_job("sort", _measure),
    measures=(
        *SORTS,
        Measure(
            "papers_data_s",
            "time of the published 110.5 TiB on 50 nodes, by the time per byte here at full rate",
            Better.LESS,
        ),
    ),
    aside=lambda _, one: {"of_papers": one["papers_data_s"] / PAPER_S} if "papers_data_s" in one.values else {},
    answer=Answer(
        f"For the published 110.5 TiB on 50 nodes, which took {PAPER_S:,.0f} s, the network alone would take, by its "
        "time per byte here: {}.",
        each="{exchange_words} {papers_data_s|,.0f s}, {of_papers|.0%}",
        rows=lambda found: [one for one in found.outcomes if one.case.computing is Computing.NONE],
        between="; ",
        otherwise="No variant was played without computing, so what the network alone takes is not known.",
    ),
    tables=(
        CaseTable(
            "GraySort's shape",
            "exchange {exchange_words}, computing {computing}, all {all_s}, NICs' least {least_s}, "
            "taking apart {apart_s}, sorting {sort_s}, compute NICs {compute_nic_fraction}, "
            "storage NICs {storage_nic_fraction}, for the paper's data {papers_data_s|,.0f s}, dropped {drops_packets}",
            _note,
        ),
    ),
    figures=(
        Bars(
            "sort_times",
            "How long GraySort's 110.5 TiB would take on 50 nodes at the time per byte that was measured, by phase: "
            "without computing, and with the time of the published run. Lines: the fuller NICs at their rate.",
            "GraySort's shape: time for its data on 50 nodes",
            numbers=(_of_papers("apart_s", "taking the data apart"), _of_papers("sort_s", "sorting partitions")),
            x="{title}",
            labels=("time of the sort (s)", ""),
            stacked=True,
            marks=(_of_papers("least_s", "NICs at their rate"),),
            levels=(Level(Number(lambda _: PAPER_S, "published")),),
            looks=Looks(height=3.6, horizontal=True),
        ),
    ),
)
