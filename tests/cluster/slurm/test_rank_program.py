"""What Slurm starts on a node: the user's program, the suspend command by SIGTERM, and the code that says how it ended;
without Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.platform.user import SUSPENDED_CODE
from cluster.slurm.rank_program import RankSettings, folder_of, is_suspended, last_step

YIELDS = """
import os, time
from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step
print(*(os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_IP")), saved_step(), os.environ.get("LD_PRELOAD"),
      os.environ["FABRIC_HOST"], os.environ["FABRIC_TOS"])
while not receive_suspend_command():
    time.sleep(0.01)
saved(7)
{then}
"""
NEVER = "import time; print('up', flush=True); time.sleep(60)"


def started(logs: Path, program: str, rank: int = 0, restart: int = 0, told: bool = False) -> subprocess.Popen[bytes]:
    """Return a rank whose program has begun; ``told``: it gets the notice in the moment of its own start.

    Who is to answer has as long as a busy machine may take to start it."""
    settings, patience_s = logs / "ranks.json", 0.3 if program == NEVER else 60.0
    RankSettings(
        str(logs), answer_s=patience_s, save_s=patience_s, addresses={"a": "10.0.0.1"}, environment={"FABRIC_TOS": "4"}
    ).write(settings)
    environment = {
        **os.environ, "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURMD_NODENAME": "ab"[rank],
        "PLATFORM_JOB": "4", "SLURM_RESTART_COUNT": str(restart), "PLATFORM_MASTER": "a",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LD_PRELOAD": "", "FABRIC_TOS": "8",
    }  # fmt: skip
    words = [sys.executable, "-m", "cluster.slurm.rank_program", str(settings), sys.executable, "-c", program]
    process = subprocess.Popen(words, env=environment)
    if told:
        process.send_signal(signal.SIGTERM)
    log = folder_of(logs, "ab"[rank], 4, restart, rank) / "log"
    until_s = time.monotonic() + 60
    while not (log.exists() and (program != NEVER or log.stat().st_size)):
        assert time.monotonic() < until_s, "the program has not begun within 60 s"
        time.sleep(0.02)
    return process


def test_who_yields_is_queued_again_and_told_its_step(tmp_path: Path) -> None:
    process = started(tmp_path, YIELDS.format(then="go_suspend()"))
    assert not is_suspended(tmp_path, 4, 0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == SUSPENDED_CODE
    assert is_suspended(tmp_path, 4, 0) and last_step(tmp_path, 4, before=1) == 7
    again = started(tmp_path, YIELDS.format(then="raise SystemExit(3)"), restart=1)
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 3, "a program that is told may still end as it likes"
    first, second = ((folder_of(tmp_path, "a", 4, life, 0) / "log").read_text() for life in (0, 1))
    assert first == "0 2 10.0.0.1 None None a 4\n" and second == "0 2 10.0.0.1 7 None a 4\n"


def test_who_does_not_answer_in_time_is_killed_and_queued_again(tmp_path: Path) -> None:
    process = started(tmp_path, NEVER)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == SUSPENDED_CODE
    assert is_suspended(tmp_path, 4, 0)


def test_a_notice_before_there_was_a_rank_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM that came while the interpreter began waits, blocked; of one before that Slurm is asked."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "JobId=$4 JobState=RUNNING PreemptTime=$TOLD SuspendTime=None"\n')
    scontrol.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("TOLD", "2026-11-28T01:00:00")
    assert started(tmp_path, YIELDS.format(then="go_suspend()")).wait(60) == SUSPENDED_CODE
    monkeypatch.setenv("TOLD", "None")
    blocked = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        process = started(tmp_path, YIELDS.format(then="go_suspend()"), restart=1, told=True)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    assert process.wait(60) == SUSPENDED_CODE


def test_other_ranks_go_on_until_they_are_killed(tmp_path: Path) -> None:
    process = started(tmp_path, NEVER, rank=1)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.8)
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_code_that_means_suspended_is_another_one_if_nobody_suspended(tmp_path: Path) -> None:
    assert started(tmp_path, f"raise SystemExit({SUSPENDED_CODE})").wait(60) == 1
    assert started(tmp_path, "raise SystemExit(9)", restart=1).wait(60) == 9
