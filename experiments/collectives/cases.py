"""What ``collectives`` plays: each collective by each of its algorithms over so many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from runs.cases import Case, axis
from traffic.collectives.collective import Collective, Flows
from traffic.collectives.hfreduce import HFReduceConfig, TreeKind
from traffic.collectives.kinds import rank_flows
from traffic.collectives.listing import COLLECTIVES, collective_named
from traffic.collectives.msccl import parse_msccl
from traffic.collectives.nccl import NcclConfig, NodeRanksError
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.operations.barrier import BARRIER
from traffic.collectives.operations.push_pull import PUSH_PULL

if TYPE_CHECKING:  # It checks that its cases can be played.
    from experiments.collectives.config import CollectivesConfig

HFREDUCE = "hfreduce"
"""What HFReduce is called among the algorithms of an allreduce."""


def _spaced(name: str) -> str:
    return name.replace("_", " ")


@dataclass(frozen=True)
class Play(
    Case, name="{collective}_{algorithm}_n{ranks}{servers}", title="{collective}, {algorithm}{servers}, {ranks} ranks"
):
    """A collective by an algorithm over ``ranks``, beside so many that only serve. ``msccl``: the text of a file."""

    collective: str = axis(words=_spaced)
    algorithm: str = axis(words=_spaced)
    ranks: int = axis()
    servers: int = axis(
        name=lambda count: f"_k{count}" if count else "",
        words=lambda count: f" + {count} servers" if count else "",
        default=0,
    )
    msccl: str | None = None

    @property
    def all_ranks(self) -> int:
        """How many ranks there are with the servers."""
        return self.ranks + self.servers

    @property
    def planned(self) -> Collective:
        """The collective."""
        return collective_named(self.collective)

    @property
    def busbw_factor(self) -> float:
        """What nccl-tests multiplies the algbw with."""
        return self.planned.busbw_factor(self.ranks)

    @property
    def is_sum(self) -> bool:
        """Whether each rank that has data gets the sum of all: what an allreduce does, by whatever means."""
        return self.collective in (ALLREDUCE.name, PUSH_PULL.name)

    def sizes(self, config: CollectivesConfig) -> list[int]:
        """Return the sizes that are played."""
        return [0] if self.collective == BARRIER.name else config.sizes

    def flows(self, config: CollectivesConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> Flows:
        """Return what a step sends between ranks. Raises TrafficError if it cannot be carried out over them."""
        made = self.made(config)
        if isinstance(made, HFReduceConfig) and fabric.inside is not None:
            raise TrafficError("its ranks are nodes, and here they are GPUs; name the other algorithms")
        return rank_flows(made, fabric, ranks)

    def fault(self, error: TrafficError) -> str:
        """Return why it cannot be carried out, with the key that says so."""
        cause = error.__cause__ or error
        if isinstance(cause, NodeRanksError):
            return str(cause)
        return f"{'algorithms' if self.msccl is None else 'msccl'}: {self.algorithm}: {cause}"

    def made(self, config: CollectivesConfig) -> HFReduceConfig | NcclConfig:
        """Return the config of its job."""
        common = {"dtype": config.dtype, "size": max(self.sizes(config)), **config.of_ranks}
        if self.algorithm == HFREDUCE:
            return HFReduceConfig(**common, chunk=config.chunk, gpus_per_node=1, tree=TreeKind.ZONE_AWARE)
        return NcclConfig(
            **common,
            collective=self.collective,
            algorithm=None if self.msccl is not None else self.algorithm,
            msccl=self.msccl,
            servers=self.servers,
            node_ranks=config.node_ranks if self.algorithm == "hierarchical" else None,
            slice=config.slice,
        )


def plays(config: CollectivesConfig) -> list[Play]:
    """Return all that is played, in order."""
    found = []
    for collective in COLLECTIVES.values():
        if config.collectives is not None and collective.name not in config.collectives:
            continue
        names = [*collective.algorithms, *([HFREDUCE] if collective.name == ALLREDUCE.name else [])]
        for name in names:
            if config.algorithms is None or name in config.algorithms:
                servers = config.servers if collective.name == PUSH_PULL.name else [0]
                found += [Play(collective.name, name, count, one) for count in config.ranks for one in servers]
    for text in config.msccl:
        parsed = parse_msccl(text)
        found.append(Play(parsed.played.name, parsed.name, parsed.ranks, msccl=text))
    return found
