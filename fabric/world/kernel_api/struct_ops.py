"""TCP congestion controls as BPF programs (``fabric/kernel/bpf``), registered for as long as a run lives.

A kernel has one list of them for all network namespaces, and one of each name. The first run registers a control, and
each further one gets a descriptor of the same registration: the kernel removes it with the last descriptor, however
that process ends. What a control is to do in a host it looks up by the cookie of the host's network namespace, so that
runs of different parameters may have it at a time.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache
from fabric.world.isolation import netns
from fabric.world.kernel_api import bpf, libbpf

_SO_NETNS_COOKIE = 71
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_REMOVED_S = 20.0
"""How long the kernel may take to remove what nobody holds any more."""
_ALONE_TIMEOUT_S = 120.0
_INFO_BYTES = 256
_STRUCT_OPS_LINK = 9
_NAME_OFFSET, _NAME_BYTES = 24, 16
_MAP_OFFSET = 16
"""Of a struct bpf_map_info: its name; of a struct bpf_link_info: the map whose operations are registered."""


@dataclass(frozen=True)
class Control:
    """A congestion control that this process holds registered: descriptors of that and of its map of hosts."""

    name: str
    link: int
    hosts: int

    def admit(self, cookie: int, value: bytes) -> None:
        """Say what the control is to do in a network namespace, in the layout of its source."""
        bpf.update(self.hosts, cookie.to_bytes(8, "little"), value, f"letting a host have {self.name}")

    def entry(self, cookie: int, size_bytes: int) -> bytes:
        """Return what was said, with what the control has counted since then."""
        return bpf.look_up(self.hosts, cookie.to_bytes(8, "little"), size_bytes, f"reading what {self.name} counted")

    def close(self) -> None:
        """Let go of it; it stays registered while another run holds it."""
        os.close(self.link)
        os.close(self.hosts)


def cookie(namespace: Path) -> int:
    """Return the number that a network namespace has as long as the machine runs."""
    with netns.inside(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), "little")


def register(name: str) -> Control:
    """Return the control ``NAME.bpf.c``, registered now unless another run has done so. Raises EmulationError."""
    with _alone():
        link = _settled(name)
        if link is None:
            return _first(name)
        hosts = _youngest_map(libbpf.hosts_map(name))
        if hosts is None:
            os.close(link)
            raise EmulationError(
                f"{name}: a run of another version of this project has registered it with this machine's kernel, which "
                "has one of each name; wait for that run to end, or use --engine virtual"
            )
        return Control(name, link, hosts)


def _settled(name: str) -> int | None:
    """Return a descriptor of a control's registration; None: there is none, and the name is free.

    Waits for the removal of one that nobody holds any more. Raises EmulationError if the name is of something else.
    """
    deadline = time.monotonic() + _REMOVED_S
    while (link := _registered(name)) is None and name in _AVAILABLE.read_text().split():
        if time.monotonic() > deadline:
            raise EmulationError(
                f"{name}: this machine's kernel has a congestion control of that name which is not of this project's "
                "BPF programs; take it out, with modprobe -r or rmmod if it is a module, or use --engine virtual"
            )
        time.sleep(0.02)
    return link


def _first(name: str) -> Control:
    loaded = libbpf.Loaded(name, registers=name)
    try:
        return Control(name, loaded.register(name), loaded.map(libbpf.hosts_map(name)))
    finally:
        loaded.close()


def _alone() -> AbstractContextManager[None]:
    """Let no other run register anything during a block. Raises EmulationError."""
    return cache.locked(cache.own() / "bpf" / "lock", "registering a congestion control", _ALONE_TIMEOUT_S)


def _registered(name: str) -> int | None:
    """Return a descriptor of the registration of a control; None: there is none by BPF programs."""
    for link in bpf.descriptors(bpf.ObjectKind.LINK):
        info = bpf.information(link, _INFO_BYTES)
        kind, (of,) = struct.unpack_from("=I", info)[0], struct.unpack_from("=I", info, _MAP_OFFSET)
        if kind == _STRUCT_OPS_LINK and _name_of_map(of) == name:
            return link
        os.close(link)
    return None


def _name_of_map(identity: int) -> str | None:
    handle = bpf.descriptor_of(bpf.ObjectKind.MAP, identity)
    if handle is None:
        return None
    try:
        return _name(handle)
    finally:
        os.close(handle)


def _name(handle: int) -> str:
    return bpf.information(handle, _INFO_BYTES)[_NAME_OFFSET:][:_NAME_BYTES].partition(b"\0")[0].decode()


def _youngest_map(name: str) -> int | None:
    """Return a descriptor of the map made last of those of a name; None: there is none.

    The kernel takes its time to free the maps of a registration that has ended. That of the one that there is was made
    after them, since only whoever is about to register makes one.
    """
    found: int | None = None
    for handle in bpf.descriptors(bpf.ObjectKind.MAP):
        if _name(handle) != name:
            os.close(handle)
            continue
        if found is not None:
            os.close(found)
        found = handle
    return found
