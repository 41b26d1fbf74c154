"""What is done inside a world by test_networks.py and test_jobs.py: ``scenarios.py NAME REPORT``.

Each scenario brings the small fabric up and returns what it saw, as JSON; the tests judge it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from app.commands.exec_program import await_servers
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import Acknowledgements, Lane, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Port
from fabric.queueing.counters import COUNTERS, QueueReader
from fabric.world import inside
from fabric.world.isolation import netns
from fabric.world.kernel_api.netlink import Netlink
from fabric.world.programs.agents import AgentPool
from runs.live import LiveFabric, bring_up
from runs.preload import PRELOAD
from tests.waiting import until
from topologies.load import load_fabric
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.job import Stage
from traffic.storage.config import CheckpointConfig, DataloaderConfig, StorageConfig
from traffic.storage.job import StorageJob

ETH_P_ALL = 0x0003
FRAMES = 5
WIDE = np.dtype([(str(name), "<i8") for name in COUNTERS.names or ()])
RISE_S, MEASURE_S = 2.0, 3.0
AHEAD = QueueConfig(acknowledgements=Acknowledgements.CONTROL)
FLOODS = [("z0h008", "0x0"), ("z0h004", "0x20")]


@contextmanager
def small_fabric() -> Iterator[LiveFabric]:
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    fabric = load_fabric("fire_flyer_2_small")
    with bring_up(fabric, plan_lanes(QueueConfig(), Queueing.LANES), logs, print) as live:
        yield live


def networks() -> dict[str, Any]:
    """Links, lanes and rules, by real TCP, UDP and frames that nobody expects."""
    with small_fabric() as live:
        found = {
            "strangers": send_all_strangers(live),
            "pings": {f"{a} {b}": pings(live, a, b) for a, b in PINGS},
            "alone": carried(live, ServiceLevel.HFREDUCE),
        }
        live.emulation.set_lanes(plan_lanes(AHEAD, Queueing.LANES))
        return found | {"against_full_lanes": carried(live, ServiceLevel.OTHER, FLOODS)}


# Frames that no rule wants.


def strangers(live: LiveFabric) -> dict[str, tuple[str, str, Packet]]:
    """Return, by name: a sending host, its interface, and a frame; the first is known, and shows that taps see."""
    fabric = live.fabric
    sender, receiver, far = (fabric.nics_of[fabric.host_named(name)][0] for name in ("z0h000", "z0h005", "z1h002"))
    storage = fabric.nics_of[fabric.host_named("st000")][0]
    known = Ether(src=sender.mac, dst=receiver.mac)
    everybody = Ether(src=sender.mac, dst="ff:ff:ff:ff:ff:ff")
    frames = {
        "known": known / IP(src=sender.ip, dst=receiver.ip) / UDP(dport=9),
        "unknown address of the fabric's network": known / IP(src=sender.ip, dst="10.0.0.200") / UDP(dport=9),
        "unknown address elsewhere": known / IP(src=sender.ip, dst="192.0.2.1") / UDP(dport=9),
        "IP broadcast": everybody / IP(src=sender.ip, dst="255.255.255.255") / UDP(dport=9),
        "ARP": everybody / ARP(op="who-has", psrc=sender.ip, pdst=receiver.ip),
        "IPv6": Ether(src=sender.mac, dst="33:33:00:00:00:01") / IPv6(src="fe80::1", dst="ff02::1") / UDP(dport=9),
    }
    found = {name: (sender.node.name, sender.port.interface, frame) for name, frame in frames.items()}
    leaving = Ether(src=storage.mac, dst=far.mac) / IP(src=storage.ip, dst=far.ip) / UDP(dport=9)
    return found | {"storage to another zone": (storage.node.name, storage.port.interface, leaving)}


def send_all_strangers(live: LiveFabric) -> dict[str, Any]:
    """Send each frame some times; return who else saw it, and what switches say they dropped meanwhile."""
    return {name: send_strangers(live, *sent) for name, sent in strangers(live).items()}


def send_strangers(live: LiveFabric, host: str, interface: str, frame: Packet) -> dict[str, Any]:
    """Send a frame some times; return who else saw it, and what switches dropped meanwhile, each once all are seen or
    dropped."""
    mark, before = os.urandom(16), live.rule_drops()
    seen: Counter[str] = Counter()
    dropped: Counter[str] = Counter()

    def all_are_seen_or_dropped() -> bool:
        seen.update({name: times for name, listening in taps.items() if (times := sightings(listening, mark))})
        dropped.clear()
        dropped.update({switch.name: count - before[switch] for switch, count in live.rule_drops().items()})
        return sum(seen.values()) + dropped.total() >= FRAMES

    with ExitStack() as stack:
        taps = {
            node.name: stack.enter_context(tap(netns.netns_path(node.name)))
            for node in live.fabric.hosts
            if node.name != host
        }
        with netns.inside(netns.netns_path(host)), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind((interface, 0x0800))
            for _ in range(FRAMES):
                sock.send(bytes(frame / Raw(mark)))
        with suppress(AssertionError):  # The test says what is missing.
            until(all_are_seen_or_dropped, "frames to be seen by hosts or dropped by rules", limit_s=20)
        time.sleep(0.5)  # For what is seen or dropped by more than one.
        all_are_seen_or_dropped()
    return {"seen_by": list(seen), "dropped": dict(+dropped)}


@contextmanager
def tap(namespace: Path) -> Iterator[socket.socket]:
    with netns.inside(namespace):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with sock:
        sock.setblocking(False)
        yield sock


def sightings(listening: socket.socket, mark: bytes) -> int:
    """Return how many frames with a mark have come since the last time."""
    found = 0
    with suppress(BlockingIOError):
        while True:
            found += mark in listening.recv(65536)
    return found


PINGS = [("z0h000", "st000.z0"), ("z1h000", "st000.z1"), ("z1h000", "st000.z0"), ("z0h000", "st000.z1")]


def pings(live: LiveFabric, host: str, name: str) -> int:
    """Return the answers to two pings of a name; none if the host has no route to it."""
    program = ["ping", "-c", "2", "-i", "0.2", "-W", "2", name]
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = live.emulation.popen(live.fabric.host_named(host), program, **output)
    words = done.communicate(timeout=30)[0].decode()
    if "No route to host" in words:
        return 0
    found = re.search(r"(\d+) received", words)
    assert found, words
    return int(found[1])


# A link filled by TCP.


def carried(live: LiveFabric, level: ServiceLevel, floods: Sequence[tuple[str, str]] = ()) -> dict[str, float]:
    """Return, as fractions of the link, what a TCP flow gets of a host's link, and what comes back.

    ``floods`` gives the host and the TOS of UDP floods of a whole link each, which all go to the flow's sender. They
    start once the flow goes: iperf3's own messages on the way back are data, which a full lane holds up.
    """
    fabric = live.fabric
    a, b = fabric.host_named("z0h000"), fabric.host_named("z0h004")
    towards_a, towards_b = (fabric.peer(fabric.nics_of[host][0].port) for host in (a, b))
    length = ["-t", "600"]  # Until it is killed.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    lanes, own = live.emulation.lane_plan.lanes, [live.emulation.lane_plan.lane_of(level)]
    capacity_bps = fabric.nic_rate_bps

    def count(counters: Mapping[tuple[int, int], Any], counter: str, port: Port, lanes: Sequence[Lane]) -> int:
        return sum(int(counters[live.emulation.indices[port], lane.number][counter]) for lane in lanes)

    def flow_bytes() -> int:
        return count(queues_of_switches(live)[1], "sent_bytes", towards_b, own)

    def dropped_back() -> int:
        return count(queues_of_switches(live)[1], "drops_packets", towards_a, lanes)

    with ExitStack() as stack:

        def start(host: NodeId, program: list[str]) -> subprocess.Popen[bytes]:
            process = live.emulation.popen(host, program, **quiet)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            return process

        ends = [(b, "5201"), *((a, str(5301 + number)) for number in range(len(floods)))]
        servers = [(host, start(host, ["iperf3", "-s", "-p", port])) for host, port in ends]
        await_servers([host for host, _ in servers], [server for _, server in servers])
        risen_bytes = flow_bytes() + capacity_bps / 8 * RISE_S / 2
        start(a, ["iperf3", "-c", "z0h004", "-S", str(level.tos), "-C", "cubic", *length])
        until(lambda: flow_bytes() > risen_bytes, "iperf3's flow to rise", limit_s=60)
        for number, (host_name, tos) in enumerate(floods):
            flood = ["iperf3", "-c", "z0h000", "-p", str(5301 + number), "-u", "-b", "20M", "-l", "4000", "-S", tos]
            dropped_before = dropped_back()
            start(fabric.host_named(host_name), [*flood, *length])
        if floods:
            until(lambda: dropped_back() > dropped_before, "the floods to fill the way back")
        time.sleep(RISE_S)
        started, before = queues_of_switches(live)
        time.sleep(MEASURE_S)
        ended, after = queues_of_switches(live)

    def grown(counter: str, port: Port, lanes: Sequence[Lane]) -> int:
        return count(after, counter, port, lanes) - count(before, counter, port, lanes)

    capacity_bytes = capacity_bps / 8 * (ended - started)
    return {
        "flow": grown("sent_bytes", towards_b, own) / capacity_bytes,
        "all": grown("sent_bytes", towards_b, lanes) / capacity_bytes,
        "back": grown("sent_bytes", towards_a, lanes) / capacity_bytes,
        "dropped_back": float(grown("drops_packets", towards_a, lanes)),
    }


def queues_of_switches(live: LiveFabric) -> tuple[float, dict[tuple[int, int], Any]]:
    """Return the counters of all queues of switches by interface and lane, and when they were read.

    They are in one namespace: it is a matter of milliseconds, and the time is that of its middle.
    """
    with Netlink() as link:
        started = time.monotonic()
        dump = link.dump_qdiscs()
        ended = time.monotonic()
    keys, rows = QueueReader().read(dump)
    return (started + ended) / 2, dict(zip(keys, rows.astype(WIDE), strict=True))


# Jobs.


def jobs() -> dict[str, Any]:
    """Storage that loses a service under load, then allreduces that divide by nothing."""
    with small_fabric() as live:
        pool = AgentPool(PRELOAD)
        stage = Stage(live.fabric, pool, live.emulation.namespace_of, seed=5)
        try:
            return {"storage": lose_a_service(stage), "sums": odd_sums(stage), "wrong_sum": wrong_sum(stage)}
        finally:
            pool.stop()


def lose_a_service(stage: Stage) -> dict[str, Any]:
    fabric = stage.fabric
    config = StorageConfig(
        chunk_size=64 << 10,
        stripe=8,
        dataloader=DataloaderConfig(depth=1, batch=2, sample_min=16 << 10, sample_max=64 << 10, file_size=2 << 20),
        checkpoint=CheckpointConfig(share=0.5, size=512 << 10),
        services_per_process=1,
    )
    job = StorageJob(stage, config, fabric.computes[::4])
    job.start()
    try:
        job.play("load")
        time.sleep(3)
        killed_at = time.monotonic()
        job.kill_service(fabric.storages[1], wait_s=30)
        published_at = time.monotonic()
        time.sleep(4)
        operations = job.halt().rows("operations")
        verification = job.verify_acknowledged(timeout_s=120)
    finally:
        job.close()
    return {
        "checked": verification.checked,
        "lost": list(verification.lost),
        "detected_s": published_at - killed_at,
        "before": count(operations, 0.0, killed_at),
        "after": count(operations, published_at, float("inf")),
    }


def count(operations: Sequence[dict[str, Any]], from_s: float, until_s: float) -> dict[str, int]:
    """Return how many reads and writes began and ended between two times."""
    inside = [row["operation"] for row in operations if from_s <= row["started_s"] and row["ended_s"] <= until_s]
    return {operation: inside.count(operation) for operation in ("read", "write")}


def odd_job(stage: Stage) -> HFReduceJob:
    """Return HFReduce over 5 ranks in 2 zones: 100,003 elements in chunks of 2,501."""
    ranks = [stage.fabric.host_named(name) for name in ("z0h000", "z0h005", "z0h010", "z1h003", "z1h008")]
    return HFReduceJob(stage, HFReduceConfig(size=4 * 100_003, chunk=4 * 2_501), ranks)


def odd_sums(stage: Stage) -> int:
    """Return the steps that ended; every rank verifies its whole sum in each."""
    job = odd_job(stage)
    job.start()
    try:
        return len(job.run_steps(4).rows("steps"))
    finally:
        job.close()


def wrong_sum(stage: Stage) -> str:
    """Return what is said when one number among the inputs of the ranks is not what it should be."""
    job = odd_job(stage)
    job.start()
    try:
        (series,) = Path(tempfile.gettempdir()).glob("hfreduce-*/series.fp32")
        np.memmap(series, dtype=np.float32, mode="r+")[50_000] += 1
        job.run_steps(1)
    except TrafficError as error:
        return str(error)
    finally:
        job.close()
    return "nothing"


if __name__ == "__main__":
    _, name, report = sys.argv
    Path(report).write_text(json.dumps({"networks": networks, "jobs": jobs}[name]()))
