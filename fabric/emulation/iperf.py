"""The bandwidth between two hosts by iperf3: what Mininet's prompt asks of ``iperf``, whose own waits have no end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fabric.errors import EmulationError, UsageError

PORT = 5001
"""Mininet's."""
_FRAMES = 20_000
"""Enough for a rate where time is exact, at any rate."""
_READY_S, _LOOK_S, _PATIENCE_S = 5.0, 0.1, 30.0
_REFUSED = "Connection refused"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True)
class Ends:
    """What to put before a command to run it on the client and on the server, and the server's address."""

    client: Sequence[str]
    server: Sequence[str]
    address: str


def bits_per_second(text: str) -> float:
    """Return a rate as iperf writes it (``10M``). Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", text, re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise UsageError(f"{text!r} is not a rate in bit/s; write it like 10M")
    return float(found[1]) * _UNITS[found[2].upper()]


def amount_bytes(rate_bps: float, frame_bytes: int, duration_s: float) -> int:
    """Return how much to send: for a duration, or fewer bytes where enough frames have been sent before."""
    return max(1, round(min(rate_bps * duration_s / 8, _FRAMES * frame_bytes)))


def measure(ends: Ends, size_bytes: int, rate_bps: float, udp_rate: str | None = None) -> tuple[float, float]:
    """Return what the server received and the client sent, in bit/s. Raises EmulationError naming what failed.

    ``rate_bps``: how fast the bytes can go at most, which says when to give up.
    """
    if shutil.which("iperf3") is None:
        raise EmulationError("iperf3 is not installed; apt-get install iperf3")
    server = _popen([*ends.server, "iperf3", "-s", "-1", "-p", str(PORT)])
    try:
        words = ["iperf3", "-c", ends.address, "-p", str(PORT), "-n", str(size_bytes), "-J"]
        words += [] if udp_rate is None else ["-u", "-b", udp_rate]
        answer = _answer([*ends.client, *words], server, 10 * size_bytes * 8 / rate_bps + _PATIENCE_S)
    finally:
        _end(server)
    return rates(answer)


def rates(answer: dict[str, Any]) -> tuple[float, float]:
    """Return what was received and what was sent, in bit/s, of what iperf3 says at its end (``-J``)."""
    end = answer["end"]
    if (
        "sum_received" in end
        and "udp" not in str(answer.get("start", {}).get("test_start", {}).get("protocol")).lower()
    ):
        return float(end["sum_received"]["bits_per_second"]), float(end["sum_sent"]["bits_per_second"])
    sent = float(end["sum"]["bits_per_second"])
    return sent * (1 - end["sum"]["lost_percent"] / 100), sent


def written(rate_bps: float) -> str:
    """Return a rate as iperf writes it: ``19.2 Mbits/sec``."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if rate_bps >= factor:
            return f"{rate_bps / factor:.3g} {unit}bits/sec"
    return f"{rate_bps:.3g} bits/sec"


def _answer(command: Sequence[str], server: subprocess.Popen[bytes], patience_s: float) -> dict[str, Any]:
    """Return what the client says, which tries again until the server is there."""
    deadline = time.monotonic() + _READY_S
    while True:
        client = _popen(command)
        try:
            said, _ = client.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            raise EmulationError(f"iperf3 has not ended within {patience_s:.0f} s") from None
        finally:
            _end(client)
        answer = _parsed(said)
        fault = answer.get("error")
        if fault is None:
            return answer
        if _REFUSED not in fault or server.poll() is not None or time.monotonic() > deadline:
            raise EmulationError(f"iperf3: {fault}")
        time.sleep(_LOOK_S)


def _parsed(said: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        words = said.decode(errors="replace").strip() or "it said nothing"
        return {"error": words}
    return answer


def _popen(command: Sequence[str]) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null, start_new_session=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_READY_S)
    if process.stdout is not None:
        process.stdout.close()
