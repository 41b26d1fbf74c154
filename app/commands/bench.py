"""The measurements that docs/performance.md quotes, each printed as a table.

``fabric bench`` has those of a topology and of its nodes, which users bring along, :mod:`app.benchmarks` those of this
project's own parts. They are benchmarks, not tests: the figures depend on the machine, so each prints both sides of a
comparison, measured in one run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.commands.inside_limits import bench_inside
from app.commands.live import routing_of
from app.commands.options import add_engine_option, add_json_option, add_routing_options
from app.commands.packet_hops import bench_hops, bench_queueings, bring_up_by_config, wall_s
from app.commands.repeats import check_repeats
from app.commands.worlds import enter_world
from app.sweeps.merging import merged_tables
from controllers.routing import Routing
from experiments.isolation.config import IsolationConfig
from fabric.config import files_noted
from fabric.errors import UsageError
from fabric.estimates import LEAST_FOR_CONFIDENCE
from fabric.free_memory import available_bytes
from fabric.measure.calibration import calibrate
from fabric.measure.census import lane_counters
from fabric.measure.cores import world_time
from fabric.model.identity import NodeId
from fabric.model.lanes import QueueConfig, Queueing
from fabric.records.calibration import LinkCalibration
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable
from fabric.world.engines import current_engine
from fabric.world.programs.agents import AgentPool, fork_server
from runs.console import print_tables, tell
from runs.jobs import hfreduce_flows, hfreduce_ranks
from runs.live import LiveFabric
from runs.placement import link_loads
from runs.preload import PRELOAD
from runs.registry import resolve
from runs.session import Audience, Session
from topologies.load import load_fabric
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceJob

_FLOW_S = 8
_STEPS = 7
_STOCK_LINKS = 400
"""Stock Mininet takes a minute for so many."""


def bench_setup(topology: str | None, routing: Routing) -> SummaryTable:
    """Return how long it takes to build a fabric: with the rules of a routing, and by stock Mininet without.

    By default 200 hosts, 30 switches and 300 links. Stock Mininet only in real time (in virtual time its many processes
    cost nothing, and minutes of ours), and only for up to ``_STOCK_LINKS``.
    """
    fabric = load_fabric(topology or "two_hundred_hosts")
    started_s, had_bytes, cpu = wall_s(), available_bytes(), world_time()
    with bring_up_by_config(fabric, QueueConfig(), Queueing.LANES, routing) as live:
        took_s, took_bytes, cpu = wall_s() - started_s, had_bytes - available_bytes(), world_time() - cpu
        rules, lanes = live.plan.rule_count, len(live.emulation.lane_plan.lanes)
        size = f"{len(fabric.hosts)} hosts, {len(fabric.switches)} switches, {len(fabric.links)} links"
        built = f"this project: links, addresses, queues of {lanes} lanes at every port, bridges"
        rows: list[Row] = [
            [built, quantity(live.built_s, ".2f in s")],
            [f"this project: until {rules} rules are installed and confirmed", quantity(live.ready_s, ".2f in s")],
            ["this project: until it is warm, wall time of the host", quantity(took_s, ".0f in s")],
            ["this project: MB of memory, beside what else runs here", quantity(took_bytes, ".0f in MB")],
        ]
        if not current_engine().is_exact:
            used = quantity(cpu.user_s + cpu.kernel_s, ".1f in s")
            rows.append(["this project: seconds of the CPU, of all processes, until it is warm", used])
        if not current_engine().is_exact and len(fabric.links) <= _STOCK_LINKS:
            tell("building the same with stock Mininet, in the same namespaces; this takes about a minute")
            from fabric.emulation.build import build_with_stock_mininet  # Others of its measurements need none.

            stock_s = build_with_stock_mininet(fabric)
            rows.append(["stock Mininet: links and bridges; no queues, no rules", quantity(stock_s, ".2f in s")])
            rows.append(["ratio", quantity(stock_s / live.ready_s, ".1f")])
    return SummaryTable(f"{fabric.name}: {size}; routing {routing.name}", ["", "seconds"], rows)


def bench_links() -> SummaryTable:
    """Return how exactly links carry their rate and lanes get their shares."""
    fabric = load_fabric("fire_flyer_2_small")
    with bring_up_by_config(fabric, QueueConfig(), Queueing.LANES) as live:
        carried = [_tcp_flow(live, fabric.computes[0], fabric.computes[1]) for _ in range(3)]
        tell("filling every lane of each kind of link, three times")
        found = [calibrate(live.emulation) for _ in range(3)]
    link, goodput = (statistics.median(values) for values in zip(*carried, strict=True))
    alone = _worst(found, lambda one: one.lane_alone_bps / one.rate_bps, min)
    share = _worst(found, lambda one: one.worst_share_error, max)
    promised = (
        ("link alone, one TCP flow: goodput and headers, of the rate", "98 - 102 %", link),
        ("  of that goodput", "", goodput),
        ("a lane alone, of the link; worst kind of link", "97 % or more", alone),
        ("all lanes full: furthest from its share, of the link; worst kind", "5 % or less", share),
    )
    rows: list[Row] = [[what, limit, quantity(value, ".2%")] for what, limit, value in promised]
    return SummaryTable(f"{fabric.name}, {live.emulation.datapath.value} datapath", ["", "promised", "measured"], rows)


def _worst(
    found: list[list[LinkCalibration]], value: Callable[[LinkCalibration], float], worst: Callable[..., float]
) -> float:
    """Return the worst kind of link's median over the rounds."""
    by_kind = zip(*found, strict=True)
    return worst(statistics.median(value(one) for one in rounds) for rounds in by_kind)


def _tcp_flow(live: LiveFabric, source: NodeId, destination: NodeId) -> tuple[float, float]:
    """Return what a TCP flow of iperf3 makes a link carry, of its rate: frames with headers, and goodput."""
    fabric = live.fabric
    nic = fabric.nics_of[source][0]
    with _iperf(live, source, destination, _FLOW_S):
        time.sleep(2)  # Past the start of the flow.
        before, started = lane_counters(live.emulation, "sent_bytes"), time.monotonic()
        time.sleep(_FLOW_S - 3)
        after, ended = lane_counters(live.emulation, "sent_bytes"), time.monotonic()
    sent = sum(after[key] - before[key] for key in after if key[0] == nic.port)
    carried = sent * 8 / (ended - started) / fabric.link_at[nic.port].rate_bps
    return carried, carried * metrics.payload_fraction(fabric.mtu_bytes)


@contextmanager
def _iperf(live: LiveFabric, source: NodeId, destination: NodeId, duration_s: float) -> Iterator[None]:
    """Let iperf3 send from the start of a block on; the block must not take longer than ``duration_s``."""
    address = live.fabric.nics_of[destination][0].ip
    server = live.emulation.popen(destination, ["iperf3", "-4", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    command = ["iperf3", "-4", "-c", address, "-S", "0x60", "-C", "cubic", "-t", str(math.ceil(duration_s))]
    client = live.emulation.popen(source, command, stdout=subprocess.DEVNULL)
    yield
    client.wait(duration_s + 10)
    server.wait(10)


def bench_hfreduce() -> SummaryTable:
    """Return HFReduce alone on the small fabric against its ideal, by the order of ranks."""
    columns = ("ranks in order of", f"algbw, median of {_STEPS} steps", "of NIC / 2", "busiest link by plan")
    rows: list[Row] = []
    resolved = resolve("isolation", [])
    config, fabric = resolved.config, resolved.fabric
    ideal = metrics.ideal_hfreduce_algbw(fabric.nic_rate_bps)
    fork_server(PRELOAD)
    with bring_up_by_config(fabric, config.queues, Queueing.SHARED) as live:
        pool = AgentPool(PRELOAD)
        session = Session.of(config, live, pool, Audience(tell))
        for order in ("routes", "nodes"):
            algbw, busiest = _hfreduce(session, order)
            shares = quantity(algbw / ideal, ".1%"), quantity(busiest, ".1f x the data")
            rows.append([order, quantity(algbw, "bandwidth"), *shares])
        pool.stop()
    return SummaryTable("HFReduce alone", columns, rows)


def _hfreduce(session: Session, order: str) -> tuple[float, float]:
    """Return the median algbw in bytes/s and the busiest link's load in units of the data."""
    config = resolve("isolation", [f"rank_order={order}"]).config
    assert isinstance(config, IsolationConfig)
    ranks = hfreduce_ranks(session, config.hfreduce, config.rank_order)
    job = HFReduceJob(session.stage, config.hfreduce, ranks)
    tell(f"HFReduce over {len(ranks)} ranks in order of {order}")
    job.start()
    steps = job.run_steps(_STEPS).rows("steps")
    job.close()
    times = [row["ended_s"] - row["started_s"] for row in steps]
    loads = link_loads(session.live.fabric, session.live.plan, ranks, hfreduce_flows(job))
    return config.hfreduce.size / statistics.median(times), max(loads.values())


BENCHES: dict[str, Callable[[], SummaryTable]] = {
    "links": bench_links,
    "hfreduce": bench_hfreduce,
    "hops": bench_hops,
    "queueings": bench_queueings,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric bench``."""
    what = "setup: how long a fabric takes to come up; inside: each limit of its nodes alone, by packets"
    parser.add_argument("name", choices=("setup", "inside"), help=what)
    default = "default: two_hundred_hosts, a part of fire_flyer_2_nodes"
    parser.add_argument("--topology", metavar="TOPOLOGY", help=f"of which fabric ({default})")
    add_routing_options(parser, "setup: ")
    _add_usual(parser)


def add_own_options(parser: argparse.ArgumentParser) -> None:
    """Define the measurements of this project's parts."""
    parser.add_argument("name", choices=[*BENCHES, "plans"], help="which measurement; plans only computes")
    parser.add_argument("--topology", metavar="TOPOLOGY", help="for plans (default: fire_flyer_2)")
    parser.set_defaults(routing=Routing().policy, repair=Routing().repair.value)
    _add_usual(parser)


def _add_usual(parser: argparse.ArgumentParser) -> None:
    add_engine_option(parser)
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="run it N times: medians and 95 %% intervals (default: once)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of a guest, and of what is drawn at random")
    add_json_option(parser, "print the table as JSON")
    parser.set_defaults(command=run_bench)


def run_bench(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run a benchmark, or the same several times, and print its table."""
    if options.repeat is not None:
        return _repeat(options)
    table = _measured(options, arguments)
    if options.json:
        print(json.dumps(table.as_json()))
    else:
        print_tables([table.as_json()])
    return 0


def _measured(options: argparse.Namespace, arguments: list[str]) -> SummaryTable:
    """Return what a benchmark finds, in namespaces or a guest of its own unless it only computes."""
    if options.topology is not None and options.name in BENCHES:
        raise UsageError(f"bench {options.name}: has a topology of its own; omit --topology {options.topology}")
    routing = routing_of(options)
    if options.name == "inside" and routing != Routing():
        raise UsageError("bench inside: has a routing of its own; omit --routing and --repair")
    with files_noted() as options.files:
        fabric = None if options.topology is None else load_fabric(options.topology)
    if options.name == "plans":
        from app.commands.plan_cost import bench_plans  # It loads Ryu, which no other benchmark needs.

        return bench_plans(options.topology)
    enter_world(arguments, options, fabric)
    if options.name == "setup":
        return bench_setup(options.topology, routing)
    if options.name == "inside":
        return bench_inside(options.topology)
    return BENCHES[options.name]()


def _repeat(options: argparse.Namespace) -> int:
    """Run a benchmark several times, one after the other, with a seed more each time; print medians and intervals.

    Returns the exit code of one that failed. Raises UsageError.
    """
    check_repeats(options.repeat)
    found = []
    for number in range(options.repeat):
        tell(f"{number + 1} of {options.repeat}")
        words = [options.name, "--engine", options.engine, "--seed", str(options.seed + number), "--json"]
        words += ["--topology", options.topology] if options.topology else []
        words += ["--routing", options.routing, "--repair", options.repair] if options.name == "setup" else []
        words += ["--memory", f"{options.memory}B"] if options.memory else []
        command = [sys.executable, "-m", *getattr(options, "entry", ("app.cli", "bench")), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.returncode
        found.append({"tables": [json.loads(done.stdout)]})
    (merged,) = merged_tables(found)
    spans = "95 % bootstrap intervals" if options.repeat >= LEAST_FOR_CONFIDENCE else "range"
    title = f"{merged.title}; medians of {options.repeat} runs, and their {spans}"
    print_tables([{**merged.as_json(), "title": title}])
    return 0
