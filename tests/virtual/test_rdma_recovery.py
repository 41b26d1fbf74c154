"""How queue pairs recover from losses, by what is on the wire, and what they count."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from scapy.utils import RawPcapReader

from tests.virtual.command import VirtualCommand
from traffic.transport.queue_pairs import ROCE_PORT, udp_source_port

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

ACKNOWLEDGE, SEQUENCE_ERROR = 0x11, 0x60
IMMEDIATE = (0x09, 0x0B)
"""Opcodes of the last, or only, frame of a write that has immediate data: with it, a write has a message's end."""
AT_BTH, AT_AETH = 42, 54
ICRC_BYTES = 4
SETTINGS = ("senders=[]", "message=4 MB", "transport.queue_pairs.ack_timeout=0.3 ms")


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


def played(command: VirtualCommand, way: str, loss: float, *settings: str) -> tuple[dict[str, Any], list[Frame]]:
    """A write over a lossy link: its metrics, and the frames at its sender."""
    words = [f"ways=[{way}]", f"losses=[{loss}]", *SETTINGS, *settings]
    sets = [word for one in words for word in ("--set", one)]
    done = command.run("run", "lossy_rdma", "--out", way, "--no-figures", "--capture", "z0h000-eth0=roce.pcap", *sets)
    assert done.returncode == 0, done.stdout + done.stderr
    (metrics,) = json.loads((command.here / way / "summary.json").read_text())["metrics"].values()
    return metrics, list(frames(command.here / "roce.pcap"))


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
    """The frames of the write, all to one queue pair."""
    mine = [one for one in found if one.source == "10.0.0.1" and one.payload_bytes > 1000]
    (queue_pair, _), *_ = Counter(one.queue_pair for one in mine).most_common(1)
    return [one for one in mine if one.queue_pair == queue_pair]


def test_go_back_n_sends_all_again_from_the_frame_that_a_nak_names(command: VirtualCommand) -> None:
    metrics, found = played(command, "go_back_n", 0.005)
    sent = data(found)
    naks = [one for one in found if one.is_nak and one.source != "10.0.0.1"]
    assert naks
    assert {one.named for one in naks} == {None}
    again = runs(sent)
    assert all(nak.psn in {part[0] for part in again[1:]} for nak in naks), "it goes on from there, in order"
    resent = len(sent) - len({one.psn for one in sent})
    assert metrics["retransmissions"] == pytest.approx(resent, abs=20), "words of the receiver's are sent again, too"
    assert metrics["naks"] == pytest.approx(len(naks), abs=5)
    assert resent > 10 * len(naks), "a round trip of frames for each"


def test_selective_repeat_sends_again_what_receivers_do_not_name(command: VirtualCommand) -> None:
    metrics, found = played(command, "selective_repeat", 0.005)
    sent = data(found)
    naks = [one for one in found if one.is_nak and one.source != "10.0.0.1"]
    assert all(one.named is not None and one.named > one.psn for one in naks)
    named = {one.named for one in naks}
    times = Counter(one.psn for one in sent)
    again = {psn for psn, count in times.items() if count > 1}
    assert again
    assert metrics["retransmissions"] < 0.02 * len(sent)
    if not metrics["timeouts"]:
        assert not again & named, "what came is not sent again"
    first = {one.psn for one in naks}
    assert first <= again, "each frame that is missing first is sent again"
    assert metrics["naks"] >= len(naks)


def test_a_frame_counts_as_lost_once_as_many_later_ones_have_come_as_asked_for(command: VirtualCommand) -> None:
    """Nothing is lost: what overtakes a frame by fewer has nothing sent twice."""
    spraying = ("losses=[0.000001]", "routing.policy=round_robin", "message=2 MB")
    eager, _ = played(command, "selective_repeat", 1e-6, *spraying)
    (command.here / "selective_repeat").rename(command.here / "eager")
    patient, _ = played(command, "selective_repeat", 1e-6, *spraying, "transport.reordering=1000")
    assert eager["overtaking"] > 0
    assert patient["retransmissions"] == patient["sent_twice"] == 0
    assert eager["retransmissions"] >= patient["retransmissions"]


def test_the_ports_of_queue_pairs_are_known_and_choose_their_paths(command: VirtualCommand) -> None:
    settings = ("queue_pairs=[4]", "flow_labels=[off, 8]", "draws=1", "message=100 kB")
    sets = [word for one in settings for word in ("--set", one)]
    done = command.run(
        "run", "queue_pairs", "--out", "run", "--no-figures", "--capture", "z0h000-eth0=roce.pcap", *sets
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((command.here / "run" / "summary.json").read_text())["metrics"]
    for numbers in found.values():
        assert numbers["of_bound_fraction"] == pytest.approx(numbers["of_bound_by_ports_fraction"], rel=0.1)
        assert numbers["drops_packets"] == 0
    sent = [one for one in frames(command.here / "roce.pcap") if one.payload_bytes > 1000]
    mine = {(one.queue_pair, one.port) for one in sent if one.source == "10.0.0.1"}
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
    last = rows.groupby("host", observed=True)[["retransmissions", "naks", "timeouts", "cnps"]].max()
    assert last.loc["z0h000", "naks"] > 0
    assert last.loc["z0h000", "retransmissions"] > 0
    assert (last["cnps"] == 0).all()
