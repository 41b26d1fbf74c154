"""``fabric cluster`` in virtual time: users ask a guest whose clock goes on at a pace, and end it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.virtual.command import ROOT, TINY, VirtualCommand
from tests.virtual.guests import below, processes

pytestmark = pytest.mark.guest
PATIENCE_S = 120.0


def asked(command: VirtualCommand, *words: str, program: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    dashes = ["--", *program] if program else []
    words = ("cluster", *words, "--in", "c")
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli", *words, *dashes],
        cwd=command.here,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def listed(command: VirtualCommand) -> Any:
    done = asked(command, "list", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_users_drive_a_cluster_in_a_guest(command: VirtualCommand) -> None:
    nodes = ("--nodes", "z0h000,z0h001,z0h002", "--pace", "5", "--out", "c")
    with command.start("cluster", "up", TINY, *nodes) as process:
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while asked(command, "nodes").returncode:
                assert process.poll() is None and time.monotonic() < deadline_s
                time.sleep(0.1)
            counts = (sys.executable, "-m", "cluster.platform.counted_steps")
            done = asked(command, "submit", "--nodes", "2", program=(*counts, "1000", "10"))
            assert done.returncode == 0, done.stderr
            began_s, began = time.monotonic(), listed(command)["now_s"]
            done = asked(command, "submit", "--priority", "HIGH", "--wait", program=("sh", "-c", "echo $RANK; exit 3"))
            assert (done.returncode, "job 2 ended with code 3" in done.stdout) == (3, True), done.stderr
            passed_s, virtual_s = time.monotonic() - began_s, listed(command)["now_s"] - began
            assert 0 < virtual_s < 5 * passed_s + 5, "it neither leaps ahead nor stands still"
            assert asked(command, "logs", "2").stdout == "0\n"
            (first, _) = listed(command)["jobs"]
            assert first["lives"] == 2 and first["step"] is not None, "it yielded, with what it had saved"
            assert "is told to save" in asked(command, "suspend", "1").stdout or first["state"] != "running"
            guest = below(process.pid)
            assert guest
            done = asked(command, "down")
            assert done.returncode == 0, done.stderr
            out, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, out) == (0, ""), err
            assert "job 2 submitted: sh of" in err
        finally:
            process.kill()
    assert not guest & processes()
    jobs = listed(command)["jobs"]
    assert [job["state"] for job in jobs] == ["suspended", "finished"]
    made = [int(word) for word in asked(command, "logs", "1", "--life", "1").stdout.split()]
    assert made == list(range(1, len(made) + 1))
