"""The results of runs with cuts: tables, metrics and a sentence, from the rows of a session."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from controllers.routing import Routing
from experiments.link_flap.cuts import Place
from experiments.link_flap.measures import REPAIR_MEDIAN, REPAIR_MOST
from experiments.link_flap.recovery import PARTS, Outlasted, parts_s
from fabric.metrics import Metric, by_path, metric_path, metrics_of
from fabric.model.lanes import ServiceLevel
from fabric.percentiles import nearest_ranks
from fabric.records.cells import Row, count_of, measured, quantity
from fabric.records.notes import LEAST_FOR_MEDIAN, FewBehindMedians, FewValues, Note, OutlastedWindows
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.units import exact, format_time
from traffic.storage.client.verification import Verification

UNDISTURBED = "undisturbed"
LEAST_TIMEOUT_S = 0.2
"""TCP's least retransmission timeout in Linux (TCP_RTO_MIN)."""


class _Outcome(Protocol):
    @property
    def phase(self) -> Phase: ...


class Rows(Protocol):
    """What is needed of a session."""

    @property
    def phases(self) -> Sequence[_Outcome]:
        """The phases played."""

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table."""


_OF_STORAGE = ("slowest_read_s", "slowest_write_s", "retries")


@dataclass(frozen=True)
class CutGroup:
    """The cuts of one policy, place and duration, with the crossing flows' rows."""

    routing: str
    place: Place
    duration_s: float
    cuts: pd.DataFrame
    flows: pd.DataFrame

    @property
    def label(self) -> str:
        """How metrics call it among the others of its routing."""
        return f"{self.place.value}.{exact(round(self.duration_s * 1e3, 9))}ms"

    def metrics(self) -> Iterator[Metric]:
        """Yield its numbers, those of all groups of a routing in one phase."""
        for name, value in self.numbers().items():
            job = ServiceLevel.STORAGE.label if name in _OF_STORAGE else ""
            yield Metric(self.routing, job, metric_path(self.label, name), value, is_named_by_job=False)

    def numbers(self) -> dict[str, float]:
        """Return its numbers by name; what nothing measured has none."""
        blackouts, stalls = self.flows["blackout_s"], self.cuts["stall_s"].dropna()
        found = {
            "cuts": float(len(self.cuts)),
            "crossing_flows": float(len(self.flows)),
            "blackout_p50_s": blackouts.median(),
            "blackout_p90_s": nearest_ranks(blackouts, 90)[0] if len(blackouts) else math.nan,
            "blackout_max_s": blackouts.max(),
            "stall_p50_s": stalls.median(),
            "stall_max_s": stalls.max(),
            "slowest_read_s": self.cuts["slowest_read_s"].max(),
            "slowest_write_s": self.cuts["slowest_write_s"].max(),
            "retries": float(self.cuts["retries"].sum()),
        }
        return {name: float(value) for name, value in found.items() if not math.isnan(value)}


def groups(cuts: pd.DataFrame, cut_flows: pd.DataFrame) -> Iterator[CutGroup]:
    """Yield the cuts by policy, place and duration, in the order in which they were played."""
    crossing = cut_flows[cut_flows["crosses"].astype(bool)]
    for (routing, place, duration_s), rows in cuts.groupby(
        ["routing", "place", "duration_s"], sort=False, observed=True
    ):
        flows = crossing[crossing["phase"].isin(rows["phase"]) & (crossing["place"] == place)]
        yield CutGroup(str(routing), Place(str(place)), float(str(duration_s)), rows, flows)


def summarize(
    session: Rows, policies: Mapping[str, Routing], period_s: float, written: Verification | None
) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run of ``link_flap``."""
    cuts = session.table("cuts")
    found = list(groups(cuts, session.table("cut_flows")))
    measured = [metric for group in found for metric in group.metrics()]
    measured += [*metrics_of(UNDISTURBED, "", _calm(session.table("steps"))), *repair_metrics(cuts)]
    metrics = by_path(measured)
    return {
        "title": "Link flap: what a cut costs, by repair policy",
        "answer": _answer(found, policies, period_s, written),
        "metrics": measured,
        "tables": [
            _felt_table(found, metrics, period_s),
            *_parts_table(cuts),
            *_tcp_table(found),
            failed_table(session, Counter(map(str, cuts["routing"])), written),
        ],
        "probe_period_s": period_s,
        "acknowledged_writes": (written or Verification()).counts,
    }


def few_cuts_notes(cuts: pd.DataFrame) -> list[Note]:
    """Return the note on medians over few cuts of a place, given the table of these names; none if they are enough."""
    counts = cuts.groupby(["phase", "place"], observed=True).size()
    few = counts[counts < LEAST_FOR_MEDIAN]
    if few.empty:
        return []
    phases = tuple(dict.fromkeys(map(str, few.index.get_level_values("phase"))))
    return [FewBehindMedians((FewValues("a place", "cuts", int(few.min()), int(few.max()), phases),))]


def outlasting_notes(longer: Sequence[Outlasted], cuts: int) -> list[Note]:
    """Return the note on cuts whose load or loss outlasts their window, of so many cuts; none if there is none."""
    if not longer:
        return []
    worst = max(longer, key=lambda one: one.longer_s)
    target = worst.window.cut.target
    name = f"{target.place.words} {target.name}, {format_time(worst.window.cut.duration_s)}"
    return [OutlastedWindows(len(longer), cuts, worst.what, name, worst.longer_s)]


def _calm(steps: pd.DataFrame) -> dict[str, float]:
    """Return the median step of the undisturbed phase, and by how much its longest exceeds it: less is noise."""
    calm = steps[steps["phase"] == UNDISTURBED]
    taken = calm["ended_s"] - calm["started_s"]
    if not len(taken):
        return {}
    median = float(taken.median())
    return {"step_s": median, "stall_s": float(taken.max()) - median}


def repair_metrics(cuts: pd.DataFrame) -> Iterator[Metric]:
    """Yield the median and the worst of each part of the controller's repairs and of their sum, by policy."""
    for routing, rows in cuts.groupby("routing", sort=False, observed=True):
        parts = parts_s(rows)
        for name in [*PARTS.values(), "sum"] if len(parts) else ():
            part = name.replace(" ", "_")
            yield Metric(str(routing), "", REPAIR_MEDIAN.of(part), float(parts[name].median()))
            yield Metric(str(routing), "", REPAIR_MOST.of(part), float(parts[name].max()))
        carrier = rows["carrier_s"] - rows["asked_s"]
        yield Metric(str(routing), "", "carrier_lost_max_s", float(carrier.max()))


def time_text(value: float) -> str:
    """Return a time as tables show it; what is not known as a dash."""
    if math.isnan(value):
        return "-"
    return f"-{format_time(-value)}" if value < 0 else format_time(value)


def _felt_table(found: Sequence[CutGroup], metrics: Mapping[str, float], period_s: float) -> SummaryTable:
    names = ("blackout_p50_s", "blackout_p90_s", "blackout_max_s", "stall_p50_s", "stall_max_s")
    rows: list[Row] = []
    for group in found:
        numbers = group.numbers()
        times = [measured(numbers, name) for name in (*names, "slowest_read_s", "slowest_write_s")]
        sizes = [
            quantity(group.duration_s, "time"),
            measured(numbers, "cuts", ".0f"),
            measured(numbers, "crossing_flows", ".0f"),
        ]
        rows.append([group.routing, group.place.words, *sizes, *times, measured(numbers, "retries", ".0f")])
    noise = metrics.get("undisturbed.stall_s")
    calm = "" if noise is None else f"without cuts the longest step exceeds the median by {time_text(noise)}"
    return SummaryTable(
        title="Effects of a cut",
        columns=[
            "policy", "place", "cut for", "cuts", "flow-cuts", "blackout p50", "p90", "max", "step stall p50", "max",
            "slowest read", "write", "retries",
        ],
        rows=rows,
        note=(
            f"blackout: of probe flows that cross the cut by the plan, to {format_time(period_s)}; stall: the longest "
            "step under way when it was cut, or since then until the next cut, less the undisturbed median",
            calm,
            "no repair helps a host with one link",
        ),
    )  # fmt: skip


def _parts_table(cuts: pd.DataFrame) -> Iterator[SummaryTable]:
    """Yield the table of the parts of repairs by the controller, if there were any."""
    rows: list[Row] = []
    for (routing, place), found in cuts.groupby(["routing", "place"], sort=False, observed=True):
        parts = parts_s(found)
        if len(parts):
            carrier = (found["carrier_s"] - found["asked_s"]).median()
            medians = [quantity(parts[name].median(), "time") for name in (*PARTS.values(), "sum")]
            place_words = Place(str(place)).words
            rows.append(
                [
                    str(routing),
                    place_words,
                    (count_of(len(parts)), " of ", count_of(len(found))),
                    quantity(carrier, "time"),
                    *medians,
                ]
            )
    if rows:
        yield SummaryTable(
            title="From the cut to the first packet, if the controller repaired it before the link came back",
            columns=[
                "policy", "place", "cuts", "(carrier gone at both ends)", "to port status", "to plan",
                "to rules in place", "to all flows through", "sum",
            ],
            rows=rows,
            note="medians over cuts, each part by itself; negative: packets arrived before the last switch had "
            "confirmed its rules, as always where switches repair locally",
        )  # fmt: skip


def _tcp_table(found: Sequence[CutGroup]) -> Iterator[SummaryTable]:
    """Yield the table that sets what the network was away against what TCP made of it, if anything played."""
    rows: list[Row] = []
    for group in found:
        away_s = group.flows.groupby(["phase", "cut"], observed=True)["blackout_s"].max().median()
        stall_s = group.cuts["stall_s"].dropna().median()
        if not math.isnan(stall_s):
            times = (quantity(one, "time") for one in (group.duration_s, away_s, stall_s, stall_s - away_s))
            rows.append([group.routing, group.place.words, *times])
    if rows:
        yield SummaryTable(
            title="What TCP adds to a blackout",
            columns=["policy", "place", "cut for", "network away", "step stalls for", "difference"],
            rows=rows,
            note="medians over cuts, of the worst crossing flow; TCP retransmits after 200 ms at the earliest, then "
            "after twice as long each time",
        )


def failed_table(session: Rows, cuts: Mapping[str, int], written: Verification | None) -> SummaryTable:
    """Return the table of what failed for good, by policy."""
    restarts, operations = session.table("restarts"), session.table("operations")
    rows: list[Row] = []
    for routing in dict.fromkeys(outcome.phase.routing for outcome in session.phases):
        phases = [outcome.phase.name for outcome in session.phases if outcome.phase.routing == routing]
        inside = operations[operations["phase"].isin(phases)]
        given_up = inside["operation"].isin(["read_failed", "write_failed"]).sum()
        counts = [len(restarts[restarts["phase"].isin(phases)]), given_up, inside["retries"].sum()]
        rows.append([routing, count_of(cuts.get(routing, 0)), *(count_of(count) for count in counts)])
    lost = f"{len(written.lost)} of {written.checked}" if written else "none were made"
    if written is not None and written.out_of_reach:
        lost += f" ({len(written.out_of_reach)} unreachable)"
    return SummaryTable(
        title="Failures of jobs and operations",
        columns=["policy", "cuts", "jobs restarted", "storage operations given up", "storage retries"],
        rows=rows,
        note=(f"acknowledged writes lost: {lost}", "a wrong sum of an allreduce would have ended the run"),
    )


def _answer(
    found: Sequence[CutGroup], policies: Mapping[str, Routing], period_s: float, written: Verification | None
) -> str:
    """Return the findings in at most three sentences."""
    sentences = [_blackout_sentence(policies, found, period_s), _stall_sentence(found)]
    if written is not None:
        sentences.append(written.sentence)
    return " ".join(sentence for sentence in sentences if sentence)


def _repairable(found: Sequence[CutGroup], routing: str) -> list[CutGroup]:
    """Return a policy's cuts of what there is a way round."""
    return [group for group in found if group.routing == routing and group.place is not Place.HOST_LINK]


def _blackout_sentence(policies: Iterable[str], found: Sequence[CutGroup], period_s: float) -> str:
    """Return for how long cuts black flows out, by policy. A blackout is known to the period of probes."""
    medians, count, worst_s = [], 0, 0.0
    for routing in policies:
        flows = [group.flows["blackout_s"] for group in _repairable(found, routing) if len(group.flows)]
        if flows:
            together = pd.concat(flows)
            count, worst_s = max(count, len(together)), max(worst_s, float(together.max()))
            medians.append(f"{_blackout_text(float(together.median()), period_s)} ({routing})")
    if not medians:
        return ""
    longest = _blackout_text(worst_s, period_s)
    return f"A cut between switches blacks a flow out for {', '.join(medians)}: medians of {count}, {longest} at most."


def _blackout_text(value_s: float, period_s: float) -> str:
    return f"less than {format_time(period_s)}" if value_s < period_s else format_time(value_s)


def _stall_sentence(found: Sequence[CutGroup]) -> str:
    """Return what steps lose to cuts: to those that outlast TCP's least timeout, and to those that do not."""
    by_kind: dict[bool, list[pd.Series[float]]] = {True: [], False: []}
    for group in found:
        away_s = group.flows.groupby(["phase", "cut"], observed=True)["blackout_s"].max()
        by_kind[bool(away_s.median() < LEAST_TIMEOUT_S)].append(group.cuts["stall_s"].dropna())
    least = time_text(LEAST_TIMEOUT_S)
    words = {True: f"behind blackouts below TCP's least timeout of {least}", False: "behind longer ones"}
    parts = [
        f"{time_text(float(together.median()))} {words[kind]}"
        for kind, stalls in by_kind.items()
        if stalls and len(together := pd.concat(stalls))
    ]
    return f"A step of training stalls for {' and '.join(parts)} (medians)." if parts else ""
