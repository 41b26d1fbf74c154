"""Tokens on their way to experts and back, as DeepEP sends them.

Each token goes once to each node that has one of its experts, to the GPU there whose place in the node is the sender's,
and from it to each other GPU in that node that has one. Both parts go on at the same time, as pieces of tokens are
passed on when they come. On the way back the same parts are added up in the node first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from traffic.work.generators.plan import StepPlan
from traffic.work.generators.routing import Routed, token_bytes
from traffic.work.generators.writer import RankWriter
from traffic.work.models.transformer import Transformer
from traffic.work.operation_names import node_group, rail_group
from traffic.work.operations import CollectiveCall


@dataclass(frozen=True)
class Sent:
    """Tokens that one rank of an expert-parallel group sends: to each node's GPU of its own place, and to each GPU of
    its node, both on the way out."""

    over_rail: tuple[int, ...]
    in_node: tuple[int, ...]


def sent_out(routed: Routed, place: int, per_node: int) -> Sent:
    """Return what the rank at a place of the group sends on the way out: its own tokens over its rail, and in its node
    those of all nodes' GPUs of its place."""
    node, local = divmod(place, per_node)
    rail = range(local, len(routed.to_rank), per_node)
    inside = range(node * per_node, (node + 1) * per_node)
    return Sent(
        tuple(int(count) for count in routed.to_node[place]),
        tuple(int(sum(routed.to_rank[source][target] for source in rail)) for target in inside),
    )


def sent_back(routed: Routed, place: int, per_node: int) -> Sent:
    """Return what the rank at a place of the group sends on the way back."""
    node, local = divmod(place, per_node)
    rail = range(local, len(routed.to_rank), per_node)
    inside = range(node * per_node, (node + 1) * per_node)
    to_place = [
        sum(routed.to_rank[source][place] for source in range(one % per_node, len(routed.to_rank), per_node))
        for one in inside
    ]
    return Sent(tuple(int(routed.to_node[source][node]) for source in rail), tuple(int(count) for count in to_place))


@dataclass(frozen=True)
class Exchange:
    """Writes one rank's part in exchanges with experts."""

    plan: StepPlan
    rank: int
    writer: RankWriter

    def out(self, name: str) -> None:
        """Send tokens to experts; computing goes on once those of all have come."""
        self._exchange(name, "dispatch", self.plan.choices.experts.out)

    def back(self, name: str) -> None:
        """Send what experts made of tokens back."""
        self._exchange(name, "combine", "bf16")

    def _exchange(self, name: str, what: str, dtype: str) -> None:
        assert isinstance(self.plan.model, Transformer) and self.plan.routed
        unit = token_bytes(self.plan.model.hidden, dtype)
        group, ranks = self.plan.named_group("ep", self.rank)
        place, routed = ranks.index(self.rank), self.plan.routed
        if self.plan.choices.experts.dispatch == "per_copy":
            counts = routed.copies[place] if what == "dispatch" else routed.copies[:, place]
            self.plan.group("ep", self.rank)
            self.writer.then(self._call(group, [int(one) * unit for one in counts], dtype, f"{what} {name}"))
            return
        per_node = ranks_per_node(self.plan, ranks)
        sent = (sent_out if what == "dispatch" else sent_back)(routed, place, per_node)
        rail, node = rail_group(place % per_node, group), node_group(place // per_node, group)
        self.plan.groups[rail] = ranks[place % per_node :: per_node]
        self.plan.groups[node] = ranks[place // per_node * per_node : (place // per_node + 1) * per_node]
        places = []
        if len(self.plan.groups[rail]) > 1:
            places.append(
                self.writer.beside(
                    self._call(rail, [one * unit for one in sent.over_rail], dtype, f"{what} over rail {name}")
                )
            )
        if per_node > 1:
            call = self._call(node, [one * unit for one in sent.in_node], dtype, f"{what} in node {name}")
            places.append(self.writer.beside(replace(call, stream="experts in node")))
        self.writer.wait_for(*places)

    def _call(self, group: str, sizes: Sequence[int], dtype: str, name: str) -> CollectiveCall:
        return CollectiveCall(
            collective="all_to_all_v",
            size_bytes=sum(sizes),
            sent_bytes=tuple(sizes),
            group=group,
            stream="experts",
            name=name,
            dtype=dtype,
        )


def ranks_per_node(plan: StepPlan, ranks: tuple[int, ...]) -> int:
    """Return how many of a group's ranks each node has; all have the same number, or only one node has any."""
    nodes = [plan.layout.node_of(rank) for rank in ranks]
    return nodes.count(nodes[0])
