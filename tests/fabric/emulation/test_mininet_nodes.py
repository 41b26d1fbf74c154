"""Shells of Mininet's nodes."""

import pytest

from fabric.emulation.mininet_nodes import FabricHost
from fabric.errors import EmulationError


def test_a_shell_that_cannot_start_says_why_and_the_next_command_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = FabricHost("h0")
    host.is_built = True
    monkeypatch.setattr(host, "program_prefix", lambda: ["sh", "-c", "echo no memory; exit 3", "-"])
    for _ in range(2):
        with pytest.raises(EmulationError, match=r"^h0: its shell ended with 3: no memory$"):
            host.cmd("hostname")
    monkeypatch.setattr(host, "program_prefix", list)
    try:
        assert host.cmd("echo started") == "started\r\n"
    finally:
        host.terminate()
