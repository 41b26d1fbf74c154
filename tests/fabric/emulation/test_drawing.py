"""What ports draw: even, in turn, by the sender's entropy; run by a machine in Python, frame by frame."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence

import pytest

from fabric.emulation.drawing import Drawing, SwitchPorts, program
from fabric.model.drawing import DIGITS, MOST_WAYS, Draw, code_of, digits_of, mark_of
from tests.fabric.emulation.bpf_machine import Machine

SWITCH = SwitchPorts(7, {1000: "leaf-eth1"}, {1001 + number: f"leaf-eth{number}" for number in range(MOST_WAYS)})


def frame(source: int = 1, destination: int = 2, port: int = 4000) -> bytearray:
    addresses = bytes([10, 0, 0, source]) + bytes([10, 0, 0, destination])
    return bytearray(bytes(12) + b"\x08\0" + bytes(12) + addresses + struct.pack(">HH", port, 4791) + bytes(20))


def drawn(draw: Draw, frames: Sequence[bytearray], entropies: int = 128, is_sender: bool = True) -> list[int]:
    """Return the marks that frames get at one switch."""
    drawing = Drawing(draw, 1, entropies)
    machine = Machine(frame(), state=drawing.state_of(SWITCH.dpid))
    instructions = program(drawing, SWITCH, 3, is_sender)
    marks = []
    for one in frames:
        machine.frame = one
        assert machine.run(instructions) == -1
        marks.append(machine.mark)
    return marks


def way(mark: int, ways: int) -> int:
    """Return the way that a switch's rules give a mark: the number whose digits it has."""
    code, place = 0, 0
    for digit in digits_of(ways):
        code |= (mark >> digit.first & ((1 << digit.bits) - 1)) << place
        place += digit.bits
    return [code_of(ways, number) for number in range(ways)].index(code)


def test_digits_fill_a_mark_and_name_the_way_of_any_number() -> None:
    assert DIGITS[-1].first + DIGITS[-1].bits == 32
    for ways in range(1, MOST_WAYS + 1):
        assert [way(mark_of(number), ways) for number in range(3 * ways)] == [*range(ways)] * 3
    with pytest.raises(ValueError, match="23 ways: a mark has digits for at most 22"):
        digits_of(23)


def test_a_switch_computes_only_digits_that_it_may_need() -> None:
    few = SwitchPorts(7, {}, {1001: "a", 1002: "b", 1003: "c", 1004: "d"})
    assert [(digit.base, digit.divisor) for digit in few.digits] == [(2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize("ways", [2, 3, 4, 7, 12, 20])
def test_random_draws_are_binomial(ways: int) -> None:
    count = 4000
    share = Counter(way(mark, ways) for mark in drawn(Draw.RANDOM, [frame()] * count))
    spread = (count / ways * (1 - 1 / ways)) ** 0.5
    assert len(share) == ways
    assert all(abs(found - count / ways) < 4 * spread for found in share.values())
    assert max(share.values()) > count / ways + 0.1 * spread  # Not in turn.


@pytest.mark.parametrize("ways", [2, 3, 4, 7, 12, 20])
def test_draws_in_turn_are_exact_for_each_destination(ways: int) -> None:
    frames = [frame(destination=2 + number % 3) for number in range(3 * 10 * ways)]
    marks = drawn(Draw.IN_TURN, frames)
    for number in range(3):
        assert [way(mark, ways) for mark in marks[number::3]] == [*range(ways)] * 10


def test_draws_in_turn_of_more_destinations_than_there_is_room_for_stay_at_one_way() -> None:
    drawing = Drawing(Draw.IN_TURN, 1, 1)
    machine = Machine(frame(), most=0)
    assert [machine.run(program(drawing, SWITCH, 3, True)), machine.mark] == [-1, 0]


def test_the_same_seed_draws_the_same_and_another_one_does_not() -> None:
    assert drawn(Draw.RANDOM, [frame()] * 9) == drawn(Draw.RANDOM, [frame()] * 9)
    states = {Drawing(Draw.RANDOM, seed, 1).state_of(dpid) for seed in range(4) for dpid in range(4)}
    assert len(states) == 16


def test_an_entropy_is_one_path_and_one_of_one_number_is_a_flow_s() -> None:
    assert len({*drawn(Draw.ENTROPY, [frame() for _ in range(50)], entropies=1)}) == 1
    assert len({*drawn(Draw.ENTROPY, [frame() for _ in range(400)], entropies=16)}) == 16
    flows = drawn(Draw.ENTROPY, [frame(port=4000 + number) for number in range(400)], entropies=1)
    assert len({*flows}) > 390


def test_entropy_is_the_sender_s_and_switches_hash_it_differently() -> None:
    """A switch in the middle changes no frame; and among frames that took one way before, it spreads evenly."""
    frames = [frame() for _ in range(4000)]
    first = drawn(Draw.ENTROPY, frames, entropies=1 << 16)
    sent = [bytes(one) for one in frames]
    drawing = Drawing(Draw.ENTROPY, 1, 1 << 16)
    other = SwitchPorts(8, {}, SWITCH.to_switches)
    machine, second = Machine(frame()), []
    for one in frames:
        machine.frame = one
        machine.run(program(drawing, other, 3, False))
        second.append(machine.mark)
    assert [bytes(one) for one in frames] == sent
    share = Counter(way(mark, 4) for before, mark in zip(first, second, strict=True) if way(before, 4) == 1)
    assert sum(share.values()) > 900
    assert all(abs(found - share.total() / 4) < 4 * (share.total() * 3 / 16) ** 0.5 for found in share.values())
