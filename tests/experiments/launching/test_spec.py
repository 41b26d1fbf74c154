"""What a run in a guest sees of the host's files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.launching.spec import RunSpec, prepare

FOLDER = Path(__file__).parents[3] / "experiments" / "isolation"
TOPOLOGIES = Path(__file__).parents[3] / "topologies"


@pytest.fixture
def hidden() -> Iterator[Path]:
    """Yield a directory in ``/tmp``, of which a guest has its own."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


def test_a_config_and_the_topology_that_it_names_are_there_in_the_guest(hidden: Path, tmp_path: Path) -> None:
    for name in ("configs", "topologies", "others"):
        (hidden / name).mkdir()
    config, named, set_ = hidden / "configs/mine.yaml", hidden / "topologies/mine.yaml", hidden / "others/mine.yaml"
    for topology in (named, set_):
        shutil.copyfile(TOPOLOGIES / "fire_flyer_2_small.yaml", topology)
    text = (FOLDER / "isolation.yaml").read_text()
    config.write_text(text.replace("topology: fire_flyer_2_small", f"topology: {named}"))
    asked = RunSpec(str(config), engine="virtual", overrides=[f"topology={set_}"], directory=tmp_path / "result")
    assert {config.parent, named.parent, set_.parent} <= set(prepare(asked, []).guest.keep)
