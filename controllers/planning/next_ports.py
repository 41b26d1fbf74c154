"""The port that each switch sends each NIC's packets by, as arrays: what the planner's rules say, without the rules.

A fabric of 10,000 hosts and 1,000 switches has ten million rules, which take minutes and gigabytes; as an array of
ports they take a second and 20 MB. Only for fabrics without failures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from controllers.planning.plan import FlowRule
from controllers.planning.planner import all_routes
from controllers.planning.routes import is_zoned, spread
from controllers.planning.up_down import destination_strides, numbered_nics, order_of
from fabric.model.identity import Role
from fabric.model.network import Fabric

Ints = npt.NDArray[np.int64]
Hops = npt.NDArray[np.int16]
Ports = npt.NDArray[np.int32]
NONE = -1
"""No port: a switch has no route to this NIC."""
_FAR = 30_000


def static_next_ports(fabric: Fabric) -> Ports:
    """Return the number of the port by which each switch (rows, in the fabric's order) sends to each NIC (columns), by
    static routes; ``NONE`` where it has no route."""
    if not is_zoned(fabric) and (ways := UpDownWays(fabric)).joins_all:
        return ways.next_ports()
    rows = {switch.dpid: row for row, switch in enumerate(fabric.switches)}
    columns = {nic.ip: column for column, nic in enumerate(fabric.nics)}
    found: Ports = np.full((len(rows), len(columns)), NONE, dtype=np.int32)
    for route in all_routes(fabric):
        if not isinstance(route, FlowRule):
            found[rows[route.dpid], columns[route.destination]] = route.output
    return found


class UpDownWays:
    """The ways of :mod:`controllers.planning.up_down` between all switches and all leaves at once."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.leaves = fabric.with_role(Role.LEAF)
        self.rows = {switch: row for row, switch in enumerate(fabric.switches)}
        self._order = order_of(fabric)
        self._peers = {
            switch: [
                (port.number, peer) for port in fabric.ports_of[switch] if (peer := fabric.peer(port).node).is_switch
            ]
            for switch in fabric.switches
        }
        self._below = self._downwards()
        self._regular = self._up_and_down()
        self._nearer: dict[int, tuple[Ints, npt.NDArray[np.bool_]]] = {}

    def _downwards(self) -> Hops:
        """Return the length of the shortest way down from each switch to each leaf; ``_FAR`` where there is none."""
        found: Hops = np.full((len(self.rows), len(self.leaves)), _FAR, dtype=np.int16)
        for column, leaf in enumerate(self.leaves):
            found[self.rows[leaf], column] = 0
        for switch in sorted(self.rows, key=self._order.__getitem__):
            row = self.rows[switch]
            for peer in self._beside(switch, above=False):
                np.minimum(found[row], found[peer] + 1, out=found[row])
        return np.minimum(found, _FAR)

    def _up_and_down(self) -> Hops:
        """Return those, and one more than the nearest switch above for each that has no way down."""
        found = self._below.copy()
        for switch in sorted(self.rows, key=self._order.__getitem__, reverse=True):
            above = self._beside(switch, above=True)
            if above:
                row = self.rows[switch]
                nearest = np.minimum(found[above].min(axis=0) + 1, _FAR)
                found[row] = np.where(self._below[row] < _FAR, self._below[row], nearest)
        return found

    def _beside(self, switch: Any, above: bool) -> list[int]:
        """Return the rows of the neighbours above a switch, or of those below it."""
        own = self._order[switch]
        return list(
            dict.fromkeys(self.rows[peer] for _, peer in self._peers[switch] if (self._order[peer] > own) == above)
        )

    @property
    def joins_all(self) -> bool:
        """Whether every switch has a way to every leaf of its network that has NICs."""
        for network in self.fabric.networks:
            columns = [
                column for column, leaf in enumerate(self.leaves) if leaf in network and self.fabric.nics_on_leaf(leaf)
            ]
            if (self._regular[np.ix_([self.rows[switch] for switch in network], columns)] >= _FAR).any():
                return False
        return True

    def nearer(self, row: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the numbers of a switch's ports to other switches, and which of them (rows) lead nearer to which leaf
        (columns)."""
        switch = self.fabric.switches[row]
        peers = self._peers[switch]
        numbers = np.array([number for number, _ in peers], dtype=np.int64)
        at = [self.rows[peer] for _, peer in peers]
        up = np.array([self._order[peer] > self._order[switch] for _, peer in peers], dtype=bool)[:, None]
        has_way_down = self._below[row] < _FAR
        wanted = np.where(self._regular[row] < _FAR, self._regular[row] - 1, _FAR + 1)
        down = (self._below[at] == wanted) & ~up & has_way_down
        return numbers, down | ((self._regular[at] == wanted) & up & ~has_way_down)

    def next_ports(self) -> Ports:
        """Return the static routes: see :func:`static_next_ports`."""
        nics = {nic.ip: column for column, nic in enumerate(self.fabric.nics)}
        places = {leaf: place for place, leaf in enumerate(self.leaves)}
        numbered = [(nics[nic.ip], places[leaf]) for leaf, own in numbered_nics(self.fabric).items() for _, nic in own]
        columns, at_leaf = (np.array(part, dtype=np.int64) for part in zip(*numbered, strict=True))
        strides = destination_strides(self.fabric)
        found: Ports = np.full((len(self.rows), len(nics)), NONE, dtype=np.int32)
        for switch, row in self.rows.items():
            numbers, leads = self.nearer(row)
            level = self.fabric.levels[switch]
            goes_up = {number: self._order[peer] > self._order[switch] for number, peer in self._peers[switch]}
            for leaves in _alike(leads):
                ports = sorted(int(number) for number in numbers[leads[:, leaves[0]]])
                chosen = np.flatnonzero(np.isin(at_leaf, leaves) & (at_leaf != places.get(switch, NONE)))
                if ports and len(chosen):
                    stride = strides[level if goes_up[ports[0]] else max(1, level - 1)]
                    found[row, columns[chosen]] = _dealt(chosen // stride % len(ports), ports, switch.index)
        for nic, column in nics.items():
            port = self.fabric.peer(self.fabric.nic_at_ip[nic].port)
            found[self.rows[port.node], column] = port.number
        return found


def _alike(leads: npt.NDArray[np.bool_]) -> list[Ints]:
    """Return the columns, in groups of those that are equal."""
    if not len(leads):
        return []
    packed = np.ascontiguousarray(np.packbits(leads, axis=0).T)
    kinds = packed.view([("", packed.dtype)] * packed.shape[1]).ravel()
    _, kind = np.unique(kinds, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    return list(np.split(order, np.flatnonzero(np.diff(kind[order])) + 1))


def _dealt(wanted: Ints, ports: list[int], turn: int) -> Ports:
    """Return a port for each destination as :func:`controllers.planning.routes.spread` deals them; what each wants, if
    no two ports differ by more than one."""
    counts = np.bincount(wanted, minlength=len(ports))
    if counts.max() - counts.min() <= 1:
        return np.array(ports, dtype=np.int32)[wanted]
    return np.array(spread([ports[place] for place in wanted.tolist()], ports, turn=turn), dtype=np.int32)
