"""Free forms in a guest: an echo request from every NIC to every NIC that links join with it, and to some that none do.
``free_forms.py TOPOLOGY REPORT``."""

from __future__ import annotations

import json
import random
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Nic
from fabric.world import inside
from fabric.world.isolation import netns
from runs.live import LiveFabric, bring_up
from topologies.load import load_fabric

_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_WAIT_S = 0.5
_UNJOINED = 500
_Pair = tuple[Nic, Nic]


def _echo(number: int) -> bytes:
    def packed(checksum: int) -> bytes:
        return struct.pack("!BBHHH", _ECHO_REQUEST, 0, checksum, number, 1)

    words = sum(struct.unpack("!4H", packed(0)))
    return packed(~(words + (words >> 16)) & 0xFFFF)


def _socket_of(nic: Nic) -> socket.socket:
    with netns.inside(netns.netns_path(nic.node.name)):
        made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.port.interface.encode())
    made.bind((nic.ip, 0))
    return made


def _answered(pairs: list[_Pair]) -> set[_Pair]:
    """Return the pairs of NICs of which the second has answered the first."""
    sockets = {nic: _socket_of(nic) for nic in dict.fromkeys(source for source, _ in pairs)}
    found: set[_Pair] = set()
    for number, (source, destination) in enumerate(pairs):
        sockets[source].sendto(_echo(number), (destination.ip, 0))
    time.sleep(_WAIT_S)
    for nic, own in sockets.items():
        while select.select([own], [], [], 0)[0]:
            answer = own.recv(2048)
            kind, _, _, number, _ = struct.unpack("!BBHHH", answer[20:28])
            if kind == _ECHO_REPLY and socket.inet_ntoa(answer[12:16]) == pairs[number][1].ip:
                assert pairs[number][0] == nic
                found.add(pairs[number])
        own.close()
    return found


def seen(live: LiveFabric) -> dict[str, Any]:
    """Return the pairs that should answer and do not, and those that should not and do."""
    fabric = live.fabric
    every = [(a, b) for a in fabric.nics for b in fabric.nics if a.node != b.node]
    joined = [pair for pair in every if fabric.reaches(*pair)]
    others = [pair for pair in every if not fabric.reaches(*pair)]
    apart = random.Random(1).sample(others, min(_UNJOINED, len(others)))
    told = {pair: f"{pair[0].port} to {pair[1].port}" for pair in (*joined, *apart)}
    answered = _answered(joined)
    missing = [told[pair] for pair in joined if pair not in answered]
    leaked = [told[pair] for pair in _answered(apart)]
    return {"joined": len(joined), "apart": len(apart), "missing": missing, "leaked": leaked}


def main(topology: str, report: str) -> None:
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    with bring_up(load_fabric(topology), plan_lanes(QueueConfig(), Queueing.SHARED), logs, lambda text: None) as live:
        Path(report).write_text(json.dumps(seen(live)))


if __name__ == "__main__":
    main(*sys.argv[1:])
