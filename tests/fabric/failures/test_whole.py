"""All kinds of targets call the state without a failure by the word that tables are searched for."""

from __future__ import annotations

import pytest

from fabric.failures.kinds.disk import DiskState
from fabric.failures.kinds.gpu import GpuState
from fabric.failures.kinds.process import ProgramState
from fabric.failures.schedule import WHOLE, State
from fabric.tables import WHOLE_STATE


@pytest.mark.parametrize("state", [WHOLE, DiskState(), GpuState(), ProgramState()], ids=lambda one: type(one).__name__)
def test_what_does_not_fail_is_called_whole(state: State) -> None:
    assert str(state) == WHOLE_STATE
