"""How much of its bandwidth does a program keep as the traffic of others grows, and does its lane protect it?

HFReduce and storage readers play together in every phase, with flows of others at a growing load, from none to far more
than a NIC carries; then HFReduce with storage readers at a growing queue depth. All of it in each queueing, with the
same seeds. A lane promises a program its share of the bandwidth that the program has alone: shares are guaranteed at
every port, whatever the other lanes do (Fire-Flyer 2, arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

from typing import Any

from experiments.protection.cases import PLAY, Alone, AnyFound, Beside, loads
from experiments.protection.completion import COMPLETION
from experiments.protection.config import ProtectionConfig
from fabric.delivered import acknowledged_bytes
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Level, Lines, Looks, Number, Places
from fabric.records.palette import GREY
from runs.case_tables import Answer, CaseTable, Column
from runs.study import Outcome, Played, Point, Study, of_job

OFFERED = "load offered by flows of others, of each NIC's rate (%)"
REQUESTS = "number of batches in flight per storage client"
ALGBW, READS = "hfreduce.algbw_Bps", "read.bandwidth_Bps"
LEFT = (
    "in {queueing}, HFReduce, algbw {hfreduce.algbw_Bps}, of alone {hfreduce.algbw_Bps / alone|.0%}, "
    "storage reads {read.bandwidth_Bps}, of alone {read.bandwidth_Bps / alone|.0%}, "
    "flows of others, completed {other.bandwidth_Bps}"
)


def _delivered(played: Played[Any, ProtectionConfig]) -> dict[str, float]:
    """Return HFReduce's bandwidth, of bytes delivered, so that steps that did not end count as far as they got; nothing
    if it did not play."""
    (from_s, until_s), flows = played.counted_s, played.rows("flows")
    trees = flows[flows["service_level"] == ServiceLevel.HFREDUCE.label]
    delivered = acknowledged_bytes(trees, from_s, until_s) / played.counted["hfreduce.sent_over_size"]
    return {} if trees.empty else {"algbw_Bps": delivered / (until_s - from_s)}


def _points(found: AnyFound, one: Outcome[Any]) -> list[Point]:
    """Return in which panels a load is, each of a program beside what grows."""
    if isinstance(one.case, Alone):
        return []
    (load, depth), promised = one.case.point, found.config.queues.promised
    panels = (
        ("beside_others", "HFReduce, algbw, with storage and others", ALGBW, "hfreduce", OFFERED, 100 * load),
        ("beside_others", "Storage reads with HFReduce and others", READS, "storage", OFFERED, 100 * load),
        ("beside_storage", "HFReduce, algbw, with storage only", ALGBW, "hfreduce", REQUESTS, depth),
    )
    return [
        Point(
            {"panel": panel, "axis": axis, "load": f"{place:g}"},
            {"left": one.times(rate).value, "promised": promised[lane]},
        )
        for points, panel, rate, lane, axis, place in panels
        if one.case.point in getattr(found.config, points)
    ]


def _promise(found: AnyFound) -> str:
    promised = found.config.queues.promised
    return f"lanes promise {promised['hfreduce']:.0%} (hfreduce) and {promised['storage']:.0%} (storage)"


STUDY = Study[Any, ProtectionConfig](
    title="Protection: what HFReduce and storage keep as the traffic of others grows",
    cases=(Alone, Beside),
    play=PLAY,
    measure=(
        of_job(ServiceLevel.HFREDUCE.label, _delivered, is_named_by_job=True),
        of_job(ServiceLevel.STORAGE.label, lambda played: played.operations("read")),
        of_job(ServiceLevel.OTHER.label, lambda played: played.operations("flow", ""), is_named_by_job=True),
    ),
    points=_points,
    answer=Answer(
        lambda found: (
            "Of their bandwidth alone, HFReduce and storage reads keep, next to flows that offer "
            f"{found.config.other_loads[-1]:.0%} of every NIC's rate: {{}}; {_promise(found)}."
        ),
        each="{hfreduce.algbw_Bps / alone|.0%} and {read.bandwidth_Bps / alone|.0%} in {queueing}",
        rows=lambda found: loads("beside_others")(found)[-len(found.config.queueings) :],
    ),
    further=(COMPLETION,),
    tables=(
        CaseTable(
            "Under growing load of others",
            (Column("others offer, of each NIC", lambda one: one.case.point.other_load, ".0%", is_once=True), LEFT),
            lambda found: f"{_promise(found)} of a program's bandwidth alone, whatever the others do",
            rows=loads("beside_others"),
        ),
        CaseTable(
            "With storage only, under growing queue depth",
            (Column("batches per client", lambda one: one.case.point.storage_depth, is_once=True), LEFT),
            "a client has one connection per storage node, however much it asks for",
            rows=loads("beside_storage"),
        ),
    ),
    figures=(
        Lines(
            "protection",
            "Bandwidth of a program, relative to that alone, as the load of others grows; one curve per queueing. "
            "Dashed: the share that its lane promises; above it: bandwidth that others leave idle.",
            "Bandwidth left as the traffic of others grows",
            numbers=(Number("left", "left"),),
            x="{load}",
            line="in {queueing}",
            rows="{panel}",
            dash="{queueing}",
            labels=("{axis}", "bandwidth kept, of that alone"),
            levels=(
                Level(Number("promised", "promised by its lane"), "--", words="its lane: {:.0%}"),
                Level(Number(lambda _: 1.0, "alone", colour=GREY), ":"),
            ),
            looks=Looks(12.9, 4.2, legend=6, percent_y=True, columns=3, places=Places(are_numbers=True)),
        ),
    ),
)
