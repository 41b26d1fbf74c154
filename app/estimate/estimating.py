"""When flows end that share a fabric as fluids, and how busy its ports are: an estimate, without a packet. Pure.

Rates are those of full frames, headers included; to each flow's time comes that of a frame through its path. Not in it:
queues, losses, windows that grow, acknowledgements, and what is inside nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.estimate.jobs import PatternJob
from app.estimate.patterns import endpoints, require_few
from controllers.planning.fairness import NONE, Numbers, Shared
from controllers.planning.fluid import Followers, Loads, fluid_ends
from controllers.planning.many_paths import Endpoints, PortArrays, Ways, flow_ways
from controllers.planning.policies import POLICIES
from controllers.planning.policies.policy import or_list
from controllers.routing import Routing
from experiments.replay.connection_matrix import Matrix
from experiments.replay.fluid import followers_in, matrix_loads
from fabric.errors import ConfigError, UsageError
from fabric.model.lanes import LanePlan
from fabric.model.network import Fabric, Port
from fabric.model.rails import dealt_nics
from traffic.metrics import payload_fraction

WITHIN = 0.02
"""How exact rates are: links whose flows have the same to 2 % count as one."""


@dataclass(frozen=True)
class Setting:
    """What flows are estimated on. ``seed`` draws permutations and source ports."""

    fabric: Fabric
    routing: Routing
    lanes: LanePlan
    seed: int = 1


@dataclass(frozen=True)
class Asked:
    """Flows of one job: its ``name``, what it ``plays`` in words, and the Service Level of its packets."""

    name: str
    plays: str
    level: str
    flows: Endpoints
    loads: Loads

    @property
    def count(self) -> int:
        """How many flows it has."""
        return len(self.flows.sources)


@dataclass(frozen=True)
class JobTimes:
    """How long the flows of a job take, each from its start to its last byte, and when the last has ended."""

    asked: Asked
    lane: str
    took_s: Numbers
    last_s: float

    @property
    def slowest(self) -> int:
        """The slowest flow, by its place in the job."""
        return int(self.took_s.argmax())


@dataclass(frozen=True)
class BusyPort:
    """A port: how many flows pass it, and the part of its link that they fill until the last flow has ended."""

    port: Port
    flows: int
    utilisation: float


@dataclass(frozen=True)
class Estimate:
    """When flows end, by job, and how busy the ports are that have any, the busiest first."""

    setting: Setting
    jobs: list[JobTimes]
    ports: list[BusyPort]


def pattern_flows(setting: Setting, job: PatternJob) -> Asked:
    """Return the flows of a job that fits the fabric. Raises UsageError for a pattern that its hosts cannot play."""
    flows = endpoints(setting.fabric, job.drawn(setting.fabric, setting.seed))
    bits = job.size * 8 / payload_fraction(setting.fabric.mtu_bytes)
    count = len(flows.sources)
    loads = Loads(np.full(count, bits), np.full(count, job.start))
    return Asked(job.name or job.pattern.value, job.pattern.value, job.service_level, flows, loads)


def matrix_flows(setting: Setting, matrix: Matrix, source: str, level: str) -> Asked:
    """Return the flows of a connection matrix. Raises ConfigError for one with more hosts than the fabric has."""
    fabric = setting.fabric
    if matrix.nodes > len(fabric.computes):
        have = f"{fabric.name} has {len(fabric.computes):,} compute nodes"
        raise ConfigError(source, [f"Nodes {matrix.nodes}: {have}; use a larger topology"])
    places = {nic.port: place for place, nic in enumerate(fabric.nics)}
    pairs = np.empty((len(matrix.connections), 2), dtype=np.int64)
    hosts = fabric.computes
    for one in matrix.connections:
        if fabric.nic_pair(hosts[one.source], hosts[one.sink]) is None:
            raise ConfigError(source, [f"line {one.line}: no network has a NIC of both hosts; choose others"])
    ends = [(hosts[one.source], hosts[one.sink], one.size_bytes) for one in matrix.connections]
    for row, pair in enumerate(dealt_nics(fabric, ends)):
        pairs[row] = [places[nic.port] for nic in pair]
    loads = matrix_loads(matrix, payload_fraction(fabric.mtu_bytes), fabric.scale)
    return Asked(source, "connection matrix", level, Endpoints(pairs[:, 0], pairs[:, 1]), loads)


def estimate(setting: Setting, asked: Sequence[Asked], matrix: Matrix | None = None) -> Estimate:
    """Return when the flows of jobs end that start together. ``matrix``: that of the only job, whose triggers start
    flows. Raises UsageError for routes that move, and for too many flows."""
    if setting.routing.policy.moves:
        staying = or_list(policy for policy in POLICIES if not policy.moves)
        raise UsageError(f"--routing {setting.routing.policy}: an estimate needs paths that stay; use {staying}")
    require_few(" and ".join(one.name for one in asked[:2]), sum(one.count for one in asked))
    ports = PortArrays(setting.fabric)
    flows = Endpoints(
        *(np.concatenate([getattr(one.flows, end) for one in asked]) for end in ("sources", "destinations"))
    )
    loads = Loads(*(np.concatenate([getattr(one.loads, what) for one in asked]) for what in ("bits", "starts_s")))
    ways = flow_ways(ports, setting.routing, flows, setting.seed)
    delays_s = ways.delays_s
    followers: Followers = (lambda *_: ()) if matrix is None else followers_in(matrix, delays_s)
    times = fluid_ends(_shared(setting.lanes, ports, ways, asked), loads, followers, WITHIN)
    ended_s = times.ended_s + delays_s
    bounds = np.cumsum([0, *(one.count for one in asked)])
    found = [
        JobTimes(
            one,
            setting.lanes.lane_of_label(one.level).name,
            (ended_s - times.began_s)[begin:end],
            float(ended_s[begin:end].max()),
        )
        for one, begin, end in zip(asked, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    lasting_s = float(times.ended_s.max() - times.began_s.min())
    return Estimate(setting, found, _busy_ports(ports, ways, loads, lasting_s))


def _shared(lanes: LanePlan, ports: PortArrays, ways: Ways, asked: Sequence[Asked]) -> Shared:
    """Return the links that flows share, lane by lane. A lane with a ceiling has a further link, of that rate."""
    known = list(lanes.with_share)
    of_flow = np.repeat(
        [known.index(lanes.lane_of_label(one.level)) for one in asked], [one.count for one in asked]
    ).astype(np.int64)
    paths = ways.ports
    rates, hops = [ports.rates_bps], [paths]
    for place, lane in enumerate(known):
        if lane.ceiling < 1 and (of_flow == place).any():
            limited = (of_flow == place)[:, None] & (paths != NONE)
            hops.append(np.where(limited, paths + sum(map(len, rates)), NONE).astype(np.int32))
            rates.append(ports.rates_bps * lane.ceiling)
    shares = np.array([lane.share for lane in known])
    parts = None if ways.parts is None else np.concatenate([ways.parts] * len(hops), axis=1)
    return Shared(np.concatenate(rates), np.concatenate(hops, axis=1), of_flow, shares, parts)


def _busy_ports(ports: PortArrays, ways: Ways, loads: Loads, lasting_s: float) -> list[BusyPort]:
    paths = ways.ports
    hops = paths != NONE
    parts = np.ones(paths.shape) if ways.parts is None else ways.parts
    bits = (loads.bits[:, None] * parts)[hops]
    carried = np.bincount(paths[hops], bits, minlength=len(ports.ports))
    flows = np.bincount(paths[hops], minlength=len(ports.ports))
    used = carried / (ports.rates_bps * lasting_s)
    order = np.argsort(-used, kind="stable")
    return [BusyPort(ports.ports[at], int(flows[at]), float(used[at])) for at in order.tolist() if flows[at]]
