"""``fabric export`` prints or writes a result whole, and ``fabric run --openmetrics`` writes one at its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families

from app.cli import main
from app.commands.export import FORMATS
from runs.launching import launcher
from runs.launching.run_result import RunResult
from runs.launching.spec import Prepared
from tests.synthetic_result import Recipe, write_result


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_result(tmp_path_factory.mktemp("results") / "one", Recipe("fire_flyer_2_tiny", "isolation"))


def families_of(text: str) -> list[Metric]:
    """Return the families of a text, read by the strict parser."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def is_trace(data: bytes) -> None:
    assert len(Trace.FromString(data).packet) > 100


def is_json(data: bytes) -> None:
    assert json.loads(data)["jobs"]


def is_table(data: bytes) -> None:
    assert data.startswith(b"# fabric export nccl-tests: run one, experiment isolation")


READ: dict[str, Callable[[bytes], object]] = {
    "openmetrics": lambda data: families_of(data.decode()),
    "prometheus": lambda data: list(older_families(data.decode())),
    "perfetto": is_trace,
    "nccl-tests": is_table,
    "fio": is_json,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_result_is_printed_or_written_the_same(
    name: str, directory: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", name, str(directory)]) == 0
    printed = capfdbinary.readouterr().out
    READ[name](printed)
    path = tmp_path / "file"
    path.write_text("of before")
    assert main(["export", name, str(directory), "--out", str(path)]) == 0
    assert path.read_bytes() == printed
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    out, err = capfdbinary.readouterr()
    assert (out, err.decode().splitlines()[0]) == (b"", f"{name}: {path}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["openmetrics", "--phase", "lanes"], "--phase: is not for openmetrics, which is about the whole run"),
        (["perfetto", "--job", "nccl"], "--job: is not for perfetto, which is about the whole run"),
        (["prometheus", "--timestamps"], "--timestamps: is not for prometheus, which is about the whole run"),
        (["fio", "--phase", "storage_alon"], "--phase storage_alon: .* did you mean storage_alone?"),
        (["nccl-tests", "--out", "/nowhere/file"], "/nowhere/file: cannot be written .*give another with --out"),
        (["nccl-tests", "--out", "."], r"\.: cannot be written \(Is a directory\); give another with --out"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], why: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = words
    assert main(["export", name, str(directory), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(why, err)


def test_a_format_that_is_none_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "perfeto", "x"])
    assert ended.value.code == 2
    assert "did you mean perfetto?" in capsys.readouterr().err


def test_a_terminal_is_not_garbled(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["export", "perfetto", str(directory)]) == 2
    assert "perfetto: is binary, and would garble a terminal; give --out FILE, or a pipe" in capsys.readouterr().err


# At the end of a run --------------------------------------------------------------------------------------------------


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Prepared]:
    """The runs that were asked for, each of which is over at once, and invalid."""
    found: list[Prepared] = []

    def play(prepared: Prepared, report: object) -> RunResult:
        found.append(prepared)
        verdict = {"status": "invalid", "reasons": ["made up"]}
        recipe = Recipe("fire_flyer_2_tiny", "isolation", verdict=verdict)
        return RunResult(write_result(Path(prepared.order.directory), recipe))

    monkeypatch.setattr(launcher, "play", play)
    return found


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_run_that_is_invalid_writes_its_metrics_too(
    options: list[str], played: list[Prepared], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "run.om", tmp_path / "results"
    assert main(["run", "isolation", "--out", str(out), "--openmetrics", str(path), *options]) == 3
    families = {family.name: family for family in families_of(path.read_text())}
    states = {one.labels["fabric_run_verdict"]: one.value for one in families["fabric_run_verdict"].samples}
    assert states["invalid"] == 1
    assert {one.name for one in tmp_path.iterdir()} == {"run.om", "results"}
    printed = capsys.readouterr().out
    if options:
        assert json.loads(printed)["verdict"]["status"] == "invalid"


def test_a_file_for_node_exporter_is_in_the_format_that_it_reads(played: list[Prepared], tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    assert main(["run", "isolation", "--out", str(tmp_path / "results"), "--openmetrics", str(path)]) == 3
    assert {family.type for family in older_families(path.read_text())} == {"gauge", "counter"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--openmetrics", "HERE/none/a.om"], "--openmetrics HERE/none/a.om: HERE/none is not a directory; make it"),
        (["--openmetrics", "HERE"], "--openmetrics HERE: is a directory; name a file in it"),
        (
            ["--openmetrics", "HERE/a.om", "--repeat", "2"],
            "--openmetrics: is about one run, and --repeat 2 plays several; omit one",
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_the_run(
    words: list[str], why: str, played: list[Prepared], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "isolation", *(word.replace("HERE", str(tmp_path)) for word in words)]) == 2
    assert why.replace("HERE", str(tmp_path)) in capsys.readouterr().err
    assert played == []


def test_a_timeline_is_not_written_over_a_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", str(directory), "--out", "."]) == 2
    assert ".: cannot be written (Is a directory); give another with --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
