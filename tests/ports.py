"""TCP ports of this machine for programs that tests start and tell where to listen."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_of_this_process = ExitStack()


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Yield ports on which nobody listens, and which nobody is given, for the time of a block.

    Whoever asks a socket for a free port and closes it may find it taken: by another test that asks for one, or by a
    connection. Here a socket has each of them, on all addresses, and does not listen. So the kernel gives them to
    nobody who wants any port, while a program that has ``SO_REUSEADDR``, as servers do, can listen on it. To hold it on
    one address would not do: another one's port of the same number keeps who listens on all from it.
    """
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", 0))
            ports.append(int(holder.getsockname()[1]))
        yield ports


def held_port() -> int:
    """Return a port as those of :func:`held_ports`, held until this process ends."""
    return _of_this_process.enter_context(held_ports(1))[0]
