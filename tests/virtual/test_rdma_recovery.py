"""How queue pairs recover from losses, by what is on the wire, and what they count."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from scapy.utils import RawPcapReader

from tests.virtual.command import VirtualCommand
from traffic.transport.queue_pairs import ROCE_PORT, udp_source_port

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

ACKNOWLEDGE, SEQUENCE_ERROR = 0x11, 0x60
AT_BTH, AT_AETH = 42, 54
ICRC_BYTES = 4
SETTINGS = ("ways=[go_back_n, selective_repeat]", "losses=[0.005]", "senders=[]", "message=4 MB")
SENDER = "10.0.0.1"


class Frame(NamedTuple):
    """A frame of RoCE v2 over IPv4: when, from where by which UDP port to which queue pair, what it is; ``named``: the
    frame that a NAK says has come."""

    at_s: float
    source: str
    port: int
    queue_pair: int
    opcode: int
    psn: int
    is_nak: bool
    named: int | None
    payload_bytes: int


def frames(pcap: Path) -> Iterator[Frame]:
    """Frames of RoCE v2 of a capture."""
    with RawPcapReader(str(pcap)) as reader:
        tick_s = 1e-9 if reader.nano else 1e-6
        for frame, about in reader:
            if frame[23] != socket.IPPROTO_UDP or int.from_bytes(frame[36:38], "big") != ROCE_PORT:
                continue
            opcode, size = frame[AT_BTH], int.from_bytes(frame[38:40], "big") - 8
            is_nak = opcode == ACKNOWLEDGE and frame[AT_AETH] == SEQUENCE_ERROR
            extra = size - (AT_AETH - AT_BTH) - 4 - ICRC_BYTES
            named = int.from_bytes(frame[AT_AETH + 4 : AT_AETH + 8], "big") if is_nak and extra == 4 else None
            yield Frame(
                about.sec + about.usec * tick_s,
                socket.inet_ntoa(frame[26:30]),
                int.from_bytes(frame[34:36], "big"),
                int.from_bytes(frame[AT_BTH + 5 : AT_BTH + 8], "big"),
                opcode,
                int.from_bytes(frame[AT_BTH + 9 : AT_BTH + 12], "big"),
                is_nak,
                named,
                size,
            )


Played = dict[str, tuple[dict[str, float], list[Frame]]]


@pytest.fixture(scope="module")
def played(shared_command: VirtualCommand) -> Played:
    """A write over a lossy link with each recovery: its metrics, and the frames at its sender."""
    sets = [word for one in SETTINGS for word in ("--set", one)]
    options = ["--out", "run", "--no-figures", "--capture", "z0h000-eth0=roce.pcap", *sets]
    done = shared_command.run("run", "lossy_rdma", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = list(frames(shared_command.here / "roce.pcap"))
    second_s = min(one.at_s for one in found if one.queue_pair == data(found)[-1].queue_pair)
    parts = {
        "go_back_n": [one for one in found if one.at_s < second_s],
        "selective_repeat": [one for one in found if one.at_s >= second_s],
    }
    return {way: (metrics(shared_command, f"loss_0p005_{way}"), part) for way, part in parts.items()}


def metrics(command: VirtualCommand, phase: str) -> dict[str, float]:
    """The metrics of a phase of the run."""
    found = json.loads((command.here / "run" / "summary.json").read_text())["metrics"]
    return {name.removeprefix(f"{phase}."): value for name, value in found.items() if name.startswith(f"{phase}.")}


def runs(found: list[Frame]) -> list[list[int]]:
    """The numbers of frames that follow each other in order, in the order in which they were sent."""
    parts: list[list[int]] = []
    for one in found:
        if parts and one.psn == parts[-1][-1] + 1:
            parts[-1].append(one.psn)
        else:
            parts.append([one.psn])
    return parts


def data(found: list[Frame]) -> list[Frame]:
    """The frames of writes."""
    return [one for one in found if one.source == SENDER and one.payload_bytes > 1000]


def naks(found: list[Frame]) -> list[Frame]:
    """Those that come to the sender of the write."""
    return [one for one in found if one.is_nak and one.source != SENDER]


def again(sent: list[Frame]) -> set[int]:
    """The frames that were sent more than once."""
    return {psn for psn, count in Counter(one.psn for one in sent).items() if count > 1}


def test_go_back_n_sends_all_again_from_the_frame_that_a_nak_names(played: Played) -> None:
    numbers, found = played["go_back_n"]
    sent, heard = data(found), naks(found)
    assert heard
    assert {one.named for one in heard} == {None}
    assert {one.psn for one in heard} <= {part[0] for part in runs(sent)[1:]}, "it goes on from there, in order"
    assert len(again(sent)) > 10 * len(heard), "a round trip of frames for each"
    assert numbers["naks"] == pytest.approx(len(heard), abs=2), "those of the receiver's words count, too"
    assert numbers["retransmissions"] >= len(sent) - len({one.psn for one in sent})
    assert numbers["of_bound_fraction"] < 0.95


def test_selective_repeat_sends_again_what_receivers_miss_and_nothing_else(played: Played) -> None:
    numbers, found = played["selective_repeat"]
    sent, heard = data(found), naks(found)
    assert again(sent)
    assert all(one.named is not None and one.named > one.psn for one in heard)
    assert {one.psn for one in heard} <= again(sent), "each frame that is missing first"
    if not numbers["timeouts"]:
        assert not again(sent) & {one.named for one in heard}, "what came is not sent again"
        assert len(sent) - len({one.psn for one in sent}) == len(again(sent)), "each once"
    assert numbers["naks"] >= len(heard) > len(again(sent))
    assert numbers["retransmissions"] < 0.1 * played["go_back_n"][0]["retransmissions"]


def test_a_frame_counts_as_lost_once_as_many_later_ones_have_come_as_asked_for(command: VirtualCommand) -> None:
    """Sprayed packets overtake each other, and none is lost: eager senders send some twice."""
    settings = ["transport.kind=verbs", "transport.queue_pairs.recovery=selective_repeat", "loads=[permutation]"]
    settings += ["queueings=[lossless]", "failed_uplinks=[0]", "spreadings=[spray_rack, spray]", "message=500 KB"]
    sets = [word for one in settings for word in ("--set", one)]
    done = command.run("run", "spraying", "--out", "run", "--no-figures", *sets)
    assert done.returncode == 0, done.stdout + done.stderr
    eager, patient = (metrics(command, f"lossless_{way}_less_0_permutation") for way in ("spray_rack", "spray"))
    assert eager["overtaking"] > 0
    assert eager["retransmissions"] > 0
    assert (patient["overtaking"] > 0, patient["retransmissions"], patient["sent_twice"]) == (True, 0, 0)


def test_the_ports_of_queue_pairs_are_known_and_choose_their_paths(command: VirtualCommand) -> None:
    settings = ("queue_pairs=[4]", "flow_labels=[off, 8]", "draws=1", "message=400 KB")
    sets = [word for one in settings for word in ("--set", one)]
    done = command.run(
        "run", "queue_pairs", "--out", "run", "--no-figures", "--capture", "z0h000-eth0=roce.pcap", *sets
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for labels in ("off", "8"):
        numbers = metrics(command, f"qp4_labels_{labels}_1")
        assert numbers["of_bound_fraction"] == pytest.approx(numbers["of_bound_by_ports_fraction"], rel=0.15)
        assert numbers["drops_packets"] == 0
    sent = [one for one in frames(command.here / "roce.pcap") if one.payload_bytes > 1000]
    mine = {(one.queue_pair, one.port) for one in sent if one.source == SENDER}
    labelled = {port for _, port in mine if port in {udp_source_port(label, 0, 0) for label in range(1, 9)}}
    assert labelled
    assert len(mine) >= 8


def test_flows_say_what_queue_pairs_count(command: VirtualCommand) -> None:
    settings = ["transport.kind=verbs", "topology=head_of_line_200g", "time_scale=0.005", "queueings=[shared]"]
    settings += ["repeats=1", "failures=[{link: z0l00-z0s00, at: 0 s, loss: 0.01}]"]
    settings += ["transport.queue_pairs={recovery: selective_repeat, ack_timeout: 0.3 ms}"]
    sets = [word for one in settings for word in ("--set", one)]
    done = command.run("run", "head_of_line", "--out", "run", "--no-figures", *sets)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pd.read_parquet(command.here / "run" / "samples" / "flows.parquet")
    mine = rows[rows["host"] == "z0h000"]
    assert int(mine["naks"].max()) > 0
    assert int(mine["retransmissions"].max()) > 0
    assert int(rows["cnps"].max()) == 0
