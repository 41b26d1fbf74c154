"""What each limit of a node allows an allreduce over GPUs, by arithmetic: the closed forms beside what packets reach.

A limit that serves ``load`` bytes for each byte of the size allows an algbw of its rate divided by that. HFReduce's
loads are those of arXiv 2408.14158v2, IV-D: with 8 GPUs, a NIC that sends twice the size and GDRCopy, memory serves 24
bytes per byte: 8 (D2H) + 8 + 1 (adding) + 2 (sending) + 2 (receiving) + 1 (adding what came) + 2 (H2D).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric.model.inside import Inside


@dataclass(frozen=True)
class NodeLimit:
    """A limit by its name, its rate in bytes per second, and the bytes that it serves per byte of the size."""

    name: str
    rate_Bps: float  # noqa: N815 - bytes, not bits
    load: float

    @property
    def algbw_Bps(self) -> float:  # noqa: N802
        """The algbw that it allows, in bytes per second."""
        return self.rate_Bps / self.load


def hfreduce_limits(inside: Inside, nic_rate_bps: int, sent: float) -> list[NodeLimit]:
    """Return the limits of an HFReduce whose busiest node sends ``sent`` times the size and receives as much, the
    tightest first. Of what it receives, the half that comes up the trees is added."""
    paired = inside.nvlink is not None and not inside.has_nvswitch
    share = 0.5 if paired else 1.0
    copies = inside.gpus * share
    memory = copies + (copies + 1) + sent + sent + sent / 2 + copies * inside.copy_reads / inside.gpus
    found = [
        NodeLimit("NIC", nic_rate_bps / 8, sent),
        NodeLimit("PCIe of a GPU", inside.gpu_link_bps / 8, share),
        NodeLimit("memory", inside.memory_Bps, memory),
        *_root_ports(inside, 2 * share),
    ]
    if inside.nvlink is not None and paired:
        found.append(NodeLimit("NVLink", inside.nvlink.rate_bps / 8, 2 * share))
    return sorted(found, key=lambda one: one.algbw_Bps)


def ring_limits(inside: Inside, nic_rate_bps: int, ranks: int, rings: int = 1) -> list[NodeLimit]:
    """Return the limits of a ring over ``ranks`` GPUs, neighbours in it where they can be, the tightest first: each
    sends 2(n-1)/n times the size, by PCIe also inside its node.

    Where a switch joins a node's GPUs, ``rings`` share the data, each over a NIC and a GPU's PCIe of its own, and over
    the NVLink of all GPUs but that.
    """
    sent = 2 * (ranks - 1) / ranks
    if inside.nvlink is not None and inside.nvlink.is_switched:
        idle = 1 / rings if rings >= inside.gpus else 0.0
        found = [
            NodeLimit("NIC", nic_rate_bps / 8, sent / rings),
            NodeLimit("PCIe of a GPU", inside.gpu_link_bps / 8, sent / rings),
            NodeLimit("NVLink", inside.nvlink.rate_bps / 8, sent * (1 - idle)),
        ]
        return sorted(found, key=lambda one: one.algbw_Bps)
    found = [
        NodeLimit("NIC", nic_rate_bps / 8, sent),
        NodeLimit("PCIe of a GPU", inside.gpu_link_bps / 8, sent),
        *_root_ports(inside, 2 * sent),
    ]
    if inside.peer_to_peer_Bps is not None:
        found.append(NodeLimit("GPU to NIC", inside.peer_to_peer_Bps, sent))
    return sorted(found, key=lambda one: one.algbw_Bps)


def _root_ports(inside: Inside, per_gpu: float) -> Iterator[NodeLimit]:
    for one in inside.root_ports:
        names = ", ".join(f"g{gpu}" for gpu in one.gpus)
        yield NodeLimit(f"root port of {names}", one.rate_Bps, per_gpu * len(one.gpus))
