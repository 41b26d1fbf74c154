"""A cluster whose jobs are users' programs, for tests in either engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from experiments import RunSpec, launch
from fabric.world.engines import EngineName

SIZE_BYTES = 200_000
PAIR = f"""
import glob, os, socket, time
first, second = os.environ["FABRIC_ADDRESSES"].split(",")
if os.environ["FABRIC_RANK"] == "0":
    with socket.create_server((first, 5000)) as server:
        peer, _ = server.accept()
        while peer.recv(65536):
            pass
else:
    for _ in range(3000):
        try:
            with socket.create_connection((first, 5000), timeout=30) as sock:
                sock.sendall(bytes({SIZE_BYTES}))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
print("done", *glob.glob("/sys/class/infiniband/*"))
"""
"""The second host sends to the first, and both end."""
BEAT = """
import socket, time
sock = socket.socket(type=socket.SOCK_DGRAM)
while True:
    sock.sendto(bytes(500), ("10.0.0.1", 9))
    time.sleep(0.01)
"""
"""Goes on until it is ended."""
STEERED = """
import os, socket, time
first, second = os.environ["FABRIC_ADDRESSES"].split(",")
def choose(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"dcqcn")
if os.environ["FABRIC_RANK"] == "0":
    with socket.create_server((first, 5001)) as server:
        peer, _ = server.accept()
        choose(peer)
        while peer.recv(65536):
            pass
else:
    for _ in range(3000):
        try:
            with socket.create_connection((first, 5001), timeout=30) as sock:
                choose(sock)
                sock.sendall(bytes(100_000))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
"""
"""The second host sends to the first, and both choose DCQCN only once they are connected, as iperf3 -C does."""
WINDOW_S = 0.5


def steered(directory: Path) -> dict[str, Any]:
    """Return a job whose programs choose DCQCN, for :func:`played`."""
    (directory / "steered.py").write_text(STEERED)
    command = f"{sys.executable} {directory}/steered.py"
    return {"name": "steered", "kind": "program", "nodes": ["z1h000", "z1h001"], "command": command}


def played(directory: Path, engine: EngineName, *more: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return what a run shows of two programs: a pair that sends 200 kB in storage's lane, and one that comes, goes and
    comes again, in the lane of packets without a mark; and of ``more`` jobs, with ``others`` among the settings."""
    (directory / "pair.py").write_text(PAIR)
    (directory / "beat.py").write_text(BEAT)
    pair = {"name": "pair", "kind": "program", "nodes": ["z0h000", "z0h001"], "service_level": "storage"}
    beat = {"name": "beat", "kind": "program", "nodes": ["z0h002"], "start": WINDOW_S, "duration": WINDOW_S}
    jobs = [
        {**pair, "command": f"{sys.executable} {directory}/pair.py"},
        {**beat, "command": f"{sys.executable} {directory}/beat.py", "repeat": {"every": 1.5, "times": 1}},
        *more,
    ]
    settings = {"topology": "fire_flyer_2_tiny", "alone_time": 2, "together_time": 4, "jobs": jobs} | others
    spec = RunSpec("shared_cluster", settings=settings, engine=engine, directory=directory / "result", draws=False)
    result = launch(spec)
    operations = result.table("operations").query("phase == 'together'")
    metrics = result.metrics.query("phase == 'together' and job == 'pair'")
    return {
        "rows": sorted(zip(operations["job"], operations["host"], operations["operation"], strict=True)),
        "lasted_s": (operations["ended_s"] - operations["started_s"])[operations["job"] == "beat"].tolist(),
        "sent_bytes": operations.set_index("host")["size_bytes"].to_dict(),
        "lanes of pair": sent_by_lane(result.table("ports"), "z0h001:0"),
        "lanes of beat": sent_by_lane(result.table("ports"), "z0h002:0"),
        "metrics": dict(zip(metrics["name"], metrics["value"], strict=True)),
        "dcqcn": result.manifest["dcqcn"],
        "said": (result.directory / "logs" / "programs" / "pair-z0h001.log").read_text(),
    }


def sent_by_lane(ports: pd.DataFrame, port: str) -> dict[str, int]:
    """Return what a port sent in each lane over a run."""
    sent = ports[ports["port"] == port].groupby("lane", observed=True)["sent_bytes"].agg(["min", "max"])
    return {str(lane): int(total) for lane, total in (sent["max"] - sent["min"]).items()}


def verify(seen: dict[str, Any], slack_s: float, said: str = "done") -> None:
    """Assert what holds in both engines; a window may last longer by ``slack_s``, and programs of the pair end with
    ``said``."""
    assert seen["rows"] == [
        ("beat", "z0h002", "program_stopped"),
        ("beat", "z0h002", "program_stopped"),
        ("pair", "z0h000", "program"),
        ("pair", "z0h001", "program"),
    ]
    assert all(WINDOW_S - slack_s <= lasted_s <= WINDOW_S + slack_s for lasted_s in seen["lasted_s"])
    assert SIZE_BYTES < seen["sent_bytes"]["z0h001"] < 1.1 * SIZE_BYTES
    assert seen["lanes of pair"]["storage"] > 2 * SIZE_BYTES, "alone, and together"
    assert seen["lanes of pair"]["other"] == 0
    assert seen["lanes of beat"]["other"] > 4 * 20 * 500
    assert seen["lanes of beat"]["storage"] == 0
    assert seen["metrics"]["program.ended"] == 2
    assert seen["metrics"]["slowdown"] > 0
    assert seen["said"] == f"{said}\n" * 2
