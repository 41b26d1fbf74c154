"""Run in a guest: ``link_lab.py MEASUREMENT [ARGUMENT...]`` prints, as JSON, what one link between two hosts does."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

from fabric import modules, netlink, vl
from fabric.netlink import Netlink
from fabric.virtual import kernel
from tests.fabric.virtual import saturated_link as pair
from tests.fabric.virtual.saturated_link import ADDRESS, FRAME_BYTES, INDEX, PORT


def load() -> None:
    modules.load(kernel.require().module(modules.VL))
    Path("/run/netns").mkdir(exist_ok=True)


def rate(rate_bps: int, size_bytes: int) -> object:
    """Return the rate, in bit/s, at which frames of one TCP connection come."""
    port = vl.Port(rate_bps, {0: vl.LaneBuffer(credit_bytes=256 * 1024)})
    pair.make_link({name: [vl.install(INDEX[name], name, port)] for name in "ab"})
    pair.netns.enter(pair.netns.netns_path("b"))
    listener = socket.create_server((ADDRESS["b"], PORT))
    if os.fork() == 0:
        pair.netns.enter(pair.netns.netns_path("a"))
        with socket.create_connection((ADDRESS["b"], PORT)) as connection:
            connection.sendall(bytes(size_bytes))
        os._exit(0)
    return pair.receive(listener, size_bytes)


def main() -> None:
    load()
    name, *arguments = sys.argv[1:]
    print(json.dumps(globals()[name](*map(int, arguments))))


if __name__ == "__main__":
    main()
