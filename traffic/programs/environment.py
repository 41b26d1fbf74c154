"""What unmodified programs are told of each other, and how their packets get into a lane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.world import inside
from fabric.world.programs import hosts as programs
from fabric.world.programs.preload import build_library

_MASTER_PORT = 29500  # torchrun's
_MARKED_SOCKETS = Path(__file__).with_name("marked_sockets.c")


def programs_environment(fabric: Fabric, hosts: Sequence[NodeId]) -> dict[str, str]:
    """Return what tells programs of each other: ours, and what torchrun and launchers of MPI ranks go by.

    Writes the files that it names into the directory of the run.
    """
    names = [host.name for host in hosts]
    return {
        **programs.launchers(names, inside.RUN_DIR),
        "FABRIC_HOSTS": ",".join(names),
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_PORT": str(_MASTER_PORT),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # In a world everyone is root.
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8",
        "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/8",
    }


def own_environment(fabric: Fabric, hosts: Sequence[NodeId], rank: int) -> dict[str, str]:
    """Return what tells a program which of ``hosts`` it is on, and by which addresses it reaches the others."""
    host = hosts[rank]
    local = hosts[:rank].count(host)
    names = {"FABRIC_HOST": host.name, "FABRIC_RANK": str(rank), "RANK": str(rank), "LOCAL_RANK": str(local)}
    addresses = [_address(fabric, host, other) for other in hosts]
    return {
        **names,
        "GLOO_SOCKET_IFNAME": "eth0",  # The first NIC, or the CPU's interface of a node with an inside.
        "FABRIC_ADDRESSES": ",".join(addresses),
        "MASTER_ADDR": addresses[0],
    }


def _address(fabric: Fabric, host: NodeId, other: NodeId) -> str:
    """Return the address by which a host reaches another one; that of the other's first NIC, if no network joins
    them."""
    pair = None if host == other else fabric.nic_pair(host, other)
    return fabric.nics_of[other][0].ip if pair is None else pair[1].ip


def lane_environment(level: ServiceLevel, directory: Path, preloaded: str = "") -> dict[str, str]:
    """Return what makes a program's packets carry a service level: nothing for OTHER, which unmarked packets are.

    ``preloaded``: libraries that are preloaded anyway, as LD_PRELOAD names them. The library that marks
    sockets is built into ``directory``. Raises EmulationError without a compiler.
    """
    if level == ServiceLevel.OTHER:
        return {}
    library = directory / "marked_sockets.so"
    if not library.exists():
        build_library(library, [_MARKED_SOCKETS], "a lane for a program")
    return {"LD_PRELOAD": f"{preloaded}:{library}" if preloaded else str(library), "FABRIC_TOS": str(level.tos)}
