"""What a soak demands of a run, from made-up rounds, what it cuts, and that a wrong config is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.routing import Repair
from experiments.lossless_soak.run import LosslessSoakConfig, flaps_of_round
from experiments.lossless_soak.summary import BrokenOff, SoakRound, soak_checks, summarize
from fabric.errors import ConfigError
from fabric.failures.schedule import FailureSchedule
from fabric.measure.verdict import Status
from fabric.metrics import by_path
from fabric.model.lanes import PortLane
from fabric.model.network import Port, Tier
from fabric.records.conservation import Conservation
from fabric.results import Phase
from fabric.stalls.audit import AuditReport, views
from fabric.stalls.causes import Stall, StallCause
from fabric.stalls.credits import Held, held
from fabric.stalls.waits import ObservedPort
from runs.registry import resolve
from runs.session import PhaseOutcome, Session
from tests.experiments.declared import undeclared
from tests.fabric.queueing.vl_dumps import lane, message, port
from tests.schedules import intervals_of, link_of
from topologies.load import load_fabric
from traffic.job import Records

FABRIC = load_fabric("fire_flyer_2_tiny")
PORT = FABRIC.links[0].a


def config_of(*overrides: str) -> LosslessSoakConfig:
    return cast(LosslessSoakConfig, resolve("lossless_soak", overrides)[1])


def round_of(
    drops: dict[str, int] | None = None,
    not_back: tuple[Held, ...] = (),
    stalls: tuple[Stall, ...] = (),
    repair: Repair = Repair.WAIT,
) -> SoakRound:
    """A round of 10 s with a cut; nothing is wrong but what is given."""
    counted = Conservation(1000, 4_000_000, 0, 0, 0, 0, {}, 0, dropped_by_cause={"link_down": 7, **(drops or {})})
    changes = [SimpleNamespace(state=SimpleNamespace(up=up)) for up in (False, True)]
    outcome = SimpleNamespace(
        phase=Phase("wait_1", "A round", "lossless_lanes", 10.0, 20.0),
        conservation=counted,
        faults=SimpleNamespace(link_changes=changes),
        records=Records(operations=[{"operation": "flow"}, {"operation": "flow_abandoned"}]),
    )
    return SoakRound(repair, cast(PhaseOutcome, outcome), not_back, AuditReport(100, stalls))


def stall(cause: StallCause, lasted_ns: int = 10**8) -> Stall:
    return Stall(PortLane("z0l00:1", "storage"), 10**9, 10**9 + lasted_ns, cause)


def statuses(one: SoakRound) -> dict[str, Status]:
    return {check.name: check.status for check in soak_checks([round_of(), one])}


def summary(*rounds: SoakRound, broken_off: Sequence[BrokenOff] = ()) -> dict[str, Any]:
    return summarize(cast(Session, SimpleNamespace(origin=0.5)), rounds, broken_off, 0.1)


def test_a_run_that_keeps_all_promises_is_faithful() -> None:
    assert set(statuses(round_of(stalls=(stall(StallCause.BUSY), stall(StallCause.LEAVING)))).values()) == {
        Status.FAITHFUL
    }


@pytest.mark.parametrize("cause", ["limit", "headroom", "too_big", "reset", "no_memory"])
def test_one_frame_dropped_but_by_a_cut_is_invalid(cause: str) -> None:
    found = statuses(round_of(drops={cause: 1}))
    assert found.pop("lossless_drops") is Status.INVALID
    assert set(found.values()) == {Status.FAITHFUL}


@pytest.mark.parametrize(
    ("repair", "has_cut", "status"),
    [
        (Repair.WAIT, True, Status.FAITHFUL),
        (Repair.WAIT, False, Status.INVALID),
        (Repair.FAST_FAILOVER, True, Status.INVALID),
        (Repair.REROUTE, True, Status.INVALID),
    ],
)
def test_rules_may_drop_only_where_a_cut_can_leave_no_way(repair: Repair, has_cut: bool, status: Status) -> None:
    found = round_of(repair=repair)
    changes = found.outcome.faults.link_changes if has_cut else []
    counted = replace(found.outcome.conservation, dropped_by_rules=2)
    parts = vars(found.outcome) | {"conservation": counted, "faults": SimpleNamespace(link_changes=changes)}
    one = replace(found, outcome=cast(PhaseOutcome, SimpleNamespace(**parts)))
    assert statuses(one)["lossless_drops"] is status
    assert one.without_a_way == (2 if status is Status.FAITHFUL else 0)


def test_one_byte_of_credit_lost_is_invalid_and_its_lane_named() -> None:
    one = round_of(not_back=(Held(PORT, "storage", 1, 0),))
    assert statuses(one)["leaked_bytes"] is Status.INVALID
    (check,) = (check for check in soak_checks([one]) if check.name == "leaked_bytes")
    assert f"{PORT} storage: 1 B" in check.text


def test_one_stall_without_a_reason_is_invalid_and_listed_with_its_time() -> None:
    one = round_of(stalls=(stall(StallCause.NOTHING), stall(StallCause.BUSY)))
    assert statuses(one)["unexplained_stalls"] is Status.INVALID
    listed = summary(one)["tables"][-1]
    assert listed.words == [["0.500 s", "100 ms", "z0l00:1 storage"]]


def test_a_round_that_a_deadlock_broke_off_is_told_with_its_cuts_and_ports() -> None:
    flaps = flaps_of_round(FABRIC, config_of("flaps.count=1"), Repair.FAST_FAILOVER, 3)
    broken_off = BrokenOff(Repair.FAST_FAILOVER, 3, flaps, "deadlock: a -> b -> a, each waiting")
    found = summary(round_of(), broken_off=[broken_off])
    assert by_path(found["metrics"])["rounds_broken_off"] == 1
    assert undeclared("lossless_soak", found["metrics"]) == []
    assert "deadlock: fast_failover in round 3" in found["answer"]
    (row,) = found["tables"][-1].words
    assert (row[0], row[1], row[3]) == ("fast_failover", "3", "deadlock: a -> b -> a, each waiting")
    assert str(flaps.events[0].target) in row[2]
    assert "deadlock" not in summary(round_of())["answer"]


def test_the_summary_adds_up_all_rounds() -> None:
    found = summary(round_of(), round_of(stalls=(stall(StallCause.BUSY, 2 * 10**8), stall(StallCause.BUSY, 10**7))))
    metrics = by_path(found["metrics"])
    assert len(found["tables"]) == 2
    assert (metrics["flaps"], metrics["flows"], metrics["flows_completed"]) == (2, 4, 2)
    assert (metrics["drops"], metrics["leaked_bytes"], metrics["unexplained_stalls"]) == (0, 0, 0)
    assert (metrics["lost_in_cuts"], metrics["bytes"], metrics["seconds"]) == (14, 8_000_000, 20.0)
    assert (metrics["long_stalls"], metrics["longest_stall_s"]) == (1, 0.2)


def test_what_ports_still_hold_is_found_in_either_counter() -> None:
    rest = port(1, [lane(0), lane(1, used_bytes=5), lane(2, buffered_bytes=6)])
    assert held({PORT: rest}, {1: "storage"}) == [Held(PORT, "storage", 5, 0), Held(PORT, "2", 0, 6)]


def test_a_look_has_the_known_ports_of_all_namespaces_by_name() -> None:
    known: dict[Path | None, dict[int, ObservedPort]] = {None: {1: ObservedPort("s:1", "s", "a:1")}}
    found = views({None: message(port(1, [lane(0)])) + message(port(2, [lane(0)]))}, known, {})
    assert {name: (view.node, view.peer) for name, view in found.items()} == {"s:1": ("s", "a:1")}


def test_rounds_differ_and_repeat_with_their_seed() -> None:
    config = config_of()
    first = flaps_of_round(FABRIC, config, Repair.WAIT, 1)
    assert first == flaps_of_round(FABRIC, config, Repair.WAIT, 1)
    others = [flaps_of_round(FABRIC, config, Repair.WAIT, 2), flaps_of_round(FABRIC, config, Repair.FAST_FAILOVER, 1)]
    others.append(flaps_of_round(FABRIC, config_of("seed=2"), Repair.WAIT, 1))
    assert first not in others


def test_cuts_are_as_long_as_told_and_end_within_their_round() -> None:
    config = config_of("flaps.count=4")
    for repair in Repair:
        for number in range(50):
            for cut in intervals_of(flaps_of_round(FABRIC, config, repair, number)):
                assert 0 <= cut.began_s < cut.ended_s <= config.round_time
                assert cut.ended_s - cut.began_s <= 2 * config.flaps.longest


def test_where_traffic_is_led_another_way_one_link_between_switches_is_cut_at_a_time() -> None:
    config = config_of()
    tiers = set()
    for number in range(100):
        cuts = intervals_of(flaps_of_round(FABRIC, config, Repair.FAST_FAILOVER, number))
        tiers |= {link_of(cut).tier for cut in cuts}
        assert all(one.ended_s <= other.began_s for one, other in pairwise(cuts))
    assert tiers == {Tier.UPLINK, Tier.INTER_ZONE}


def test_where_traffic_is_led_another_way_what_met_one_cut_has_time_to_arrive_before_the_next() -> None:
    """At least half of each cut's part of the round, unless the cut itself is longer than the other half."""
    config = config_of("flaps.count=4", "flaps.longest=1")
    part_s = config.round_time / 4
    for number in range(100):
        cuts = intervals_of(flaps_of_round(FABRIC, config, Repair.REROUTE, number))
        assert [int(cut.began_s / part_s) for cut in cuts] == [0, 1, 2, 3]
        assert all(cut.ended_s % part_s <= max(part_s / 2, cut.ended_s - cut.began_s) + 1e-6 for cut in cuts)


@pytest.mark.parametrize("repair", Repair)
def test_there_may_be_no_cuts(repair: Repair) -> None:
    assert flaps_of_round(FABRIC, config_of("flaps.count=0"), repair, 1) == FailureSchedule()


def test_where_failures_are_waited_out_links_of_every_kind_are_cut() -> None:
    config = config_of()
    rounds = [flaps_of_round(FABRIC, config, Repair.WAIT, number) for number in range(50)]
    tiers = {link_of(cut).tier for flaps in rounds for cut in intervals_of(flaps)}
    assert tiers == set(Tier) - {Tier.INSIDE}


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("queueing=lanes", "drops frames by design"),
        ("flaps.longest=8", "do not end within a round"),
        ("flaps.shortest=3", "longer than flaps.longest"),
        ("stall_limit=10 ms", "stall_limit"),
        ("routing.repair=reroute", "write them under repairs"),
        ("failures=[{host: z0h000, at: 1 s}]", "draws its own"),
    ],
)
def test_a_config_that_cannot_be_is_refused_with_the_key(override: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        config_of(override)


def test_ports_are_named_for_people() -> None:
    assert str(Held(Port(PORT.node, 4), "nccl", 0, 20)) == f"{PORT.node}:4 nccl: 20 B"
