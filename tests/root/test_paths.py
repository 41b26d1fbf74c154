"""Packets on the wire go where the plan says, in the lane that their DSCP says."""

from __future__ import annotations

import json
import os

import pytest

from tests.worlds import SMALL, TINY, Command, nothing_left

pytestmark = pytest.mark.root

# The tiny fabric deals hosts over two leaves in turn: z0h000 and z0h002 share one.
SAME_LEAF = ("z0h000", "z0h002")
OTHER_LEAF = ("z0h000", "z0h001")
OTHER_ZONE = ("z0h001", "z1h002")
TO_STORAGE = ("z1h002", "st001")
ZONES_OF_FOUR_LEAVES = ("z0h001", "z1h006")


@pytest.mark.parametrize(
    ("fabric", "hosts", "level", "queueing", "lane", "kinds"),
    [
        pytest.param(
            TINY, SAME_LEAF, "hfreduce", "lanes", "hfreduce", "z0h z0l", id="same leaf", marks=pytest.mark.soak
        ),
        pytest.param(
            TINY, OTHER_LEAF, "nccl", "lanes", "nccl", "z0h z0l z0s z0l", id="across leaves", marks=pytest.mark.soak
        ),
        pytest.param(SMALL, ZONES_OF_FOUR_LEAVES, "other", "lanes", "other", "z0h z0l ix z1l z1s z1l", id="to a zone"),
        pytest.param(TINY, TO_STORAGE, "storage", "lanes", "storage", "z1h z1l z1s z1l", id="to storage"),
        pytest.param(TINY, OTHER_LEAF, "storage", "shared", "shared", "z0h z0l z0s z0l", id="one shared queue"),
    ],
)
def test_a_packet_takes_the_planned_path_in_the_planned_lane(
    command: Command, fabric: str, hosts: tuple[str, str], level: str, queueing: str, lane: str, kinds: str
) -> None:
    with nothing_left(command):
        done = command.run("path", fabric, *hosts, "--level", level, "--queueing", queueing, "--probe", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["delivered"] is True
    assert answer["seen"] == answer["planned"]
    assert {hop["lane"] for hop in answer["seen"]} == {lane}
    nodes = [hop["port"].partition(":")[0] for hop in answer["seen"]]
    assert [node.rstrip("0123456789") for node in nodes] == kinds.split()
    assert nodes[0] == hosts[0]


def test_two_worlds_side_by_side_do_not_disturb_each_other(command: Command) -> None:
    """The same names, addresses, ports and files in both at once."""
    with nothing_left(command):
        running = [
            command.start("path", TINY, *hosts, "--level", level, "--probe", "--json")
            for hosts, level in ((OTHER_LEAF, "nccl"), (OTHER_LEAF[::-1], "storage"), (OTHER_ZONE, "hfreduce"))
        ]
        ended = [(process.communicate(timeout=120), process.returncode) for process in running]
    for (out, err), code in ended:
        assert code == 0, out + err
        assert json.loads(out)["agrees"] is True


def test_a_reader_who_has_gone_is_no_reason_for_a_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed when what was printed last is written, at the end."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reader, writer = os.pipe()
    os.close(reader)
    with nothing_left(command):
        process = command.start("path", TINY, *OTHER_LEAF, "--probe", "--json", stdout=writer)
        os.close(writer)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
