"""What tests of either engine demand of what ``failing_programs.py`` saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.root.failing_programs import ESTABLISHED, FOR_S

Seen = Mapping[str, Any]


def peers_hear_nothing(seen: Seen, name: str) -> None:
    """No connection to the host changed its state, nor was one reset, as long as it was silent or stopped; before that
    there were some, and afterwards the collective went on over them."""
    found = seen[name]
    print(name, found["tcp"], found["changes"])
    states = [found["tcp"][when]["states"] for when in ("before", "early", "late", "after")]
    assert len(states[0]) > 0
    assert set(states[0]) == {ESTABLISHED}
    assert states == [states[0]] * 4
    assert len({found["tcp"][when]["resets"] for when in ("before", "early", "late", "after")}) == 1
    assert found["in the middle"] == 0
    assert found["after"] > 0


def the_dead_are_missed_once_their_host_is_up(seen: Seen) -> None:
    """As long as it is silent nobody is told; then its peers' connections end, and so does the collective, which is its
    own result and no fault of the run."""
    found = seen["dead"]
    print(found["tcp"], found["changes"])
    assert found["tcp"]["late"] == found["tcp"]["before"]
    assert ESTABLISHED not in found["tcp"]["after"]["states"]
    (failed,) = {row["failed"] for row in seen["jobs"] if row["phase"] == "dead" and row["job"] == "hfreduce"}
    assert "HFReduce" in failed
    assert failed.endswith("killed (failures.0)")
    assert not [row for row in seen["jobs"] if row["failed"] and row is not None and row["job"] != "hfreduce"]


def chains_survive_a_killed_service(seen: Seen) -> None:
    found = seen["killed"]["operations"]
    print(found)
    assert seen["table version"] == 2
    assert set(found["read"]) >= {"st000"}
    assert "st001" not in {server for kind in ("read", "write") for server in found.get(kind, {})}
    print(seen["lost"], seen["checked"])
    assert (seen["lost"], seen["checked"] > 0) == ([], True)


def rot_is_told_and_read_elsewhere(seen: Seen) -> None:
    rows = [row for row in seen["rows"] if row["kind"] == "disk"]
    assert {row["state"] for row in rows} == {"2 chunks rotten"}
    assert len({row["target"] for row in rows}) == len(rows), "a row per disk"
    assert all(row["detail"].count("chunk ") == 2 for row in rows)
    assert "read_failed" not in seen["rotten"]["operations"]


def rotten_copies_are_counted(seen: Seen) -> None:
    """Those that somebody reads in the phase."""
    assert seen["counts"].get("wrong_copies", 0) > 0


def rows_tell_it(seen: Seen, late_s: float) -> None:
    rows = [row for row in seen["rows"] if row["phase"] == "silent"]
    kinds = [(row["kind"], row["state"]) for row in rows]
    assert sorted(set(kinds)) == [("link", "down"), ("link", "whole"), ("process", "stopped"), ("process", "whole")]
    began, ended = (next(row for row in rows if row["state"] == state) for state in ("stopped", "whole"))
    assert {row["causes"] for row in rows} == {"0"}
    stopped = [row for row in rows if row["state"] == "stopped"]
    assert "hfreduce" in {row["jobs"] for row in stopped}
    assert all(FOR_S - late_s < row["ended_s"] - row["done_s"] < FOR_S + late_s for row in stopped)
    assert began["due_s"] < ended["due_s"]
    assert max(row["done_s"] - row["due_s"] for row in rows) < late_s
    for name in ("failed_fraction", "failures_missed", "udp_dropped", "unaccounted_packets_fraction"):
        assert seen["checks"][name][0] == "faithful", seen["checks"][name]
