"""Queues of HTB that mark are refused where neither RED nor a BPF program can do it."""

from __future__ import annotations

import struct

import pytest

from fabric.errors import EmulationError, UsageError
from fabric.model.lanes import QueueConfig, Queueing
from fabric.model.marking import Marking
from fabric.queueing import red
from fabric.world.engines import NAMESPACE, VIRTUAL
from fabric.world.kernel_api import libbpf, netlink

MARKING = Marking(kmin=1000, kmax=3000, pmax=0.5)


NO_CLANG = "BPF programs need a compiler of their own"


def test_where_the_kernel_has_no_red_and_no_program_marking_is_refused_before_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(red, "_is_built_in", lambda: False)
    monkeypatch.setattr(red, "_is_loadable", lambda: False)
    monkeypatch.setattr(libbpf, "why_not", lambda: NO_CLANG)
    marks = QueueConfig(marking=MARKING)
    with pytest.raises(
        UsageError, match=r"queues.marking in the queueing lanes: .*CONFIG_NET_SCH_RED.*a compiler.*--engine virtual"
    ):
        red.require(NAMESPACE, marks, Queueing.LANES, Queueing.LOSSLESS)
    red.require(NAMESPACE, marks, Queueing.LOSSLESS)
    red.require(NAMESPACE, QueueConfig(), Queueing.LANES)
    red.require(VIRTUAL, marks, Queueing.LANES)


@pytest.mark.parametrize(("has_red", "no_program"), [(True, NO_CLANG), (False, None), (True, None)])
def test_where_one_of_the_two_can_marking_is_not_refused_and_a_program_comes_first(
    monkeypatch: pytest.MonkeyPatch, has_red: bool, no_program: str | None
) -> None:
    monkeypatch.setattr(red, "_is_built_in", lambda: has_red)
    monkeypatch.setattr(red, "_is_loadable", lambda: False)
    monkeypatch.setattr(libbpf, "why_not", lambda: no_program)
    red.require(NAMESPACE, QueueConfig(marking=MARKING), Queueing.LANES)
    assert red.is_there(NAMESPACE) == (no_program is not None)
    assert red.is_there(VIRTUAL)


def test_red_is_refused_for_large_frames_that_are_switched_in_userspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has only their Ethernet header in one piece, and RED marks none of them without a word."""
    monkeypatch.setattr(red, "_is_built_in", lambda: True)
    monkeypatch.setattr(libbpf, "why_not", lambda: NO_CLANG)
    with pytest.raises(EmulationError, match="frames of 4214 B that are switched in userspace cannot be marked"):
        red.require_datapath(NAMESPACE, Queueing.LANES, marks=True, frame_bytes=4214)
    red.require_datapath(NAMESPACE, Queueing.LANES, marks=True, frame_bytes=1514)
    red.require_datapath(NAMESPACE, Queueing.LANES, marks=False, frame_bytes=4214)
    monkeypatch.setattr(libbpf, "why_not", lambda: None)
    red.require_datapath(NAMESPACE, Queueing.LANES, marks=True, frame_bytes=4214)


def test_red_is_told_to_mark_by_what_waits_and_to_drop_nothing_early() -> None:
    body = red.queue(5, "left", 0x11, 9000, MARKING).body
    attributes = dict(netlink.attributes_of(body, 20))
    options = dict(netlink.attributes_of(attributes[2], 0))
    assert attributes[1] == b"red\0"
    assert struct.unpack("=IIIBBBB", options[1]) == (9000, 1000, 3000, 0, 0, 0, 0)
    assert options[3] == struct.pack("=I", round(2**32 / 3))
    assert options[4] == struct.pack("=II", 9, 9)
