"""Parts of running without a world: directories, captures, probes' plans, and what programs are told of each other."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import main
from app.commands import exec_program, path
from app.commands.probe import Packets, planned_hops
from controllers.planning.paths import nics_for
from controllers.planning.routes import plan_static_routes
from fabric.errors import ResultError, TopologyError, UsageError
from fabric.model.identity import NodeId
from fabric.model.lanes import QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.world import inside
from runs.captures import captures
from runs.launching.finish import publish
from runs.launching.spec import choose_directory
from topologies.load import load_fabric
from traffic.programs.environment import own_environment, programs_environment

SMALL = load_fabric("fire_flyer_2_small")


def node(name: str) -> NodeId:
    return NodeId.parse(name)


# Directories ----------------------------------------------------------------------------------------------------------


def test_a_directory_that_was_asked_for_is_taken_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose_directory(Path("a/b"), "isolation") == tmp_path / "a" / "b"


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        choose_directory(tmp_path, "isolation")
    words = "already exists, and results are never overwritten; give a new name"
    assert str(refused.value) == f"--out {tmp_path}: {words}"


def draft(directory: Path) -> Path:
    (directory / "samples").mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    (directory / "samples" / "steps.parquet").write_bytes(b"PAR1")
    return directory


def test_a_result_is_published_whole(tmp_path: Path) -> None:
    target = tmp_path / "results" / "mine"
    publish(draft(target.with_name("mine.partial")), target)
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == {
        "manifest.json",
        "samples",
        "samples/steps.parquet",
    }
    assert [path.name for path in target.parent.iterdir()] == ["mine"]


def test_a_directory_that_came_into_being_meanwhile_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    with pytest.raises(ResultError) as refused:
        publish(draft(tmp_path / "draft"), target)
    assert str(refused.value) == f"{target}: was created by somebody else during the run"
    assert list(target.iterdir()) == []


def test_a_copy_cut_off_is_not_under_the_results_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.handover._hand_over", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match=r"^disk full$"):
        publish(draft(tmp_path / "draft"), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


# Captures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("z0l00:1", "--capture 'z0l00:1': write PORT=FILE, e.g. z0l03:7=leaf.pcap"),
        ("z0l00:1=", "--capture 'z0l00:1=': write PORT=FILE, e.g. z0l03:7=leaf.pcap"),
        (
            "z9l00:1=a.pcap",
            "--capture 'z9l00:1' is not a port; write it like z0l03:7; fire_flyer_2_small has no 'z9l00'; there are "
            "z0l00 to z1l03",
        ),
    ],
)
def test_a_capture_that_cannot_be_is_refused_before_any_is_started(text: str, words: str) -> None:
    emulation: Any = SimpleNamespace(fabric=SMALL, net={"z0l00": SimpleNamespace(prefix=list)})
    with pytest.raises(UsageError) as refused, captures(emulation, ["z0l00:2=b.pcap", text]):
        pytest.fail("the block ran")
    assert str(refused.value) == words


# Probes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "destination", "ips"),
    [
        ("z0h000", "z0h001", ("10.0.0.1", "10.0.0.2")),
        ("z0h000", "z1h000", ("10.0.0.1", "10.1.0.1")),
        ("z1h000", "st002", ("10.1.0.1", "10.129.0.3")),
        ("st002", "z1h000", ("10.129.0.3", "10.1.0.1")),
        ("st000", "st001", ("10.128.0.1", "10.128.0.2")),
    ],
)
def test_hosts_talk_over_nics_in_the_same_zone_where_they_can(
    source: str, destination: str, ips: tuple[str, str]
) -> None:
    nics = nics_for(SMALL, node(source), node(destination))
    assert (nics[0].ip, nics[1].ip) == ips


def test_a_plan_is_told_as_ports_and_lanes() -> None:
    lanes = plan_lanes(QueueConfig(), Queueing.LANES)
    nics = nics_for(SMALL, node("z0h000"), node("z0h001"))
    hops = planned_hops(plan_static_routes(SMALL), SMALL, lanes, Packets.of_probe(nics, ServiceLevel.STORAGE))
    assert [hop.lane for hop in hops] == ["storage"] * 4
    assert hops[0].port == nics[0].port
    assert [SMALL.peer(hop.port).node for hop in hops[:-1]] == [hop.port.node for hop in hops[1:]]
    assert SMALL.peer(hops[-1].port) == nics[1].port


# Programs on hosts ----------------------------------------------------------------------------------------------------


def test_programs_are_told_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "RUN_DIR", tmp_path)
    hosts = [node("z0h000"), node("st001"), node("z1h002")]
    told = programs_environment(SMALL, hosts) | own_environment(SMALL, hosts, 0)
    assert told["FABRIC_HOSTS"] == "z0h000,st001,z1h002"
    assert told["FABRIC_ADDRESSES"] == "10.0.0.1,10.128.0.2,10.1.0.3"
    assert (told["WORLD_SIZE"], told["MASTER_ADDR"]) == ("3", "10.0.0.1")
    assert Path(told["FABRIC_HOSTFILE"]).read_text() == "z0h000 slots=1\nst001 slots=1\nz1h002 slots=1\n"
    assert Path(told["HYDRA_HOST_FILE"]).read_text() == "z0h000\nst001\nz1h002\n"
    agents = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC")
    assert {told[name] for name in agents} == {told["FABRIC_RSH"]} == {"/run/fabric/bin/ssh"}


def test_a_program_is_told_the_addresses_by_which_its_host_reaches_the_others() -> None:
    hosts = [node("st001"), node("z0h000"), node("z1h002")]
    told = [own_environment(SMALL, hosts, rank) for rank in range(3)]
    assert [one["MASTER_ADDR"] for one in told] == ["10.128.0.2", "10.128.0.2", "10.129.0.2"]
    assert told[2]["FABRIC_ADDRESSES"] == "10.129.0.2,10.0.0.1,10.1.0.3"
    assert [(one["FABRIC_HOST"], one["FABRIC_RANK"]) for one in told] == [
        ("st001", "0"),
        ("z0h000", "1"),
        ("z1h002", "2"),
    ]


def test_a_program_beside_is_written_with_its_host() -> None:
    host, command = exec_program._background(SMALL, "z0h003=iperf3 -s --title 'a b'")
    assert (host, command) == (node("z0h003"), ["iperf3", "-s", "--title", "a b"])


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("iperf3 -s", UsageError, "--background 'iperf3 -s': write HOST=COMMAND, e.g. z0h003='iperf3 -s'"),
        (
            "z0h003=",
            UsageError,
            "--background 'z0h003=': names no program; write HOST=COMMAND, e.g. z0h003='iperf3 -s'",
        ),
        ("z0h003=a 'b", UsageError, '--background "z0h003=a \'b": No closing quotation; quotes must be closed'),
        ("z9h000=ls", TopologyError, "fire_flyer_2_small: no host 'z9h000'; hosts run from z0h000 to st003"),
    ],
)
def test_a_program_beside_that_cannot_be_is_refused(text: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as refused:
        exec_program._background(SMALL, text)
    assert str(refused.value) == words


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "0 ms", "soon"])
def test_a_timeout_that_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_code("exec", "fire_flyer_2_tiny", "z0h000", "--timeout", text, "--", "true") == 2
    why = "'soon' is not a time; write it like '50 ms'" if text == "soon" else ": give a time above 0, e.g. '10 min'"
    said = capsys.readouterr().err
    assert "argument --timeout" in said and why in said


def main_code(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_a_path_that_was_not_taken_is_shown_as_nowhere() -> None:
    lanes = plan_lanes(QueueConfig(), Queueing.LANES)
    nics = nics_for(SMALL, node("z0h000"), node("z0h001"))
    planned = planned_hops(plan_static_routes(SMALL), SMALL, lanes, Packets.of_probe(nics, ServiceLevel.NCCL))
    table = path._hops_table(SMALL, planned, planned[:2], "")
    assert table.row_count == len(planned)
    assert list(table.columns[3].cells) == [str(planned[0].port), str(planned[1].port), "nowhere", "nowhere"]
    assert list(table.columns[4].cells) == ["nccl", "nccl", "", ""]


def test_the_options_of_a_path_are_those_that_the_command_gives(capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(source="z0h000", destination="z0h004", level="other", queueing="lanes", json=True)
    vars(options).update(
        rail=None, routing="ecmp", repair="reroute", down=["z0l00:5"], overrides=[], flow=None, queue_pair=None
    )
    assert path.print_path(SMALL, options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {hop["lane"] for hop in answer["planned"]} == {"other"}
    assert [path["share"] for path in answer["paths"]] == [1.0]
    assert answer["destinations_by_port"]["z0l00:5"] == 0
    assert answer["destinations_by_port"]["z0l00:6"] > 0
    assert answer["cuts"] == {}


FAT_TREE = ("path", "fat_tree_k4", "z0h000", "z0h012", "--routing", "ecmp")


def test_the_path_of_a_queue_pair_is_that_of_its_udp_port(capsys: pytest.CaptureFixture[str]) -> None:
    """As Linux' rdma_get_udp_sport computes it: 17 x 18 is 0x132, and so is the port behind 0xc000."""

    def answer(*words: str) -> Any:
        assert main([*FAT_TREE, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    by_pair, by_port = answer("--queue-pair", "17:18"), answer("--flow", "udp:49458:4791")
    assert by_pair["flow"] == {"protocol": "udp", "source_port": 0xC000 + 17 * 18, "destination_port": 4791}
    assert by_pair == by_port
    assert answer("--queue-pair", "17:18:5")["flow"]["source_port"] == 0xC005
    ways = {answer("--flow", f"tcp:{port}:5201")["planned"][2]["port"] for port in range(40000, 40024)}
    assert ways == {"z0s00:3", "z0s00:4", "z0s01:3", "z0s01:4"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--queue-pair", "17"), "--queue-pair 17: give 2 or 3 numbers with colons between"),
        (("--queue-pair", "17:x"), "--queue-pair 17:x: give 2 or 3 numbers with colons between"),
        (("--queue-pair", "17:16777216"), "--queue-pair 17:16777216: 16777216 is not between 1 and 16777215"),
        (("--flow", "sctp:1:2"), "--flow sctp:1:2: no protocol 'sctp' here; begin it with tcp: or udp:"),
        (("--flow", "tcp:1:70000"), "--flow tcp:1:70000: 70000 is not between 1 and 65535"),
        (("--flow", "udp:1"), "--flow udp:1: give 2 numbers with colons between"),
    ],
)
def test_a_flow_that_cannot_be_is_refused(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAT_TREE, *words]) == 2
    assert why in capsys.readouterr().err
