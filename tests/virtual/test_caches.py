"""A kernel that was built elsewhere than in the usual cache is the one that a guest runs, with its modules."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fabric.world import cache
from fabric.world.virtual import kernel
from tests.guest_scripts import share_bytecode
from tests.virtual.command import VirtualCommand

pytestmark = pytest.mark.guest


def test_a_guest_finds_what_is_built_where_the_variable_says(command: VirtualCommand, tmp_path: Path) -> None:
    """Below /tmp, too, of which a guest sees only what it is shown."""
    built = kernel.require()
    place = tmp_path / "cache" / cache.NAME
    shutil.copytree(built.directory, place / "virtual" / built.directory.name, symlinks=True)
    modules = built.module("sch_vl").parent
    shutil.copytree(modules, place / "modules" / modules.name)
    share_bytecode(place)
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    look = "from fabric.world import cache; print([place.is_dir() for place in cache.places()], *cache.places())"
    words = ("head_of_line", "--queueing", "lossless_lanes", "z0h000")
    done = command.run("exec", *words, "--", sys.executable, "-c", look, environment=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"] {place} {cache.SHARED / cache.NAME}" in done.stdout
    assert "[True, " in done.stdout
