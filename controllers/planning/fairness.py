"""Max-min fair rates of flows that share links, and the lanes of links by their shares.

A port divides its link among the lanes that have flows, by their shares; a lane divides its part evenly among its
flows. What a lane cannot use, since its flows are slower elsewhere, goes to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabric.model.network import Fabric, Port

NONE = -1
"""No port, after the end of a path that is shorter than others."""
EXACTLY = 1e-9
"""Two rates that differ by less are the same, but for rounding."""
Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shared:
    """Flows and what they share: ``paths`` has a row of ports per flow, which are places in ``rates_bps``, or ``NONE``;
    ``lanes`` the lane of each flow, a place in ``shares``; ``parts`` what part of a flow takes each port of its row, by
    default all of it."""

    rates_bps: Numbers
    paths: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.int64]
    shares: Numbers
    parts: Numbers | None = None

    @classmethod
    def alike(cls, rates_bps: Numbers, paths: npt.NDArray[np.int32], parts: Numbers | None = None) -> Shared:
        """Return flows that are all in one lane."""
        return cls(rates_bps, paths, np.zeros(len(paths), dtype=np.int64), np.ones(1), parts)

    @cached_property
    def is_hop(self) -> npt.NDArray[np.bool_]:
        """Which entries of ``paths`` are ports."""
        found: npt.NDArray[np.bool_] = self.paths != NONE
        return found

    @cached_property
    def weights(self) -> Numbers:
        """The part of a flow that takes each entry of ``paths``."""
        return np.where(self.is_hop, 1.0 if self.parts is None else self.parts, 0.0)

    @cached_property
    def queues(self) -> Places:
        """The lane of a port that each entry of ``paths`` waits in, as one number."""
        return np.where(self.is_hop, self.paths.astype(np.int64) * len(self.shares) + self.lanes[:, None], 0)


def max_min_bps(fabric: Fabric, paths: Sequence[Sequence[Port]]) -> list[float]:
    """Return what each flow has of its links, in bit/s with headers, when all send at once and share every link max-min
    fairly."""
    return max_min_of_parts_bps(fabric, [dict.fromkeys(path, 1.0) for path in paths])


def max_min_of_parts_bps(fabric: Fabric, flows: Sequence[Mapping[Port, float]]) -> list[float]:
    """Return the same of flows that are spread over many paths, given what part of a flow takes each port: all of a
    flow is as slow as its slowest part."""
    if not flows:
        return []
    places: dict[Port, int] = {}
    found = np.full((len(flows), max(map(len, flows))), NONE, dtype=np.int32)
    parts = np.zeros(found.shape)
    for row, flow in enumerate(flows):
        found[row, : len(flow)] = [places.setdefault(port, len(places)) for port in flow]
        parts[row, : len(flow)] = list(flow.values())
    rates = np.array([float(fabric.link_at[port].rate_bps) for port in places])
    rated: list[float] = fair_rates_bps(Shared.alike(rates, found, parts), np.arange(len(flows))).tolist()
    return rated


def fair_rates_bps(shared: Shared, active: Places, within: float = EXACTLY) -> Numbers:
    """Return the rates of some of the flows, by their places, while only these send.

    Rates may be lower than fair by a fraction ``within``, which saves time where many links have nearly the same.

    A link that limits all the flows that pass it has its final rates, and no other flow's rate changes them (Bertsekas
    and Gallager, Data Networks, 6.5.2, for all such links at once). With lanes, a link is final once each of its lanes
    is. Where two links wait for each other in opposite lanes, the flow with the least rate is final, and what no lane
    has taken in the end is divided evenly among the flows that no full link limits.
    """
    rates, is_exact = _filled(shared, active, within)
    if is_exact:
        return rates
    hops = shared.is_hop[active]
    ports = np.where(hops, shared.paths[active], 0)
    weights = shared.weights[active]
    used = np.bincount(ports[hops], (rates[:, None] * weights)[hops], len(shared.rates_bps))
    left = shared.rates_bps - used
    loose = np.flatnonzero(np.where(hops, (left / shared.rates_bps)[ports], 1.0).min(axis=1) > EXACTLY)
    if len(loose):
        more = Shared.alike(np.maximum(left, 0.0), shared.paths[active[loose]], weights[loose])
        rates[loose] += _filled(more, np.arange(len(loose)), within)[0]
    return rates


def _filled(shared: Shared, active: Places, within: float) -> tuple[Numbers, bool]:
    """Return rates, and whether no link waited for another one in vain."""
    filling, is_exact = _Filling(shared, within), True
    rates = np.zeros(len(active))
    rising: Places = np.arange(len(active))
    while len(rising):
        offered, final = filling.offered(active[rising])
        if not final.any():
            final, is_exact = offered <= offered.min() * (1 + within), False
        rates[rising[final]] = offered[final]
        filling.settle(active[rising[final]], offered[final])
        rising = rising[~final]
    return rates, is_exact


class _Filling:
    """Rates being found: what final flows use of each lane of each port."""

    def __init__(self, shared: Shared, within: float) -> None:
        self._shared, self._within = shared, within
        self._lanes = len(shared.shares)
        self._used = np.zeros(len(shared.rates_bps) * self._lanes)

    def settle(self, flows: Places, rates: Numbers) -> None:
        """Let flows have their final rates."""
        hops = self._shared.is_hop[flows]
        used = (rates[:, None] * self._shared.weights[flows])[hops]
        self._used += np.bincount(self._shared.queues[flows][hops], used, minlength=len(self._used))

    def offered(self, flows: Places) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the rate that the narrowest port offers each rising flow, and for which flows it is final."""
        hops, queues = self._shared.is_hop[flows], self._shared.queues[flows]
        offers = np.where(hops, self._per_flow(queues[hops], self._shared.weights[flows][hops])[queues], np.inf)
        least = offers.min(axis=1)
        limits = offers <= least[:, None] * (1 + self._within)
        waits = np.zeros(len(self._shared.rates_bps), dtype=bool)
        waits[queues[hops & ~limits] // self._lanes] = True
        return least, (limits & ~waits[queues // self._lanes]).any(axis=1)

    def _per_flow(self, queues: Places, weights: Numbers) -> Numbers:
        """Return the rate that each lane of each port offers each of its rising flows; it may carry parts of them."""
        rising = np.bincount(queues, weights, minlength=len(self._used)).reshape(-1, self._lanes)
        used = self._used.reshape(-1, self._lanes)
        has = rising > 0
        free = self._shared.rates_bps - np.where(has, 0.0, used).sum(axis=1)
        total = (has * self._shared.shares).sum(axis=1)
        level = np.divide(free, total, out=np.zeros_like(free), where=total > 0)
        offers = np.zeros(rising.shape)
        np.divide(level[:, None] * self._shared.shares - used, rising, out=offers, where=has)
        return np.maximum(offers, 0.0).ravel()
