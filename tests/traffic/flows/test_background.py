"""Background flows: sizes and arrivals as promised, and every arrival accounted for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import ConfigError, TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.fakes import AT_20_MBIT
from tests.rows import columns_of_programs
from tests.waiting import played_until, until
from topologies.load import load_fabric
from traffic.flows.background import (
    _SIZE,
    SIZE_CDFS,
    Arrival,
    BackgroundConfig,
    BackgroundJob,
    _Running,
    _send_flow,
    _Sink,
    arrivals,
)
from traffic.job import Records, Stage
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import connect

FABRIC = load_fabric("fire_flyer_2_small", AT_20_MBIT)
NIC_BPS = FABRIC.nic_rate_bps
OPTIONS = SocketOptions(ServiceLevel.OTHER)


def others(hosts: int, source: int) -> list[int]:
    """Return the places of all hosts but one."""
    return [place for place in range(hosts) if place != source]


def test_mean_of_web_search_is_that_of_its_trapezoids() -> None:
    """Worked out from the published points: sum of (low + high) / 2 x probability."""
    assert SIZE_CDFS["web_search"].mean_bytes == pytest.approx(1_711_250)


def test_mean_of_ali_storage_is_that_of_its_trapezoids() -> None:
    assert SIZE_CDFS["ali_storage"].mean_bytes == pytest.approx(40_869.8)


@pytest.mark.parametrize(
    ("fraction", "size"), [(0, 0), (0.15, 10_000), (0.25, 25_000), (0.6, 200_000), (0.985, 20_000_000), (1, 30_000_000)]
)
def test_sizes_lie_on_the_lines_between_published_points(fraction: float, size: float) -> None:
    assert SIZE_CDFS["web_search"].size_at(fraction) == pytest.approx(size)
    assert SIZE_CDFS["web_search"].scaled(0.1).size_at(fraction) == pytest.approx(size / 10)


@pytest.mark.parametrize("name", SIZE_CDFS)
def test_arrivals_have_the_sizes_and_the_load_of_their_config(name: str) -> None:
    config = BackgroundConfig(load=0.2, cdf=name)
    flows = list(islice(arrivals(config, NIC_BPS, 0, others(24, 0), seed=1), 40_000))
    sizes = np.array([flow.size_bytes for flow in flows])
    assert sizes.mean() == pytest.approx(config.sizes.mean_bytes, rel=0.03)
    for fraction in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(sizes, fraction) == pytest.approx(config.sizes.size_at(fraction), rel=0.08)
    assert sizes.sum() * 8 / flows[-1].at_s == pytest.approx(0.2 * NIC_BPS, rel=0.03)


def test_gaps_between_arrivals_are_exponential() -> None:
    """Whose standard deviation is their mean, and of which 1/e exceed it."""
    flows = islice(arrivals(BackgroundConfig(), NIC_BPS, 0, others(24, 0), 1), 20_000)
    gaps = np.diff([flow.at_s for flow in flows])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert (gaps > gaps.mean()).mean() == pytest.approx(np.exp(-1), abs=0.01)


def test_sinks_are_drawn_evenly_among_the_others() -> None:
    flows = islice(arrivals(BackgroundConfig(), NIC_BPS, 2, others(5, 2), seed=1), 8000)
    counts = np.bincount([flow.sink for flow in flows], minlength=5)
    assert counts[2] == 0
    assert np.delete(counts, 2) == pytest.approx(2000, rel=0.08)


def test_arrivals_are_reproducible_and_differ_by_source_and_seed() -> None:
    def first(source: int, seed: int) -> list[tuple[float, int]]:
        flows = islice(arrivals(BackgroundConfig(), NIC_BPS, source, others(24, source), seed), 20)
        return [(flow.at_s, flow.size_bytes) for flow in flows]

    assert first(3, 1) == first(3, 1)
    assert first(3, 1) != first(4, 1)
    assert first(3, 1) != first(3, 2)


def play(job: BackgroundJob, is_enough: Callable[[Records], object]) -> Records:
    try:
        job.start()
        return played_until(job, "quiet", is_enough, "all flows of the first 0.9 s", window_s=1.0)
    finally:
        job.close()


def have_arrived(sizes: list[int]) -> Callable[[Records], bool]:
    """Return whether rows have flows of some sizes, for :func:`played_until`."""
    return lambda records: set(sizes) <= {row["size_bytes"] for row in records.rows("operations")}


def have_completed(sizes: list[int]) -> Callable[[Records], bool]:
    """Return whether rows have completed flows of some sizes, for :func:`played_until`."""
    return lambda records: set(sizes) <= {
        row["size_bytes"] for row in records.rows("operations") if row["operation"] == "flow"
    }


def stage() -> Stage:
    return Stage(FABRIC, AgentPool(preload=("traffic.flows.background",)), lambda _: None, seed=5)


@pytest.mark.parametrize(("together", "processes"), [(1, [1, 1, 1]), (2, [2, 1])])
def test_every_arrival_of_a_quiet_network_completes_and_has_a_row(together: int, processes: list[int]) -> None:
    config = BackgroundConfig(load=0.9, cdf="ali_storage", size_scale=1.0, hosts_per_process=together)
    job = BackgroundJob(stage(), config, FABRIC.computes[:3], lambda _: "127.0.0.1")
    expected = [
        flow.size_bytes
        for source in range(3)
        for flow in takewhile(lambda flow: flow.at_s < 0.9, arrivals(config, NIC_BPS, source, others(3, source), 5))
    ]
    with patch.object(job._stage.pool, "start_together", wraps=job._stage.pool.start_together) as start_together:
        records = play(job, have_completed(expected))
    assert [len(call.args[0]) for call in start_together.call_args_list] == processes
    rows = pd.DataFrame(records.rows("operations"))
    assert list(rows.columns) == columns_of_programs("operations")
    assert (rows["ended_s"] >= rows["started_s"]).all()
    assert (rows["host"] != rows["peer"]).all()
    assert set(job.outcomes) <= {"flow", "flow_abandoned"}, "those that ran as the load was halted, and no others"
    assert len(expected) > 50
    # Flows are shorter than samples are apart: a last look at each tells of it.
    flows = pd.DataFrame(records.rows("flows"))
    completed = rows[rows["operation"] == "flow"]
    assert flows[flows["bytes_acked"] > 0]["bytes_acked"].sum() >= completed["size_bytes"].sum()


def places_by_zone(job: BackgroundJob) -> dict[int, set[int]]:
    zones = [FABRIC.nics_of[host][0].zone for host in job.hosts]
    return {zone: {place for place, found in enumerate(zones) if found == zone} for zone in set(zones)}


def test_flows_can_be_kept_within_the_zone() -> None:
    job = BackgroundJob(stage(), BackgroundConfig(within_zone=True), FABRIC.computes)
    zones = places_by_zone(job)
    assert len(zones) == 2
    for zone in zones.values():
        for place in zone:
            assert set(job._sinks(place)) == zone - {place}
    anywhere = BackgroundJob(stage(), BackgroundConfig(), FABRIC.computes)
    assert list(anywhere._sinks(3)) == others(len(FABRIC.computes), 3)


def test_a_host_that_is_alone_in_its_zone_is_named() -> None:
    hosts = (*FABRIC.computes[:2], FABRIC.computes[-1])
    with pytest.raises(TrafficError, match=f"background: {hosts[2]}: no other host in its zone; name more or leave"):
        BackgroundJob(stage(), BackgroundConfig(within_zone=True), hosts)


def test_each_phase_offers_the_load_that_the_job_is_given_before_it() -> None:
    """Beyond what a NIC carries, too; the same flows, more densely."""
    config = BackgroundConfig(load=0.2, cdf="ali_storage", size_scale=1.0)
    job = BackgroundJob(stage(), config, FABRIC.computes[:2], lambda _: "127.0.0.1")
    job.start()
    try:
        for load in (0.2, 2.0):
            job.load = load
            offered = config.model_copy(update={"load": load})

            def until_s(moment_s: float, offered: BackgroundConfig = offered) -> list[int]:
                flows = arrivals(offered, NIC_BPS, 0, [1], 5)
                return [flow.size_bytes for flow in takewhile(lambda flow: flow.at_s < moment_s, flows)]

            began_s = time.monotonic()
            records = played_until(job, "phase", have_arrived(until_s(0.4)), "the flows of 0.4 s", window_s=0.5)
            began = [row["size_bytes"] for row in records.rows("operations") if row["host"] == "z0h000"]
            assert len(until_s(0.4)) <= len(began) <= len(until_s(time.monotonic() - began_s))
    finally:
        job.close()


def test_a_job_of_another_level_that_draws_anew_has_other_flows_in_each_phase() -> None:
    config = BackgroundConfig(load=0.9, cdf="ali_storage", size_scale=1.0)
    hosts, level = FABRIC.computes[:2], ServiceLevel.NCCL
    job = BackgroundJob(stage(), config, hosts, lambda _: "127.0.0.1", level)
    job.draws_anew = True
    played: list[list[int]] = []

    def have_come(records: Records) -> bool:
        phase = (level.dscp // 8, len(played))
        flows = takewhile(lambda flow: flow.at_s < 0.4, arrivals(config, NIC_BPS, 0, others(2, 0), 5, phase))
        played.append([flow.size_bytes for flow in flows])
        return have_arrived(played[-1])(records)

    job.start()
    try:
        for _ in range(2):
            records = played_until(job, "phase", have_come, "the flows of 0.4 s", window_s=0.5)
            expected = played[-1]
            assert {row["service_level"] for row in records.rows("operations")} == {"nccl"}
            assert len(expected) > 5
            assert not set(expected) <= {
                flow.size_bytes for flow in islice(arrivals(config, NIC_BPS, 0, others(2, 0), 5), 99)
            }
    finally:
        job.close()


def test_flows_that_run_at_the_halt_or_find_no_room_are_counted() -> None:
    """Two sinks of three are mute: one that takes connections and no bytes, and a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        config = BackgroundConfig(load=0.9, cdf="web_search", size_scale=0.01, max_flows=2)
        job = BackgroundJob(stage(), config, FABRIC.computes[:3], lambda _: "127.0.0.1")
        replace_sinks_of_first_host(job, mute.getsockname())
        arrived = sum(1 for _ in takewhile(lambda flow: flow.at_s < 0.9, arrivals(config, NIC_BPS, 0, others(3, 0), 5)))

        def have_been_refused(records: Records) -> bool:
            rows = records.rows("operations")
            of_first = [row["operation"] for row in rows if row["host"] == FABRIC.computes[0].name]
            return of_first.count("flow_refused") >= arrived - 2

        records = play(job, have_been_refused)
    rows = pd.DataFrame(records.rows("operations"))
    of_first = rows[rows["host"] == FABRIC.computes[0].name]["operation"].value_counts()
    assert of_first["flow_abandoned"] == 2
    assert of_first["flow_refused"] >= arrived - 2 > 0
    assert set(of_first.index) == {"flow_abandoned", "flow_refused"}
    assert job.outcomes["flow_abandoned"] == (rows["operation"] == "flow_abandoned").sum()


@pytest.fixture
def sink() -> Iterator[_Sink]:
    sink = _Sink("127.0.0.1", OPTIONS)
    yield sink
    sink.close()


def test_a_sink_takes_a_flow_after_another_with_the_threads_it_has(sink: _Sink) -> None:
    before = set(threading.enumerate())
    for size_bytes in (1, 32 * 1024, 300_000) * 10:
        with connect(*sink.endpoint, OPTIONS, 5.0) as sock:
            _send_flow(sock, size_bytes)
    begun = set(threading.enumerate()) - before
    assert len(begun) <= 1, "one waits while the other takes a flow"


def test_a_sink_takes_as_many_flows_at_once_as_there_are(sink: _Sink) -> None:
    """Each of several begins with half of its size, and is over only after one that began last."""
    with contextlib.ExitStack() as open_ones:
        begun = [open_ones.enter_context(connect(*sink.endpoint, OPTIONS, 5.0)) for _ in range(5)]
        for sock in begun:
            sock.sendall(_SIZE.pack(3)[:5])
        with connect(*sink.endpoint, OPTIONS, 5.0) as last:
            _send_flow(last, 100_000)
        for sock in begun:
            sock.sendall(_SIZE.pack(3)[5:] + b"abc")
            sock.settimeout(60)
            assert sock.recv(2) == b"\x06"


def test_a_flow_that_its_source_abandons_keeps_nobody_waiting(sink: _Sink) -> None:
    for part in (b"", _SIZE.pack(10)[:3], _SIZE.pack(10) + b"few"):
        with connect(*sink.endpoint, OPTIONS, 5.0) as sock:
            sock.sendall(part)
    with connect(*sink.endpoint, OPTIONS, 5.0) as sock:
        _send_flow(sock, 10)


def test_an_abandoned_flow_counts_what_its_sink_acknowledged_not_its_size(sink: _Sink) -> None:
    """Figures of what the fabric delivered were above all of its links where flows were cut off."""
    running = _Running(Arrival(0.0, 0, 10**9), 0.0)
    assert running.delivered_bytes() == 0
    with connect(*sink.endpoint, OPTIONS, 5.0) as sock:
        running.connected(sock)
        sock.sendall(_SIZE.pack(10**9) + bytes(50_000))
        until(lambda: running.delivered_bytes() >= 50_000, "the acknowledgement of 50 kB")
        assert 50_000 <= running.delivered_bytes() <= 50_001, "TCP counts its SYN, too"


def test_a_sink_that_ends_has_no_thread_wait_for_flows() -> None:
    before = set(threading.enumerate())
    sink = _Sink("127.0.0.1", OPTIONS)
    (waiting,) = set(threading.enumerate()) - before
    sink.close()
    waiting.join(60)
    assert not waiting.is_alive()


def replace_sinks_of_first_host(job: BackgroundJob, endpoint: tuple[str, int]) -> None:
    programs = job._programs
    order = programs.order

    def order_with_other_sinks(message: object) -> None:
        if isinstance(message, list):
            programs.order_each({**dict.fromkeys(programs.handles, message), 0: [endpoint] * len(message)})
        else:
            order(message)

    programs.order = order_with_other_sinks  # type: ignore[method-assign,assignment]


def test_config_names_the_distributions_there_are() -> None:
    with pytest.raises(ConfigError, match="cdf: 'websearch' is not a distribution; use one of web_search, ali_storage"):
        checked(BackgroundConfig, {"cdf": "websearch"}, "test")


def test_one_host_is_refused() -> None:
    with pytest.raises(TrafficError, match="background: 1 hosts; flows need a source and a sink"):
        BackgroundJob(stage(), BackgroundConfig(), FABRIC.computes[:1])
