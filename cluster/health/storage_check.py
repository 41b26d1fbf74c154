"""The storage check of a node, by :mod:`cluster.health.storage_stress`."""

from __future__ import annotations

from typing import NamedTuple

from cluster.health.check_program import response_of

PROGRAM = "cluster.health.storage_stress"


class Speeds(NamedTuple):
    """Payload in bit/s."""

    write_bps: float
    read_bps: float


async def stress(node: str, job: str | None, size_bytes: int, timeout_s: float) -> Speeds:
    """Return how fast a node wrote and read ``size_bytes`` of the file system of a job (None: the only one). Raises
    CheckError, with the reason, if bytes are wrong or it takes longer than ``timeout_s``."""
    words = [node, job or "", str(size_bytes)]
    answer = await response_of(PROGRAM, words, timeout_s, f"{size_bytes} B were not written and read")
    return Speeds(float(answer["write_bps"]), float(answer["read_bps"]))
