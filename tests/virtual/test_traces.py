"""Traces of other projects in virtual time: what they send arrives, as often as asked, where ranks are placed."""

from __future__ import annotations

import json

import pytest

from experiments import load
from tests.traffic.work.formats.reading import SAMPLES
from tests.virtual.command import TINY, VirtualCommand

pytestmark = pytest.mark.guest

RING = """num_ranks 3
rank 0 {
a: calc 2000000
b: send 100000b to 1
b requires a
c: recv 100000b from 2
}
rank 1 {
a: recv 100000b from 0
b: send 100000b to 2
b requires a
}
rank 2 {
a: recv 100000b from 1
b: send 100000b to 0
b requires a
}
"""


def test_two_traces_play_together(command: VirtualCommand) -> None:
    (command.here / "ring.txt").write_text(RING)
    msccl = str(SAMPLES / "msccl_ag_hier_4_LL.xml.gz")
    words = ("ring.txt", msccl, "--size", "64KiB", "--steps", "2", "--placement", "spread", "--time-scale", "1")
    done = command.run("replay", *words, "--topology", TINY, "--no-figures", "--json", "--out", "result")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"]["status"] == "faithful"
    result = load(command.here / "result")
    steps, operations = result.table("work_steps"), result.table("work_operations")
    assert dict(steps.groupby("job", observed=True)["step"].nunique()) == {"msccl_ag_hier_4_ll": 2, "ring": 2}
    sent = operations[operations["kind"] == "send"].groupby("job", observed=True)["size_bytes"].sum()
    assert dict(sent) == {"ring": 300_000, "msccl_ag_hier_4_ll": 4 * 12 * 4096}
    # A message goes round once all before it has come: three at the rate of a NIC, and the computing before the first.
    nic_Bps = 20e6 / 8  # noqa: N806
    ring = steps[steps["job"] == "ring"]
    took = (ring.groupby("step")["ended_s"].max() - ring.groupby("step")["started_s"].min()).median()
    assert took == pytest.approx(0.002 + 3 * 100_000 / nic_Bps, rel=0.25)
