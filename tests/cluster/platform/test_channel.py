"""Messages of the platform as bytes on a connection."""

from __future__ import annotations

import asyncio

from cluster.health.unwell import Unwell
from cluster.platform.channel import Channel, Message
from cluster.platform.messages import Beat, to_values
from fabric.model.lanes import ServiceLevel
from tests.traffic.transport.memory_transport import MemoryTransport
from traffic.transport.connection import SocketOptions


def test_a_times_last_digits_do_not_change_the_size_of_a_message() -> None:
    """With a size that hangs on them, a nanosecond would be microseconds of a link, and change who comes first."""
    beats = [Beat(Unwell(), 22.000068021, 1.000064492), Beat(Unwell(), 22.000068091, 1.0000645619999986)]

    async def be() -> None:
        transport, come = MemoryTransport(SocketOptions(ServiceLevel.CONTROL)), list[Message]()
        listener = transport.listen("127.0.0.1")
        near, far = transport.connect(listener.endpoint, 1.0), listener.accept(1.0)
        sender, receiver = (Channel(one, come.append, lambda why: None) for one in (near, far))
        sizes: list[int] = []
        for beat in beats:
            before = near.sample().delivered_bytes
            sender.send(to_values(beat))
            while len(come) <= len(sizes):
                await asyncio.sleep(0)
            sizes.append(near.sample().delivered_bytes - before)
        assert come == [to_values(beat) for beat in beats]
        assert sizes[0] == sizes[1] > 0
        for one in (sender, receiver):
            one.close()
        listener.close()

    asyncio.run(asyncio.wait_for(be(), 10))
