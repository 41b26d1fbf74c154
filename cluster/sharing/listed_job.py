"""A job of a list as a user's program.

``python3 -S -m cluster.sharing.listed_job STEPS STEP_S EVERY START_S SAVE_S RESPONSES``

All ranks take START_S seconds, then meet at rank 0 (``MASTER_IP``, ``MASTER_PORT``): no step is made before the last of
them is there. Then rank 0 makes STEPS steps of STEP_S seconds in the name of all, tells of a checkpoint after every
EVERY of them, and looks after each step whether it is to suspend; with RESPONSES 0 it never does. To suspend, each rank
takes SAVE_S seconds, and rank 0 has heard from all that they have saved before it goes. Others wait for its word
meanwhile; they end with it.

Rank 0 prints what happens, and when by the clock that all programs of a run share: a word, a step, seconds.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step

MEET_S = 60.0
_DONE, _SAVE = b"d", b"s"


def main(steps: int, step_s: float, every: int, start_s: float, save_s: float, answers: bool) -> None:
    """Be a rank. Raises SystemExit with code 1 if the others are not there, or rank 0 is gone."""
    time.sleep(start_s)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank:
        _follow(save_s)
    others = _meet(world - 1) if world > 1 else []
    step = saved_step() or 0
    _say("begins", step)
    while step < steps:
        time.sleep(step_s)
        step += 1
        _say("step", step)
        if step % every == 0:
            saved(step)
        if answers and step < steps and receive_suspend_command():
            _say("answers", step)
            _suspend(others, step, save_s)
    _tell(others, _DONE)
    _say("ends", step)


def _say(word: str, step: int) -> None:
    print(word, step, f"{time.monotonic():.6f}", flush=True)


def _meet(count: int) -> list[socket.socket]:
    """Return connections from all other ranks."""
    address = ("", int(os.environ["MASTER_PORT"]))
    with socket.create_server(address, backlog=count) as server:
        server.settimeout(MEET_S)
        found: list[socket.socket] = []
        while len(found) < count:
            try:
                found.append(server.accept()[0])
            except TimeoutError:
                _give_up(f"{len(found)} of {count} other ranks came within {MEET_S:g} s")
    for one in found:
        one.settimeout(MEET_S)
    return found


def _follow(save_s: float) -> NoReturn:
    """Be another rank: do as rank 0 says."""
    master = (os.environ["MASTER_IP"], int(os.environ["MASTER_PORT"]))
    until_s = time.monotonic() + MEET_S
    while True:
        with suppress(OSError):
            connection = socket.create_connection(master, timeout=MEET_S)
            break
        if time.monotonic() > until_s:
            _give_up(f"rank 0 at {master[0]} cannot be reached within {MEET_S:g} s")
        time.sleep(0.1)
    connection.settimeout(None)  # It ends with rank 0, or is killed by its agent.
    word = _heard(connection)
    if word == _SAVE:
        time.sleep(save_s)
        connection.sendall(_SAVE)
        _heard(connection)
    sys.exit(0 if word == _DONE else 1)


def _heard(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except OSError:
        return b""


def _suspend(others: list[socket.socket], step: int, save_s: float) -> NoReturn:
    _tell(others, _SAVE)
    time.sleep(save_s)
    for one in others:
        if _heard(one) != _SAVE:
            _give_up("a rank is gone before it has saved")
    saved(step)
    _say("saved", step)
    go_suspend()


def _tell(others: list[socket.socket], word: bytes) -> None:
    for one in others:
        with suppress(OSError):
            one.sendall(word)


def _give_up(why: str) -> NoReturn:
    print(f"rank {os.environ['RANK']}: {why}", file=sys.stderr, flush=True)
    sys.exit(1)


if __name__ == "__main__":
    _words = sys.argv[1:]
    main(int(_words[0]), float(_words[1]), int(_words[2]), float(_words[3]), float(_words[4]), _words[5] != "0")
