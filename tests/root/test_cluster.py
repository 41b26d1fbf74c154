"""``fabric cluster`` in real time: up in one terminal, its users in others; what is left when it goes or is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.live_clusters import PATIENCE_S, asked, ended, job, until, until_printed, until_up
from tests.waiting import until as until_so
from tests.worlds import TINY, Command, traces

pytestmark = pytest.mark.root
EVERY = "100000"
"""A checkpoint after so many steps, so it saves only when it yields: another one could come before anybody looks."""
COUNTS = [sys.executable, "-m", "cluster.platform.counted_steps"]
NODES = "z0h000,z0h001,z0h002,z0h003"
FAST = ["--set", "timers.tick=200 ms", "--set", "timers.redial=200 ms", "--set", "timers.beat=1 s"]
FAST += ["--set", "timers.failed_after=4 s"]


def said(command: Command, *words: str, code: int = 0) -> str:
    """Return what ``fabric cluster ... --in c`` prints."""
    done = command.run("cluster", words[0], "--in", "c", *words[1:])
    assert done.returncode == code, done.stdout + done.stderr
    return str(done.stderr if code else done.stdout)


def fail_and_heal(command: Command, folder: Path) -> list[str]:
    """Cut a node off, so that its job begins again elsewhere, and heal it; return its links."""
    node = job(folder, 1)["nodes"][0]
    assert f"{node} down" in said(command, "fail", node)
    ((failing),) = asked(folder, "failures")["failures"]
    assert (failing["target"], failing["state"]) == (node, "down")
    assert "z0h099: fire_flyer_2_tiny has no such node" in said(command, "fail", "z0h099", code=2)
    words = said(command, "fail", "st000/0", "--set", "effect=error", code=2)
    assert "st000/0: nothing that runs here has it" in words

    def out() -> list[str]:
        return [one["name"] for one in asked(folder, "nodes")["nodes"] if one["out"]]

    until_so(lambda: out() == [node], "the node to be out")
    said(command, "heal", node)
    until_so(lambda: not out(), "the node to be back")
    until(folder, 1, state="running")
    return list(failing["hits"])


def test_users_drive_a_cluster_that_goes_down_and_on_and_is_killed(command: Command) -> None:
    """Two jobs: one is suspended and goes on from its step, one is stopped; then what runs saves, and goes on when the
    folder comes up again. At last it is killed: nothing of it is left but the folder."""
    before, folder = traces(), command.here / "c"
    with ended(command.start("cluster", "up", TINY, "--out", "c", "--nodes", NODES, *FAST)) as process:
        until_up(folder, process)
        assert json.loads(said(command, "submit", "--json", "--nodes", "2", "--", *COUNTS, "100000", EVERY)) == {
            "number": 1
        }
        said(command, "submit", "--", "sh", "-c", "echo from $RANK of $WORLD_SIZE in $PWD; sleep 600")
        until_printed(folder, 1, lines=2)
        until_printed(folder, 2)
        assert said(command, "logs", "2") == f"from 0 of 1 in {command.here}\n"
        assert sorted(node["state"] for node in asked(folder, "nodes")["nodes"]) == ["busy"] * 3
        said(command, "suspend", "1")
        first = until(folder, 1, state="running", lives=2)
        assert first["step"] >= 2
        said(command, "stop", "2")
        assert until(folder, 2, state="cancelled")["why"] == "its user stopped it"
        assert int(until_printed(folder, 1)[0]) == first["step"] + 1, "no step is lost or made twice"
        links = fail_and_heal(command, folder)
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out) == (0, ""), err
        assert "job 1 submitted: python3 of" in err or "job 1 submitted: python of" in err, err
    rows = [json.loads(line) for line in (folder / "logs" / "failures").read_text().splitlines()]
    assert [(row["target"], row["state"], row["asked_by"]) for row in rows] == [
        (link, state, "by hand") for state in ("down", "whole") for link in links
    ]
    assert all(row["due_s"] <= row["asked_s"] <= row["done_s"] for row in rows)
    listed = {one["number"]: one for one in json.loads(said(command, "list", "--json"))["jobs"]}
    assert (listed[1]["state"], listed[1]["waits"], listed[1]["lives"]) == ("suspended", "the cluster is down", 4)

    with ended(command.start("cluster", "up", "c")) as again:
        until_up(folder, again)
        until(folder, 1, state="running")
        assert int(until_printed(folder, 1)[0]) == listed[1]["step"] + 1
        assert job(folder, 2)["state"] == "cancelled"
    until_so(lambda: not command.processes(), "the world's processes to end")
    assert traces() == before
    assert "the cluster was killed; this job begins again" in said(command, "list", "--json")
    assert "no cluster of this folder is up" in said(command, "stop", "1", code=2)
    assert [path.name for path in command.here.iterdir()] == ["c"] and not list(command.temporary.iterdir())
