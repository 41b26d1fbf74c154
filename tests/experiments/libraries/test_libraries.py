"""What ``libraries`` plays, refuses and says; and, where they can be installed, that libraries run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.planning.planner import plan_routes
from controllers.routing import Routing
from experiments.libraries import theory
from experiments.libraries.catalogue import ALLREDUCE, LIBRARIES, TRANSFER, library_named
from experiments.libraries.config import LibrariesConfig
from experiments.libraries.experiment import EXPERIMENT
from experiments.libraries.programs import sweep
from experiments.libraries.run import _lines
from experiments.libraries.summary import Measured, summarize
from fabric.errors import ConfigError, UsageError
from fabric.metrics import by_path
from fabric.world import cache
from runs.record import summary_as_json
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_figures_drawn, own_result
from topologies.load import load_fabric

FABRIC = load_fabric("head_of_line_200g")
A, B = FABRIC.computes[:2]
MTU = FABRIC.mtu_bytes


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "places", lambda: (tmp_path,))
    return tmp_path


def install(place: Path, name: str) -> None:
    home = place / "libraries" / library_named(name).folder
    home.mkdir(parents=True)
    library_named(name).installed(home)


def config_of(*overrides: str) -> LibrariesConfig:
    return cast(LibrariesConfig, resolve("libraries", overrides)[1])


# What is played ------------------------------------------------------------------------------------------------------


def test_libraries_have_versions_names_and_folders_of_their_own() -> None:
    assert len({one.name for one in LIBRARIES}) == len({one.title for one in LIBRARIES}) == len(LIBRARIES)
    for one in LIBRARIES:
        assert all("==" in wheel for wheel in one.wheels), one.name
        assert one.wheels or one.packages or one.programs
        assert set(one.operations) <= {ALLREDUCE, TRANSFER}
    assert library_named("mpich").folder == library_named("mpich_ofi").folder, "the same parts"
    with pytest.raises(UsageError, match=r"library 'nccl': is not known; use one of mpich,"):
        library_named("nccl")


PLAYS = SimpleNamespace(operations=[ALLREDUCE, TRANSFER], sizes=[4, 8], steps=2, warm_up=5)


def test_a_launcher_is_started_on_the_first_host_only() -> None:
    words = library_named("mpich").command(Path("/x"), PLAYS, 3)
    assert words[:3] == ["sh", "-c", '[ "$FABRIC_RANK" != 0 ] || exec "$@"']
    assert words[4:9] == ["/x/bin/mpiexec", "-n", "3", "-ppn", "1"]
    assert words[-4:] == ["allreduce,transfer", "4,8", "2", "5"]
    words = library_named("nixl").command(Path("/x"), PLAYS, 2)
    assert words[0] == "/x/bin/python"
    assert words[-4:] == ["transfer", "4,8", "2", "5"]


class Alone:
    """A library of one rank whose clock moves with each call."""

    rank, ranks, halves = 0, 1, 2

    def __init__(self) -> None:
        self.calls: list[str] = []

    def barrier(self) -> None:
        self.calls.append("barrier")

    def allreduce(self, data: object) -> None:
        self.calls.append("step")

    transfer = allreduce


@pytest.mark.parametrize("operation", [sweep.allreduce, sweep.transfer])
def test_steps_of_the_warm_up_come_before_the_barrier_and_are_not_counted(operation: Any) -> None:
    library = Alone()
    _, wrong = operation(library, 64, 2, 5)
    assert library.calls[:8] == ["step"] * 5 + ["barrier"] + ["step"] * 2
    assert wrong == 0


def test_all_that_are_installed_are_played_unless_some_are_named(nothing_installed: Path) -> None:
    assert config_of().chosen == []
    install(nothing_installed, "gloo")
    install(nothing_installed, "nixl")
    assert [one.name for one in config_of().chosen] == ["gloo", "nixl"]
    assert [one.name for one in config_of("operations=[allreduce]").chosen] == ["gloo"]
    assert [one.name for one in config_of("libraries=[nixl]").chosen] == ["nixl"]


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("libraries=[nccl]", "library 'nccl': is not known"),
        ("libraries=[mpich]", "mpich is not installed; install it: python -m experiments.libraries.installing mpich"),
        ("operations=[barrier]", "'barrier' is not an operation; use allreduce, transfer"),
        ("ranks=7", "ranks: 7 are more than the 6 compute nodes"),
        ("begin=32 MiB", "32 MiB is more than end, 8 MiB; lower it"),
    ],
)
def test_what_cannot_be_played_is_refused(nothing_installed: Path, override: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault.replace("(", r"\(")):
        config_of(override)


def test_figures_are_what_is_json_among_what_a_library_prints() -> None:
    line = json.dumps({"operation": "transfer", "size_bytes": 4, "time_s": 1e-6, "wrong": 0})
    assert _lines(f"[1] a warning\n{line}\n{{}}\n") == [json.loads(line)]


# Theory --------------------------------------------------------------------------------------------------------------


def test_theory_is_delays_the_slowest_link_and_a_frame_on_each_other_one() -> None:
    links = theory.path(FABRIC, plan_routes(FABRIC, Routing()), A, B)
    assert [link.rate_bps / 1e9 for link in links] == [200, 800, 800, 200]
    small = 8 * (1 + 66)
    assert theory.one_way_s(1, links, MTU) == pytest.approx(1e-6 + small * (2 / 200e9 + 2 / 800e9))
    size, payload = 8 * 2**20, MTU - 52
    frames = -(-size // payload)
    whole = 8 * (size + 66 * frames) / 200e9
    frame = 8 * (MTU + 14)
    assert theory.one_way_s(size, links, MTU) == pytest.approx(1e-6 + whole + frame * (1 / 200e9 + 2 / 800e9))
    assert theory.allreduce_s(size, 2, links, MTU) == theory.transfer_s(size, links, MTU, is_read=False)
    assert theory.allreduce_s(size, 4, links, MTU) > 1.49 * whole
    assert 1.0e-6 < theory.transfer_s(size, links, MTU, is_read=True) - theory.one_way_s(size, links, MTU) < 1.1e-6


# The summary ---------------------------------------------------------------------------------------------------------

FOUND = [
    Measured("", ALLREDUCE, 8 * 2**20, 345e-6, 0),
    Measured("gloo", ALLREDUCE, 8 * 2**20, 400e-6, 3),
    Measured("gloo", TRANSFER, 8 * 2**20, 360e-6, 0),
    Measured("ucx", TRANSFER, 8 * 2**20, 350e-6, None),
]


def summary(*overrides: str) -> dict[str, Any]:
    session = SimpleNamespace(live=SimpleNamespace(fabric=FABRIC, plan=plan_routes(FABRIC, Routing())))
    config = config_of("begin=8 MiB", "end=8 MiB", *overrides)
    return summarize(cast(Session, session), config, (A, B), FOUND)


def test_times_stand_beside_theory(nothing_installed: Path) -> None:
    allreduce, transfer = summary()["tables"]
    assert [row[0] for row in allreduce.words] == ["our own", "gloo (PyTorch)"]
    assert allreduce.words[1][1:] == ["8 MiB", "400.00", "167.8", "342.14", "1.169", "3"]
    assert transfer.words[1][-1] == "N/A"
    found = by_path(summary()["metrics"])
    assert undeclared("libraries", summary()["metrics"]) == []
    assert found["gloo.allreduce.size_8388608.time_s"] == 400e-6
    assert found["own_allreduce.allreduce.size_8388608.time_over_theory"] == pytest.approx(345e-6 / 342.14e-6, rel=1e-4)
    answer = summary()["answer"]
    assert "UCX's transfer takes 1.023 times theory, gloo (PyTorch)'s allreduce takes 1.169 times theory" in answer
    assert "; 3 elements of all were wrong. Not installed: mpich," in answer


def test_the_figure_shows_what_the_summary_has(tmp_path: Path, nothing_installed: Path) -> None:
    result = own_result(tmp_path / "result", EXPERIMENT, summary=summary_as_json(summary()))
    assert own_figures_drawn(result, EXPERIMENT) == {"sizes"}
