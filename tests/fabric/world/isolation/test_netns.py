"""Each host has a network and a hostname of its own, which threads and processes take on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabric.world.isolation import netns

ROOT = Path(__file__).parents[4]
SCRIPT = """
import json, socket, subprocess, threading
from pathlib import Path
from fabric.world.isolation import netns

ours = socket.gethostname()
for name in ("z0h000", "z0h001"):
    with netns.created(name):
        within = socket.gethostname()
after = socket.gethostname()
seen = {}

def take(name):
    netns.become(netns.netns_path(name))
    seen[name] = [socket.gethostname(), len(socket.if_nameindex())]

threads = [threading.Thread(target=take, args=(name,)) for name in ("z0h000", "z0h001")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with netns.inside(netns.netns_path("z0h000")):
    briefly = socket.gethostname()
by_command = subprocess.check_output([*netns.prefix("z0h001"), "hostname"], text=True).strip()
ours = [ours, after, briefly, socket.gethostname()]
print(json.dumps({"within": within, "seen": seen, "by_command": by_command, "ours": ours}))
"""


@pytest.mark.root
def test_threads_and_commands_have_the_name_of_their_host_and_others_keep_theirs() -> None:
    world = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
    script = [
        "sh",
        "-c",
        'mount -t tmpfs none /run && hostname machine && exec "$@"',
        "sh",
        sys.executable,
        "-c",
        SCRIPT,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*world, *script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "within": "z0h001",
        "seen": {"z0h000": ["z0h000", 1], "z0h001": ["z0h001", 1]},
        "by_command": "z0h001",
        "ours": ["machine"] * 4,
    }


def test_a_command_enters_both_namespaces_of_its_host() -> None:
    assert netns.prefix("z0h000") == ["nsenter", "--net=/run/netns/z0h000", "--uts=/run/utsns/z0h000"]
