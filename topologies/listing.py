"""The topologies that come with the project, one per line: what ``fabric topo list`` prints. Nothing large is built."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from fabric.units import format_rate
from topologies.load import builtin_names, outline_of, read_topology, topology_path

_FIRST_SENTENCE = re.compile(r".+?[.?](?= [A-Z]|$)")


@dataclass(frozen=True)
class Listed:
    """A topology: its size, the rate of its NICs, and the first sentence of the comment at the top of its file."""

    name: str
    hosts: int
    switches: int
    nic_rate_bps: int
    description: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)


def listed() -> list[Listed]:
    """Return the topologies that come with the project, by name."""
    return [_listed(name) for name in builtin_names()]


def _listed(name: str) -> Listed:
    return Listed(name, *outline_of(read_topology(name), name), described(name))


def described(name: str) -> str:
    """Return the first sentence of the comment at the top of a builtin topology's file; empty if there is none."""
    lines = topology_path(name).read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    found = _FIRST_SENTENCE.match(" ".join(comment))
    return found[0] if found else ""


def render(topologies: Sequence[Listed]) -> Table:
    """Return topologies as a table for the terminal."""
    table = Table("topology", caption="fabric topo show NAME has the rest of one")
    for column in ("hosts", "switches", "NIC rate"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what it is")
    table.columns[0].no_wrap = True
    for one in topologies:
        counts = (f"{one.hosts:,}", f"{one.switches:,}", format_rate(one.nic_rate_bps))
        table.add_row(one.name, *counts, one.description)
    return table
