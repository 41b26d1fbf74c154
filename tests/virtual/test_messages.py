"""Messages over sprayed paths whose queues trim: how long they take, and that nothing waits for a timeout."""

from __future__ import annotations

import json

import pytest

from tests.virtual.command import VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak, pytest.mark.timeout(1200)]
HTSIM_S = 201e-6
"""htsim's time of a permutation of 16 times 2 MB, with EQDS over 128 paths."""


@pytest.fixture(scope="module")
def found(shared_command: VirtualCommand) -> dict[str, dict[str, float]]:
    few = ("queueings=[trimmed]", "failed_uplinks=[0]", "loads=[permutation, incast]", "senders=15")
    settings = [word for one in (*few, "spreadings=[messages_credits]") for word in ("--set", one)]
    done = shared_command.run("run", "spraying", "--out", "run", "--no-figures", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    metrics: dict[str, float] = json.loads((shared_command.here / "run" / "summary.json").read_text())["metrics"]
    print(json.dumps(metrics, indent=1))
    found: dict[str, dict[str, float]] = {}
    for path, value in metrics.items():
        phase, _, name = path.partition(".")
        found.setdefault(phase.removeprefix("trimmed_messages_credits_less_0_"), {})[name] = value
    return found


def test_a_permutation_is_as_fast_as_htsims(found: dict[str, dict[str, float]]) -> None:
    assert found["permutation"]["time_s"] <= HTSIM_S


def test_an_incast_fills_its_receivers_link_though_its_first_window_is_trimmed(
    found: dict[str, dict[str, float]],
) -> None:
    incast = found["incast"]
    assert incast["of_bound_fraction"] > 0.97
    assert incast["naks"] > 100
    assert incast["retransmissions"] == pytest.approx(incast["naks"], rel=0.02), "and nothing else is sent again"
    assert (incast["timeouts"], incast["drops_packets"]) == (0, 0)
