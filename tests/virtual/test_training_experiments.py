"""Training's experiments in a guest, small: what they measure hangs on the NICs of one node as closed forms say."""

from __future__ import annotations

import json

import pytest

from tests.virtual.command import VirtualCommand

pytestmark = pytest.mark.guest
VGG16_BYTES = 553_430_176
"""Its gradients in FP32."""
SLOW_NICS = "failures=[{host: z0h000, at: 0 s, rate: 0.1}]"


def metrics_of(command: VirtualCommand, experiment: str, *settings: str) -> dict[str, float]:
    summary = command.play(experiment, settings) / "summary.json"
    found: dict[str, float] = json.loads(summary.read_text())["metrics"]
    return found


def test_tokens_go_at_the_rate_of_the_slowest_nodes_nics(command: VirtualCommand) -> None:
    variants = "[{name: idle}, {name: slow, failures: [{host: z0h000, at: 0 s, rate: 0.5}]}]"
    found = metrics_of(command, "expert_parallel", "nodes=2", "layers=1", "shrink=256", f"variants={variants}")
    for what in ("dispatch", "combine"):
        idle, slow = (found[f"{variant}.step.{what}_Bps"] for variant in ("idle", "slow"))
        assert 0.8 * 2 * 50e9 < idle < 2 * 50e9, "half of it crosses a NIC of 400 Gbit/s"
        assert slow / idle == pytest.approx(0.5, rel=0.1)
    assert found["slow.step.step_s"] == pytest.approx(found["idle.step.step_s"], rel=0.01), "slack hides it"


@pytest.mark.soak  # Sixteen GPUs in processes of two hosts.
def test_gradients_take_as_long_as_the_slowest_nic(command: VirtualCommand) -> None:
    job = "{model: vgg16, layout: {data: 16}, compute: {forward: 1 ms}}"
    cases = f"cases=[{{name: vgg, training: {job}, points: [{{gpus: 16}}]}}]"
    sizes = ("nodes=[2]", "sizes=[1 MiB, 4 MiB]", "nccl_size=1 MiB", "topology.compute=4", "topology.storage=0")
    found = metrics_of(command, "training_scaling", *sizes, cases, SLOW_NICS)
    # Two nodes: each sends S once, at a tenth of 200 Gbit/s, of which headers leave 98.4 %.
    assert found["vgg_16.gradients_s"] == pytest.approx(VGG16_BYTES / (2.5e9 * 0.984), rel=0.03)
