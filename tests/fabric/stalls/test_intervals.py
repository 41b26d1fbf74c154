from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabric.stalls.congestion_trees import RootKind
from fabric.stalls.intervals import BLOCKED_SHARE, blocked_hosts, moments, stalled_frame, stalled_time, trees_frame
from fabric.tables import TABLES
from tests.fabric.stalls.chain import FULL, HELD, HOSTS, PHASE, WIRES, lane, seen, tables


def test_stalled_time_is_what_counters_grew_by_over_the_interval() -> None:
    time, _ = seen([FULL, {"s:3": (0.25, 0.0)}], [HELD, HELD, {}])
    still = time.place_of_lane[lane("s:3")]
    assert time.stalled[:, still] == pytest.approx([0.3, 0.25])
    assert time.stalls[:, still].tolist() == [300, 250]
    assert time.busy[:, time.place_of_port["s:3"]] == pytest.approx([0.6, 0.0])
    assert time.intervals_s.tolist() == [1.0, 1.0]


def test_a_counter_that_began_anew_counts_from_nothing() -> None:
    stalls, ports, _ = tables([FULL, FULL], [{}, {}, {}])
    last = (stalls["at_s"] == 12.0) & (stalls["port"] == "s:3")
    stalls.loc[last, "stalled_ns"] = 200_000_000
    time = stalled_time(stalls, ports, WIRES, PHASE)
    assert time is not None
    assert time.stalled[:, time.place_of_lane[lane("s:3")]] == pytest.approx([0.3, 0.2])


def test_other_phases_and_phases_without_lossless_lanes_tell_nothing() -> None:
    stalls, ports, _ = tables([FULL], [HELD, HELD])
    assert stalled_time(stalls, ports, WIRES, replace(PHASE, started_s=100.0, ended_s=110.0)) is None
    assert stalled_time(TABLES["stalls"].empty(), ports, WIRES, PHASE) is None
    assert stalled_time(stalls, TABLES["ports"].empty(), WIRES, PHASE) is None


def test_a_sample_that_tells_not_of_all_is_left_out() -> None:
    stalls, ports, _ = tables([FULL, FULL], [{}, {}, {}])
    time = stalled_time(stalls.drop(index=len(WIRES) + 1), ports, WIRES, PHASE)
    assert time is not None
    assert time.sampled_s.tolist() == [10.0, 12.0]
    assert time.stalled[:, time.place_of_lane[lane("s:3")]] == pytest.approx([0.3])


def test_a_full_port_is_the_root_and_what_passes_through_beside_it_is_none() -> None:
    _, (moment,) = seen([FULL], [HELD, HELD])
    (tree,) = moment.trees
    assert (tree.root, tree.kind) == (lane("t:1"), RootKind.BUSY)
    assert dict(tree.depth_of) == {lane("t:1"): 0, lane("s:3"): 1, lane("a:0"): 2, lane("b:0"): 2}
    assert tree.waits[lane("s:3")] == {lane("t:1"): 3_900}
    assert blocked_hosts(tree, HOSTS) == {"a", "b"}
    assert moment.root_ports == {"t:1"}


def test_a_port_that_holds_much_but_sent_less_than_the_lane_stood_still_is_no_root() -> None:
    held = {("t:3", "t:1"): 2_000, ("t:3", "t:2"): 2_000}
    _, (moment,) = seen([FULL], [held, held])
    roots_of = {one: [tree.root for tree in trees] for one, trees in moment.trees_of.items()}
    assert roots_of[lane("s:3")] == [lane("t:1")]  # Had for 0.3 of the time no room; t:2 sent for 0.1 of it.


def test_what_waits_for_ports_that_are_not_told_of_is_the_root() -> None:
    """As a figure of the network sees nodes with an inside, whose ports are in the tables, too."""
    known = {port: wire for port, wire in WIRES.items() if port.startswith(("a", "b", "s", "t:3"))}
    stalls, ports, waits = tables([FULL], [HELD, HELD])
    time = stalled_time(stalls, ports, known, PHASE)
    assert time is not None
    assert {one.port for one in time.lanes} == set(time.ports) == known.keys()
    (moment,) = moments(time, waits, known)
    assert [tree.root for tree in moment.trees] == [lane("s:3")]


def test_ports_that_were_full_by_turns_are_roots_both() -> None:
    turns = {"s:3": (0.8, 0.2), "t:1": (0.0, 0.5), "t:2": (0.0, 0.5)}
    _, (moment,) = seen([turns], [{("t:3", "t:1"): 4_000}, {("t:3", "t:2"): 4_000}])
    assert [tree.root for tree in moment.trees] == [lane("t:1"), lane("t:2")]
    assert [tree.waiting_bytes for tree in moment.trees] == [2_000, 2_000]


def test_what_was_held_at_either_end_of_the_interval_counts() -> None:
    for held in ([HELD, {}], [{}, HELD]):
        _, (moment,) = seen([FULL], held)
        assert [(tree.root.port, tree.depth) for tree in moment.trees] == [("t:1", 2)]


def test_a_lane_that_stood_still_for_no_more_than_the_limit_is_not_blocked() -> None:
    for share, roots in ((BLOCKED_SHARE - 0.01, []), (BLOCKED_SHARE + 0.01, ["t:1"])):
        _, (moment,) = seen([FULL | {"s:3": (share, 0.9), "a:0": (0, 0), "b:0": (0, 0)}], [HELD, HELD])
        assert [tree.root.port for tree in moment.trees] == roots


def test_lanes_that_hold_each_other_are_told_as_a_cycle() -> None:
    ring = {"s:3": (1.0, 0.0), "t:3": (1.0, 0.0)}
    _, (moment,) = seen([ring], [{("t:3", "t:3"): 10, ("s:3", "s:3"): 10}] * 2)
    (tree,) = moment.trees
    assert (tree.kind, tree.root_ports) == (RootKind.CYCLE, frozenset(("s:3", "t:3")))


def test_trees_are_rows_with_their_size_depth_and_hosts() -> None:
    _, found = seen([FULL, {}, FULL], [HELD, HELD, HELD, HELD])
    frame = trees_frame(found, "p", HOSTS)
    assert list(frame) == list(TABLES["congestion_trees"].columns)
    assert frame.iloc[0].tolist() == ["p", 11.0, 1.0, "t:1", "lossless", "busy", 4, 2, 2, 11_900]
    assert frame["at_s"].tolist() == [11.0, 13.0]


def test_stalled_time_of_a_phase_is_a_row_a_lane() -> None:
    time, _ = seen([FULL, {"s:3": (0.1, 0.0)}], [{}, {}, {}])
    frame = stalled_frame(time, "p", WIRES).set_index("port")
    assert list(frame.reset_index()[list(TABLES["stalled_time"].columns)]) == list(TABLES["stalled_time"].columns)
    row = frame.loc["s:3"]
    assert (row["peer"], row["lane"], row["stalls"]) == ("t:3", "lossless", 400)
    assert row[["stalled_s", "stalled_fraction", "worst_fraction"]].to_numpy(dtype=float) == pytest.approx(
        np.array([0.4, 0.2, 0.3])
    )
