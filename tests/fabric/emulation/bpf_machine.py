"""Runs the BPF programs of ports in Python: as much of the machine as they use."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

_ALL, _WORD = (1 << 64) - 1, (1 << 32) - 1
_STACK = 1 << 20
_SIZES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}
_OPERATIONS: dict[int, Callable[[int, int], int]] = {
    0x00: lambda a, b: a + b,
    0x20: lambda a, b: a * b,
    0x30: lambda a, b: a // b,
    0x40: lambda a, b: a | b,
    0x60: lambda a, b: a << b,
    0x70: lambda a, b: a >> b,
    0x90: lambda a, b: a % b,
    0xA0: lambda a, b: a ^ b,
    0xB0: lambda a, b: b,
}


@dataclass
class Machine:
    """One program's memory: a state of 8 bytes at ``state``, counters by key, and the frame that it looks at."""

    frame: bytearray
    state: int = 0
    table: dict[bytes, int] = field(default_factory=dict)
    most: int = 1 << 16
    mark: int = 0

    def run(self, program: bytes) -> int:
        """Run a program to its end and return what it returns."""
        code = [struct.unpack_from("=BBhi", program, at) for at in range(0, len(program), 8)]
        self._registers, self._stack = [0] * 11, bytearray(512)
        self._registers[10] = _STACK + 512
        self._registers[1] = 0
        at = 0
        while True:
            operation, registers, offset, immediate = code[at]
            to, source = registers & 15, registers >> 4
            at += 1
            if operation == 0x95:
                value = self._registers[0]
                return value - (1 << 64) if value >> 63 else value
            if operation == 0x18:
                high = code[at][3]
                at += 1
                named = {1: 1, 2: 2}.get(source)
                self._registers[to] = 1 << 30 | named if named else (high & _WORD) << 32 | immediate & _WORD
            elif operation == 0x85:
                self._registers[0] = self._help(immediate)
            elif operation in (0x15, 0x55):
                at += offset if (self._registers[to] == immediate) == (operation == 0x15) else 0
            elif operation & 7 in (4, 7):
                mask = _ALL if operation & 7 == 7 else _WORD
                other = self._registers[source] if operation & 8 else immediate
                made = _OPERATIONS[operation & 0xF0](self._registers[to] & mask, other & mask)
                self._registers[to] = made & mask
            else:
                self._move(operation, to, source, offset, immediate)

    def _move(self, operation: int, to: int, source: int, offset: int, immediate: int) -> None:
        size = _SIZES[operation & 0x18]
        if operation & 7 == 1:
            self._registers[to] = self._read(self._registers[source] + offset, size)
        else:
            value = immediate if operation & 7 == 2 else self._registers[source]
            self._write(self._registers[to] + offset, size, value & ((1 << 8 * size) - 1))

    def _read(self, address: int, size: int) -> int:
        if address == 1 << 30 | 2:
            return self.state
        if address >= 1 << 40:
            return self.table[self._keys[address - (1 << 40)]]
        return int.from_bytes(self._on_stack(address, size), "little")

    def _write(self, address: int, size: int, value: int) -> None:
        if address == 8:
            self.mark = value
        elif address == 1 << 30 | 2:
            self.state = value
        elif address >= 1 << 40:
            self.table[self._keys[address - (1 << 40)]] = value
        else:
            start = address - _STACK
            self._stack[start : start + size] = value.to_bytes(size, "little")

    def _on_stack(self, address: int, size: int) -> bytes:
        start = address - _STACK
        assert 0 <= start <= 512 - size
        return bytes(self._stack[start : start + size])

    @property
    def _keys(self) -> list[bytes]:
        return list(self.table)

    def _help(self, number: int) -> int:
        registers = self._registers
        if number == 26:
            start, size = registers[3] - _STACK, registers[4]
            self._stack[start : start + size] = self.frame[registers[2] : registers[2] + size]
        elif number == 9:
            self.frame[registers[2] : registers[2] + registers[4]] = self._on_stack(registers[3], registers[4])
        elif number == 1:
            key = self._on_stack(registers[2], 4)
            return (1 << 40) + self._keys.index(key) if key in self.table else 0
        elif number == 2 and len(self.table) < self.most:
            self.table[self._on_stack(registers[2], 4)] = int.from_bytes(self._on_stack(registers[3], 4), "little")
        return 0
