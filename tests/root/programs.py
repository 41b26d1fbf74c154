"""An unmodified program for several hosts: the ranks add up their numbers over TCP, found by torchrun's variables."""

from __future__ import annotations

import os
import socket
import sys
import time


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    total = gather_and_tell(master, size) if rank == 0 else add(master, rank)
    print(f"{os.environ['FABRIC_HOST']} is {os.environ['FABRIC_RANK']} of {size}: the sum is {total}")


def gather_and_tell(master: tuple[str, int], size: int) -> int:
    """Be rank 0: take each other rank's number, add them up with its own and tell all."""
    with socket.create_server(master) as listener:
        listener.settimeout(60)
        others = [listener.accept()[0] for _ in range(size - 1)]
    total = 1 + sum(int(other.recv(16)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
        other.close()
    return total


def add(master: tuple[str, int], rank: int) -> int:
    """Be another rank: hand in a power of two of its own, so that none can stand for another."""
    deadline = time.monotonic() + 60
    while True:
        try:
            sock = socket.create_connection(master, timeout=60)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                sys.exit("rank 0 does not listen")
            time.sleep(0.1)
    with sock:
        sock.sendall(str(2**rank).encode())
        return int(sock.recv(16))


if __name__ == "__main__":
    main()
