"""Ctrl-C that comes while ``fabric exec`` starts programs reaches each of them."""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from app.commands import exec_program
from app.commands.passing_on import Sink
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_tiny")
SCRIPT = "trap 'echo interrupted; exit' INT; echo begun >&2; sleep 60 & wait"


class Interrupting:
    """Starts programs of this machine, and presses Ctrl-C when the first has begun."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def popen(self, host: object, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, **options)
        self.processes.append(process)
        assert process.stderr is not None
        assert os.read(process.stderr.fileno(), 6) == b"begun\n"
        if len(self.processes) == 1:
            signal.raise_signal(signal.SIGINT)
        return process


def test_ctrl_c_while_programs_start_reaches_all() -> None:
    emulation = Interrupting()
    words = ["bash", "-c", SCRIPT]
    options = argparse.Namespace(program=words, timeout=60, first_only=False, one_stream=False, gpu=None)
    out = io.BytesIO()
    live: Any = SimpleNamespace(emulation=emulation, fabric=FABRIC)
    programs: Any = SimpleNamespace(environment=lambda command: {})
    starting = exec_program.Starting(live, {"PATH": os.environ["PATH"]}, options, programs)
    with pytest.raises(KeyboardInterrupt):
        exec_program._run_all(
            starting,
            FABRIC.computes[:2],
            (Sink(out), Sink(io.BytesIO())),
            (),
        )
    names = [f"[{host}] interrupted\n".encode() for host in FABRIC.computes[:2]]
    assert sorted(out.getvalue().splitlines(keepends=True)) == names
    assert [process.poll() for process in emulation.processes] == [0, 0]
