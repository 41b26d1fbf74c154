"""``fabric trace`` counts and writes traces, and ``fabric replay`` makes a config of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.commands import replay
from app.commands.parsers import CommandParser
from tests.traffic.work.formats.chakra_files import et, node
from tests.traffic.work.formats.reading import SAMPLES, read
from traffic.work.formats.goal import read_goal
from traffic.work.formats.trace import Asked, TraceFile
from traffic.work.operations import CollectiveCall, Send

COLLECTIVE = et(node(1, 7, comm_type=2, comm_size=1000, pg_name="4"))


def files(folder: Path, *names: str, content: bytes = COLLECTIVE) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in names]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["trace", "show", "--json", *words]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_files_are_ranks_in_the_order_of_the_number_in_which_their_names_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text('{"4": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}')
    names = [f"step2_rank{rank}_of11.et" for rank in range(11)]
    paths = files(tmp_path / "a", *names)
    (trace,) = shown(capsys, *reversed(paths), "--groups", str(groups))
    assert (trace["ranks"], trace["source"], trace["faults"]) == (11, paths[0], [])
    (same,) = shown(capsys, str(tmp_path / "a" / "*.et"), "--groups", str(groups))
    assert same == trace
    (tmp_path / "a" / "any.json").write_text(groups.read_text())
    (folder,) = shown(capsys, str(tmp_path / "a"))
    assert folder == trace


def test_several_traces_are_format_apart_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(tmp_path, "x1.0.et", "x1.1.et", "x2.0.et", "x2.1.et", "y.7.et", "y.8.et", content=et(node(1, 4)))
    assert [one["ranks"] for one in shown(capsys, *paths)] == [2, 2, 2]
    assert main(["trace", "show", *files(tmp_path, "z.0.et", "z.2.et", content=et(node(1, 4)))]) == 2
    assert "files of ranks 0 to 2, and 1 is missing; give all of them" in capsys.readouterr().err


def test_counts_are_printed_with_what_cannot_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "show", str(SAMPLES / "kineto_dlrm_worker0.json.gz")]) == 0
    printed = capsys.readouterr().out
    assert "Kineto (one rank's, for all), 8 ranks (all do the same)" in printed
    assert "operators of the host, which are in the time between launches" in printed
    assert main(["trace", "show", str(SAMPLES / "stg_dp2tp2pp2.tar.gz")]) == 0
    assert "132 to 140" in capsys.readouterr().out


def test_graphs_are_written_as_goal_and_chakra(tmp_path: Path) -> None:
    ring = SAMPLES / "astrasim_all_gather_4npus.tar.gz"
    assert main(["trace", "write", "goal", str(ring), "--out", str(tmp_path / "ring.goal")]) == 0
    goal = read_goal(TraceFile("ring", (tmp_path / "ring.goal").read_bytes()), Asked()).graph()
    sent = sum(one.size_bytes for one in goal.operations[0] if isinstance(one, Send))
    assert (goal.ranks, sent) == (4, 3 * 2**20)
    assert main(["trace", "write", "chakra", str(ring), "--out", str(tmp_path / "et")]) == 0
    (call,) = read(*((tmp_path / "et" / f"{rank}.et").read_bytes() for rank in range(4))).program(3)
    assert isinstance(call, CollectiveCall)
    assert call.size_bytes == 4 * 2**20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nothing.et"], "nothing.et: cannot be read: No such file or directory"),
        (["show", "no*thing"], "no file matches the pattern"),
        (["show", "README.md"], "is not a trace; there are GOAL"),
        (["show", "README.md", "--ranks", "0"], "--ranks 0: must be 1 to"),
        (["write", "goal", str(SAMPLES / "goal_semantics.goal"), str(SAMPLES / "deepseek_ep64_step.csv"), "--out", "x"],
         "2 traces, and one is written at a time"),
        (["write", "chakra", str(SAMPLES / "goal_semantics.goal"), "--out", __file__], "cannot be made a folder"),
        (["show", str(SAMPLES / "goal_semantics.goal"), "--size", "1MiB"], "--size: is for algorithms of MSCCL, and"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *words]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_options_that_nothing_goes_by_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text('{"4": [0, 1]}')
    goal = str(SAMPLES / "goal_semantics.goal")
    for words in (["--groups", str(groups)], ["--size", "1MiB"]):
        assert main(["trace", "show", goal, *words]) == 2
        assert f"{words[0]}: is for" in capsys.readouterr().err


def test_a_topology_file_and_a_trace_of_nothing_are_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.topo").write_text("Nodes 16\nTiers 2\n")
    assert main(["trace", "show", str(tmp_path / "a.topo")]) == 2
    assert "is a topology file of htsim, and no trace" in capsys.readouterr().err.replace("\n", " ")
    (tmp_path / "b.json").write_text('{"schema": "1.0.2-chakra.0.0.4", "nodes": []}')
    assert main(["trace", "show", str(tmp_path / "b.json")]) == 2
    printed = capsys.readouterr().out
    assert "PyTorch execution trace, 1 rank\n" in printed
    assert "cannot be played: no rank does anything that can be played" in printed
    assert "whole" not in printed


def settings(*words: str) -> dict[str, object]:
    parser = CommandParser(prog="fabric replay")
    replay.add_options(parser)
    return replay._traces(parser.parse_args([*words, "--topology", "fat_tree_k4"]))


def test_options_become_settings(tmp_path: Path) -> None:
    places = tmp_path / "places"
    places.write_text("p0h000\np0h001 p0h002\n")
    first, second = str(SAMPLES / "goal_semantics.goal"), str(SAMPLES / "msccl_a2a2ll.xml.gz")
    found = settings(first, second, "--size", "16MiB", "--flops", "2e14", "--placement", str(places), "--steps", "3")
    assert found == {
        "traces": [
            {"name": "goal_semantics", "files": [first], "size": 2**24},
            {"name": "msccl_a2a2ll", "files": [second], "size": 2**24},
        ],
        "placement": ["p0h000", "p0h001", "p0h002"],
        "flops_per_s": 2e14,
        "steps": 3,
    }
    assert settings(first, "--placement", "spread")["placement"] == "spread"


def test_a_matrix_takes_no_options_of_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "flows.txt"
    matrix.write_text("# by hand\nNodes 2\nConnections 1\n0->1 id 1 start 0 size 100\n")
    assert replay._is_matrix(matrix)
    assert main(["replay", str(matrix), "--topology", "fat_tree_k4", "--ranks", "2"]) == 2
    assert "--ranks: is for traces with ranks" in capsys.readouterr().err


def test_a_trace_that_cannot_be_played_is_shown_and_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "half.goal"
    path.write_text("num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 3\n}\nrank 1 {\n}\n")
    assert main(["trace", "show", str(path)]) == 2
    assert "cannot be played: rank 0, operation 0" in capsys.readouterr().out.replace("\n", " ")
    assert main(["trace", "show", "--json", str(path)]) == 2
    (trace,) = json.loads(capsys.readouterr().out)
    assert "is never received" in trace["faults"][0]


def test_what_is_too_large_to_be_looked_through_has_a_note_and_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.trace._MOST_CHECKED", 3)
    (found,) = shown(capsys, str(SAMPLES / "goal_semantics.goal"))
    assert found["faults"] == []
    assert "what cannot end was not looked for; say fewer --ranks" in str(found["notes"])


def test_an_error_of_a_trace_names_no_setting_that_nobody_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = files(tmp_path, "x.0.et", "x.1.et", content=et(node(1, 4, duration=5)))
    assert main(["replay", *paths, "--topology", "fat_tree_k4"]) == 2
    told = capsys.readouterr().err
    assert f"{paths[0]}: none of its 2 ranks sends anything" in told
    assert "--set" not in told
