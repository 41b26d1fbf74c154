"""A training of a platform's user over packets: its rank 0 falls silent, and others go on from storage."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from cluster.platform.training_steps import SAMPLES, factor, pattern
from experiments import load
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
FILE = ROOT / "experiments" / "shared_cluster" / "training_on_storage.yaml"
VALUES, SILENT = 4096, "z1h000"


def played(command: VirtualCommand, file: Path) -> tuple[Path, Any]:
    """Play a config; return the result's directory, and what its platform's events were."""
    result = command.play(str(file))
    return result, load(result).table("platform_events").astype({"event": str, "nodes": str, "why": str})


def logs_of(result: Path, events: Any, number: int) -> list[list[list[str]]]:
    """Return the lines of each rank, life by life, of a job."""
    found = []
    for row in events[(events["number"] == number) & (events["event"] == "started")].to_dict("records"):
        nodes = row["nodes"].split()
        logs = [
            result / "logs" / "platform" / node / f"{row['life']}-{rank}" / "log" for rank, node in enumerate(nodes)
        ]
        found.append([log.read_text().splitlines() if log.exists() else [] for log in logs])
    return found


def steps_in(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("step ")]


def checksum_after(steps: int) -> str:
    total = pattern(VALUES) * sum(factor(step, range(SAMPLES)) for step in range(1, steps + 1))
    return f"{zlib.crc32(total.to_bytes(8 * VALUES, 'little')):08x}"


def test_a_silent_rank_0_loses_nothing_but_the_steps_behind_the_last_checkpoint(command: VirtualCommand) -> None:
    result, events = played(command, FILE)
    lives = logs_of(result, events, 1)
    assert len(lives) >= 2
    first, last = lives[0], lives[-1]
    started = events[events["event"] == "started"]["nodes"]
    assert started.iloc[0].split()[0] == SILENT, "it had rank 0"
    assert SILENT in events[events["event"] == "node_out"]["nodes"].tolist()
    saved = max(int(line.split()[2]) for line in first[1] if line.startswith("saved step "))
    made = steps_in(first[1])
    assert made == list(range(1, made[-1] + 1)) and saved <= made[-1] < 16
    for lines in last:
        assert f"restored step {saved} state {checksum_after(saved)} on 4 ranks" in lines
        assert steps_in(lines) == list(range(saved + 1, 17))
        assert lines[-1] == f"done step 16 state {checksum_after(16)}"
    (number,) = events[(events["event"] == "submitted") & (events["why"] == "finetune")]["number"]
    ((one, other),) = logs_of(result, events, number)
    assert one == other
    assert one[0] == f"restored step 16 state {checksum_after(16)} on 2 ranks"
    assert one[-1] == f"done step 20 state {checksum_after(20)}"
