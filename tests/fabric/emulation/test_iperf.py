"""Bandwidth as Mininet's prompt tells it: how much is sent, and what iperf3's answers mean."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fabric.emulation import iperf
from fabric.errors import EmulationError, UsageError


@pytest.mark.parametrize(("text", "rate"), [("10M", 10e6), ("2.5g", 2.5e9), ("300", 300), ("7k", 7e3)])
def test_rates_are_read_as_iperf_writes_them(text: str, rate: float) -> None:
    assert iperf.bits_per_second(text) == rate


@pytest.mark.parametrize("text", ["", "x", "10 M", "-1M", "0", "10Mbit"])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        iperf.bits_per_second(text)
    assert str(refused.value) == f"{text!r} is not a rate in bit/s; write it like 10M"


def test_at_true_rates_as_many_frames_are_sent_as_take_milliseconds() -> None:
    assert iperf.amount_bytes(20e6, 4214, 5) == 12_500_000
    assert iperf.amount_bytes(200e9, 4214, 5) == 20_000 * 4214


def test_rates_are_written_as_iperf_writes_them() -> None:
    assert [iperf.written(rate) for rate in (19.24e6, 197e9, 4500, 12)] == [
        "19.2 Mbits/sec",
        "197 Gbits/sec",
        "4.5 Kbits/sec",
        "12 bits/sec",
    ]


def answer(protocol: str, **end: Any) -> dict[str, Any]:
    return {"start": {"test_start": {"protocol": protocol}}, "end": end}


def test_a_server_receives_what_is_not_lost() -> None:
    tcp = answer("TCP", sum_sent={"bits_per_second": 20.0}, sum_received={"bits_per_second": 19.0})
    assert iperf.rates(tcp) == (19.0, 20.0)
    udp = answer("UDP", sum={"bits_per_second": 10.0, "lost_percent": 10})
    assert iperf.rates(udp) == (9.0, 10.0)


def test_without_iperf3_the_error_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EmulationError, match="iperf3 is not installed; apt-get install iperf3"):
        iperf.measure(iperf.Ends([], [], "127.0.0.1"), 1, 1)


def test_what_the_client_says_of_a_fault_is_told() -> None:
    client = [sys.executable, "-c", 'print(\'{"error": "unable to connect: No route to host"}\')']
    with pytest.raises(EmulationError, match="iperf3: unable to connect: No route to host"):
        iperf.measure(iperf.Ends(client, [], "10.128.0.1"), 1, 1)
