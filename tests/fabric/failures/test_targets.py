"""Lines of ``failures`` that are of NICs, silent hosts, programs and disks: what they come to, and how each mistake in
them is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fabric.errors import ConfigError
from fabric.failures.config import schedule_failures
from fabric.failures.kinds.disk import DiskState, DiskTarget
from fabric.failures.kinds.gpu import GpuState, GpuTarget
from fabric.failures.kinds.process import KILLED, RESTARTED, STOPPED, ProgramState, ProgramTarget
from fabric.failures.schedule import DOWN, WHOLE
from fabric.model.network import Link
from tests.fabric.failures.test_config import FABRIC, configs, events
from topologies.load import load_fabric

RUNS = ProgramState()


def test_a_nic_is_one_of_its_hosts_links() -> None:
    (link,) = (link for link in FABRIC.links if str(link.a) == "st001:1")
    assert events({"nic": "st001:1", "at": 1, "for": 1}) == [(1.0, str(link), DOWN), (2.0, str(link), WHOLE)]


def test_a_link_inside_a_node_can_be_slow_and_nothing_else() -> None:
    fabric = load_fabric("fire_flyer_2_nodes_nvlink")

    def links(name: str, **what: object) -> list[str]:
        found = schedule_failures(configs({"link": name, "at": 1, **what}), fabric, 1)
        return [f"{event.target} {event.state}" for event in found.events]

    assert links("z0h000.g5:0", rate=0.5) == ["z0h000.g5:0--z0h000:22 rate 0.5"]
    assert links("z0h000.g3:1", rate=0.5) == ["z0h000.g2:1--z0h000.g3:1 rate 0.5"], "NVLink"
    for what in ({}, {"loss": 0.1}, {"rate": 0.5, "loss": 0.1}):
        with pytest.raises(ConfigError, match=r"z0h000.g5:0 is inside a node: it can be slow, not cut or lossy; give"):
            links("z0h000.g5:0", **what)
    for name in ("z0h000.g9:0", "z0h000.g5:7", "z0h000.x:0"):
        with pytest.raises(ConfigError, match=f"nothing is plugged into '{name}'"):
            links(name, rate=0.5)


def test_a_silent_host_has_neither_links_nor_programs_and_returns_as_it_was() -> None:
    found = schedule_failures(configs({"silent": "st001", "at": 1, "for": 2}), FABRIC, 1).events
    links = [event for event in found if isinstance(event.target, Link)]
    assert [(event.at_s, event.state) for event in links] == [(1, DOWN), (1, DOWN), (3, WHOLE), (3, WHOLE)]
    others = [(event.at_s, event.target, event.state) for event in found if event not in links]
    assert others == [(1, ProgramTarget("st001"), STOPPED), (3, ProgramTarget("st001"), RUNS)]
    assert all(event.causes == (0,) for event in found)


def test_a_silent_host_that_stays_dead_has_links_again_and_no_programs() -> None:
    found = schedule_failures(configs({"silent": "z0h003", "at": 1, "for": 2, "then": "dead"}), FABRIC, 1).events
    assert [(event.at_s, str(event.target), event.state) for event in found[1:]] == [
        (1, "programs on z0h003", STOPPED),
        (3, str(found[0].target), WHOLE),
        (3, "programs on z0h003", KILLED),
    ]


@pytest.mark.parametrize(
    ("line", "target", "state"),
    [
        ({"process": "z0h003", "effect": "stop"}, ProgramTarget("z0h003"), STOPPED),
        ({"process": "z0h003", "job": "nccl", "effect": "kill"}, ProgramTarget("z0h003", "nccl"), KILLED),
        ({"process": "st001", "effect": "restart", "for": 3}, ProgramTarget("st001"), RESTARTED),
        ({"process": "st001", "effect": "slow", "share": 0.25}, ProgramTarget("st001"), ProgramState(share=0.25)),
        ({"disk": "st001/2", "effect": "error"}, DiskTarget("st001", 2), DiskState(fails=True)),
        ({"disk": "st001", "effect": "slow", "factor": 10}, DiskTarget("st001"), DiskState(factor=10)),
        ({"disk": "st001", "effect": "slow", "latency": "5 ms"}, DiskTarget("st001"), DiskState(added_s=0.005)),
        ({"disk": "st001/0", "effect": "rot", "chunks": 3}, DiskTarget("st001", 0), DiskState(rotten=3)),
        ({"disk": "st001/0", "effect": "rot"}, DiskTarget("st001", 0), DiskState(rotten=1)),
        ({"gpu": "z0h003/2", "xid": 79}, GpuTarget("z0h003", 2), GpuState((79,))),
        ({"gpu": "z0h003", "effect": "wrong"}, GpuTarget("z0h003"), GpuState(wrong=1)),
    ],
)
def test_an_effect_is_a_state_of_its_target(line: dict[str, Any], target: object, state: object) -> None:
    event, *_ = schedule_failures(configs({**line, "at": 2}), FABRIC, 1).events
    assert (event.at_s, event.target, event.state) == (2, target, state)


def test_failures_of_one_disk_add_up_and_rot_stays() -> None:
    lines = configs(
        {"disk": "st001/0", "at": 1, "effect": "rot", "repeat": {"every": 1, "times": 3}},
        {"disk": "st001/0", "at": 2, "for": 2, "effect": "error"},
    )
    found = schedule_failures(lines, FABRIC, 1).events
    assert [(event.at_s, event.state) for event in found] == [
        (1, DiskState(rotten=1)),
        (2, DiskState(fails=True, rotten=2)),
        (3, DiskState(fails=True, rotten=3)),
        (4, DiskState(rotten=3)),
    ]


def test_states_have_words() -> None:
    assert [str(one) for one in (RUNS, STOPPED, KILLED, RESTARTED, ProgramState(share=0.25))] == [
        "whole", "stopped", "killed", "killed, to be started again", "runs 25% of the time",
    ]  # fmt: skip
    assert str(DiskState(True, 10, 0.005, 2)) == (
        "fails, reads take 10 times as long, reads take 0.005 s more, 2 chunks rotten"
    )
    assert str(DiskState()) == "whole"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"process": "z0h000"}, "failures.0.effect: is missing; give kill, restart, stop or slow"),
        ({"process": "z0h000", "effect": "rot"}, "0.effect: is 'rot'; a process has kill, restart, stop, slow"),
        ({"disk": "st000", "effect": "kill"}, "failures.0.effect: is 'kill'; a disk has error, slow, rot"),
        ({"link": "z0l00:6", "effect": "stop"}, "failures.0.effect: not of a link; it has loss, pause, rate"),
        ({"host": "z0h000", "effect": "stop"}, "failures.0.effect: not of a host; it has loss, pause, rate"),
        ({"process": "z0h000", "rate": 0.5}, "failures.0.effect: is missing; give kill, restart, stop or slow"),
        ({"disk": "st000", "effect": "slow", "facto": 2}, "did you mean 'failures.0.factor'?"),
        ({"dsk": "st000", "effect": "error"}, "did you mean 'failures.0.disk'?"),
        ({"process": "z0h000", "effect": "stop", "rate": 0.5}, "rate: not of a process; it has effect, job, share"),
        ({"process": "z0h000", "effect": "slow"}, "effect slow: how slow is missing; give share"),
        ({"disk": "st000", "effect": "slow"}, "effect slow: how slow is missing; give factor or latency"),
        ({"disk": "st000", "effect": "rot", "factor": 2}, "factor: not of effect rot; leave it out"),
        ({"process": "z0h000", "effect": "kill", "for": 1}, "what is killed does not come back; leave out 'for'"),
        ({"process": "st001", "effect": "restart"}, "is started again after 'for', which is missing; give it"),
        ({"disk": "st000", "effect": "rot", "for": 1}, "stays so until it is written anew; leave out 'for'"),
        ({"silent": "z0h000", "then": "dead"}, "then: dead: the host is up again after 'for', which is missing"),
        ({"silent": "z0h000", "effect": "stop"}, "effect: not of a silent; it has then"),
        (
            {"process": "z0h000", "effect": "kill", "repeat": {"every": 1, "times": 2}},
            "repeats what kills programs, which do not come back; leave out 'repeat'",
        ),
        (
            {"process": "z0h000", "effect": "stop", "repeat": {"every": 1, "times": 2}},
            "repeats a failure that never ends; give 'for'",
        ),
        ({"disk": "st000", "silent": "st000"}, "names silent and disk; give exactly one of link, port"),
    ],
)
def test_a_wrong_line_is_named(line: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configs({"at": 1, **line})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"nic": "st001"}, "nic: 'st001' is not a NIC; write the host and the NIC's number, like z0h000:0"),
        ({"nic": "st001:2"}, "nic: st001 has no NIC '2'; its NICs are st001:0, st001:1"),
        ({"nic": "z0l00:1"}, "nic: no host 'z0l00'"),
        ({"silent": "z0l00"}, "silent: no host 'z0l00'"),
        ({"process": "z9h000", "effect": "stop"}, "process: no host 'z9h000'"),
        ({"disk": "st001/x", "effect": "error"}, "disk: 'st001/x' is not a disk; write the host and the disk's number"),
    ],
)
def test_what_the_fabric_does_not_have_is_named(line: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        schedule_failures(configs({"at": 1, **line}), FABRIC, 1)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            [{"at": 1, "for": 9, "share": 0.5}, {"at": 2, "for": 1, "share": 0.25}],
            "failures.1: programs on z0h000 would have 0.5 and 0.25 of its CPU time at once, from 2 s on",
        ),
        (
            [{"at": 1, "effect": "kill"}, {"at": 2, "for": 1, "effect": "stop"}],
            "failures.1: failures.0 has killed programs on z0h000 by then; remove one of the two",
        ),
        (
            [{"at": 1, "effect": "kill"}, {"at": 2, "effect": "kill", "job": "nccl"}],
            "failures.1: failures.0 has killed nccl on z0h000 by then",
        ),
    ],
)
def test_lines_that_contradict_each_other_are_named(lines: list[dict[str, Any]], words: str) -> None:
    found = configs(*({"process": "z0h000", "effect": "slow", **line} for line in lines))
    with pytest.raises(ConfigError) as caught:
        schedule_failures(found, FABRIC, 1)
    assert words in str(caught.value)


def test_keys_of_other_kinds_may_say_nothing() -> None:
    """As lines have them that an older version has written."""
    (line,) = configs({"link": "z0l00:6", "at": 1, "disk": None, "effect": None, "then": "returns", "xid": None})
    assert line.model_dump(by_alias=True, exclude_defaults=True) == {"link": "z0l00:6", "at": 1.0}
    assert configs(line.model_dump(by_alias=True)) == [line]


def test_a_line_is_a_mapping() -> None:
    with pytest.raises(ConfigError, match=r"failures\.0: is 'z0l00:6'; write a mapping such as {link: "):
        configs("z0l00:6")  # type: ignore[arg-type]


def test_what_ends_before_a_kill_contradicts_nothing() -> None:
    lines = configs(
        {"process": "z0h000", "at": 1, "for": 1, "effect": "stop"},
        {"process": "z0h000", "at": 3, "effect": "kill"},
        {"process": "z0h000", "job": "nccl", "at": 1, "for": 1, "effect": "stop"},
        {"process": "z0h001", "at": 4, "for": 1, "effect": "stop"},
    )
    assert max(event.at_s for event in schedule_failures(lines, FABRIC, 1).events) < math.inf
