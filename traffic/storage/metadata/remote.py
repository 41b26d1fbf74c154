"""Metadata servers over the fabric: how a client asks one, and how a server answers."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.metadata.calls import (
    Request,
    pack_error,
    pack_request,
    pack_value,
    parse_error,
    parse_request,
    parse_value,
)
from traffic.storage.metadata.client import Redirected
from traffic.storage.metadata.errors import FileError, NotOwner
from traffic.storage.metadata.server import MetadataServer
from traffic.storage.wire.calls import CallTimeout, ConnectionLost, Party, StorageConnection
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import CallKind, Frame, ReplyStatus
from traffic.transport.connection import Endpoint


class RemoteServers:
    """The metadata servers, as a program has them: :class:`traffic.storage.metadata.client.Ask`.

    ``caller``: the program's end of the links, which counts what it sends; from the address ``source``.
    """

    def __init__(self, caller: Party, servers: Mapping[NodeId, Endpoint], source: str) -> None:
        self._links = Links(caller, source)
        self._nodes = {node.name: node for node in servers}
        for node, endpoint in servers.items():
            self._links.expect(node, endpoint)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._nodes)

    def close(self) -> None:
        """End the connections."""
        for link in self._links.values():
            link.close()

    async def __call__(self, server: str, request: Request, timeout_s: float) -> Any:
        """Return the answer. Raises FileError as the server does, Redirected if it does not answer, or not now."""
        try:
            link = await self._links.to(self._nodes[server])
            reply = await link.call(CallKind.METADATA, pack_request(request), timeout_s)
        except (ConnectionLost, CallTimeout) as error:
            raise Redirected(str(error)) from error
        if reply.status is ReplyStatus.OK:
            return parse_value(reply.meta)
        if reply.status is ReplyStatus.BUSY:
            raise Redirected(f"{server} is busy", str(parse_value(reply.meta)))
        raise parse_error(reply.meta)


def refuse(link: StorageConnection, frame: Frame) -> None:
    """Refuse a call: who only calls others answers none."""
    link.answer(frame, ReplyStatus.WRONG_REQUEST)


def answers_of(server: MetadataServer) -> Any:
    """Return what answers calls for a server (:data:`traffic.storage.wire.calls.Handler`)."""

    def handle(link: StorageConnection, frame: Frame) -> Coroutine[Any, Any, None] | None:
        if frame.kind is not CallKind.METADATA:
            link.answer(frame, ReplyStatus.WRONG_REQUEST)
            return None
        return _answer(server, link, frame)

    return handle


async def _answer(server: MetadataServer, link: StorageConnection, frame: Frame) -> None:
    request = parse_request(frame.meta)
    try:
        value = await server.answer(request)
    except FileError as error:
        link.answer(frame, ReplyStatus.NOT_FOUND, pack_error(error))
    except NotOwner as error:
        link.answer(frame, ReplyStatus.BUSY, pack_value(error.owner))
    except TrafficError:  # Others were faster each time, or the store or storage does not answer.
        server.counts["busy"] += 1
        link.answer(frame, ReplyStatus.BUSY, pack_value(""))
    else:
        link.answer(frame, ReplyStatus.OK, pack_value(value))
