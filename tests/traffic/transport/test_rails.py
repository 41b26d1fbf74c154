"""Connections over several NICs: who carries what, and which address means it."""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.model.rails import rails_in_common
from tests.traffic.transport.memory_transport import MemoryTransport
from topologies.load import load_fabric
from traffic.job import Stage
from traffic.transport.connection import SocketOptions, Transport
from traffic.transport.rails import STRETCH_BYTES, Rails, RailsConnection, RailsTransport, address_of, nics_of
from traffic.transport.tcp import TcpConnection, TcpTransport

OPTIONS = SocketOptions(ServiceLevel.NCCL)
TIMEOUT_S = 10.0
TWO, FROM_TWO = Rails(["127.0.0.1", "127.0.0.2"]), Rails(["127.0.0.3", "127.0.0.4"])


def test_an_address_stands_for_nics() -> None:
    several = address_of(["10.0.0.1", "10.0.1.1"], are_several=True)
    for address, nics in (
        (address_of(["10.0.0.1"], are_several=False), ("10.0.0.1",)),
        (address_of(["10.0.0.1"], are_several=True), ("10.0.0.1",)),
        (address_of(["127.0.0.1", "127.0.0.1"], are_several=False), ("127.0.0.1",)),  # Of tests on one machine.
        (several, ("10.0.0.1", "10.0.1.1")),
    ):
        there = pickle.loads(pickle.dumps(address))
        assert nics_of(there) == nics_of(address) == nics
        assert isinstance(there, Rails) is isinstance(address, Rails)
    assert isinstance(address_of(["10.0.0.1"], are_several=True), Rails)
    assert nics_of("") == ()
    assert f"{several}" == "10.0.0.1+10.0.1.1"


def stage_on(fabric: Fabric) -> Stage:
    return Stage(fabric, None, lambda node: None, 1)  # type: ignore[arg-type]


def made(transport: Transport, address: str, source: str, count: int) -> list[tuple[RailsConnection, RailsConnection]]:
    found = []
    with closing(transport.listen(address)) as listener:
        for _ in range(count):
            near = transport.connect(listener.endpoint, TIMEOUT_S, source)
            far = listener.accept(TIMEOUT_S)
            assert isinstance(near, RailsConnection)
            assert isinstance(far, RailsConnection)
            for end in (near, far):
                end.set_timeouts(TIMEOUT_S, TIMEOUT_S)
            found.append((near, far))
    return found


@pytest.mark.parametrize(("address", "source"), [(TWO, FROM_TWO), (Rails(["127.0.0.1"]), FROM_TWO)])
@pytest.mark.parametrize("beneath", [TcpTransport, MemoryTransport])
def test_nics_carry_the_same_but_for_a_stretch(beneath: type[Transport], address: str, source: str) -> None:
    ((near, far),) = made(RailsTransport(beneath(OPTIONS)), address, source, 1)  # type: ignore[call-arg]
    with closing(near), closing(far):
        data, into = bytes(range(251)) * 500, bytearray(251 * 500)
        for _ in range(3):
            assert near.send((data[:7], data[7:])) == len(data)
            far.receive((into,))
            assert into == data
        assert far.received_bytes == 3 * len(data)
        carried = [part.received_bytes for part in far._parts]
        assert max(carried) - min(carried) <= STRETCH_BYTES
        assert [part.local[0] for part in near._parts] == ["127.0.0.3", "127.0.0.4"]


def test_connections_begin_in_turn_on_each_nic() -> None:
    transport = RailsTransport(TcpTransport(OPTIONS))
    pairs = made(transport, TWO, TWO, 4)
    carried = [0, 0]
    for near, far in pairs:
        with closing(near), closing(far):
            near.send((bytes(100),))
            far.receive((bytearray(100),))
            carried = [before + part.received_bytes for before, part in zip(carried, far._parts, strict=True)]
    assert carried[0] == carried[1]


def test_an_address_of_one_nic_goes_to_the_transport_beneath() -> None:
    transport = RailsTransport(TcpTransport(OPTIONS))
    with closing(transport.listen("127.0.0.1")) as listener:
        near = transport.connect(listener.endpoint, TIMEOUT_S, source=FROM_TWO)
        far = listener.accept(TIMEOUT_S)
    with closing(near), closing(far):
        assert isinstance(near, TcpConnection)
        assert near.local[0] == "127.0.0.3"


def test_jobs_hosts_have_addresses_of_all_their_nics() -> None:
    fabric = load_fabric("dgx_a100_10000_small")
    address_of = stage_on(fabric).addresses_on(fabric.computes)
    nics = rails_in_common(fabric, fabric.computes)
    assert address_of(fabric.computes[1]) == Rails(nic.ip for nic in nics[fabric.computes[1]])
    flat = load_fabric("fire_flyer_2_small")
    assert stage_on(flat).addresses_on(flat.computes)(flat.computes[0]) == flat.nics_of[flat.computes[0]][0].ip
