"""Where a rank is: its host, and the addresses of the NICs that are its GPU's."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric.model.lanes import ServiceLevel
from traffic.transport.connection import SocketOptions

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_INTERFACES = Path("/sys/class/net")
_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@dataclass(frozen=True)
class RankPlace:
    """``host``: its name; ``nics``: addresses of NICs, the GPU's own first; ``nvlink``: that of the GPU's NVLink, if
    it has one; ``nic_bps``: the rate of the slowest NIC, None where the kernel has none."""

    host: str
    nics: tuple[str, ...]
    nvlink: str | None = None
    nic_bps: int | None = None


def own_place(environment: Mapping[str, str] = os.environ) -> RankPlace:
    """Return where this process is: by its LOCAL_RANK, that is the number of its GPU.

    On a host of a fabric GPU g has the interface ``gpu<g>``, or else takes ``eth<g>``, modulo as many as there are.
    Elsewhere it is the address that leads to MASTER_ADDR.
    """
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    host = environment.get("FABRIC_HOST")
    if host is None:
        return RankPlace(socket.gethostname(), (_address_towards(environment.get("MASTER_ADDR", "127.0.0.1")),))
    nics = nics_of([name for _, name in socket.if_nameindex()], local_rank)
    addresses = {name: address for name in nics if (address := _address_of(name))}
    rates = [rate for name in addresses if (rate := _rate_of(name)) is not None]
    slowest = min(rates, default=None)
    return RankPlace(host, tuple(addresses.values()) or ("127.0.0.1",), _address_of(f"nvl{local_rank}"), slowest)


def nics_of(interfaces: Sequence[str], local_rank: int) -> list[str]:
    """Return the interfaces by which a GPU goes, its own first."""
    if (own := f"gpu{local_rank}") in interfaces:
        return [own]
    numbers = sorted(int(name[3:]) for name in interfaces if re.fullmatch(r"eth\d+", name))
    turned = local_rank % len(numbers) if numbers else 0
    return [f"eth{number}" for number in numbers[turned:] + numbers[:turned]]


def own_options(environment: Mapping[str, str] = os.environ) -> SocketOptions:
    """Return what connections carry: the service level of ``fabric exec --service-level``, NCCL's without one, and the
    congestion control that all programs have."""
    tos = environment.get("FABRIC_TOS")
    level = ServiceLevel.NCCL if tos is None else ServiceLevel("own", int(tos) >> 2)
    return SocketOptions(level, _CONGESTION_CONTROL.read_text().strip())


def _rate_of(name: str) -> int | None:
    """Return an interface's rate in bit/s; None if its driver has none."""
    try:
        mbps = int((_INTERFACES / name / "speed").read_text())
    except (OSError, ValueError):
        return None
    return mbps * 10**6 if mbps > 0 else None


def _address_of(name: str) -> str | None:
    """Return an interface's IPv4 address; None if it has none, or is not there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _address_towards(name: str) -> str:
    """Return this machine's address on the way to a host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((name, 9))
        except OSError:
            return "127.0.0.1"
        found: str = sock.getsockname()[0]
    return found
