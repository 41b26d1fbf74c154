"""What a node measures and reads by itself, on this machine: meters over TCP, its own interface, a log of a kernel."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cluster.health import bandwidth, gpu_allreduce
from cluster.health.allreduce_check import GpuTest, allreduce_result
from cluster.health.bandwidth import BandwidthMeter, MeterError
from cluster.health.check_program import CheckError
from cluster.health.checks import Verdict
from cluster.health.config import HealthConfig, NodeAllreduce
from cluster.health.gpu_teams import GpuParts
from cluster.health.host import KernelHost, make_wrong
from cluster.health.node import NodeWatch
from cluster.health.storage_check import stress
from cluster.health.xids import GpuError
from fabric.config import checked
from fabric.model.inside import Inside
from fabric.model.lanes import ServiceLevel
from tests.cluster.addresses import own_address
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

TCP = TcpTransport(SocketOptions(ServiceLevel.CONTROL))
ONE, OTHER, NOBODY = (own_address(number) for number in range(3))


def test_a_meter_measures_what_comes_through_and_says_why_nothing_did(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> tuple[float, list[str]]:
        sender, receiver = BandwidthMeter(TCP, (ONE,)), BandwidthMeter(TCP, (OTHER,))
        receiver.listen()
        try:
            bps = await sender.measure(0, OTHER, 2_000_000, 10.0)
            whys = []
            for peer, size, time_s in ((NOBODY, 1000, 5.0), (OTHER, 10**12, 0.05)):
                with pytest.raises(MeterError) as caught:
                    await sender.measure(0, peer, size, time_s)
                whys.append(str(caught.value))
        finally:
            receiver.close()
        return bps, whys

    bps, (nobody, late) = asyncio.run(scene())
    assert bps > 1e6
    assert NOBODY in nobody
    assert late == "1000000000000 B were not through within 0.05 s"
    assert bandwidth.PORT < 2222, "below the ports of ranks"


def test_a_host_reads_its_own_interface_and_the_log_of_its_kernel(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    host = KernelHost(("lo",), log)
    try:
        (lo,) = host.nics()
        assert (lo.name, lo.carrier, lo.rate_bps) == ("lo", True, None)
        assert host.gpu_errors() == ()
        assert host.repaired_s < 0
        watch, heard = NodeWatch(checked(HealthConfig, {}, "test"), host), list[str]()
        watch.on_change = lambda: heard.append(watch.unwell().words)
        log.write_text(GpuError(time.monotonic(), 3, 79).line() + "\n")
        watch.look()
        watch.look()
        assert heard == ["GPU 3: Xid 79: GPU has fallen off the bus"], "told once"
        assert watch.unwell().xids == (79,)
        make_wrong(log, 5)
        assert host.wrong_gpus() == {5}
        watch.repaired()
        assert host.wrong_gpus() == frozenset(), "a repair puts in another GPU"
        watch.look()
        assert not watch.unwell()
        again = NodeWatch(checked(HealthConfig, {}, "test"), KernelHost(("lo",), log))
        again.look()
        assert not again.unwell(), "the repair outlives the agent"
    finally:
        host.close()


def test_storage_that_is_not_there_is_a_reason() -> None:
    with pytest.raises(CheckError, match="no file system is there to mount"):
        asyncio.run(stress("z0h001", None, 4096, 30.0))


def test_gpus_add_up_in_processes_and_one_that_computes_wrong_is_found() -> None:
    """Three GPUs by addresses of this machine, at a rate that it has in any case: all, then each with its neighbour.

    At 1 kB/s a team may take a minute for what takes it milliseconds."""
    inside = Inside("three", 8_000, 1_000, 2.0, (0, 0, 0))
    parts = GpuParts(inside, tuple(map(own_address, range(inside.gpus))))
    test = GpuTest(parts, NodeAllreduce(size=65536), TCP)

    async def scene() -> None:
        right = await allreduce_result("z0h001", test, frozenset(), 60.0)
        assert (right.verdict, right.reason) == (Verdict.PASSED, ""), right
        assert right.measured >= right.limit == 0.8
        wrong = await allreduce_result("z0h001", test, frozenset({1}), 60.0)
        assert wrong.verdict is Verdict.FAILED
        assert wrong.reason.startswith("GPU 1: GPUs 0 and 1 over PCIe: GPU ")
        assert "the result is not to be trusted" in wrong.reason and "GPUs 2 and 0" not in wrong.reason
        taken = TcpTransport.listen(TCP, parts.pcie[0], gpu_allreduce.PORT)
        try:
            assert "Address already in use" in (await allreduce_result("z0h001", test, frozenset(), 60.0)).reason
        finally:
            taken.close()

    asyncio.run(scene())
