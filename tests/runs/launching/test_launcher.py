"""A run as a function: its events in order, its errors as errors, and its end however it is left. A program that only
talks stands for the run's process here; the real one is in ``tests/root`` and ``tests/virtual``."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import RunSpec, launch, load
from fabric.errors import ConfigError, EmulationError, FabricError, ResultError, TopologyError, TrafficError, UsageError
from fabric.world.virtual.watch import GuestTime
from runs.launching import launcher
from runs.launching.events import (
    Event,
    EventLines,
    Note,
    PhaseProgress,
    Recorded,
    RunFailure,
    decoded,
    encoded,
    error_of,
    failure_of,
)
from runs.launching.finish import DRAWING
from runs.launching.order import Order
from runs.launching.spec import prepare
from tests.waiting import is_alive, until

EVENTS = (
    Note("building"),
    PhaseProgress("all in lanes", 0.5),
    GuestTime(1.5, 3.0),
    Recorded("/r"),
    RunFailure("T", "x"),
    RunFailure("ConfigError", "run.yaml: a: b", "run.yaml", ("a: b",)),
)


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_arrives_as_it_was_sent(event: Event) -> None:
    line = encoded(event)
    assert line.endswith(b"\n")
    assert decoded(line) == event


@pytest.mark.parametrize("line", [b"hello", b"[]", b'["Surprise", {}]', b'["Note", {"txt": 1}]'])
def test_a_line_that_is_no_event_is_told(line: bytes) -> None:
    with pytest.raises(EmulationError, match="which is not an event"):
        decoded(line)


@pytest.mark.parametrize(
    "error",
    [TrafficError("a rank died"), UsageError("no"), ResultError("gone"), ConfigError("run.yaml: 2", ["a: b", "c:\nd"])],
)
def test_an_error_is_raised_again_as_what_it_was(error: FabricError) -> None:
    again = error_of(failure_of(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_topology_that_cannot_be_wired_is_a_wrong_config_again() -> None:
    again = error_of(failure_of(TopologyError("topology", ["uplinks: 3 are too few"])))
    assert (str(again), again.exit_code) == ("topology: uplinks: 3 are too few", ConfigError.exit_code)


def test_an_order_arrives_as_it_was_given() -> None:
    order = Order("isolation", "/mine", {"seed": 1, "loads": [0.1]}, "/r", ("z0l03:7=a.pcap",), ("fabric", "run"))
    assert Order.decoded(order.encoded()) == order


def test_lines_of_others_are_passed_on_whole_or_not_yet() -> None:
    stream = io.BytesIO()
    lines = EventLines(stream)
    lines.write(encoded(Note("one")) + b'["Note", {"te')
    lines.report(Note("between"))
    lines.write(b'xt": "two"}]\n')
    assert [decoded(line) for line in stream.getvalue().splitlines()] == [Note("one"), Note("between"), Note("two")]


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return RunSpec("isolation", {"alone_time": 1.5}, ["together_time=2s"], seed=7, directory=tmp_path / "mine")


def instead(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a run's process be a script; ``say(event)`` and ``sys`` are at hand. What draws is the real one."""
    prelude = (
        "import os, signal, sys, time\n"
        "from runs.launching.events import *\n"
        "def say(event): sys.stdout.buffer.write(encoded(event)); sys.stdout.flush()\n"
    )
    real = subprocess.Popen

    def start(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        if command[2] == "runs.launching.finish":
            return real(command, **options)  # type: ignore[call-overload,no-any-return]
        assert command[1:3] == ["-m", "runs.launching.enter"]
        return real([sys.executable, "-c", prelude + script], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", start)


def test_events_come_in_order_and_what_the_run_prints_comes_as_notes(
    monkeypatch: pytest.MonkeyPatch, spec: RunSpec, tmp_path: Path
) -> None:
    """It prints once its events have come: what is under way by two pipes at once may come in either order."""
    told = tmp_path / "told"
    instead(
        monkeypatch,
        "say(Note(sys.stdin.readline()[:10])); say(Note(sys.stdin.read()[:15])); say(PhaseProgress('p', 0.5))\n"
        f"while not os.path.exists({str(told)!r}): time.sleep(0.01)\n"
        "print('x', file=sys.stderr)",
    )
    seen: list[Event] = []

    def see(event: Event) -> None:
        seen.append(event)
        if isinstance(event, PhaseProgress):
            told.touch()

    with pytest.raises(EmulationError, match=r"^the run's process ended well and recorded nothing$"):
        launch(spec, see)
    assert seen == [Note('{"module":'), Note('{"experiment": '), PhaseProgress("p", 0.5), Note("x")]


def test_where_a_run_is_that_cannot_be_drawn_is_told(
    monkeypatch: pytest.MonkeyPatch, spec: RunSpec, tmp_path: Path
) -> None:
    recorded = tmp_path / "mine.partial"
    recorded.mkdir()
    instead(monkeypatch, f"say(Recorded({str(recorded)!r}))")
    seen: list[Event] = []
    words = rf"(?s)is missing.*\nwhat was recorded is complete, in {recorded}; .* fabric report {recorded}$"
    with pytest.raises(ResultError, match=words):
        launch(spec, seen.append)
    assert seen == [DRAWING]
    assert recorded.exists()
    assert not (tmp_path / "mine").exists()


def test_a_caller_who_leaves_while_figures_are_drawn_is_told_where_the_run_is(
    monkeypatch: pytest.MonkeyPatch, spec: RunSpec, tmp_path: Path
) -> None:
    instead(monkeypatch, f"say(Recorded({str(tmp_path)!r}))")
    seen: list[Event] = []

    def leave(event: Event) -> None:
        seen.append(event)
        if event == DRAWING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(spec, leave)
    assert seen[1:] == [Note(f"what was recorded is complete, in {tmp_path}; to draw it: fabric report {tmp_path}")]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("say(RunFailure('TrafficError', 'a rank died')); sys.exit(1)", TrafficError, "^a rank died$"),
        ("print('out of ideas', file=sys.stderr); sys.exit(7)", EmulationError, r"exit code 7; .*:\n  out of ideas$"),
        ("os.kill(os.getpid(), signal.SIGKILL)", EmulationError, "ended by SIGKILL; its last words: none$"),
        ("print('no event')", EmulationError, "which is not an event"),
    ],
)
def test_a_run_that_fails_raises_why(
    monkeypatch: pytest.MonkeyPatch, spec: RunSpec, script: str, kind: type[Exception], words: str
) -> None:
    instead(monkeypatch, script)
    with pytest.raises(kind, match=words):
        launch(spec)


def test_a_silent_run_is_ended_and_told(monkeypatch: pytest.MonkeyPatch, spec: RunSpec) -> None:
    instead(monkeypatch, "time.sleep(60)")
    monkeypatch.setattr(launcher, "_SILENCE_S", 0.5)
    with pytest.raises(EmulationError, match=r"^waited 0.5 s for an event of the run"):
        launch(spec)


@pytest.mark.parametrize(("raised", "number"), [(KeyboardInterrupt, "SIGINT"), (ZeroDivisionError, "SIGTERM")])
def test_a_caller_who_leaves_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, spec: RunSpec, tmp_path: Path, raised: type[BaseException], number: str
) -> None:
    ended = tmp_path / "ended"
    catch = (
        f"signal.signal(signal.{number}, lambda *_: (open({str(ended)!r}, 'w').write(str(os.getpid())), sys.exit(1)))\n"
    )
    instead(monkeypatch, catch + "say(Note('go')); time.sleep(60)")

    def leave(event: Event) -> None:
        raise raised

    with pytest.raises(raised):
        launch(spec, leave)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ended.read_text()), 0)


def test_a_run_that_does_not_end_when_told_is_killed(monkeypatch: pytest.MonkeyPatch, spec: RunSpec) -> None:
    instead(monkeypatch, "signal.signal(signal.SIGINT, signal.SIG_IGN); say(Note(str(os.getpid()))); time.sleep(60)")
    monkeypatch.setattr(launcher, "_ENDING_S", 0.5)
    pids: list[int] = []

    def leave(event: Event) -> None:
        assert isinstance(event, Note)
        pids.append(int(event.text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(spec, leave)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_settings_come_before_overrides_and_the_seed_last(spec: RunSpec) -> None:
    prepared = prepare(spec, ["a program"])
    config = prepared.order.config
    assert (config["alone_time"], config["together_time"], config["seed"]) == (1.5, 2.0, 7)
    assert prepared.order.command == ("a program",)
    assert prepared.guest.seed == prepared.config.seed == 7


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"experiment": "isolatoin"}, ConfigError, "isolatoin"),
        ({"engine": "quantum"}, UsageError, r"^engine 'quantum': does not exist; use one of namespace, virtual$"),
        ({"settings": {"alone_time": -1}}, ConfigError, "alone_time"),
        ({"memory_bytes": 1}, UsageError, "--memory is for --engine virtual"),
        ({"engine": "virtual", "rate": "calibrated"}, UsageError, "virtual time carries any rate"),
        ({"directory": Path("/tmp")}, UsageError, "already exists"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], kind: type[Exception], words: str
) -> None:
    instead(monkeypatch, "raise SystemExit(9)")
    with pytest.raises(kind, match=words):
        launch(RunSpec(**{"experiment": "isolation", **changes}))  # type: ignore[arg-type]


def test_a_directory_that_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="is not a finished run"):
        load(tmp_path)


def test_a_killed_caller_takes_the_run_with_it(tmp_path: Path) -> None:
    """The first process of the run, before it enters anything: it waits for its order on a stdin that stays open."""
    child_script = (
        "import sys, time; from fabric.world.isolation.processes import die_with; die_with(int(sys.argv[1]));"
        "print(1, flush=True); time.sleep(60)"
    )
    script = (
        "import subprocess, sys, os\n"
        f"command = [sys.executable, '-c', {child_script!r}, str(os.getpid())]\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    child = int(caller.stdout.readline())
    caller.send_signal(signal.SIGKILL)
    caller.communicate(timeout=60)
    until(lambda: not is_alive(child), "the child to die with its parent")


def test_a_figure_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    for name, value in (("manifest", {"format_version": 2}), ("fabric", {}), ("summary", {})):
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    with pytest.raises(ResultError, match=r"^figure 'topolgy': does not exist; there are .*topology"):
        load(tmp_path).figure("topolgy")
