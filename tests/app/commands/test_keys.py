"""``fabric keys``: what it lists of a config, and what it says of a key that there is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import cli
from app.commands.keys import beginning_with, keys_of_experiment, overview
from fabric.config_keys import Key
from fabric.errors import UsageError


@pytest.fixture(scope="module")
def keys() -> list[Key]:
    return keys_of_experiment("protection")


def of_path(keys: list[Key], path: str) -> Key:
    (found,) = [key for key in keys if key.path == path]
    return found


def test_a_key_has_its_type_with_limits_its_default_and_its_meaning(keys: list[Key]) -> None:
    depth = of_path(keys, "storage.dataloader.depth")
    assert (depth.type, depth.default) == ("integer 1..65,536", "2")
    assert depth.meaning.startswith("Batches that a reader keeps asked for at once.")
    assert of_path(keys, "sample_period").type == "time > 0, <= 50 ms"
    assert of_path(keys, "queues.lanes.NAME.share").default == "required"
    assert of_path(keys, "storage.request_to_send").type == "integer 1..65,536 or off"
    assert of_path(keys, "storage.service.ssd_read_rate").default == "off"
    assert of_path(keys, "failures[link].for").type == "time > 0"
    assert of_path(keys, "failures[disk].factor").type == "number > 1, <= 1e+06"
    assert not [key for key in keys if key.path == "failures[link].factor"], "each target has its own keys only"


def test_defaults_are_those_of_the_experiments_file_and_not_of_the_code(keys: list[Key]) -> None:
    assert of_path(keys, "hfreduce.size").default == "640 KiB"
    assert of_path(keys, "other_loads").default == "[0, 0.25, 0.5, 1, 2]"
    assert of_path(keys, "topology.name").default == "fire_flyer_2_small"
    assert of_path(keys, "queues.lanes.storage.share").default == "0.3"


def test_an_experiments_own_keys_come_first(keys: list[Key]) -> None:
    paths = [key.path for key in keys]
    assert paths.index("background.load") < paths.index("seed")


def test_a_prefix_chooses(keys: list[Key]) -> None:
    found = beginning_with("storage.data", keys, "protection")
    assert found[0].path == "storage.dataloader"
    assert all(key.path.startswith("storage.dataloader") for key in found)


def test_single_entries_are_shown_only_where_they_are_named(keys: list[Key]) -> None:
    assert {key.path.split(".")[2] for key in beginning_with("queues.lanes.", keys, "protection")} == {"NAME"}
    named = beginning_with("queues.lanes.storage", keys, "protection")
    assert {key.path.split(".")[2] for key in named} == {"storage"}


def test_the_overview_counts_what_is_in_mappings(keys: list[Key]) -> None:
    shown = {key.path: key.type for key in overview(keys)}
    assert shown["storage.dataloader".partition(".")[0]].startswith("mapping: ")
    assert not any("." in path for path in shown)


@pytest.mark.parametrize(
    ("prefix", "suggestion"),
    [
        ("depth", "did you mean storage_depths, storage.dataloader.depth, storage.checkpoint.depth, "),
        ("storage.dataloder", "did you mean storage.dataloader"),
        ("queues.lanes.strage", "did you mean queues.lanes.storage"),
        ("zz", "keys begin with rank_order, queueings, phase_time, "),
    ],
)
def test_an_unknown_prefix_gets_suggestions(keys: list[Key], prefix: str, suggestion: str) -> None:
    with pytest.raises(UsageError, match=f"{prefix}: no key of protection begins so") as caught:
        beginning_with(prefix, keys, "protection")
    assert suggestion in str(caught.value)


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "head_of_line", "time_scale", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["key"], row["default"]) == ("time_scale", "1")
    assert set(row) == {"key", "type", "default", "meaning"}


def test_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "shared_cluster", "jobs[storage].dataloader"]) == 0
    printed = capsys.readouterr().out
    assert "jobs[storage].dataloader.depth" in printed
    assert "--set KEY=VALUE" in printed


def test_an_unknown_experiment_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "protecton"]) == 2
    assert "protection" in capsys.readouterr().err


def test_a_file_of_ones_own_has_its_own_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = Path("experiments/head_of_line/head_of_line.yaml").read_text()
    file.write_text(text.replace("repeats: 3", "repeats: 7"))
    assert of_path(keys_of_experiment(str(file)), "repeats").default == "7"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["training"], "jobs[training].compute.forward"),
        (["work"], "jobs[work].graph"),
        (["shared_cluster", "jobs[platform]"], "jobs[platform].jobs.priority"),
        (["platform"], "jobs[platform].timers.beat"),
        (["training", "layout"], "jobs[training].layout.data"),
        (["shared_cluster", "training.layout"], "jobs[training].layout.data"),
        (["shared_cluster", "work"], "jobs[work].graph"),
    ],
)
def test_a_kind_of_job_stands_for_its_keys(words: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert path in [row["key"] for row in rows]
    assert all(row["key"].startswith(path.split(".")[0]) for row in rows)
