"""Deadlock: lanes of ports that wait for each other in a circle, each for room that only the next can make.

A lane of a port is stalled while the input buffer at the other end of its link has no room. The frames in that buffer
wait in lanes of ports of that switch. A circle of stalled lanes, each of which has been so for long, can never end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fabric.vl_samples import VlSample

LaneOf = tuple[int, int]
"""A lane of a port: interface index and lane number."""
LONGEST_STALL_FRAMES = 1000
"""How long, in full frames of the slowest link, a lane stands still before a circle of such counts as a deadlock: as
long as it takes to empty tens of full input buffers one after the other."""


def find_deadlock(sample: VlSample, stalled_for_ns: int) -> list[LaneOf] | None:
    """Return a circle of lanes of one namespace, each stalled for that long and waiting for the next; None: none."""
    since = sample.lanes["stalled_since_ns"].astype("i8")
    long_ago = (since > 0) & (since <= sample.now_ns - stalled_for_ns)
    if long_ago.sum() < 2:
        return None
    stalled = {sample.keys[place]: int(sample.peers[place]) for place in long_ago.nonzero()[0]}
    fields = ("index", "lane", "input_index", "input_lane")
    return find_circle(waits_for(stalled, sample.waits[list(fields)].tolist()))


def waits_for(
    stalled: Mapping[LaneOf, int], waits: Iterable[tuple[int, int, int, int]]
) -> dict[LaneOf, list[LaneOf]]:
    """Return, for each stalled lane, the stalled lanes that hold what is in its way.

    ``stalled`` has the interface at the other end of each one's link; a wait (port, lane, input, input lane) is that a
    lane of a port has frames which are in the buffer of that lane of an input.
    """
    senders = {(peer, lane): (index, lane) for (index, lane), peer in stalled.items()}
    found: dict[LaneOf, list[LaneOf]] = {lane: [] for lane in stalled}
    for index, lane, input_index, input_lane in waits:
        sender = senders.get((input_index, input_lane))
        if sender is not None and (index, lane) in stalled:
            found[sender].append((index, lane))
    return found


def find_circle(edges: Mapping[LaneOf, Iterable[LaneOf]]) -> list[LaneOf] | None:
    """Return the nodes of a circle in a directed graph, in order; None: there is none."""
    done: set[LaneOf] = set()
    for root in edges:
        path: dict[LaneOf, None] = {}
        stack = [(root, iter(edges[root]))] if root not in done else []
        if stack:
            path[root] = None
        while stack:
            node, following = stack[-1]
            step = next((other for other in following if other not in done), None)
            if step is None:
                done.add(node)
                del path[node]
                stack.pop()
            elif step in path:
                nodes = list(path)
                return nodes[nodes.index(step) :]
            else:
                path[step] = None
                stack.append((step, iter(edges.get(step, ()))))
    return None
