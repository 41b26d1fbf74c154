"""Packets on the wire go where the plan says, in the lane that their DSCP says."""

from __future__ import annotations

import json

import pytest

from tests.worlds import SMALL, Command, nothing_left

pytestmark = pytest.mark.root

# The small fabric deals hosts over four leaves in turn: z0h000 and z0h004 share one.
SAME_LEAF = ("z0h000", "z0h004")
OTHER_LEAF = ("z0h000", "z0h005")
OTHER_ZONE = ("z0h001", "z1h006")
TO_STORAGE = ("z1h002", "st003")


@pytest.mark.parametrize(
    ("hosts", "level", "queueing", "lane", "kinds"),
    [
        pytest.param(SAME_LEAF, "hfreduce", "lanes", "hfreduce", ["z0h", "z0l"], id="same leaf"),
        pytest.param(OTHER_LEAF, "nccl", "lanes", "nccl", ["z0h", "z0l", "z0s", "z0l"], id="across leaves"),
        pytest.param(OTHER_ZONE, "other", "lanes", "other", ["z0h", "z0l", "ix", "z1l", "z1s", "z1l"], id="to a zone"),
        pytest.param(TO_STORAGE, "storage", "lanes", "storage", ["z1h", "z1l", "z1s", "z1l"], id="to storage"),
        pytest.param(OTHER_LEAF, "storage", "shared", "shared", ["z0h", "z0l", "z0s", "z0l"], id="one shared queue"),
    ],
)
def test_a_packet_takes_the_planned_path_in_the_planned_lane(
    command: Command, hosts: tuple[str, str], level: str, queueing: str, lane: str, kinds: list[str]
) -> None:
    with nothing_left(command):
        done = command.run("path", SMALL, *hosts, "--level", level, "--queueing", queueing, "--probe", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["delivered"] is True
    assert answer["seen"] == answer["planned"]
    assert {hop["lane"] for hop in answer["seen"]} == {lane}
    nodes = [hop["port"].partition(":")[0] for hop in answer["seen"]]
    assert [node.rstrip("0123456789") for node in nodes] == kinds
    assert nodes[0] == hosts[0]


def test_two_worlds_side_by_side_do_not_disturb_each_other(command: Command) -> None:
    """The same names, addresses, ports and files in both at once."""
    with nothing_left(command):
        running = [
            command.start("path", SMALL, *hosts, "--level", level, "--probe", "--json")
            for hosts, level in ((OTHER_LEAF, "nccl"), (OTHER_LEAF[::-1], "storage"), (OTHER_ZONE, "hfreduce"))
        ]
        ended = [(process.communicate(timeout=120), process.returncode) for process in running]
    for (out, err), code in ended:
        assert code == 0, out + err
        assert json.loads(out)["agrees"] is True
