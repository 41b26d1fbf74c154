"""What programs in hosts are forked from is small: each fork costs by its memory, most of all in a guest."""

from __future__ import annotations

import json
import subprocess
import sys

from runs.preload import PRELOAD

LARGE = ("mininet", "pandas", "pyarrow", "matplotlib", "ryu", "scapy")


def test_no_large_library_is_loaded_that_programs_do_not_use() -> None:
    script = "import importlib, json, sys; [importlib.import_module(name) for name in json.loads(sys.argv[1])]\n"
    script += "print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(PRELOAD)], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert set(PRELOAD) <= loaded
    assert loaded & set(LARGE) == set()
