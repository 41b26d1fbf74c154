"""Which flows does a NIC that pauses its switch take with it, and what does a watchdog at switches cure?

What waits for the paused port fills the input buffer of each link that it came by, and so pauses that link, whatever
else it carries: Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016, 4.3. A watchdog drops what waits for
a port that has stood still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.planning.paths import planned_path
from experiments.pfc_storm.config import EVER_S, PfcStormConfig
from fabric.failures.schedule import Failure, FailureSchedule, LinkState
from fabric.measures import Better, Measure
from fabric.model.network import Fabric, Port
from fabric.records.figure_forms import Bars, Looks, Number
from fabric.units import format_time
from runs.case_tables import Answer, CaseTable
from runs.cases import Case, axis
from runs.session import Session
from runs.stall_metrics import STALLS
from runs.study import Found, Outcome, Played, Study, play_case
from traffic.flows.streams import StreamsJob

TAKEN_BELOW = 0.1
"""A stream is taken that delivers less than this part of what it does without a pause."""
_TAKEN = Measure("taken_fraction", "share of the streams that deliver almost nothing", Better.LESS)
_HOSTS = Measure("taken_hosts", "hosts all of whose streams deliver almost nothing", Better.LESS)
_RATE = Measure("goodput_bps", "goodput of all streams together", Better.MORE)
_OTHERS = Measure("others_bps", "goodput of the streams that do not go to the NIC that pauses", Better.MORE)


def _long(pause: float | None) -> str:
    return "no pause" if pause is None else "for ever" if pause >= EVER_S else f"for {format_time(pause)}"


def _watched(watchdog: float | None) -> str:
    return "no watchdog" if watchdog is None else f"watchdog {format_time(watchdog)}"


@dataclass(frozen=True)
class Storm(Case, name="pause_{pause}_watchdog_{watchdog}", title="{pause}, {watchdog}"):
    """For how long a NIC pauses, and after how long switches' watchdogs drop."""

    pause: float | None = axis("pauses", words=_long)
    watchdog: float | None = axis("watchdogs", words=_watched, sets="queues.watchdog")


def _play(session: Session, config: PfcStormConfig, case: Storm) -> None:
    own, fabric = case.in_config(config), session.live.fabric
    session.use_queues(own.queues)
    session.use_queueing(own.queueings_played[0])
    link = fabric.link_at[fabric.nics_of[fabric.computes[0]][0].port]
    pause = Failure(link, own.warm_up, own.warm_up + (case.pause or 0.0), LinkState(paused=True))
    job = StreamsJob(session.stage, own.played(fabric), own.timetable)
    play_case(session, case, [job], own.timetable.duration_s, FailureSchedule.of([pause]) if case.pause else None)


Way = tuple[Sequence[Port], Sequence[Port]]
"""The ports of a stream's data, and of its acknowledgements."""


def taken(ways: Sequence[Way], root: Port) -> list[bool]:
    """Return which streams stand still in the end, if the port ``root`` does: those of which anything crosses a port
    that stands still. That is each port before one on a stream's way, whose data fills the buffer in between."""
    still, before = {root}, set[Port]()
    while still != before:
        before = set(still)
        for data, _ in ways:
            reached = [place for place, port in enumerate(data) if port in still]
            still.update(data[: max(reached, default=-1) + 1])
    return [any(port in still for path in way for port in path) for way in ways]


def _ways(found: Found[Storm, PfcStormConfig]) -> list[Way]:
    fabric, plan = found.fabric, found.session.live.plan
    ends = [(fabric.nics_of[one.source][0], fabric.nics_of[one.sink][0]) for one in found.config.played(fabric)]
    return [(planned_path(plan, fabric, *pair), planned_path(plan, fabric, *pair[::-1])) for pair in ends]


def _root(fabric: Fabric) -> Port:
    return fabric.peer(fabric.nics_of[fabric.computes[0]][0].port)


def _measure(played: Played[Storm, PfcStormConfig]) -> dict[str, float]:
    rows, first = played.rows("operations"), played.fabric.computes[0].name
    rates = rows["size_bytes"] * 8 / (rows["ended_s"] - rows["started_s"])
    still = rates < TAKEN_BELOW * played.fabric.nic_rate_bps / played.config.streams
    by_host = still.groupby(rows["host"].astype(str)).all()
    numbers = {_TAKEN.name: float(still.mean()), _HOSTS.name: int(by_host.sum()), _RATE.name: float(rates.sum())}
    others = float(rates[rows["peer"].astype(str) != first].sum())
    return {**numbers, _OTHERS.name: others, **played.packets(), **played.stalls()}


def _in_theory(found: Found[Storm, PfcStormConfig], one: Outcome[Storm]) -> dict[str, float]:
    if one.case.pause is None:
        return {_TAKEN.name: 0.0}
    if one.case.pause < EVER_S:
        return {}
    ways, root = _ways(found), _root(found.fabric)
    lost = taken(ways, root) if one.case.watchdog is None else [root in data or root in acks for data, acks in ways]
    return {_TAKEN.name: sum(lost) / len(lost)}


STUDY = Study[Storm, PfcStormConfig](
    title=lambda found: f"A NIC of {found.fabric.name} pauses its switch",
    cases=(Storm,),
    play=_play,
    measure=_measure,
    measures=(_TAKEN, _HOSTS, _RATE, _OTHERS),
    theory=_in_theory,
    answer=Answer(
        "A NIC that pauses for ever takes {}.",
        each="{taken_fraction|.0%} of all streams with {watchdog} (theory: {taken_in_theory_fraction|.0%})",
        rows=lambda found: [one for one in found.outcomes if one.case.pause == EVER_S],
    ),
    tables=(
        CaseTable(
            "What a NIC that pauses takes with it",
            "pause {pause|once}, switches {watchdog}, streams taken {taken_fraction|.0%}, in theory "
            "{taken_in_theory_fraction|.0%}, hosts {taken_hosts}, goodput {goodput_bps}, of others {others_bps}, "
            "dropped {drops_packets}, stalls {stalls}, longest stalled lane {most_stalled_fraction|.0%}",
            f"taken: less than {TAKEN_BELOW:.0%} of a NIC's rate by its streams; {STALLS.note}",
        ),
    ),
    figures=(
        Bars(
            "storm",
            "What streams to others than the NIC that pauses deliver together, by its pause and switches' watchdogs.",
            "Goodput of streams that do not go to the NIC that pauses",
            numbers=(Number("others_bps", "others", 1e-9),),
            x="{pause}",
            colour="{watchdog}",
            labels=("", "Gbit/s"),
            looks=Looks(8.0, 3.2),
        ),
    ),
)
