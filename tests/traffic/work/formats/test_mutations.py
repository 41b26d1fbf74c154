"""Damaged files are refused with an error that names the file, whatever is wrong with them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import SAMPLES
from traffic.work.formats.counts import ranks_counted
from traffic.work.formats.files import Sources, paths_named, read_sources
from traffic.work.formats.packed import unpacked
from traffic.work.formats.playing import work_of
from traffic.work.formats.recognise import read_traces
from traffic.work.formats.trace import Asked, TraceFile

WORDS = (
    b"-1", b"99999999999999999999999", b"null", b'""', b"[]", b"{}", b"1e999", b"NaN", b"\xff\xff\xff\xff", b"\x00",
    b"...", b'"x"', b"true", b"0",
)  # fmt: skip
LARGEST_BYTES = 20_000
NAMES = sorted(
    path.name for path in SAMPLES.iterdir() if path.suffix in (".gz", ".goal", ".csv") and "kineto" not in path.name
)


def damaged(data: bytes, draws: random.Random) -> bytes:
    found = bytearray(data)
    if draws.random() < 0.2:
        return bytes(found[: draws.randrange(len(found))])
    for _ in range(draws.choice([1, 1, 2, 5, 20])):
        at = draws.randrange(len(found) or 1)
        way = draws.random()
        if way < 0.3:
            found[at : at + 1] = bytes([draws.randrange(256)])
        elif way < 0.5:
            del found[at : at + draws.choice([1, 2, 8, 50])]
        else:
            found[at : at + draws.choice([0, 1, 2, 5])] = draws.choice(WORDS)
    return bytes(found) or b" "


@pytest.mark.parametrize("name", NAMES)
def test_no_damage_ends_in_a_traceback(name: str) -> None:
    file = unpacked(SAMPLES / name)[0]
    data = file.data[:LARGEST_BYTES]
    refused = 0
    for number in range(15):
        draws = random.Random(f"{name} {number}")
        again = TraceFile("damaged", damaged(data, draws))
        asked = Asked(draws.choice([None, 4]), {str(group): (0, 1) for group in range(1, 17)})
        try:
            for trace in read_traces([Sources("damaged", (again,))], asked):
                ranks_counted(trace)
        except ConfigError as error:
            refused += 1
            assert str(error).startswith("damaged: ")
            assert len(str(error)) < 4000
    assert refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: is not a trace; there are GOAL; Chakra"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"hello", "begins with 'hello': is not a trace"),
        (b"{}", "is JSON with nothing: is not a trace"),
        (b'{"a": 1', "line 1, column 8: is not JSON"),
        (b"[" * 100_000, "lists within lists"),
        (b"num_ranks 2\nrank 0 {\nl1: calc 5", "ends within rank 0"),
        (b"num_ranks 2\nrank 0 { }", "has no rank 1, and num_ranks is 2"),
        (b"num_ranks 1\nrank 0 {\na: calc 5\nb: calc 6\na requires b\nb irequires a\n}", "lines 3, 4 wait for each"),
        (b"num_ranks 1\nrank 0 {\na: calc 5\na requires c\n}", "line 4: label c is nowhere"),
        (b"num_ranks 1\nrank 0 {\na: send 5b to 1\n}", "line 3: unknown rank 1; ranks are 0 to 0"),
        (b"num_ranks 1\nrank 0 {\na: send 5 to 0\n}", "line 3: size 5: sizes end in b"),
        (b"num_ranks 1\nrank 0 {\na: calc 5 // why\n}", "line 3: comments stand on lines of their own"),
        (b"HYBRID_DLRM x: 1\n1\n", "line 1: HYBRID_DLRM: only HYBRID_TRANSFORMER"),
        (b"HYBRID_TRANSFORMER ep: 2\n2\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "says 2 rows, and 1 follow"),
        (b"<algo ngpus='2' nchunksperloop='1'><gpu id='0'>", "is not XML"),
        (b"<algo ngpus='2' nchunksperloop='1'><gpu id='0'/></algo>", "has no gpu 1, and ngpus is 2"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><algo/>', "defines entities"),
        (b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><algo/>', "defines entities"),
        (b"Nodes 2\nConnections 1\n", "is a connection matrix of htsim"),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_traces([Sources("odd", (TraceFile("odd", content),))], Asked())
    assert str(raised.value).startswith("odd: ")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("content", "left_out"),
    [
        (b'{"schema": "1.0.1", "nodes": [{"name": "x", "id": 1}]}', 1),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x", "ts": 5, "dur": 1}]}', 1),
    ],
)
def test_a_trace_without_communication_is_read_and_has_nothing_to_play(content: bytes, left_out: int) -> None:
    (trace,) = read_traces([Sources("odd", (TraceFile("odd", content),))], Asked())
    assert (trace.program(0), sum(trace.left_out.values())) == ((), left_out)
    with pytest.raises(ConfigError, match="odd: has one rank, which sends nothing to others; say --ranks N"):
        work_of(trace, None, 1.0)


def test_what_is_no_trace_may_lie_beside_one(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "x.goal").write_text("num_ranks 1\nrank 0 { }\n")
    (trace,) = read_traces(read_sources(paths_named([str(tmp_path)])), Asked())
    assert trace.notes == ("1 files beside it are not traces: notes.txt",)
    with pytest.raises(ConfigError, match="begins with 'hello': is not a trace"):
        read_traces(read_sources(paths_named([str(tmp_path / "notes.txt"), str(tmp_path / "x.goal")])), Asked())
