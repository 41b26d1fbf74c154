"""``python -m tests.virtual.drawn SEED``: prints what a guest with that seed draws at random once a fabric is up.

``python -m tests.virtual.drawn`` is what runs in the guest.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys

from controllers.routing import Routing
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.world import inside
from fabric.world.engine import Front, Guest
from fabric.world.engines import VIRTUAL
from fabric.world.isolation import netns
from runs.groundwork import groundwork_of
from runs.live import bring_up
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_tiny")
QUEUES, QUEUEING = QueueConfig(), Queueing.SHARED
_CONNECTIONS = 8


def tcp_ports() -> list[int]:
    """Return the ports of connections that choose theirs by themselves."""
    with socket.create_server(("127.0.0.1", 5000)) as server:
        clients = [socket.create_connection(server.getsockname()) for _ in range(_CONNECTIONS)]
        ports = [client.getsockname()[1] for client in clients]
        for client in clients:
            client.close()
    return ports


def draw() -> None:
    """Print what is drawn on a host of a fabric that is up."""
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir(exist_ok=True)
    with bring_up(FABRIC, plan_lanes(QUEUES, QUEUEING), logs, lambda text: None):
        with netns.inside(netns.netns_path("z0h000")):
            ports = tcp_ports()
        drawn = {"tcp_ports": ports, "kernel": os.urandom(8).hex(), "python": random.random()}
        print(json.dumps(drawn), flush=True)


def main(arguments: list[str]) -> None:
    """Enter a guest with a seed, or be what runs in it."""
    if not arguments:
        draw()
        return
    groundwork = groundwork_of(FABRIC, QUEUES, QUEUEING, Routing(), is_measured=False)
    command = [sys.executable, "-m", "tests.virtual.drawn"]
    VIRTUAL.enter(command, Guest(int(arguments[0])), Front(groundwork=groundwork))


if __name__ == "__main__":
    main(sys.argv[1:])
