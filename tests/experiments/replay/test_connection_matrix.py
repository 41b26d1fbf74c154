"""htsim's connection matrices: what is read, and what cannot be played."""

from __future__ import annotations

import pytest

from experiments.replay.connection_matrix import End, Firing, TriggerKind, read_matrix
from fabric.errors import ConfigError
from runs.registry import EXPERIMENTS, resolve
from tests.experiments.replay.htsim import INCAST, PERMUTATION

HEADER = "Nodes 4\nConnections 2\nTriggers 1\n"


def matrix(*lines: str, triggers: int = 0) -> str:
    connections = sum("->" in line for line in lines)
    return "\n".join([f"Nodes 4\nConnections {connections}\nTriggers {triggers}", *lines])


def test_htsims_own_files_are_read() -> None:
    found = read_matrix(PERMUTATION.read_text(), "perm")
    assert found.nodes == len(found.connections) == 16
    first = found.connections[0]
    assert (first.line, first.source, first.sink, first.number, first.start_s) == (3, 7, 5, 1, 0.0)
    assert sorted(one.sink for one in found.connections) == list(range(16))
    assert {one.sink for one in read_matrix(INCAST.read_text(), "incast").connections} == {15}


def test_starts_are_picoseconds() -> None:
    (one,) = read_matrix(matrix("0->1 start 2500000 size 7"), "m").connections
    assert one.start_s == pytest.approx(2.5e-6)


FAULTS = {
    "word": (matrix("0->1 start 0 size 5", "hello"), "line 5: 'hello': 'hello' is neither SOURCE->SINK"),
    "size": (matrix("0->1 start 0"), "line 4: '0->1 start 0': has no size"),
    "endless": (matrix("0->1 start 0 size 0"), "size 0: must be a whole number, 1 or more"),
    "start": (matrix("0->1 size 5"), "line 4: .*needs either a start or a trigger"),
    "both": (matrix("0->1 id 1 start 0 trigger 1 size 5"), "needs either a start or a trigger"),
    "negative": (matrix("0->1 start -1 size 5"), "start -1: must be 0 or more"),
    "number": (matrix("0->1 start soon size 5"), "start soon: is not a number of picoseconds"),
    "host": (matrix("0->4 start 0 size 5"), "line 4: host 4 does not exist; Nodes 4 are 0 to 3"),
    "itself": (matrix("1->1 start 0 size 5"), "line 4: .*a host does not send to itself"),
    "priority": (matrix("0->1 start 0 size 5 prio 3"), "line 4: .*'prio' cannot be played"),
    "key": (matrix("0->1 start 0 size 5 colour 3"), "line 4: .*'colour' is not a key of a connection"),
    "value": (matrix("0->1 start 0 size"), "'size' has no value"),
    "key twice": (matrix("0->1 start 0 start 5 size 5"), "line 4: .*'start' is there twice; keep one of them"),
    "nodes twice": ("Nodes 4\nNodes 5\nConnections 1\n0->1 start 0 size 5", "line 2: 'Nodes 5': Nodes is on line 1"),
    "two nodes": ("Nodes 4 5\nConnections 1\n0->1 start 0 size 5", "Nodes is one number; remove 5"),
    "id twice": (matrix("0->1 start 0 size 5", "trigger id 1 id 2 oneshot", triggers=1), "'id' is there twice"),
    "digits": (matrix(f"0->1 start 0 size {'9' * 400}"), r"size 9{24}... \(400 digits\): must be a whole"),
    "many digits": (matrix(f"0->1 start 0 size {'9' * 5000}"), r"\(5000 digits\): must be a whole number, 1 or more"),
    "a petabyte": (matrix(f"0->1 start 0 size {10**15 + 1}"), "1 or more, and 1,000,000,000,000,000 at most"),
    "late": (matrix("0->1 start 1e19 size 5"), "start 1e19: must be 0 or more, and 1e.18 at most"),
    "host's digits": (matrix(f"{'9' * 5000}->1 start 0 size 5"), r"host 9{24}... \(5000 digits\): must be"),
    "no digit": (matrix("0->1 start 0 size ²"), "size ²: must be a whole number, 1 or more"),
    "failure": (matrix("0->1 start 0 size 5", "failure switch_type TOR"), "line 5: .*failures of switches cannot be"),
    "count": ("Nodes 4\nConnections 2\n0->1 start 0 size 5", "says Connections 2, and has 1"),
    "nodes": ("Connections 1\n0->1 start 0 size 5", "has no line 'Nodes N'"),
    "empty": ("Nodes 4\nConnections 0\n", "has no connections"),
    "unknown trigger": (
        matrix("0->1 start 0 size 5 send_done_trigger 9"), "line 4: trigger 9 does not exist",
    ),
    "kind": (matrix("0->1 start 0 size 5", "trigger id 1", triggers=1), "line 5: .*needs an id and one of oneshot"),
    "barrier": (matrix("0->1 start 0 size 5", "trigger id 1 barrier", triggers=1), "count: is what a barrier needs"),
    "twice": (
        matrix("0->1 start 0 size 5", "trigger id 1 oneshot", "trigger id 1 oneshot", triggers=2),
        "line 6: .*trigger 1 is on line 5, too",
    ),
    "no id": (matrix("0->1 trigger 1 size 5", "trigger id 1 oneshot", triggers=1), "a flow with a trigger needs an id"),
    "never": (
        matrix("0->1 start 0 size 5 recv_done_trigger 1", "1->2 id 2 trigger 1 size 5", "trigger id 1 barrier count 2",
               triggers=1),
        "line 5: never starts: trigger 1 does not fire for it",
    ),
    "circle": (
        matrix("0->1 start 0 size 5", "1->2 id 2 trigger 1 size 5 recv_done_trigger 1", "trigger id 1 oneshot",
               triggers=1),
        "line 5: never starts",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), FAULTS.values(), ids=list(FAULTS))
def test_a_line_that_cannot_be_played_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_matrix(text, "mine.cm")


def test_all_lines_that_cannot_be_played_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_matrix(matrix("0->1 size 5", "2->2 start 0 size 5"), "mine.cm")
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["line 4", "line 5"]


def fired(kind: str, ends: list[tuple[int, End]]) -> list[list[int]]:
    text = matrix(
        "0->1 start 0 size 5 recv_done_trigger 1", "1->2 start 0 size 5 send_done_trigger 1",
        "2->3 id 3 trigger 1 size 5", "3->0 id 4 trigger 1 size 5", f"trigger id 1 {kind}", triggers=1,
    )  # fmt: skip
    firing = Firing(read_matrix(text, "m"))
    return [firing.ended(place, end) for place, end in ends]


ENDS = [(0, End.SENT), (0, End.RECEIVED), (1, End.RECEIVED), (1, End.SENT)]


def test_triggers_fire_as_htsims_do() -> None:
    assert fired("oneshot", ENDS) == [[], [2, 3], [], []]
    assert fired("multishot", ENDS) == [[], [2], [], [3]]
    assert fired("barrier count 2", ENDS) == [[], [], [], [2, 3]]
    assert {kind.value for kind in TriggerKind} == {"oneshot", "multishot", "barrier"}


def test_a_matrix_in_a_config_is_checked_with_its_fabric() -> None:
    assert "replay" in EXPERIMENTS
    text = matrix("0->1 start 0 size 5").replace("Nodes 4", "Nodes 40")
    with pytest.raises(ConfigError, match=r"example.cm: Nodes 40: fat_tree_k4_small has 16 compute nodes"):
        resolve("replay", [f"matrix={text!r}".replace("\\n", "\\n").replace("'", '"')])
    with pytest.raises(ConfigError, match="adaptive: theory needs paths that stay"):
        resolve("replay", ["routing.policy=adaptive"])


def test_lines_with_metrics_of_their_own_have_a_connection() -> None:
    resolve("replay", ["lines=[4]"])
    with pytest.raises(ConfigError, match=r"lines: 1, 99: no connection of example\.cm; name lines that have one"):
        resolve("replay", ["lines=[99, 4, 1]"])
