"""GOAL's grammar: what may be left out, and where things may stand."""

from __future__ import annotations

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import read
from traffic.work.checks import require_playable
from traffic.work.operations import ANY, Compute, Receive, Send


def test_what_is_left_out_is_0_and_labels_are_optional() -> None:
    trace = read("num_ranks 2\nrank 1 { recv 5b from 0 }\nrank 0\n{\ncalc 7\nsend 5b to 1 tag 0\n}\n")
    assert trace.program(0) == (
        Compute(duration_s=7e-9, stream="cpu 0"),
        Send(peer=1, size_bytes=5, tag=0, stream="nic 0"),
    )
    assert trace.program(1) == (Receive(peer=0, size_bytes=5, tag=0),)
    require_playable(trace.graph())


def test_computing_on_a_cpu_is_serial_and_so_is_sending_by_a_nic() -> None:
    trace = read(
        "num_ranks 1\nrank 0 {\na: calc 1 cpu 3\nb: send 1b to 0 nic 2 tag 4\nc: recv 1b from 0 tag 4 cpu 1 nic 1\n}\n"
    )
    assert [one.stream for one in trace.program(0)] == ["cpu 3", "nic 2", ""]


def test_any_is_minus_one_or_how_it_is_stored() -> None:
    for any_tag in ("-1", "4294967295"):
        trace = read(f"num_ranks 1\nrank 0 {{\na: recv 1b from -1 tag {any_tag}\n}}\n")
        assert trace.program(0) == (Receive(peer=ANY, size_bytes=1, tag=ANY),)
    with pytest.raises(ConfigError, match="line 3: tag -1: any tag is what a recv may say"):
        read("num_ranks 1\nrank 0 {\na: send 1b to 0 tag -1\n}\n")


def test_an_operation_stands_behind_what_it_waits_for_though_the_file_has_it_before() -> None:
    trace = read("num_ranks 1\nrank 0 {\na requires b\na: calc 1\nb: calc 2\nb irequires c\nc: calc 3\n}\n")
    assert [(one.after, one.after_start) for one in trace.program(0)] == [((), ()), ((), (0,)), ((1,), ())]
    assert [round(one.duration_s * 1e9) for one in trace.program(0) if isinstance(one, Compute)] == [3, 2, 1]  # type: ignore[operator]


def test_comments_stand_on_lines_of_their_own_and_may_be_long() -> None:
    text = "// a\n/* b\nrank 9 { }\n*/\nnum_ranks 1\n/* c */\nrank 0 {\n// d\n}\n"
    assert read(text).program(0) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_ranks 2\nrank 2 { }\n", "line 2: rank 2: num_ranks is 2"),
        ("num_ranks 1\nrank 0 { }\nrank 0 { }\n", "line 3: rank 0 is on line 2, too"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na: calc 2\n}\n", "line 4: label a is on line 3, too"),
        ("num_ranks 1\nrank 0 {\na: calc -5\n}\n", "line 3: calc -5: must be a whole number"),
        ("num_ranks 1\nrank 0 {\na: send 99999999999999999b to 0\n}\n", "line 3: size 99999999999999999: must be"),
        ("num_ranks 1\nrank 0 {\na: calc 1 tag 1 tag 2\n}\n", "line 3: tag is there twice"),
        ("num_ranks 1\nrank 0 {\na: jump 1\n}\n", "line 3: 'jump' is neither calc, send, recv"),
        ("num_ranks 1\nrank 0 {\na: recv 1b to 0\n}\n", "line 3: recv 1b: is followed by from RANK"),
    ],
)
def test_errors_name_lines(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert message in str(raised.value)
