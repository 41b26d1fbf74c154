"""Signals that ask for an end wait while what they are to end is being started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from fabric.world.isolation.interrupts import held_back


def test_ctrl_c_within_the_block_acts_at_its_end() -> None:
    passed = []
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        passed.append("started")
    assert passed == ["started"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_acts_too_where_the_block_fails() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, held_back():
        signal.raise_signal(signal.SIGINT)
        raise OSError("no such program")
    assert isinstance(caught.value.__context__, OSError)


def test_a_signal_that_is_ignored_stays_so_and_what_is_executed_has_the_default_one() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    with held_back():
        process = subprocess.Popen([sys.executable, "-c", "import signal; signal.raise_signal(signal.SIGTERM)"])
    assert process.wait(30) == -signal.SIGTERM
