"""Users' programs as jobs of an experiment, in a guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program_jobs import played, verify

pytestmark = pytest.mark.guest


def test_programs_come_and_go_and_use_their_lanes(tmp_path: Path) -> None:
    verify(played(tmp_path, "virtual"), slack_s=0.01)
