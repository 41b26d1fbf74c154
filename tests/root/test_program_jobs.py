"""Users' programs as jobs of an experiment, in real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program_jobs import played, verify

pytestmark = pytest.mark.root


def test_programs_come_and_go_and_use_their_lanes(tmp_path: Path) -> None:
    verify(played(tmp_path, "namespace"), slack_s=0.4)
