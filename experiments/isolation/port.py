"""Who gets the link of the busiest port?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.isolation.cases import AnyFound, Mix
from experiments.isolation.config import IsolationConfig
from experiments.isolation.playing import busiest_port, got
from experiments.isolation.programs import BARS
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.records.figure_forms import Number
from fabric.units import format_rate
from runs.case_tables import CaseTable, Column
from runs.study import Outcome, Point, Question


def _points(found: AnyFound, one: Outcome[Mix]) -> list[Point]:
    promised = found.config.queues.promised
    return [
        Point({"level": level.label}, {"got": one[got(level)], "promised": promised[level.label]})
        for level in (*DATA_LEVELS, ServiceLevel.CONTROL)
    ]


def _shares(found: AnyFound) -> Iterator[dict[str, Any]]:
    """Yield what each Service Level got in each mix, and all together."""
    queues, mixes = found.config.queues, {one.case.words: one for one in found.outcomes}
    levels = (*queues.data_levels, ServiceLevel.CONTROL)
    for level in levels:
        configured = plan_lanes(queues, Queueing.LANES).lane_of(level).share
        yield {"level": level.label, "share": configured, **{words: one[got(level)] for words, one in mixes.items()}}
    whole = {words: sum(one[got(level)] for level in levels) for words, one in mixes.items()}
    yield {"level": "all", "share": 1.0, **whole}


def _note(found: AnyFound) -> tuple[str, ...]:
    port = busiest_port(found.session, found.config)
    return (
        "by DSCP, so acknowledgements count with their kind; other lanes may borrow what a lane does not use",
        f"port {port} of {format_rate(found.fabric.link_at[port].rate_bps)}",
    )


PORT = Question[Any, IsolationConfig](
    kinds=Mix,
    points=_points,
    tables=(
        CaseTable(
            "Shares of the busiest port",
            lambda found: [
                "service level {level}, configured share {share|.0%}",
                *(Column(one.case.words, one.case.words, ".1%") for one in found.outcomes),
            ],
            _note,
            rows=_shares,
        ),
    ),
    more=lambda found: {
        "busiest_port": str(busiest_port(found.session, found.config)),
        "lane_shares": {name: lane.share for name, lane in found.config.queues.lanes.items()},
    },
    figures=(
        BARS(
            "port_shares",
            "What each Service Level got of the link of the busiest port, by DSCP, while all of the load played; "
            "black: what its lane promises.",
            "Who gets the link of the busiest port",
            numbers=(Number("got", ""),),
            x="{level}",
            labels=("share of the link", ""),
        ),
    ),
)
