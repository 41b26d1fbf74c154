"""Which flows does a NIC that pauses its switch take with it, and what does a watchdog at switches cure?

What waits for the paused port fills the input buffer of each link that it came by, and so pauses that link (Guo et al.,
"RDMA over Commodity Ethernet at Scale", SIGCOMM 2016, 4.3). A watchdog drops what waits for a port that stands still.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from controllers.planning.pause_trees import taken, ways
from experiments.pfc_storm.config import EVER_S, PfcStormConfig, pause_words, watchdog_words
from fabric.failures.schedule import Failure, FailureSchedule, LinkState
from fabric.measures import Better, Measure
from fabric.records.figure_forms import Bars, Looks, Number
from runs.case_tables import Answer, CaseTable
from runs.cases import Case, axis
from runs.session import Session
from runs.stall_metrics import STALLS
from runs.study import Found, Outcome, Played, Study, play_case
from traffic.flows.streams import LEAD_S, StreamsJob

LAST_PART, TAKEN_BELOW = 0.2, 0.1  # A stream is taken that delivers less than this of its share in that part.
_TAKEN = Measure("taken_fraction", "share of the streams that deliver almost nothing in the end", Better.LESS)
_HOSTS = Measure("taken_hosts", "hosts whose streams all deliver almost nothing in the end", Better.LESS)
_RATE = Measure("goodput_bps", "goodput of all streams together", Better.MORE)
_OTHERS = Measure("others_bps", "goodput of the streams that do not go to the NIC that pauses", Better.MORE)


@dataclass(frozen=True)
class Storm(Case, name="pause_{pause}_watchdog_{watchdog}", title="{pause}, {watchdog}"):
    """For how long a NIC pauses, and after how long switches' watchdogs drop."""

    pause: float | None = axis("pauses", words=pause_words)
    watchdog: float | None = axis("watchdogs", words=watchdog_words, sets="queues.watchdog")


def _play(session: Session, config: PfcStormConfig, case: Storm) -> None:
    own, fabric = case.in_config(config), session.live.fabric
    session.use_queues(own.queues)
    session.use_queueing(own.queueings_played[0])
    link, from_s = fabric.link_at[fabric.nics_of[fabric.computes[0]][0].port], LEAD_S + own.warm_up
    pause = Failure(link, from_s, from_s + (case.pause or 0.0), LinkState(paused=True))
    schedule = FailureSchedule.of([pause]) if case.pause else None
    jobs = [StreamsJob(session.stage, own.played(fabric), own.timetable)]
    play_case(session, case, jobs, LEAD_S + own.timetable.duration_s, schedule)


def _last_bps(played: Played[Storm, PfcStormConfig]) -> pd.Series[float]:
    """Return what is acknowledged of streams in the last part of the measured time, by host and peer."""
    until_s, lasts_s = float(played.rows("operations")["ended_s"].min()), LAST_PART * played.config.measured
    flows = played.rows("flows")
    ends = [flows[flows["at_s"] <= moment_s] for moment_s in (until_s - lasts_s, until_s)]
    before, after = (one.groupby(["host", "peer"], observed=True)["bytes_acked"].max() for one in ends)
    return (after - before) * 8 / lasts_s


def _measure(played: Played[Storm, PfcStormConfig]) -> dict[str, float]:
    rows, first = played.rows("operations"), played.fabric.computes[0].name
    rates = rows["size_bytes"] * 8 / (rows["ended_s"] - rows["started_s"])
    still = _last_bps(played) < TAKEN_BELOW * played.fabric.nic_rate_bps / played.config.streams
    numbers = {_TAKEN.name: float(still.mean()), _HOSTS.name: int(still.groupby("host", observed=True).all().sum())}
    goodput = {_RATE.name: float(rates.sum()), _OTHERS.name: float(rates[rows["peer"].astype(str) != first].sum())}
    return {**numbers, **goodput, **played.packets(), **played.stalls()}


def _in_theory(found: Found[Storm, PfcStormConfig], one: Outcome[Storm]) -> dict[str, float]:
    if one.case.pause is not None and one.case.pause < EVER_S:
        return {}
    ends, fabric = found.config.ends(found.fabric), found.fabric
    root = fabric.peer(fabric.nics_of[fabric.computes[0]][0].port)
    lost = taken(ways(found.session.live.plan, fabric, ends), root, one.case.watchdog is None)
    return {_TAKEN.name: sum(lost) / len(lost) if one.case.pause else 0.0}


STUDY = Study[Storm, PfcStormConfig](
    title=lambda found: f"A NIC of {found.fabric.name} pauses its switch",
    cases=(Storm,),
    play=_play,
    measure=_measure,
    measures=(_TAKEN, _HOSTS, _RATE, _OTHERS),
    theory=_in_theory,
    answer=Answer(
        "A NIC that pauses forever takes {}.",
        each="{taken_fraction|.0%} of all streams with {watchdog} (theory: {taken_in_theory_fraction|.0%})",
        rows=lambda found: [one for one in found.outcomes if one.case.pause == EVER_S],
    ),
    tables=(
        CaseTable(
            "What a NIC that pauses takes with it",
            "pause {pause|once}, switches {watchdog}, streams taken {taken_fraction|.0%}, in theory "
            "{taken_in_theory_fraction|.0%}, hosts {taken_hosts}, goodput {goodput_bps}, of others {others_bps}, "
            "dropped {drops_packets}, stalls {stalls}, longest stalled lane {most_stalled_fraction|.0%}",
            f"taken: below {TAKEN_BELOW:.0%} of its share of a NIC in the last {LAST_PART:.0%} of time; {STALLS.note}",
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
            labels=("", "goodput (Gbit/s)"),
            looks=Looks(8.0, 3.2),
        ),
    ),
)
