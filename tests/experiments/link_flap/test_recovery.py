"""From the tables of a phase to what each cut did: every number here is written down by hand."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from controllers.planning.planner import plan_routes
from controllers.routing import Repair, Routing
from experiments.link_flap.cuts import Cut, Place, choose_targets, crossed_links
from experiments.link_flap.recovery import (
    CutWindow,
    PhaseTables,
    by_cut,
    cut_tables,
    longest_step_s,
    lost_by_flow,
    outlasted,
    parts_s,
    windows,
)
from experiments.link_flap.summary import _blackout_sentence, groups, summarize
from fabric.errors import TrafficError
from fabric.metrics import by_path
from fabric.results import Phase
from fabric.tables import TABLES
from runs.record import summary_as_json
from tests.experiments.declared import undeclared
from topologies.load import load_fabric
from traffic.flows.probes import ProbeFlow
from traffic.storage.client.verification import Verification

FABRIC = load_fabric("fire_flyer_2_small")
CROSSED = crossed_links(FABRIC, plan_routes(FABRIC, Routing()))
TARGET = choose_targets(FABRIC, CROSSED, Place.LEAF_SPINE, 1, 1)[0]
LINK = TARGET.links[0]
PHASE = Phase("reroute_200ms", "reroute", "lanes", 100.0, 110.0, "reroute")
CUTS = (Cut(0, TARGET, 1.0, 0.2), Cut(1, TARGET, 5.0, 0.2))
A, B = (ProbeFlow(FABRIC.computes[0], host) for host in FABRIC.computes[1:3])
PERIOD_S = 0.001


def table(name: str, *rows: dict[str, Any]) -> pd.DataFrame:
    blank = {"float64": math.nan, "int64": 0, "category": "", "bool": True}
    full = [{**{column: blank[kind] for column, kind in TABLES[name].dtypes.items()}, **row} for row in rows]
    return pd.DataFrame(full, columns=list(TABLES[name].columns))


def change(at_s: float, up: bool, causes: str) -> dict[str, Any]:
    times = {"due_s": at_s, "asked_s": at_s, "done_s": at_s + 0.001}
    return {"phase": PHASE.name, "link": str(LINK), "up": up, **times, "causes": causes}


FAILURES = table(
    "failures", change(101.0, False, "0"), change(101.2, True, "0"), change(105.0, False, "1"), change(105.2, True, "1")
)
DOWN = [str(LINK)]


def event(at_s: float, kind: str, **details: Any) -> dict[str, Any]:
    return {"phase": PHASE.name, "at_s": at_s, "kind": kind, "details": json.dumps(details)}


def port(at_s: float, up: bool) -> dict[str, Any]:
    return event(at_s, "port", switch=LINK.a.node.name, port=LINK.a.number, up=up)


CONTROLLER = table(
    "controller",
    event(100.5, "planned", links_down=DOWN),
    event(101.001, "port", switch="z9l99", port=1, up=False),
    port(101.004, False),
    event(101.010, "planned", links_down=["z9l99:1--z9s99:1"]),
    event(101.016, "planned", links_down=DOWN),
    event(101.020, "round", number=1),
    event(101.022, "installed", links_down=DOWN),
    event(101.030, "installed", links_down=["z9l99:1--z9s99:1"]),
    port(101.204, True),
    event(101.216, "planned", links_down=[]),
    event(101.222, "installed", links_down=[]),
    port(105.004, False),
    port(105.204, True),
    event(105.216, "planned", links_down=[]),
)


def lost(flow: ProbeFlow, began_s: float, ended_s: float) -> dict[str, Any]:
    packets = round((ended_s - began_s) / PERIOD_S) - 1
    return {"phase": PHASE.name, "flow": str(flow), "began_s": began_s, "ended_s": ended_s, "lost_packets": packets}


BLACKOUTS = table(
    "blackouts",
    lost(A, 100.2, 100.3),  # Before anything was cut.
    lost(A, 101.0, 101.024),
    lost(A, 101.205, 101.210),  # Of the return.
    lost(B, 104.995, 105.203),  # Sent late, before the cut: counts from the cut.
)


def step(started_s: float, ended_s: float, phase: str = PHASE.name) -> dict[str, Any]:
    return {"phase": phase, "service_level": "hfreduce", "started_s": started_s, "ended_s": ended_s}


# The last is under way when the second cut comes: it is the second's, not the first's.
STEPS = table("steps", step(100.0, 100.9), step(100.9, 101.5), step(101.5, 101.7), step(104.9, 105.9))
OPERATIONS = table(
    "operations",
    {"operation": "read", "started_s": 100.0, "ended_s": 100.9},
    {"operation": "read", "started_s": 101.1, "ended_s": 101.4, "retries": 2},
    {"operation": "write_failed", "started_s": 105.0, "ended_s": 109.0, "retries": 5},
).assign(phase=PHASE.name)


FELT = PhaseTables(FAILURES, CONTROLLER, BLACKOUTS, STEPS, OPERATIONS, undisturbed_step_s=0.2)


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return cut_tables(PHASE, windows(CUTS, FAILURES, PHASE), FELT, {0: [A, B], 1: [B]}, PERIOD_S)


def test_the_controllers_parts_are_aligned_to_their_cut() -> None:
    cuts, _ = tables()
    first, second = (row for _, row in cuts.iterrows())
    assert (first["asked_s"], first["carrier_s"], first["returned_s"]) == pytest.approx((101.0, 101.001, 101.201))
    assert (first["port_s"], first["planned_s"], first["installed_s"]) == (101.004, 101.016, 101.022)
    assert first["packet_s"] == 101.024
    # The second was over before the controller had planned for it: what it planned then was for the whole fabric.
    assert second["port_s"] == 105.004
    assert math.isnan(second["planned_s"])
    assert math.isnan(second["installed_s"])


def test_parts_add_up_to_the_time_from_the_cut_to_the_last_flows_first_packet() -> None:
    parts = parts_s(tables()[0])
    assert len(parts) == 1
    assert parts.iloc[0].tolist() == pytest.approx([0.004, 0.012, 0.006, 0.002, 0.024])


def test_blackouts_are_the_flows_that_cross_and_those_that_lost_some() -> None:
    _, flows = tables()
    found = {(row.cut, row.flow): (row.crosses, row.blackout_s, row.lost_packets) for row in flows.itertuples()}
    assert found == {
        (0, str(A)): (True, pytest.approx(0.023 + 0.004), 23 + 4),
        (0, str(B)): (True, 0.0, 0),
        (1, str(B)): (True, pytest.approx(0.203), 207),
    }


def test_a_step_that_outlasts_its_cuts_window_is_that_cuts_stall() -> None:
    """Left out, the cut that stalled the training longest would be in no median."""
    steps = table("steps", step(100.0, 100.9), step(100.9, 105.4), step(105.4, 105.9))
    felt = PhaseTables(FAILURES, CONTROLLER, BLACKOUTS, steps, OPERATIONS, undisturbed_step_s=0.2)
    cuts, _ = cut_tables(PHASE, windows(CUTS, FAILURES, PHASE), felt, {0: [A, B], 1: [B]}, PERIOD_S)
    assert cuts["stall_s"].tolist() == pytest.approx([4.5 - 0.2, 0.5 - 0.2]), "it counts once"


def test_stalls_and_operations_are_those_of_the_window() -> None:
    cuts, _ = tables()
    assert cuts["stall_s"].tolist() == pytest.approx([0.6 - 0.2, 1.0 - 0.2])
    assert cuts["slowest_read_s"].tolist()[0] == pytest.approx(0.3)
    assert math.isnan(cuts["slowest_read_s"].tolist()[1])
    assert cuts["slowest_write_s"].tolist()[1] == pytest.approx(4.0)
    assert cuts["retries"].tolist() == [2, 5]


def test_a_schedule_that_was_not_played_to_its_end_is_an_error() -> None:
    with pytest.raises(TrafficError, match=r"of 2 cuts that were planned, numbers \[1\] did not begin or did not end"):
        windows(CUTS, FAILURES[:3], PHASE)


def test_a_change_belongs_to_its_cut_whenever_it_is_done() -> None:
    """Two cuts of two links, due at one time: only what caused a change tells them apart."""
    late = [change(101.5, False, "1"), change(101.0, True, "0"), change(101.0, False, "0"), change(103.0, True, "0, 1")]
    first, second = windows(CUTS, table("failures", *late), PHASE)
    assert (first.asked_s, first.returned_s) == (101.0, 103.001)
    assert (second.asked_s, second.returned_s) == (101.5, 103.001)
    assert list(by_cut(table("failures", change(1.0, False, ""), *late))) == [0, 1]


def test_a_blackout_between_two_probes_is_less_than_their_period() -> None:
    cuts, flows = tables()
    found = list(groups(cuts, flows.assign(blackout_s=0.0)))
    assert "for less than 5 ms (reroute): medians of 3, less than 5 ms at most" in _blackout_sentence(
        ["reroute"], found, 0.005
    )


class FakeSession:
    """A run with two phases."""

    def __init__(self) -> None:
        calm = Phase("undisturbed", "nothing is cut", "lanes", 0.0, 10.0, "reroute")
        self.phases = [type("Outcome", (), {"phase": phase})() for phase in (calm, PHASE)]
        cuts, flows = tables()
        calm_steps = table("steps", step(0.0, 0.2, "undisturbed"), step(0.2, 0.5, "undisturbed"))
        self._tables = {"cuts": cuts, "cut_flows": flows, "steps": pd.concat([calm_steps, STEPS])}
        self._tables |= {"operations": OPERATIONS}

    def table(self, name: str) -> pd.DataFrame:
        return self._tables[name] if name in self._tables else TABLES[name].empty()


def test_the_summary_says_blackouts_parts_stalls_and_losses() -> None:
    summary = summarize(
        FakeSession(), {"reroute": Routing(repair=Repair.REROUTE)}, PERIOD_S, Verification(7, ("one",), ("two",))
    )
    metrics = by_path(summary["metrics"])
    assert undeclared("link_flap", summary["metrics"]) == []
    of_storage = {one.name for one in summary["metrics"] if one.job == "storage"}
    assert of_storage >= {"leaf_spine.200ms.slowest_read_s", "leaf_spine.200ms.retries"}
    assert metrics["reroute.leaf_spine.200ms.cuts"] == 2
    assert metrics["reroute.leaf_spine.200ms.crossing_flows"] == 3
    assert metrics["reroute.leaf_spine.200ms.blackout_max_s"] == pytest.approx(0.203)
    assert metrics["reroute.leaf_spine.200ms.stall_max_s"] == pytest.approx(0.8)
    assert metrics["reroute.repair.sum_p50_s"] == pytest.approx(0.024)
    assert metrics["undisturbed.stall_s"] == pytest.approx(0.05)
    assert summary["acknowledged_writes"] == {"checked": 7, "lost": 1, "out_of_reach": 1}
    assert "Of 7 acknowledged writes 1 were lost. 1 were unreachable." in summary["answer"]
    blackouts = "A cut between switches blacks a flow out for 27 ms (reroute): medians of 3, 203 ms at most. "
    assert summary["answer"].startswith(blackouts)
    stalls = "A step of training stalls for 600 ms behind blackouts below TCP's least timeout of 200 ms (medians). "
    assert stalls in summary["answer"]
    titles = [described.title for described in summary["tables"]]
    assert "What TCP adds to a blackout" in titles
    (failed,) = (one for one in summary["tables"] if one.title == "Failures of jobs and operations")
    assert failed.words == [["reroute", "2", "0", "1", "7"]]
    json.dumps(summary_as_json(summary), allow_nan=False)


# What outlasts a window -----------------------------------------------------------------------------------------------


def around(number: int, at_s: float, duration_s: float, ends_s: float, **more: Any) -> CutWindow:
    return CutWindow(Cut(number, TARGET, at_s, duration_s), at_s, at_s, at_s + duration_s, ends_s, **more)


HOST_CUT = around(0, 10.0, 3.1, 15.6, calm_from_s=-math.inf)
LEAF_CUT = around(1, 15.6, 3.1, 21.2, calm_from_s=13.1, is_last=True)


def test_what_a_cut_stalls_is_its_own_however_late_that_ends() -> None:
    """TCP tries again 0.2, 0.6, 1.4, 3.0, 6.2 s after a loss: a link away for 3.1 s stalls a step for 6.2 s."""
    steps = pd.DataFrame({"started_s": [9.95, 10.001, 16.21], "ended_s": [10.001, 16.2, 16.26]})
    assert longest_step_s(HOST_CUT, steps) == pytest.approx(6.199)
    assert longest_step_s(LEAF_CUT, steps) == pytest.approx(0.05)
    blackouts = pd.DataFrame({"flow": ["f"], "began_s": [10.0], "ended_s": [15.9], "lost_packets": [1180]})
    (lost,) = lost_by_flow(HOST_CUT, blackouts, 0.005).values()
    assert lost.blackout_s == pytest.approx(5.895)
    assert lost.lost_packets == 1180
    assert lost_by_flow(LEAF_CUT, blackouts, 0.005) == {}


def test_what_is_long_overdue_when_the_next_is_cut_waits_for_the_one_before() -> None:
    """A read that began after the link was back, on a connection that waits twice as long after each try."""
    reads = pd.DataFrame({"started_s": [13.2, 15.5], "ended_s": [17.7, 15.9]}).assign(operation="read", retries=0)
    felt = replace(FELT, operations=reads, longest_s={"read": 0.2})
    host, leaf = (cut_tables(PHASE, [one], felt, {0: [], 1: []}, PERIOD_S)[0] for one in (HOST_CUT, LEAF_CUT))
    assert host["slowest_read_s"].tolist() == [pytest.approx(4.5)]
    assert leaf["slowest_read_s"].tolist() == [pytest.approx(0.4)]


def test_what_outlasts_a_window_is_told_with_its_cut() -> None:
    steps = table("steps", step(9.95, 10.001), step(10.001, 16.2), step(16.21, 16.26))
    blackouts = table("blackouts", lost(A, 10.0, 15.9))
    felt = PhaseTables(FAILURES, CONTROLLER, blackouts, steps, OPERATIONS, undisturbed_step_s=0.05)
    (found,) = outlasted([HOST_CUT, LEAF_CUT], felt, 0.005)
    assert (found.window.cut.number, found.what) == (0, "a step")
    assert found.longer_s == pytest.approx(0.6)
    usual = replace(felt, steps=table("steps", step(10.0, 14.0), step(14.0, 16.0)), blackouts=BLACKOUTS)
    assert list(outlasted([HOST_CUT, LEAF_CUT], usual, 0.005)) == [], "the second is the next cut's"


@pytest.mark.parametrize("seed", range(50))
def test_each_row_is_of_one_cut(seed: int) -> None:
    rng = random.Random(seed)
    at_s = 5.0
    found: list[CutWindow] = []
    for number in range(6):
        duration_s, gap_s = rng.uniform(0.01, 4), rng.uniform(0.01, 3)
        calm_from_s = found[-1].returned_s if found else -math.inf
        at_s = found[-1].ends_s if found else at_s
        ends_s = at_s + duration_s + gap_s
        found.append(around(number, at_s, duration_s, ends_s, calm_from_s=calm_from_s, is_last=number == 5))
    began = [rng.uniform(0, at_s) for _ in range(300)]
    rows = pd.DataFrame({"started_s": began, "ended_s": [one + rng.expovariate(1) for one in began]})
    for calm_s in (math.inf, 0.5):
        owned = np.array([rows.index.isin(window.of(rows, calm_s=calm_s).index) for window in found])
        assert (owned.sum(axis=0) == (rows["ended_s"] > found[0].asked_s)).all()
