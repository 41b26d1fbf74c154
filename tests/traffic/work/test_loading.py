"""Graphs in files: what is written is read back equal, and what is wrong is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.errors import ConfigError
from traffic.work.graph import WorkGraph
from traffic.work.graph_lines import graph_of_lines, lines_of
from traffic.work.loading import OTHER_READERS, load_graph
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Receive, Send

ALL = WorkGraph(
    "all",
    (
        (
            Compute(flops=1e12, stream="compute", name="a", measured_s=0.5),
            Send(peer=1, size_bytes=3, tag=2, after=(0,), after_start=(0,)),
            FileRead(path="/a", offset_bytes=1, size_bytes=2),
        ),
        (
            Receive(peer=0, size_bytes=3, tag=2),
            CollectiveCall(collective="all_to_all_v", size_bytes=3, group="one", sent_bytes=(3,), dtype="fp8"),
            FileWrite(path="/a", offset_bytes=1, size_bytes=2),
        ),
    ),
    {"one": (1,)},
)


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join(lines_of(ALL)) + "\n\n")
    assert load_graph(path) == ALL
    assert load_graph(path) is load_graph(path), "several ask for it"


HEAD = '{"work_graph": "g", "ranks": 2}\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"work_graph": "g"}', 'line 1: give "work_graph", a name, and "ranks", 1 to 1,000,000'),
        ('{"work_graph": "g", "ranks": 10000000000}', 'line 1: give "work_graph", a name, and "ranks", 1 to 1,000,000'),
        ('{"work_graph": "g", "ranks": true}', 'line 1: give "work_graph", a name, and "ranks", 1 to 1,000,000'),
        ('{"work_graph": "g", "ranks": 2, "groups": [1]}', "line 1: groups [1]: write {"),
        ('{"work_graph": "g", "ranks": 2, "groups": {"a": 1}}', "line 1: group a 1: give a list of ranks"),
        ('{"work_graph": "g", "ranks": 2, "groups": {"a": ["0"]}}', "line 1: group a ['0']: give a list of ranks"),
        (HEAD + "x", "line 2: is not JSON: Expecting value"),
        (HEAD + "[1]", "line 2: is not an object of JSON"),
        (HEAD + '{"rank": 2, "kind": "send"}', "line 2: rank 2: ranks are 0 to 1"),
        (HEAD + '{"rank": 0, "kind": "sent"}', "line 2: kind 'sent': use one of compute, send, receive"),
        (HEAD + '{"rank": 0, "kind": "send", "peer": 1}', "line 2: send needs size_bytes"),
        (HEAD + '{"rank": 0, "kind": "compute", "time": 1}', "line 2: compute has no time; it has after, after_start"),
        (HEAD + '{"rank": 0, "kind": "compute", "after": [1.5]}', "line 2: after [1.5]: give a list"),
        (HEAD + '{"rank": 0, "kind": "compute"}', "line 2: compute needs duration_s or flops, and says neither; write"),
        (HEAD + '{"rank": 0, "kind": "compute", "flops": 0}', "line 2: compute needs duration_s or flops, and says"),
        (HEAD + '{"rank": 0, "kind": "compute", "flops": "1"}', "line 2: flops '1': give float"),
        (HEAD + '{"rank": 0, "kind": "compute", "stream": null}', "line 2: stream None: give str"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        graph_of_lines("g.jsonl", text.splitlines())
    assert str(error.value).startswith(f"g.jsonl: {fault}")


def test_other_formats_are_asked_for_and_what_nobody_knows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other"
    path.write_text("other")
    with pytest.raises(ConfigError, match='is not a graph: its first line has no "work_graph"'):
        load_graph(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load_graph(tmp_path / "none")
    monkeypatch.setattr("traffic.work.loading.OTHER_READERS", [*OTHER_READERS, lambda one: ALL])
    assert load_graph(path) == ALL


def test_a_folder_is_one_trace_and_nothing_of_it_is_left_out_in_silence(tmp_path: Path) -> None:
    text = "\n".join(lines_of(ALL))
    (tmp_path / "a.jsonl").write_text(text)
    assert load_graph(tmp_path).operations == ALL.operations
    (tmp_path / "broken.goal").write_text("rank 0 {")
    words = r"holds a trace and other files: broken.goal; name the trace's file \(a.jsonl\), or move them"
    with pytest.raises(ConfigError, match=words):
        load_graph(tmp_path)
    (tmp_path / "broken.goal").write_text(text)
    with pytest.raises(ConfigError, match="holds 2 traces, and a job plays one; name the files of one"):
        load_graph(tmp_path)
