"""A user's program whose ranks step together: ``python3 -m cluster.platform.lockstep STEPS [OPTIONS]``.

A step is computing, for which a rank sleeps, and a barrier over TCP with rank 0. After every so many steps all stand
still for a checkpoint, which is complete a while later. Each rank tells its step, so that no node's loss loses it. Rank
0 prints when its first step begins and when each step has ended, by the clock that the platform's events have. Who
loses a peer stands still until it is killed, as in a collective without a watchdog.
"""

from __future__ import annotations

import argparse
import os
import socket
import threading
import time
from typing import NoReturn

from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step

GO_ON, SUSPEND = b"g", b"s"
_DIAL_AGAIN_S = 0.2
_BACKLOG = 4096


def main() -> None:
    """Make the steps that are left."""
    parser = argparse.ArgumentParser(description="ranks that step together")
    parser.add_argument("steps", type=int, help="how many steps the job has")
    parser.add_argument("--step", type=float, default=1.0, help="seconds that a step computes")
    parser.add_argument("--every", type=int, default=300, help="steps from one checkpoint to the next")
    parser.add_argument("--stall", type=float, default=0.0, help="seconds that steps stand still for a checkpoint")
    parser.add_argument("--durable", type=float, default=0.0, help="seconds from then until it is complete")
    parser.add_argument("--save", type=float, default=0.0, help="seconds that saving takes before a suspend")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = (os.environ["MASTER_IP"], int(os.environ["MASTER_PORT"]))
    peers = _taken(where, world - 1) if rank == 0 else [_dialled(where)]
    _agree(rank, peers)
    _tell(rank, "begin")
    for step in range((saved_step() or 0) + 1, options.steps + 1):
        time.sleep(options.step)
        is_over = _agree(rank, peers) == SUSPEND
        _tell(rank, str(step))
        if is_over:
            time.sleep(options.save)
            saved(step)
            go_suspend()
        if step % options.every == 0:
            time.sleep(options.stall)
            _complete(step, options.durable)


def _taken(where: tuple[str, int], count: int) -> list[socket.socket]:
    """Return connections of so many ranks."""
    with socket.create_server(where, backlog=_BACKLOG) as server:
        return [server.accept()[0] for _ in range(count)]


def _dialled(where: tuple[str, int]) -> socket.socket:
    """Return a connection to rank 0, which may start later."""
    while True:
        try:
            return socket.create_connection(where)
        except OSError:
            time.sleep(_DIAL_AGAIN_S)


def _agree(rank: int, peers: list[socket.socket]) -> bytes:
    """Wait until all ranks are there; return what rank 0 says."""
    try:
        if rank:
            peers[0].sendall(GO_ON)
            return _word_of(peers[0])
        for peer in peers:
            _word_of(peer)
        word = SUSPEND if receive_suspend_command() else GO_ON
        for peer in peers:
            peer.sendall(word)
    except OSError:  # Whoever sends to a peer that has gone, or waits for it, hears of it so.
        _stand_still()
    return word


def _word_of(peer: socket.socket) -> bytes:
    if not (word := peer.recv(1)):
        raise ConnectionResetError("it has gone")
    return word


def _stand_still() -> NoReturn:
    while True:
        time.sleep(3600)


def _tell(rank: int, what: str) -> None:
    if rank == 0:
        print(what, f"{time.monotonic():.6f}", flush=True)


def _complete(step: int, after_s: float) -> None:
    """Let a checkpoint be complete after a while, beside the next steps."""
    if after_s <= 0:
        saved(step)
        return
    timer = threading.Timer(after_s, saved, [step])
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
