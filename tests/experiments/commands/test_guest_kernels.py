from __future__ import annotations

import pytest

from experiments.commands import guest_kernels
from fabric.errors import EmulationError


def test_a_run_for_the_profile_that_fails_is_told_with_what_it_said() -> None:
    with pytest.raises(EmulationError) as failed:
        guest_kernels._train("9.9-trial")
    assert str(failed.value).startswith("fabric run ") and "isolation/true_rate.yaml" in str(failed.value)
    assert "FABRIC_GUEST_KERNEL=9.9-trial: no such guest kernel is built" in str(failed.value)


def test_a_run_for_the_profile_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_kernels, "_TRAINING_TIMEOUT_S", 0.01)
    with pytest.raises(EmulationError, match=r"^fabric run .* took more than 0\.01 s on the kernel to be profiled$"):
        guest_kernels._train("9.9-trial")
