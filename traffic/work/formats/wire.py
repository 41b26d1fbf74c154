"""Protocol buffers on the wire: what a message consists of. Enough for one schema that hardly changes.

A generated parser would need the schema's compiler at every release of the protobuf library; here are thirty lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | bytes
_SIGN, _WRAP = 1 << 63, 1 << 64
_LONGEST_VARINT = 10


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends. Raises ValueError if it does not."""
    found = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(data):
            raise ValueError("ends within a number")
        byte = data[at + place]
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found & (_WRAP - 1), at + place + 1
    raise ValueError("has a number of more than 10 bytes")


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield where each message of a stream begins, and the message: its length stands before it. Raises ValueError."""
    at = 0
    while at < len(data):
        length, begin = varint(data, at)
        if begin + length > len(data):
            raise ValueError(f"byte {at:,}: a message of {length:,} bytes, and {len(data) - begin:,} are left")
        yield at, data[begin : begin + length]
        at = begin + length


def fields(message: bytes) -> Iterator[tuple[int, int, Value]]:
    """Yield (number, wire type, value) of each field of a message. Raises ValueError if it is none."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("has a field of number 0")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, at = varint(message, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"has a field of wire type {kind}, which no schema of today uses")
        if at + length > len(message):
            raise ValueError(f"field {number} has {length:,} bytes, and {len(message) - at:,} are left")
        yield number, kind, message[at : at + length]
        at += length


def numbers(kind: int, value: Value) -> list[int]:
    """Return the numbers of a repeated field, packed or not. Raises ValueError."""
    if isinstance(value, int):
        return [value]
    if kind != BYTES:
        raise ValueError("has numbers of fixed length where others belong")
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at)
        found.append(one)
    return found


def signed(number: int) -> int:
    """Return a number that was written as its two's complement."""
    return number - _WRAP if number & _SIGN else number


def zigzag(number: int) -> int:
    """Return a number of a sint field."""
    return (number >> 1) ^ -(number & 1)


def packed_varint(number: int) -> bytes:
    """Return a number as bytes; a negative one as its two's complement."""
    number %= _WRAP
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def of_number(field: int, value: int) -> bytes:
    """Return a field that is a number."""
    return packed_varint(field << 3 | VARINT) + packed_varint(value)


def of_bytes(field: int, value: bytes) -> bytes:
    """Return a field of bytes: a text, a message, packed numbers."""
    return packed_varint(field << 3 | BYTES) + packed_varint(len(value)) + value


def of_numbers(field: int, values: Sequence[int]) -> bytes:
    """Return a repeated field, packed; nothing if there are none."""
    return of_bytes(field, b"".join(map(packed_varint, values))) if values else b""
