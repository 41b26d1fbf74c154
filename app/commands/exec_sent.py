"""What each program of ``fabric exec`` has sent over the fabric: as its host's NICs counted it, or by program where the
kernel can tell."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from fabric.errors import EmulationError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port
from fabric.units import format_size
from fabric.world.programs.sent_bytes import SentBytes

_MOST_ROWS = 16
_LONGEST_WORDS = 40
ALL, NONE, NOBODY = "all programs", "none was started", "no program (the kernel's own answers)"

PortBytes = Mapping[tuple[Port, str], int]
"""The bytes that ports have sent in each lane."""


@dataclass(frozen=True)
class Sent:
    """The bytes that a program sent by the NICs of a host."""

    host: str
    program: str
    bytes: int


class Programs:
    """The programs of one command, in the order in which they start. A context; what is counted is read within."""

    def __init__(self, fabric: Fabric) -> None:
        self._words: list[str] = []
        self._count: SentBytes | None = None
        if fabric.hosts_with_inside:  # What a GPU sends to another one of its node leaves by an interface, too.
            return
        with suppress(EmulationError):  # Hosts are counted then.
            self._count = SentBytes(fabric.mtu_bytes)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        if self._count is not None:
            self._count.close()

    def environment(self, command: Sequence[str]) -> dict[str, str]:
        """Return the variables by which a program that starts now is counted."""
        self._words.append(_shortened(shlex.join([Path(command[0]).name, *command[1:]])))
        return {} if self._count is None else self._count.environment(len(self._words) - 1)

    def sent(self, by_host: Mapping[NodeId, int]) -> list[Sent]:
        """Return the bytes of each program on each host, and those that no program sent; ``by_host``: the bytes that
        the NICs of hosts with programs sent."""
        if self._count is None:
            return [Sent(str(host), ALL, size) for host, size in by_host.items()]
        counted = self._count.sent()
        places = {str(host): place for place, host in enumerate(by_host)}
        order = sorted(counted, key=lambda one: (places.get(one[1], len(places)), one[1], one[0]))
        same = Counter[tuple[str, str]]()
        rows = []
        for number, host in order:
            words = self._words[number]
            same[host, words] += 1
            name = words if same[host, words] == 1 else f"{words} ({same[host, words]})"
            rows.append(Sent(host, name, counted[number, host]))
        started = {row.host for row in rows}
        rows += [Sent(str(host), NONE, size) for host, size in by_host.items() if str(host) not in started]
        others = sum(by_host.values()) - sum(row.bytes for row in rows if row.host in places)
        return [*rows, Sent("", NOBODY, others)] if others > 0 else rows


def _shortened(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST_WORDS else f"{words[: _LONGEST_WORDS - 1]}…"


def sent_by(hosts: Iterable[NodeId], sent: PortBytes) -> dict[NodeId, int]:
    """Return the bytes that each host's NICs sent."""
    of_node: Counter[NodeId] = Counter()
    for (port, _), size in sent.items():
        of_node[port.node] += size
    return {host: of_node[host] for host in hosts}


def sent_table(rows: Sequence[Sent]) -> Table:
    """Return a table of what programs sent; of many, the range of those that have no line of their own."""
    table = Table("host", "program", "sent", title="Bytes sent by each program")
    shown = rows if len(rows) <= _MOST_ROWS else rows[: _MOST_ROWS - 1]
    for row in shown:
        table.add_row(row.host, row.program, format_size(row.bytes))
    if more := [row.bytes for row in rows[len(shown) :]]:
        table.add_row(f"{len(more)} more", "", f"{format_size(min(more))} to {format_size(max(more))} each")
    return table


def silence(rows: Sequence[Sent]) -> str:
    """Return a note of programs that sent nothing where others did; nothing if there are none."""
    rows = [row for row in rows if row.program != NOBODY]
    on_host = Counter(row.host for row in rows)
    silent = [row.host if on_host[row.host] == 1 else f"{row.program} on {row.host}" for row in rows if row.bytes == 0]
    if not silent or len(silent) == len(rows):
        return ""
    return (
        f"note: {', '.join(silent)} sent nothing over the fabric: a program there exchanged nothing, or by memory or a "
        "file that programs share"
    )
