"""The steps of a recording: computing and sends of threads, and what came in between."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Before:
    """What a thread's next step waits for.

    ``steps``: by their numbers. ``received``: how many bytes of each stream must have come. ``sent``: the last message
    of each stream whose rest a thread has handed over.
    """

    steps: set[int] = field(default_factory=set)
    received: dict[int, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)

    def add(self, other: Before) -> None:
        """Wait for what another one waits for, too."""
        self.steps |= other.steps
        for stream, bytes_ in other.received.items():
            self.received[stream] = max(bytes_, self.received.get(stream, 0))
        for stream, message in other.sent.items():
            self.sent[stream] = max(message, self.sent.get(stream, 0))


@dataclass(slots=True)
class Step:
    """Computing, for ``duration_ns``, or a message: bytes ``first`` to ``last`` of ``stream`` (-1: computing).

    ``order``: when it began among all steps and reads. ``thread`` names who did it. ``took_ns``: how long it took.
    """

    rank: int
    order: int
    thread: str
    after: tuple[int, ...]
    received: tuple[tuple[int, int], ...]
    duration_ns: int = 0
    stream: int = -1
    first: int = 0
    last: int = 0
    took_ns: int = 0


@dataclass(slots=True)
class Read:
    """From byte ``first`` of a stream on, a thread received after the steps ``after``, and not before."""

    first: int
    order: int
    after: tuple[int, ...]


@dataclass(slots=True)
class Steps:
    """All steps, those of each rank in the order in which they began.

    ``reads``: of each stream, in the order of its bytes. ``sent``, ``received``: bytes of each stream in all.
    ``began_ns``, ``ended_ns``: the first and the last moment of what crossed the fabric.
    """

    steps: list[Step] = field(default_factory=list)
    reads: dict[int, list[Read]] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    began_ns: int = 0
    ended_ns: int = 0
    orders: int = 0

    def next_order(self) -> int:
        """Return the place of what begins next, among all steps and reads."""
        self.orders += 1
        return self.orders

    @property
    def lasted_s(self) -> float:
        """How long it took from the first byte to the last."""
        return (self.ended_ns - self.began_ns) / 1e9
