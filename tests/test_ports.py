"""Ports that tests hand out: nobody else gets them, and servers can listen on them."""

from __future__ import annotations

import socket

import pytest

from tests.ports import held_ports


def test_a_held_port_is_its_servers_alone() -> None:
    with held_ports(2) as (port, other):
        for address in ("127.0.0.1", "127.0.0.2"):
            with socket.socket() as taker, pytest.raises(OSError, match="in use"):
                taker.bind((address, port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", other))
        for address in ("", "127.0.0.1"):
            with socket.create_server((address, port)), socket.create_connection(("127.0.0.1", port)):
                pass
