"""What ``fabric exec`` must say of who has sent what, in either engine."""

from __future__ import annotations

from pathlib import Path

from app.commands.exec_sent import NOBODY
from fabric.units import parse_size_bytes
from topologies.load import load_fabric

TOPOLOGY = "fire_flyer_2_tiny"
_SENDS = f"python3 {Path(__file__).with_name('sends.py')}"
_RANKS = (
    f"{_SENDS} tcp z1h000 300000 && {_SENDS} udp z1h000 100000",
    f"{_SENDS} listen & sleep 0.5; {_SENDS} tcp 127.0.0.1 200000; kill $!",
    f"ssh z0h001 {_SENDS} tcp z1h000 50000",
)
_SCRIPT = "case $FABRIC_RANK in " + " ".join(f"{rank}) {words};;" for rank, words in enumerate(_RANKS)) + " esac"
WORDS = (TOPOLOGY, "z0h000", "z0h000", "z0h000", "--background", f"z1h000={_SENDS} listen", "--", "sh", "-c", _SCRIPT)
_DATAGRAM, _UDP, _IP, _TCP, _ETHERNET = 20_000, 8, 20, 32, 14
_CONNECTION = 500
"""What connections and their ends take beside data, at most."""


def _by_tcp(size: int, mtu_bytes: int) -> int:
    return size + -(-size // (mtu_bytes - _IP - _TCP)) * (_IP + _TCP + _ETHERNET)


def _by_udp(size: int, mtu_bytes: int) -> int:
    parts = -(-(_DATAGRAM + _UDP) // ((mtu_bytes - _IP) // 8 * 8))
    return size // _DATAGRAM * (_DATAGRAM + _UDP + parts * (_IP + _ETHERNET))


def sent_by(stderr: str) -> dict[tuple[str, str], int]:
    """Return the bytes that ``fabric exec`` says each program has sent, by its host and its name."""
    of_lanes, _, of_programs = stderr.partition("Bytes sent by each program")
    assert "Bytes carried by each lane" in of_lanes
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in of_programs.splitlines()]
    return {(row[0], row[1]): parse_size_bytes(row[2]) for row in cells if len(row) == 3}


def check(stderr: str, sent_again: float) -> None:
    """Three programs on one host are told apart, and what one started on another host counts as its own.

    ``sent_again``: what TCP may send twice, of all.
    """
    mtu_bytes = load_fabric(TOPOLOGY).mtu_bytes
    named = sent_by(stderr)
    nobody = named.pop(("", NOBODY), 0)
    sent = {(host, name.rpartition(" ")[2] if name.endswith(")") else ""): size for (host, name), size in named.items()}
    first = _by_tcp(300_000, mtu_bytes) + _by_udp(100_000, mtu_bytes)
    assert 0.999 * first < sent["z0h000", ""] < (1.001 + sent_again) * first + _CONNECTION, stderr
    assert sent["z0h000", "(2)"] == 0, "what it sends to its own host crosses no NIC"
    assert sent["z0h000", "(3)"] == 0, "ssh crosses none either"
    third = _by_tcp(50_000, mtu_bytes)
    assert 0.999 * third < sent["z0h001", ""] < (1.001 + sent_again) * third + _CONNECTION, stderr
    assert 0 < sent["z1h000", ""] < 50_000, "acknowledgements"
    assert nobody < _CONNECTION, "what the NICs sent is what the programs did, but for the kernel's own answers"
    assert "(2) on z0h000" in stderr
    assert "sent nothing over the fabric" in stderr
