"""What failures that were asked for could touch, and what of a phase the verdict then still judges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from controllers.routing import Routing
from fabric.delivered import Flow
from fabric.failures.kinds.disk import DiskState, DiskTarget
from fabric.failures.kinds.process import KILLED, STOPPED, ProgramState, ProgramTarget
from fabric.failures.report import Change, LinkChange
from fabric.failures.schedule import DOWN, WHOLE, LinkState
from fabric.measure.fidelity import PhaseEvidence, judge
from fabric.measure.verdict import Status, Verdict
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Link
from fabric.records.conservation import Conservation
from fabric.tables import TABLES
from fabric.world.engines import VIRTUAL
from runs.decided_jobs import Played
from runs.excuses import FIRST_TIMEOUT_S, Excuse, Excuses, Trouble, troubles, without
from runs.failures import stopped_on
from runs.load_evidence import load_evidence
from runs.ways import WayFinder
from topologies.load import load_fabric
from traffic.job import Job, Records

FABRIC = load_fabric("fire_flyer_2_small")
FINDER = WayFinder(FABRIC, plan_lanes(QueueConfig(), Queueing.LANES), Routing())
SLOW_DISK = Change(DiskTarget("st001", 2), DiskState(factor=2.0), 2.0, 2.0, 2.0, (0,), "", ("storage",))


def link_of(host: str) -> Link:
    return FABRIC.link_at[FABRIC.nics_of[FABRIC.host_named(host)][0].port]


def cut(link: Link, from_s: float, until_s: float, state: LinkState = DOWN) -> list[Change]:
    return [LinkChange(link, one, at, at, at, (0,)) for one, at in ((state, from_s), (WHOLE, until_s))]


def stop(host: str, from_s: float, until_s: float, *jobs: str) -> list[Change]:
    states = ((STOPPED, from_s), (ProgramState(), until_s))
    return [Change(ProgramTarget(host), state, at, at, at, (0,), "", jobs) for state, at in states]


def job(name: str, **more: Any) -> Job:
    return cast(Job, SimpleNamespace(name=name, **more))


def row(job: str, operation: str, began: float, ended: float, host: str = "z0h000", peer: str = "z0h005") -> Any:
    return {
        "job": job, "service_level": "other", "operation": operation, "host": host, "peer": peer, "started_s": began,
        "ended_s": ended,
    }  # fmt: skip


def flows(failed: int, *, at_s: float = 5.0, host: str = "z0h000", peer: str = "z0h005") -> list[Any]:
    """Return a hundred flows, of which so many failed after 10 s."""
    whole = [row("background", "flow", at_s, at_s + 0.001, host, peer) for _ in range(100 - failed)]
    return whole + [row("background", "flow_failed", at_s, at_s + 10.0, host, peer) for _ in range(failed)]


def steps(name: str, until_s: float) -> list[Any]:
    return [{"job": name, "started_s": at / 2, "ended_s": (at + 1) / 2} for at in range(round(2 * until_s))]


def judged(
    records: Records, changes: Sequence[Change] = (), jobs: Iterable[Job] = (), spreads: bool = False
) -> Verdict:
    """Return the verdict on a phase of 20 s in which jobs had these rows, and this was done to targets."""
    names = dict.fromkeys(one["job"] for rows in records.values() for one in rows)
    playing = [*jobs, *(job(name) for name in names if name not in {one.name for one in jobs})]
    excuses = Excuses(troubles(changes), records, FINDER.links, spreads)
    load = load_evidence([Played(one, 0.0, 20.0, 20.0) for one in playing], records, excuses, stopped_on(changes))
    machine = pd.DataFrame({name: [0.0, 0.0] for name in TABLES["machine"].columns}).assign(at_s=[0.0, 1.0])
    counted = Conservation(1000, 10**6, 10**6, 0, 0, 0, {}, 0)
    phase = PhaseEvidence("one", counted, machine, 20.0, loads=load.loads, failed=load.failed, stopped=load.stopped)
    return judge([], [phase], 1e-6, engine=VIRTUAL)


def failing(verdict: Verdict) -> Status:
    return next(check.status for check in verdict.checks if check.name == "failed_fraction")


def text_of(verdict: Verdict, name: str) -> str:
    return next(check.text for check in verdict.checks if check.name == name)


# Elsewhere ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [SLOW_DISK],
        cut(link_of("z1h001"), 5.0, 8.0),
        cut(link_of("z1h001"), 5.0, 5.0002, LinkState(rate_fraction=0.99)),
        stop("z0h001", 5.0, 8.0, "storage", "background"),
    ],
    ids=["nothing", "a disk", "another host's link", "a rate for 0.2 ms", "another host's programs"],
)
def test_what_no_failure_could_touch_is_judged_and_no_failure_is_blamed(changes: list[Change]) -> None:
    records = Records(operations=flows(60), steps=steps("nccl", 4.0), flows=[sampled("nccl", "z0h003", "z0h004")])
    verdict = judged(records, changes)
    assert verdict.status is Status.INVALID
    by_name = {check.name: check for check in verdict.checks}
    assert by_name["failed_fraction"].value == pytest.approx(0.6)
    assert by_name["load_not_played_fraction"].value == pytest.approx(0.8)
    assert "asked for:" not in by_name["failed_fraction"].text + by_name["load_not_played_fraction"].text


def sampled(job: str, host: str, peer: str) -> dict[str, Any]:
    return {"job": job, "service_level": "other", "host": host, "peer": peer, "at_s": 1.0}


# What they could touch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["z0h000", "z0h005"])
def test_flows_over_a_cut_link_are_excused_with_the_reason(host: str) -> None:
    verdict = judged(Records(operations=flows(60)), cut(link_of(host), 5.0, 8.0))
    assert failing(verdict) is Status.FAITHFUL
    assert f"60 of them as asked for: {link_of(host)} down (failures.0)" in text_of(verdict, "failed_fraction")


def test_flows_that_a_cut_between_switches_could_touch_are_those_whose_way_has_the_link() -> None:
    over = FINDER.links(Flow("other", "z0h000", "z1h000"), 0.0, 20.0)
    link = sorted(over - zone_links(), key=str)[0]
    assert link.a.node.is_switch and link.b.node.is_switch
    far, near = (flows(60, peer=peer) for peer in ("z1h000", "z0h001"))
    assert failing(judged(Records(operations=far), cut(link, 5.0, 8.0))) is Status.FAITHFUL
    assert failing(judged(Records(operations=near), cut(link, 5.0, 8.0))) is Status.INVALID


def zone_links() -> set[Link]:
    """Return the links that flows within a zone may cross, and all of hosts."""
    hosts = [host.name for host in FABRIC.computes]
    pairs = [(host, peer) for host in hosts for peer in hosts if host != peer and host[:2] == peer[:2]]
    inside = {link for pair in pairs for link in FINDER.links(Flow("other", *pair), 0.0, 20.0)}
    return inside | {link_of(host) for host in hosts}


def test_flows_of_a_host_whose_programs_are_stopped_are_excused() -> None:
    verdict = judged(Records(operations=flows(60)), stop("z0h005", 5.0, 8.0, "background"))
    assert failing(verdict) is Status.FAITHFUL
    assert "programs on z0h005 stopped (failures.0)" in text_of(verdict, "failed_fraction")


def test_a_job_on_the_host_of_programs_that_are_stopped_may_be_idle_and_another_not() -> None:
    records = Records(steps=[*steps("nccl", 4.0), *steps("hfreduce", 20.0)])
    changes = stop("z0h003", 4.0, math.inf, "nccl")[:1]
    verdict = judged(records, changes)
    assert verdict.status is Status.FAITHFUL
    assert "nccl was idle for 16 s beside that" in text_of(verdict, "load_not_played_fraction")
    other = judged(Records(steps=[*steps("nccl", 20.0), *steps("hfreduce", 4.0)]), changes)
    assert other.status is Status.INVALID
    assert text_of(other, "load_not_played_fraction").startswith("phase one: hfreduce did not play")


def test_storage_is_touched_by_its_disks_by_its_services_and_by_links_that_it_uses() -> None:
    def reads(client: str) -> list[Any]:
        outcomes = (("read", 5.01), ("read_failed", 65.0))
        return [row("storage", name, 5.0, ended, client, "st001") for name, ended in outcomes]

    records = Records(operations=reads("z0h000"), flows=[sampled("storage", "st001", "st002")])
    for changes in (
        [SLOW_DISK],
        stop("st001", 5.0, 8.0, "storage"),
        cut(link_of("st002"), 5.0, 8.0),
        cut(link_of("z0h000"), 5.0, 8.0),
    ):
        assert failing(judged(records, changes)) is Status.FAITHFUL, changes
    both = Records(operations=[*reads("z0h000"), *reads("z0h001")])
    assert failing(judged(both, cut(link_of("z0h000"), 5.0, 8.0))) is Status.INVALID, "the other client has no reason"


def test_clients_are_touched_by_what_happens_to_the_job_that_serves_them() -> None:
    reads = [row("storage_clients", "read", 1.0, 1.01), row("storage_clients", "read_failed", 5.0, 65.0)]
    changes = stop("st001", 5.0, 8.0, "storage")
    clients = job("storage_clients", served_by=("storage",), retry_s=30.0)
    assert failing(judged(Records(operations=reads), changes)) is Status.INVALID
    assert failing(judged(Records(operations=reads), changes, [clients])) is Status.FAITHFUL


def test_where_links_are_lossless_what_waits_for_one_holds_up_all() -> None:
    records, changes = Records(operations=flows(60)), cut(link_of("z1h001"), 5.0, 8.0)
    assert failing(judged(records, changes, spreads=True)) is Status.FAITHFUL


# For how long ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_s", "status"),
    [
        (3.0, Status.FAITHFUL),  # Under way when it was cut, however late it ended.
        (9.0, Status.FAITHFUL),  # TCP tries again within 2 s and a first timeout after a cut of 2 s.
        (11.5, Status.INVALID),
    ],
)
def test_a_failure_excuses_for_as_long_as_it_lasted_and_until_all_is_tried_again(at_s: float, status: Status) -> None:
    verdict = judged(Records(operations=flows(60, at_s=at_s)), cut(link_of("z0h000"), 6.0, 8.0))
    assert failing(verdict) is status


def test_what_ended_before_a_failure_is_none_of_its() -> None:
    assert failing(judged(Records(operations=flows(60, at_s=-6.0)), cut(link_of("z0h000"), 6.0, 8.0))) is Status.INVALID


def test_a_program_that_waits_for_an_answer_is_excused_for_as_long() -> None:
    changes, records = stop("z0h000", 6.0, 7.0, "background"), Records(operations=flows(60, at_s=12.0))
    assert failing(judged(records, changes)) is Status.INVALID
    assert failing(judged(records, changes, [job("background", retry_s=10.0)])) is Status.FAITHFUL


def test_an_end_that_comes_long_after_a_failure_is_judged_from_when_that_could_touch_it_no_more() -> None:
    (load,) = load_evidence(
        [Played(job("nccl"), 0.0, 20.0, 20.0)],
        records := Records(steps=steps("nccl", 4.0)),
        Excuses(troubles(stop("z0h003", 4.0, 6.0, "nccl")), records, FINDER.links),
        {},
    ).loads
    assert (load.idle_end_s, load.excused_s) == (20 - 4 - 2 * 2 - FIRST_TIMEOUT_S, 2 * 2 + FIRST_TIMEOUT_S)


def test_a_pause_that_a_failure_made_forgives_no_end() -> None:
    reads = [row("storage", "read", at / 2, (at + 1) / 2) for at in [*range(8), *range(16, 24)]]
    changes = stop("z0h003", 4.0, 7.0, "storage")
    verdict = judged(Records(operations=reads), changes)
    assert verdict.status is Status.INVALID, "it was idle for 8 s after 12, and its only pause was asked for"


def test_slow_operations_that_a_failure_touched_forgive_none_that_failed_elsewhere() -> None:
    touched = [row("background", "flow", 5.0, 14.0, "z0h001")]
    records = Records(operations=[*flows(60, at_s=5.0), *touched])
    assert failing(judged(records)) is Status.FAITHFUL, "the network is as slow as that"
    assert failing(judged(records, cut(link_of("z0h001"), 5.0, 8.0))) is Status.INVALID


def test_what_lasts_of_an_earlier_phase_excuses_on() -> None:
    killed = Change(ProgramTarget("z0h000"), KILLED, -50.0, -50.0, -50.0, (0,), "", ("background",))
    assert failing(judged(Records(operations=flows(60)), [killed])) is Status.FAITHFUL


# Parts ----------------------------------------------------------------------------------------------------------------


def test_a_trouble_lasts_from_the_first_failure_of_a_target_until_it_is_whole() -> None:
    link, disk = link_of("z0h000"), DiskTarget("st001", 2)
    slow = LinkChange(link, LinkState(rate_fraction=0.5), 1.0, 1.0, 1.1, (0,))
    changes = [slow, *cut(link, 2.0, 3.0), Change(disk, DiskState(rotten=1), 2.5, 2.5, 2.6, (1,), "", ("storage",))]
    found = troubles([*changes, *cut(link, 7.0, 8.0)])
    assert [(one.target, one.from_s, one.until_s) for one in found] == [
        (link, 1.0, 3.0), (disk, 2.5, math.inf), (link, 7.0, 8.0),
    ]  # fmt: skip
    assert found[0].words == (f"{link} rate 0.5 (failures.0)", f"{link} down (failures.0)")
    assert found[0].touches_until(0.0) == 3.0 + 2.0 + FIRST_TIMEOUT_S
    assert found[0].touches_until(30.0) == 33.0
    assert Trouble(link, 0.0, 1e6, (), frozenset()).touches_until(0.0) == 1e6 + 120 + FIRST_TIMEOUT_S


def test_each_jobs_programs_on_a_host_have_a_trouble_of_their_own() -> None:
    found = troubles([*stop("z0h000", 1.0, 2.0, "nccl"), *stop("z0h000", 1.0, 5.0, "storage")])
    assert [(*one.jobs, one.until_s) for one in found] == [("nccl", 2.0), ("storage", 5.0)]


def test_what_excuses_cover_is_taken_off_once() -> None:
    excuses = [Excuse(4.0, 6.0, ()), Excuse(1.0, 2.0, ()), Excuse(5.0, 5.5, ()), Excuse(9.0, math.inf, ())]
    assert without((0.0, 10.0), excuses) == pytest.approx(10 - 2 - 1 - 1)
    assert without((4.5, 5.0), excuses) == 0.0
    assert without((20.0, 20.0), []) == 0.0


def test_links_of_a_flow_are_those_of_both_its_ways_and_of_every_rail() -> None:
    found = FINDER.links(Flow("other", "z0h000", "z1h000"), 0.0, 1.0)
    assert {link_of("z0h000"), link_of("z1h000")} <= found
    assert FINDER.links(Flow("other", "z1h000", "z0h000"), 0.0, 1.0) == found
    assert FINDER.links(Flow("other", "z0h000", "z0h000"), 0.0, 1.0) == frozenset()
    assert FINDER.links(Flow("other", "z0h000", "z9h999"), 0.0, 1.0) == set(FABRIC.links), "nobody knows"
    rails = load_fabric("dgx_superpod_140_small")
    first, second = rails.computes[:2]
    finder = WayFinder(rails, plan_lanes(QueueConfig(), Queueing.LANES), Routing())
    crossed = finder.links(Flow("other", first.name, second.name), 0.0, 1.0)
    assert {rails.link_at[nic.port] for nic in rails.nics_of[first]} <= crossed
