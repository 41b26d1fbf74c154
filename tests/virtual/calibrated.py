"""Run in a guest: prints, as JSON, what the kinds of links of a topology carry, measured twice, one right after the
other: ``calibrated.py TOPOLOGY``."""

from __future__ import annotations

import json
import sys

from fabric.measure.calibration import calibrate
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.world import inside
from runs.live import bring_up
from topologies.load import load_fabric

if __name__ == "__main__":
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    fabric = load_fabric(sys.argv[1])
    with bring_up(fabric, plan_lanes(QueueConfig(), Queueing.LANES), logs, lambda text: None) as live:
        found = [one for _ in range(2) for one in calibrate(live.emulation)]
    print(json.dumps([{"kind": one.kind, "rate": one.rate_error, "share": one.worst_share_error} for one in found]))
