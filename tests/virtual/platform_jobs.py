"""Six jobs of three users on a fabric, of which some preempt, and a host that falls silent: ``platform_jobs.py
REPORT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from cluster.platform.job import PlatformConfig, PlatformJob
from cluster.platform.kinds import PLATFORM
from fabric.config import checked
from fabric.failures.config import FailureConfig, schedule_failures
from fabric.model.lanes import QueueConfig, Queueing
from runs.session import RunSettings
from tests.live_sessions import plain_lanes, session_live
from topologies.load import load_fabric
from traffic import kinds

PHASE_S, SILENT_AT_S = 240.0, 60.0
SILENT = "z0h002"
EVERY = 10
PROGRAM = """
import os, time
from pathlib import Path
from cluster.platform.user import go_suspend, receive_suspend_command, saved

kept = Path({folder!r}) / os.environ["PLATFORM_JOB"]
step = int(kept.read_text()) if kept.exists() else 0
while step < {steps}:
    time.sleep(1)
    step += 1
    if os.environ["RANK"] == "0":
        print(step, flush=True)
        if step % {every} == 0:
            kept.write_text(str(step))
    if receive_suspend_command():
        kept.write_text(str(step))
        saved(step)
        go_suspend()
"""
JOBS = (
    # name, user, nodes, steps, priority, when
    ("pretrain", "ada", 6, 100, "NORMAL", 0),
    ("finetune", "bo", 2, 40, "NORMAL", 0),
    ("debug", "cy", 1, 10, "UNDER_NORMAL", 2),
    ("urgent", "bo", 4, 20, "HIGH", 20),
    ("eval", "cy", 1, 15, "HIGH", 30),
    ("long", "ada", 3, 30, "ABOVE_NORMAL", 50),
)


def play(report: Path) -> None:
    """Play a phase, and write what happened and which steps were made."""
    fabric = load_fabric("fire_flyer_2_small")
    settings = RunSettings(QueueConfig(), seed=5, sample_period_s=1.0)
    with (
        mock.patch.object(kinds, "KINDS", (*kinds.KINDS, PLATFORM)),
        session_live(fabric, plain_lanes(Queueing.LANES), settings) as session,
    ):
        folder = session.stage.logs / "checkpoints"
        folder.mkdir()
        jobs = [
            {
                "name": name,
                "user": user,
                "nodes": nodes,
                "priority": priority,
                "at": at,
                "command": command(folder, steps),
            }
            for name, user, nodes, steps, priority, at in JOBS
        ]
        lines = [{"silent": SILENT, "at": SILENT_AT_S, "for": 90.0}]
        session.failures = schedule_failures([checked(FailureConfig, line, "test") for line in lines], fabric, 1)
        nodes = [*fabric.with_role(fabric.computes[0].role, 0)[:5], *fabric.with_role(fabric.computes[0].role, 1)[:4]]
        job = PlatformJob(session.stage, checked(PlatformConfig, {"jobs": jobs}, "test"), nodes)
        job.start()
        try:
            outcome = session.run_phase("platform", "six jobs", [job], PHASE_S)
        finally:
            job.close()
        events = session.table("platform_events")
        events["at_s"] -= outcome.began_s
        report.write_text(
            json.dumps(
                {
                    "events": events.astype({"event": str, "nodes": str, "why": str})[
                        ["at_s", "event", "number", "life", "nodes", "why"]
                    ].to_dict("records"),
                    "steps": {name: steps_of(session.stage.logs, events, number) for number, name in submitted(events)},
                    "zones": {node.name: node.zone for node in nodes},
                    "verdict": [session.judge().status.value, list(session.judge().reasons)],
                }
            )
        )


def command(folder: Path, steps: int) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(folder=str(folder), steps=steps, every=EVERY)]


def submitted(events: Any) -> list[tuple[int, str]]:
    """Return the number and the name of each job."""
    mine = events[events.event == "submitted"]
    return list(zip(mine.number.tolist(), mine.why.astype(str).tolist(), strict=True))


def steps_of(logs: Path, events: Any, number: int) -> list[list[int]]:
    """Return the steps that rank 0 made, life by life."""
    mine = events[(events.number == number) & (events.event == "started")]
    found = []
    for life, nodes in zip(mine.life, mine.nodes, strict=True):
        log = logs / "platform" / str(nodes).split()[0] / f"{life}-0" / "log"
        found.append([int(word) for word in log.read_text().split()])
    return found


if __name__ == "__main__":
    play(Path(sys.argv[1]))
