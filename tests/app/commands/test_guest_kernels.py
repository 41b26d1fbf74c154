from __future__ import annotations

import os

import pytest

from app.commands import guest_kernels
from fabric.errors import EmulationError
from fabric.world.virtual import kernel


def test_a_run_for_the_profile_that_fails_is_told_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.CHOICE, "as it was")
    with pytest.raises(EmulationError) as failed:
        guest_kernels._train("9.9-trial")
    assert "isolation/true_rate.yaml failed on the kernel to be profiled" in str(failed.value)
    assert "FABRIC_GUEST_KERNEL=9.9-trial: no such guest kernel is built" in str(failed.value)
    assert os.environ[kernel.CHOICE] == "as it was"


def test_a_run_for_the_profile_that_takes_too_long_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_kernels, "_TRAINING_TIMEOUT_S", 0.01)
    with pytest.raises(EmulationError, match=r"true_rate\.yaml failed .* it took more than 0\.01 s$"):
        guest_kernels._train(kernel.require().name)
