"""``fabric cluster`` in virtual time: users ask a guest whose clock goes on at a pace, and end it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from cluster.platform.events import Started, Submitted
from cluster.platform.journal import events_in
from tests.live_clusters import PATIENCE_S, asked, until, until_printed, until_up
from tests.virtual.command import OWN_GUEST, ROOT, TINY, VirtualCommand
from tests.virtual.guests import below, processes
from tests.waiting import until as until_so

pytestmark = pytest.mark.guest
COUNTS = (sys.executable, "-m", "cluster.platform.counted_steps")
EVERY = "100000"
"""A checkpoint after so many steps, so it saves only when it yields: another one could come before anybody looks."""
PACE = 20.0


def said(command: VirtualCommand, *words: str, code: int = 0) -> str:
    """Return what ``fabric cluster ... --in c`` prints."""
    line = [sys.executable, "-m", "app.cli", "cluster", words[0], "--in", "c", *words[1:]]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        line, cwd=command.here, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_users_drive_a_cluster_in_a_guest(command: VirtualCommand) -> None:
    folder = command.here / "c"
    words = ("--nodes", "z0h000,z0h001,z0h002", "--pace", str(PACE), "--set", "verbs=true", "--out", "c")
    with command.start("cluster", "up", TINY, *words, environment=OWN_GUEST) as process:
        try:
            until_up(folder, process)
            guest = below(process.pid)
            assert guest
            said(command, "submit", "--nodes", "2", "--", *COUNTS, "100000", EVERY)
            until_printed(folder, 1, lines=12)
            began_s, began = time.monotonic(), asked(folder, "list")["now_s"]
            out = said(
                command,
                "submit",
                "--priority",
                "HIGH",
                "--wait",
                "--",
                "sh",
                "-c",
                "echo $RANK; ls /sys/class/infiniband; exit 3",
                code=3,
            )
            virtual_s = asked(folder, "list")["now_s"] - began
            assert "job 2 ended with code 3" in out
            assert 0.5 < virtual_s < PACE * (time.monotonic() - began_s) + 1, "time neither leaps nor stands still"
            first = until(folder, 1, state="running", lives=2)
            assert first["step"] >= 12
            assert int(until_printed(folder, 1)[0]) == first["step"] + 1, "it goes on from what it had saved"
            assert said(command, "down").startswith("down; journal and logs: ")
            out, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, out) == (0, ""), err
            assert "the cluster goes down" in err
        finally:
            process.kill()
    until_so(lambda: not guest & processes() and not list(command.temporary.iterdir()), "the end of all of the cluster")
    kinds = [type(event) for event in events_in(folder / "logs" / "platform" / "journal")]
    assert (kinds.count(Submitted), kinds.count(Started)) == (2, 3)
    assert '"the cluster is down"' in said(command, "list", "--json")
    assert said(command, "logs", "2") == "0\nmlx5_0\n"
