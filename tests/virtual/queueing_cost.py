"""Run in a guest: prints, as JSON, what a flow got through each kind of queue in a short round, and at what cost."""

from __future__ import annotations

import json

from app.commands.packet_hops import measure_queueings
from fabric.world import inside
from topologies.load import load_fabric

if __name__ == "__main__":
    inside.set_up()
    fabric = load_fabric("head_of_line", ["nic_rate=1 Gbit/s", "uplink_rate=1 Gbit/s"])
    found = measure_queueings(fabric, rounds=1, round_wall_s=1)
    rows = {
        name: {"hops_per_wall_s": one.hops_per_wall_s, "goodput_bps": one.goodput_bps(fabric)}
        for name, (one,) in found.items()
    }
    print("result", json.dumps(rows))
