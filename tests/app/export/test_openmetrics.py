"""What Prometheus reads of a result is what the result says, each number once."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families
from prometheus_client.samples import Sample

from app.export.openmetrics import UNIT_NAMES, openmetrics, port_totals, prometheus_text
from fabric.errors import ResultError
from fabric.metrics import UNITS, metrics_frame
from fabric.metrics import Metric as Measured
from fabric.results import Result, ResultWriter
from fabric.tables import TABLES
from runs.launching.run_result import RunResult
from tests.rows import table_of
from tests.synthetic_result import Recipe, write_result

TINY = "fire_flyer_2_tiny"


def families_of(text: str) -> list[Metric]:
    """Return the families of a text, read by the strict parser."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def samples(text: str) -> list[Sample]:
    return [sample for family in families_of(text) for sample in family.samples]


def named(text: str, name: str) -> list[Sample]:
    return [sample for sample in samples(text) if sample.name == name]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    verdict = {"status": "degraded", "reasons": ["the machine was late"]}
    return Result(write_result(tmp_path_factory.mktemp("results") / "one", Recipe(TINY, verdict=verdict)))


def with_metrics(directory: Path, metrics: list[Measured]) -> Result:
    """Return a result that has these metrics."""
    write_result(directory, Recipe(TINY))
    ResultWriter(directory).write_table("metrics", metrics_frame(metrics))
    return Result(directory)


def test_a_run_says_which_it_was_and_its_verdict(result: Result) -> None:
    text = openmetrics(result)
    (info,) = named(text, "fabric_run_info")
    about = {"run": "one", "experiment": "storage_interference", "engine": "namespace", "seed": "7", "version": ""}
    assert info.labels == about
    states = {one.labels["fabric_run_verdict"]: one.value for one in named(text, "fabric_run_verdict")}
    assert states == {"faithful": 0, "degraded": 1, "invalid": 0}


def test_every_unit_of_metrics_has_a_name() -> None:
    assert UNIT_NAMES.keys() == UNITS.keys()


def test_every_metric_is_there_once_with_its_unit(tmp_path: Path) -> None:
    metrics = [
        Measured("lanes", "hfreduce", "algbw_Bps", 0.1 + 0.2),
        Measured("shared", "hfreduce", "algbw_Bps", 5e11),
        Measured("lanes", "storage", "read.p99_s", 1e-6, is_named_by_job=False),
        Measured("lanes", "storage", "read.p99_at_least_s", 1.5, is_named_by_job=False),
        Measured("lanes", "", "rate_bps", 2e11),
        Measured("lanes", "", "idle_fraction", 0.25),
        Measured("lanes", "", "drops_packets", 3.0),
        Measured("lanes", "", "deepest_queue_bytes", 124374.0),
        Measured("", "", "steps", 4.0),
    ]
    families = {family.name: family for family in families_of(
        openmetrics(with_metrics(tmp_path / "r", metrics))
    )}  # fmt: skip
    units = {
        "fabric_algbw_bytes_per_second": "bytes_per_second",
        "fabric_read_p99_seconds": "seconds",
        "fabric_read_p99_at_least_seconds": "seconds",
        "fabric_rate_bits_per_second": "bits_per_second",
        "fabric_idle_ratio": "ratio",
        "fabric_drops_packets": "packets",
        "fabric_deepest_queue_bytes": "bytes",
        "fabric_steps": "",
    }
    assert {name: families[name].unit for name in units} == units
    assert {families[name].type for name in units} == {"gauge"}
    found = {
        one.labels["path"]: (one.labels["phase"], one.labels["job"], one.value)
        for name in units
        for one in families[name].samples
    }
    assert found == {one.path: (one.phase, one.job, one.value) for one in metrics}


def test_names_that_would_be_one_are_two(tmp_path: Path) -> None:
    """Of metrics among each other, beside another unit, and beside the families that every run has."""
    names = ["read.p99_s", "read_p99_s", "read-p99_s", "x_seconds", "x_s", "port.sent_bytes", "run_verdict", "run"]
    names += ["port.sent_bytes_total", "run_info", "größe_bytes"]
    result = with_metrics(tmp_path / "r", [Measured("lanes", "", name, float(at)) for at, name in enumerate(names)])
    text = openmetrics(result)
    gauges = [one for one in samples(text) if "path" in one.labels]
    assert {one.labels["path"]: one.value for one in gauges} == {f"lanes.{name}": at for at, name in enumerate(names)}
    assert len({one.name for one in gauges}) == len(names)
    helps = {family.documentation: family.name for family in families_of(text)}
    assert helps["Metric read-p99_s of the result."] == "fabric_read_p99_seconds"
    assert helps["Metric read.p99_s of the result."] == "fabric_read_p99_2_seconds"


def test_two_metrics_of_one_path_are_refused(tmp_path: Path) -> None:
    result = with_metrics(tmp_path / "r", [Measured("lanes", "a", "steps", 1.0)])
    table = pd.concat([result.metrics, result.metrics])
    ResultWriter(tmp_path / "r").write_table("metrics", table)
    with pytest.raises(ResultError, match=r"has two metrics lanes\.a\.steps"):
        openmetrics(result)


def test_a_result_of_format_1_has_its_metrics(tmp_path: Path) -> None:
    result = Result(write_result(tmp_path / "r", Recipe(TINY, format_version=1)))
    found = {one.labels["path"]: one.value for one in named(openmetrics(result), "fabric_algbw_bytes_per_second")}
    assert found == {"lanes.hfreduce.algbw_Bps": 500_000.0, "shared.hfreduce.algbw_Bps": 250_000.0}


def test_ports_have_what_they_had_counted_at_the_end(result: Result) -> None:
    text, ports = openmetrics(result), result.table("ports")
    last = ports.sort_values("at_s", kind="stable").groupby(["port", "lane"], observed=True)["sent_bytes"].last()
    found = {(one.labels["port"], one.labels["lane"]): one.value for one in named(text, "fabric_port_sent_bytes_total")}
    assert found == last[last > 0].to_dict()
    (idle,) = named(text, "fabric_port_idle_lanes")
    assert idle.value == (last == 0).sum()
    dropped = named(text, "fabric_port_dropped_packets_total")
    assert len(dropped) == len(found)
    assert named(text, "fabric_port_marked_packets_total") == []


def ports_of(rows: list[tuple[float, str, str, int, int, int]]) -> pd.DataFrame:
    columns = "at_s port lane sent_bytes drops_packets marked_packets"
    return table_of("ports", rows, columns).astype(TABLES["ports"].dtypes)


def test_a_counter_that_began_anew_keeps_what_it_had() -> None:
    rows = [
        (2.0, "a:1", "x", 30, 2, 0),
        (1.0, "a:1", "x", 10, 2, 0),
        (1.0, "a:1", "y", 0, 1, 0),
        (1.0, "b:1", "x", 7, 0, 0),
        (3.0, "a:1", "x", 5, 0, 0),
        (4.0, "a:1", "x", 9, 1, 4),
    ]
    columns = ["port", "lane", "sent_bytes", "drops_packets", "marked_packets"]
    totals = port_totals(ports_of(rows))[columns].to_numpy().tolist()
    assert totals == [["a:1", "x", 39, 3, 4], ["a:1", "y", 0, 1, 0], ["b:1", "x", 7, 0, 0]]
    assert port_totals(ports_of([])).empty


def test_a_lane_that_only_dropped_is_not_idle_and_marks_are_told(tmp_path: Path) -> None:
    write_result(tmp_path / "r", Recipe(TINY))
    rows = [(1.0, "a:1", "x", 0, 1, 0), (1.0, "b:1", "x", 5, 0, 2), (1.0, "c:1", "x", 0, 0, 0)]
    ResultWriter(tmp_path / "r").write_table("ports", ports_of(rows))
    text = openmetrics(Result(tmp_path / "r"))
    assert [(one.labels["port"], one.value) for one in named(text, "fabric_port_dropped_packets_total")] == [
        ("a:1", 1),
        ("b:1", 0),
    ]
    assert [one.value for one in named(text, "fabric_port_marked_packets_total")] == [0, 2]
    assert [one.value for one in named(text, "fabric_port_idle_lanes")] == [1]


def test_the_cost_is_there_if_it_was_measured(tmp_path: Path) -> None:
    write_result(tmp_path / "r", Recipe(TINY, without=("ports",)))
    assert named(openmetrics(Result(tmp_path / "r")), "fabric_run_wall_seconds") == []
    (tmp_path / "r" / "cost.json").write_text(json.dumps({"wall_s": 12.5, "memory_bytes": 2**30}))
    text = openmetrics(Result(tmp_path / "r"))
    assert [one.value for one in named(text, "fabric_run_wall_seconds")] == [12.5]
    assert [one.value for one in named(text, "fabric_run_memory_bytes")] == [2**30]
    assert named(text, "fabric_port_idle_lanes") == []


def test_each_sample_says_of_which_run_it_is(result: Result) -> None:
    """Or node_exporter refuses the files of two runs in one directory."""
    assert {one.labels["run"] for one in samples(openmetrics(result))} == {"one"}


def test_the_older_format_says_the_same_without_types_that_it_does_not_know(result: Result) -> None:
    families = list(older_families(prometheus_text(result)))
    assert {family.type for family in families} == {"gauge", "counter"}
    found = {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}
    assert found == {(one.name, *sorted(one.labels.items())): one.value for one in samples(openmetrics(result))}
    assert all(one.timestamp is None for family in families for one in family.samples)


def test_samples_may_have_the_date_of_the_run(result: Result, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"has no date of the run \(started_at: None\); omit --timestamps"):
        openmetrics(result, timestamps=True)
    write_result(tmp_path / "r", Recipe(TINY))
    path = tmp_path / "r" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "started_at": "2026-11-27T09:47:54+00:00"}))
    dated = samples(openmetrics(Result(tmp_path / "r"), timestamps=True))
    assert {float(one.timestamp) for one in dated if one.timestamp is not None} == {1795772874.0}
    assert all(one.timestamp is not None for one in dated)


def test_help_is_what_a_measure_means(tmp_path: Path) -> None:
    metrics = {"lanes.hfreduce.algbw_Bps": 1.0, "lanes.read.p99_s": 2.0, "lanes.loudness": 3.0}
    text = openmetrics(RunResult(write_result(tmp_path / "r", Recipe(TINY, metrics=metrics, without=("ports",)))))
    told = dict(line.removeprefix("# HELP fabric_").split(" ", 1) for line in text.splitlines() if "# HELP" in line)
    assert told["algbw_bytes_per_second"] == "Bytes of a collective over the time of a step, median over steps."
    assert told["read_p99_seconds"].startswith("Percentile of the time that operations take, of all that began")
    assert told["loudness"] == "Metric loudness of the result."
