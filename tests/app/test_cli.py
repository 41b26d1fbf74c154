"""The command: what it prints, what it refuses, and with which exit code. No test here makes a world."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import benchmarks, cli
from app.cli import main
from app.commands import catalogue, listing
from fabric.errors import FabricError
from fabric.model.lanes import QueueConfig
from fabric.world.engine import Engine
from fabric.world.engines import ENGINES, NAMESPACE
from runs.config import queues_of, split_fabric_settings
from runs.launching import launcher
from runs.launching.spec import Prepared
from runs.registry import EXPERIMENTS

SMALL = "fire_flyer_2_small"
COMMANDS = (
    *catalogue.COMMANDS,
    "topo list",
    "topo show",
    "topo loops",
    "topo draw",
    "virtual build",
    "virtual list",
    "virtual export",
)


class EnteredError(Exception):
    """Raised where this process would have been replaced by a world's."""


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments with which a world would have been entered."""
    found: list[list[str]] = []

    def enter(engine: Engine, command: Sequence[str], *_: object) -> None:
        found.append(list(command)[3:])  # What follows python -m MODULE.
        raise EnteredError

    for engine in ENGINES.values():
        monkeypatch.setattr(type(engine), "enter", enter)
    return found


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> list[Prepared]:
    """The runs that would have been played."""
    found: list[Prepared] = []

    def play(prepared: Prepared, report: object) -> None:
        found.append(prepared)
        raise EnteredError

    monkeypatch.setattr(launcher, "play", play)
    return found


@pytest.fixture(autouse=True)
def _no_world(entered: list[list[str]], ordered: list[Prepared]) -> None:
    """Keep every test of this file from replacing the process that runs it."""


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """Return the words with which a command ends with ``code``."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    return err.removeprefix("error: ").rstrip("\n")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command prints that ends well."""
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


# Use ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: fabric {command}")


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    words = capsys.readouterr().out.split()
    assert {command.split()[0] for command in COMMANDS} <= set(words)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["topo"],
        ["topo", "show"],
        ["topo", "draw", SMALL],
        ["check"],
        ["run"],
        ["run", "isolation", "--engine", "quantum"],
        ["run", "isolation", "--seed", "one"],
        ["path", SMALL, "z0h000"],
        ["path", SMALL, "z0h000", "z0h001", "--level", "gossip"],
        ["exec", SMALL, "--", "ls"],
        ["shell", SMALL, "--queueing", "none"],
        ["compare"],
        ["list", "everything"],
    ],
    ids=" ".join,
)
def test_wrong_use_ends_with_2_and_says_how_to_use_it(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: fabric")


def test_the_program_after_two_dashes_is_not_read_as_ours() -> None:
    split = cli._split_at_dashes
    assert split(["exec", "t", "h", "--", "ls", "--help", "--", "x"]) == (
        ["exec", "t", "h"],
        ["ls", "--help", "--", "x"],
    )
    assert split(["list"]) == (["list"], [])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (FabricError("value [red] of a [list]"), 1, "error: value [red] of a [list]\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, words: str
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(listing, "list_experiments", fail)
    assert main(["list"]) == code
    assert capsys.readouterr().err == words


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    script = "import sys; from app.cli import main; sys.exit(main(['topo', 'show', 'fire_flyer_2', '--json']))"
    command = f'{sys.executable} -c "{script}" | true; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr


# Topologies -----------------------------------------------------------------------------------------------------------


def test_a_topology_is_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(answer(capsys, "topo", "show", "fire_flyer_2", "--json"))
    assert {
        "name": "fire_flyer_2",
        "zones": 2,
        "leaves": 80,
        "spines": 40,
        "cores": 0,
        "inter_zone_switches": 2,
        "switches": 122,
        "compute": 1200,
        "storage": 180,
        "hosts": 1380,
        "nics": 1560,
        "links": 1560 + 1600 + 40,
        "inter_zone_links": 40,
        "access_ports": 1600,
        "nic_rate_bps": 200_000_000_000,
    }.items() <= shown.items()
    assert shown["oversubscription"] == pytest.approx(20 / 20)
    assert shown["bisection_bps"] > 0


def test_a_topology_is_shown_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer(capsys, "topo", "show", SMALL)
    assert SMALL in shown
    assert "Port budget" in shown


def test_a_topology_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "a.svg"
    assert answer(capsys, "topo", "draw", SMALL, "-o", str(out)) == f"drawn: {out}\n"
    assert "<svg" in out.read_text()


@pytest.mark.parametrize("command", [["topo", "show"], ["check"], ["shell"]])
def test_a_topology_that_is_none_names_the_nearest(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    words = "no such topology file or builtin; did you mean 'fire_flyer_2'?"
    assert refusal(capsys, *command, "fire_flyer_3") == f"fire_flyer_3: {words}"


# Checks ---------------------------------------------------------------------------------------------------------------


def write(path: Path, source: Path, **changes: Any) -> str:
    path.write_text(yaml.safe_dump({**yaml.safe_load(source.read_text()), **changes}))
    return str(path)


TOPOLOGY = Path(cli.__file__).parent.parent / "topologies" / f"{SMALL}.yaml"


@pytest.mark.parametrize("name", [SMALL, f"topologies/{SMALL}.yaml", str(TOPOLOGY)])
def test_a_good_topology_is_good(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert answer(capsys, "check", name) == f"{name}: good; 28 hosts, 18 switches\n"


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_of_the_project_is_good(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for file in (name, str(EXPERIMENTS[name].file)):
        assert answer(capsys, "check", file).startswith(f"{file}: good; experiment {name} on ")


def test_a_good_file_with_a_long_name_is_told_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / f"{'long' * 25}.yaml", TOPOLOGY)
    assert answer(capsys, "check", path) == f"{path}: good; 28 hosts, 18 switches\n"


def test_all_faults_of_a_topology_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", TOPOLOGY, nic_rate="20 Mb", leafs_per_zone=4, mtu="big")
    assert refusal(capsys, "check", path).splitlines() == [
        f"{path}: nic_rate: '20 Mb': unknown unit 'Mb' of a rate; use one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s",
        f"{path}: mtu: Input should be a valid integer (got 'big')",
        f"{path}: leafs_per_zone: unknown key; did you mean 'leaves_per_zone'?",
    ]


def test_all_faults_of_an_experiment_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", EXPERIMENTS["isolation"].file, seed=-1, alone_tme="1 s")
    assert refusal(capsys, "check", path).splitlines() == [
        f"{path}: seed: Input should be greater than or equal to 0 (got -1)",
        f"{path}: alone_tme: unknown key; did you mean 'alone_time'?",
    ]


@pytest.mark.parametrize(("text", "kind"), [("", "NoneType"), ("- a\n", "list")])
def test_a_file_without_keys_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, kind: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert refusal(capsys, "check", str(path)) == f"{path}: holds a {kind}; expected a mapping of keys to values"


# Experiments ----------------------------------------------------------------------------------------------------------


def test_experiments_are_listed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = answer(capsys, "list").splitlines()
    width = max(map(len, EXPERIMENTS))
    assert lines == [f"{experiment.name:<{width}}  {experiment.question}" for experiment in EXPERIMENTS.values()]
    assert json.loads(answer(capsys, "list", "--json")) == {
        "experiments": [{"name": one.name, "question": one.question} for one in EXPERIMENTS.values()]
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_an_experiment_names_is_there(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.load_config().model_fields["seed"]
    assert callable(experiment.load_run())
    assert experiment.load_tables() or experiment.tables is None
    assert experiment.load_figures() or experiment.figures is None


def test_an_unknown_experiment_names_the_nearest(capsys: pytest.CaptureFixture[str], entered: list[object]) -> None:
    others = "(fabric list shows all; a YAML file or the folder of an experiment will do, too)"
    words = "unknown experiment 'isolatoin': did you mean 'isolation'? "
    assert refusal(capsys, "run", "isolatoin") == words + others
    assert refusal(capsys, "run", "zzz") == f"unknown experiment 'zzz': {others}"
    assert entered == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "seed"], "--set: 'seed' is not a setting; write it like duration=5s or topology.mtu=1500"),
        (["--set", "seed=[1"], "--set: 'seed=[1': '[1' is not YAML; put it in quotes"),
        (
            ["--set", "topology=fire_flyer_3"],
            "fire_flyer_3: no such topology file or builtin; did you mean 'fire_flyer_2'?",
        ),
        (
            ["--memory", "8GiB"],
            "--memory is for --engine virtual; a run in real time uses this machine's memory: omit it",
        ),
        (
            ["--set", "queues.jitter=1"],
            "queues.jitter is for virtual time (--engine virtual); real time has its own jitter: set it to 0",
        ),
        (
            ["--out", "/run/x"],
            "--out /run/x: /run is private to a run and removed with it; give a path elsewhere",
        ),
        (
            ["--out", "/tmp"],
            "--out /tmp: already exists, and results are never overwritten; give a new name",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_a_world_is_made(
    capsys: pytest.CaptureFixture[str], entered: list[object], arguments: list[str], words: str
) -> None:
    assert refusal(capsys, "run", "isolation", *arguments) == words
    assert entered == []


@pytest.mark.parametrize(
    "command",
    [
        ["run", "isolation", "--set", "topology=fire_flyer_2"],
        ["path", "fire_flyer_2", "z0h000", "z1h000", "--probe"],
        ["exec", "fire_flyer_2", "z0h000", "--", "true"],
        ["shell", "fire_flyer_2"],
        ["validate", "fire_flyer_2", "--quick"],
    ],
    ids=lambda command: command[0],
)
def test_a_guest_too_small_for_its_fabric_is_refused_before_it_starts(
    capsys: pytest.CaptureFixture[str], entered: list[object], command: list[str]
) -> None:
    place = command.index("--") if "--" in command else len(command)
    told = refusal(capsys, *command[:place], "--engine", "virtual", "--memory", "1GiB", *command[place:])
    assert re.search(
        r"1380 hosts, 3200 links\) needs some .* GiB of memory .* would have 1.0 GiB.*: --memory \d+GiB", told
    )
    assert entered == []


def test_a_run_is_ordered_with_its_directory_chosen(
    ordered: list[Prepared], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnteredError):
        main(["run", "isolation", "--seed", "3", "--set", "alone_time=1s"])
    (prepared,) = ordered
    assert (prepared.order.config["alone_time"], prepared.order.config["seed"]) == (1.0, 3)
    assert prepared.order.command == ("fabric", "run", "isolation", "--seed", "3", "--set", "alone_time=1s")
    assert (prepared.guest.seed, prepared.engine) == (3, NAMESPACE)
    assert Path(prepared.order.directory).parent == tmp_path / "results"
    assert Path(prepared.order.directory).name.startswith("isolation-")


def test_a_directory_that_was_asked_for_is_told_whole(
    ordered: list[Prepared], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnteredError):
        main(["run", "isolation", "--out", "mine"])
    assert ordered[0].order.directory == str(tmp_path / "mine")


# Programs on hosts ----------------------------------------------------------------------------------------------------


def test_exec_without_a_program_says_where_to_write_it(
    capsys: pytest.CaptureFixture[str], entered: list[object]
) -> None:
    words = "no program; write it after two dashes: fabric exec TOPOLOGY HOST... -- PROGRAM"
    assert refusal(capsys, "exec", SMALL, "z0h000") == words
    assert refusal(capsys, "exec", SMALL, "z0h000", "--") == words
    assert entered == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--", "nosuchprogram"], "program 'nosuchprogram': is not on the PATH; give its path, or for a shell's own"),
        (["--", "./nosuch"], "program ./nosuch: does not exist; paths are this machine's"),
        (["--", str(Path(__file__))], f"program {Path(__file__)}: cannot be executed; chmod +x it"),
        (["--background", "z0h001=iperf4 -s", "--", "true"], "program 'iperf4': is not on the PATH"),
        (["--capture", "z9l00:1=a.pcap", "--", "true"], "--capture 'z9l00:1' is not a port; write it like z0l03:7; "),
        (["--capture", "z0l00:99=a.pcap", "--", "true"], "--capture 'z0l00:99' is not a port; write it like z0l03:7; "),
        (
            ["--capture", "z0l00:1=/nowhere/a", "--", "true"],
            "--capture 'z0l00:1=/nowhere/a': directory /no",
        ),
        (
            ["--record", "/nowhere/a.goal", "--", "true"],
            "--record /nowhere/a.goal: directory /nowhere does not exist; make",
        ),
    ],
)
def test_exec_refuses_what_is_not_there_before_a_fabric_comes_up(
    capsys: pytest.CaptureFixture[str], entered: list[object], words: list[str], why: str
) -> None:
    assert refusal(capsys, "exec", SMALL, "z0h000", *words).startswith(why)
    assert entered == []


def test_a_program_that_cannot_be_recorded_is_refused_before_a_fabric_comes_up(
    capsys: pytest.CaptureFixture[str], entered: list[object], tmp_path: Path
) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }")
    static = tmp_path / "static"
    subprocess.run(["cc", "-static", "-o", static, tmp_path / "program.c"], check=True, timeout=60)
    record = ["--record", str(tmp_path / "a.goal")]
    what = (
        f"{record[1]}: {static} is linked statically, so its sockets cannot be watched; give a program that is linked"
    )
    assert refusal(capsys, "exec", SMALL, "z0h000", *record, "--", str(static)).startswith(f"--record {what}")
    background = ["--background", f"z0h001={static}"]
    assert refusal(capsys, "exec", SMALL, "z0h000", *record, *background, "--", "true").startswith(f"--record {what}")
    assert entered == []


@pytest.mark.parametrize("command", [["run", "isolation"], ["shell", SMALL]])
def test_a_capture_of_a_port_that_is_none_is_refused_before_a_fabric_comes_up(
    capsys: pytest.CaptureFixture[str], entered: list[object], ordered: list[Prepared], command: list[str]
) -> None:
    told = refusal(capsys, *command, "--capture", "z9l00:1=a.pcap")
    assert told.endswith("fire_flyer_2_small has no 'z9l00'; there are z0l00 to z1l03")
    assert (entered, ordered) == ([], [])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["topolgy=x"], "--set topolgy=x: topolgy: unknown key; did you mean 'topology'?"),
        (["queus.shared_limit=10"], "--set queus.shared_limit=10: the config has no 'queus'; did you mean 'queues'?"),
        (
            ["topology.placemen=packed", "seed=2"],
            "--set topology.placemen=packed: topology: placemen: unknown key; did you mean 'placement'?",
        ),
        (
            ["queues.lanes.strage.share=0.2"],
            "--set queues.lanes.strage.share=0.2: queues.lanes has no 'strage'; did you mean 'storage'? (a new one "
            "needs service_levels, too)",
        ),
        (
            ["alone_tme=1", "sed=2"],
            "--set: alone_tme: unknown key; did you mean 'alone_time'?\n--set: sed: unknown key; did you mean 'seed'?",
        ),
        (
            ["topology=head_of_line"],
            "--set topology=head_of_line: topology.storage: 0 storage nodes, but the experiment ",
        ),
        (
            ["failures=[{link: z0l00-z0s99, at: 1 s, for: 1 s}]"],
            "--set failures=[{link: z0l00-z0s99, at: 1 s, for: 1 s}]: failures.0.link: fire_flyer_2_small has no "
            "'z0s99'; there are z0s00 to z0s03",
        ),
    ],
)
def test_a_wrong_setting_is_blamed_and_not_the_file(
    capsys: pytest.CaptureFixture[str], ordered: list[Prepared], settings: list[str], told: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert told in refusal(capsys, "run", "isolation", *words)
    assert ordered == []


def test_faults_of_the_file_stay_the_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", EXPERIMENTS["isolation"].file, alone_tme="1 s")
    assert refusal(capsys, "run", path, "--set", "seed=2") == (
        f"{path}: alone_tme: unknown key; did you mean 'alone_time'?"
    )
    assert refusal(capsys, "run", path, "--set", "sed=2").splitlines() == [
        f"{path}: alone_tme: unknown key; did you mean 'alone_time'?",
        f"{path}: sed: unknown key; did you mean 'seed'? (by --set)",
    ]


@pytest.mark.parametrize("host", ["z0h999", "z0l00", "nobody"])
def test_exec_on_a_host_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], entered: list[object], host: str
) -> None:
    words = refusal(capsys, "exec", SMALL, "z0h000", host, "--", "ls")
    assert words == f"{SMALL}: no host {host!r}; hosts run from z0h000 to st003"
    assert entered == []


@pytest.mark.parametrize("command", ["exec", "shell", "validate"])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "queues.lanes.storage.shar=0.2",
            "--set queues.lanes.storage.shar=0.2: lanes.storage.shar: unknown key; did you mean 'lanes.storage.share'?",
        ),
        (
            "queues.lanes.strage.share=0.2",
            "--set queues.lanes.strage.share=0.2: queues.lanes has no 'strage'; did you mean 'storage'? (a new one "
            "needs service_levels, too)",
        ),
        (
            "queues.lanes.storage.share=0.9",
            "--set queues.lanes.storage.share=0.9: shares add up to 1.550, above 1; lower some",
        ),
        ("queues.shared_limit=1000", "queues.shared_limit: 1000 B is less than a full frame of 4214 B"),
        ("topology.placemen=packed", "--set placemen=packed: placemen: unknown key; did you mean 'placement'?"),
    ],
)
def test_queues_and_topology_are_set_as_for_a_run_and_refused_before_a_world_is_made(
    capsys: pytest.CaptureFixture[str],
    entered: list[object],
    command: str,
    setting: str,
    words: str,
) -> None:
    hosts, program = (["z0h000"], ["--", "ls"]) if command == "exec" else ([], [])
    assert words in refusal(capsys, command, SMALL, *hosts, "--set", setting, *program)
    assert entered == []


def test_settings_of_queues_change_the_default_ones_and_no_other() -> None:
    default, settings = QueueConfig(), ["placement=packed", "queues.lanes.storage.share=0.2", "topology.mtu=1500"]
    assert queues_of([]) == default
    found = queues_of(settings)
    assert found.lanes["storage"] == default.lanes["storage"].model_copy(update={"share": 0.2})
    assert {**found.lanes, "storage": None} == {**default.lanes, "storage": None}
    assert split_fabric_settings(settings)[0] == ["placement=packed", "mtu=1500"]


def test_exec_takes_its_program_into_the_world(entered: list[list[str]]) -> None:
    arguments = ["exec", SMALL, "z0h000", "st001", "--first-only", "--", "ls", "--all"]
    with pytest.raises(EnteredError):
        main(arguments)
    assert entered == [arguments]


# Paths ----------------------------------------------------------------------------------------------------------------


def test_a_path_is_told_port_by_port(capsys: pytest.CaptureFixture[str], entered: list[object]) -> None:
    shown = answer(capsys, "path", SMALL, "z0h000", "z0h004")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    hops = [["z0h000:0", "z0l00:1", "hfreduce"], ["z0l00:2", "z0h004:0", "hfreduce"]]
    share_and_load = ["100.0%", "z0h000:0 z0l00:2", "1 at z0l00:2"]
    assert rows == [*hops, share_and_load]
    assert entered == []


def test_a_path_across_zones_takes_an_inter_zone_switch(capsys: pytest.CaptureFixture[str]) -> None:
    hops = json.loads(answer(capsys, "path", SMALL, "z0h000", "z1h000", "--level", "nccl", "--json"))["planned"]
    assert [hop["port"].partition(":")[0][:2] for hop in hops] == ["z0", "z0", "ix", "z1"]
    assert {hop["lane"] for hop in hops} == {"nccl"}


def test_with_one_queue_all_wait_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["path", SMALL, "z0h000", "z0h001", "--queueing", "shared", "--json"]
    assert {hop["lane"] for hop in json.loads(answer(capsys, *arguments))["planned"]} == {"shared"}


def test_storage_is_reached_over_the_nic_in_the_zone(capsys: pytest.CaptureFixture[str]) -> None:
    hops = json.loads(answer(capsys, "path", SMALL, "st000", "z1h000", "--level", "storage", "--json"))["planned"]
    assert hops[0] == {"port": "st000:1", "lane": "storage"}


def test_a_path_to_a_host_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = refusal(capsys, "path", SMALL, "z0h000", "z0h999")
    assert words == f"{SMALL}: no host 'z0h999'; hosts run from z0h000 to st003"


def test_a_probe_needs_a_world(entered: list[list[str]]) -> None:
    arguments = ["path", SMALL, "z0h000", "z0h001", "--probe"]
    with pytest.raises(EnteredError):
        main(arguments)
    assert entered == [arguments]


# Results --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_directory_that_is_no_result_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    words = refusal(capsys, command, str(tmp_path), code=1)
    assert words == f"{tmp_path}/manifest.json: is missing; {tmp_path} is not a finished run's directory"


def test_one_result_is_not_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert refusal(capsys, "compare", str(tmp_path)) == "compare needs at least two result directories"


@pytest.mark.parametrize("percent", ["-1", "five", "nan", "inf"])
def test_a_change_that_is_no_percentage_is_refused(capsys: pytest.CaptureFixture[str], percent: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a", "b", f"--changed={percent}"])
    assert ended.value.code == 2
    assert f"'{percent}' is not a percentage; give a number of 0 or more, e.g. 5" in capsys.readouterr().err


# The doctor -----------------------------------------------------------------------------------------------------------

DEFAULT_RUNS = "experiments can run, by default in the engine virtual"


@pytest.mark.parametrize(
    ("needed", "lines", "code"),
    [
        ((), ["namespace (real time): ready", "virtual (virtual time): ready", DEFAULT_RUNS], 0),
        (
            ("namespace",),
            [
                "namespace (real time): needs unshare",
                "virtual (virtual time): ready",
                DEFAULT_RUNS,
            ],
            0,
        ),
        (
            ("virtual",),
            [
                "namespace (real time): ready",
                "virtual (virtual time): needs unshare",
                "experiments can run with --engine namespace; the default here is virtual (FABRIC_ENGINE changes it)",
            ],
            0,
        ),
        (
            ("namespace", "virtual"),
            [
                "namespace (real time): needs unshare",
                "virtual (virtual time): needs unshare",
                "experiments cannot run yet",
            ],
            1,
        ),
    ],
)
def test_the_doctor_says_which_engines_can_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    needed: tuple[str, ...],
    lines: list[str],
    code: int,
) -> None:
    from app.commands import doctor

    one = doctor.Diagnosis("unshare", False, needed, "a [detail]", "apt-get install util-linux")
    monkeypatch.setattr(doctor, "examine", lambda: [one])
    monkeypatch.setenv("FABRIC_ENGINE", "virtual")
    assert main(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {
        "can_run": code == 0,
        "default": "virtual",
        "engines": {
            engine: {"ready": engine not in needed, "needs": ["unshare"] if engine in needed else []}
            for engine in ENGINES
        },
        "findings": [vars(one) | {"needed": list(needed)}],
    }
    assert main(["doctor"]) == code
    shown = capsys.readouterr().out
    assert shown.splitlines()[-3:] == lines
    assert "a [detail]" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "slow link"], "names no fault"),
        (["--fault", "link z9l00-z0s00 down"], "has no 'z9l00'"),
        (["--pairs", "0"], "--pairs 0"),
        (["--set", "nic_rate=200 Gbit/s"], "--engine virtual"),
    ],
)
def test_validate_refuses_what_cannot_be_before_it_makes_a_world(
    arguments: list[str], words: str, entered: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", SMALL, *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert entered == []


def test_a_benchmark_is_repeated_with_other_seeds(capfd: pytest.CaptureFixture[str]) -> None:
    assert benchmarks.main(["plans", "--topology", "head_of_line", "--repeat", "2"]) == 0
    out, err = (" ".join(text.split()) for text in capfd.readouterr())
    assert "1 of 2 2 of 2" in err
    assert "medians of 2 runs, and their range" in out
    assert re.search(r"│ static │ wait │ \d+ │ 0 │ ", out)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["bench", "inside", "--repeat", "1"], "--repeat 1: must be 2 or more"),
        (["bench", "inside", "--routing", "ecmp"], "bench inside: has a routing of its own; omit --routing"),
        (["run", "isolation", "--repeat", "1"], "--repeat 1: must be 2 or more"),
        (["run", "isolation", "--repeat", str(10**30)], f"--repeat {10**30}: must be 10,000 at most"),
        (
            ["run", "isolation", "--seed", str(2**32 - 2), "--repeat", "3"],
            "--repeat 3: from --seed 4294967294 on there",
        ),
        (["run", "isolation", "--jobs", "2"], "--jobs 2: a single run is one job; it is for --repeat"),
        (["run", "isolation", "--repeat", "2", "--capture", "z0l00:1=a"], "--capture: is for a single run"),
        (["sweep", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["sweep", "nowhere.yaml", "--address", "auto"], "--address auto: is for --on ray; omit it"),
        (["sweep", "nowhere.yaml", "--jobs", "0"], "--jobs 0: must be 1 or more"),
    ],
)
def test_benchmarks_repeats_and_sweeps_that_cannot_be_are_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, *words).startswith(why)
