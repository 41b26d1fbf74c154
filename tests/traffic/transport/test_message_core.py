"""Messages over networks in memory that lose, trim, overtake, repeat and cut: each arrives whole and once."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric.model.lanes import ServiceLevel
from fabric.world.programs.preload import build_library
from traffic.transport.connection import SocketOptions
from traffic.transport.message_config import Control, MessageConfig
from traffic.transport.messages import MessageTransport, Nic, Options, options_of

HERE = Path(__file__).resolve().parent
SOURCES = [HERE / "message_network.c", HERE.parents[2] / "traffic" / "transport" / "messages.c"]
NIC = Nic(100_000_000_000, 1500)
LIMIT_NS = 20_000_000_000
"""A program whose data has not come by then never gets it."""
NEVER = 2**64 - 1


class Network(ctypes.Structure):
    """``struct network``; probabilities in millionths."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        *(
            (name, ctypes.c_uint32)
            for name in (
                *("lost", "trimmed", "repeated", "cut_paths", "ordered", "forged"),
                *("messages", "most_bytes", "ring_bytes", "both"),
            )
        ),
        ("options", Options),
    )


COUNTED = ("received", "sent", "packets", "resent", "late", "duplicates", "trimmed", "timeouts")


class Outcome(ctypes.Structure):
    """``struct outcome``."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("ended_ns", "wrong_at", *COUNTED))


Play = Callable[[Network], Any]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    library = tmp_path_factory.mktemp("network") / "network.so"
    build_library(library, SOURCES, "a network in memory")
    found = ctypes.CDLL(str(library))
    found.play.argtypes = [ctypes.POINTER(Network), ctypes.c_uint64, ctypes.POINTER(Outcome)]

    def played(network: Network) -> Outcome:
        outcome = Outcome()
        found.play(ctypes.byref(network), LIMIT_NS, ctypes.byref(outcome))
        return outcome

    return played


def options(control: Control, paths: int = 8, reordering: int | None = None) -> Options:
    config = MessageConfig(control=control, paths=paths, unsolicited=30_000, round_trip=1e-4)
    return options_of(MessageTransport(SocketOptions(ServiceLevel.OTHER), config, NIC, reordering))


def network(seed: int, control: Control, **more: Any) -> Network:
    settings: dict[str, Any] = {"ordered": 1, "messages": 10, "most_bytes": 60_000, "ring_bytes": 65_536, "both": 1}
    settings |= {"options": options(control)} | more
    return Network(seed=seed, **settings)


def has_arrived(outcome: Outcome) -> bool:
    """Return whether all came, whole and once."""
    return bool(outcome.wrong_at == NEVER and outcome.received == outcome.sent > 0)


@pytest.mark.parametrize("control", Control)
def test_nothing_is_sent_again_where_paths_keep_their_order_and_lose_nothing(play: Play, control: Control) -> None:
    outcome = play(network(1, control))
    assert has_arrived(outcome)
    assert (outcome.resent, outcome.duplicates) == (0, 0)


@pytest.mark.parametrize("control", Control)
def test_packets_that_take_any_path_are_not_lost_for_coming_late(play: Play, control: Control) -> None:
    patient = network(2, control, ordered=0, options=options(control, 1, 1000))
    outcome = play(patient)
    assert has_arrived(outcome)
    assert outcome.resent == 0
    hasty = play(network(2, control, ordered=0, options=options(control, 1)))
    assert has_arrived(hasty)
    assert hasty.resent > 20 and hasty.duplicates > 20, "what is late is sent twice"


@pytest.mark.parametrize("control", Control)
def test_a_trimmed_packet_is_sent_again_at_once_and_no_other(play: Play, control: Control) -> None:
    outcome = play(network(3, control, trimmed=100_000))
    assert has_arrived(outcome)
    assert outcome.resent == outcome.trimmed > 20
    assert outcome.timeouts == 0


@pytest.mark.parametrize("control", Control)
def test_what_is_lost_shows_by_its_path_and_is_sent_again_alone(play: Play, control: Control) -> None:
    lost = network(4, control, lost=10_000, options=options(control, 2), ring_bytes=2**20, messages=40)
    outcome = play(lost)
    assert has_arrived(outcome)
    assert 0 < outcome.resent < 0.03 * outcome.packets


def test_a_packet_placed_elsewhere_is_found(play: Play) -> None:
    outcome = play(network(5, Control.LINE, forged=20))
    assert not has_arrived(outcome)
    assert outcome.wrong_at != NEVER


def test_without_probes_the_last_packet_lost_is_never_found(play: Play) -> None:
    blind = options(Control.LINE)
    blind.timeout_ns = 2 * LIMIT_NS
    assert not has_arrived(play(network(6, Control.LINE, lost=100_000, options=blind)))


def drawn(seed: int) -> Network:
    """Return a network of a seed: bad in some ways, at random."""
    pick = random.Random(f"messages {seed}")
    control, ordered = pick.choice(list(Control)), pick.randrange(2)
    paths = pick.choice([2, 4, 16]) if ordered else 1
    one = options(control, paths, None if ordered else pick.choice([3, 30, 1000]))
    some = {name: pick.choice([0, 1000, 20_000, 100_000]) for name in ("lost", "trimmed", "repeated")}
    return network(
        seed,
        control,
        options=one,
        ordered=ordered,
        cut_paths=pick.randrange(paths + 1),
        messages=pick.randint(1, 40),
        most_bytes=pick.choice([1, 100, 5000, 200_000]),
        ring_bytes=pick.choice([8192, 65_536, 2**20]),
        both=pick.randrange(2),
        **some,
    )


def all_arrive(play: Play, seeds: range) -> Outcome:
    """Play networks of seeds; return sums."""
    sums = Outcome()
    for seed in seeds:
        outcome = play(drawn(seed))
        assert has_arrived(outcome), f"seed {seed}: {outcome.received} of {outcome.sent} B, wrong at {outcome.wrong_at}"
        for name in COUNTED:
            setattr(sums, name, getattr(sums, name) + getattr(outcome, name))
    return sums


def test_every_message_arrives_whole_and_once(play: Play) -> None:
    sums = all_arrive(play, range(30))
    assert min(sums.resent, sums.duplicates, sums.trimmed, sums.timeouts) > 0, "networks were bad enough"


@pytest.mark.soak
def test_every_message_arrives_whole_and_once_a_thousand_times(play: Play) -> None:
    sums = all_arrive(play, range(1000))
    print({name: getattr(sums, name) for name in COUNTED})
