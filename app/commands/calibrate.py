"""``fabric calibrate``: the highest rate at which this machine carries a topology with a fifth of its CPU idle.

Each rate is tried in a run of its own: the fabric is brought up at that rate and loaded with all programs that
``isolation`` plays at once, the heaviest load of this project. The rate holds if the run would be faithful and every
core has a fifth of its time left.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from app.commands.options import add_set_option, add_topology
from app.commands.packet_hops import bring_up_by_config
from app.commands.rate_search import Strain, find_rate
from app.commands.worlds import enter_world
from experiments.isolation.config import IsolationConfig
from experiments.isolation.playing import all_jobs
from fabric.config import setting
from fabric.errors import EmulationError, UsageError
from fabric.measure.carried_rates import CarriedRate, keep, this_machine
from fabric.measure.load_checks import LOAD_CHECKS
from fabric.measure.verdict import Check, Status
from fabric.model.identity import Role
from fabric.model.lanes import Queueing
from fabric.units import format_rate, parse_rate_bps
from fabric.world import engines
from fabric.world.programs.agents import AgentPool, fork_server
from runs.console import OUT, tell
from runs.jobs import started
from runs.preload import PRELOAD
from runs.rates import named_rate
from runs.registry import resolve
from runs.session import Audience, PhaseOutcome, Session
from topologies.load import fabric_of, read_topology
from topologies.rates import at_nic_rate, nic_rate_bps, shape

USED = 0.8
"""What part of its time a core may be busy: a fifth is left for what else a machine does at times."""
LOAD_S = 10.0
_TIMEOUT_S = 300.0
_REFERENCE = "reference_nic_rate"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric calibrate``."""
    parser.description = (
        "Find the rate at which this machine carries a topology with a fifth of its CPU idle. Needs root. Each rate "
        "that is tried takes up to a minute. Leave the machine alone meanwhile: what others compute lowers the rate."
    )
    add_topology(parser)
    add_set_option(parser, "change a key of the topology, e.g. placement=packed")
    parser.add_argument(
        "--at",
        metavar="RATE",
        help="only measure how well the machine keeps up at this rate (default: search for the highest that holds)",
    )
    parser.add_argument("--json", action="store_true", help="with --at: print the measurement as JSON")
    parser.set_defaults(command=run_calibration, engine=engines.NAMESPACE.name, memory=None)


def run_calibration(options: argparse.Namespace, arguments: list[str]) -> int:
    """Find the rate that this machine carries, or measure one."""
    topology = read_topology(options.topology, options.overrides)
    if options.at is None:
        if options.json:
            raise UsageError("--json: only with --at RATE; add that")
        if os.geteuid() != 0:
            raise UsageError("calibrate needs root to make network namespaces; run it again with sudo")
        return calibrate(options.topology, topology, arguments)
    changed = at_nic_rate(topology, named_rate("--at", options.at))
    load_config(changed)
    enter_world(arguments, options, None)
    return measure_in_world(changed, options.json)


def load_config(topology: Mapping[str, Any]) -> IsolationConfig:
    """Return what loads a topology. Raises ConfigError or UsageError if it cannot be loaded so."""
    fabric = fabric_of(topology, "topology")
    if not fabric.storages or len(fabric.with_role(Role.COMPUTE, zone=0)) < 2:
        parts = f"{len(fabric.computes)} compute nodes and {len(fabric.storages)} storage nodes"
        raise UsageError(
            f"{fabric.name}: has {parts}; calibrate loads a fabric with collectives and storage, so give it storage, "
            "and two compute nodes in zone 0"
        )
    ranks = min(8, len(fabric.with_role(Role.COMPUTE, zone=0)))
    config = resolve("isolation", [setting("topology", topology), f"nccl_nodes={ranks}"])[1]
    assert isinstance(config, IsolationConfig)
    return config


def measure_in_world(topology: Mapping[str, Any], as_json: bool) -> int:
    """Load a topology at the rates that it says, in this world, and print how far the machine kept up."""
    config = load_config(topology)
    fabric = config.fabric()
    fork_server(PRELOAD)
    with bring_up_by_config(fabric, config.queues, Queueing.LANES) as live:
        pool = AgentPool(PRELOAD)
        session = Session.of(config, live, pool, Audience(tell))
        jobs = all_jobs(session, config)
        with started(session, jobs):
            outcome = session.run_phase("load", "all in lanes", jobs, LOAD_S)
        pool.stop()
    found = strain_of(fabric.nic_rate_bps, outcome, session.judge().checks)
    print(json.dumps(vars(found)) if as_json else _told(found))
    return 0


def strain_of(rate_bps: int, outcome: PhaseOutcome, checks: Sequence[Check]) -> Strain:
    """Return what a phase asked of the machine: by its cores, and by the checks of the verdict."""
    asked = [(_of_check(check), check.text) for check in checks if check.name not in LOAD_CHECKS]
    for core, busy in outcome.cores.groupby("core")["busy_fraction"].mean().items():
        asked.append((float(busy) / USED, f"core {core} is {busy:.0%} busy"))
    if outcome.used.cpu is not None and outcome.used.cpu.total_s:
        used = 1 - outcome.used.cpu.idle_s / outcome.used.cpu.total_s
        asked.append((used / USED, f"all cores are {used:.0%} busy"))
    value, limit = max(asked)
    return Strain(rate_bps, value, limit)


def _of_check(check: Check) -> float:
    """Return how far a check is used up. How busy cores are is asked more strictly, of the cores themselves."""
    if check.margin is not None:
        return 1 - check.margin
    return 0.0 if check.status is Status.FAITHFUL else 2.0


def calibrate(name: str, topology: Mapping[str, Any], arguments: Sequence[str]) -> int:
    """Find the rate that this machine carries on a topology, keep it and print it."""
    load_config(topology)
    machine = this_machine()
    found = find_rate(
        lambda rate: _measured_in_a_world(arguments, rate),
        start_bps=nic_rate_bps(topology),
        ceiling_bps=parse_rate_bps(topology[_REFERENCE]),
    )
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    path = keep(CarriedRate(shape(topology), machine, found.rate_bps, now))
    OUT.print(f"{name}: {format_rate(found.rate_bps)}, on {machine}", highlight=False, soft_wrap=True)
    OUT.print(f"closest to its limit: {found.limit}", highlight=False, soft_wrap=True)
    OUT.print(f"kept in {path}; fabric run EXPERIMENT --rate calibrated uses it", highlight=False, soft_wrap=True)
    return 0


def _measured_in_a_world(arguments: Sequence[str], rate_bps: int) -> Strain:
    command = [sys.executable, "-m", "app.cli", *arguments, "--at", str(rate_bps), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise EmulationError(f"calibrating at {format_rate(rate_bps)}: {done.stderr.strip()[-2000:]}")
    found = Strain(**json.loads(done.stdout.splitlines()[-1]))
    tell(_told(found))
    return found


def _told(found: Strain) -> str:
    word = "holds" if found.holds else "is too much"
    return f"{format_rate(found.rate_bps)} {word}: {found.value:.0%} of the limit; {found.limit}"
