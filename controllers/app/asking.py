"""Statistics of switches: read on request, never polled; switches that do not answer are named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controllers.app.openflow import hub
from fabric.errors import ControllerError


@dataclass
class _Question:
    """A request to several switches, with the parts of their answers so far."""

    unanswered: set[int]
    answers: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    answered: Any = field(default_factory=hub.Event)

    def discard(self, dpid: int) -> None:
        """Wait for one switch no longer."""
        self.unanswered.discard(dpid)
        if not self.unanswered:
            self.answered.set()


class Questions:
    """The requests that switches have still to answer, by switch and transaction id."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._open: dict[tuple[int, int], _Question] = {}

    def take(self, message: Any) -> None:
        """Add a part of an answer that somebody may wait for: of statistics, or a barrier's."""
        datapath = message.datapath
        question = self._open.get((datapath.id, message.xid))
        if question is not None:
            question.answers[datapath.id] += getattr(message, "body", None) or []
            if not getattr(message, "flags", 0) & datapath.ofproto.OFPMPF_REPLY_MORE:
                question.discard(datapath.id)

    def forget(self, dpid: int) -> None:
        """Let nobody wait for a switch that has gone."""
        for (asked, _), question in list(self._open.items()):
            if asked == dpid:
                question.discard(dpid)

    def ask(self, datapaths: Iterable[Any], request: Callable[[Any], Any], timeout_s: float) -> dict[int, list[Any]]:
        """Return the statistics of switches by DPID. Raises ControllerError naming those that stay silent."""
        return self.ask_each([(datapath, [request(datapath)]) for datapath in datapaths], timeout_s)

    def ask_each(self, sent: Iterable[tuple[Any, list[Any]]], timeout_s: float) -> dict[int, list[Any]]:
        """Send each switch messages, encoded or not, in one piece; it answers the last. Return the answers by DPID.

        A message at a time would cost a system call each. A switch that goes away meanwhile answers nothing.
        """
        batches = list(sent)
        question = _Question({datapath.id for datapath, _ in batches})
        keys = []
        for datapath, batch in batches:
            data = b"".join(_encoded(datapath, message) for message in batch)
            keys.append((datapath.id, batch[-1].xid))
            self._open[keys[-1]] = question
            datapath.send(data)
        complete = not batches or question.answered.wait(timeout_s)
        for key in keys:
            del self._open[key]
        if not complete:
            silent = ", ".join(self._names[dpid] for dpid in sorted(question.unanswered))
            raise ControllerError(f"no answer from {silent} within {timeout_s:g} s; see the log of ovs-vswitchd")
        return {dpid: question.answers[dpid] for dpid, _ in keys}


def _encoded(datapath: Any, message: Any) -> bytes:
    """Return a message as it goes over the wire, under the datapath's next transaction id unless it is encoded."""
    if isinstance(message, bytes):
        return message
    datapath.set_xid(message)
    message.serialize()
    return bytes(message.buf)
