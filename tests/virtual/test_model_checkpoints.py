"""Checkpoints of a model's size of a platform's jobs, over packets: a node falls silent, others restore the shards."""

from __future__ import annotations

import re

import pytest

from tests.virtual.command import ROOT, VirtualCommand
from tests.virtual.test_training_jobs import logs_of, played

pytestmark = [pytest.mark.guest, pytest.mark.soak]
FILE = ROOT / "experiments" / "shared_cluster" / "model_checkpoints.yaml"
VECTOR, MODEL = 512, 4 << 20
NODE_NICS_BPS = 40e6
"""Of each of the two storage nodes, to both of which every byte goes."""


def moved(logs: list[list[str]], word: str, step: int) -> list[int]:
    """Return how many bytes each rank wrote or read of a step."""
    pattern = re.compile(rf"{word} (\d+) B of step {step}: .*")
    return [int(found[1]) for lines in logs for line in lines if (found := pattern.fullmatch(line))]


def test_a_restore_after_a_silent_node_and_by_half_the_nodes_moves_the_models_bytes(command: VirtualCommand) -> None:
    result, events = played(command, FILE)
    lives = logs_of(result, events, 1)
    assert len(lives) >= 2
    saved = max(int(line.split()[2]) for line in lives[0][1] if line.startswith("saved step "))
    assert sum(moved(lives[0], "wrote", saved)) == VECTOR + MODEL
    read = moved(lives[-1], "read", saved)
    assert len(read) == 4 and sum(read) == 4 * VECTOR + MODEL
    assert sum(moved(lives[-1], "wrote", 40)) == VECTOR + MODEL
    wrote_s = [float(line.split()[-4]) for lines in lives[-1] for line in lines if " B of step 40: " in line]
    assert max(wrote_s) > MODEL * 8 / NODE_NICS_BPS, "no faster than storage nodes can receive"
    (number,) = events[(events["event"] == "submitted") & (events["why"] == "finetune")]["number"]
    (logs,) = logs_of(result, events, number)
    read = moved(logs, "read", 40)
    assert len(read) == 2 and sum(read) == 2 * VECTOR + MODEL
    assert all(lines[-1].startswith("done step 48 ") for lines in logs)
