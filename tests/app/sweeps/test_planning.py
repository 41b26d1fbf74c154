"""What a sweep's file asks for."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import main, parser_for
from app.sweeps.config import SweepConfig, read_sweep
from app.sweeps.identity import run_key
from app.sweeps.planning import command_lines, plan_runs, plan_sweep, value_text
from fabric.config import checked
from fabric.errors import ConfigError, UsageError
from runs.launching.spec import RunSpec
from tests.app.sweeps.plain_runs import SHARE, SWEEP, planned
from topologies.load import read_topology, topology_path

ROOT = Path(__file__).parents[3]
CONFIG = {"topology": {"nic_rate": 1}, "seed": 1}


def test_a_key_is_of_config_seed_engine_kernel_and_memory() -> None:
    one = run_key(CONFIG, 1, "virtual", "linux-6.1")
    others = [
        run_key({**CONFIG, "topology": {"nic_rate": 2}}, 1, "virtual", "linux-6.1"),
        run_key(CONFIG, 2, "virtual", "linux-6.1"),
        run_key(CONFIG, 1, "namespace", "linux-6.1"),
        run_key(CONFIG, 1, "virtual", "linux-6.12"),
        run_key(CONFIG, 1, "virtual", "linux-6.1", 2**31),
    ]
    assert one.startswith("r"), "a table's reader must not take it for a number"
    assert one == run_key(dict(reversed(CONFIG.items())), 1, "virtual", "linux-6.1")
    assert len({one, *others}) == 6


def test_every_combination_is_run_with_every_seed() -> None:
    plan = planned()
    assert [(run.point[SHARE], run.point["queueings"], run.seed) for run in plan.runs[:4]] == [
        (0.1, ["shared"], 1), (0.1, ["shared"], 2), (0.1, ["shared"], 3), (0.1, ["lanes"], 1),
    ]  # fmt: skip
    assert len({run.key for run in plan.runs}) == len(plan.runs) == 12
    assert [len(point) for point in plan.points] == [3, 3, 3, 3]


def test_a_value_written_in_another_way_is_the_same_run() -> None:
    first, second = (planned(grid={"alone_time": [value]}).runs[0].key for value in ("500 ms", 0.5))
    assert first == second


def test_a_setting_that_cannot_be_is_refused_with_its_point_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"queues.lanes.hfreduce.share 0.1, nccl_nodes 99: nccl_nodes: 99 exceeds"):
        planned(settings={"topology": "fire_flyer_2_tiny"}, grid={SHARE: [0.1], "nccl_nodes": [99]})


def test_two_settings_that_come_to_one_run_are_refused() -> None:
    with pytest.raises(ConfigError, match="alone_time 1 s and alone_time 1000 ms: are the same run"):
        planned(grid={"alone_time": ["1 s", "1000 ms"]})


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "axis twice": ({"settings": {SHARE: 0.2}}, "in settings and in grid; keep one"),
    "no axis": ({"figures": [{"y": "a", "x": "b"}]}, f"b: no axis of the grid; there are {SHARE}, queueings"),
    "seed": ({"grid": {"seed": [1]}}, "name seeds under seeds"),
    "seeds twice": ({"seeds": [1, 1]}, "names a seed twice"),
    "engine": ({"engine": "fast"}, "'fast' does not exist; use one of namespace, virtual"),
    "both kinds": (
        {"figures": [{"y": "a", "x": SHARE, "lines": "queueings", "down": "queueings"}]},
        "a figure has lines or is a heat map",
    ),
    "typo": ({"seed": 4}, "seed: unknown key; did you mean 'seeds'"),
    "empty": ({"grid": {SHARE: []}}, "at least 1 item"),
}


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=list(FAULTS))
def test_a_file_with_a_fault_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked(SweepConfig, {**SWEEP, **change}, "small.yaml")


def test_a_command_line_is_the_same_run(tmp_path: Path) -> None:
    plan = planned(rate="5 Mbit/s", memory="2 GiB")
    for run, line in zip(plan.runs, command_lines(plan.runs, tmp_path.joinpath), strict=True):
        words = shlex.split(line)
        options = parser_for(words[1:]).parse_args(words[1:])
        assert (options.out, options.expect_key) == (tmp_path / run.key, run.key)
        base = RunSpec(
            options.experiment, overrides=options.overrides, engine=options.engine, rate=options.rate,
            memory_bytes=options.memory,
        )  # fmt: skip
        (again,) = plan_runs("again", base, {}, [options.seed]).runs
        assert again.key == run.key


def test_a_command_line_refuses_where_it_would_be_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a node of a cluster whose cache has another guest kernel: figures of both would be averaged."""
    plan = planned()
    (line, *_) = command_lines(plan.runs, tmp_path.joinpath)
    monkeypatch.setattr("app.commands.run.run_spec", lambda *_: 0)
    assert main(shlex.split(line)[1:]) == 0
    monkeypatch.setattr("fabric.world.virtual_time.VirtualEngine.kernel", lambda self: "linux-6.12-c-d")
    assert main(shlex.split(line)[1:]) == 2
    assert "it has the kernel linux-6.12-c-d: install the same program" in " ".join(capsys.readouterr().err.split())


def test_repeats_are_a_sweep_over_seeds() -> None:
    base = RunSpec("isolation", {"topology": "fire_flyer_2_tiny", "nccl_nodes": 4}, engine="virtual")
    plan = plan_runs("three", base, {}, range(5, 8))
    assert [run.seed for run in plan.runs] == [5, 6, 7]
    assert len(plan.points) == 1
    assert plan.runs[0].spec == replace(base, seed=5)


def test_several_guests_per_run_are_refused() -> None:
    """A run of a study has a core; and its key and its command name no guests."""
    with pytest.raises(UsageError, match="guests 2: the runs of a study have a core each"):
        plan_runs("shares", RunSpec("isolation", engine="virtual", guests=2), {}, [1, 2])


def test_values_read_as_a_person_writes_them() -> None:
    assert [value_text(value) for value in (0.5, "4 MiB", ["lanes"], ["a", "b"], {"policy": "ecmp"})] == [
        "0.5", "4 MiB", "lanes", "a+b", "policy ecmp",
    ]  # fmt: skip


def test_values_of_an_axis_that_look_alike_stay_apart() -> None:
    plan = planned(grid={"queueings": [["shared"], ["lanes"]]}, seeds=1)
    alike = [["a", "b"], "a+b", True, "True", None, 0.5]
    runs = tuple(replace(plan.runs[0], point={"x": value, "y": True}) for value in alike)
    found = replace(plan, axes=("x", "y"), runs=runs)
    told = [found.text_of("x", value) for value in alike]
    assert told == ["[a, b]", '"a+b"', "true", '"True"', "None", "0.5"]
    assert found.text_of("y", True) == "True"


def test_files_of_ones_own_are_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(topology_path("fire_flyer_2_tiny"), tmp_path / "mine.yaml")
    monkeypatch.chdir(tmp_path)
    own = planned(settings={"topology": "mine.yaml", "nccl_nodes": 4})
    assert own.runs[0].spec.settings["topology"] == str(tmp_path / "mine.yaml")
    assert [run.key for run in own.runs] == [run.key for run in planned().runs], "the same fabric is the same run"


def test_the_file_of_the_page_asks_for_forty_eight_runs() -> None:
    plan = plan_sweep("forty_eight_runs", read_sweep(ROOT / "docs/sweeps/forty_eight_runs.yaml"))
    assert len({run.key for run in plan.runs}) == 48
    assert [len(point) for point in plan.points] == [4] * 12


def test_a_study_or_topology_with_a_key_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("experiment: isolation\nseeds: 2\ngrid: {}\nseeds: 3\n")
    with pytest.raises(ConfigError, match=r"study.yaml: line 4: seeds is on line 2, too; keep one of them"):
        read_sweep(study)
    topology = tmp_path / "mine.yaml"
    topology.write_text(topology_path("fire_flyer_2_tiny").read_text() + "\nname: again\n")
    with pytest.raises(ConfigError, match=r"mine.yaml: line [0-9]+: name is on line [0-9]+, too; keep one of them"):
        read_topology(str(topology))
