"""An allreduce and a transfer between the first and the last rank over sizes, by one library.

The first rank prints a line of JSON per operation and size: seconds per step, and how many elements were wrong. A
transfer of libraries that read remote memory is a read by the last rank; of others it is half of a round trip.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

PORT = 5005
SOONEST_S, LATEST_S = 0.01, 30.0


class Library(Protocol):
    """What a library can do; a rank waits for the others in ``barrier``."""

    rank: int
    ranks: int

    def barrier(self) -> None:
        """Return once all ranks are here."""

    def allreduce(self, data: Any) -> None:
        """Add up an array of float32 over all ranks, in place."""

    def transfer(self, data: Any) -> None:
        """Bring an array from one end to the other, and back where the library sends."""


class Mpi:
    """Any MPI, by mpi4py."""

    halves = 2

    def __init__(self, most: int) -> None:
        from mpi4py import MPI

        self._world: Any = MPI.COMM_WORLD
        self._in_place: Any = MPI.IN_PLACE
        self.rank, self.ranks = self._world.Get_rank(), self._world.Get_size()

    def barrier(self) -> None:
        """Return once all ranks are here."""
        self._world.Barrier()

    def allreduce(self, data: Any) -> None:
        """Add up over all ranks, in place."""
        self._world.Allreduce(self._in_place, data)

    def transfer(self, data: Any) -> None:
        """Send to the last rank, which sends back."""
        last = self.ranks - 1
        if self.rank == 0:
            self._world.Send(data, last)
            self._world.Recv(data, last)
        elif self.rank == last:
            self._world.Recv(data, 0)
            self._world.Send(data, 0)


class Gloo:
    """torch.distributed's gloo."""

    halves = 2

    def __init__(self, most: int) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self._dist: Any = dist
        self._tensor = torch.from_numpy
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def barrier(self) -> None:
        """Return once all ranks are here."""
        self._dist.barrier()

    def allreduce(self, data: Any) -> None:
        """Add up over all ranks, in place."""
        self._dist.all_reduce(self._tensor(data))

    def transfer(self, data: Any) -> None:
        """Send to the last rank, which sends back."""
        last, tensor = self.ranks - 1, self._tensor(data)
        if self.rank == 0:
            self._dist.send(tensor, last)
            self._dist.recv(tensor, last)
        elif self.rank == last:
            self._dist.recv(tensor, 0)
            self._dist.send(tensor, 0)


class _Reader:
    """The last rank reads the first one's memory; the two talk over a connection of their own beside that."""

    halves = 1

    def __init__(self) -> None:
        addresses = os.environ["FABRIC_ADDRESSES"].split(",")
        self.rank, self.ranks = int(os.environ["FABRIC_RANK"]), len(addresses)
        self._is_owner = self.rank == 0
        if self._is_owner:
            with socket.create_server(("", PORT)) as server:
                self._peer, _ = server.accept()
        else:
            self._peer = _connected(addresses[0])

    def _send(self, data: bytes) -> None:
        self._peer.sendall(len(data).to_bytes(8, "big") + data)

    def _receive(self) -> bytes:
        size = int.from_bytes(self._exactly(8), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._peer.recv(size - len(found))
            if not part:
                raise SystemExit("the other rank has gone")
            found += part
        return found

    def barrier(self) -> None:
        """Return once all ranks are here."""
        self._send(b"here")
        self._receive()

    def allreduce(self, data: Any) -> None:
        """Raises NotImplementedError: it has no collectives."""
        raise NotImplementedError("it reads memory, and has no collectives")


class Nixl(_Reader):
    """NIXL over UCX with its default settings: the last rank reads the first one's memory in blocks."""

    BLOCK = 256 * 1024

    def __init__(self, most: int) -> None:
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        super().__init__()
        self._agent: Any = nixl_agent(f"rank{self.rank}", nixl_agent_config(backends=["UCX"]))
        self._memory = np.zeros(most, np.uint8)
        self._agent.register_memory([(self._memory.ctypes.data, most, 0, "")], "DRAM")
        self._send(self._agent.get_agent_metadata())
        other = self._agent.add_remote_agent(self._receive())
        self._other = other.decode() if isinstance(other, bytes) else other

    def transfer(self, data: Any) -> None:
        """Read what the first rank has."""
        self._memory[: data.nbytes] = data.view(np.uint8)
        blocks = [
            (self._memory.ctypes.data + place, min(self.BLOCK, data.nbytes - place), 0)
            for place in range(0, data.nbytes, self.BLOCK)
        ]
        own = self._agent.get_xfer_descs(blocks, "DRAM")
        if self._is_owner:
            self._send(self._agent.get_serialized_descs(own))
            self._receive()
            return
        self._memory[: data.nbytes] = 0
        remote = self._agent.deserialize_descs(self._receive())
        handle = self._agent.initialize_xfer("READ", own, remote, self._other, b"")
        began = time.monotonic()
        state = self._agent.transfer(handle)
        while state not in ("DONE", "ERR"):
            state = self._agent.check_xfer_state(handle)
        self.took_s = time.monotonic() - began
        self._agent.release_xfer_handle(handle)
        data.view(np.uint8)[:] = self._memory[: data.nbytes]
        self._send(b"read")
        if state != "DONE":
            raise SystemExit(f"NIXL: the read ended with {state}")


class Mooncake(_Reader):
    """Mooncake's Transfer Engine over TCP: the last rank reads the first one's memory."""

    def __init__(self, most: int) -> None:
        from mooncake.engine import TransferEngine

        super().__init__()
        self._engine: Any = TransferEngine()
        own = os.environ["FABRIC_ADDRESSES"].split(",")[self.rank]
        if code := self._engine.initialize(own, "P2PHANDSHAKE", "tcp", ""):
            raise SystemExit(f"Mooncake: initialize() returned {code}")
        self._memory = np.zeros(most, np.uint8)
        self._engine.register_memory(self._memory.ctypes.data, most)
        self._send(f"{own}:{self._engine.get_rpc_port()} {self._memory.ctypes.data}".encode())
        self._other, address = self._receive().decode().split()
        self._address = int(address)

    def transfer(self, data: Any) -> None:
        """Read what the first rank has."""
        if self._is_owner:
            self._memory[: data.nbytes] = data.view(np.uint8)
            self._send(b"ready")
            self._receive()
            return
        self._memory[: data.nbytes] = 0
        self._receive()
        began = time.monotonic()
        code = self._engine.transfer_sync_read(self._other, self._memory.ctypes.data, self._address, data.nbytes)
        self.took_s = time.monotonic() - began
        data.view(np.uint8)[:] = self._memory[: data.nbytes]
        self._send(b"read")
        if code:
            raise SystemExit(f"Mooncake: the read returned {code}")


LIBRARIES: dict[str, Callable[[int], Any]] = {"mpi": Mpi, "gloo": Gloo, "nixl": Nixl, "mooncake": Mooncake}


def _connected(address: str) -> socket.socket:
    deadline = time.monotonic() + LATEST_S
    while True:
        try:
            return socket.create_connection((address, PORT))
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"{address}, port {PORT}: {error} after {LATEST_S:g} s") from error
            time.sleep(SOONEST_S)


def allreduce(library: Any, size: int, steps: int, warm_up: int) -> tuple[float, int]:
    """Return the seconds of a step of ``size`` bytes at the slowest rank, and how many elements were wrong after the
    first step. Ranks do not leave the barrier at once: who leaves it last sees less than a step takes."""
    places = np.arange(size // 4, dtype=np.float32) % 1024
    data = places + library.rank
    library.allreduce(data)
    wanted = places * library.ranks + library.ranks * (library.ranks - 1) / 2
    wrong = int((data != wanted).sum())
    for _ in range(warm_up - 1):
        library.allreduce(data)
    library.barrier()
    began = time.monotonic()
    for _ in range(steps):
        library.allreduce(data)
    of_ranks = np.zeros(library.ranks, np.float32)
    of_ranks[library.rank] = (time.monotonic() - began) / steps
    library.allreduce(of_ranks)
    return float(of_ranks.max()), wrong


def transfer(library: Any, size: int, steps: int, warm_up: int) -> tuple[float, int]:
    """Return the seconds of a transfer of ``size`` bytes one way, and how many bytes were wrong in the last one."""
    wanted = (np.arange(size) % 251).astype(np.uint8)
    data = wanted.copy() if library.rank == 0 else np.zeros(size, np.uint8)
    for _ in range(warm_up):
        library.transfer(data)
    library.barrier()
    read_s = []
    began = time.monotonic()
    for _ in range(steps):
        library.transfer(data)
        read_s.append(getattr(library, "took_s", 0.0))
    took_s = (time.monotonic() - began) / steps / library.halves
    return sum(read_s) / steps or took_s, int((data != wanted).sum())


OPERATIONS = {"allreduce": allreduce, "transfer": transfer}


def main() -> None:
    """Play what the arguments say; the rank at the reading end of a transfer prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("operations", help="with commas between")
    parser.add_argument("sizes", help="in bytes, with commas between")
    parser.add_argument("steps", type=int)
    parser.add_argument("warm_up", type=int, help="steps before these, at least one")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    library = LIBRARIES[options.library](max(sizes))
    teller = 0 if library.halves == 2 else library.ranks - 1
    for name in options.operations.split(","):
        for size in sizes:
            library.barrier()
            time_s, wrong = OPERATIONS[name](library, size, options.steps, options.warm_up)
            if library.rank == teller:
                line = {"operation": name, "size_bytes": size, "time_s": time_s, "wrong": wrong}
                print(json.dumps(line), flush=True)
    library.barrier()
    if library.halves == 1:
        os._exit(0)  # NIXL and Mooncake end with SIGSEGV when Python takes them down, natively as well.


if __name__ == "__main__":
    main()
