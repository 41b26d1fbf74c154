"""Rates of ports and programs that draw on budgets, in a guest; each function returns bit/s of frames."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fabric.queueing import budgets, vl
from tests.vl.lab import Lab, flood, one_lane, two_hosts

GBPS = 10**9
LINK_BPS = 10 * GBPS
START_S, MEASURED_S, DRAINED_S = 0.002, 0.01, 0.02
"""Time until all send, of a measurement, and until nothing of it waits any more."""
MANY = 10**9
ALONE = ((5 * GBPS, 1.0), (5 * GBPS, 4.0), (5 * GBPS, 0.25), (40 * GBPS, 8.0))
"""Budgets in bit/s with the weight of a port."""


def _budget(name: str, bps: int, weight: float = 1.0, input_index: int = 0) -> vl.DrawOptions:
    return budgets.draw(budgets.number_of(name), bps // 8, weight, input_index)


def _rates(lab: Lab, ports: Sequence[str], flows: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Let hosts send to hosts as fast as they can; return what each of ``ports`` sends."""
    children = [flood(lab, source, target, MANY) for source, target in flows]
    time.sleep(START_S)
    before = lab.stats()
    time.sleep(MEASURED_S)
    after = lab.stats()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    time.sleep(DRAINED_S)
    return {name: _sent(after, name, before) for name in ports}


def _sent(after: Mapping[str, vl.PortStats], name: str, before: Mapping[str, vl.PortStats]) -> float:
    changed = after[name].lanes[0].sent_bytes - before[name].lanes[0].sent_bytes
    return changed * 8e9 / (after[name].now_ns - before[name].now_ns)


def on_a_link() -> dict[str, Any]:
    """All that two hosts and a link show."""
    lab = two_hosts(one_lane(LINK_BPS))
    found: dict[str, Any] = {
        "alone": [_alone(lab, bps, weight) for bps, weight in ALONE],
        "of_two": [_of_two(lab, first, second) for first, second in ((7 * GBPS, 4 * GBPS), (4 * GBPS, 7 * GBPS))],
        "both_directions": _both_directions(lab, 8 * GBPS),
        "program": _program(lab, 5 * GBPS, 1 << 20),
    }
    return found | {"life": _life(lab)}


def at_a_switch() -> dict[str, Any]:
    """All that ports of a switch show."""
    lab = _star(["a0", "a1", "a2", "b0", "b1", "b2"])
    return {
        "weighted": _weighted(lab, 6 * GBPS, [1.0, 2.0, 0.25]),
        "by_input": _by_input(lab, 3 * GBPS),
        "beside": _beside(lab, 2 * GBPS, 9 * GBPS),
    }


def _draw(lab: Lab, name: str, *draws: vl.DrawOptions) -> None:
    lab.change(name, one_lane(LINK_BPS), *draws)


def _alone(lab: Lab, bps: int, weight: float) -> dict[str, float]:
    """One port on one budget, in bit/s, and what the budget says that it gave for each byte sent."""
    _draw(lab, "a-b", _budget("one", bps, weight))
    number = budgets.number_of("one")
    drawn, sent = budgets.read()[number].drawn, lab.stats()["a-b"].lanes[0].sent_bytes
    rate = _rates(lab, ["a-b"], [("a", "b")])["a-b"]
    drawn, sent = budgets.read()[number].drawn - drawn, lab.stats()["a-b"].lanes[0].sent_bytes - sent
    return {"rate": rate, "drawn_per_byte": drawn / 1000 / sent}


def _of_two(lab: Lab, first_bps: int, second_bps: int) -> float:
    """What a port sends that draws on two budgets."""
    _draw(lab, "a-b", _budget("first", first_bps), _budget("second", second_bps))
    return _rates(lab, ["a-b"], [("a", "b")])["a-b"]


def _both_directions(lab: Lab, bps: int) -> dict[str, float]:
    """Both ends of a link on one budget, first one of them sending, then both."""
    for name in ("a-b", "b-a"):
        _draw(lab, name, _budget("both", bps))
    one = _rates(lab, ["a-b"], [("a", "b")])["a-b"]
    found = {"one": one, **_rates(lab, ["a-b", "b-a"], [("a", "b"), ("b", "a")])}
    _draw(lab, "b-a")
    return found


def _program(lab: Lab, bps: int, size_bytes: int) -> dict[str, float]:
    """A program that takes bytes alone, then beside a port that sends at its link's rate, with what that then sends."""
    _draw(lab, "a-b", _budget("program", bps))
    number = budgets.number_of("program")
    taking = budgets.Reserving(number)
    began = time.monotonic()
    taking.take(size_bytes)
    found = {"alone": size_bytes * 8 / (time.monotonic() - began)}
    stop = threading.Event()

    def take() -> None:
        while not stop.is_set():
            taking.take(size_bytes)

    thread = threading.Thread(target=take)
    thread.start()
    before = budgets.read()[number]
    found["port"] = _rates(lab, ["a-b"], [("a", "b")])["a-b"]
    after = budgets.read()[number]
    stop.set()
    thread.join()
    taking.close()
    found["all"] = (after.drawn - before.drawn) / 1000 * 8e9 / (after.now_ns - before.now_ns)
    return found


def _life(lab: Lab) -> dict[str, object]:
    """Which budgets there are as ports come to draw on them, change their rate, and cease to."""
    _draw(lab, "a-b", _budget("life", 4 * GBPS))
    number = budgets.number_of("life")
    seen: dict[str, object] = {"made": budgets.read()[number].rate * 8}
    _draw(lab, "b-a", _budget("life", 2 * GBPS))
    seen["changed"] = budgets.read()[number].rate * 8
    seen["slower"] = _rates(lab, ["a-b"], [("a", "b")])["a-b"]
    _draw(lab, "a-b")
    seen["one left"] = number in budgets.read()
    seen["without"] = _rates(lab, ["a-b"], [("a", "b")])["a-b"]
    lab.unlink("a", "b")
    seen["none left"] = budgets.read() == {}
    return seen


def _star(hosts: Sequence[str]) -> Lab:
    """Return hosts on one switch, linked at LINK_BPS."""
    lab = Lab()
    for host in hosts:
        lab.add_host(host)
        lab.link(host, "s", one_lane(LINK_BPS))
    lab.switch({"s": [f"ip,nw_dst=10.0.0.{i + 1},actions=output:{{s-{host}}}" for i, host in enumerate(hosts)]})
    lab.give_addresses()
    return lab


def _weighted(lab: Lab, bps: int, weights: Sequence[float]) -> dict[str, float]:
    """Ports of a switch to as many hosts, each with its weight, on one budget."""
    for place, weight in enumerate(weights):
        _draw(lab, f"s-b{place}", _budget("weighted", bps, weight))
    places = range(len(weights))
    return _rates(lab, [f"s-b{place}" for place in places], [(f"a{place}", f"b{place}") for place in places])


def _by_input(lab: Lab, bps: int) -> dict[str, float]:
    """What a port sends of each of two inputs, of which one draws on a budget: one after the other."""
    _draw(lab, "s-b0", _budget("of a0", bps, input_index=lab.interfaces["s-a0"].index))
    return {host: _rates(lab, ["s-b0"], [(host, "b0")])["s-b0"] for host in ("a0", "a1")}


def _beside(lab: Lab, narrow_bps: int, wide_bps: int) -> dict[str, float]:
    """Two ports wait for a narrow budget and draw on a wide one, too; a third draws on the wide one alone."""
    narrow, wide = _budget("narrow", narrow_bps), _budget("wide", wide_bps)
    for sink, draws in (("b0", [narrow, wide]), ("b1", [narrow, wide]), ("b2", [wide])):
        _draw(lab, f"s-{sink}", *draws)
    return _rates(lab, ["s-b0", "s-b1", "s-b2"], [("a0", "b0"), ("a1", "b1"), ("a2", "b2")])
