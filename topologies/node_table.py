"""The inside of a topology's nodes as a table: what ``fabric topo show`` adds where they are not points."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from fabric.model.identity import Role
from fabric.model.inside import Inside
from fabric.model.network import Fabric


def inside_as_json(fabric: Fabric) -> dict[str, Any] | None:
    """Return the inside as JSON holds it, with how many parts and links all nodes have; None: they are points."""
    if fabric.inside is None:
        return None
    parts = [part for host in fabric.hosts_with_inside for part in fabric.parts_of(host)]
    gpus = sum(part.role is Role.GPU for part in parts)
    return asdict(fabric.inside) | {"all_gpus": gpus, "all_inner_links": len(fabric.inner_links)}


def render_inside(fabric: Fabric) -> Table | None:
    """Return a table for the terminal; None if nodes are points."""
    if fabric.inside is None:
        return None
    inside, hosts = fabric.inside, len(fabric.hosts_with_inside)
    table = Table(title=f"Inside a compute node: {inside.name}", title_justify="left", caption="docs/nodes.md")
    for column in ("part", "in a node", "in all"):
        table.add_column(column, justify="left" if column == "part" else "right")
    table.add_column("GB/s", justify="right")
    table.add_column("of what", no_wrap=True)
    for name, count, rate, words in _rows(inside, len(fabric.ports_of[fabric.computes[0]])):
        table.add_row(name, f"{count}", f"{count * hosts:,}", f"{rate / 1e9:.4g}", words)
    return table


def _rows(inside: Inside, nics: int) -> list[tuple[str, int, float, str]]:
    rows = [
        ("GPU, PCIe link", inside.gpus, inside.gpu_link_bps / 8, "per direction"),
        (
            "CPU's memory",
            1,
            inside.memory_Bps,
            f"budget: reads and writes; {inside.copy_reads:g} reads copy to all GPUs",
        ),
    ]
    for one in inside.root_ports:
        names = ", ".join(f"g{gpu}" for gpu in one.gpus)
        rows.append((f"root port of {names}", 1, one.rate_Bps, "budget: both directions together"))
    if inside.peer_to_peer_Bps is not None:
        rows.append(("GPUs to NIC, and back", nics, inside.peer_to_peer_Bps, "budget: all GPUs, per direction"))
    if inside.nvlink is not None:
        joined = "a switch" if inside.nvlink.is_switched else "links between pairs"
        count = sum(len(group) for group in inside.nvlink.groups)
        rows.append(("GPU, NVLink", count, inside.nvlink.rate_bps / 8, f"per direction, {joined}"))
    return rows
