"""What must change a verdict, done to a live fabric inside a world: ``stalls.py TOPOLOGY REPORT``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Port
from fabric.queueing.htb import rate_requests
from fabric.world.kernel_api.netlink import Netlink
from runs.live import LiveFabric
from runs.session import Session
from tests.live_sessions import plain_lanes, session_live
from topologies.load import load_fabric
from traffic.flows.streams import Stream, StreamsJob, Timetable

PHASE_S = 5.0
STOPPED_FROM_S, STOPPED_S = 1.5, 1.5
LYING_FRACTION = 0.8
RECEIVER, SENDERS = "z0h000", ("z0h001", "z0h002", "z0h003")


def stalls(topology: str) -> dict[str, Any]:
    """Three hosts fill a fourth's link: as it should be, with the switches stopped meanwhile, and with a link that is
    slower than it says."""
    with session_live(load_fabric(topology), plain_lanes(Queueing.SHARED)) as session:
        return _stalls(session)


def _stalls(session: Session) -> dict[str, Any]:
    live = session.live
    receiver = live.fabric.host_named(RECEIVER)
    streams = [Stream(live.fabric.host_named(name), receiver, ServiceLevel.OTHER) for name in SENDERS]
    job = StreamsJob(session.stage, streams, Timetable(1.0, PHASE_S - 1.0, 0.1))
    job.start()
    try:
        session.run_phase("healthy", "", [job], PHASE_S)
        with meanwhile(lambda: stop_switches(live)):
            session.run_phase("stopped", "", [job], PHASE_S)
        with lying(live, live.fabric.peer(live.fabric.nics_of[receiver][0].port)):
            session.run_phase("slowed", "", [job], PHASE_S)
        session.attempts.most = 2
        with meanwhile(lambda: stop_switches(live)):
            again = session.run_phase("again", "", [job], PHASE_S).phase
    finally:
        job.close()
    return {
        "datapath": live.emulation.datapath.value,
        "checks": {one.name: one.as_json() for one in session.judge().checks},
        "full": {one.phase.name: [vars(full) for full in one.full_queues] for one in session.phases},
        "again": vars(again),
        "set_aside": [vars(one) for one in session.attempts.set_aside],
        "flows": {
            name: rows[rows["phase"] == "again"]["at_s"].agg(["min", "max"]).tolist()
            for name, rows in {"counted": session.table("flows"), "aside": session.aside.table("flows")}.items()
        },
        "cpu": {one.phase.name: one.used.cpu.as_json() for one in session.phases if one.used.cpu},
    }


def stop_switches(live: LiveFabric) -> None:
    time.sleep(STOPPED_FROM_S)
    pid = live.emulation.switches.switch_pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Do something beside a block, and be done with it at its end."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(30)


@contextmanager
def lying(live: LiveFabric, port: Port) -> Iterator[None]:
    """Have a port send at a part of its rate without anybody knowing."""
    shaped = live.emulation.shaped_port(port)
    for fraction in (LYING_FRACTION, 1.0):
        with Netlink(live.emulation.namespace_of(port.node)) as link:
            link.send(rate_requests(shaped.at_fraction(fraction), live.emulation.lane_plan))
        if fraction != 1.0:
            yield


if __name__ == "__main__":
    _, name, report = sys.argv
    Path(report).write_text(json.dumps(stalls(name)))
