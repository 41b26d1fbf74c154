"""A run's directory: what is promised of its files, and how a damaged or unknown one is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.errors import ResultError
from fabric.model.encoding import fabric_as_json
from fabric.results import FORMAT_VERSION, Phase, Result, ResultWriter, new_directory
from fabric.tables import TABLES, Column, Table
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
MANIFEST: dict[str, Any] = {
    "format_version": FORMAT_VERSION,
    "verdict": {"status": "faithful", "reasons": []},
    "phases": [{"name": "a", "title": "A", "queueing": "lanes", "started_s": 1.0, "ended_s": 2.0}],
}


def rows(name: str, count: int = 2) -> pd.DataFrame:
    """Return a table of the promised columns, of Python's own types."""
    values: dict[str, object] = {"float64": [0.5] * count, "int64": [3] * count, "category": ["x"] * count}
    values["Int64"] = pd.Series([3, *[None] * (count - 1)], dtype="Int64")  # Which Python has no type for.
    values["bool"] = [True] * count
    return pd.DataFrame({column: values[kind] for column, kind in TABLES[name].dtypes.items()})


def written(directory: Path, **manifest: Any) -> ResultWriter:
    writer = ResultWriter(directory)
    writer.write_json("manifest.json", {**MANIFEST, **manifest})
    writer.write_json("fabric.json", fabric_as_json(SMALL))
    writer.write_json("summary.json", {"answer": "yes"})
    return writer


def files_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


# Tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    written(tmp_path).write_table(name, rows(name))
    read = Result(tmp_path).table(name)
    assert {column: str(kind) for column, kind in read.dtypes.items()} == TABLES[name].dtypes
    assert read.astype(object).to_dict("list") == rows(name).astype(object).to_dict("list")


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_that_was_not_written_is_empty_with_all_columns(tmp_path: Path, name: str) -> None:
    written(tmp_path)
    read = Result(tmp_path).table(name)
    assert read.empty
    assert read.dtypes.equals(TABLES[name].empty().dtypes)
    assert {column: str(kind) for column, kind in read.dtypes.items()} == TABLES[name].dtypes


def test_an_empty_table_can_be_written(tmp_path: Path) -> None:
    written(tmp_path).write_table("steps", TABLES["steps"].empty())
    assert Result(tmp_path).table("steps").empty


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (lambda frame: frame.drop(columns="step"), [name for name in TABLES["steps"].columns if name != "step"]),
        (lambda frame: frame.assign(extra=1), [*TABLES["steps"].columns, "extra"]),
        (lambda frame: frame[list(reversed(frame.columns))], list(TABLES["steps"].columns)[::-1]),
    ],
    ids=["a column missing", "a column too many", "another order"],
)
def test_columns_other_than_promised_are_refused(tmp_path: Path, change: Any, columns: list[str]) -> None:
    with pytest.raises(ResultError) as refused:
        written(tmp_path).write_table("steps", change(rows("steps")))
    assert str(refused.value) == f"table steps: has columns {columns}, promised {list(TABLES['steps'].columns)}"
    assert not list((tmp_path / "samples").iterdir())


OWN = {"idlers": Table("One row per host.", {"idle_s": Column("float64", "s", "how long it was idle")})}


def test_an_experiments_own_table_is_written_and_a_table_of_nobody_refused(tmp_path: Path) -> None:
    writer = ResultWriter(tmp_path, OWN)
    writer.write_table("idlers", pd.DataFrame({"idle_s": [1, 2]}))
    assert pd.read_parquet(tmp_path / "samples" / "idlers.parquet")["idle_s"].tolist() == [1.0, 2.0]
    with pytest.raises(ResultError, match="table idlers: is not declared; give it to the experiment's tables"):
        ResultWriter(tmp_path).write_table("idlers", pd.DataFrame({"idle_s": [1, 2]}))


def test_changes_of_links_stored_without_their_causes_have_none(tmp_path: Path) -> None:
    written(tmp_path)
    rows("failures").drop(columns="causes").to_parquet(tmp_path / "samples" / "failures.parquet")
    read = Result(tmp_path).table("failures")
    assert list(read.columns) == list(TABLES["failures"].columns)
    assert read["causes"].tolist() == ["", ""]


def test_failures_stored_without_what_was_missed_have_none(tmp_path: Path) -> None:
    written(tmp_path)
    rows("failures").drop(columns=["missed", "due_end_s"]).to_parquet(tmp_path / "samples" / "failures.parquet")
    read = Result(tmp_path).table("failures")
    assert list(read.columns) == list(TABLES["failures"].columns)
    assert read["missed"].tolist() == ["", ""] and read["due_end_s"].isna().all()


def test_steps_stored_without_their_collective_are_of_allreduces(tmp_path: Path) -> None:
    written(tmp_path)
    rows("steps").drop(columns="collective").to_parquet(tmp_path / "samples" / "steps.parquet")
    read = Result(tmp_path).table("steps")
    assert list(read.columns) == list(TABLES["steps"].columns)
    assert read["collective"].tolist() == ["allreduce", "allreduce"]


def test_failures_stored_when_all_were_links_are_of_links(tmp_path: Path) -> None:
    written(tmp_path)
    known = ["phase", "link", "up", "rate_fraction", "loss_fraction", "due_s", "asked_s", "done_s"]
    stored = rows("failures")[[*known, "waiting_packets", "causes"]].assign(link="a:1--b:2")
    stored.to_parquet(tmp_path / "samples" / "failures.parquet")
    read = Result(tmp_path).table("failures")
    assert list(read.columns) == list(TABLES["failures"].columns)
    assert (set(read["kind"]), set(read["target"]), set(read["link"])) == ({"link"}, {"a:1--b:2"}, {"a:1--b:2"})
    assert read["ended_s"].isna().all()


def test_jobs_stored_before_failures_could_end_them_did_not_fail(tmp_path: Path) -> None:
    written(tmp_path)
    rows("jobs").drop(columns="failed").to_parquet(tmp_path / "samples" / "jobs.parquet")
    assert set(Result(tmp_path).table("jobs")["failed"]) == {""}


# Files ----------------------------------------------------------------------------------------------------------------


def test_when_a_job_was_told_to_halt_is_unknown_of_results_of_before(tmp_path: Path) -> None:
    writer, frame = written(tmp_path), rows("jobs")
    writer.write_table("jobs", frame)
    frame.drop(columns="halted_s").to_parquet(tmp_path / "samples" / "jobs.parquet")
    read = Result(tmp_path).table("jobs")
    assert list(read.columns) == list(TABLES["jobs"].columns)
    assert read["halted_s"].isna().all()


def test_a_phase_knows_when_its_load_played(tmp_path: Path) -> None:
    before = MANIFEST["phases"][0]
    written(tmp_path, phases=[before, {**before, "loaded_from_s": 1.25, "loaded_until_s": 1.5}])
    assert [phase.load_s for phase in Result(tmp_path).phases] == [(1.0, 2.0), (1.25, 1.5)]


def test_files_are_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = written(tmp_path)
    before = (tmp_path / "summary.json").read_text()

    def cut_off(path: Path, text: str) -> int:
        with path.open("w") as file:
            file.write(text[:3])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", cut_off)
    with pytest.raises(OSError, match=r"^disk full$"):
        writer.write_json("summary.json", {"answer": "no"})
    with pytest.raises(OSError, match=r"^disk full$"):
        writer.write_yaml("config.yaml", {"seed": 1})
    assert (tmp_path / "summary.json").read_text() == before
    assert not (tmp_path / "config.yaml").exists()


def test_tables_are_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(_: pd.DataFrame, path: Path, **__: Any) -> None:
        path.write_bytes(b"PAR1")
        raise OSError("disk full")

    writer = written(tmp_path)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", cut_off)
    with pytest.raises(OSError, match=r"^disk full$"):
        writer.write_table("steps", rows("steps"))
    assert not (tmp_path / "samples" / "steps.parquet").exists()
    assert Result(tmp_path).table("steps").empty


def test_nothing_partial_is_left_behind(tmp_path: Path) -> None:
    writer = written(tmp_path)
    writer.write_yaml("config.yaml", {"seed": 1})
    writer.write_table("steps", rows("steps"))
    assert files_in(tmp_path) == {
        "manifest.json",
        "fabric.json",
        "summary.json",
        "config.yaml",
        "samples/steps.parquet",
    }


def test_a_config_keeps_the_order_of_its_keys(tmp_path: Path) -> None:
    ResultWriter(tmp_path).write_yaml("config.yaml", {"b": 1, "a": {"d": 2, "c": 3}})
    assert (tmp_path / "config.yaml").read_text() == "b: 1\na:\n  d: 2\n  c: 3\n"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_that_other_programs_cannot_read_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match=r"^Out of range float values are not JSON compliant"):
        ResultWriter(tmp_path).write_json("summary.json", {"p99": value})
    assert not (tmp_path / "summary.json").exists()


# Reading --------------------------------------------------------------------------------------------------------------


def test_a_result_knows_its_phases_verdict_and_scale(tmp_path: Path) -> None:
    written(tmp_path)
    result = Result(tmp_path)
    assert result.phases == [Phase("a", "A", "lanes", 1.0, 2.0)]
    assert result.verdict["status"] == "faithful"
    assert result.scale == SMALL.scale
    assert result.summary == {"answer": "yes"}


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, None, "2"])
def test_a_format_of_another_version_is_refused(tmp_path: Path, version: object) -> None:
    written(tmp_path, format_version=version)
    with pytest.raises(ResultError) as refused:
        Result(tmp_path)
    words = f"{tmp_path}: format_version {version}, this program reads 1 and 2; update it"
    assert str(refused.value) == words


def test_the_version_is_looked_at_before_anything_else(tmp_path: Path) -> None:
    ResultWriter(tmp_path).write_json("manifest.json", {"format_version": 99})
    words = f"{tmp_path}: format_version 99, this program reads 1 and 2; update it"
    with pytest.raises(ResultError, match=re.escape(words)):
        Result(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "fabric.json", "summary.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    written(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ResultError) as refused:
        Result(tmp_path)
    assert str(refused.value) == f"{tmp_path / name}: is missing; {tmp_path} is not a finished run's directory"


def test_a_file_cut_off_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "summary.json").write_text('{"answer": ')
    with pytest.raises(ResultError) as refused:
        Result(tmp_path)
    why = "Expecting value: line 1 column 12 (char 11)"
    assert str(refused.value) == f"{tmp_path / 'summary.json'}: is not JSON ({why}); the run may have been cut off"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": "\xe9"}', "is not JSON .'utf-8' codec can't decode byte 0xe9"),
        (b"[1, 2]", "holds a list, not an object; it is not a finished run's"),
        (b"[" * 100_000, "is not JSON .maximum recursion depth exceeded"),
    ],
)
def test_a_file_that_is_no_results_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    written(tmp_path)
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ResultError, match=f"manifest.json: {why}"):
        Result(tmp_path)


def test_a_config_that_is_not_yaml_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "config.yaml").write_text("a: 1\na: [")
    with pytest.raises(ResultError, match=r"config\.yaml: is not YAML"):
        _ = Result(tmp_path).config


def test_a_fabric_is_written_with_all_its_nodes_and_links() -> None:
    told = json.loads(json.dumps(fabric_as_json(SMALL)))
    assert len(told["nodes"]) == len(SMALL.nodes)
    assert len(told["links"]) == len(SMALL.links)
    assert told["nodes"][0] == {"name": "z0l00", "role": "leaf", "zone": 0, "index": 0}
    assert {"a": "z0h000:0", "b": "z0l00:1", "rate_bps": SMALL.nic_rate_bps, "tier": "access", "delay_ns": 0} in told[
        "links"
    ]
    assert {link["tier"] for link in told["links"]} == {"access", "uplink", "inter_zone"}


# Directories ----------------------------------------------------------------------------------------------------------


def test_a_new_directory_is_named_by_experiment_and_time(tmp_path: Path) -> None:
    path = new_directory(tmp_path / "results", "isolation")
    assert path.parent == tmp_path / "results"
    assert re.fullmatch(r"isolation-\d{8}-\d{6}-[0-9a-f]{4}", path.name)
    assert not path.exists()


def test_runs_that_start_in_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    assert len({new_directory(tmp_path, "isolation") for _ in range(20)}) > 15
