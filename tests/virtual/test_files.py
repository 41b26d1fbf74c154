"""A file system in a guest: a load in fio's words, and a user's program that mounts it beside that."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import yaml

from experiments import load
from tests.virtual.command import ROOT, TINY, VirtualCommand

pytestmark = pytest.mark.guest
EXAMPLE = ROOT / "docs" / "programs" / "file_system.py"
CONFIG = {
    "experiment": "shared_cluster",
    "topology": TINY,
    "queueing": "lanes",
    "alone_time": "2 s",
    "together_time": "2 s",
    "jobs": [
        {
            "name": "fs",
            "kind": "files",
            "nodes": 1,
            "chunk_size": "64 KiB",
            "stripe": 2,
            "disks_per_node": 1,
            "chains_per_target": 2,
            "fio": {"rw": "rw", "bs": "16 KiB", "size": "256 KiB", "iodepth": 4, "fsync": 4},
        },
        {"name": "mine", "kind": "program", "nodes": 1, "command": shlex.join([sys.executable, str(EXAMPLE)])},
    ],
}


def test_a_program_mounts_what_a_load_in_fio_s_words_uses(command: VirtualCommand) -> None:
    path = Path(command.here, "files.yaml")
    path.write_text(yaml.safe_dump(CONFIG))
    result = load(command.play(str(path)))
    steps = result.table("file_steps")
    assert set(steps["step"]) == {"layout", "fio"}
    assert set(steps[steps["step"] == "fio"]["items"]) == {16}
    assert set(steps[steps["step"] == "fio"]["size_bytes"]) == {256 << 10}
    done_by_fs = result.table("operations")
    assert {"read", "write", "layout", "fsync"} <= set(done_by_fs["operation"])
    said = next(Path(command.here, "r").rglob("mine-*.log")).read_text().splitlines()
    expected = ["length after fsync: 1048576", "files: ['rank0']", "reads: 16 as written: True", "removed: ENOENT"]
    assert said == 2 * expected, "alone, and beside the load"
    found = {row["path"]: row["value"] for row in result.table("metrics").to_dict("records")}
    assert found["together.fs.fio.bandwidth_Bps"] > 0
    control = result.table("ports")
    assert control[control["lane"] == "control"]["sent_bytes"].max() > 0, "requests and transactions are packets"
