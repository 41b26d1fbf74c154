"""The ports of an emulation by the network namespace that they are in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.model.network import Port

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation


def ports_by_namespace(emulation: Emulation) -> Iterator[tuple[Path | None, list[Port]]]:
    """Yield each namespace with the ports in it: the world's own (None) with all switches', or one for each of several
    guests; then each host's."""
    for guest in range(emulation.guests):
        yield emulation.namespace_of_guest(guest), list(emulation.ports_of_switches(guest))
    for host in emulation.fabric.hosts:
        yield emulation.namespace_of(host), list(emulation.ports_of_host(host))
