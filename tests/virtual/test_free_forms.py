"""Free forms of any shape carry packets, wherever their file is, and by names of the user's own."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controllers.free_forms import SHAPES, drawn_links, side_by_side
from tests.guest_scripts import run_module
from tests.virtual.command import VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
RATES = {"nic_rate": "1 Gbit/s", "uplink_rate": "1 Gbit/s", "reference_nic_rate": "1 Gbit/s", "mtu": 4200}
OWN = ["client1-leaf1", "leaf1-spine1", "spine1-leaf2", "leaf2-client2"]


def written(path: Path, links: list[Any]) -> Path:
    path.write_text(yaml.safe_dump({"name": path.stem, "builder": "free_form", "links": links, **RATES}))
    return path


@pytest.fixture
def hidden() -> Iterator[Path]:
    """Yield a directory in ``/tmp``, of which a guest has its own."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


def verify_echoes(directory: Path, forms: list[list[Any]]) -> None:
    """Bring free forms up as the parts of one fabric, which nothing joins, and let all NICs of each part echo."""
    topology = written(directory / "forms.yaml", side_by_side(forms))
    run_module("tests.virtual.free_forms", str(topology), str(directory / "report.json"), keep=[directory])
    found = json.loads((directory / "report.json").read_text())
    print(found["joined"], "pairs joined,", found["apart"], "apart")
    assert (found["missing"], found["leaked"]) == ([], [])
    assert found["joined"] > 100 and found["apart"] > 100


def test_every_nic_of_every_shape_reaches_what_links_join_with_it(tmp_path: Path) -> None:
    shapes = [links for name, links in SHAPES.items() if "256" not in name and "zones" not in name]
    verify_echoes(tmp_path, [*shapes, *(drawn_links(random.Random(seed)) for seed in range(10))])


@pytest.mark.soak
def test_so_do_those_of_eighty_other_drawn_ones(tmp_path: Path) -> None:
    verify_echoes(tmp_path, [drawn_links(random.Random(seed)) for seed in range(100, 180)])


def test_a_topology_below_tmp_and_names_of_ones_own_are_known_in_the_guest(
    command: VirtualCommand, hidden: Path
) -> None:
    written(hidden / "own.yaml", OWN)
    link = command.here / "linked.yaml"
    link.symlink_to(hidden / "own.yaml")
    done = command.run("exec", str(link), "client1", "--", "ping", "-c", "1", "client2")
    assert done.returncode == 0, done.stderr
    assert "1 received, 0% packet loss" in done.stdout
    done = command.run("path", str(hidden / "own.yaml"), "client1", "client2", "--probe")
    assert done.returncode == 0, done.stderr
    assert "as planned" in done.stdout


def test_the_prompt_knows_names_of_ones_own(command: VirtualCommand, hidden: Path) -> None:
    written(hidden / "own.yaml", OWN)
    lines = hidden / "lines"
    lines.write_text("client1 ping -c 1 client2\npingall\nexit\n")
    with lines.open() as stdin, command.start("shell", str(hidden / "own.yaml"), stdin=stdin) as process:
        out, err = process.communicate(timeout=600)
    assert "1 received, 0% packet loss" in out + err, out + err
    assert "*** Results: 0% dropped (2/2 received)" in out + err
    assert "try: client1 ping -c 3 client2" in err


@pytest.mark.soak  # Hundreds of hosts.
def test_256_hosts_on_one_switch_come_up(command: VirtualCommand, hidden: Path) -> None:
    topology = written(hidden / "switch_256.yaml", SHAPES["256 hosts on a switch"])
    done = command.run("exec", str(topology), "z0h000", "--", "ping", "-c", "1", "z0h255")
    assert done.returncode == 0, done.stderr
    assert "1 received, 0% packet loss" in done.stdout
