"""How long flows take as fluids that share links max-min fairly: what theory says of a replay. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from controllers.planning.fairness import Numbers, Shared
from controllers.planning.fluid import Followers, Loads, fluid_ends
from controllers.planning.many_paths import PortArrays
from experiments.replay.connection_matrix import End, Firing, Matrix
from fabric.model.network import Fabric, Port
from traffic.metrics import payload_fraction


def fluid_times(
    fabric: Fabric,
    matrix: Matrix,
    paths: Sequence[Sequence[Port]],
    scale: float = 1.0,
    parts: Sequence[Mapping[Port, float]] | None = None,
) -> list[float]:
    """Return how long each flow takes from its start to its last byte, in seconds.

    Rates are those of full frames; to a flow's own time comes that of a frame through its path. Starts are ``scale``
    times those of the matrix. ``parts``: what part of each flow takes each port, where packets are sprayed; its path is
    then one of many that are as long.
    """
    ports = PortArrays(fabric)
    delays_s = ports.delays_s(ports.places(paths))
    spread = [dict.fromkeys(path, 1.0) for path in paths] if parts is None else parts
    placed = ports.places([tuple(flow) for flow in spread])
    shares = np.zeros(placed.shape)
    for row, flow in enumerate(spread):
        shares[row, : len(flow)] = list(flow.values())
    loads = matrix_loads(matrix, payload_fraction(fabric.mtu_bytes), scale)
    times = fluid_ends(Shared.alike(ports.rates_bps, placed, shares), loads, followers_in(matrix, delays_s))
    took: list[float] = (times.ended_s + delays_s - times.began_s).tolist()
    return took


def matrix_loads(matrix: Matrix, payload: float, scale: float) -> Loads:
    """Return what the flows of a matrix carry if a part of ``payload`` of their bits is data, and when they start."""
    bits = [flow.size_bytes * 8 / payload for flow in matrix.connections]
    starts_s = [np.inf if flow.start_s is None else flow.start_s * scale for flow in matrix.connections]
    return Loads(np.array(bits), np.array(starts_s))


def followers_in(matrix: Matrix, delays_s: Numbers) -> Followers:
    """Return what starts once flows have ended, by a matrix's triggers. What waits for a flow waits for the time of a
    frame through its path, too: for the sink, and for the source as much as one way back."""
    firing = Firing(matrix)

    def after(flow: int, end_s: float) -> Iterator[tuple[int, float]]:
        for end, ways in ((End.RECEIVED, 1), (End.SENT, 2)):
            for started in firing.ended(flow, end):
                yield started, end_s + ways * float(delays_s[flow])

    return after


def path_delay_s(fabric: Fabric, path: Sequence[Port]) -> float:
    """Return how long a full frame takes through a path beyond the time on its first link: delays, and at each switch
    the time until all of it has come."""
    ports = PortArrays(fabric)
    return float(ports.delays_s(ports.places([path]))[0])
