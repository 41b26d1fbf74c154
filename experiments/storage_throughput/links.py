"""How busy is each kind of link while all compute nodes read, and which is the busiest?"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.storage_throughput.cases import PAPER_SHARE, AnyFound, AnyPlayed, Reads
from experiments.storage_throughput.config import StorageThroughputConfig
from fabric.measures import Measure
from fabric.model.identity import Role
from fabric.model.network import Fabric, Port
from fabric.percentiles import nearest_ranks
from fabric.records.figure_forms import Bars, Level, Looks, Number
from fabric.records.palette import GREY
from runs.case_tables import Answer, CaseTable
from runs.study import Outcome, Point, Question

_ROLES = {
    Role.COMPUTE: "compute node",
    Role.STORAGE: "storage node",
    Role.LEAF: "leaf",
    Role.SPINE: "spine",
    Role.CORE: "core",
    Role.INTER_ZONE: "zone switch",
}
ON_THE_WAY = ("storage node to leaf", "leaf to spine", "spine to leaf", "leaf to compute node")
"""The kinds of links that a read's data passes, in that order."""
USE_MEAN = Measure("use.<links>.mean", "share of their rate that links of a kind carried, mean over links")
USE_MOST = Measure("use.<links>.most", "share of its rate that the busiest link of a kind carried")


def _label(kind: str) -> str:
    return kind.replace(" ", "_")


def kind_of(fabric: Fabric, port: Port) -> str:
    """Return the kind of link that a port sends on: from what to what."""
    return " to ".join(_ROLES[node.role] for node in (port.node, fabric.peer(port).node))


def link_uses(played: AnyPlayed) -> list[Point]:
    """Return how busy the links of each kind were, as shares of their rate, from the first to the last sample of the
    time that counts; nothing if there are no two. The kinds that a read's data passes come first."""
    fabric, ports = played.fabric, played.session.table("ports")
    links = {str(port): (port, link) for port, link in fabric.directed_ports()}
    rows = ports[ports["at_s"].between(*played.counted_s) & ports["port"].isin(links)]
    times = np.unique(rows["at_s"])
    if len(times) < 2:
        return []
    sent = rows.groupby(["at_s", "port"], observed=True)["sent_bytes"].sum()
    bps = (sent.loc[times[-1]] - sent.loc[times[0]]) * 8 / float(times[-1] - times[0])
    used: dict[str, list[float]] = {}
    for name, rate in bps.items():
        port, link = links[str(name)]
        used.setdefault(kind_of(fabric, port), []).append(rate / link.rate_bps)
    kinds = [one for one in (*ON_THE_WAY, *sorted(used.keys() - set(ON_THE_WAY))) if one in used]
    return [Point({"links": kind}, _numbers(used[kind])) for kind in kinds]


def _numbers(used: list[float]) -> dict[str, float]:
    mean, p99, most = float(np.mean(used)), nearest_ranks(used, 99)[0], max(used)
    return {"number": len(used), "mean": mean, "p99": p99, "most": most}


def _measure(played: AnyPlayed) -> dict[str, float]:
    return {
        measure.of(_label(one.settings["links"])): one.numbers[name]
        for one in link_uses(played)
        for name, measure in (("mean", USE_MEAN), ("most", USE_MOST))
    }


def _busiest(found: AnyFound) -> list[Outcome[Any]]:
    """Return each case with its kind of links that is busiest on average."""
    uses = [(one, link_uses(found.played(one))) for one in found.outcomes]
    return [one.at(max(kinds, key=lambda kind: kind.numbers["mean"])) for one, kinds in uses if kinds]


LINKS = Question[Any, StorageThroughputConfig](
    kinds=Reads,
    measure=_measure,
    measures=(USE_MEAN, USE_MOST),
    answer=Answer(
        "The busiest links, on average: {}.", "{title}: {links}, {mean|.0%}", otherwise="", between="; ", rows=_busiest
    ),
    tables=(
        CaseTable(
            "How busy links were, of their rate",
            "variant {title}, links {links}, number {number}, mean {mean|.1%}, p99 of links {p99|.1%}, "
            "busiest {most|.1%}",
            "each direction of a link by itself, over the counted time, in the order in which a read's data passes",
            parts=lambda found, one: link_uses(found.played(one)),
        ),
    ),
    figures=(
        Bars(
            "links",
            "What all compute nodes read, as a share of what the storage nodes' NICs have, and how busy each kind of "
            "link was: the mean link (bar) and the busiest (line), in the order in which a read's data passes them.",
            "Reads of all compute nodes: how busy links are",
            numbers=(
                Number("read.share_of_nics", "reads of the\nstorage NICs"),
                *(
                    Number(USE_MEAN.of(_label(one)), one.replace(" to ", "\nto "), upto=USE_MOST.of(_label(one)))
                    for one in ON_THE_WAY
                ),
            ),
            colour="{title}",
            labels=("", "share of the rate (fraction)"),
            levels=(
                Level(Number(lambda _: PAPER_SHARE, "the paper's reads: 8 of 9 TB/s"), at=0),
                Level(Number("beside_share", "3FS's, beside training: 81 %", colour=GREY), "--", at=0),
            ),
            looks=Looks(legend=3, most_y=1.05),
        ),
    ),
)
