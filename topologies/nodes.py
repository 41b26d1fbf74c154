"""What is inside a compute node: the key ``node`` of a topology, which is a builtin kind, a file or a mapping.

Rates are those of the system that the topology stands for; where its NICs are slower, so are these, by as much.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from fabric.config import SizeBytes, Strict, read_yaml, require_none
from fabric.model.inside import FIRST_INNER_PORT, Inside, NvLink, RootPort

HERE = Path(__file__).parent / "nodes"
POINT = "point"
"""The kind of node that has no inside."""
Gpu = Annotated[int, Field(ge=0)]
BytesPerS = Annotated[SizeBytes, Field(gt=0)]
"""Bytes per second, written as ``27 GB``."""


class RootPortSpec(Strict):
    """GPUs on one root port of a CPU."""

    gpus: Annotated[list[Gpu], Field(min_length=1)] = Field(description="The GPUs on it, by their numbers from 0.")
    bandwidth: BytesPerS = Field(
        description="Bytes per second that it carries for all of them, in both directions together."
    )


class NvLinkSpec(Strict):
    """GPUs that NVLink joins."""

    groups: Annotated[list[Annotated[list[Gpu], Field(min_length=2)]], Field(min_length=1)] = Field(
        description="Groups of GPUs, by their numbers: two are joined by a link, more by an NVSwitch."
    )
    bandwidth: BytesPerS = Field(description="Bytes per second of each GPU, per direction.")


class NodeSpec(Strict):
    """The keys of a node's file; bandwidths are in bytes per second."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = Field(description="Name of this kind of node.")
    gpus: Annotated[int, Field(ge=1, le=16)] = Field(description="GPUs per node.")
    pcie_bandwidth: BytesPerS = Field(description="Bytes per second between a GPU and its CPU, per direction.")
    memory_bandwidth: BytesPerS = Field(
        description="Bytes per second of all that reads and writes the node's memory, together."
    )
    copy_reads: Annotated[float, Field(gt=0)] = Field(
        description="How often memory is read to copy one byte to every GPU."
    )
    peer_to_peer_bandwidth: BytesPerS | None = Field(
        default=None,
        description="Bytes per second between one NIC and all GPUs, per direction. Without it, no limit of its own.",
    )
    root_ports: list[RootPortSpec] = Field(
        default_factory=list, description="Root ports that several GPUs share, or that limit one."
    )
    nvlink: NvLinkSpec | None = Field(default=None, description="NVLink between GPUs. Without it, none.")
    nics: Annotated[int, Field(ge=1, le=FIRST_INNER_PORT)] = Field(
        default=1, description="NICs that GPUs use: GPU g of G uses NIC g * nics / G."
    )

    @model_validator(mode="after")
    def _verify(self) -> NodeSpec:
        require_none(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        groups = self.nvlink.groups if self.nvlink else []
        for key, named in (("root_ports", [one.gpus for one in self.root_ports]), ("nvlink.groups", groups)):
            gpus = [gpu for group in named for gpu in group]
            for gpu in sorted(set(gpus)):
                if gpu >= self.gpus:
                    yield f"{key}: GPU {gpu} does not exist; they are 0 to {self.gpus - 1}"
                if gpus.count(gpu) > 1:
                    yield f"{key}: GPU {gpu} is named {gpus.count(gpu)} times; name it once"
        if len({len(group) > 2 for group in groups}) > 1:
            yield "nvlink.groups: some are pairs and some are larger; either a link joins each, or one switch all"
        if self.nics > self.gpus:
            yield f"nics: {self.nics} exceed {self.gpus} GPUs; use at most as many"
        if self.copy_reads > self.gpus:
            yield f"copy_reads: {self.copy_reads:g} exceeds one for each of {self.gpus} GPUs; lower it"

    def at_scale(self, factor: Fraction) -> Inside:
        """Return the inside of a node whose rates are ``factor`` of these."""

        def scaled(rate: int) -> int:
            return max(1, round(rate * factor))

        nvlink = None
        if self.nvlink is not None:
            nvlink = NvLink(tuple(map(tuple, self.nvlink.groups)), scaled(8 * self.nvlink.bandwidth))
        return Inside(
            name=self.name,
            gpu_link_bps=scaled(8 * self.pcie_bandwidth),
            memory_Bps=scaled(self.memory_bandwidth),
            copy_reads=self.copy_reads,
            nic_of_gpu=tuple(gpu * self.nics // self.gpus for gpu in range(self.gpus)),
            peer_to_peer_Bps=None if self.peer_to_peer_bandwidth is None else scaled(self.peer_to_peer_bandwidth),
            root_ports=tuple(RootPort(tuple(one.gpus), scaled(one.bandwidth)) for one in self.root_ports),
            nvlink=nvlink,
        )


def builtin_kinds() -> list[str]:
    """Return the kinds of nodes that come with the project."""
    return [POINT, *sorted(path.stem for path in HERE.glob("*.yaml"))]


def read_node(value: Any) -> Any:
    """Return what a name or path of a kind of node says, None for ``point``; other values as they are."""
    if isinstance(value, NodeSpec) or not isinstance(value, str):
        return value
    if value == POINT:
        return None
    path = Path(value) if value.endswith((".yaml", ".yml")) else HERE / f"{value}.yaml"
    if not path.is_file():
        near = difflib.get_close_matches(value, builtin_kinds(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"builtin: {', '.join(builtin_kinds())}"
        raise ValueError(f"{value!r} is neither a kind of node nor a file; {hint}")
    return read_yaml(path)


NodeKey = Annotated[NodeSpec | None, BeforeValidator(read_node)]


def inside_of(node: NodeSpec | None, nic_rate: int, reference_nic_rate: int) -> Inside | None:
    """Return the inside of a topology's compute nodes, at its scale; None: they are points."""
    return None if node is None else node.at_scale(Fraction(nic_rate, reference_nic_rate))


def as_written(kind: str) -> Mapping[str, Any]:
    """Return the keys of a builtin kind."""
    return read_yaml(HERE / f"{kind}.yaml")
