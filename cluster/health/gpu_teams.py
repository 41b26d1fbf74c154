"""The GPUs of a node that add up together, how fast the links between them let them, and which of them or of these
links it is due to if they are slower. Pure.

All of a node's GPUs add up first, as a training's do; then each with its neighbour, two by two and one pair after the
other: a ring over all is as fast as its tightest limit, a shared root port, so that a link at half of its rate does not
show there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabric.model.identity import NodeId
from fabric.model.inside import Inside, gpu_of
from fabric.model.network import Fabric
from fabric.units import format_bandwidth

_PAIR = 2
LEAST_BYTES = 2**20
LASTS_S = 50e-6
"""A test is of as much as the links carry in this time, but of no less than ``LEAST_BYTES``."""


@dataclass(frozen=True)
class GpuParts:
    """A node's GPUs: what is inside it, and the address of each on PCIe and, if it has that, on NVLink."""

    inside: Inside
    pcie: tuple[str, ...]
    nvlink: tuple[str, ...] = ()

    @classmethod
    def of(cls, fabric: Fabric, node: NodeId) -> GpuParts | None:
        """Return those of a node of a fabric; None if it is a point."""
        if fabric.inside is None:
            return None
        gpus = [gpu_of(node, number) for number in range(fabric.inside.gpus)]
        pcie = tuple(fabric.address_inside(gpu) for gpu in gpus)
        has_nvlink = fabric.inside.nvlink is not None
        nvlink = tuple(fabric.address_inside(gpu, nvlink=True) for gpu in gpus) if has_nvlink else ()
        return cls(fabric.inside, pcie, nvlink)

    def addresses(self, team: Team) -> tuple[str, ...]:
        """Return the addresses by which a team's GPUs reach each other, in order."""
        every = self.nvlink if team.over_nvlink else self.pcie
        return tuple(every[gpu] for gpu in team.gpus)


class Team(NamedTuple):
    """GPUs that add up together, in a ring in this order, and by which links."""

    gpus: tuple[int, ...]
    over_nvlink: bool = False

    @property
    def words(self) -> str:
        """Who they are and by what they are joined, such as ``GPUs 2 and 3 over NVLink``."""
        first, *others = self.gpus
        which = f"GPUs {first} and {others[-1]}" if len(others) == 1 else f"GPUs {first} to {others[-1]}"
        return f"{which} over {'NVLink' if self.over_nvlink else 'PCIe'}"

    def limit_Bps(self, inside: Inside) -> float:  # noqa: N802 - bytes, not bits
        """Return the busbw that the node's links allow: what each GPU sends to the next one, and receives meanwhile."""
        if self.over_nvlink:
            assert inside.nvlink is not None
            return inside.nvlink.rate_bps / 8
        shared = [
            one.rate_Bps / (2 * count) for one in inside.root_ports if (count := len(set(one.gpus) & set(self.gpus)))
        ]
        return min([inside.gpu_link_bps / 8, *shared])

    def size_bytes(self, inside: Inside, size_bytes: int | None) -> int:
        """Return how much they add up; ``size_bytes``: as the config says, None: as much as it takes."""
        return size_bytes or max(LEAST_BYTES, round(self.limit_Bps(inside) * LASTS_S))

    def busbw_Bps(self, size_bytes: int, seconds: float) -> float:  # noqa: N802
        """Return the busbw of an allreduce of so many bytes in a time."""
        return 2 * (len(self.gpus) - 1) / len(self.gpus) * size_bytes / seconds


def teams_of(inside: Inside) -> tuple[Team, ...]:
    """Return who adds up, in the order of the tests: all over NVLink where a switch joins them, all over PCIe, then
    neighbours, over each."""
    every = tuple(range(inside.gpus))
    if len(every) < _PAIR:
        return ()
    nvlink = inside.nvlink.groups if inside.nvlink is not None else ()
    found = [Team(group, over_nvlink=True) for group in nvlink if len(group) > _PAIR]
    found.append(Team(every))
    for group, over_nvlink in [*((group, True) for group in nvlink), (every, False)]:
        found += [Team(pair, over_nvlink) for pair in _neighbours(group)]
    return tuple(dict.fromkeys(found))


def _neighbours(group: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each GPU of a ring with the next one."""
    count = len(group)
    for place in range(count if count > _PAIR else count - 1):
        yield group[place], group[(place + 1) % count]


class TeamSpeed(NamedTuple):
    """What a team reached: busbw in bytes per second, 0 with the reason if nothing came of it."""

    busbw_Bps: float  # noqa: N815 - bytes, not bits
    why: str = ""


class Finding(NamedTuple):
    """What all tests of a node come to: the least part of what its links allow that a team reached, and what is slow or
    wrong, in words; empty: nothing."""

    fraction: float
    faults: tuple[str, ...]


def judged(inside: Inside, speeds: Mapping[Team, TeamSpeed], least: float) -> Finding:
    """Return what is wrong with a node's GPUs, or with the links between them, by what teams reached; each must have
    ``least`` of its limit. A GPU with two neighbours that is slow with both, while one of them is fast with another, is
    to blame itself."""
    fractions = {team: speed.busbw_Bps / team.limit_Bps(inside) for team, speed in speeds.items()}
    slow = {team for team, fraction in fractions.items() if fraction < least}
    faults, explained = [], set[Team]()
    for over_nvlink in (True, False):
        pairs = [team for team in speeds if len(team.gpus) == _PAIR and team.over_nvlink is over_nvlink]
        fast = {gpu for team in pairs if team not in slow for gpu in team.gpus}
        for gpu in range(inside.gpus):
            mine = [team for team in pairs if gpu in team.gpus]
            others = {other for team in mine for other in team.gpus} & fast
            if len(mine) >= _PAIR and gpu not in fast and others:
                faults.append(f"GPU {gpu}: {_reached(inside, mine, speeds)}")
                explained |= set(mine)
    left = sorted(slow - explained, key=lambda team: (len(team.gpus), team))
    # A ring over all is as slow as what was found: it is a fault of its own only where nothing else was.
    left = [
        team for team in left if len(team.gpus) == _PAIR or not (faults or any(len(one.gpus) == _PAIR for one in left))
    ]
    faults += [_reached(inside, [team], speeds) for team in left]
    return Finding(min(fractions.values(), default=1.0), tuple(faults))


def _reached(inside: Inside, teams: Sequence[Team], speeds: Mapping[Team, TeamSpeed]) -> str:
    def words(team: Team) -> str:
        speed, limit = speeds[team], format_bandwidth(team.limit_Bps(inside))
        return f"{team.words}: {speed.why or f'{format_bandwidth(speed.busbw_Bps)} of {limit}'}"

    return ", ".join(words(team) for team in teams)
