"""pcap as tcpdump writes it, read while it comes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from struct import Struct

from scapy.layers.inet import ICMP
from scapy.utils import rdpcap

_HEADER, _RECORD = Struct("=IHHiIII"), Struct("=IIII")
_MAGIC = 0xA1B2C3D4
_BEFORE_DATAGRAM = 14 + 20 + 8


def icmp_packets(pcap: bytes) -> int:
    """Return how many ICMP packets a whole capture has."""
    return sum(ICMP in packet for packet in rdpcap(io.BytesIO(pcap)))


def packets_on(descriptor: int) -> Iterator[float]:
    """Yield the time of each packet as it comes. Fails unless the last one is whole."""

    def taken(size: int) -> bytes:
        content = b""
        while len(content) < size:
            if not (piece := os.read(descriptor, size - len(content))):
                break
            content += piece
        return content

    magic, *_ = _HEADER.unpack(taken(_HEADER.size))
    assert magic == _MAGIC
    while record := taken(_RECORD.size):
        seconds, microseconds, size, _ = _RECORD.unpack(record)
        assert len(taken(size)) == size
        yield seconds + microseconds / 1e6


def pcap_of(datagrams: Sequence[bytes]) -> bytes:
    """Return UDP datagrams as a capture has them."""
    records = [_RECORD.pack(0, 0, _BEFORE_DATAGRAM + len(one), _BEFORE_DATAGRAM + len(one)) for one in datagrams]
    before = bytes(_BEFORE_DATAGRAM)
    packets = (record + before + one for record, one in zip(records, datagrams, strict=True))
    return _HEADER.pack(_MAGIC, 2, 4, 0, 0, 1 << 18, 1) + b"".join(packets)
