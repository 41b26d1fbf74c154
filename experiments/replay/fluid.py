"""How long flows take as fluids that share links max-min fairly: what theory says of a replay. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from controllers.planning.fairness import max_min_bps
from experiments.replay.connection_matrix import End, Firing, Matrix
from fabric.model.network import Fabric, Port
from traffic.metrics import payload_fraction

_ALMOST_NOTHING = 1e-9
"""Of a flow's size: what is left of those that end together with another one, but for rounding."""


def fluid_times(fabric: Fabric, matrix: Matrix, paths: Sequence[Sequence[Port]], scale: float = 1.0) -> list[float]:
    """Return how long each flow takes from its start to its last byte, in seconds.

    Rates are those of full frames; to a flow's own time comes that of a frame through its path. Starts are ``scale``
    times those of the matrix. Whoever waits for a flow waits for that time, too: for the sink, and for the source as
    much as one way back.

    Each turn starts a flow or ends one, so there are two turns per flow at most. A flow has ended once its own end, at
    its present rate, is reached: what is left of it then may be less than the resolution of the time.
    """
    flows, firing = matrix.connections, Firing(matrix)
    payload = payload_fraction(fabric.mtu_bytes)
    left = [flow.size_bytes * 8 / payload for flow in flows]
    delays = [path_delay_s(fabric, path) for path in paths]
    events = [(flow.start_s * scale, place) for place, flow in enumerate(flows) if flow.start_s is not None]
    heapq.heapify(events)
    began, took, active, now = {}, [0.0] * len(flows), set[int](), 0.0
    while events or active:
        order = sorted(active)
        rates = dict(zip(order, max_min_bps(fabric, [paths[place] for place in order]), strict=True)) if order else {}
        ends = {place: now + left[place] / rate for place, rate in rates.items()}
        then = min(min(ends.values(), default=float("inf")), events[0][0] if events else float("inf"))
        for place, rate in rates.items():
            left[place] -= rate * (then - now)
        now = then
        while events and events[0][0] <= now:
            place = heapq.heappop(events)[1]
            began[place] = now
            active.add(place)
        reached = {place for place, end in ends.items() if end <= then}
        almost = {place for place in active if left[place] <= _ALMOST_NOTHING * flows[place].size_bytes * 8}
        for place in sorted(reached | almost):
            active.remove(place)
            took[place] = now + delays[place] - began[place]
            for end, ways in ((End.RECEIVED, 1), (End.SENT, 2)):
                for started in firing.ended(place, end):
                    heapq.heappush(events, (now + ways * delays[place], started))
    return took


def path_delay_s(fabric: Fabric, path: Sequence[Port]) -> float:
    """Return how long a full frame takes through a path beyond the time on its first link: delays, and at each switch
    the time until all of it has come."""
    links = [fabric.link_at[port] for port in path]
    return sum(link.delay_ns * 1e-9 for link in links) + sum(
        fabric.frame_bytes * 8 / link.rate_bps for link in links[1:]
    )
