"""What ``fabric exec`` must say of who has sent what, in either engine."""

from __future__ import annotations

from pathlib import Path

from app.commands.exec_sent import NOBODY
from fabric.units import parse_size_bytes

_SENDS = f"python3 {Path(__file__).with_name('sends.py')}"
_RANKS = (
    f"{_SENDS} tcp z1h000 300000 && {_SENDS} udp z1h000 100000",
    f"{_SENDS} listen & sleep 0.5; {_SENDS} tcp 127.0.0.1 200000; kill $!",
    f"ssh z0h001 {_SENDS} tcp z1h000 50000",
)
_SCRIPT = "case $FABRIC_RANK in " + " ".join(f"{rank}) {words};;" for rank, words in enumerate(_RANKS)) + " esac"
WORDS = ("z0h000", "z0h000", "z0h000", "--background", f"z1h000={_SENDS} listen", "--", "sh", "-c", _SCRIPT)
_TCP_FRAME, _TCP_DATA = 1514, 1448
_PARTS = -(-20_008 // 1480)
"""Of a datagram of 20,000 bytes, with its header."""


def check(stderr: str) -> None:
    """Three programs on one host are told apart, and what one started on another host counts as its own."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in stderr.splitlines() if "│" in line]
    rows = {(row[0], row[1].rpartition(" ")[2] if row[1].endswith(")") else ""): row for row in cells if len(row) == 3}
    sent = {key: parse_size_bytes(row[2]) for key, row in rows.items() if key[0].startswith("z")}
    datagrams = 5 * (20_008 + 34 * _PARTS)
    frames = 300_000 * _TCP_FRAME / _TCP_DATA + datagrams
    assert frames <= sent["z0h000", ""] < frames + 3000, stderr
    assert sent["z0h000", "(2)"] == 0, "what it sends to its own host crosses no NIC"
    assert sent["z0h000", "(3)"] == 0, "ssh crosses none either"
    assert 50_000 * _TCP_FRAME / _TCP_DATA <= sent["z0h001", ""] < 55_000
    assert 0 < sent["z1h000", ""] < 50_000, "acknowledgements"
    nobody = [parse_size_bytes(row[2]) for row in cells if len(row) == 3 and row[1] == NOBODY]
    assert sum(nobody) < 5000, "what the NICs sent is what the programs did, but for the kernel's own answers"
    assert "(2) on z0h000" in stderr
    assert "sent nothing over the fabric" in stderr
