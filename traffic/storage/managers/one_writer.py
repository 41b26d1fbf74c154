"""Does one manager at a time write the chains? Pure checks of what several cluster managers did.

A manager *trusts* its lease from when it has it until it knows that it has not, or little of it is left. No two may at
once. That holds while clocks differ by less than the margin, whatever is cut, paused or killed; it does not where they
differ by more, and then the check says so. What holds in any case is that writes of the leases follow each other: every
write is a transaction that reads the lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from traffic.storage.managers.chain_store import Logged


class Trusted(NamedTuple):
    """When a manager trusted its lease. Times are those of one clock."""

    begin_s: float
    end_s: float


def shared(trusted: Mapping[str, Sequence[Trusted]]) -> list[str]:
    """Return a line for each time in which two managers trusted a lease."""
    found = []
    spans = sorted((span, name) for name, spans in trusted.items() for span in spans)
    for place, (span, name) in enumerate(spans):
        for other, other_name in spans[place + 1 :]:
            if other.begin_s >= span.end_s:
                break
            if other_name != name:
                until_s = min(span.end_s, other.end_s)
                found.append(
                    f"{name} and {other_name} both trusted a lease from {other.begin_s:.3f} to {until_s:.3f} s"
                )
    return found


def writer_faults(log: Sequence[Logged]) -> list[str]:
    """Return what is wrong with the log, in the order in which the store took its lines: each write of chains makes the
    next version, and none is by a lease after which another one was taken."""
    return list(_writer_faults(log))


def _writer_faults(log: Sequence[Logged]) -> Iterator[str]:
    over: set[tuple[str, float]] = set()
    now: tuple[str, float] | None = None
    version: int | None = None
    for line in log:
        lease = line.holder, line.since_s
        if now is not None and lease != now and lease not in over:
            over.add(now)
            now = lease
        elif lease in over:
            yield (
                f"version {line.version} of the routing was written by {line.holder}, whose lease from"
                f" {line.since_s:.3f} s on another one's had followed"
            )
        now = now or lease
        if line.chains and version is not None and line.version != version + 1:
            yield f"version {line.version} of the routing, by {line.holder}, after version {version}"
        version = line.version if line.chains else version
