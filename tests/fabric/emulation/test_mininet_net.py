"""Links that Mininet's prompt sets up again: it goes on once they send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabric.emulation import mininet_net
from fabric.emulation import prompt as prompt_module
from fabric.emulation.mininet_net import FabricNet
from fabric.emulation.prompt import Prompt
from tests.controllers.free_forms import free_form
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


OWN = free_form([{"a": "h-1", "b": "leaf1"}, "h2-leaf.2", "leaf1-spine1", "leaf.2-spine1"])


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """What links of a network with names of the user's own are set down, by their ports."""
    found: list[set[str]] = []
    monkeypatch.setattr(FabricNet, "set_ends", lambda _, ports, is_up: found.append({str(port) for port in ports}))
    return found


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ("link leaf1 spine1 down", {"z0l00:2", "z0s00:1"}),
        ("link z0l00 spine1 down", {"z0l00:2", "z0s00:1"}),
        ("link h-1 leaf1 down", {"z0h001:0", "z0l00:1"}),
        ("switch leaf.2 stop", {"z0l01:1", "z0l01:2", "z0h000:0", "z0s00:2"}),
        ("switch z0s00 stop", {"z0s00:1", "z0s00:2", "z0l00:2", "z0l01:2"}),
    ],
)
def test_links_and_switches_of_the_prompt_have_either_name(cut: list[set[str]], line: str, ports: set[str]) -> None:
    prompt(FabricNet(OWN)).onecmd(line)
    assert cut == [ports]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("switch h-1 stop", "*** no switch 'h-1'; nodes lists them\n"),
        ("switch nobody stop", "*** no switch 'nobody'; nodes lists them\n"),
        ("link leaf1 nobody down", "*** no node 'nobody'; nodes lists them\n"),
        ("link leaf1 leaf.2 down", "*** no link between leaf1 and leaf.2; net lists them\n"),
        ("leaf.2", "*** Please enter a command for node: leaf.2 <cmd>\n"),
        ("h-1", "*** Please enter a command for node: h-1 <cmd>\n"),
        ("x-1 date", "*** Unknown command: x-1 date\n"),
    ],
)
def test_what_the_prompt_does_not_know_is_named(
    cut: list[set[str]], monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    said: list[str] = []
    for module in (mininet_net, prompt_module):
        monkeypatch.setattr(module, "error", said.append)
    prompt(FabricNet(OWN)).onecmd(line)
    assert said == [says]
    assert cut == []


def prompt(net: FabricNet) -> Prompt:
    """Return the prompt of a network, which reads nothing."""
    made: Prompt = Prompt.__new__(Prompt)
    made.mn = net
    return made
