"""The links that explain slow pairs: those that slow pairs have in common and no good pair used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.validation.findings import Fault, FaultKind
from app.validation.rounds import Path
from fabric.model.network import Fabric, Link, Port
from fabric.model.patterns import NicPair
from fabric.units import format_rate


@dataclass(frozen=True)
class PairResult:
    """What a pair reached, of what its path allows, in bit/s."""

    pair: NicPair
    path: Path
    goodput_bps: float
    expected_bps: float

    @property
    def fraction(self) -> float:
        """What part of the expected it reached."""
        return self.goodput_bps / self.expected_bps

    def __str__(self) -> str:
        return f"{self.pair[0].port} to {self.pair[1].port}"


@dataclass(frozen=True)
class Blame:
    """Short pairs, and the ports that send on the links to blame: several if these pairs cannot tell them apart, none
    if good pairs used every link of their paths."""

    ports: tuple[Port, ...]
    pairs: tuple[PairResult, ...]


def unexplained(short: Iterable[PairResult], faulty: Iterable[Port]) -> list[PairResult]:
    """Return the short pairs whose paths avoid all ports that are known to be faulty."""
    known = set(faulty)
    return [one for one in short if known.isdisjoint(one.path)]


def blame(short: Sequence[PairResult], good: Iterable[PairResult]) -> Iterator[Blame]:
    """Yield what explains the short pairs: again and again the link on most of those left, until none is left."""
    cleared = {port for one in good for port in one.path}
    left = list(short)
    while left:
        users = Counter(port for one in left for port in one.path if port not in cleared)
        if not users:
            yield Blame((), tuple(left))
            return
        most = max(users.values())
        first = min(port for port, count in users.items() if count == most)
        explained = [one for one in left if first in one.path]
        same = [port for port in users if all(port in one.path for one in explained)]
        yield Blame(tuple(sorted(same)), tuple(explained))
        left = [one for one in left if first not in one.path]


def blame_fault(fabric: Fabric, found: Blame) -> Fault:
    """Return a blame as a fault."""
    worst = min(found.pairs, key=lambda one: one.fraction)
    links = list(dict.fromkeys(fabric.link_at[port] for port in found.ports))
    count = f"{len(found.pairs)} pairs that use it" if len(found.pairs) > 1 else "the pair that uses it"
    return Fault(
        FaultKind.BANDWIDTH,
        tuple(port for link in links for port in link.ports),
        " or ".join(map(str, links)) or f"no one link: {', '.join(map(str, found.pairs[:4]))}",
        f"{count}; worst {worst} with {format_rate(worst.goodput_bps)}",
        format_rate(worst.expected_bps),
    )


def links_of(fabric: Fabric, faults: Iterable[Fault]) -> set[Link]:
    """Return the links that faults name."""
    return {fabric.link_at[port] for fault in faults for port in fault.ports}
