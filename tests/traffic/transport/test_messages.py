"""Messages over sockets of this machine: with each control, over several source ports, and what they count."""

from __future__ import annotations

import ctypes
import socket
import threading
from contextlib import closing

import numpy as np
import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import TRIMMED_BYTES, ServiceLevel
from topologies.load import load_fabric
from traffic.transport.connection import ConnectionEndedError, SocketOptions
from traffic.transport.message_config import Control, MessageConfig
from traffic.transport.messages import MessageTransport, Nic, nic_of, options_of

LOOPBACK = "127.0.0.1"
TIMEOUT_S = 20.0
DATA = np.random.default_rng(1).integers(0, 256, 3_000_000, np.uint8).tobytes()


def transport(control: Control, paths: int = 1, window: int | None = None) -> MessageTransport:
    options = SocketOptions(ServiceLevel.OTHER, receive_window_bytes=window)
    return MessageTransport(options, MessageConfig(control=control, paths=paths), Nic(10**10, 1500))


@pytest.mark.parametrize("control", Control)
@pytest.mark.parametrize("paths", [1, 8])
def test_all_that_is_sent_arrives_as_it_was(control: Control, paths: int) -> None:
    made = transport(control, paths, 2**18)
    with closing(made.listen(LOOPBACK)) as listener:
        near = made.connect(listener.endpoint, TIMEOUT_S)
        far = listener.accept(TIMEOUT_S)
    with closing(near), closing(far):
        for end in (near, far):
            end.set_timeouts(TIMEOUT_S, TIMEOUT_S)
        sender = threading.Thread(target=near.send, args=((DATA,),))
        sender.start()
        received = bytearray(len(DATA))
        far.receive((received,))
        sender.join(TIMEOUT_S)
        assert received == DATA
        ports = near.data_ports
        said = near.sample()
    assert (ports.protocol, ports.source != ports.destination) == (socket.IPPROTO_UDP, True)
    assert said.delivered_bytes > len(DATA) - 2**18
    assert said.round_trip_s is not None and said.round_trip_s < TIMEOUT_S
    assert said.naks == 0


def test_ends_need_the_same_window() -> None:
    listening, dialling = transport(Control.LINE, window=2**18), transport(Control.LINE, window=2**19)
    with closing(listening.listen(LOOPBACK)) as listener:
        with pytest.raises((TrafficError, ConnectionEndedError)):
            dialling.connect(listener.endpoint, TIMEOUT_S)
        with pytest.raises(TrafficError, match="both ends need the same receive window"):
            listener.accept(TIMEOUT_S)


def test_a_switch_leaves_of_a_packet_the_headers_that_receivers_need() -> None:
    header = ctypes.sizeof(ctypes.c_uint32) * 4 + ctypes.sizeof(ctypes.c_uint64) * 5
    assert 20 + 8 + header == TRIMMED_BYTES


def test_a_first_window_is_in_whole_packets_and_answers_may_go_ahead() -> None:
    options = options_of(MessageTransport(SocketOptions(ServiceLevel.NCCL), MessageConfig(unsolicited=4117)))
    assert (options.unsolicited, options.mtu_bytes) == (2, 4200)
    assert options.data_tos == options.control_tos == ServiceLevel.NCCL.tos
    ahead = options_of(MessageTransport(SocketOptions(ServiceLevel.NCCL), answers_ahead=True))
    assert ahead.control_tos == ServiceLevel.CONTROL.tos


def test_a_fabric_says_what_its_nics_are() -> None:
    assert nic_of(load_fabric("fat_tree_k4")) == Nic(100 * 10**9, 4200, 1000)
