"""Experiments played twice on one fabric, with a link, a share or a limit as it is and half of it: ``sensitivity.py
REPORT TOPOLOGY``. Runs in a guest; one fabric carries all plays, for bringing it up costs more than they do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from experiments.registry import resolve
from experiments.run.live import LiveFabric, bring_up
from experiments.run.preload import PRELOAD
from experiments.run.session import Session
from fabric.model.lanes import Queueing, plan_lanes
from fabric.world import inside
from fabric.world.agents import AgentPool
from traffic import congestion_control

Plays = dict[str, tuple[str, list[str]]]
"""An experiment and its settings by the name of a play: ``EXPERIMENT`` as it is, ``EXPERIMENT half ...`` changed."""

BY_TOPOLOGY: dict[str, Plays] = {
    "head_of_line": {
        name: ("head_of_line", ["queueings=[lossless, lossless_lanes]", "repeats=1", "time_scale=0.1", *changed])
        for name, changed in {
            "head_of_line": [],
            "head_of_line half link": ["failures=[{host: z0h002, at: 0 s, rate: 0.5}]"],
            "head_of_line twice the buffer": [
                "queues.shared_buffer.credits=128 KiB",
                *(f"queues.lanes.{lane}.credits=128 KiB" for lane in ("hfreduce", "storage", "other", "control")),
            ],
        }.items()
    },
}


def played(live: LiveFabric, pool: AgentPool, experiment: str, settings: list[str]) -> dict[str, float]:
    """Return the metrics of an experiment on a fabric that is up; its links are not measured anew."""
    definition, config, _ = resolve(experiment, settings)
    parameters = config.dcqcn.parameters(live.fabric)
    congestion_control.provide(config.controls_played.values(), parameters, live.fabric.nic_rate_bps)
    congestion_control.admit(live.emulation.host_namespaces, parameters, live.fabric.nic_rate_bps)
    session = Session.of(config, live, pool, lambda text: None, lambda title, done: None, definition.tables)
    session.calibrations.update({queueing.value: [] for queueing in Queueing})
    summary = definition.run(session, config)
    lost = sum(outcome.conservation.unaccounted_packets for outcome in session.phases)
    return {**summary["metrics"], "unaccounted_packets": float(lost)}


def seen(topology: str) -> dict[str, dict[str, float]]:
    """Return the metrics of all plays on a topology, by their names."""
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    plays = {name: (one, [f"topology={topology}", *own]) for name, (one, own) in BY_TOPOLOGY[topology].items()}
    _, config, _ = resolve(*next(iter(plays.values())))
    with bring_up(config.fabric(), plan_lanes(config.queues, config.queueings_played[0]), logs, print) as live:
        pool = AgentPool(PRELOAD)
        try:
            return {name: played(live, pool, *play) for name, play in plays.items()}
        finally:
            pool.stop()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(seen(sys.argv[2])))
