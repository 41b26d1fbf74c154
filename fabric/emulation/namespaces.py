"""The ports of an emulation by the network namespace that they are in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fabric.emulation.build import Emulation
from fabric.model.network import Port


def ports_by_namespace(emulation: Emulation) -> Iterator[tuple[Path | None, list[Port]]]:
    """Yield each namespace with the ports in it: the world's own (None) with all switches', then each host's."""
    yield None, list(emulation.ports_of_switches())
    for host in emulation.fabric.hosts:
        yield emulation.namespace_of(host), list(emulation.ports_of_host(host))
