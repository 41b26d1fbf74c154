"""Netlink requests do what ``ip`` and ``tc`` do: carried out in a private network and read back with those programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fabric.errors import EmulationError
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.queueing.classifier import classifier
from fabric.queueing.htb import ShapedPort, install_requests, replace_requests
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import HtbRates, LinkEnd, Netlink
from tests.links import wait_until_running

A, B = LinkEnd("left", 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")
MTU = 4200

root = pytest.mark.root
with_tools = pytest.mark.skipif(shutil.which("tc") is None or shutil.which("ip") is None, reason="needs iproute2")


@pytest.fixture
def network(private_network: None) -> Iterator[Netlink]:
    """A network of its own, empty but for lo, and a socket to its kernel."""
    with Netlink() as link:
        yield link


@pytest.fixture
def pair(network: Netlink) -> Netlink:
    """The private network, with a veth pair up."""
    network.send(
        [netlink.veth_pair(A, B, MTU), *(netlink.link_state(end.index, end.interface, True) for end in (A, B))]
    )
    return network


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def answer(*command: str) -> Any:
    return json.loads(run(*command) or "[]")


def queues_of(interface: str) -> dict[str, list[str]]:
    """Return the lines that tc prints of an interface's queues, but for its name, bursts and packets counted.

    tc rounds a burst to microseconds and thereby loses some bytes of it.
    """
    printed = {kind: run("tc", "-d", kind, "show", "dev", interface) for kind in ("qdisc", "class", "filter")}
    left_out = re.compile(rf" dev {interface}| c?burst \S+| direct_packets_stat \S+")
    return {
        kind: sorted(left_out.sub("", " ".join(line.split())) for line in text.splitlines())
        for kind, text in printed.items()
    }


def classes_of(interface: str) -> dict[str, dict[str, str]]:
    """Return what tc prints of each HTB class, word by word: ``rate`` is followed by the rate, and so on."""
    lines = [line.split() for line in run("tc", "-d", "class", "show", "dev", interface).splitlines()]
    return {words[2]: dict(pairwise(words[3:])) for words in lines}


def in_bps(rate: str) -> int:
    units = {"Gbit": 10**9, "Mbit": 10**6, "Kbit": 10**3}
    return int(rate[:-4]) * units[rate[-4:]]


# Without root ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "encoded"),
    [
        (b"", "0400 0500"),
        (b"\1", "0500 0500 01 000000"),
        (b"\1\2\3\4", "0800 0500 01020304"),
        (b"\1\2\3\4\5", "0900 0500 0102030405 000000"),
    ],
)
@pytest.mark.skipif(os.sys.byteorder != "little", reason="bytes of a little-endian machine")  # type: ignore[attr-defined]
def test_attributes_are_padded_to_four_bytes_and_say_their_length_without_the_padding(
    payload: bytes, encoded: str
) -> None:
    assert netlink.attribute(5, payload) == bytes.fromhex(encoded)


def test_attributes_read_as_they_were_written() -> None:
    body = b"head" + netlink.attribute(3, b"abcde") + netlink.attribute(7, b"") + netlink.attribute(0x8000 | 9, b"xyzw")
    assert list(netlink.attributes_of(body, 4)) == [(3, b"abcde"), (7, b""), (9, b"xyzw")]


def test_thousands_of_short_requests_have_all_their_answers_read_with_a_buffer_of_the_default_size() -> None:
    with Netlink() as link:
        assert isinstance(link._socket, socket.socket)
        link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 212_992 // 2)  # The kernel doubles it.
        link.send([netlink.Request(netlink.NLMSG_NOOP, 0, b"", "asking for nothing")] * 5000)


def test_an_answer_that_the_kernel_had_no_memory_for_is_told_with_what_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(netlink, "_BURST_REQUESTS", 10**6)
    with Netlink() as link:
        assert isinstance(link._socket, socket.socket)
        link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(EmulationError, match=r"asking for nothing: .* was lost: No buffer space.*lacks memory"):
            link.send([netlink.Request(netlink.NLMSG_NOOP, 0, b"", "asking for nothing")] * 1000)


def test_counters_of_the_interfaces_are_those_of_the_kernel() -> None:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    with receiver, Netlink() as link:
        before = link.link_counters()["lo"]
        receiver.sendto(b"x" * 1000, receiver.getsockname())
        after = link.link_counters()["lo"]
    packet = 1000 + 8 + 20
    assert after.carrier
    assert after.rx_packets > before.rx_packets
    assert after.tx_bytes - before.tx_bytes >= packet
    assert after.rx_bytes == after.tx_bytes, "what loopback sends it receives"


class FakeSocket:
    """Gives recorded answers."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def recv(self, _: int) -> bytes:
        if not self.answers:
            raise BlockingIOError
        return self.answers.pop(0)

    def close(self) -> None:
        pass


def message(kind: int, sequence: int, body: bytes) -> bytes:
    return netlink.HEADER.pack(netlink.HEADER.size + len(body), kind, 0, sequence, 0) + body


def acknowledged(*sequences: int) -> bytes:
    return b"".join(message(netlink.NLMSG_ERROR, number, struct.pack("=i", 0)) for number in sequences)


def talking_to(*answers: bytes) -> tuple[Netlink, FakeSocket]:
    link, fake = Netlink(), FakeSocket(*answers)
    link.close()
    link._socket = fake  # type: ignore[assignment]
    return link, fake


STATES = [netlink.link_state(index, f"eth{index}", up=True) for index in (1, 2, 3)]


def test_a_refusal_names_its_request_among_a_batch() -> None:
    refused = message(netlink.NLMSG_ERROR, 2, struct.pack("=i", -19))
    link, _ = talking_to(acknowledged(1) + refused, acknowledged(3))
    with pytest.raises(EmulationError) as told:
        link.send(STATES)
    assert str(told.value) == "setting eth2 up: the kernel refused: No such device (ENODEV)"


def test_answers_may_come_in_pieces() -> None:
    link, fake = talking_to(acknowledged(1), acknowledged(2, 3))
    link.send(STATES)
    assert not fake.answers
    assert len(fake.sent) == 1


def test_a_kernel_that_does_not_answer_is_told_with_the_request() -> None:
    link, _ = talking_to(acknowledged(1))
    with pytest.raises(EmulationError) as told:
        link.send(STATES)
    assert str(told.value) == "setting eth2 up: the kernel did not answer within 10 s"


def test_a_socket_to_which_nothing_comes_is_waited_for_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "_ACK_TIMEOUT_S", 0.05)
    words = r"^a question: the kernel did not answer within 0.05 s$"
    with Netlink() as link, pytest.raises(EmulationError, match=words):
        link._receive("a question")


@pytest.mark.parametrize(
    ("one", "in_a_burst"),
    [
        (netlink.Request(netlink.RTM_NEWLINK, 0, bytes(1008), "a large one"), 24),
        (netlink.link_state(1, "eth1", up=True), 128),
    ],
    ids=["large", "many answers"],
)
def test_large_batches_are_cut_into_bursts_each_waited_for(one: netlink.Request, in_a_burst: int) -> None:
    count = in_a_burst + 5
    bursts = [range(1, in_a_burst + 1), range(in_a_burst + 1, count + 1)]
    link, fake = talking_to(*(acknowledged(*burst) for burst in bursts))
    link.send([one] * count)
    assert [len(sent) for sent in fake.sent] == [len(burst) * (netlink.HEADER.size + len(one.body)) for burst in bursts]


def test_a_dump_is_all_messages_up_to_the_closing_one() -> None:
    items = [message(netlink.RTM_NEWQDISC, 2, bytes([number] * 20)) for number in range(3)]
    ending = message(netlink.NLMSG_DONE, 2, b"\0" * 4)
    link, _ = talking_to(acknowledged(1), items[0] + items[1], items[2] + ending)
    assert link.dump(netlink.RTM_GETQDISC, b"") == b"".join(items)


def test_a_dump_refused_is_told() -> None:
    link, _ = talking_to(acknowledged(1), message(netlink.NLMSG_ERROR, 2, struct.pack("=i", -1)))
    with pytest.raises(EmulationError) as told:
        link.dump(netlink.RTM_GETQDISC, b"")
    assert str(told.value) == "dump: the kernel refused: Operation not permitted (EPERM)"


# In a private network -------------------------------------------------------------------------------------------------


@root
@with_tools
def test_a_pair_is_made_named_numbered_and_addressed(network: Netlink) -> None:
    network.send([netlink.veth_pair(A, B, MTU)])
    links = {found["ifname"]: found for found in answer("ip", "-d", "-j", "link", "show", "type", "veth")}
    assert set(links) == {"left", "right"}
    for end, peer in ((A, B), (B, A)):
        found = links[end.interface]
        assert (found["ifindex"], found["address"], found["mtu"]) == (end.index, end.mac, MTU)
        assert found["link"] == peer.interface
        assert found["gso_max_segs"] == 1
        assert "UP" not in found["flags"]


@root
@with_tools
def test_an_end_can_be_made_in_another_namespace(network: Netlink) -> None:
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; read _; ip -j link show type veth"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    namespace = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY)
    try:
        there = LinkEnd("right", 12, B.mac, namespace)
        network.send([netlink.veth_pair(A, there, MTU)])
    finally:
        os.close(namespace)
    assert [found["ifname"] for found in answer("ip", "-j", "link", "show", "type", "veth")] == ["left"]
    seen, _ = process.communicate("\n", timeout=60)
    assert [(found["ifname"], found["ifindex"], found["address"]) for found in json.loads(seen)] == [
        ("right", 12, B.mac)
    ]


@root
@with_tools
def test_an_interface_goes_up_and_down(network: Netlink) -> None:
    network.send([netlink.veth_pair(A, B, MTU)])
    for up in (True, False):
        network.send([netlink.link_state(A.index, A.interface, up)])
        (found,) = answer("ip", "-j", "link", "show", "dev", A.interface)
        assert ("UP" in found["flags"]) is up


@root
@with_tools
def test_carrier_is_both_ends_up(network: Netlink) -> None:
    network.send([netlink.veth_pair(A, B, MTU), netlink.link_state(A.index, A.interface, True)])
    assert not network.link_counters()["left"].carrier
    assert not network.link_counters()["left"].running
    network.send([netlink.link_state(B.index, B.interface, True)])
    assert network.link_counters()["left"].carrier
    wait_until_running(network, [A.index])


@root
@with_tools
def test_an_address_is_given(pair: Netlink) -> None:
    pair.send([netlink.address(A.index, A.interface, "10.0.0.1", 32)])
    (found,) = answer("ip", "-4", "-j", "address", "show", "dev", A.interface)
    (info,) = found["addr_info"]
    assert (info["local"], info["prefixlen"], info["scope"]) == ("10.0.0.1", 32, "global")


@root
@with_tools
def test_a_network_is_routed(pair: Netlink) -> None:
    pair.send(
        [
            netlink.address(A.index, A.interface, "10.0.0.1", 32),
            netlink.route(A.index, "left", "10.0.0.0/8", "10.0.0.1"),
        ]
    )
    (found,) = answer("ip", "-j", "route", "show")
    assert {key: found[key] for key in ("dst", "dev", "scope", "prefsrc")} == {
        "dst": "10.0.0.0/8",
        "dev": "left",
        "scope": "link",
        "prefsrc": "10.0.0.1",
    }


@root
@with_tools
def test_a_neighbour_is_known_for_good_and_can_be_replaced(pair: Netlink) -> None:
    for mac in ("02:00:0a:00:00:09", "02:00:0a:00:00:0a"):
        pair.send([netlink.neighbour(A.index, "10.0.0.9", mac)])
        (found,) = answer("ip", "-j", "neigh", "show", "dev", A.interface)
        assert (found["dst"], found["lladdr"], found["state"]) == ("10.0.0.9", mac, ["PERMANENT"])


@root
@with_tools
def test_a_request_that_repeats_what_exists_is_refused_by_name(network: Netlink) -> None:
    network.send([netlink.veth_pair(A, B, MTU)])
    with pytest.raises(EmulationError) as told:
        network.send([netlink.link_state(1, "lo", up=True), netlink.veth_pair(A, B, MTU)])
    assert str(told.value) == "making link left--right: the kernel refused: File exists (EEXIST)"


def bytecode(program: bytes) -> str:
    """Return a classic BPF program as tc takes it."""
    steps = [" ".join(map(str, step)) for step in struct.iter_unpack("=HBBI", program)]
    return ",".join([str(len(steps)), *steps])


@root
@with_tools
def test_queues_are_what_tc_would_make(pair: Netlink) -> None:
    """Each request on one end, the tc command that means the same on the other; tc must see no difference."""
    bytes_per_s, burst = 2_500_000, 8428
    program = classifier(1 << 16 | 0x13, {0x60: 1 << 16 | 0x12})
    pair.send(
        [
            netlink.htb_root(A.index, "left", 0x12),
            netlink.htb_class(A.index, "left", 0x1, 0, HtbRates(bytes_per_s, bytes_per_s, burst, 4214, 0)),
            netlink.htb_class(A.index, "left", 0x12, 0x1, HtbRates(bytes_per_s * 0.4, bytes_per_s, burst, 33712, 1)),
            netlink.byte_fifo(A.index, "left", 0x12, 0x12, 256 * 1024),
            netlink.bpf_filter(A.index, "left", program),
        ]
    )
    for command in (
        "qdisc replace dev right root handle 1: htb default 12 r2q 10",
        f"class add dev right parent 1: classid 1:1 htb rate 20mbit burst {burst} cburst {burst} quantum 4214",
        "class add dev right parent 1:1 classid 1:12 htb rate 8mbit ceil 20mbit quantum 33712 prio 1 "
        f"burst {burst} cburst {burst}",
        "qdisc add dev right parent 1:12 handle 12: bfifo limit 262144",
    ):
        run("tc", *command.split())
    run(
        "tc",
        *["filter", "add", "dev", "right", "parent", "1:", "protocol", "ip", "prio", "1", "bpf", "bytecode"],
        bytecode(program),
    )
    ours = queues_of("left")
    assert ours == queues_of("right")
    assert [len(ours[kind]) for kind in ("qdisc", "class")] == [2, 2]
    assert sum("bytecode" in line for line in ours["filter"]) == 1
    for name, found in classes_of("left").items():
        for key in ("burst", "cburst"):
            assert int(found[key].partition("b")[0]) == pytest.approx(burst, abs=1)
            assert int(classes_of("right")[name][key].partition("b")[0]) == pytest.approx(burst, abs=3)


@root
@with_tools
def test_rates_above_32_bits_are_not_cut_off(pair: Netlink) -> None:
    rate = 200 * 10**9 // 8
    requests = [netlink.htb_root(A.index, "left", 1)]
    requests.append(netlink.htb_class(A.index, "left", 1, 0, HtbRates(rate, rate, 100_000, 60_000, 0)))
    pair.send(requests)
    found = classes_of("left")["1:1"]
    assert (found["rate"], found["ceil"]) == ("200Gbit", "200Gbit")


@root
@with_tools
@pytest.mark.parametrize("queueing", [Queueing.SHARED, Queueing.LANES])
def test_a_port_has_a_class_and_a_queue_for_each_lane(pair: Netlink, queueing: Queueing) -> None:
    plan = plan_lanes(QueueConfig(), queueing)
    port = ShapedPort("left", A.index, 20_000_000, MTU)
    pair.send(install_requests(port, plan))
    classes = classes_of("left")
    assert classes.pop("1:1")["rate"] == "20Mbit"
    assert set(classes) == {f"1:{0x10 + lane.number:x}" for lane in plan.lanes}
    for lane in plan.lanes:
        found = classes[f"1:{0x10 + lane.number:x}"]
        assert in_bps(found["rate"]) == 20_000_000 * lane.share
        assert in_bps(found["ceil"]) == 20_000_000 * lane.ceiling
        assert found["parent"] == "1:1"
        assert found["prio"] == ("0" if lane.is_control else "1")
        assert int(found["quantum"]) >= port.frame_bytes
    fifos = [found for found in answer("tc", "-j", "qdisc", "show", "dev", "left") if found["kind"] == "bfifo"]
    limits = {found["parent"]: found["options"]["limit"] for found in fifos}
    assert limits == {f"1:{0x10 + lane.number:x}": lane.limit_bytes for lane in plan.lanes}


@root
@with_tools
def test_other_queues_replace_all_of_the_old(pair: Netlink) -> None:
    port = ShapedPort("left", A.index, 20_000_000, MTU)
    pair.send(install_requests(port, plan_lanes(QueueConfig(), Queueing.LANES)))
    pair.send(replace_requests(port, plan_lanes(QueueConfig(), Queueing.SHARED)))
    replaced = queues_of("left")
    pair.send(
        install_requests(ShapedPort("right", B.index, 20_000_000, MTU), plan_lanes(QueueConfig(), Queueing.SHARED))
    )
    assert replaced == queues_of("right")
    assert [line.split()[1] for line in replaced["qdisc"]] == ["bfifo", "htb"]


@root
def test_a_socket_opened_in_a_namespace_stays_there(network: Netlink) -> None:
    network.send([netlink.veth_pair(A, B, MTU)])
    elsewhere = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; read _"], stdin=-1, stdout=-1)
    assert elsewhere.stdout is not None
    assert elsewhere.stdout.readline() == b"ready\n"
    with Netlink(Path(f"/proc/{elsewhere.pid}/ns/net")) as there:
        assert set(network.link_counters()) == {"lo", "left", "right"}
        assert set(there.link_counters()) == {"lo"}
        with Netlink() as here:
            assert set(here.link_counters()) == {"lo", "left", "right"}
    elsewhere.communicate(b"\n", timeout=60)


@root
def test_a_namespace_that_is_none_is_told(network: Netlink, tmp_path: Path) -> None:
    (tmp_path / "no_namespace").touch()
    path = tmp_path / "no_namespace"
    with pytest.raises(EmulationError) as told:
        netns.enter(path)
    needs = "a run needs root and network namespaces (see fabric doctor)"
    assert str(told.value) == f"entering network namespace {path}: Invalid argument; {needs}"
