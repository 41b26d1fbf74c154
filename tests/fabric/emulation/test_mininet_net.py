"""Links that Mininet's prompt sets up again: it goes on once they send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabric.emulation import mininet_net
from fabric.emulation.mininet_net import FabricNet
from topologies.load import load_fabric

TINY = load_fabric("fire_flyer_2_tiny")
NUMBERS = {port.interface: number for number, port in enumerate(TINY.link_at)}


class LateLinks:
    """A kernel whose interfaces have a carrier from some look on: its link watch runs later."""

    looks, late_looks = 0, 3

    def __init__(self, namespace: Path | None = None) -> None:
        self.is_of_switches = namespace is None

    def __enter__(self) -> LateLinks:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, requests: list[Any]) -> None:
        assert requests

    def link_counters(self) -> dict[str, Any]:
        LateLinks.looks += self.is_of_switches
        runs = self.looks >= self.late_looks
        return {name: SimpleNamespace(running=runs) for name in NUMBERS}


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Iterator[FabricNet]:
    monkeypatch.setattr(mininet_net, "Netlink", LateLinks)
    monkeypatch.setattr(LateLinks, "looks", 0)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(n, name) for name, n in NUMBERS.items()])
    yield FabricNet(TINY)


def test_a_link_that_is_set_up_sends_by_the_next_line(net: FabricNet) -> None:
    net.configLinkStatus("z0l00", "z0h000", "up")
    assert LateLinks.looks == LateLinks.late_looks
    net.configLinkStatus("z0l00", "z0h000", "down")
    assert LateLinks.looks == LateLinks.late_looks, "one that is down sends nothing"


def test_a_link_that_never_sends_is_named_and_not_waited_for_for_ever(
    net: FabricNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(mininet_net, "error", said.append)
    monkeypatch.setattr(mininet_net, "_SENDING_TIMEOUT_S", 0.05)
    monkeypatch.setattr(LateLinks, "late_looks", 10**9)
    net.configLinkStatus("z0l00", "z0h000", "up")
    assert said == ["*** z0h000-eth0, z0l00-eth1: no carrier 0.05 s after the switch's end was set up\n"]
