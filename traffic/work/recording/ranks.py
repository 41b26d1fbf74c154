"""Which rank each process of a recording belongs to.

A launcher says so (Open MPI, PMIx, PMI, Slurm, torchrun). Without one it is what ``fabric exec`` has told the process,
if it still is on the host that it was told on. Other processes, such as daemons and servers in the background, belong
to the lowest rank of their host, or make one behind all others if it has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from fabric.errors import TrafficError
from traffic.programs.recording import ProcessRecords

_OF_LAUNCHERS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
MOST_RANKS = 100_000


def ranks_of(processes: Sequence[ProcessRecords], hosts: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the rank of each process, and the host of each rank; ``hosts`` of the job, in the order of its ranks.

    Ranks without a process have a host, too, so far as there are hosts. Raises TrafficError for a rank that is not one.
    """
    said = [_said(one) for one in processes]
    of_launcher = [rank for rank, is_launchers in said if is_launchers]
    known = [rank if is_launchers or not of_launcher else None for rank, is_launchers in said]
    host_of: dict[int, str] = {}
    for process, rank in zip(processes, known, strict=True):
        if rank is not None:
            host_of.setdefault(rank, process.host)
    if not of_launcher:
        host_of |= {rank: host for rank, host in enumerate(hosts) if rank not in host_of and rank < _top(host_of)}
    first_of: dict[str, int] = {}
    for rank in sorted(host_of):
        first_of.setdefault(host_of[rank], rank)
    order = {host: place for place, host in enumerate(hosts)}
    without = {one.host for one, rank in zip(processes, known, strict=True) if rank is None} - set(first_of)
    for host in sorted(without, key=lambda name: (order.get(name, len(order)), name)):
        first_of[host] = _top(host_of)
        host_of[first_of[host]] = host
    found = [first_of[one.host] if rank is None else rank for one, rank in zip(processes, known, strict=True)]
    return found, [host_of.get(rank, "") for rank in range(_top(host_of))]


def _top(host_of: dict[int, str]) -> int:
    return max(host_of, default=-1) + 1


def _said(process: ProcessRecords) -> tuple[int | None, bool]:
    """Return the rank that a process was told, and whether by a launcher."""
    told = process.environment
    name = next((name for name in _OF_LAUNCHERS if name in told), None)
    if name is None and "GROUP_RANK" in told and "RANK" in told:  # torchrun's.
        name = "RANK"
    if name is not None:
        return _number(process, name), True
    if "RANK" in told and told.get("FABRIC_HOST") == process.host:
        return _number(process, "RANK"), False
    return None, False


def _number(process: ProcessRecords, name: str) -> int:
    text = process.environment[name]
    if not text.isdecimal() or int(text) >= MOST_RANKS:
        raise TrafficError(
            f"{process}: {name}={text!r} is not a rank; ranks are whole numbers from 0 to {MOST_RANKS - 1:,}"
        )
    return int(text)
