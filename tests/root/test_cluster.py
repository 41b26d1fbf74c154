"""``fabric cluster`` in real time: up in one terminal, its users in others; what is left when it goes or is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.worlds import TINY, Command, traces

pytestmark = pytest.mark.root
COUNTS = [sys.executable, "-m", "cluster.platform.counted_steps"]
NODES = "z0h000,z0h001,z0h002,z0h003"
FAST = ["--set", "timers.tick=200 ms", "--set", "timers.redial=200 ms", "--set", "timers.answer=3 s"]
PATIENCE_S = 120.0


def asked(command: Command, *words: str, code: int = 0) -> str:
    done = command.run("cluster", *words, "--in", "c")
    assert done.returncode == code, done.stdout + done.stderr
    return str(done.stdout)


def jobs_of(command: Command) -> dict[int, Any]:
    return {job["number"]: job for job in json.loads(asked(command, "list", "--json"))["jobs"]}


def until(command: Command, number: int, **wanted: Any) -> Any:
    """Wait until a job is as wanted."""
    deadline_s = time.monotonic() + PATIENCE_S
    while any((job := jobs_of(command)[number])[key] != value for key, value in wanted.items()):
        assert time.monotonic() < deadline_s, (job, wanted)
        time.sleep(0.3)
    return job


def until_up(command: Command, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while command.run("cluster", "nodes", "--in", "c").returncode:
        assert process.poll() is None and time.monotonic() < deadline_s, process.communicate(timeout=5)
        time.sleep(0.3)


def submit(command: Command, *words: str) -> int:
    place = words.index("--")
    out = asked_words(command, ["submit", "--in", "c", "--json", *words[:place], *words[place:]])
    return int(json.loads(out)["number"])


def asked_words(command: Command, words: list[str]) -> str:
    done = command.run("cluster", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def steps(command: Command, number: int, lives: int) -> list[int]:
    texts = [asked(command, "logs", str(number), "--life", str(life)) for life in lives_of(command, number)[:lives]]
    return [int(word) for text in texts for word in text.split()]


def lives_of(command: Command, number: int) -> list[int]:
    return [one["life"] for one in json.loads(asked(command, "describe", str(number), "--json"))["lives"]]


def test_users_drive_a_cluster_that_goes_down_and_on(command: Command) -> None:
    """Two jobs: one is suspended and goes on from its step, one is stopped; then what runs saves, and goes on when the
    folder comes up again. At last it is killed: nothing of it is left but the folder."""
    before = traces()
    process = command.start("cluster", "up", TINY, "--out", "c", "--nodes", NODES, *FAST)
    until_up(command, process)
    assert submit(command, "--nodes", "2", "--name", "first", "--", *COUNTS, "100000", "5") == 1
    assert submit(command, "--", "sh", "-c", "echo from $RANK of $WORLD_SIZE in $PWD; sleep 600") == 2
    until(command, 1, state="running")
    until(command, 2, state="running")
    deadline_s = time.monotonic() + PATIENCE_S
    while "2" not in asked(command, "logs", "1").split():
        assert time.monotonic() < deadline_s
        time.sleep(0.3)
    assert asked(command, "logs", "2") == f"from 0 of 1 in {command.here}\n"
    nodes = json.loads(asked(command, "nodes", "--json"))["nodes"]
    assert sorted(node["state"] for node in nodes) == ["busy"] * 3
    asked(command, "suspend", "1")
    until(command, 1, state="running", lives=2)
    asked(command, "stop", "2")
    assert until(command, 2, state="finished")["why"] == "its user stopped it"
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "job 1 submitted: first of" in err and "the cluster goes down" in err and out == ""
    job = jobs_of(command)[1]
    assert (job["state"], job["waits"], job["lives"]) == ("suspended", "the cluster is down", 3)

    again = command.start("cluster", "up", "c")
    until_up(command, again)
    until(command, 1, state="running", lives=3)
    made = steps(command, 1, 2)
    assert made == list(range(1, job["step"] + 1)), "no step is lost or made twice"
    deadline_s = time.monotonic() + PATIENCE_S
    while not (last := asked(command, "logs", "1").split()):
        assert time.monotonic() < deadline_s
        time.sleep(0.3)
    assert int(last[0]) == job["step"] + 1
    again.kill()
    again.communicate(timeout=PATIENCE_S)
    deadline_s = time.monotonic() + 10
    while command.processes() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert command.processes() == [] and traces() == before
    assert jobs_of(command)[1]["state"] == "running", "so its journal says, and its ranks are found lost next time"
    assert "no cluster of this folder is up" in command.run("cluster", "stop", "1", "--in", "c").stderr
    assert [path.name for path in command.here.iterdir()] == ["c"] and not list(command.temporary.iterdir())
