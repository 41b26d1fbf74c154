"""A lossless fabric whose links slow down, lose frames or are cut, by credits and by PFC, is soaked in random flows,
and at last gets routes in a circle, in a guest: ``lossless_links.py REPORT``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lossless_soak.run import LosslessSoakConfig, run_lossless_soak
from fabric.emulation.openvswitch import tool
from fabric.errors import DeadlockError
from fabric.failures.config import failure_line, schedule_failures
from fabric.metrics import by_path
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import SERVICE_LEVELS, FlowControl, InputBuffer, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Port
from fabric.stalls.credits import held_at_rest
from fabric.world.programs.agents import AgentPool
from runs.live import LiveFabric
from runs.registry import resolve
from runs.session import PhaseOutcome, RunSettings, Session
from runs.stall_metrics import stall_metrics
from tests.live_sessions import session_live, session_on
from topologies.load import load_fabric
from traffic.flows.streams import Stream, StreamsJob, Timetable

TOPOLOGY = ("spines_per_zone=2", "switch_ports=4", "uplink_rate=1 Gbit/s")
"""Changes to head_of_line, so that there are circles to be made and every link can be full."""
SOAK = (
    "rounds=1",
    "round_time=250 ms",
    "flaps={count: 4, shortest: 1 ms, longest: 50 ms}",
    "stall_limit=2 ms",
    "sample_period=50 ms",
    "receive_window=256 KiB",
)
TIMES = Timetable(warm_up_s=0.04, measured_s=0.12, spread_s=0.005)
LONG = Timetable(warm_up_s=20.0, measured_s=20.0, spread_s=0.005)
SHORT_S = 0.001
"""A phase in which there is no deadlock yet."""
AT_S, FOR_S = 0.07, 0.05
SLOW = 0.3
LOSS = 0.02
CUT_S = 0.02
PERIOD_S = 0.005
SETTINGS = RunSettings(
    QueueConfig(),
    seed=5,
    sample_period_s=PERIOD_S,
    congestion_control=dict.fromkeys(SERVICE_LEVELS, "reno"),
    receive_window_bytes=1 << 20,
)
LANES = plan_lanes(QueueConfig(), Queueing.LOSSLESS)
PFC = plan_lanes(QueueConfig(flow_control=FlowControl.PFC), Queueing.LOSSLESS)
SMALL_HEADROOM = plan_lanes(
    QueueConfig(flow_control=FlowControl.PFC, shared_buffer=InputBuffer(headroom=4300)), Queueing.LOSSLESS
)
"""Room for a frame; the links' round trip of 100 us alone brings 12,500 B after the word to stop."""


def seen() -> dict[str, Any]:
    """Return what each of the failures did."""
    with session_live(load_fabric("head_of_line", TOPOLOGY), LANES, SETTINGS) as session:
        return _seen(session)


def _seen(session: Session) -> dict[str, Any]:
    live, pool = session.live, session.pool
    hosts = live.fabric.computes
    one = [(hosts[0], hosts[2])]
    three = [*one, (hosts[1], hosts[2]), (hosts[4], hosts[2])]
    found = {
        "rate": _failed(session, "rate", three, {"host": hosts[2].name, "rate": SLOW, "for": FOR_S}),
        "loss": _failed(session, "loss", one, {"host": hosts[0].name, "loss": LOSS, "for": FOR_S}),
        "cut": _failed(session, "cut", three, {"host": hosts[2].name, "for": CUT_S}),
    }
    for name, plan in (("pfc", PFC), ("headroom", SMALL_HEADROOM)):
        live.emulation.set_lanes(plan)
        found[name] = _failed(session_on(live, pool, SETTINGS), name, three, {"host": hosts[3].name, "for": CUT_S})
    found["soak"] = _soak(live, pool)
    live.emulation.set_lanes(LANES)
    return found | {"circle": _circle(live, session_on(live, pool, SETTINGS))}


def _soak(live: LiveFabric, pool: AgentPool) -> dict[str, Any]:
    """Return the metrics and the verdict of a round of the soak under each repair."""
    config = resolve("lossless_soak", ["topology=head_of_line", *(f"topology.{one}" for one in TOPOLOGY), *SOAK]).config
    assert isinstance(config, LosslessSoakConfig)
    session = Session.of(config, live, pool)
    metrics = by_path(run_lossless_soak(session, config)["metrics"])
    return {"metrics": metrics, "verdict": session.judge().as_json()}


def _play(session: Session, name: str, pairs: Sequence[tuple[NodeId, NodeId]], failure: dict[str, Any]) -> PhaseOutcome:
    """Play streams between pairs of hosts while something fails."""
    lines = [failure_line({"at": AT_S, **failure})]
    job = StreamsJob(session.stage, [Stream(a, b, ServiceLevel.STORAGE) for a, b in pairs], TIMES)
    job.start()
    try:
        schedule = schedule_failures(lines, session.live.fabric, 1)
        return session.run_phase(name, name, [job], TIMES.duration_s, schedule)
    finally:
        job.close()


def _failed(
    session: Session, name: str, pairs: Sequence[tuple[NodeId, NodeId]], failure: dict[str, Any]
) -> dict[str, Any]:
    outcome = _play(session, name, pairs, failure)
    changes = [change.done_s - session.origin for change in outcome.faults.changes]
    sink = session.live.fabric.nics_of[pairs[0][1]][0].port
    watched = session.live.fabric.peer(sink)
    counted = outcome.conservation
    return {
        "bps": [
            _rate_bps(session, watched, changes[0] - 0.04, changes[0]),
            _rate_bps(session, watched, changes[0] + 0.02, changes[-1]),
            _rate_bps(session, watched, changes[-1] + 0.02, changes[0] - AT_S + TIMES.duration_s),
        ],
        "dropped_by_cause": counted.dropped_by_cause,
        "by_loss": counted.lost_by_faults,
        "unaccounted": counted.unaccounted,
        "lost_in_cuts": counted.lost_in_cuts_packets,
        "retransmissions": counted.retransmissions,
        **stall_metrics(session.table("stalls"), outcome),
        "held": [str(one) for one in held_at_rest(session.live.emulation)],
    }


def _rate_bps(session: Session, port: Port, from_s: float, to_s: float) -> float:
    """Return what a port sent between the first and the last sample of a stretch of the run."""
    table = session.table("ports")
    rows = table[(table["port"] == str(port)) & table["at_s"].between(from_s, to_s)]
    sums = rows.groupby("at_s")["sent_bytes"].sum()
    return float((sums.iloc[-1] - sums.iloc[0]) * 8 / (sums.index[-1] - sums.index[0])) if len(sums) > 1 else 0.0


def _circle(live: LiveFabric, session: Session) -> dict[str, Any]:
    """Lead what hosts of a leaf send to each other around two leaves and two spines; return how the phase ends, and
    what one stream then does in the fabric that was emptied."""
    leaves, spines = live.fabric.with_role(Role.LEAF), live.fabric.with_role(Role.SPINE)
    hosts = live.fabric.computes
    beside = [(hosts[0], hosts[3]), (hosts[1], hosts[4])]
    for place, pair in enumerate(beside):
        here, there = leaves[place], leaves[1 - place]
        out, back = spines[place], spines[1 - place]
        for host in pair:
            to = f"priority=60000,ip,nw_dst={live.fabric.nics_of[host][0].ip}"
            for other in pair:
                if other != host:
                    entered = _port(live, here, other)
                    _add_rule(here, f"{to},in_port={entered},actions=output:{_port(live, here, out)}")
            _add_rule(out, f"{to},actions=output:{_port(live, out, there)}")
            _add_rule(there, f"{to},in_port={_port(live, there, out)},actions=output:{_port(live, there, back)}")
    pairs = [(a, b) for one, other in beside for a, b in ((one, other), (other, one))]
    found = _until_deadlock(session, pairs, LONG.duration_s)
    session.empty_fabric()
    at_its_end = _until_deadlock(session, pairs, SHORT_S)
    session.empty_fabric()
    at_once = [str(one) for one in held_at_rest(live.emulation)]
    after = _failed(session, "after", beside[:1], {"host": hosts[4].name, "for": CUT_S})
    return found | {"at_its_end": at_its_end, "held_at_once": at_once, "after": after}


def _until_deadlock(session: Session, pairs: Sequence[tuple[NodeId, NodeId]], duration_s: float) -> dict[str, Any]:
    """Return with which words a phase ended, in which a link is cut later, how long after its streams began. They play
    on while they are halted."""
    job = StreamsJob(session.stage, [Stream(a, b, ServiceLevel.STORAGE) for a, b in pairs], LONG)
    job.start()
    started = time.monotonic()
    later = failure_line({"at": max(duration_s - 1, 0), "host": pairs[0][0].name, "for": CUT_S})
    schedule = schedule_failures([later], session.live.fabric, 1)
    words, after_s = "", 0.0
    try:
        session.run_phase("circle", "circle", [job], duration_s, schedule)
    except DeadlockError as error:
        words, after_s = str(error), time.monotonic() - started
    finally:
        job.close()
    return {"words": words, "after_s": after_s}


def _port(live: LiveFabric, node: NodeId, other: NodeId) -> int:
    """Return the number of a node's port to another."""
    return next(port.number for port in live.fabric.ports_of[node] if live.fabric.peer(port).node == other)


def _add_rule(switch: NodeId, rule: str) -> None:
    command = [tool("ovs-ofctl"), "-O", "OpenFlow13", "add-flow", switch.name, rule]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(seen()))
