"""A user's program whose ranks step together: ``python3 -m cluster.platform.lockstep STEPS [OPTIONS]``.

A step is computing, for which a rank sleeps, and a barrier over TCP with rank 0. After every so many steps all stand
still for a checkpoint, which is complete a while later; the next one begins once it is. Each rank tells its step, so
that no node's loss loses it. Rank 0 prints when its first step begins and when each step has ended, by the clock that
the platform's events have. Who loses a peer stands still until it is killed, as in a collective whose watchdog waits
for long: after ``--silent`` seconds, or if not all ranks come within ``--gather`` seconds, it says so and ends with the
code of a rank that lacks others.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import NoReturn

from cluster.platform.gang import GangLostError
from cluster.platform.user import RESTART_CODE, go_suspend, receive_suspend_command, saved, saved_step

GO_ON, SUSPEND = b"g", b"s"
_DIAL_AGAIN_S = 0.2
_TRY_S = 2.5
"""How long one try to reach rank 0 waits, and rank 0 for the number of who has come."""
_BACKLOG = 4096
_NUMBER_BYTES = 4
_MOST_S = 86_400.0
Peers = Mapping[int, socket.socket]
"""Connections by rank: of rank 0 to all others, of these to rank 0."""


def main() -> int:
    """Make the steps that are left; return the exit code."""
    options = _options()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = (os.environ["MASTER_IP"], int(os.environ["MASTER_PORT"]))
    try:
        peers = _taken(where, world, options.gather) if rank == 0 else _dialled(where, rank, options.gather)
        _step_on(options, rank, peers)
    except GangLostError as error:
        print(f"gone: rank {rank} of {world}: {error}", flush=True)
        return RESTART_CODE
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lockstep", description="ranks that step together")
    parser.add_argument("steps", type=int, help="how many steps the job has")
    parser.add_argument("--step", type=float, default=1.0, help="seconds that a step computes")
    parser.add_argument("--every", type=int, default=300, help="steps from one checkpoint to the next")
    parser.add_argument("--stall", type=float, default=0.0, help="seconds that steps stand still for a checkpoint")
    parser.add_argument("--durable", type=float, default=0.0, help="seconds from then until it is complete")
    parser.add_argument("--save", type=float, default=0.0, help="seconds that saving takes before a suspend")
    parser.add_argument("--gather", type=float, default=60.0, help="seconds within which all ranks must be there (60)")
    silent = "seconds after which a rank that waits for others ends (600, as PyTorch's watchdog of NCCL)"
    parser.add_argument("--silent", type=float, default=600.0, help=silent)
    found = parser.parse_args()
    for name, least in {
        "gather": 0.1,
        "silent": 0.1,
        "every": 1,
        "step": 0,
        "stall": 0,
        "durable": 0,
        "save": 0,
    }.items():
        if not least <= (value := getattr(found, name)) <= _MOST_S:
            parser.error(f"--{name}: {value:g}; give {least:g} to {_MOST_S:g}")
    return found


def _step_on(options: argparse.Namespace, rank: int, peers: Peers) -> None:
    first = (saved_step() or 0) + 1
    completing: threading.Timer | None = None
    # Who has come waits for all others, who may come as late as gathering takes.
    _agree(rank, peers, max(options.silent, options.gather), f"step {first} to begin")
    _tell(rank, "begin")
    for step in range(first, options.steps + 1):
        time.sleep(options.step)
        is_over = _agree(rank, peers, options.silent, f"the end of step {step}") == SUSPEND
        _tell(rank, str(step))
        if is_over:
            time.sleep(options.save)
            if completing is not None:  # Or it could tell an older step after this one.
                completing.cancel()
                completing.join()
            saved(step)
            go_suspend()
        if step % options.every == 0:
            if completing is not None:
                completing.join()
            time.sleep(options.stall)
            completing = _complete(step, options.durable)


def _taken(where: tuple[str, int], world: int, gather_s: float) -> Peers:
    """Return connections of all other ranks. Raises GangLostError if not all have come in time."""
    until_s = time.monotonic() + gather_s
    peers: dict[int, socket.socket] = {}
    try:
        with socket.create_server(where, backlog=_BACKLOG) as server:
            while len(peers) < world - 1:
                server.settimeout(max(0.01, until_s - time.monotonic()))
                peer = server.accept()[0]
                if (number := _number_of(peer)) in range(1, world):
                    peers[number] = peer
    except OSError as error:
        missing = ", ".join(str(rank) for rank in range(1, world) if rank not in peers)
        raise GangLostError(f"waited {gather_s:g} s at {where[0]}:{where[1]} for ranks {missing}: {error}") from None
    return peers


def _number_of(peer: socket.socket) -> int:
    """Return the rank of who has come; 0 if it does not say."""
    peer.settimeout(_TRY_S)
    try:
        return int.from_bytes(peer.recv(_NUMBER_BYTES, socket.MSG_WAITALL), "big")
    except OSError:
        return 0


def _dialled(where: tuple[str, int], rank: int, gather_s: float) -> Peers:
    """Return a connection to rank 0, which may start later. Raises GangLostError if it cannot be reached in time."""
    until_s = time.monotonic() + gather_s
    while True:
        try:
            master = socket.create_connection(where, timeout=max(0.01, min(_TRY_S, until_s - time.monotonic())))
            master.sendall(rank.to_bytes(_NUMBER_BYTES, "big"))
            return {0: master}
        except OSError as error:
            if time.monotonic() >= until_s:
                raise GangLostError(f"waited {gather_s:g} s for rank 0 at {where[0]}:{where[1]}: {error}") from None
            time.sleep(_DIAL_AGAIN_S)


def _agree(rank: int, peers: Peers, silent_s: float, what: str) -> bytes:
    """Wait until all ranks are there; return what rank 0 says. ``what``: what is waited for. Raises GangLostError."""
    until_s = time.monotonic() + silent_s
    other = 0
    try:
        if rank:
            peers[0].sendall(GO_ON)
            return _word_of(peers[0], until_s)
        for other in peers:
            _word_of(peers[other], until_s)
        word = SUSPEND if receive_suspend_command() else GO_ON
        for other in peers:
            peers[other].sendall(word)
    except OSError as error:  # Whoever sends to a peer that has gone, or waits for it, hears of it so.
        # Which of three errors it is depends on what was in flight when the peer ended.
        why = "it has gone" if isinstance(error, ConnectionError) else error
        _stand_still(until_s, f"waited {silent_s:g} s for rank {other} and {what}: {why}")
    return word


def _word_of(peer: socket.socket, until_s: float) -> bytes:
    peer.settimeout(max(0.01, until_s - time.monotonic()))
    if not (word := peer.recv(1)):
        raise ConnectionResetError
    return word


def _stand_still(until_s: float, why: str) -> NoReturn:
    """Wait to be killed. Raises GangLostError if nobody has in time."""
    time.sleep(max(0.0, until_s - time.monotonic()))
    raise GangLostError(why)


def _tell(rank: int, what: str) -> None:
    if rank == 0:
        print(what, f"{time.monotonic():.6f}", flush=True)


def _complete(step: int, after_s: float) -> threading.Timer | None:
    """Let a checkpoint be complete after a while, beside the next steps; return who will tell of it, None if it is."""
    if after_s <= 0:
        saved(step)
        return None
    timer = threading.Timer(after_s, saved, [step])
    timer.daemon = True
    timer.start()
    return timer


if __name__ == "__main__":
    sys.exit(main())
