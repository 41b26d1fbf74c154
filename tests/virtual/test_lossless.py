"""Lossless queueing in virtual time: head_of_line in all queueings, and a fabric that is believed in each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments import load
from tests.guest_scripts import run_module
from tests.virtual.command import TINY, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
PLAYED_S = 0.001
"""How long streams are to play in FAST: 500 ms unmeasured and 500 ms measured, times the scale."""
FAST = ("--set", "topology=head_of_line_200g", "--set", "time_scale=0.001", "--set", "repeats=1")


@pytest.fixture(scope="module")
def played(shared_command: VirtualCommand) -> Path:
    """The directory of a short run at true rates, with uplinks of 800 Gbit/s."""
    done = shared_command.run("run", "head_of_line", *FAST, "--out", "result", "--no-figures")
    assert done.returncode == 0, done.stdout + done.stderr
    return shared_command.here / "result"


def read(directory: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / name).read_text())
    return found


def test_a_flow_is_blocked_by_a_port_that_it_does_not_use_in_one_lossless_lane_alone(played: Path) -> None:
    metrics = read(played, "summary.json")["metrics"]
    victim = {name.split("_1.")[0]: value for name, value in metrics.items() if name.endswith(".victim_bps")}
    print(victim)
    assert victim.pop("lossless") < 0.6 * 200e9
    assert all(value > 0.9 * 200e9 for value in victim.values()), victim


def test_nothing_is_dropped_by_credits_and_every_packet_is_accounted_for(played: Path) -> None:
    conservation = read(played, "manifest.json")["conservation"]
    for phase in ("lossless_1", "lossless_lanes_1"):
        assert conservation[phase]["dropped_by_queues"] == 0
        assert conservation[phase]["dropped_by_cause"] == {}
        assert conservation[phase]["retransmissions"] == 0
    assert all(one["unaccounted_bytes"] == 0 and not one["unaccounted"] for one in conservation.values())
    assert conservation["shared_1"]["dropped_by_queues"] > 0


def test_links_keep_their_rate_and_lanes_their_shares_in_every_queueing(played: Path) -> None:
    calibration = read(played, "manifest.json")["calibration"]
    assert set(calibration) == {"shared", "lanes", "lossless", "lossless_lanes"}
    for found in calibration.values():
        for one in found:
            assert abs(one["rate_error"]) < 0.003, one
            assert one["worst_share_error"] < 0.01, one


def test_input_buffers_hold_no_more_than_the_credits(played: Path) -> None:
    stalls = pd.read_parquet(played / "samples" / "stalls.parquet")
    assert 32 * 1024 < stalls["most_buffered_bytes"].max() <= 64 * 1024
    assert stalls["stalled_ns"].max() > 0


def test_the_way_to_the_full_port_waits_for_it(played: Path) -> None:
    """In one lane, what came over the uplinks to the spine waits in its port to the leaf of the full host."""
    waits = pd.read_parquet(played / "samples" / "waits.parquet")
    at_spine = waits[waits["port"].str.startswith("z0s00:") & (waits["lane"] == "lossless")]
    assert set(at_spine["input_port"]) >= {"z0s00:1", "z0s00:2"}
    assert set(at_spine["port"]) == {"z0s00:3"}


def test_every_kind_of_queue_passes_the_same_flow_on_and_says_at_what_cost() -> None:
    words = run_module("tests.virtual.queueing_cost")
    (line,) = [line for line in words.splitlines() if line.startswith("result ")]
    found = json.loads(line.removeprefix("result "))
    print(found)
    assert len(found) == 3
    for one in found.values():
        assert 0.95e9 < one["goodput_bps"] < 0.99e9  # Of frames of 4,214 B, 4,148 B are payload.
        assert one["hops_per_wall_s"] > 0  # How much, benchmark `queueings` says: here others compute, too.


def samples(played: Path, name: str, phase: str) -> pd.DataFrame:
    table = pd.read_parquet(played / "samples" / f"{name}.parquet")
    return table[table["phase"] == phase]


@pytest.mark.parametrize(("phase", "hosts"), [("lossless_1", 4), ("lossless_lanes_1", 3)])
def test_the_full_port_is_the_root_of_a_tree_that_reaches_the_hosts(played: Path, phase: str, hosts: int) -> None:
    (full,) = (link["b"] for link in read(played, "fabric.json")["links"] if link["a"] == "z0h002:0")
    trees = samples(played, "congestion_trees", phase)
    of_full = trees[trees["root_port"] == full]
    share = of_full["interval_s"].sum() / trees.drop_duplicates("at_s")["interval_s"].sum()
    print(trees.groupby(["root_port", "root_lane", "kind"], observed=True)["interval_s"].sum(), share)
    assert share > 0.9
    assert set(of_full["kind"]) == {"busy"}
    assert of_full[["depth", "hosts", "ports"]].max().tolist() == [3, hosts, hosts + 4]


def test_the_victim_is_found_by_itself_in_one_lane_and_nobody_in_lanes(played: Path) -> None:
    found = {phase: samples(played, "flow_stalls", phase) for phase in ("lossless_1", "lossless_lanes_1")}
    assert [len(flows) for flows in found.values()] == [4, 4]
    (victim,) = found["lossless_1"][found["lossless_1"]["victim"]].to_dict("records")
    print(victim)
    assert (victim["host"], victim["peer"], victim["root_port"]) == ("z0h003", "z0h005", "z0l02:1")
    # What its way left unused is what it lacks to its rate in lanes of its own.
    metrics = read(played, "summary.json")["metrics"]
    lacking = metrics["lossless_lanes_1.victim_bps"] - metrics["lossless_1.victim_bps"]
    assert victim["idle_bps"] == pytest.approx(lacking, rel=0.1)
    assert not found["lossless_lanes_1"]["victim"].any()
    assert (metrics["lossless_1.victims"], metrics["lossless_lanes_1.victims"]) == (1, 0)


def test_stalled_time_of_every_link_and_lane_is_told(played: Path) -> None:
    """In one lane each of four flows has a third of a link: NICs stand still two thirds of the time, uplinks longer."""
    stalled_s = samples(played, "stalled_time", "lossless_1").set_index(["port", "lane"])["stalled_s"]
    metrics = read(played, "summary.json")["metrics"]
    fraction = stalled_s["z0h003:0", "lossless"] / PLAYED_S  # What waits in sockets then comes after that.
    assert fraction == pytest.approx(metrics["lossless_1.victim_stalled_fraction"], abs=0.05)
    assert fraction > 0.5
    # How long what waits in sockets takes after the phase hangs on TCP's windows, and is in both.
    assert 1.2 < stalled_s["z0l00:3", "lossless"] / stalled_s["z0h003:0", "lossless"] < 1.35
    assert stalled_s.xs("management", level="lane").max() == 0
    for name in ("congestion_trees", "tree_sizes", "stalled_time"):
        assert load(played).figure(name).axes, name


@pytest.mark.parametrize("queueing", [pytest.param("lossless", marks=pytest.mark.soak), "lossless_lanes"])
def test_a_packet_goes_where_the_plan_says(command: VirtualCommand, queueing: str) -> None:
    arguments = ("z0h001", "z1h002", "--level", "nccl", "--queueing", queueing, "--probe", "--json")
    done = command.run("path", TINY, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert {hop["lane"] for hop in answer["seen"]} == {"nccl" if queueing == "lossless_lanes" else "lossless"}
