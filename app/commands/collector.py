"""``--sflow HOST:PORT``: datagrams of a world's switches, sent on to a collector in the user's own network."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

from fabric.errors import UsageError
from runs.console import tell

_MOST_PORT = 65535
_PCAP_HEADER, _RECORD = Struct("=IHHiIII"), Struct("=IIII")
_BEFORE_DATAGRAM = 14 + 20 + 8
"""Ethernet, IPv4 without options and UDP."""
_BURST, _PAUSE_S = 32, 0.001
"""Datagrams sent without a pause: collectors have room for a hundred or two."""

Address = tuple[socket.AddressFamily, Any]
"""A family and what sockets of it send to."""


def collector_address(text: str) -> Address:
    """Return where ``HOST:PORT`` is, with an IPv6 address in brackets. Raises UsageError."""
    host, colon, number = text.rpartition(":")
    if not colon or not host or (":" in host and not host.startswith("[")):
        raise UsageError(f"--sflow {text!r}: write HOST:PORT, e.g. 127.0.0.1:6343 or [::1]:6343")
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= _MOST_PORT:
        raise UsageError(f"--sflow {text!r}: port {number!r} must be 1 to {_MOST_PORT}; sFlow's own is 6343")
    try:
        found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), int(number), type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--sflow {text!r}: host {host!r}: {why}; give a name that resolves, or an address") from error
    family, _, _, _, address = found[0]
    return socket.AddressFamily(family), address


class CollectorFollower:
    """Sends the UDP datagrams in a pcap file on while it grows."""

    def __init__(self, file: Path, collector: Address) -> None:
        file.touch()
        self._file = file.open("rb")
        self._rest = b""
        self._has_header = False
        family, self._address = collector
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._is_told = False

    def begin(self, command: int) -> None:
        """Do nothing yet."""

    def pass_on(self) -> None:
        """Send what has come. A collector that cannot be reached is told of once."""
        for number, datagram in enumerate(self._datagrams(), start=1):
            try:
                self._socket.sendto(datagram, self._address)
            except OSError as error:
                if not self._is_told:
                    tell(f"sFlow: {self._address[0]} port {self._address[1]}: {error.strerror}; the run goes on")
                self._is_told = True
            if number % _BURST == 0:
                time.sleep(_PAUSE_S)

    def is_done(self) -> bool:
        """Return True, having sent the rest."""
        self.pass_on()
        return True

    def give_up(self) -> None:
        """Do nothing: nothing is waited for."""

    def _datagrams(self) -> Iterator[bytes]:
        content = self._rest + self._file.read()
        place = 0
        if not self._has_header and len(content) >= _PCAP_HEADER.size:
            self._has_header, place = True, _PCAP_HEADER.size
        while self._has_header and place + _RECORD.size <= len(content):
            _, _, size, _ = _RECORD.unpack_from(content, place)
            begin = place + _RECORD.size
            if begin + size > len(content):
                break
            yield content[begin + _BEFORE_DATAGRAM : begin + size]
            place = begin + size
        self._rest = content[place:]
