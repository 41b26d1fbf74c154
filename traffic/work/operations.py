"""The operations of a work graph, each of one rank.

An operation starts once all of ``after`` have ended and all of ``after_start`` have started, both by their places in
the rank's list, and once its stream is free. A stream is serial, as a CUDA stream is; an operation without one waits
for no stream. Of several that could start on a free stream, the first in the list does.

The list is the order of issue, too: the k-th send to a rank with a tag meets that rank's k-th receive of that tag from
here, and the k-th collective of a group on one rank meets the k-th on each other. Collectives of one group are serial
on each rank, as those of a communicator are.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_FLOPS_PER_S = 1e18
"""What a GPU may reach, at most: several hundred times one of today."""
ANY = -1
"""As a receive's peer or tag: whichever comes first."""
NO_STREAM = ""
HOST = "host"
"""The stream of a host that issues what others of its rank compute: it computes beside them, and none of their work."""
COMMUNICATION = "communication"
"""Computing on a stream whose first word this is only stands for a communication: it takes the time of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What all kinds have. ``measured_s``: how long it took where it was captured, to compare with, never to play."""

    after: tuple[int, ...] = ()
    after_start: tuple[int, ...] = ()
    stream: str = NO_STREAM
    name: str = ""
    measured_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Operation):
    """Computing: takes time and no core. ``duration_s`` or, if that is not known, ``flops``, which take as long as the
    rank's FLOP/s say."""

    duration_s: float | None = None
    flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Operation):
    """A message to a rank. It has ended once all is handed to the transport; the receive need not have started."""

    peer: int
    size_bytes: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(Operation):
    """A message from a rank, or ANY. It has ended once all has come and was checked."""

    peer: int
    size_bytes: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall(Operation):
    """A rank's part in a collective of a group.

    ``collective``: its name (:mod:`traffic.collectives.listing`). ``size_bytes``: S by nccl-tests' convention, the same
    on every rank. ``group``: a name in :attr:`traffic.work.graph.WorkGraph.groups`. ``root``: a place in the group.
    ``sent_bytes``: of an ``all_to_all_v``, what goes to each place of the group, and ``size_bytes`` is their sum.
    ``algorithm``: None takes the group's, or the collective's default. ``dtype``: as in :mod:`traffic.collectives`.
    """

    collective: str
    size_bytes: int
    group: str
    root: int = 0
    sent_bytes: tuple[int, ...] = ()
    algorithm: str | None = None
    dtype: str = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead(Operation):
    """A read of a file in the storage of the fabric."""

    path: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite(Operation):
    """A write to a file in the storage of the fabric; it has ended once storage has acknowledged it."""

    path: str
    offset_bytes: int
    size_bytes: int


Communication = Send | Receive | CollectiveCall
