"""A recording of programs as a graph of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from traffic.programs.recording import ProcessRecords
from traffic.work.graph import WorkGraph
from traffic.work.operations import Send
from traffic.work.recording.causes import steps_of
from traffic.work.recording.connections import OF_A_HOST, matched
from traffic.work.recording.messages import graph_from
from traffic.work.recording.ranks import ranks_of


@dataclass(frozen=True)
class Recording:
    """What programs did. ``hosts``: of each rank. ``lasted_s``: from the first byte over the fabric to the last.

    ``left_out``: bytes sent that are not in the graph, by why. ``faults``: what makes the graph doubtful, in words.
    """

    graph: WorkGraph
    hosts: tuple[str, ...]
    lasted_s: float
    left_out: Mapping[str, int]
    faults: tuple[str, ...]

    @property
    def sizes(self) -> list[int]:
        """The bytes of each message."""
        return [one.size_bytes for _, _, one in self.graph.all_operations() if isinstance(one, Send)]


def recording_of(
    name: str, processes: Sequence[ProcessRecords], host_of: Mapping[str, str], hosts: Sequence[str]
) -> Recording:
    """Return what programs did.

    ``host_of``: the host of each address of the fabric. ``hosts``: of the job, in the order of its ranks. Raises
    TrafficError if nothing crossed the fabric, or a process says a rank that is none.
    """
    ranks, host_of_rank = ranks_of(processes, hosts)
    streams = matched(processes, ranks, host_of)
    steps = steps_of(processes, ranks, streams)
    left_out = streams.left_out + Counter(
        {
            "datagrams (UDP)": sum(one.datagram_bytes for one in processes),
            OF_A_HOST: sum(one.local_bytes for one in processes),
        }
    )
    if not any(steps.sent.values()):
        what = "no program that could be recorded sent anything to another one over the fabric"
        why = "; ".join(f"{reason}: {size:,} B" for reason, size in left_out.items() if size)
        raise TrafficError(f"nothing was recorded: {what}{f' ({why})' if why else ''}")
    faults = [f"{one}: {one.lost:,} records found no room, so its end is missing" for one in processes if one.lost]
    faults += [f"{one}: {one.beyond:,} calls had descriptors above 65,535" for one in processes if one.beyond]
    missed = sum(max(0, size - steps.sent.get(stream, 0)) for stream, size in steps.received.items())
    if missed:
        faults.append(f"{missed:,} B were received that no recorded call has sent; a program sent them in another way")
    graph = graph_from(name, steps, streams, len(host_of_rank))
    return Recording(graph, tuple(host_of_rank), steps.lasted_s, dict(left_out), tuple(faults))
