"""Sizes by a library's own benchmark: a transfer between two hosts, or UCC's allreduce over all.

It prints a line of JSON per size, as ``sweep`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time

PORT = 13337
START_S, SOONEST_S = 30.0, 0.01
MOST_BYTES, MOST_STEPS = 2**25, 500
"""The benchmarks miscount half a round trip at their start or end, which shows with few steps: small messages are sent
more often, up to so many bytes in all."""


def ucx(size: int, steps: int, warm_up: int, peer: str | None) -> float | None:
    """Return the seconds of a message one way by ``ucx_perftest -t tag_lat``, None at the serving end."""
    words = ["ucx_perftest", "-p", str(PORT)]
    if peer is not None:
        words += [peer, "-t", "tag_lat", "-s", str(size), "-n", str(steps), "-w", str(warm_up)]
    said = _output(words)
    if peer is None:
        return None
    final = next(line for line in said.splitlines() if line.startswith("Final:"))
    return float(final.split()[4]) / 1e6


def libfabric(size: int, steps: int, _warm_up: int, peer: str | None) -> float | None:
    """Return the seconds of a message one way by ``fi_pingpong -p tcp -e msg``, which has no option for a warm-up."""
    words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-I", str(steps), "-S", str(size)]
    said = _output([*words, "-B", str(PORT)] if peer is None else [*words, "-P", str(PORT), peer])
    row = said.splitlines()[-1].split()
    return float(row[-2]) / 1e6


def ucc_allreduce(size: int, steps: int, warm_up: int, ranks: int) -> float:
    """Return the seconds of a step of ``ucc_perftest`` at the slowest rank, which ``mpirun`` starts on all hosts."""
    count = str(size // 4)
    benchmark = ["ucc_perftest", "-c", "allreduce", "-i", "-d", "float32", "-b", count, "-e", count, "-n", str(steps)]
    said = _output(["mpirun.openmpi", "-n", str(ranks), *benchmark, "-w", str(warm_up)])
    row = next(line.split() for line in said.splitlines() if line.split()[:2] == [count, str(size)])
    return float(row[-1]) / 1e6


TOOLS = {"ucx": ucx, "libfabric": libfabric}


def _output(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout


def _await_server(peer: str) -> None:
    """Return once the other end listens, by the kernel's table of sockets there: the benchmark would take a connection
    of ours for its client's. Exits if it does not in time."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        done = subprocess.run(["ssh", peer, "cat", "/proc/net/tcp"], capture_output=True, text=True, check=False)
        if re.search(rf":{PORT:04X} 00000000:0000 0A", done.stdout):
            return
        time.sleep(SOONEST_S)
    sys.exit(f"{peer}: nothing listens on port {PORT} after {START_S:g} s")


def _say(operation: str, size: int, time_s: float) -> None:
    print(json.dumps({"operation": operation, "size_bytes": size, "time_s": time_s, "wrong": None}), flush=True)


def main() -> None:
    """Play what the arguments say; the last rank prints, or that which starts UCC's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=[*TOOLS, "ucc"])
    parser.add_argument("sizes", help="in bytes, with commas between")
    parser.add_argument("steps", type=int)
    parser.add_argument("warm_up", type=int)
    options = parser.parse_args()
    hosts, sizes = os.environ["FABRIC_HOSTS"].split(","), [int(size) for size in options.sizes.split(",")]
    if options.tool == "ucc":
        for size in sizes:
            _say("allreduce", size, ucc_allreduce(size, options.steps, options.warm_up, len(hosts)))
        return
    own = socket.gethostname()
    if own not in (hosts[0], hosts[-1]):
        return
    peer = None if own == hosts[0] else hosts[0]
    for size in sizes:
        steps = max(options.steps, min(MOST_STEPS, MOST_BYTES // size))
        if peer is not None:
            _await_server(peer)
        time_s = TOOLS[options.tool](size, steps, options.warm_up, peer)
        if peer is not None and time_s is not None:
            _say("transfer", size, time_s)


if __name__ == "__main__":
    main()
