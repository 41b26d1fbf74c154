"""Whether a NIC's link works, at both of its ends."""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array

_SIOCGIFADDR, _SIOCETHTOOL = 0x8915, 0x8946  # linux/sockios.h
_ETHTOOL_GLINK = 0x0A  # linux/ethtool.h
_IFREQ, _IFREQ_POINTER, _IFREQ_ADDRESS = struct.Struct("16s24x"), struct.Struct("@16sP16x"), struct.Struct("=20x4s")


def has_carrier(address: str) -> bool:
    """Return whether the link of the interface whose first address this is works, at its own end and its peer's; True
    for an address that is not an interface's first.

    The flag that an interface is running would be a second late: the kernel's link watch raises it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, interface in socket.if_nameindex():
            name = interface.encode()
            try:
                (found,) = _IFREQ_ADDRESS.unpack_from(fcntl.ioctl(asking, _SIOCGIFADDR, _IFREQ.pack(name)))
            except OSError:  # It has no address.
                continue
            if socket.inet_ntoa(found) == address:
                link = array("I", [_ETHTOOL_GLINK, 0])
                fcntl.ioctl(asking, _SIOCETHTOOL, _IFREQ_POINTER.pack(name, link.buffer_info()[0]))
                return bool(link[1])
    return True
