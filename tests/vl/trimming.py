"""What a full port does to datagrams, measured in a guest: ``measured("trimming", "overflow", ...)``."""

from __future__ import annotations

import socket
import struct
from typing import Any

from fabric.model.lanes import TRIMMED_BYTES, ServiceLevel
from fabric.queueing import vl
from tests.vl.lab import FRAME_BYTES, PAYLOAD_BYTES, two_hosts

_RATE_BPS = 10**10
_NO_CHECK, _RECVTOS, _SNDBUFFORCE, _RCVBUFFORCE = 11, 13, 32, 33
_CONTROL_LANE = 1


def overflow(frames: int, room: int, trims: bool, has_checksum: bool) -> dict[str, Any]:
    """Send frames at once into a lane with room for so many; return those that came, in their order: their numbers,
    sizes and DSCPs; and what the port counted of the lane of data and of the other one."""
    port = vl.VlConfig(
        _RATE_BPS,
        {0: vl.LaneBuffer(limit_bytes=room * FRAME_BYTES), _CONTROL_LANE: vl.LaneBuffer(limit_bytes=1 << 20)},
        vl.FlowControlMode.LOSSY,
        high=(vl.ArbitrationEntry(_CONTROL_LANE, 1),),
        lane_of_dscp={ServiceLevel.CONTROL.dscp: _CONTROL_LANE},
        trim_bytes=TRIMMED_BYTES if trims else 0,
        trim_dscp=ServiceLevel.CONTROL.dscp,
    )
    lab = two_hosts(port)
    sender, receiver = lab.udp("a"), lab.udp("b")
    sender.setsockopt(socket.SOL_SOCKET, _NO_CHECK, int(not has_checksum))
    sender.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, 1 << 26)
    receiver.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 1 << 26)
    receiver.setsockopt(socket.IPPROTO_IP, _RECVTOS, 1)
    for number in range(frames):
        sender.sendto(struct.pack("=I", number) + bytes(PAYLOAD_BYTES - 4), (lab.ip("b"), 5000))
    came = []
    receiver.settimeout(0.1)
    while True:
        try:
            data, ancillary, _, _ = receiver.recvmsg(PAYLOAD_BYTES, socket.CMSG_SPACE(4))
        except TimeoutError:
            break
        tos = next(value[0] for level, kind, value in ancillary if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS))
        came.append((struct.unpack_from("=I", data)[0], len(data), tos >> 2))
    data_lane, control = (lab.stats()["a-b"].lanes[lane] for lane in (0, _CONTROL_LANE))
    return {
        "came": came,
        "trimmed": [data_lane.trimmed_packets, data_lane.trimmed_bytes],
        "dropped": data_lane.dropped_packets[vl.DropCause.LIMIT.value],
        "sent": [data_lane.sent_packets, control.sent_packets, control.sent_bytes],
    }
