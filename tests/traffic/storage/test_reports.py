"""What users of 3FS report of throughput, beside what its protocol, its limits, NICs and disks alone come to.

Sizes and rates are a 64th of the reports', so times are the same and a test is cheap. What is put in of hardware
is what its makers say: NICs of 400 or 2 x 100 Gbit/s, of which 95 % carry payload; PM1733: reads 7.0 GB/s, writes 3.8
GB/s; P5520: 7.1 and 4.2 GB/s. Where a time of the software is put in, it is taken from one number of the same report.
"""

from __future__ import annotations

from typing import Any

import pytest

from traffic.storage.config import StorageConfig

from .rated import Nics, RatedCluster
from .true_timers import no_listeners_left, run

SCALE = 64
MIB, GIB = 1 << 20, 1 << 30
PM1733 = {"ssd_read_rate": 7.0e9, "ssd_write_rate": 3.8e9}
P5520 = {"ssd_read_rate": 7.1e9, "ssd_write_rate": 4.2e9}


def config(io: dict[str, Any], disks: dict[str, float], **keys: Any) -> StorageConfig:
    """A cluster as users set it up, in our words. Rates of disks are in B/s, sizes in B, both of the report."""
    io = {key: value // SCALE if key in ("bs", "size") else value for key, value in io.items()}
    service = {name: int(value * 8 / SCALE) if name.endswith("rate") else value for name, value in disks.items()}
    limits = {"max_batch_size": 4 * MIB // SCALE, "operation_timeout": 60.0, **keys.pop("client", {})}
    found = {
        "chunk_size": MIB // SCALE,
        "stripe": 16,
        "replicas": 3,
        "request_to_send": "off",
        "connections": "when_needed",
        "target_order": "shuffled",
        "chunk_io": io,
        "service": {"max_concurrent_pulls": 256, "max_concurrent_sends": 256, **service},
        "client": limits,
        **keys,
    }
    return StorageConfig.model_validate(found)


def gib_per_s(of: StorageConfig, nodes: int, nic_bps: float, clients: int = 1, length_s: float = 0.02) -> float:
    """What clients move together."""

    async def scene() -> float:
        cluster = RatedCluster(of, nodes, Nics(0.95 * nic_bps / SCALE, 5e-6), clients)
        await cluster.start()
        return await cluster.play(0.005, length_s)

    with no_listeners_left():
        return run(scene()) * SCALE / GIB


def report_410(io: dict[str, Any], software_s: float, **client: int) -> float:
    """6 nodes of 5 disks and a NIC of 400 Gbit/s; one client, beside them. (There it is on one of them.)"""
    disks = {**PM1733, "ssd_latency": software_s, "ssd_write_latency": software_s}
    of = config({"numjobs": 32, "size": 8 * MIB, **io}, disks, disks_per_node=5, client=client)
    return gib_per_s(of, 6, 400e9, length_s=0.02 if software_s else 0.006)


RAISED = {"max_requests": 256, "max_requests_per_server": 64}


def test_report_410_depth_and_size_of_reads_and_the_hops_of_a_write() -> None:
    """Reads of 1 MiB at depth 1: 23.2 GiB/s, which is put in as 1.1 ms per request; of 4 MiB: 32.5; at depth 4, after
    limits were raised: 42. Writes of 1 MiB at depth 8: 7.6 in the mean, 11 for most of the time."""
    software_s = 0.0011
    one = report_410({"bs": MIB}, software_s)
    four = report_410({"bs": 4 * MIB}, software_s)
    deep = report_410({"bs": MIB, "iodepth": 4}, software_s, **RAISED)
    written = report_410({"rw": "randwrite", "bs": MIB, "iodepth": 8}, software_s)
    print(f"GiB/s: {one:.1f} (put in), 4 MiB {four:.1f}, depth 4 {deep:.1f}; writes {written:.1f}")
    assert one == pytest.approx(23.2, rel=0.04)
    assert four == pytest.approx(32.5, rel=0.15)
    assert deep == pytest.approx(0.95 * 400e9 / 8 / GIB, rel=0.04), "the NIC"
    assert written == pytest.approx(7.6, rel=0.1), "32 writes at once, of three hops each"


def test_report_410_without_time_of_the_software() -> None:
    """NICs and disks alone: depth hardly matters, and raised limits let writes reach what disks can write."""
    one = report_410({"bs": MIB}, 0.0)
    written = [report_410({"rw": "randwrite", "bs": MIB, "iodepth": 8}, 0.0, **limits) for limits in ({}, RAISED)]
    print(f"GiB/s: reads {one:.1f}, writes {written[0]:.1f}, with raised limits {written[1]:.1f}")
    assert one > 40
    assert written[0] < 0.75 * written[1]


def test_report_245_writes_are_bound_by_limits_and_hops() -> None:
    """6 nodes of 24 disks, 2 x 100 Gbit/s each; 100 jobs at depth 1. Reads 18 GiB/s, which is put in as 1.5 ms per
    request; writes 6 GiB/s. The limits let 32 of the 100 be in flight."""
    disks = {**P5520, "ssd_latency": 0.0015, "ssd_write_latency": 0.0015}
    found = {}
    for rw, limits in (("read", {}), ("write", {}), ("write", RAISED)):
        io = {"rw": rw, "bs": MIB, "numjobs": 100, "size": 4 * MIB, "overwrite": True}
        of = config(io, disks, disks_per_node=24, chains_per_target=1, client=dict(limits))
        found[rw, bool(limits)] = gib_per_s(of, 6, 200e9)
    print(f"GiB/s by what is done and whether limits are raised: {found}")
    assert found["read", False] == pytest.approx(18, rel=0.04)
    assert found["write", False] == pytest.approx(6, rel=0.1)
    assert found["write", True] > 2 * found["write", False]


def test_a_write_at_depth_one_takes_a_hop_per_replica() -> None:
    """Store and forward: each replica has the whole chunk before the next one asks for it."""
    hop_s = MIB * 8 / (0.95 * 200e9)
    for replicas in (1, 2, 3):
        of = config({"rw": "randwrite", "bs": MIB, "size": 8 * MIB}, {}, replicas=replicas)
        took_s = MIB / GIB / gib_per_s(of, 6, 200e9, length_s=0.01)
        print(f"{replicas} replicas: {took_s * 1e6:.0f} us, of which {replicas * hop_s * 1e6:.0f} us on NICs")
        assert replicas * hop_s < took_s < replicas * (hop_s + 40e-6)


def test_report_332_is_not_explained_by_limits() -> None:
    """One file of 20 GiB in IOs of 32 MiB, 640 at once or one at a time: both 1.5 GiB/s. The limits of 32 requests, 8
    per service, let one such IO have 32 reads of a chunk in flight already, at 1.1 ms each; so 1.5 GiB/s is one chunk
    after the other, at 0.65 ms."""
    found = {}
    for depth in (1, 20):
        io = {"rw": "read", "bs": 32 * MIB, "size": 640 * MIB, "iodepth": depth}
        of = config(io, {**PM1733, "ssd_latency": 0.0011}, disks_per_node=5)
        found[depth] = gib_per_s(of, 6, 400e9)
    one = gib_per_s(config({"rw": "read", "bs": MIB, "size": 64 * MIB}, {**PM1733, "ssd_latency": 0.0005}), 6, 400e9)
    print(f"GiB/s by IOs at once: {found}; chunk after chunk {one:.1f}")
    assert found[1] > 10 and 2 < found[20] / found[1] < 3.5
    assert one == pytest.approx(1.5, rel=0.15)


def test_report_194_is_not_explained_by_chains() -> None:
    """One disk of six targets per node, a replica on each, stripe 16: 14.1 GiB/s of 3 nodes, 20.3 of 2. Any replica
    serves reads, and the six chains of either have all nodes: bound by disks three nodes give half as much more, bound
    by the client's NIC as much."""
    found = {}
    for nodes in (2, 3):
        for name, disks in (("disks", PM1733), ("NIC", {})):
            io = {"rw": "read", "bs": 4 * MIB, "size": 64 * MIB, "numjobs": 16, "iodepth": 4}
            of = config(io, disks, replicas=nodes, disks_per_node=1, stripe=6)
            found[nodes, name] = gib_per_s(of, nodes, 200e9, length_s=0.05)
    print(f"GiB/s by nodes and what binds: {found}")
    assert found[3, "disks"] / found[2, "disks"] == pytest.approx(1.5, rel=0.1)
    assert found[3, "NIC"] / found[2, "NIC"] == pytest.approx(1, rel=0.05)


def test_write_rates_of_disks_bind_writes() -> None:
    """A sixteenth of the reads, as FF2's site publishes (500 GB/s of 8 TB/s), comes of disks that write at k/16 of what
    NICs read: 3 nodes of a NIC each, 2 replicas."""
    nic_bytes_per_s = 0.95 * 200e9 / 8
    found = {}
    for rw in ("randread", "randwrite"):
        disks = {"ssd_write_rate": nic_bytes_per_s / 4 * 2 / 16}
        io = {"rw": rw, "bs": MIB, "numjobs": 16, "size": 16 * MIB, "iodepth": 2}
        of = config(io, disks, replicas=2, disks_per_node=4, chains_per_target=3, client=dict(RAISED))
        found[rw] = gib_per_s(of, 3, 200e9, clients=6, length_s=0.02 if rw == "randread" else 0.08)
    print(f"GiB/s: {found}")
    assert found["randread"] == pytest.approx(3 * nic_bytes_per_s / GIB, rel=0.1)
    assert found["randread"] / found["randwrite"] == pytest.approx(16, rel=0.15)


@pytest.mark.soak
def test_the_curve_of_depth() -> None:
    """Reads and writes of report 410 at several depths, with limits as shipped and raised: a row each."""
    for name, limits in (("as shipped", {}), ("raised", RAISED)):
        for rw in ("randread", "randwrite"):
            row = [report_410({"rw": rw, "bs": MIB, "iodepth": depth}, 0.0011, **limits) for depth in (1, 2, 4, 8)]
            print(f"{rw}, limits {name}: " + ", ".join(f"{one:.1f}" for one in row))
            assert row[0] <= row[-1] * 1.05
