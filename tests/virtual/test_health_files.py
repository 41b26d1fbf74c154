"""Files of experiments about health: what is wrong inside nodes, and jobs that hang, are found where they are."""

from __future__ import annotations

import re

import pytest

from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
FILES = ROOT / "experiments" / "shared_cluster"
OUT = r"(\w+) was taken out at [\d.]+ s \((\w+)"


def response_of(command: VirtualCommand, name: str) -> str:
    done = command.run("run", str(FILES / name), "--no-figures", "--out", "r")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("answer: "))
    return line


def test_three_faults_inside_nodes_are_found_where_they_are(command: VirtualCommand) -> None:
    answer = response_of(command, "nodes_inside.yaml")
    assert re.findall(OUT, answer) == [("z0h001", "validator"), ("z0h002", "validator"), ("z0h003", "validator")]
    slow = re.search(r"GPUs 1 and 2 over PCIe: ([\d.]+) GB/s of 27\.000 GB/s", answer)
    assert slow and 12 < float(slow[1]) < 13.5, "half of its rate"
    slow = re.search(r"GPUs 4 and 5 over NVLink: ([\d.]+) GB/s of 300\.000 GB/s", answer)
    assert slow and 65 < float(slow[1]) < 75, "a quarter of its rate"
    assert re.search(r"GPU 6: GPUs 5 and 6 over PCIe: GPU 5: element 65536 of \d+ is 282, expected 281", answer)
    assert "1 of 1 jobs finished" in answer


def test_jobs_that_hang_go_on_without_the_node_that_the_others_wait_for(command: VirtualCommand) -> None:
    answer = response_of(command, "stalled_job.yaml")
    assert re.findall(OUT, answer) == [("z0h001", "stalled"), ("z1h004", "stalled")]
    assert re.findall(r"(\w+) began again [\d.]+ s later from step (\d+)", answer) == [
        ("hangs", "15"),
        ("cut_off", "30"),
    ]
    assert "2 of 2 jobs finished" in answer
    assert "Ranks printed 120 steps: none lost, none made twice though saved, 6 made again" in answer
