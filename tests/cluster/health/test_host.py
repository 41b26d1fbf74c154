"""What a node measures and reads by itself, on this machine: meters over TCP, its own interface, a log of a kernel."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cluster.health import bandwidth
from cluster.health.bandwidth import BandwidthMeter, MeterError
from cluster.health.config import HealthConfig
from cluster.health.host import KernelHost
from cluster.health.node import NodeWatch
from cluster.health.storage_check import StressError, stress
from cluster.health.xids import GpuError
from fabric.config import checked
from fabric.model.lanes import ServiceLevel
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

TCP = TcpTransport(SocketOptions(ServiceLevel.CONTROL))
ONE, OTHER, NOBODY = "127.44.0.1", "127.44.0.2", "127.44.0.3"


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
        watch.on_change = lambda: heard.append(watch.unwell())
        log.write_text(GpuError(time.monotonic(), 3, 79).line() + "\n")
        watch.look()
        watch.look()
        assert heard == ["GPU 3: Xid 79: GPU has fallen off the bus"], "told once"
        watch.repaired()
        watch.look()
        assert watch.unwell() == ""
        again = NodeWatch(checked(HealthConfig, {}, "test"), KernelHost(("lo",), log))
        again.look()
        assert again.unwell() == "", "the repair outlives the agent"
    finally:
        host.close()


def test_storage_that_is_not_there_is_a_reason() -> None:
    with pytest.raises(StressError, match="no file system is there to mount"):
        asyncio.run(stress("z0h001", None, 4096, 30.0))
