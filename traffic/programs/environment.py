"""What unmodified programs are told of each other, and how their packets get into a lane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.world import inside
from fabric.world.preload import build_library

_MASTER_PORT = 29500  # torchrun's
_MARKED_SOCKETS = Path(__file__).with_name("marked_sockets.c")


def programs_environment(fabric: Fabric, hosts: Sequence[NodeId]) -> dict[str, str]:
    """Return what tells programs of each other: ours, and what torchrun and Open MPI go by.

    Writes two files that it names into the directory of the run.
    """
    addresses = [fabric.nics_of[host][0].ip for host in hosts]
    own = f"{hosts[0]}-{len(hosts)}"
    hostfile = inside.RUN_DIR / f"hostfile-{own}"
    hostfile.write_text("".join(f"{host} slots=1\n" for host in hosts))
    remote_shell = inside.RUN_DIR / "rsh"
    remote_shell.write_text('#!/bin/sh\nhost=$1\nshift\nexec nsenter --net=/run/netns/"$host" sh -c "$*"\n')
    remote_shell.chmod(0o755)
    return {
        "FABRIC_HOSTS": ",".join(str(host) for host in hosts),
        "FABRIC_ADDRESSES": ",".join(addresses),
        "FABRIC_HOSTFILE": str(hostfile),
        "FABRIC_RSH": str(remote_shell),
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(_MASTER_PORT),
        "OMPI_MCA_plm_rsh_agent": str(remote_shell),
        "OMPI_MCA_orte_default_hostfile": str(hostfile),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # Whoever is in a world is root.
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8",
        "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/8",
    }


def own_environment(fabric: Fabric, host: NodeId, rank: int) -> dict[str, str]:
    """Return what tells a program who it is."""
    nic = fabric.nics_of[host][0].port.interface
    names = {"FABRIC_HOST": host.name, "FABRIC_RANK": str(rank), "RANK": str(rank), "LOCAL_RANK": "0"}
    return {**names, "GLOO_SOCKET_IFNAME": nic}


def lane_environment(level: ServiceLevel, directory: Path) -> dict[str, str]:
    """Return what makes a program's packets carry a service level: nothing for OTHER, which unmarked packets are.

    The library that marks sockets is built into ``directory``. Raises EmulationError without a compiler.
    """
    if level is ServiceLevel.OTHER:
        return {}
    library = directory / "marked_sockets.so"
    if not library.exists():
        build_library(library, [_MARKED_SOCKETS], "a lane for a program")
    return {"LD_PRELOAD": str(library), "FABRIC_TOS": str(level.tos)}
